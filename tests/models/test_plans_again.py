"""A plan that reuses the last one is what a computation from the beginning finds, whatever changed since then."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention_assets.lakefs.sweep import planning
from retention_assets.warehouse.warehouse import Warehouse
from tests.models.days import Day, lay_out
from tests.models.test_incremental import LONG, MORNING
from tests.models.truth import Held, Rules
from tests.models.walks import AS_OF, DAY, Walk
from tests.models.world import World

COMMITTED = replace(LONG, lifecycle=())
HELD = replace(COMMITTED, holds=(Held("prefix", "foo"),))
YOUNG = replace(COMMITTED, grace=timedelta(0), token_life=2 * DAY)
HOUR = timedelta(hours=1)


@pytest.fixture
def classified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record each plan whose objects were classified."""
    made: list[str] = []
    classify: Callable[..., planning.Classification] = planning.classify

    def recorded(parameters: planning.PlanParameters, *rest: object, **named: object) -> planning.Classification:
        made.append(parameters.run_id)
        return classify(parameters, *rest, **named)

    monkeypatch.setattr(planning, "classify", recorded)
    return made


@pytest.fixture
def walk() -> Walk:
    walk = Walk("again", 5, AS_OF - 20 * DAY, version_0=False)
    walk.until(AS_OF + MORNING - DAY / 4)
    walk.some(60)
    return walk


class Twice:
    """One repository with two warehouses. Plans in the first may reuse the last plan. Plans in the second never do."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory

    def plan(self, world: World, rules: Rules, settle: timedelta = timedelta(0)) -> None:
        """Plan in both warehouses, and require equal plans."""
        built = lay_out(world, self.directory)
        day = Day(self.spark, built, Warehouse(str(self.directory / "again")), world, rules, settle=settle)
        again = day.plan()
        full = replace(day, warehouse=Warehouse(str(self.directory / "full"))).plan(full=True)
        assert again.reasons == full.reasons
        kept = ("run_id", "policy_run")
        assert replace(again.plan, **dict.fromkeys(kept, "")) == replace(full.plan, **dict.fromkeys(kept, ""))
        self.spark.catalog.clearCache()


def moved(world: World, duration: timedelta) -> World:
    return replace(world, now=world.now + duration)


@pytest.mark.long
def test_a_plan_is_reused_until_an_object_is_old_enough_or_has_waited(
    spark: SparkSession, tmp_path: Path, walk: Walk, classified: list[str]
) -> None:
    twice, world = Twice(spark, tmp_path), walk.until(AS_OF + MORNING + 4 * DAY)

    def is_classified(later: World, rules: Rules, settle: timedelta = timedelta(0)) -> bool:
        before = len(classified)
        twice.plan(later, rules, settle)
        return len(classified) - before == 2  # both warehouses, and not only the second

    assert is_classified(world, COMMITTED)
    assert not is_classified(moved(world, HOUR), COMMITTED)
    assert is_classified(moved(world, 2 * HOUR), COMMITTED, 5 * HOUR)  # another setting
    assert not is_classified(moved(world, 3 * HOUR), COMMITTED, 5 * HOUR)
    world = moved(world, 6 * HOUR)
    assert is_classified(world, COMMITTED, 5 * HOUR)  # the objects of the first plan with a settling time have waited
    assert is_classified(moved(world, DAY), COMMITTED, 5 * HOUR)  # objects are old enough


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rules", [COMMITTED, LONG, HELD, YOUNG], ids=["committed", "lifecycle", "held", "young"])
def test_plans_of_small_changes_are_what_a_computation_from_the_beginning_finds(
    spark: SparkSession, tmp_path: Path, walk: Walk, classified: list[str], rules: Rules
) -> None:
    twice, again = Twice(spark, tmp_path), 0
    walk.until(AS_OF + MORNING + 4 * DAY)
    for step in range(14):
        before = len(classified)
        twice.plan(walk.world, rules, (5 * HOUR, timedelta(0))[step % 2 if step > 7 else 0])
        again += len(classified) - before == 1
        walk.world = moved(walk.world, walk.random.choice((HOUR, 2 * HOUR, DAY / 2)))
        if walk.random.random() < 0.4:
            walk.some(2)
    assert again > 1
