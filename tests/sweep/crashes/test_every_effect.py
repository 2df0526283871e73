"""A run dies beside each of its side effects, one after the other. Nothing is lost, and the next run ends it well."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sweep.crashes.effects import Effect, Effects, Moment, Point, points, watched
from tests.sweep.crashes.engine import latest
from tests.sweep.crashes.stories import STORIES, Story
from tests.sweep.crashes.world import World

pytestmark = pytest.mark.usefixtures("small_steps")


def seen_in_a_whole_run(story: Story, world: World) -> list[Effect]:
    with watched(Effects(world.root, watch=world.require_dead)) as effects:
        story.ended_well(world, story.run(world, "a-run"))
    story.lost_nothing(world)
    return effects.seen


def run_that_dies(story: Story, world: World, point: Point) -> None:
    with watched(Effects(world.root, point, world.require_dead)) as effects:
        story.run(world, "a-run")
    assert effects.dead
    story.lost_nothing(world)


@contextmanager
def told(effects: list[Effect], point: Point) -> Iterator[None]:
    """Say of a failure where the run had died."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the run died {point.moment} effect {point.number} of {len(effects)}: {effects[point.number]}")
        raise


@pytest.mark.parametrize("kind", STORIES)
def test_a_death_beside_any_side_effect_loses_nothing_and_the_next_run_ends_well(kind: str, tmp_path: Path) -> None:
    story = STORIES[kind]
    first = story.begin(tmp_path / "first")
    effects = seen_in_a_whole_run(story, first.copy(tmp_path / "whole"))
    for point in points(effects):
        with told(effects, point):
            world = first.copy(tmp_path / f"{point.number}-{point.moment}")
            run_that_dies(story, world, point)
            world.wait(hours=1)  # until the lease of the dead is over
            story.ended_well(world, story.run(world, "the-next-run"))
            story.lost_nothing(world)
            if point.moment is Moment.AFTER:
                requires_no_more(story, world)


def requires_no_more(story: Story, world: World) -> None:
    """Require that one more run changes neither objects nor what is known of them."""
    before = world.stored(), world.copies(), outcomes(world)
    story.ended_well(world, story.run(world, "one-more-run"))
    assert (world.stored(), world.copies(), outcomes(world)) == before


def outcomes(world: World) -> dict[str, str]:
    return {address: row["outcome"] for address, row in latest(world.ledger()).items()}
