"""Daily runs with a cache find exactly what a run without one finds, and both find what brute force finds."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention_assets.state.ledger import LEDGERS
from retention_assets.warehouse.warehouse import Warehouse
from tests.lakefs_repositories import NAME
from tests.models.days import Day, Planned, later, lay_out, on_disk
from tests.models.truth import Held, Lifecycle, Retention, Rules, Truth
from tests.models.walks import AS_OF, DAY, Walk

MORNING = timedelta(hours=9, minutes=30)
FIRST_DAY = AS_OF - 4 * DAY

LONG = Rules(
    Retention(3 * DAY, {"main": 8 * DAY}),
    (Lifecycle("foo/bar", 5 * DAY, {"dev": 2 * DAY}), Lifecycle("tmp", None, {"main": DAY})),
)
HELD = replace(LONG, holds=(Held("prefix", "ref"), Held("branch", "main")))
SHORTER = replace(LONG, lifecycle=(Lifecycle("foo/bar", 2 * DAY), Lifecycle("tmp", None, {"main": DAY})))
OTHER = replace(LONG, lifecycle=(Lifecycle("foo", 3 * DAY, {"exp-*": DAY}),), tags="ignore")
LONGER = replace(LONG, lifecycle=(Lifecycle("", 6 * DAY, {"gold": None}),), grace=timedelta(0))
NONE = replace(LONG, lifecycle=(), retention=None)

# How each day ends, under the policy it has: holds that end, shorter, of another prefix without tags, longer, none.
SHORT_STORY = ((HELD, "swept"), (SHORTER, "failed half-way"), (OTHER, "swept after changes"), (LONGER, "planned"))
LONG_STORY = (*SHORT_STORY, (NONE, "swept"), (SHORTER, "swept after changes"), (LONG, "planned"))
CHANGES = 25  # at one moment: each morning, and between a plan and its sweep


@dataclass
class Scenario:
    """A random history of several days. The world of each morning is planned, and maybe swept."""

    spark: SparkSession
    directory: Path
    walk: Walk

    def morning(self, place: int, rules: Rules) -> Day:
        self.walk.until(FIRST_DAY + place * DAY + MORNING - DAY / 4)
        self.walk.some(CHANGES)
        world = self.walk.until(FIRST_DAY + place * DAY + MORNING)
        warehouse = Warehouse(str(self.directory / "warehouse"))
        return Day(self.spark, lay_out(world, self.directory), warehouse, world, rules, "optimized")

    def end(self, ending: str, day: Day, planned: Planned) -> set[str]:
        """End the day, and return the objects that were deleted on it."""
        day.approve(planned.plan)
        if ending == "planned":
            return set()
        if ending == "failed half-way":
            names = sorted(planned.reasons)
            gone = set(names[::2])
            day.fail_half_way(planned.plan, gone, names[1::2])
        else:
            if ending == "swept after changes":
                day = later(day, self.walk.some(CHANGES))
            outcomes = day.sweep()
            gone = {name for name, outcome in outcomes.items() if outcome == "deleted"}
            now = Truth(day.world, day.rules, day.as_of)
            assert gone == {name for name in planned.reasons if self._is_dead(name, planned, now)}
        self.walk.world = self.walk.world.swept(gone)
        assert on_disk(day.built) == self.walk.world.store.keys()
        return gone

    @staticmethod
    def _is_dead(name: str, planned: Planned, now: Truth) -> bool:
        committed_since = planned.reasons[name] == "unreferenced" and name in now.committed
        return name not in now.live and not committed_since


def expected(day: Day, rules: Rules) -> dict[str, str]:
    """Return the candidates of brute force, without unreferenced objects while an entry of a head has no object here.

    An object with the size of such an entry may be staged, and in these worlds all objects have the same size.
    """
    found, world = dict(Truth(day.world, rules, day.as_of).candidates), day.world
    of_heads = {address for head in world.branches.values() for address in world.commits[head].objects.values()}
    is_hiding = not of_heads <= world.store.keys()
    return {name: reason for name, reason in found.items() if not (is_hiding and reason == "unreferenced")}


def lived_through(spark: SparkSession, directory: Path, number: int, days: Sequence[tuple[Rules, str]]) -> list[int]:
    """Run all days and compare each plan; return how many objects were deleted at the end of each day."""
    scenario = Scenario(spark, directory, Walk("w", number, FIRST_DAY - 16 * DAY, version_0=False))
    deleted = []
    for place, (rules, ending) in enumerate(days):
        day = scenario.morning(place, rules)
        planned = day.plan()
        assert planned.reasons == expected(day, rules)
        deleted.append(len(scenario.end(ending, day, planned)))
        spark.catalog.clearCache()  # each run has a process of its own; a session that keeps all of them runs full
    fresh = Warehouse(str(directory / "fresh"))
    shutil.copytree(directory / "warehouse" / NAME / LEDGERS, directory / "fresh" / NAME / LEDGERS)
    full = replace(day, warehouse=fresh, listing="clean").plan()
    assert full.reasons == planned.reasons
    assert full.plan.plan_hash == planned.plan.plan_hash  # rules, paths, branches and dates of each are the same too
    assert full.files_read > planned.files_read > 0
    return deleted


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_incremental_runs_and_one_full_run_find_the_candidates_of_brute_force(
    spark: SparkSession, tmp_path: Path
) -> None:
    deleted = lived_through(spark, tmp_path, 2, SHORT_STORY)
    assert min(deleted[:-1]) > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", (1, *range(3, 12)))
def test_more_histories_of_incremental_runs_find_the_candidates_of_brute_force(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    lived_through(spark, tmp_path, number, LONG_STORY)
