"""The next steps that `retention plan` and `retention resume` name."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from retention_assets.cli.planning import Groups, Summary, _approve
from retention_assets.config.timestamps import utc_now
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.state.lease import stop_sweeps
from retention_assets.state.plan import Plan
from retention_assets.state.records import write_record
from tests.end_to_end.command import run
from tests.explain.test_status import HASH, NAME, World, a_plan, a_record

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NONE = Groups((), (), ())
EMPTY = replace(a_plan(), candidates=replace(a_plan().candidates, objects=0, bytes=0))


def steps(edits: PlannedEdits | None, plan: Plan = EMPTY, mode: str = "delete") -> str:
    with click.Context(click.Command("retention")):
        return _approve(plan, Summary(NONE, None, (), edits), mode)


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
    assert shown.startswith("not possible in mode `plan`. Set `mode: quarantine` or `mode: delete`, then: ")
    assert f" approve orchard {HASH} --as-of 2026-11-01" in shown
    assert "not possible" not in steps(None, a_plan(), mode="quarantine")


@pytest.mark.parametrize("mode", ["plan", "delete"])
def test_the_approval_of_a_plan_that_must_not_be_executed_is_not_a_next_step(mode: str) -> None:
    shown = steps(None, replace(a_plan(), blocked="no staged list is known."), mode)
    assert shown == "not possible: the plan must not be executed (see the warning)"
    assert HASH not in shown


# ---- after `resume`

YESTERDAY = (utc_now() - timedelta(days=1)).date()


def resumed(world: World) -> str:
    stop_sweeps(world.warehouse, NAME, "bill", utc_now())
    answer = run("--config", world.file, "resume", NAME)
    assert answer.status == 0, answer.err
    first, *steps = answer.out.splitlines()
    assert first == "Sweeps of orchard are allowed again. If `stop` interrupted a command, run that command again."
    return "\n".join(steps).replace(f"--config {world.file} ", "")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.configure()
    return made


def test_resume_names_the_sweep_of_the_approved_plan_with_its_day(world: World) -> None:
    world.keep(a_plan(YESTERDAY))
    world.approve(utc_now(), YESTERDAY)
    assert resumed(world).endswith(f" sweep orchard --as-of {YESTERDAY}")


def test_resume_names_the_approval_of_a_plan_that_waits_for_it(world: World) -> None:
    world.keep(a_plan(YESTERDAY))
    step = resumed(world)
    assert step.startswith("The plan waits for approval. Approve it with: ")
    assert step.endswith(f" approve orchard {HASH} --as-of {YESTERDAY}")


def test_resume_names_no_sweep_in_mode_plan(world: World) -> None:
    world.keep(a_plan(YESTERDAY))
    world.configure(mode="plan")
    step = resumed(world)
    assert step.startswith("The mode of the repository is `plan`, which allows no sweep. See: ")
    assert step.endswith(" status orchard")


def test_resume_names_a_plan_where_there_is_none(world: World) -> None:
    step = resumed(world)
    assert step.startswith("There is no plan. Plan with: ")
    assert step.endswith(" plan orchard")


@pytest.mark.parametrize("why", ["blocked", "too old"])
def test_resume_tells_why_a_plan_cannot_be_swept(world: World, why: str) -> None:
    made = a_plan(YESTERDAY)
    old = replace(made, made_at=made.made_at - timedelta(days=300))
    world.keep(replace(made, blocked="no staged list is known.") if why == "blocked" else old)
    step = resumed(world)
    if why == "blocked":
        assert step == "The plan must not be executed: no staged list is known."
    else:
        assert step.startswith(f"The plan of {YESTERDAY} is too old to be swept. Plan again: ")
        assert step.endswith(" plan orchard")


@pytest.mark.parametrize("is_approved", [True, False], ids=["approved", "approval_withdrawn"])
def test_resume_names_no_sweep_or_approval_of_a_plan_that_was_swept(world: World, is_approved: bool) -> None:
    world.keep(a_plan(YESTERDAY))
    if is_approved:
        world.approve(utc_now(), YESTERDAY)
    write_record(world.warehouse, replace(a_record(deleted=5), day=YESTERDAY.isoformat()))
    assert resumed(world) == "No other action is needed."


def test_resume_names_the_reason_why_every_sweep_would_be_refused(world: World) -> None:
    world.keep(a_plan(YESTERDAY))
    world.configure(quarantine={"url": "lake/attic"})
    assert resumed(world).endswith("Nothing was moved. Set a URL outside of the storage, such as another bucket.")
