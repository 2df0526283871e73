"""A plan's edits are stored under its hash, and are used only if the hash covers them."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.core.amounts import Amount
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.edits.stored import hash_with_edits, keep_edits, planned_edits
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import Reference
from retention_assets.state.plan import PLANNED_HEADS, Plan
from retention_assets.warehouse.warehouse import Warehouse

MADE = datetime(2026, 11, 21, 12, tzinfo=UTC)
ONE, OTHER = "1CECHNKREP0F1RSTCMT0", "000G40R40M30E209185G"
EDITS = PlannedEdits(
    format=2,
    as_of=datetime(2026, 11, 21, tzinfo=UTC),
    cutoff=MADE - timedelta(days=1),
    known=(OTHER, ONE),
    released=(OTHER,),
    dropped=(),
    deleted=frozenset({Reference("branch", "dev", decode_id(ONE))}),
)


HEADS = {"branches": {"main": OTHER, "dev": ONE}, "tags": {"v1": ONE}}


def plan_of(edits: PlannedEdits) -> Plan:
    return Plan(
        repository="field",
        day=date(2026, 11, 21),
        plan_hash="ab" * 32,
        policy_hash="",
        policy_run="",
        references_hash=hash_with_edits("of the history", edits),
        candidates=Amount(),
        totals={},
        live=0,
        collected=0,
        warnings=(),
        blocked=None,
        instance=None,
        made_at=MADE,
        run_id="run",
    )


def kept(tmp_path: Path, edits: PlannedEdits, references: str = "of the history") -> Warehouse:
    warehouse = Warehouse(str(tmp_path))
    keep_edits(warehouse, "field", "ab" * 32, references, edits)
    warehouse.write_document(HEADS, "field", PLANNED_HEADS, f"{'ab' * 32}.json")
    return warehouse


def test_stored_edits_are_read_back_unchanged(tmp_path: Path) -> None:
    assert planned_edits(kept(tmp_path, EDITS), plan_of(EDITS)) == EDITS


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(EDITS, released=(OTHER, ONE)), id="one_more_is_released"),
        pytest.param(replace(EDITS, dropped=(ONE,)), id="one_more_is_dropped"),
        pytest.param(replace(EDITS, deleted=EDITS.deleted | {Reference("tag", "v1", decode_id(ONE))}), id="a_tag_goes"),
        pytest.param(replace(EDITS, deleted=frozenset()), id="a_branch_stays"),
        pytest.param(replace(EDITS, known=(ONE,)), id="another_history"),
        pytest.param(replace(EDITS, in_use=(ONE,)), id="another_snapshot_in_use"),
        pytest.param(replace(EDITS, as_of=EDITS.as_of + timedelta(days=1)), id="another_day"),
        pytest.param(replace(EDITS, format=1), id="another_format"),
        pytest.param(replace(EDITS, cutoff=MADE + timedelta(seconds=1)), id="a_cutoff_after_the_plan"),
    ],
)
def test_edits_that_do_not_match_the_hash_of_the_plan_are_refused(tmp_path: Path, changed: PlannedEdits) -> None:
    with pytest.raises(GuardRefused, match=r"do not match its hash or its time. Nothing was changed"):
        planned_edits(kept(tmp_path, changed), plan_of(EDITS))


def test_edits_of_another_history_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match="do not match its hash or its time"):
        planned_edits(kept(tmp_path, EDITS, references="of another"), plan_of(EDITS))


@pytest.mark.parametrize(
    "heads",
    [None, {"branches": {"main": ONE}, "tags": {}}, {"branches": {"dev": "not an id"}, "tags": {}}],
    ids=["missing", "without_the_branch", "corrupt"],
)
def test_a_branch_to_delete_whose_snapshot_at_planning_is_unknown_is_refused(
    tmp_path: Path, heads: dict[str, dict[str, str]] | None
) -> None:
    warehouse = kept(tmp_path, EDITS)
    if heads is None:
        warehouse.remove_document("field", PLANNED_HEADS, f"{'ab' * 32}.json")
    else:
        warehouse.write_document(heads, "field", PLANNED_HEADS, f"{'ab' * 32}.json")
    with pytest.raises(GuardRefused, match=r"are no longer stored|is corrupt.*`retention plan \w+ --as-of 20"):
        planned_edits(warehouse, plan_of(EDITS))


def test_missing_edits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GuardRefused, match="are missing"):
        planned_edits(Warehouse(str(tmp_path)), plan_of(EDITS))


def test_the_age_cutoff_does_not_change_the_hash_of_the_edits() -> None:
    later = replace(EDITS, cutoff=EDITS.cutoff + timedelta(seconds=1))
    assert hash_with_edits("of the history", later) == hash_with_edits("of the history", EDITS)
