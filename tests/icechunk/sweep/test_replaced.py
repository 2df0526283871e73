"""An older repo object in the place of the one that earlier plans read: the plans since then name the day."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk as ic
import pyarrow as pa
import pytest

from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.icechunk.sweep.replaced import EarlierPlans, require_not_replaced, with_log
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import Commit, build_history, open_repository

NAME, GRACE = "field", timedelta(days=1)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SECOND, THIRD, FOURTH = (NOON + timedelta(days=days) for days in (1, 2, 3))


@dataclass(frozen=True)
class Planned:
    """A repository, and the part of its warehouse that plans compare."""

    root: Path

    @property
    def repo(self) -> Path:
        return self.root / "r" / "repo"

    def plan(self, at: datetime, as_of: datetime | None = None) -> str | None:
        """Return what a plan of the day `as_of` finds at `at`, and store what later plans compare."""
        access, warehouse = StoreAccess(f"file://{self.root / 'r'}"), Warehouse(str(self.root / "warehouse"))
        state = IcechunkSource(access, lambda: at).state()
        assert state.repo is not None
        plans = EarlierPlans(warehouse, NAME, state.taken_at)
        details = with_log(Details(), ObjectReader(access), state.repo, plans, (as_of or at).date(), at - GRACE)
        document = PartitionMetadata(at, 1, "a-run", details).document()
        day = (as_of or at).date()
        warehouse.write_document(document, NAME, "repository_history", day.isoformat(), METADATA)
        written = Path(warehouse.location(NAME, "repository_history", day.isoformat(), METADATA))
        os.utime(written, (at.timestamp(), at.timestamp()))
        return details.replaced

    def sweep(self, at: datetime, planned_at: datetime) -> None:
        """Check the repo object as the sweep at `at` of the plan at `planned_at` does."""
        access, warehouse = StoreAccess(f"file://{self.root / 'r'}"), Warehouse(str(self.root / "warehouse"))
        state = IcechunkSource(access, lambda: at).state()
        assert state.repo is not None
        plans = EarlierPlans(warehouse, NAME, state.taken_at)
        require_not_replaced(ObjectReader(access), state.repo, plans, planned_at - GRACE)

    def commit(self, times: int = 1) -> None:
        for _ in range(times):
            commit_to(open_repository(self.root / "r"))


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    build_history(tmp_path / "r", 2, [Commit("a", None, NOON - timedelta(days=300))], {"main": "a"})
    repository = open_repository(tmp_path / "r")
    config = repository.config
    config.num_updates_per_repo_info_file = 2  # so that the ops log continues in backups
    repository.reopen(config=config).save_config()
    return Planned(tmp_path)


def test_a_later_version_of_the_repo_object_is_accepted(planned: Planned) -> None:
    assert planned.plan(NOON) is None
    assert planned.plan(SECOND) is None
    planned.commit(5)
    assert planned.plan(THIRD) is None
    assert planned.plan(THIRD + timedelta(hours=1)) is None


@pytest.mark.parametrize("later", [0, 5], ids=["at_once", "after_further_commits"])
def test_plans_name_the_day_until_grace_after_the_first_plan_that_read_an_older_object(
    planned: Planned, later: int
) -> None:
    planned.commit()
    older = planned.repo.read_bytes()
    planned.commit()
    assert planned.plan(NOON) is None
    planned.repo.write_bytes(older)
    planned.commit(later)
    for at in (SECOND, SECOND + GRACE):
        found = planned.plan(at)
        assert found is not None
        assert "the newest one at the plan of 2026-11-01. So an older repo object" in found
    assert planned.plan(SECOND + 2 * GRACE + timedelta(seconds=1)) is None


def test_the_sweep_of_a_plan_is_refused_while_an_older_repo_object_is_in_the_place_of_the_one_of_a_later_plan(
    planned: Planned,
) -> None:
    assert planned.plan(NOON) is None
    older = planned.repo.read_bytes()
    planned.commit()
    planned.sweep(SECOND, NOON)
    assert planned.plan(SECOND) is None
    newer = planned.repo.read_bytes()
    planned.repo.write_bytes(older)
    assert planned.plan(THIRD)
    with pytest.raises(GuardRefused, match=r"field: .* plan of 2026-11-02. So an older repo object"):
        planned.sweep(FOURTH, NOON)
    planned.repo.write_bytes(newer)
    planned.sweep(FOURTH, NOON)


@pytest.mark.parametrize("copied", [False, True], ids=["as_written", "a_warehouse_that_was_copied"])
def test_a_recent_plan_of_an_older_day_counts_too(planned: Planned, *, copied: bool) -> None:
    """The last plan of a later day is older than `grace`, so the plans before it are not compared."""
    older = planned.repo.read_bytes()
    assert planned.plan(NOON) is None
    planned.commit()
    assert planned.plan(FOURTH, as_of=NOON - timedelta(days=10)) is None
    planned.repo.write_bytes(older)
    if copied:  # the files of all days have new times, in any order
        for file in (planned.root / "warehouse").rglob(METADATA):
            is_newest = file.parent.name == NOON.date().isoformat()
            at = FOURTH + timedelta(minutes=30 if is_newest else 20)
            os.utime(file, (at.timestamp(), at.timestamp()))
    found = planned.plan(FOURTH + timedelta(hours=1))
    assert found is not None
    assert "the newest one at the plan of 2026-10-22. So an older repo object" in found


def test_plans_that_were_written_before_the_newest_one_older_than_grace_are_not_read(planned: Planned) -> None:
    days = [NOON + timedelta(days=days) for days in range(5)]
    for at in days:
        planned.plan(at)
    (planned.root / "warehouse" / NAME / "repository_history" / "2026-11-01" / METADATA).write_text("damaged")
    os.utime(
        planned.root / "warehouse" / NAME / "repository_history" / "2026-11-01" / METADATA, (NOON.timestamp(),) * 2
    )
    assert planned.plan(NOON + timedelta(days=5)) is None


def test_a_plan_that_is_made_again_on_its_day_still_finds_the_older_object(planned: Planned) -> None:
    """The metadata of its earlier plan, which had the newer entry, were overwritten."""
    planned.commit()
    older = planned.repo.read_bytes()
    planned.commit()
    assert planned.plan(NOON) is None
    planned.repo.write_bytes(older)
    for hours in (1, 2, 3):
        assert planned.plan(NOON + timedelta(hours=hours)) is not None


@pytest.mark.parametrize("in_store", [False, True])
def test_a_run_that_ended_while_it_replaced_rows_hides_no_older_object(planned: Planned, *, in_store: bool) -> None:
    """`in_store`: the warehouse is reached by a URL, as in an object store."""
    older = planned.repo.read_bytes()
    planned.commit()
    assert planned.plan(NOON) is None
    planned.repo.write_bytes(older)
    directory = str(planned.root / "warehouse")
    warehouse = Warehouse(f"file://{directory}" if in_store else directory)
    day = NOON.date()
    for _ in range(2):
        EarlierPlans(warehouse, NAME, NOON + timedelta(hours=1)).keep(day)
        warehouse.write_table(pa.table({"number": [1]}), NAME, "repository_history", day.isoformat())
        assert warehouse.metadata_if_there(NAME, "repository_history", day.isoformat()) is None
    with pytest.raises(GuardRefused, match="older repo object was put in the place"):
        planned.sweep(NOON + timedelta(hours=2), NOON)
    assert planned.plan(NOON + timedelta(hours=2)) is not None


def test_an_upgrade_that_was_undone_and_made_again_since_the_plan_is_no_older_object(tmp_path: Path) -> None:
    commits = [Commit("a", None, NOON - timedelta(days=300))]
    build_history(tmp_path / "r", 1, commits, {"main": "a"})
    shutil.copytree(tmp_path / "r", tmp_path / "before")
    planned = Planned(tmp_path)
    for at in (NOON, SECOND):
        ic.upgrade_icechunk_repository(open_repository(tmp_path / "r"), dry_run=False)
        assert planned.plan(at) is None
        shutil.rmtree(tmp_path / "r")
        shutil.copytree(tmp_path / "before", tmp_path / "r")


def test_a_repository_that_was_created_again_is_another_one(planned: Planned) -> None:
    assert planned.plan(NOON) is None
    shutil.rmtree(planned.root / "r")
    build_history(planned.root / "r", 2, [Commit("a", None, NOON - timedelta(days=300))], {"main": "a"})
    assert "the repository was created again" in (planned.plan(SECOND) or "")


def test_a_log_whose_older_backups_are_gone_shows_nothing(planned: Planned) -> None:
    assert planned.plan(NOON) is None
    planned.commit(9)
    shutil.rmtree(planned.root / "r" / "overwritten")
    assert planned.plan(SECOND) is None


@pytest.mark.parametrize("change", [Planned.commit, lambda planned: None], ids=["commit", "nothing"])
def test_a_plan_that_read_a_newer_object_meanwhile_does_not_count(
    planned: Planned, change: Callable[[Planned], None]
) -> None:
    older = planned.repo.read_bytes()
    change(planned)
    assert planned.plan(SECOND + timedelta(minutes=1)) is None
    planned.repo.write_bytes(older)
    assert planned.plan(SECOND - timedelta(minutes=1)) is None


@pytest.mark.parametrize("damaged", ["{}", ""])
def test_damaged_metadata_are_named_and_can_be_removed(planned: Planned, damaged: str) -> None:
    planned.plan(NOON)
    warehouse = Warehouse(str(planned.root / "warehouse"))
    file = Path(warehouse.location(NAME, "repository_history", NOON.date().isoformat(), METADATA))
    file.write_text(damaged)
    with pytest.raises(TableContractError, match=f"{file}: this file is damaged.* remove the file, and plan again"):
        planned.plan(NOON + timedelta(days=1))
    file.unlink()
    assert planned.plan(NOON + timedelta(days=1)) is None
