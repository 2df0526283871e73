"""The HTML of the report's page."""

from dataclasses import replace
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention_assets.report import page
from retention_assets.report.figures import _outcomes_of_day
from retention_assets.state.records import write_record
from retention_assets.warehouse.warehouse import Warehouse
from tests.explain.test_status import a_plan, a_record
from tests.frames import NOW

PROGRAM = "retention --config 'a<b>&c.yaml'"


@pytest.mark.parametrize("section", ["_forecast", "_outcomes"])
def test_the_name_of_the_configuration_in_a_command_is_escaped(section: str) -> None:
    outcomes = SimpleNamespace(ended_early=None, mode="delete", ended=NOW, amounts={})
    figures: Any = SimpleNamespace(forecast=None, plan=a_plan(), outcomes=outcomes, other_outcomes={})
    text = getattr(page, section)(figures, PROGRAM)
    assert f"<pre>{escape(PROGRAM)} s" in text
    assert "<b>" not in text


def test_the_page_has_the_outcomes_of_each_swept_plan_of_the_day(tmp_path: Path) -> None:
    plan, warehouse = a_plan(), Warehouse(str(tmp_path / "warehouse"))
    again = replace(plan, plan_hash="c" * 64)
    write_record(warehouse, replace(a_record(deleted=3), planned_objects=5))
    before_sweep = _outcomes_of_day(warehouse, again)
    write_record(warehouse, replace(a_record(deleted=7), plan_hash=again.plan_hash, planned_objects=7))
    outcomes = _outcomes_of_day(warehouse, again)
    own = outcomes.pop(again.plan_hash)
    assert (own.amounts["deleted"].objects, outcomes[plan.plan_hash].amounts["unattempted"].objects) == (7, 2)
    for of_plan, others in ((own, outcomes), (None, before_sweep)):
        figures: Any = SimpleNamespace(plan=again, outcomes=of_plan, other_outcomes=others)
        text, title = page._outcomes(figures, "retention"), f"<h3>Plan {plan.plan_hash} of this day</h3>"
        assert 'data-objects="3"' in text.partition(title)[2]
        assert ('data-objects="7"' in text.partition(title)[0]) == (of_plan is not None)
        assert ("No sweep of this plan has ended" in text) == (of_plan is None)
