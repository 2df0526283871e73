from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.envelope import FileType, open_file, seal
from retention_assets.icechunk.formats.flat_writer import Scalar, Structs, Value, write_flatbuffer
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import ManifestFile
from retention_assets.icechunk.formats.snapshots import read_snapshot, with_parent
from retention_assets.icechunk.formats.values import read_flexbuffer, upgraded_metadata
from tests.icechunk.formats.conftest import Varied
from tests.icechunk_repositories import (
    INITIAL_SNAPSHOT,
    Commit,
    build_history,
    decoded,
    open_repository,
    root,
    set_flushed_at,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MANIFEST = bytes(range(12))


def in_micros(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)


def test_a_snapshot_has_the_values_that_icechunk_reads(varied: Varied) -> None:
    for name, content in varied.files("snapshots").items():
        snapshot = read_snapshot(content, name)
        expected = varied.repository.inspect_snapshot(Path(name).name)
        assert encode_id(snapshot.id) == expected["id"]
        assert snapshot.flushed_at == in_micros(datetime.fromisoformat(expected["flushed_at"]))
        assert snapshot.message == expected["commit_message"]
        stored = snapshot.metadata if varied.spec_version == 2 else upgraded_metadata(snapshot.metadata, name)
        assert {key: read_flexbuffer(value, key) for key, value in stored.items()} == expected["metadata"]
        assert snapshot.spec_version == varied.spec_version


def test_a_snapshot_lists_the_manifests_that_icechunk_lists(varied: Varied) -> None:
    sizes = {decode_id(Path(name).name): len(content) for name, content in varied.files("manifests").items()}
    seen = set()
    for name, content in varied.files("snapshots").items():
        manifests = read_snapshot(content, name).manifests
        listed = varied.repository.list_manifest_files(Path(name).name)
        assert {(encode_id(file.id), file.size_bytes, file.num_chunk_refs) for file in manifests} == {
            (file.id, file.size_bytes, file.num_chunk_refs) for file in listed
        }
        assert all(sizes[file.id] == file.size_bytes for file in manifests)
        seen |= {file.id for file in manifests}
    assert seen == set(sizes)


def test_only_files_of_format_1_name_their_parents(varied: Varied) -> None:
    named = {}
    for name, content in varied.files("snapshots").items():
        snapshot = read_snapshot(content, name)
        named[encode_id(snapshot.id)] = snapshot.parent_id and encode_id(snapshot.parent_id)
    if varied.spec_version == 2:
        assert set(named.values()) == {None}
    else:
        for branch in varied.repository.list_branches():
            for snapshot in varied.repository.ancestry(branch=branch):
                assert named[snapshot.id] == snapshot.parent_id


def test_a_file_with_the_name_of_another_file_is_refused(varied: Varied) -> None:
    (name, content), (other, _) = list(varied.files("snapshots").items())[:2]
    with pytest.raises(CorruptFile, match=f"its content has the id {Path(name).name}, not the id in its name"):
        read_snapshot(content, other)


@pytest.fixture
def chain(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A repository of format 1 with the history a, b, c on main, b tagged."""
    directory = tmp_path / "repository"
    commits = [Commit("a"), Commit("b", "a"), Commit("c", "b")]
    return directory, build_history(directory, 1, commits, {"main": "c"}, {"b": "b"})


def test_a_new_parent_changes_only_the_history(chain: tuple[Path, dict[str, str]]) -> None:
    directory, ids = chain
    path = directory / "snapshots" / ids["c"]
    before = open_repository(directory).inspect_snapshot(ids["c"])
    original = path.read_bytes()
    path.write_bytes(with_parent(original, INITIAL_SNAPSHOT, str(path)))

    repository = open_repository(directory)
    assert [snapshot.id for snapshot in repository.ancestry(branch="main")] == [ids["c"], encode_id(INITIAL_SNAPSHOT)]
    assert [snapshot.id for snapshot in repository.ancestry(tag="b")][:2] == [ids["b"], ids["a"]]
    after = repository.inspect_snapshot(ids["c"])
    header = {"written_by", "app_name", "app_version"}
    assert {**after, "header": None} == {**before, "header": None}
    assert {key: value for key, value in after["header"].items() if key not in header} == {
        key: value for key, value in before["header"].items() if key not in header
    }
    assert read_snapshot(path.read_bytes(), str(path)) == replace(
        read_snapshot(original, str(path)), parent_id=INITIAL_SNAPSHOT
    )


def test_icechunk_commits_expires_and_collects_on_a_rewritten_snapshot(chain: tuple[Path, dict[str, str]]) -> None:
    directory, ids = chain
    path = directory / "snapshots" / ids["c"]
    path.write_bytes(with_parent(path.read_bytes(), INITIAL_SNAPSHOT, str(path)))
    repository = open_repository(directory)
    session = repository.writable_session("main")
    newest = session.commit("d", allow_empty=True)
    now = datetime.now(UTC)
    initial = encode_id(INITIAL_SNAPSHOT)
    set_flushed_at(directory, {initial: now - timedelta(days=3), ids["c"]: now - timedelta(days=2)})
    repository = open_repository(directory)
    assert repository.expire_snapshots(now - timedelta(days=1)) == {ids["c"]}
    assert [snapshot.id for snapshot in repository.ancestry(branch="main")] == [newest, initial]
    assert repository.garbage_collect(now + timedelta(days=1)).snapshots_deleted == 1


def test_a_rewritten_file_is_of_spec_version_1(chain: tuple[Path, dict[str, str]]) -> None:
    directory, ids = chain
    content = (directory / "snapshots" / ids["c"]).read_bytes()
    header, _ = open_file(with_parent(content, INITIAL_SNAPSHOT, ids["c"]), FileType.SNAPSHOT, "x")
    assert (header.spec_version, header.file_type) == (1, FileType.SNAPSHOT)


def test_a_root_snapshot_cannot_get_a_parent(chain: tuple[Path, dict[str, str]]) -> None:
    directory, ids = chain
    content = (directory / "snapshots" / encode_id(INITIAL_SNAPSHOT)).read_bytes()
    with pytest.raises(ValueError, match="has no parent to replace"):
        with_parent(content, decode_id(ids["a"]), "root")


def test_a_snapshot_of_spec_version_2_cannot_get_a_parent(varied_2: Varied) -> None:
    name, content = next(iter(varied_2.files("snapshots").items()))
    with pytest.raises(ValueError, match="spec version 2 has no parent"):
        with_parent(content, INITIAL_SNAPSHOT, name)


def snapshot_file(spec_version: int = 2, **changes: Any) -> bytes:
    """Return a snapshot with one array whose chunks are in `MANIFEST`. `changes` replace fields by their slots."""
    array = {0: [], 2: [{0: Scalar("12s", MANIFEST), 1: Structs(0, b"")}]}
    group: dict[int, Value] = {}
    nodes = [
        {0: Scalar("8s", bytes(8)), 1: "/", 2: b"{}", 3: Scalar("B", 2), 4: group},
        {0: Scalar("8s", b"a" * 8), 1: "/a", 2: b"{}", 3: Scalar("B", 1), 4: array},
    ]
    listed = {0: Scalar("12s", MANIFEST), 1: Scalar("Q", 193), 2: Scalar("I", 7)}
    fields: dict[int, Value] = {
        0: Scalar("12s", b"s" * 12),
        2: nodes,
        3: Scalar("Q", 1_700_000_000_000_000),
        4: "message",
        5: [],
        6: Structs(0, b""),
        7: [listed],
    }
    for slot, value in changes.items():
        fields.pop(int(slot[1:]), None)
        if value is not None:
            fields[int(slot[1:])] = value
    return seal(write_flatbuffer(fields), FileType.SNAPSHOT, spec_version)


def struct_of(manifest: bytes) -> bytes:
    return manifest + bytes(4) + (99).to_bytes(8, "little") + (5).to_bytes(4, "little") + bytes(4)


def test_a_parent_that_shares_its_bytes_with_another_field_is_not_changed() -> None:
    body = bytearray(decoded(snapshot_file(1, s1=Scalar("12s", b"p" * 12))))
    vtable = root(body).Pos - int.from_bytes(body[root(body).Pos : root(body).Pos + 4], "little", signed=True)
    body[vtable + 6 : vtable + 8] = body[vtable + 4 : vtable + 6]  # the parent is where the id is
    content = seal(bytes(body), FileType.SNAPSHOT, spec_version=1)
    with pytest.raises(CorruptFile, match="changing its parent would change something else"):
        with_parent(content, INITIAL_SNAPSHOT, "x")


@pytest.mark.parametrize(
    ("content", "manifests"),
    [
        pytest.param(snapshot_file(), [ManifestFile(MANIFEST, 193, 7)], id="the_newer_list"),
        pytest.param(snapshot_file(s6=Structs(1, struct_of(b"o" * 12))), [ManifestFile(MANIFEST, 193, 7)], id="both"),
        pytest.param(snapshot_file(s2=[], s6=Structs(1, struct_of(MANIFEST)), s7=[]), [], id="the_newer_one_is_empty"),
        pytest.param(
            snapshot_file(s6=Structs(2, struct_of(MANIFEST) * 2), s7=None),
            [ManifestFile(MANIFEST, 99, 5)] * 2,
            id="only_the_older_list_and_one_twice",
        ),
    ],
)
def test_the_newer_list_of_manifests_is_used_if_it_exists(content: bytes, manifests: list[ManifestFile]) -> None:
    assert list(read_snapshot(content, "x").manifests) == manifests


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(snapshot_file(s7=[]), "does not list", id="a_manifest_that_is_used_but_not_listed"),
        pytest.param(snapshot_file(s7=None, s6=None), "list of manifests is missing", id="no_list_of_manifests"),
        pytest.param(snapshot_file(s9="new"), "fields that this version does not know", id="a_field_of_the_future"),
        pytest.param(snapshot_file(s0=None), "its id is missing", id="no_id"),
        pytest.param(snapshot_file(s2=None), "its nodes are missing", id="no_nodes"),
        pytest.param(snapshot_file(s3=Scalar("Q", 1 << 63)), "an impossible time", id="after_the_end_of_time"),
        pytest.param(snapshot_file(s4=None), "its message is missing", id="no_message"),
        pytest.param(
            snapshot_file(s2=[{3: Scalar("B", 3), 4: {}}]), "neither an array nor a group", id="a_node_of_a_new_kind"
        ),
        pytest.param(snapshot_file(s2=[{3: Scalar("B", 1)}]), "a table is missing", id="an_array_without_chunks"),
        pytest.param(
            snapshot_file(s7=[{0: Scalar("12s", MANIFEST), 4: "new"}]), "a manifest's entry", id="a_newer_entry"
        ),
        pytest.param(snapshot_file(s7=[{1: Scalar("Q", 1)}]), "a manifest's id is missing", id="an_entry_without_id"),
        pytest.param(
            snapshot_file(s7=[{0: Scalar("12s", MANIFEST), 1: Scalar("Q", 1 << 63)}]), "63 or more", id="a_giant_size"
        ),
        pytest.param(
            snapshot_file(s5=[{0: "k", 1: b"1"}, {0: "k", 1: b"2"}]), "one name", id="metadata_with_one_name_twice"
        ),
        pytest.param(snapshot_file(s5=[{0: "k"}]), "the value of a metadata item", id="metadata_without_value"),
    ],
)
def test_a_contradictory_or_incomplete_snapshot_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=what):
        read_snapshot(content, "x")


def test_icechunk_reads_the_snapshots_that_these_tests_create(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    ids = build_history(directory, 2, [Commit("a")], {"main": "a"})
    (directory / "snapshots" / ids["a"]).write_bytes(snapshot_file(s0=Scalar("12s", decode_id(ids["a"]))))
    repository = open_repository(directory)
    (file,) = repository.list_manifest_files(ids["a"])
    assert (decode_id(file.id), file.size_bytes, file.num_chunk_refs) == (MANIFEST, 193, 7)
