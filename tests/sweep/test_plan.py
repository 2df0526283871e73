"""A plan is the same whenever and by whomever it is made, and the day's plan is the last one that stood."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import GuardRefused
from retention_assets.lakefs.rules.references import Commit, References, references_hash
from retention_assets.policy.rules import CommittedRetention, Hold, Policy
from retention_assets.state.plan import PLANS, Plan, keep_plan, last_plan, load_plan, plan_hash, withdraw_plan
from retention_assets.state.warehouse import Warehouse
from tests.sweep.small_world import DAY, DEAD, UNREFERENCED, World, a_plan
from tests.transforms.frames import NOW, OLD

WORLD = World()
HOUR = timedelta(hours=1)
WORLD_CANDIDATES = 3


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def planned(spark: SparkSession, warehouse: Warehouse, world: World) -> Plan:
    plan = world.plan(spark, warehouse).plan
    assert plan is not None
    return plan


@pytest.fixture(scope="module")
def plan(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned(spark, Warehouse(str(tmp_path_factory.mktemp("plan"))), WORLD)


# ---- the hash


def test_neither_run_nor_clock_changes_the_hash(spark: SparkSession, warehouse: Warehouse, plan: Plan) -> None:
    later = replace(WORLD, run_id="another-run", made_at=NOW + HOUR, listed_at=NOW + HOUR, references_at=NOW + HOUR)
    again = planned(spark, warehouse, later)
    assert again.plan_hash == plan.plan_hash
    assert (again.run_id, again.made_at) != (plan.run_id, plan.made_at)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(WORLD.without(DEAD), id="a_candidate_less"),
        pytest.param(replace(WORLD, references_hash="f" * 64), id="other_references"),
        pytest.param(
            replace(WORLD, policy=Policy(CommittedRetention((), timedelta(days=31), has_default=True), (), ())),
            id="another_policy_with_the_same_candidates",
        ),
    ],
)
def test_candidates_references_and_policy_change_the_hash(
    spark: SparkSession, warehouse: Warehouse, plan: Plan, changed: World
) -> None:
    assert planned(spark, warehouse, changed).plan_hash != plan.plan_hash


def test_each_part_counts_in_the_hash() -> None:
    hashes = [plan_hash("a", "b", "c", "d"), plan_hash("x", "b", "c", "d"), plan_hash("a", "x", "c", "d")]
    hashes += [plan_hash("a", "b", "x", "d"), plan_hash("a", "b", "c", "x"), plan_hash("b", "a", "c", "d")]
    assert len(set(hashes)) == len(hashes)


COMMITS = {name: Commit(name, (), OLD, "") for name in ("a", "b")}
SEEN = References(COMMITS, {"dev": "a", "main": "b"}, {"v1": "a"}, NOW)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param(replace(SEEN, taken_at=NOW + HOUR), True, id="when_they_were_read"),
        pytest.param(replace(SEEN, branches={"main": "b", "dev": "a"}), True, id="their_order"),
        pytest.param(replace(SEEN, commits=dict(reversed(COMMITS.items()))), True, id="the_order_of_commits"),
        pytest.param(replace(SEEN, branches={"dev": "b", "main": "b"}), False, id="a_branch_moved"),
        pytest.param(replace(SEEN, branches={"main": "b"}), False, id="a_branch_less"),
        pytest.param(replace(SEEN, tags={}), False, id="a_tag_less"),
        pytest.param(
            replace(SEEN, branches={"main": "b"}, tags={"v1": "a", "dev": "a"}), False, id="a_tag_for_a_branch"
        ),
        pytest.param(replace(SEEN, commits={**COMMITS, "c": Commit("c", (), OLD, "")}), False, id="a_commit_more"),
    ],
)
def test_references_are_hashed_by_what_they_name(other: References, same: bool) -> None:
    assert (references_hash(other) == references_hash(SEEN)) is same


# ---- what is blocked, and what is warned of


def test_a_plan_without_a_staged_list_is_blocked_and_keeps_what_no_commit_holds(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    world = replace(WORLD, staged=(), staged_known=False)
    made = world.plan(spark, warehouse)
    assert made.plan is not None
    assert made.plan.blocked is not None
    assert "no staged list is known" in made.plan.blocked
    assert any("cannot be carried out" in warning for warning in made.plan.warnings)
    assert UNREFERENCED not in {row["address"] for row in made.candidates.collect()}


def test_a_staged_list_newer_than_the_references_blocks(spark: SparkSession, warehouse: Warehouse) -> None:
    blocked = planned(spark, warehouse, replace(WORLD, references_at=NOW - HOUR)).blocked
    assert blocked is not None
    assert blocked.startswith("the staged list (2026-11-01 00:00:00 UTC) is newer than the references (2026-10-31 23:")


@pytest.mark.parametrize("older", ["listed_at", "staged_at", "references_at"])
def test_the_oldest_input_decides_what_is_young(spark: SparkSession, warehouse: Warehouse, older: str) -> None:
    """One second before everything's age plus the grace period: nothing is old enough."""
    early: dict[str, Any] = {older: OLD + WORLD.grace}
    world = replace(WORLD, **early)
    assert world.plan(spark, warehouse).candidates.count() == 0


