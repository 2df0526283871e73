"""A run crashes before, during or after each of its side effects. Nothing is lost, and the next run completes it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sweep.crashes.effects import Effect, Effects, Moment, Point, points, watched
from tests.sweep.crashes.engine import outcomes
from tests.sweep.crashes.scenarios import SCENARIOS, CrashScenario
from tests.sweep.crashes.world import World

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("small_steps")]


def effects_of_a_complete_run(scenario: CrashScenario, world: World) -> list[Effect]:
    with watched(Effects(world.root, watch=world.require_checked_as_dead)) as effects:
        scenario.ended_well(world, scenario.run(world, "a-run"))
    scenario.lost_nothing(world)
    return effects.seen


def run_until_crash(scenario: CrashScenario, world: World, point: Point) -> None:
    with watched(Effects(world.root, point, world.require_checked_as_dead)) as effects:
        scenario.run(world, "a-run")
    assert effects.dead
    scenario.lost_nothing(world)


@contextmanager
def crash_point_in_failure(effects: list[Effect], point: Point) -> Iterator[None]:
    """Add the crash point to the message of a failure."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the run died {point.moment} effect {point.number} of {len(effects)}: {effects[point.number]}")
        raise


@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_death_beside_any_side_effect_loses_nothing_and_the_next_run_ends_well(kind: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[kind]
    first = scenario.begin(tmp_path / "first")
    effects = effects_of_a_complete_run(scenario, first.copy(tmp_path / "whole"))
    for point in points(effects):
        with crash_point_in_failure(effects, point):
            world = first.copy(tmp_path / f"{point.number}-{point.moment}")
            run_until_crash(scenario, world, point)
            world.wait(hours=1)  # until the lease of the dead is over
            scenario.ended_well(world, scenario.run(world, "the-next-run"))
            scenario.lost_nothing(world)
            if point.moment is Moment.AFTER:
                require_that_another_run_changes_nothing(scenario, world)


def require_that_another_run_changes_nothing(scenario: CrashScenario, world: World) -> None:
    """Require that one more run changes neither objects nor the ledger's outcomes."""
    before = world.stored(), world.copies(), outcomes(world)
    scenario.ended_well(world, scenario.run(world, "one-more-run"))
    assert (world.stored(), world.copies(), outcomes(world)) == before
