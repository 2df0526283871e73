"""A repository's state is written to a table and read back with everything that the rules use."""

from datetime import UTC, datetime
from pathlib import Path

import icechunk as ic
import pytest

from retention_assets.icechunk.source.history import history_details, history_hash, history_rows, state_of
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState
from retention_assets.objectstore.access import StoreAccess
from tests.icechunk_repositories import FORMATS, Format, build_varied, create_repository, open_repository

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def state(directory: Path) -> IcechunkState:
    return IcechunkSource(StoreAccess(f"file://{directory}"), lambda: NOW).state()


@pytest.mark.parametrize("spec_version", FORMATS)
def test_all_state_that_rules_use_is_read_back(tmp_path: Path, spec_version: Format) -> None:
    build_varied(tmp_path, spec_version)
    if spec_version == 2:  # a file that the repo object does not know
        known = next((tmp_path / "snapshots").iterdir())
        known.with_name("0123456789ABCDEFGHJ0").write_bytes(known.read_bytes())
    was = state(tmp_path)
    found = state_of(history_rows(was), history_details(was), NOW)
    assert found.history == was.history
    assert found.stored == was.stored
    assert found.deleted_tags == was.deleted_tags == {"withdrawn"}
    assert history_hash(found.history) == history_hash(was.history)
    assert (found.repo is None) == (was.repo is None)
    if found.repo and was.repo:
        assert {one.pruned_ancestor_tx_logs for one in was.repo.snapshots.values()} != {()}
        for raw, one in was.repo.snapshots.items():
            again = found.repo.snapshots[raw]
            assert (again.parent_id, again.flushed_at) == (one.parent_id, one.flushed_at)
            assert again.pruned_ancestor_tx_logs == one.pruned_ancestor_tx_logs


def test_the_conditions_that_forbid_edits_are_recorded(tmp_path: Path) -> None:
    create_repository(tmp_path)
    assert history_details(state(tmp_path)).availability == "online"
    assert history_details(state(tmp_path)).tags_deletable is True
    repository = open_repository(tmp_path)
    repository.set_feature_flag("delete_tag", False)
    status = ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving")
    open_repository(tmp_path).set_status(status)
    details = history_details(state(tmp_path))
    assert (details.availability, details.limits) == ("read-only", "moving")
    assert details.tags_deletable is False


def test_different_histories_have_different_hashes(tmp_path: Path) -> None:
    repository = create_repository(tmp_path)
    hashes = {history_hash(state(tmp_path).history)}
    root = next(iter(repository.ancestry(branch="main"))).id
    repository.create_tag("v1", root)
    hashes.add(history_hash(state(tmp_path).history))
    repository.create_branch("v1", root)
    hashes.add(history_hash(state(tmp_path).history))
    repository.writable_session("v1").commit("more", allow_empty=True)
    hashes.add(history_hash(state(tmp_path).history))
    assert len(hashes) == 4