@pytest.mark.parametrize(
    ("listed", "settles_at"),
    [
        pytest.param(timedelta(0), timedelta(0), id="listed_just_before"),
        pytest.param(HOUR / 2, HOUR / 2, id="the_listing_took_half_an_hour"),
        pytest.param(40 * HOUR, HOUR, id="an_inventory_that_was_delivered_yesterday"),
    ],
)
def test_a_first_plan_deletes_nothing_however_old_its_inventory_is(
    spark: SparkSession, warehouse: Warehouse, listed: timedelta, settles_at: timedelta
) -> None:
    world = replace(WORLD, listed_at=NOW - listed, settle=timedelta(hours=24))
    first = planned(spark, warehouse, world)
    assert first.candidates.objects == 0
    assert first.first_wait_ends == NOW - settles_at + world.settle
    later = {"listed_at": NOW + 23 * HOUR - listed, "staged_at": NOW + 23 * HOUR, "references_at": NOW + 23 * HOUR}
    assert planned(spark, warehouse, replace(world, **later, made_at=NOW + HOUR)).candidates.objects == (
        WORLD_CANDIDATES if settles_at == HOUR else 0
    )


def test_old_references_and_no_grace_period_are_warned_of(spark: SparkSession, warehouse: Warehouse) -> None:
    warnings = planned(spark, warehouse, replace(WORLD, made_at=NOW + timedelta(days=2), grace=timedelta(0))).warnings
    assert [warning.split(" ")[1] for warning in warnings] == ["references", "grace"]


def test_a_hold_on_a_prefix_keeps_until_its_last_day(spark: SparkSession, warehouse: Warehouse) -> None:
    hold = Hold("audit", "prefix", "a/5", "an audit", until=DAY)
    held = replace(WORLD, policy=Policy(WORLD.policy.retention, (), (hold,)))
    assert DEAD not in {row["address"] for row in held.plan(spark, warehouse).candidates.collect()}
    ended = Policy(WORLD.policy.retention, (), (replace(hold, until=DAY - timedelta(days=1)),))
    after = replace(WORLD, policy=ended).plan(spark, warehouse)
    assert DEAD in {row["address"] for row in after.candidates.collect()}


# ---- plans in the warehouse


def test_a_plan_is_read_back_as_it_was_kept(warehouse: Warehouse) -> None:
    plan = a_plan(blocked="for a reason")
    keep_plan(warehouse, plan)
    assert load_plan(warehouse, "orchard", DAY) == plan
    assert last_plan(warehouse, "orchard", DAY) == plan


def test_a_withdrawn_plan_does_not_stand_but_is_remembered(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    withdraw_plan(warehouse, "orchard", DAY)
    withdraw_plan(warehouse, "orchard", DAY)  # once more is fine
    with pytest.raises(GuardRefused, match="retention plan orchard --as-of 2026-11-01"):
        load_plan(warehouse, "orchard", DAY)
    assert last_plan(warehouse, "orchard", DAY) == a_plan()


def test_every_plan_of_a_day_is_kept_beside_the_current_one(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    keep_plan(warehouse, a_plan(made_at=NOW, live=7))
    assert load_plan(warehouse, "orchard", DAY).live == 7
    assert len(warehouse.documents("orchard", PLANS, DAY.isoformat())) == 3


def day(number: int) -> date:
    return date(2026, 10, number)


@pytest.mark.parametrize(
    ("made", "until", "live"),
    [
        pytest.param({}, 5, None, id="none_was_ever_made"),
        pytest.param({6: (1, 60)}, 5, None, id="only_one_of_a_later_day"),
        pytest.param({4: (1, 40), 5: (2, 50)}, 5, 50, id="one_of_the_day_itself"),
        pytest.param({3: (1, 30), 4: (2, 40), 6: (3, 60)}, 5, 40, id="one_of_the_day_before"),
        pytest.param({3: (9, 30), 4: (2, 40)}, 5, 30, id="an_older_day_that_was_planned_again_last"),
        pytest.param({3: (10, 30), 4: (9, 40)}, 5, 30, id="times_are_compared_as_times"),
    ],
)
def test_the_last_plan_is_the_one_made_last_of_the_day_or_before_it(
    warehouse: Warehouse, made: dict[int, tuple[int, int]], until: int, live: int | None
) -> None:
    for number, (hour, alive) in made.items():
        keep_plan(warehouse, a_plan(day=day(number), made_at=NOW + hour * HOUR, live=alive))
    keep_plan(warehouse, a_plan(repository="meadow", day=day(5), made_at=NOW + 99 * HOUR))
    found = last_plan(warehouse, "orchard", day(until))
    assert (found.live if found else None) == live


def test_no_plan_is_made_behind_one_from_the_future(spark: SparkSession, warehouse: Warehouse) -> None:
    """What it named would count as named by every plan since."""
    planned(spark, warehouse, replace(WORLD, made_at=NOW + HOUR))
    with pytest.raises(GuardRefused, match=r"memory/\w+-\w+ and .*due_objects/\w+-\w+ are of a plan that was made"):
        planned(spark, warehouse, WORLD)
    for table in ("due_objects", "memory"):
        warehouse.remove_directory("orchard", table)
    planned(spark, warehouse, WORLD)
