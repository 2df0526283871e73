import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pytest
from hypothesis import given

from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.formats.paths import backup_written_at
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.values import read_flexbuffer, write_flexbuffer
from tests.icechunk.formats.conftest import Varied
from tests.icechunk.formats.strategies import repos
from tests.icechunk_repositories import (
    BUCKET,
    INITIAL_SNAPSHOT,
    METADATA,
    Commit,
    build_history,
    open_repository,
    set_flushed_at,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def read(directory: Path) -> Repo:
    return read_repo((directory / "repo").read_bytes(), "repo")


def test_references_and_snapshots_are_those_that_icechunk_lists(varied_2: Varied) -> None:
    repo, expected = read(varied_2.directory), varied_2.repository.inspect_repo_info()
    assert {name: encode_id(its_id) for name, its_id in repo.branches.items()} == expected["branches"]
    assert {name: encode_id(its_id) for name, its_id in repo.tags.items()} == expected["tags"]
    assert sorted(repo.deleted_tags) == expected["deleted_tags"] == ["withdrawn"]
    assert [encode_id(its_id) for its_id in repo.snapshots] == [listed["id"] for listed in expected["snapshots"]]
    for listed in expected["snapshots"]:
        snapshot = repo.snapshots[decode_id(listed["id"])]
        assert snapshot.parent_id == (decode_id(listed["parent_id"]) if "parent_id" in listed else None)
        assert instant(snapshot.flushed_at) == datetime.fromisoformat(listed["flushed_at"])
        assert snapshot.message == listed["message"]
        metadata = {key: read_flexbuffer(value, key) for key, value in snapshot.metadata.items()}
        assert metadata == listed["metadata"]


def test_metadata_status_and_flags_are_those_that_icechunk_reads(varied_2: Varied) -> None:
    repo, repository = read(varied_2.directory), varied_2.repository
    assert {key: read_flexbuffer(value, key) for key, value in repo.metadata.items()} == METADATA
    status = repository.get_status()
    assert repo.status == RepoStatus(
        Availability.READ_ONLY, (status.set_at - EPOCH) // timedelta(microseconds=1), "moving: é"
    )
    flags = {flag.id: flag for flag in repository.feature_flags()}
    assert repo.enabled_feature_flags == {number for number, flag in flags.items() if flag.setting is True}
    assert repo.disabled_feature_flags == {number for number, flag in flags.items() if flag.setting is False}


def test_snapshots_list_the_transaction_logs_of_their_pruned_ancestors(varied_2: Varied) -> None:
    pruned = [
        s.pruned_ancestor_tx_logs for s in read(varied_2.directory).snapshots.values() if s.pruned_ancestor_tx_logs
    ]
    assert pruned
    logs = varied_2.files("transactions")
    assert all(f"transactions/{encode_id(its_id)}" in logs for listed in pruned for its_id in listed)


def test_the_configuration_is_the_one_that_was_saved(varied_2: Varied) -> None:
    config = read(varied_2.directory).config
    assert config is not None
    saved = read_flexbuffer(config, "config")
    assert isinstance(saved, dict)
    assert (saved["inline_chunk_threshold_bytes"], saved["num_updates_per_repo_info_file"]) == (8, 5)


def test_icechunk_reads_a_configuration_that_we_wrote(varied_2: Varied, tmp_path: Path) -> None:
    directory = tmp_path / "configured"
    shutil.copytree(varied_2.directory, directory)
    repo = read(directory)
    assert repo.config is not None
    written = write_flexbuffer(read_flexbuffer(repo.config, "config"))
    (directory / "repo").write_bytes(write_repo(replace(repo, config=written)))
    theirs, ours = varied_2.repository.config, open_repository(directory).config
    for setting in ("inline_chunk_threshold_bytes", "num_updates_per_repo_info_file", "storage"):
        assert str(getattr(ours, setting)) == str(getattr(theirs, setting))
    assert list(ours.virtual_chunk_containers) == list(theirs.virtual_chunk_containers) == [BUCKET]


def complete_log(directory: Path) -> list[Update]:
    """Return the complete ops log, read through the backups as icechunk does.

    The newest entry of a backup does not have the name of the backup. The page that refers to the backup has it.
    """
    repo = read(directory)
    log = list(repo.latest_updates)
    while (backup := repo.repo_before_updates) is not None:
        repo = read_repo((directory / "overwritten" / backup).read_bytes(), backup)
        newest, *others = repo.latest_updates
        log += [replace(newest, backup_path=backup), *others]
    return log


def test_the_ops_log_equals_the_one_that_icechunk_reads(varied_2: Varied) -> None:
    expected = list(varied_2.repository.ops_log())
    log = complete_log(varied_2.directory)
    assert len(log) > len(read(varied_2.directory).latest_updates)
    assert [(instant(u.updated_at), u.backup_path) for u in log] == [(u.updated_at, u.backup_path) for u in expected]
    assert len({update.kind for update in log}) >= 12
    for update, by_icechunk in zip(log, expected, strict=True):
        kind: Any = by_icechunk.kind
        assert type(kind).__name__.lower().startswith(update.kind.name.replace("_", "").lower())
        for field in ("previous_snapshot_id", "new_snapshot_id"):
            its_id = getattr(update, field)
            theirs = getattr(kind, field.replace("snapshot", "snap"), None)
            assert theirs == (its_id and encode_id(its_id))
        assert update.name in (getattr(kind, "name", None), getattr(kind, "branch", None))


def test_every_backup_is_read_and_written_back(varied_2: Varied) -> None:
    backups = varied_2.files("overwritten")
    assert len(backups) > 20
    for name, content in backups.items():
        assert backup_written_at(Path(name).name) is not None
        repo = read_repo(content, name)
        assert read_repo(write_repo(repo), name) == repo


@given(repos())
def test_a_written_value_is_read_back_unchanged(repo: Repo) -> None:
    assert read_repo(write_repo(repo), "x") == repo


def snapshot(repository: ic.Repository) -> dict[str, Any]:
    """Return everything that icechunk reports about a repository."""
    info = repository.inspect_repo_info()
    del info["header"]
    return {
        "info": info,
        "status": str(repository.get_status()),
        "flags": [(flag.id, flag.setting, flag.enabled) for flag in repository.feature_flags()],
        "config": str(repository.config),
        "ops log": [(str(update.kind), update.updated_at, update.backup_path) for update in repository.ops_log()],
        "branches": {
            name: [(s.id, s.parent_id, s.written_at, s.message, s.metadata) for s in repository.ancestry(branch=name)]
            for name in repository.list_branches()
        },
        "tags": {name: repository.lookup_tag(name) for name in repository.list_tags()},
        "logs": {snapshot["id"]: repository.inspect_transaction_log(snapshot["id"]) for snapshot in info["snapshots"]},
    }


@pytest.fixture
def rewritten(varied_2: Varied, tmp_path: Path) -> Path:
    """A copy of the varied repository whose repo object we have written again."""
    directory = tmp_path / "rewritten"
    shutil.copytree(varied_2.directory, directory)
    (directory / "repo").write_bytes(write_repo(read(directory)))
    return directory


def test_icechunk_reads_the_same_in_a_repo_object_that_we_wrote(varied_2: Varied, rewritten: Path) -> None:
    assert snapshot(open_repository(rewritten)) == snapshot(varied_2.repository)


def test_icechunk_can_change_a_repository_whose_repo_object_we_wrote(rewritten: Path) -> None:
    repository = open_repository(rewritten)
    operations = len(list(repository.ops_log()))
    repository.set_status(ic.RepoStatus(ic.RepoAvailability.online))
    tip = repository.lookup_branch("main")
    newest = repository.writable_session("main").commit("on top", allow_empty=True)
    repository.create_tag("on-top", newest)
    repository.delete_tag("v1")
    now = datetime.now(UTC)
    released = repository.expire_snapshots(now, delete_expired_branches=True)
    assert tip in released
    collected = repository.garbage_collect(now + timedelta(days=1))
    assert collected.snapshots_deleted >= len(released)
    assert [snapshot.id for snapshot in repository.ancestry(branch="main")] == [newest, encode_id(INITIAL_SNAPSHOT)]
    assert len(list(repository.ops_log())) == operations + 6
    repo = read(rewritten)
    assert repo.branches["main"] == repo.tags["on-top"] == decode_id(newest)
    assert read_repo(write_repo(repo), "x") == repo


def test_icechunk_reads_a_history_that_we_shortened(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    ids = build_history(directory, 2, [Commit("a"), Commit("b", "a"), Commit("c", "b")], {"main": "c"})
    repo = read(directory)
    tip, lost = decode_id(ids["c"]), (decode_id(ids["a"]), decode_id(ids["b"]))
    shortened = replace(repo.snapshots[tip], parent_id=INITIAL_SNAPSHOT, pruned_ancestor_tx_logs=lost)
    kept = {its_id: snapshot for its_id, snapshot in repo.snapshots.items() if its_id not in lost} | {tip: shortened}
    (directory / "repo").write_bytes(write_repo(replace(repo, snapshots=kept)))
    repository = open_repository(directory)
    assert [snapshot.id for snapshot in repository.ancestry(branch="main")] == [ids["c"], encode_id(INITIAL_SNAPSHOT)]
    assert repository.inspect_transaction_log(ids["c"])["synthetic_composite"]["merged_pruned_ancestor_tx_logs"] == [
        ids["a"],
        ids["b"],
    ]


def test_changed_flush_times_are_read_by_icechunk_and_by_us(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    ids = build_history(directory, 2, [Commit("a")], {"main": "a"})
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
    set_flushed_at(directory, {ids["a"]: moment})
    assert instant(read(directory).snapshots[decode_id(ids["a"])].flushed_at) == moment
    assert open_repository(directory).lookup_snapshot(ids["a"]).written_at == moment


def test_icechunk_reads_the_smallest_repo_object(tmp_path: Path) -> None:
    directory = tmp_path / "repository"
    build_history(directory, 2, [], {})
    smallest = Repo(
        branches={"main": INITIAL_SNAPSHOT},
        snapshots={INITIAL_SNAPSHOT: SnapshotInfo(INITIAL_SNAPSHOT, None, 5, "initial")},
        status=RepoStatus(Availability.ONLINE, 1),
        latest_updates=(Update(UpdateKind.REPO_INITIALIZED, 5),),
    )
    (directory / "repo").write_bytes(write_repo(smallest))
    assert [snapshot.message for snapshot in open_repository(directory).ancestry(branch="main")] == ["initial"]
