"""A snapshot of a writer with a slow clock counts as no older than the last plan that did not list it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from retention_assets.icechunk.rules.snapshots import History, Snapshot
from retention_assets.icechunk.source.history import history_details, history_hash, history_rows, state_of
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.replaced import EarlierPlans
from retention_assets.icechunk.sweep.true_ages import with_true_ages
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse

NAME = "field"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ROOT, OLD, SLOW, LATE = (bytes([number]) * 12 for number in range(1, 5))
LONG_AGO = NOON - 60 * DAY


@dataclass(frozen=True)
class Plans:
    """The warehouse of one repository of format 1."""

    root: Path

    def plan(self, at: datetime, *snapshots: bytes, flushed_at: datetime = LONG_AGO) -> Mapping[bytes, datetime]:
        """Store the history that a plan at `at` reads, and return the times that count for its snapshots."""
        listed = {one: Snapshot(one, None if one == ROOT else ROOT, flushed_at) for one in (ROOT, *snapshots)}
        history = History(listed, {"main": (ROOT, *snapshots)[-1]}, {})
        read = IcechunkState(1, history, None, frozenset(), {}, at)
        state = with_true_ages(read, EarlierPlans(Warehouse(str(self.root)), NAME, at))
        self.store(state)
        planned = state_of(history_rows(state), history_details(state, at), at)
        assert history_hash(planned.history) == history_hash(history)
        return {one: snapshot.flushed_at for one, snapshot in planned.history.snapshots.items() if one != ROOT}

    def store(self, state: IcechunkState) -> None:
        rows, day = history_rows(state), state.taken_at.date().isoformat()
        self.file(state.taken_at).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, self.file(state.taken_at))
        warehouse, parts = Warehouse(str(self.root)), (NAME, "repository_history", day)
        details, files = history_details(state, state.taken_at), warehouse.files_digest(*parts)
        metadata = PartitionMetadata(state.taken_at, rows.num_rows, "a-run", details, files)
        warehouse.write_document(metadata.document(), *parts, METADATA)

    def file(self, at: datetime) -> Path:
        return self.root / NAME / "repository_history" / at.date().isoformat() / "part-0.parquet"


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(tmp_path / "warehouse")


def test_at_the_first_plan_the_times_of_the_writers_count(plans: Plans) -> None:
    assert plans.plan(NOON, OLD, SLOW) == {OLD: LONG_AGO, SLOW: LONG_AGO}
    assert plans.plan(NOON + DAY, OLD, SLOW) == {OLD: LONG_AGO, SLOW: LONG_AGO}


def test_a_snapshot_counts_as_no_older_than_the_last_plan_that_did_not_list_it(plans: Plans) -> None:
    plans.plan(NOON - 9 * DAY, OLD)
    plans.plan(NOON, OLD)
    for later in (1, 1, 2, 30):  # the second plan of the first day, too
        assert plans.plan(NOON + later * DAY, OLD, SLOW) == {OLD: LONG_AGO, SLOW: NOON}


def test_a_time_of_the_writer_that_is_later_than_the_last_plan_stays(plans: Plans) -> None:
    plans.plan(NOON)
    assert plans.plan(NOON + DAY, LATE, flushed_at=NOON + DAY / 2) == {LATE: NOON + DAY / 2}


def test_if_rows_of_the_last_plan_are_lost_those_of_the_plan_before_count(plans: Plans) -> None:
    plans.plan(NOON, OLD)
    plans.plan(NOON + DAY, OLD, SLOW)
    file = plans.file(NOON + DAY)
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    assert plans.plan(NOON + 2 * DAY, OLD, SLOW, LATE) == {OLD: LONG_AGO, SLOW: NOON, LATE: NOON + DAY}


def test_if_rows_of_the_last_plan_are_of_another_run_those_of_the_plan_before_count(plans: Plans) -> None:
    plans.plan(NOON, OLD)
    plans.plan(NOON + DAY, OLD, SLOW)
    file = plans.file(NOON + DAY)
    file.rename(file.with_name("part-1.parquet"))
    assert plans.plan(NOON + 2 * DAY, OLD, SLOW, LATE) == {OLD: LONG_AGO, SLOW: NOON, LATE: NOON + DAY}


def test_if_rows_of_all_plans_are_lost_every_snapshot_is_new(plans: Plans) -> None:
    plans.plan(NOON - 2 * DAY, OLD)
    plans.plan(NOON, OLD, SLOW)
    for at in (NOON - 2 * DAY, NOON):
        plans.file(at).unlink()
    assert plans.plan(NOON + DAY, OLD, SLOW, LATE) == {OLD: NOON, SLOW: NOON - 2 * DAY, LATE: NOON}


def test_a_plan_that_read_the_history_later_does_not_count(plans: Plans) -> None:
    plans.plan(NOON, OLD)
    plans.plan(NOON + 2 * DAY, OLD)
    assert plans.plan(NOON + DAY, OLD, SLOW) == {OLD: LONG_AGO, SLOW: NOON}


def test_a_snapshot_of_which_only_the_file_was_there_is_new(plans: Plans) -> None:
    """The writer had written the file and had not committed it yet."""
    history = History({ROOT: Snapshot(ROOT, None, LONG_AGO)}, {"main": ROOT}, {})
    plans.store(replace(IcechunkState(2, history, None, frozenset(), {}, NOON), stored={ROOT: NOON, SLOW: NOON}))
    assert plans.plan(NOON + DAY, SLOW) == {SLOW: NOON}
