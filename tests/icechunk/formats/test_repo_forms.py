"""Repo objects built field by field: where each field is read, what is refused, and what is not written."""

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.envelope import FileType, seal
from retention_assets.icechunk.formats.flat_writer import Scalar, Value, write_flatbuffer
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from tests.icechunk.formats.sharing import sharing
from tests.icechunk_repositories import (
    decoded,
    root,
    tables,
)

ONLINE = RepoStatus(Availability.ONLINE, 1)
SMALL = Repo(
    branches={"main": bytes(12)},
    snapshots={bytes(12): SnapshotInfo(bytes(12), None, 5, "initial")},
    status=ONLINE,
    latest_updates=(Update(UpdateKind.REPO_INITIALIZED, 5),),
)


def test_an_absent_vector_is_not_an_empty_one() -> None:
    for flags in (None, frozenset[int]()):
        repo = replace(SMALL, enabled_feature_flags=flags, config=None if flags is None else b"")
        body = root(decoded(write_repo(repo)))
        assert (body.Offset(4 + 2 * 10) > 0) is (body.Offset(4 + 2 * 9) > 0) is (flags is not None)
        assert read_repo(write_repo(repo), "x") == repo


def test_vectors_that_icechunk_searches_by_bisection_are_sorted() -> None:
    unsorted = dict.fromkeys("zéaB", b"")
    flags = frozenset({40_000, 3, 17, 65_535, 256, 1024})
    repo = replace(SMALL, metadata=unsorted, disabled_feature_flags=flags)
    body = root(decoded(write_repo(repo)))
    start, count = body.Vector(body.Offset(4 + 2 * 11)), body.VectorLen(body.Offset(4 + 2 * 11))
    assert list(struct.unpack_from(f"<{count}H", body.Bytes, start)) == sorted(flags)
    names = [item.String(item.Pos + item.Offset(4)).decode() for item in tables(body, 6)]
    assert names == sorted(unsorted)


def test_an_empty_list_of_pruned_logs_is_not_written() -> None:
    listed = replace(SMALL.snapshots[bytes(12)], pruned_ancestor_tx_logs=(b"l" * 12,))
    for snapshot in (SMALL.snapshots[bytes(12)], listed):
        repo = replace(SMALL, snapshots={bytes(12): snapshot})
        (entry,) = tables(root(decoded(write_repo(repo))), 4)
        assert (entry.Offset(4 + 2 * 5) > 0) is (snapshot is listed)


def repo_file(spec_version: int = 2, **changes: Value | None) -> bytes:
    """Return a small repo object. `changes` replace fields by their slots."""
    first = {0: Scalar("12s", b"a" * 12), 1: Scalar("i", -1), 2: Scalar("Q", 5), 3: "one", 4: []}
    second = {0: Scalar("12s", b"b" * 12), 2: Scalar("Q", 6), 3: "two", 4: []}  # no parent offset: 0
    initialized: dict[int, Value] = {0: Scalar("B", 1), 1: {}, 2: Scalar("Q", 7)}
    fields: dict[int, Value] = {
        0: Scalar("B", 2),
        1: [],
        2: [{0: "dev", 1: Scalar("I", 1)}, {0: "main"}],  # no index: 0
        3: [],
        4: [first, second],
        5: {1: Scalar("Q", 7)},
        7: [initialized],
    }
    for slot, value in changes.items():
        fields.pop(int(slot[1:]), None)
        if value is not None:
            fields[int(slot[1:])] = value
    return seal(write_flatbuffer(fields), FileType.REPO, spec_version)


def test_absent_numbers_are_zero() -> None:
    repo = read_repo(repo_file(), "x")
    assert repo.branches == {"dev": b"b" * 12, "main": b"a" * 12}
    assert [snapshot.parent_id for snapshot in repo.snapshots.values()] == [None, b"a" * 12]
    assert repo.status == RepoStatus(Availability.ONLINE, 7)
    assert (repo.metadata, repo.enabled_feature_flags, repo.config) == ({}, None, None)


