"""Sweeps between other operations: objects that are live again stay, deleted objects are known, later plans succeed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import pytest
from pyspark.sql import SparkSession

from retention_assets.warehouse.warehouse import Warehouse
from tests.lakefs_repositories import address
from tests.models.days import Day, Planned, later, lay_out, on_disk
from tests.models.truth import Lifecycle, Retention, Rules
from tests.models.walks import AS_OF, DAY
from tests.models.world import Commit, Stored, World

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("forgetful"),
    pytest.mark.timeout(900),
]  # four plans and two sweeps, also on a machine that has other work

START = AS_OF - 40 * DAY
MORNING = timedelta(hours=9)
RULES = Rules(Retention(3 * DAY), (Lifecycle("logs", 10 * DAY),))
LONGER = replace(RULES, lifecycle=(Lifecycle("logs", 100 * DAY),))

EXPIRED = ("replaced", "reverted", "branched", "tagged", "staged", "overwritten", "lost")  # each in one old commit
LOGS = ("log", "old-log")  # named by the head
UPLOADS = ("linked", "abandoned")  # in no commit
NAMES = ("kept", *EXPIRED, *LOGS, *UPLOADS)
ADDRESS = {name: address(START, number) for number, name in enumerate(NAMES)}
NAME = {address: name for name, address in ADDRESS.items()}


def named(known: Mapping[str, str]) -> dict[str, str]:
    """Return the values by object name instead of address."""
    return {NAME[address]: what for address, what in known.items()}


def first_world() -> World:
    """Return a world where each of `EXPIRED` was added by one commit and removed by the next one."""
    world = World(START, {"root": Commit((), START, {})}, {"main": "root"})
    for issued in ADDRESS.values():
        world = world.stored(issued, 10, issued=START)
    world = world.staged("main", "files/kept", ADDRESS["kept"])
    for place, name in enumerate(EXPIRED):
        world = replace(world, now=START + place * timedelta(hours=1))
        world = world.staged("main", f"files/{name}", ADDRESS[name]).commit_staged("main", f"add-{name}")
        world = world.staged("main", f"files/{name}", None).commit_staged("main", f"drop-{name}")
    for name in LOGS:
        world = world.staged("main", f"logs/{name}", ADDRESS[name])
    return world.commit_staged("main", "logs")


def meanwhile(world: World) -> World:
    """Change the world between plan and sweep, so that each candidate is live again by another operation."""
    world = world.reverted("drop-reverted", "main", "revert")
    world = world.branched("second", "add-branched").tagged("v1", "add-tagged")
    # Dated back, it is due by the rule of its directory at once: no more than that a commit holds it keeps it.
    world = world.staged("main", "logs/linked", ADDRESS["linked"]).commit_staged("main", "link", START)
    world = world.staged("main", "files/anew", ADDRESS["staged"])
    changed = {ADDRESS["overwritten"]: Stored(10, START + timedelta(minutes=1))}
    return replace(world, store={**world.store, **changed}).swept([ADDRESS["lost"]])


@dataclass
class Scenario:
    plans: list[Planned] = field(default_factory=list)
    outcomes: list[dict[str, str]] = field(default_factory=list)
    left: list[set[str]] = field(default_factory=list)  # the objects in the store after each sweep


@pytest.fixture(scope="module")
def scenario(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    directory = tmp_path_factory.mktemp("sweeps")
    warehouse = Warehouse(str(directory / "warehouse"))
    scenario = Scenario()

    def morning(place: int, world: World, rules: Rules = RULES) -> Day:
        world = replace(world, now=AS_OF + place * DAY + MORNING)
        day = Day(spark, lay_out(world, directory), warehouse, world, rules)
        scenario.plans.append(day.plan())
        day.approve(scenario.plans[-1].plan)
        return day

    def sweep(day: Day) -> World:
        scenario.outcomes.append(named(day.sweep()))
        left = on_disk(day.built)
        scenario.left.append({NAME[address] for address in left})
        return day.world.swept(day.world.store.keys() - left)

    first = morning(0, first_world())
    world = sweep(later(first, meanwhile(first.world)))

    world = world.reverted("drop-replaced", "main", "too late")  # its object is gone
    second = morning(1, world.unbranched("second").untagged("v1").thrown_away("main"))
    names = sorted(second.world.store.keys() & scenario.plans[1].reasons.keys())
    second.fail_half_way(scenario.plans[1].plan, names[:2], names[2:])

    third = morning(2, second.world.swept(names[:2]))
    world = sweep(third)
    morning(3, world, LONGER)
    return scenario


def test_objects_that_are_live_again_or_changed_after_the_plan_are_skipped(scenario: Scenario) -> None:
    assert named(scenario.plans[0].reasons) == {
        **dict.fromkeys(EXPIRED, "expired"),
        **dict.fromkeys(LOGS, "lifecycle"),
        **dict.fromkeys(UPLOADS, "unreferenced"),
    }
    skipped = {"reverted", "branched", "tagged", "staged", "linked", "overwritten"}
    assert scenario.outcomes[0] == {
        **dict.fromkeys(skipped, "skipped"),
        **dict.fromkeys(("replaced", "log", "old-log", "abandoned"), "deleted"),
        "lost": "missing",
    }
    assert scenario.left[0] == {*skipped, "kept"}


def test_the_next_plan_is_valid_although_a_head_has_objects_that_lifecycle_rules_deleted(scenario: Scenario) -> None:
    assert scenario.plans[1].plan.blocked is None
    assert not set(LOGS) & set(named(scenario.plans[1].reasons))


def test_deleted_objects_that_a_later_revert_references_are_counted_as_collected(scenario: Scenario) -> None:
    assert [planned.plan.collected for planned in scenario.plans[:3]] == [0, 1, 1]


def test_deleted_objects_that_a_longer_policy_keeps_again_are_counted_as_collected(scenario: Scenario) -> None:
    # `replaced` by its revert; the logs, and the log that was linked, since they are not due any more.
    assert scenario.plans[3].plan.collected == 4


def test_skipped_objects_are_planned_again_when_nothing_keeps_them(scenario: Scenario) -> None:
    assert named(scenario.plans[1].reasons) == {
        "linked": "lifecycle",
        **dict.fromkeys(("branched", "tagged", "staged", "overwritten"), "expired"),
    }


def test_failed_objects_are_planned_again_and_deleted(scenario: Scenario) -> None:
    first, again = set(scenario.plans[1].reasons), set(scenario.plans[2].reasons)
    assert len(first) == 5
    assert again == first & again
    assert len(again) == 3
    assert set(scenario.outcomes[1].values()) == {"deleted"}
    assert scenario.left[1] == {"kept", "reverted"}
    assert scenario.plans[3].reasons == {}


def test_only_complete_runs_advance_last_deleted_and_skipped_objects_do_not_prevent_it(scenario: Scenario) -> None:
    days = [[rule.last_deleted for rule in planned.current] for planned in scenario.plans]
    whole, after_the_failed_one = date(2026, 10, 22), date(2026, 10, 24)
    assert days == [[None], [whole], [whole], [after_the_failed_one]]
