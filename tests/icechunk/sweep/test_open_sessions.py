"""Sessions of icechunk that are open during a plan and its sweep: they can still read and commit."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk as ic
import pytest
import zarr

from retention_assets.errors import GuardRefused, SourceError
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.icechunk.sweep.retained_set import edits_of, retained_set_of
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.snapshots import Keep, SnapshotPolicy
from tests.icechunk.sweep.repositories import now, plan_and_sweep
from tests.icechunk.sweep.repositories import values as all_values
from tests.icechunk_repositories import (
    FORMATS,
    Commit,
    Format,
    build_history,
    open_repository,
    set_flushed_at,
    set_stored_at,
    set_updated_at,
)

LAST_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
ONLY_THE_NEWEST = SnapshotPolicy(default=Keep("newest", timedelta(0), last=1))
COMMITS = [Commit("a", None, LAST_YEAR), Commit("b", "a", LAST_YEAR + timedelta(days=1))]  # main: root <- a <- b
BOTH = ic.BasicConflictSolver(on_chunk_conflict=ic.VersionSelection.UseTheirs)


def built(directory: Path, spec_version: Format) -> ic.Repository:
    """Return a repository with the branch `main` on the commit b. All its files are old."""
    build_history(directory, spec_version, COMMITS, {"main": "b"})
    set_stored_at(directory, LAST_YEAR)
    return open_repository(directory)


def overwrite(directory: Path, *chunks: int, branch: str = "main") -> None:
    session = open_repository(directory).writable_session(branch)
    for chunk in chunks:
        zarr.open_array(session.store, path="a", mode="r+")[chunk] = 100 + chunk
    session.commit("overwritten")


def sweep(directory: Path, policy: SnapshotPolicy = ONLY_THE_NEWEST) -> None:
    """Plan and sweep with a grace period of an hour, which is longer than any session of a test."""
    plan_and_sweep(directory, policy, now(), now() - timedelta(hours=1))


def values(repository: ic.Repository) -> list[int]:
    store = repository.readonly_session("main").store
    return list(zarr.open_array(store, path="a", mode="r")[:4])


@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_a_session_whose_snapshot_is_no_longer_the_newest_reads_and_commits_after_a_sweep(
    tmp_path: Path, spec_version: Format
) -> None:
    repository = built(tmp_path / "r", spec_version)
    reader, writer = repository.readonly_session("main"), repository.writable_session("main")
    zarr.open_array(writer.store, path="a", mode="r+")[3] = 7
    overwrite(tmp_path / "r", 0, 1)
    sweep(tmp_path / "r")
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [1, 2, 0, 0]
    writer.commit("late", rebase_with=BOTH)
    assert values(open_repository(tmp_path / "r")) == [100, 101, 0, 7]


@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_the_commit_of_a_session_fails_after_a_sweep_deleted_its_branch_also_if_somebody_creates_the_branch_again(
    tmp_path: Path, spec_version: Format
) -> None:
    directory = tmp_path / "r"
    left = Commit("x", "a", LAST_YEAR + timedelta(days=1))
    build_history(directory, spec_version, [*COMMITS, left], {"main": "b", "old": "x"})
    set_stored_at(directory, LAST_YEAR)
    session = open_repository(directory).writable_session("old")
    zarr.open_array(session.store, path="a", mode="r+")[3] = 7
    sweep(directory, SnapshotPolicy(default=Keep("month", timedelta(days=30)), delete_expired_branches=True))
    repository = open_repository(directory)
    assert repository.list_branches() == {"main"}
    with pytest.raises(ic.IcechunkError):
        session.commit("late", rebase_with=BOTH)
    repository.create_branch("old", repository.lookup_branch("main"))
    with pytest.raises(ic.IcechunkError):
        session.commit("late", rebase_with=BOTH)
    assert {name: one[:4] for name, one in all_values(open_repository(directory)).items()} == {
        "branch main": [1, 2, 0, 0],
        "branch old": [1, 2, 0, 0],
    }


def test_a_chunk_that_an_open_session_moves_to_another_index_stays(tmp_path: Path) -> None:
    """Only the old snapshot of the session has this chunk. The session names the chunk again when it commits."""
    repository = built(tmp_path / "r", 2)
    session = repository.writable_session("main")
    session.reindex_array("/a", lambda index: [2] if list(index) == [0] else None)
    overwrite(tmp_path / "r", 0)
    sweep(tmp_path / "r")
    session.commit("moved", rebase_with=BOTH)
    assert values(open_repository(tmp_path / "r")) == [100, 2, 1, 0]


@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_the_snapshot_of_a_session_is_released_once_its_child_is_older_than_the_grace_period(
    tmp_path: Path, spec_version: Format
) -> None:
    built(tmp_path / "r", spec_version)
    overwrite(tmp_path / "r", 0)
    set_stored_at(tmp_path / "r", now() - timedelta(hours=2))
    sweep(tmp_path / "r")
    line = [one.message for one in open_repository(tmp_path / "r").ancestry(branch="main")]
    assert line == ["overwritten", "Repository initialized"]


@pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])
def test_the_snapshot_of_a_session_stays_while_its_child_is_young_also_if_no_reference_reaches_both(
    tmp_path: Path, spec_version: Format
) -> None:
    """The branch is reset after the commit. The policy keeps the snapshot, but its file is old."""
    repository = built(tmp_path / "r", spec_version)
    b, a, _ = (one.id for one in repository.ancestry(branch="main"))
    set_flushed_at(tmp_path / "r", {b: now() - timedelta(days=2), a: now() - timedelta(days=3)})
    reader = open_repository(tmp_path / "r").readonly_session("main")
    overwrite(tmp_path / "r", 0)
    open_repository(tmp_path / "r").reset_branch("main", a)
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("month", timedelta(days=30))))
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [1, 2, 0, 0]


def test_a_session_reads_after_its_branch_was_reset_although_no_plan_found_the_tip(tmp_path: Path) -> None:
    repository = built(tmp_path / "r", 2)
    b = repository.lookup_branch("main")
    overwrite(tmp_path / "r", 0)
    set_stored_at(tmp_path / "r", now() - timedelta(hours=2))
    reader = open_repository(tmp_path / "r").readonly_session("main")
    open_repository(tmp_path / "r").reset_branch("main", b)
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [100, 2, 0, 0]


def expire_by_icechunk(directory: Path) -> None:
    released = open_repository(directory).expire_snapshots(datetime.now(UTC) - timedelta(days=1))
    assert released


def test_the_snapshot_of_a_session_stays_while_its_child_is_young_although_icechunk_expired_it(tmp_path: Path) -> None:
    """The session names a chunk again that only its snapshot has. The history does not contain this snapshot."""
    repository = built(tmp_path / "r", 2)
    session = repository.writable_session("main")
    session.reindex_array("/a", lambda index: [2] if list(index) == [0] else None)
    overwrite(tmp_path / "r", 0)
    overwrite(tmp_path / "r", 0)
    expire_by_icechunk(tmp_path / "r")
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert (tmp_path / "r" / "snapshots" / session.snapshot_id).exists()
    session.commit("moved", rebase_with=BOTH)
    assert values(open_repository(tmp_path / "r")) == [100, 2, 1, 0]


def forget_removed_parents(directory: Path) -> None:
    """Write the repo object as icechunk 2.0 did after an expiration: without the logs of removed parents."""
    repo = read_repo((directory / "repo").read_bytes(), "repo")
    assert any(one.pruned_ancestor_tx_logs for one in repo.snapshots.values())
    snapshots = {key: replace(one, pruned_ancestor_tx_logs=()) for key, one in repo.snapshots.items()}
    (directory / "repo").write_bytes(write_repo(replace(repo, snapshots=snapshots)))


def test_the_snapshot_of_a_session_stays_although_icechunk_2_0_expired_it_and_did_not_list_it(tmp_path: Path) -> None:
    repository = built(tmp_path / "r", 2)
    reader = repository.readonly_session("main")
    overwrite(tmp_path / "r", 0)
    overwrite(tmp_path / "r", 0)
    expire_by_icechunk(tmp_path / "r")
    forget_removed_parents(tmp_path / "r")
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [1, 2, 0, 0]


def test_a_snapshot_that_icechunk_2_0_expired_goes_once_the_commit_on_it_is_older_than_the_grace_period(
    tmp_path: Path,
) -> None:
    b = built(tmp_path / "r", 2).lookup_branch("main")
    overwrite(tmp_path / "r", 0)
    expire_by_icechunk(tmp_path / "r")
    forget_removed_parents(tmp_path / "r")
    set_stored_at(tmp_path / "r", now() - timedelta(hours=2))
    set_updated_at(tmp_path / "r", now() - timedelta(hours=2))
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert not (tmp_path / "r" / "snapshots" / b).exists()


def test_a_snapshot_that_icechunk_expired_goes_once_its_child_is_older_than_the_grace_period(tmp_path: Path) -> None:
    built(tmp_path / "r", 2)
    b = open_repository(tmp_path / "r").lookup_branch("main")
    overwrite(tmp_path / "r", 0)
    expire_by_icechunk(tmp_path / "r")
    set_stored_at(tmp_path / "r", now() - timedelta(hours=2))
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert not (tmp_path / "r" / "snapshots" / b).exists()


def expired_with_its_child(directory: Path, entries: int) -> ic.Session:
    """Return a session on the branch dev. Its snapshot is old. Icechunk removed it from the history with its child.

    `entries`: of the ops log in one repo object. Each tip of dev is the parent of the next one.
    """
    repository = built(directory, 2)
    config = repository.config
    config.num_updates_per_repo_info_file = entries
    repository = repository.reopen(config=config)
    repository.save_config()
    repository.create_branch("dev", repository.lookup_branch("main"))
    session = repository.writable_session("dev")
    zarr.open_array(session.store, path="a", mode="r+")[0] = 50
    session.commit("base")
    set_stored_at(directory, LAST_YEAR)
    reader = open_repository(directory).readonly_session("dev")
    for number in range(2):
        session = repository.writable_session("dev")
        zarr.open_array(session.store, path="a", mode="r+")[0] = 60 + number
        session.commit("later")
    repository.delete_branch("dev")
    assert reader.snapshot_id in open_repository(directory).expire_snapshots(datetime.now(UTC))
    return reader


@pytest.mark.parametrize("entries", [1000, 1, 2], ids=["one_object", "a_backup_for_each_entry", "two_entries_a_backup"])
def test_the_snapshot_of_a_session_stays_although_icechunk_expired_it_together_with_its_young_child(
    tmp_path: Path, entries: int
) -> None:
    """The branch is deleted, so no remaining snapshot lists the two."""
    reader = expired_with_its_child(tmp_path / "r", entries)
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert (tmp_path / "r" / "snapshots" / reader.snapshot_id).exists()
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [50, 2, 0, 0]


def test_the_snapshot_of_a_session_stays_although_the_file_of_its_expired_child_is_gone(tmp_path: Path) -> None:
    reader = expired_with_its_child(tmp_path / "r", 1000)
    for path in (tmp_path / "r" / "snapshots").iterdir():
        if datetime.fromtimestamp(path.stat().st_mtime, UTC) > LAST_YEAR + timedelta(days=1):
            path.unlink()
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert list(zarr.open_array(reader.store, path="a", mode="r")[:4]) == [50, 2, 0, 0]


def test_a_snapshot_that_icechunk_expired_with_its_child_goes_once_the_commit_is_older_than_the_grace_period(
    tmp_path: Path,
) -> None:
    reader = expired_with_its_child(tmp_path / "r", 1000)
    set_updated_at(tmp_path / "r", now() - timedelta(hours=2))
    sweep(tmp_path / "r", SnapshotPolicy(default=Keep("for-ever", None)))
    assert not (tmp_path / "r" / "snapshots" / reader.snapshot_id).exists()


def test_a_plan_is_refused_if_the_backup_with_the_parent_of_a_snapshot_that_icechunk_expired_is_missing(
    tmp_path: Path,
) -> None:
    expired_with_its_child(tmp_path / "r", 1000)
    for path in (tmp_path / "r" / "overwritten").iterdir():
        path.unlink()
    with pytest.raises(SourceError, match=r"overwritten/.* names the parent of the snapshot .* Restore this backup"):
        sweep(tmp_path / "r")


def test_a_sweep_is_refused_if_icechunk_expired_a_snapshot_of_the_plan_with_a_child_that_is_newer_than_the_plan(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "r"
    repository = built(directory, 2)
    b = repository.lookup_branch("main")
    root = next(one.id for one in repository.ancestry(branch="main") if one.parent_id is None)
    repository.reset_branch("main", root)  # nothing reaches b
    set_updated_at(directory, LAST_YEAR)
    access, cutoff = StoreAccess(f"file://{directory}"), now() - timedelta(hours=1)
    state = IcechunkSource(access, now).state()
    retained = retained_set_of(state, ONLY_THE_NEWEST, now(), cutoff)
    edits = edits_of(state, retained, now(), cutoff)
    assert b in edits.dropped
    repository = open_repository(directory)
    repository.create_branch("dev", b)
    overwrite(directory, 0, branch="dev")
    assert b in open_repository(directory).expire_snapshots(datetime.now(UTC), delete_expired_branches=True)
    with pytest.raises(GuardRefused, match=f"is based on {b}, which the plan removes"):
        publish(access, edits, ONLY_THE_NEWEST, now, lambda line: None)


def test_a_snapshot_stays_if_somebody_commits_on_it_and_expires_it_between_the_listing_and_the_read_of_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "r"
    b = built(directory, 2).lookup_branch("main")
    listed = IcechunkSource._listed

    def listed_before(source: IcechunkSource) -> Mapping[bytes, datetime]:
        found = listed(source)
        overwrite(directory, 0)
        expire_by_icechunk(directory)
        return found

    monkeypatch.setattr(IcechunkSource, "_listed", listed_before)
    state = IcechunkSource(StoreAccess(f"file://{directory}"), now).state()
    assert decode_id(b) not in state.history.snapshots
    for_ever = SnapshotPolicy(default=Keep("for-ever", None))
    retained = retained_set_of(state, for_ever, now(), now() - timedelta(hours=1))
    assert decode_id(b) in retained.snapshots