def snapshot(letter: str, **changes: Value) -> dict[int, Value]:
    fields: dict[int, Value] = {0: Scalar("12s", letter.encode() * 12), 1: Scalar("i", -1), 3: letter}
    return fields | {int(slot[1:]): value for slot, value in changes.items()}


def update(kind: int, value: dict[int, Value] | None, **changes: Value) -> list[dict[int, Value]]:
    fields: dict[int, Value] = {0: Scalar("B", kind)}
    if value is not None:
        fields[1] = value
    return [fields | {int(slot[1:]): value for slot, value in changes.items()}]


NO_NAME: list[dict[int, Value]] = [{}]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(repo_file(spec_version=1), "spec version 2, not 2|it says it is", id="a_header_of_format_1"),
        pytest.param(repo_file(s0=Scalar("B", 1)), "its content has spec version 1", id="spec_version_1"),
        pytest.param(repo_file(s13="new"), "the repo object in it has fields", id="a_field_of_the_future"),
        pytest.param(repo_file(s1=None), "list of its branches or tags is missing", id="no_tags"),
        pytest.param(repo_file(s2=None), "list of its branches or tags is missing", id="no_branches"),
        pytest.param(repo_file(s2=[{0: "dev"}]), "no branch `main`", id="no_main"),
        pytest.param(repo_file(s2=[{0: "main"}, {0: "main"}]), "its references are not in order", id="main_twice"),
        pytest.param(repo_file(s2=[{0: "main"}, {0: "dev"}]), "its references are not in order", id="unsorted"),
        pytest.param(repo_file(s2=NO_NAME), "name of a reference is missing", id="a_branch_without_a_name"),
        pytest.param(repo_file(s2=[{0: "main", 2: "new"}]), "a reference in it has fields", id="a_newer_branch"),
        pytest.param(
            repo_file(s1=[{0: "t", 1: Scalar("I", 2)}]), "the snapshot of the reference 't' is not", id="a_loose_tag"
        ),
        pytest.param(repo_file(s3=None), "list of its deleted tags is missing", id="no_deleted_tags"),
        pytest.param(repo_file(s3=["b", "a"]), "its deleted tags are not in order", id="unsorted_deleted_tags"),
        pytest.param(repo_file(s4=None), "its snapshots are missing", id="no_snapshots"),
        pytest.param(repo_file(s4=[snapshot("b"), snapshot("a")]), "its snapshots are not", id="unsorted_snapshots"),
        pytest.param(repo_file(s4=[snapshot("a"), snapshot("a")]), "its snapshots are not", id="a_snapshot_twice"),
        pytest.param(
            repo_file(s4=[snapshot("a", s1=Scalar("i", 1))]), "parent of a snapshot is not in it", id="a_lost_parent"
        ),
        pytest.param(
            repo_file(s4=[snapshot("a", s1=Scalar("i", -2))]), "parent of a snapshot is not in it", id="no_such_parent"
        ),
        pytest.param(
            repo_file(s4=[snapshot("a", s2=Scalar("Q", 10**18))]), "an impossible time", id="a_far_future_snapshot"
        ),
        pytest.param(repo_file(s4=[snapshot("a", s6="new")]), "a snapshot in it has fields", id="a_newer_snapshot"),
        pytest.param(repo_file(s4=[{3: "no id"}]), "the id of a snapshot is missing", id="a_snapshot_without_id"),
        pytest.param(
            repo_file(s4=[{0: Scalar("12s", bytes(12))}]), "the message of a snapshot", id="a_snapshot_without_message"
        ),
        pytest.param(repo_file(s5=None), "its status is missing", id="no_status"),
        pytest.param(repo_file(s5={0: Scalar("B", 3)}), "its availability is the unknown 3", id="a_new_availability"),
        pytest.param(repo_file(s5={1: Scalar("Q", 10**18)}), "its status has an impossible", id="a_far_future_status"),
        pytest.param(repo_file(s5={3: "new"}), "the status in it has fields", id="a_newer_status"),
        pytest.param(repo_file(s7=[]), "or no ops log", id="an_empty_ops_log"),
        pytest.param(repo_file(s7=update(17, {})), "an update in it is of the unknown kind 17", id="a_new_kind"),
        pytest.param(repo_file(s7=update(0, {})), "an update in it is of the unknown kind 0", id="no_kind"),
        pytest.param(
            repo_file(s7=update(13, None)), "the value of an update is missing", id="an_update_without_a_value"
        ),
        pytest.param(repo_file(s7=update(13, {0: "new"})), "an update of the kind GC_RAN in", id="more_of_a_kind"),
        pytest.param(repo_file(s7=update(13, {}, s4="new")), "an update in it has fields", id="a_newer_update"),
        pytest.param(repo_file(s7=update(5, {})), "the name in an update is missing", id="a_tag_without_a_name"),
        pytest.param(repo_file(s7=update(12, {})), "the snapshot in an update", id="a_flush_without_a_snapshot"),
        pytest.param(repo_file(s7=update(16, {})), "the status in an update", id="a_change_to_no_status"),
        pytest.param(
            repo_file(s7=update(13, {}, s2=Scalar("Q", 10**18))),
            "an update has an impossible time",
            id="a_far_future_update",
        ),
    ],
)
def test_a_repo_object_that_contradicts_itself_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=what):
        read_repo(content, "x")


