"""The report has all references that the sweeps of a plan removed, also if there were several sweeps."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.icechunk.edits.publishing import Published
from retention_assets.icechunk.edits.stored import (
    begin_publication,
    edits_left,
    hash_with_edits,
    interrupted_attempts,
    keep_edits,
    keep_publication,
    planned_edits,
    removed_references,
    unexplained,
    without_existing,
)
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import Reference
from retention_assets.state.lease import Lease
from retention_assets.state.plan import PLANNED_HEADS
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW
from tests.icechunk.rules.graphs import history, snapshot_id
from tests.sweep.small_world import a_plan

PLAN, ROOT = a_plan(repository="field"), snapshot_id(0)
DELETED = {Reference("branch", "dev", ROOT), Reference("branch", "exp/1", ROOT), Reference("tag", "v1", ROOT)}
EDITS = PlannedEdits(2, NOW, NOW, (), (), (), frozenset(DELETED))
OLD, EXP, V1 = "refs/branch.dev", "refs/branch.exp/1", "refs/tag.v1"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def keep(warehouse: Warehouse, fence: int, removed: tuple[str, ...], gone: frozenset[str] = frozenset()) -> None:
    lease = Lease("field", "a-run", fence, fence, NOW, timedelta(minutes=30))
    published = Published(0, (), removed, None)
    keep_publication(warehouse, PLAN, published, gone, lease, NOW + timedelta(hours=fence))


def test_each_removed_reference_is_reported_once_with_its_sweep(warehouse: Warehouse) -> None:
    keep(warehouse, 1, (OLD, EXP))
    keep(warehouse, 2, (), frozenset({V1}))
    rows = removed_references(warehouse, PLAN).to_pylist()
    assert [(row["address"], row["outcome"], row["size"]) for row in rows] == [
        (OLD, "deleted", 0),
        (EXP, "deleted", 0),
        (V1, "missing", 0),
    ]
    assert rows[0]["at"] == NOW + timedelta(hours=1)


def test_a_plan_that_published_no_edits_has_no_rows_of_removed_references(warehouse: Warehouse) -> None:
    assert removed_references(warehouse, PLAN).num_rows == 0


def test_references_that_an_interrupted_attempt_removed_are_reported_by_the_next_attempt(warehouse: Warehouse) -> None:
    keep(warehouse, 1, (EXP,))
    left = unexplained(warehouse, PLAN, EDITS, Published(0, (), (V1,), None))
    assert left == {OLD}
    assert without_existing(left, history({0: (None, 0)}, {"main": 0})) == {OLD}
    assert without_existing(left, history({0: (None, 0)}, {"main": 0, "dev": 0})) == frozenset()


def test_a_reference_that_an_earlier_sweep_removed_is_not_among_the_edits_left(
    warehouse: Warehouse,
) -> None:
    """If it exists again, somebody created it after that sweep."""
    of_history = "of the history"
    plan = replace(PLAN, references_hash=hash_with_edits(of_history, EDITS), made_at=NOW)
    keep_edits(warehouse, "field", plan.plan_hash, of_history, EDITS)
    root = encode_id(ROOT)
    heads = {"branches": {"dev": root, "exp/1": root, "main": root}, "tags": {"v1": root}}
    warehouse.write_document(heads, "field", PLANNED_HEADS, f"{plan.plan_hash}.json")
    assert edits_left(warehouse, plan, planned_edits(warehouse, plan)) == EDITS
    keep(warehouse, 1, (EXP,), frozenset({V1}))
    assert edits_left(warehouse, plan, planned_edits(warehouse, plan)).deleted == {Reference("branch", "dev", ROOT)}


def test_references_to_remove_are_recorded_before_and_do_not_count_as_removed(warehouse: Warehouse) -> None:
    lease = Lease("field", "a-run", 3, 3, NOW, timedelta(minutes=30))
    begin_publication(warehouse, PLAN, EDITS, {OLD: "7"}, lease, NOW)
    noted = warehouse.read_document("field", "publications", PLAN.plan_hash, "begun", "00000003.json")
    assert noted is not None
    assert noted["intended"] == [OLD, EXP, V1]
    assert removed_references(warehouse, PLAN).num_rows == 0
    assert unexplained(warehouse, PLAN, EDITS, Published(0, (), (), None)) == {OLD, EXP, V1}
    assert interrupted_attempts(warehouse, PLAN) == [{OLD: "7"}]
    keep(warehouse, 3, (OLD,))
    assert interrupted_attempts(warehouse, PLAN) == []


def test_an_interrupted_attempt_of_an_earlier_version_has_no_marks(warehouse: Warehouse) -> None:
    document = {"intended": [OLD], "at": NOW.isoformat()}
    warehouse.write_document(document, "field", "publications", PLAN.plan_hash, "begun", "00000003.json")
    assert interrupted_attempts(warehouse, PLAN) == [{}]
