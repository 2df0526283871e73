from collections.abc import Callable, Sequence
from typing import Any

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.lakefs.formats.identity import commit_id
from retention_assets.lakefs.formats.lakefs_pb2 import BranchData, CommitData, TagData
from retention_assets.lakefs.formats.ranges import read_metarange
from retention_assets.lakefs.formats.references import read_branches, read_commits, read_tags
from tests.lakefs_tables import write_table
from tests.saved_repositories import REPOSITORIES, api, namespace

type Reader = Callable[[bytes, str], Sequence[Any]]


def read_dump(name: str, entity: str, reader: Reader) -> list[Any]:
    """Return every record of one entity of the reference dump of `name`."""
    folder = namespace(name) / "_lakefs"
    metarange = folder / api(name)["refs_dump"][f"{entity}_meta_range_id"]
    ranges = [
        folder / found for found in read_metarange(metarange.read_bytes(), str(metarange))["range_id"].to_pylist()
    ]
    return [record for file in ranges for record in reader(file.read_bytes(), str(file))]


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_dump_has_every_commit_that_the_server_lists(name: str) -> None:
    found = [
        {
            "id": commit.id,
            "parents": list(commit.parents),
            "version": commit.version,
            "generation": commit.generation,
            "creation_date": commit.creation_date.seconds,
            "meta_range_id": commit.meta_range_id,
            "committer": commit.committer,
            "message": commit.message,
        }
        for commit in read_dump(name, "commits", read_commits)
    ]
    answers = [{key: commit[key] for key in found[0]} for commit in api(name)["commits"]]
    assert found == sorted(answers, key=lambda commit: commit["id"])


@pytest.mark.parametrize("name", REPOSITORIES)
def test_the_dump_has_every_branch_hidden_branches_and_every_tag(name: str) -> None:
    branches = {branch.id: branch.commit_id for branch in read_dump(name, "branches", read_branches)}
    tags = {tag.id: tag.commit_id for tag in read_dump(name, "tags", read_tags)}
    assert branches == {branch["id"]: branch["commit_id"] for branch in api(name)["branches"]}
    assert tags == {tag["id"]: tag["commit_id"] for tag in api(name)["tags"]}


def commit_record(seconds: int = 5, **changes: object) -> tuple[bytes, bytes, bytes]:
    """Return a record of a commit. Its id is correct unless `changes` has another one."""
    commit = CommitData(
        committer="ann", message="m", meta_range_id="", creation_date={"seconds": seconds}, metadata={"k": "v"}
    )
    commit.id = commit_id(
        committer="ann", message="m", metarange_id="", created_seconds=seconds, metadata={"k": "v"}, parents=[]
    )
    key = commit.id.encode()
    commit.MergeFrom(CommitData(**changes))
    return key, key, commit.SerializeToString()


def written(entity: str, *records: tuple[bytes, bytes, bytes]) -> bytes:
    return write_table(records, "ranges", {"entity": entity.encode()})[1]


def test_a_commit_without_changes_is_read() -> None:
    assert [commit.committer for commit in read_commits(written("commit", commit_record()), "x")] == ["ann"]


@pytest.mark.parametrize(
    "changes",
    [{"committer": "bob"}, {"message": "other"}, {"parents": ["a"]}, {"metadata": {"l": ""}}, {"id": "0" * 64},
     {"creation_date": {"seconds": 6}}, {"meta_range_id": "a"}],
    ids=str,
)  # fmt: skip
def test_a_commit_whose_content_does_not_match_its_id_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptFile, match="has the id"):
        read_commits(written("commit", commit_record(**changes)), "x")


def test_a_commit_under_another_identity_is_refused() -> None:
    key, _, content = commit_record()
    with pytest.raises(CorruptFile, match="has the id"):
        read_commits(written("commit", (key, b"0" * 64, content)), "x")


@pytest.mark.parametrize("seconds", [1_700_000_000_000, 2**63 - 1, 0, -(2**63)])
def test_a_commit_with_any_date_that_a_client_sent_is_read(seconds: int) -> None:
    (commit,) = read_commits(written("commit", commit_record(seconds)), "x")
    assert commit.creation_date.seconds == seconds


def test_a_commit_at_an_impossible_nanosecond_is_refused() -> None:
    with pytest.raises(CorruptFile, match="impossible creation time"):
        read_commits(written("commit", commit_record(creation_date={"nanos": -1})), "x")


@pytest.mark.parametrize(
    ("reader", "entity", "record"), [(read_branches, "branch", BranchData), (read_tags, "tag", TagData)]
)
def test_a_branch_or_tag_that_contradicts_its_key_is_refused(reader: Reader, entity: str, record: Any) -> None:
    content = record(id="main", commit_id="c1").SerializeToString()
    assert len(reader(written(entity, (b"main", b"c1", content)), "x")) == 1
    for key, identity in ((b"main2", b"c1"), (b"main", b"c2")):
        with pytest.raises(CorruptFile, match="has the content 'main' at 'c1'"):
            reader(written(entity, (key, identity, content)), "x")


READERS: dict[str, Reader] = {"commit": read_commits, "branch": read_branches, "tag": read_tags}


@pytest.mark.parametrize("entity", READERS)
def test_each_reader_reads_its_own_entity_only(entity: str) -> None:
    empty = written(entity)
    assert list(READERS[entity](empty, "x")) == []
    for other in READERS.keys() - {entity}:
        with pytest.raises(CorruptFile, match=f"entity b'{entity}'"):
            READERS[other](empty, "x")
    with pytest.raises(CorruptFile, match="entity None"):
        READERS[entity](write_table([], "ranges")[1], "x")


@pytest.mark.parametrize("entity", READERS)
def test_a_record_that_is_not_a_valid_message_is_refused(entity: str) -> None:
    with pytest.raises(CorruptFile, match=r"^x: it is not a valid "):
        READERS[entity](written(entity, (b"k", b"i", b"\x0a\x05x")), "x")
