from pathlib import Path

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.paths import (
    ReferenceFile,
    read_reference,
    reference_file,
    write_reference,
)
from tests.icechunk.formats.conftest import Varied
from tests.icechunk_repositories import Commit, build_history, open_repository

NAME = "1CECHNKREP0F1RSTCMT0"


@pytest.fixture
def format_1(varied_of_each_format: dict[int, Varied]) -> Varied:
    return varied_of_each_format[1]


def test_references_are_those_that_icechunk_finds(format_1: Varied) -> None:
    found: dict[ReferenceFile, str | None] = {}
    for path in (format_1.directory / "refs").rglob("*.*"):
        if path.is_file():
            reference = reference_file(path.relative_to(format_1.directory).as_posix())
            assert format_1.directory / reference.path == path
            found[reference] = None if reference.tombstone else encode_id(read_reference(path.read_bytes(), str(path)))
    deleted = {file.name for file in found if file.tombstone}
    branches = {file.name: its_id for file, its_id in found.items() if file.kind == "branch"}
    tags = {file.name: its_id for file, its_id in found.items() if file.kind == "tag" and its_id}
    repository = format_1.repository
    assert deleted == {"withdrawn"}
    assert branches == {name: repository.lookup_branch(name) for name in repository.list_branches()}
    live = {name: its_id for name, its_id in tags.items() if name not in deleted}
    assert live == {name: repository.lookup_tag(name) for name in repository.list_tags()}


def test_icechunk_reads_the_reference_that_we_write(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    ids = build_history(directory, 1, [Commit("a"), Commit("b", "a")], {"main": "a"})
    path = directory / ReferenceFile("branch", "main").path
    written = write_reference(decode_id(ids["b"]))
    assert len(written) == len(path.read_bytes())
    path.write_bytes(written)
    assert open_repository(directory).lookup_branch("main") == ids["b"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b'{"snapshot":"%b"}' % NAME.encode(), id="as_icechunk_writes_it"),
        pytest.param(b' {\n  "snapshot" : "%b"\n}\n' % NAME.encode(), id="with_spaces"),
    ],
)
def test_the_snapshot_of_a_reference_is_read(content: bytes) -> None:
    assert encode_id(read_reference(content, "x")) == NAME


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b'{"snapshot":"1CECH', "not JSON", id="cut"),
        pytest.param(b"\xff\xfe\x00", "not JSON", id="not_text"),
        pytest.param(b"[" * 250, "not JSON", id="bottomless"),
        pytest.param(b"{}", "not the id of a snapshot", id="no_snapshot"),
        pytest.param(b"null", "not the id of a snapshot", id="null"),
        pytest.param(b'["snapshot","%b"]' % NAME.encode(), "not the id of a snapshot", id="a_list"),
        pytest.param(b'[["snapshot","%b"]]' % NAME.encode(), "not the id of a snapshot", id="a_list_of_pairs"),
        pytest.param(b'{"snapshot":["%b"]}' % NAME.encode(), "not the id of a snapshot", id="a_list_of_ids"),
        pytest.param(b'{"snapshot":7}', "not the id of a snapshot", id="a_number"),
        pytest.param(b'{"snapshot":"%b"}' % NAME.lower().encode(), "not the id", id="lower_case"),
        pytest.param(b'{"snapshot":"1CECHNKREP0F1RSTCMT1"}', "not the id", id="an_id_that_cannot_be"),
        pytest.param(b'{"snapshot":"%b","x":1}' % NAME.encode(), "not the id", id="more_than_a_snapshot"),
        pytest.param(b'{"snapshot":"%b","snapshot":"%b"}' % ((NAME.encode(),) * 2), "not the id", id="two_snapshots"),
        pytest.param(b'{"snapshot":"%b"}' % NAME.encode() + b" " * 300, "not the id", id="too_long"),
        pytest.param(b'{"snapshot":"%b"}\0' % NAME.encode(), "not JSON", id="a_byte_after_it"),
    ],
)
def test_invalid_content_of_a_reference_file_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=rf"^refs/tag.v1/ref.json: .*{what}"):
        read_reference(content, "refs/tag.v1/ref.json")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("refs/branch.main/ref.json", ReferenceFile("branch", "main")),
        ("refs/tag.v1.0/ref.json", ReferenceFile("tag", "v1.0")),
        ("refs/tag.branch.x/ref.json.deleted", ReferenceFile("tag", "branch.x", tombstone=True)),
        ("refs/branch.a b%C3%A9/ref.json", ReferenceFile("branch", "a b%C3%A9")),
    ],
    ids=["a_branch", "a_tag", "a_tombstone", "a_name_that_the_store_escaped"],
)
def test_the_path_of_a_reference_gives_its_kind_and_name(path: str, expected: ReferenceFile) -> None:
    assert reference_file(path) == expected
    assert expected.path == path


@pytest.mark.parametrize(
    "path",
    [
        "refs/main/ref.json",
        "refs/commit.x/ref.json",
        "refs/branch./ref.json",
        "refs/branch.a/b/ref.json",
        "refs/branch.main/ref.json.deleted",
        "refs/branch.main/ref.json.bak",
        "refs/branch.main/ZZZZZZZZ.json",
        "refs/ref.json",
        "snapshots/branch.main/ref.json",
    ],
)
def test_a_path_that_is_neither_a_branch_nor_a_tag_is_refused(path: str) -> None:
    with pytest.raises(CorruptFile, match=r"neither a branch nor a tag.*Nothing was deleted\. .*delete it\. .*keep it"):
        reference_file(path)
