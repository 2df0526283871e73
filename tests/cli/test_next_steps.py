"""The steps that `retention plan` names after a plan."""

from dataclasses import replace
from datetime import UTC, datetime

import click
import pytest

from retention_assets.cli.planning import Groups, Summary, _next_steps
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.state.plan import Plan
from tests.explain.test_status import HASH, a_plan

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NONE = Groups((), (), ())
EMPTY = replace(a_plan(), candidates=replace(a_plan().candidates, objects=0, bytes=0))


def steps(edits: PlannedEdits | None, plan: Plan = EMPTY, mode: str = "delete") -> str:
    with click.Context(click.Command("retention")):
        return _next_steps(plan, Summary(NONE, None, (), edits), "the UI", mode)


def test_the_next_step_after_a_plan_that_only_changes_the_history_is_an_approval() -> None:
    releases = PlannedEdits(2, NOW, NOW, ("A" * 20,), ("A" * 20,), (), frozenset())
    assert f" approve orchard {HASH} --as-of 2026-11-01" in steps(releases)


@pytest.mark.parametrize(
    "edits", [None, PlannedEdits(2, NOW, NOW, (), (), (), frozenset())], ids=["lakefs", "icechunk"]
)
def test_a_plan_that_removes_nothing_needs_no_approval(edits: PlannedEdits | None) -> None:
    assert "nothing to approve: nothing may be deleted. Plan again tomorrow" in steps(edits)


def test_in_mode_plan_the_next_step_is_to_set_another_mode() -> None:
    shown = steps(None, a_plan(), mode="plan")
    assert "Approve:     not possible in mode `plan`. Set `mode: quarantine` or `mode: delete`, then: " in shown
    assert f" approve orchard {HASH} --as-of 2026-11-01" in shown
    assert "not possible" not in steps(None, a_plan(), mode="quarantine")


@pytest.mark.parametrize("mode", ["plan", "delete"])
def test_the_approval_of_a_plan_that_must_not_be_executed_is_not_a_next_step(mode: str) -> None:
    shown = steps(None, replace(a_plan(), blocked="no staged list is known."), mode)
    assert "Approve:     not possible: the plan must not be executed (see the warning)" in shown
    assert HASH not in shown