def lost_parent(repo: Repo) -> Repo:
    orphan = replace(repo.snapshots[bytes(12)], parent_id=b"x" * 12)
    return replace(repo, snapshots={bytes(12): orphan})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param(lost_parent, "the parent of a snapshot is not", id="a_lost_parent"),
        pytest.param(lambda repo: replace(repo, branches={}), "a branch `main`", id="no_main"),
        pytest.param(lambda repo: replace(repo, latest_updates=()), "and an ops log", id="no_ops_log"),
        pytest.param(lambda repo: replace(repo, tags={"t": b"x" * 12}), "names a snapshot", id="a_loose_tag"),
        pytest.param(
            lambda repo: replace(repo, snapshots={b"x" * 12: repo.snapshots[bytes(12)]}), "another id", id="a_wrong_key"
        ),
        pytest.param(
            lambda repo: replace(repo, status=replace(ONLINE, set_at=-1)), "a number does not fit", id="before_1970"
        ),
        pytest.param(
            lambda repo: replace(repo, enabled_feature_flags=frozenset({1 << 16})), "does not fit", id="a_giant_flag"
        ),
        pytest.param(
            lambda repo: replace(repo, spec_version=1), "its content has spec version 1", id="another_spec_version"
        ),
        pytest.param(
            lambda repo: replace(repo, latest_updates=(Update(UpdateKind.GC_RAN, 5, name="lost"),)),
            "would be read back differently",
            id="an_update_with_a_field_of_another_kind",
        ),
        pytest.param(
            lambda repo: replace(repo, metadata={"k\ud800": b""}), "surrogates not allowed", id="a_name_that_is_no_text"
        ),
    ],
)
def test_a_repo_object_that_would_not_be_read_back_is_not_written(change: Callable[[Repo], Repo], what: str) -> None:
    with pytest.raises((ValueError, CorruptFile), match=what):
        write_repo(change(SMALL))


def many_snapshots(count: int, logs: int) -> bytes:
    """Return a repo object whose snapshots all share one list of lost transaction logs."""
    lost = tuple(n.to_bytes(12, "big") for n in range(logs))
    snapshots = [SnapshotInfo(n.to_bytes(12, "big"), None, 5, "", {}, lost[: 1 + n // count]) for n in range(count)]
    snapshots.append(SnapshotInfo(b"\xff" * 12, None, 5, "", {}, lost))
    repo = replace(SMALL, snapshots={snapshot.id: snapshot for snapshot in snapshots})
    return sharing(write_repo(repo), lambda root: tables(root, 4), 5)


def test_a_list_of_pruned_logs_may_be_shared_but_not_too_often() -> None:
    shared = read_repo(many_snapshots(3, 5), "x").snapshots.values()
    assert [len(snapshot.pruned_ancestor_tx_logs) for snapshot in shared] == [5] * 4
    with pytest.raises(CorruptFile, match="used more than once"):
        read_repo(many_snapshots(1000, 2000), "x")
