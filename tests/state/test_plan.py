"""Plans: equal inputs give an equal plan, and the plan of a day is the last one that was not withdrawn."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from hashlib import md5
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.cli.rendering import open_table
from retention_assets.core.amounts import Amount
from retention_assets.core.digest import candidates_digest
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.explain.plans import PlanTables
from retention_assets.lakefs.rules.references import Commit, References, references_hash
from retention_assets.lakefs.rules.reflog import Memory, SeenHead
from retention_assets.lakefs.sweep import planning
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Hold, LifecycleRule, Policy
from retention_assets.state.memory import due_objects, due_objects_location, due_objects_of, named_since
from retention_assets.state.plan import (
    CURRENT,
    PLANNED_OBJECTS,
    PLANS,
    Duplicate,
    Heads,
    Plan,
    find_plan,
    keep_plan,
    keep_planned,
    last_plan,
    load_plan,
    plan_hash,
    planned_heads,
    planned_objects,
    planned_of_all,
    withdraw_plan,
)
from retention_assets.state.policies import keep_policy, kept_policy
from retention_assets.tables import DELETION_CANDIDATES, STORAGE_INVENTORY
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.table_writer import write_rows
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, OLD, Candidate, Pair, Staged, candidates, inventory
from tests.ledgers import write_ledger
from tests.sweep.small_world import (
    ALSO_DEAD,
    ALSO_LIVE,
    DAY,
    DEAD,
    LISTED,
    LIVE,
    PAIRS,
    STAGED,
    UNREFERENCED,
    World,
    a_plan,
)

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


@pytest.mark.long
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


def test_each_part_of_a_plan_changes_its_hash() -> None:
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


# ---- blocked plans, and warnings


@pytest.mark.long
def test_a_plan_without_a_staged_list_is_blocked_and_keeps_uncommitted_objects(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    world = replace(WORLD, staged=(), staged_known=False)
    made = world.plan(spark, warehouse)
    assert made.plan is not None
    assert made.plan.blocked is not None
    assert "no staged list is known" in made.plan.blocked
    assert any("must not be executed" in warning for warning in made.plan.warnings)
    assert UNREFERENCED not in {row["address"] for row in made.candidates.collect()}


def test_a_staged_list_newer_than_the_references_blocks(spark: SparkSession) -> None:
    blocked = replace(WORLD, references_at=NOW - HOUR).blocked(spark)
    assert blocked is not None
    assert blocked.startswith("the staged list (2026-11-01 00:00:00 UTC) is newer than the references (2026-10-31 23:")
    just_before = replace(WORLD, references_at=NOW - timedelta(microseconds=1)).blocked(spark) or ""
    assert "(2026-11-01 00:00:00 UTC) is newer than the references (2026-10-31 23:59:59.999999 UTC)" in just_before


def test_a_staged_list_that_is_hours_older_than_the_references_blocks(spark: SparkSession) -> None:
    """A staged object with the content of a HEAD is not in the list. If the branch moved since, it is in neither."""
    dumped = replace(WORLD, oldest_dump=HOUR)
    assert replace(dumped, staged_at=NOW - 2 * HOUR).blocked(spark) is None
    assert replace(WORLD, staged_at=NOW - 3 * HOUR, settle=HOUR).blocked(spark) is None  # a server's list
    for times in ({"staged_at": NOW - 2.01 * HOUR}, {"staged_until": NOW - 2.01 * HOUR}):
        blocked = replace(dumped, **times).blocked(spark)  # type: ignore[arg-type]
        assert blocked is not None
        assert blocked.startswith("the staged list (2026-10-31 21:59:24 UTC) is more than 2h older than the references")


def test_ages_and_the_end_of_the_wait_count_up_to_the_first_page_of_a_staged_list(spark: SparkSession) -> None:
    """The list may not have what was staged after that. The wait begins with the last page, which is later."""
    inputs = replace(WORLD, staged_at=NOW - 0.1 * HOUR, staged_until=NOW - 0.9 * HOUR).inputs(spark)
    assert inputs.oldest == inputs.settling_until == NOW - 0.9 * HOUR
    assert inputs.settling_from == NOW - 0.1 * HOUR


def test_a_staged_list_of_a_server_that_is_hours_older_blocks_if_settle_does_not_protect_hidden_objects(
    spark: SparkSession,
) -> None:
    """Someone materialized the table of the references hours after that of the staged list."""
    short = replace(WORLD, settle=HOUR - timedelta(seconds=1))
    assert replace(short, staged_at=NOW - 2 * HOUR).blocked(spark) is None
    assert replace(WORLD, settle=HOUR, staged_at=NOW - 2.01 * HOUR).blocked(spark) is None
    assert "than 1h, so" in (replace(short, staged_at=NOW - 2.01 * HOUR).blocked(spark) or "")
    blocked = replace(WORLD, staged_at=NOW - 2.01 * HOUR).blocked(spark)
    assert blocked is not None
    assert blocked.startswith("the staged list (2026-10-31 21:59:24 UTC) is more than 2h older than the references (2")
    assert "`settle` (0d) is less than 1h, so it does not protect these objects. Make all tables of the day" in blocked
    assert blocked.endswith("If the list is still too old, set `settle` to at least 1h.")


def test_a_staged_list_beside_a_dump_blocks_if_addresses_have_several_spellings(spark: SparkSession) -> None:
    """The server's list omits objects that were linked under another form of the URL, and a dump cannot list them."""
    for namespace in ("local://orchard", "s3://lake/my orchard"):
        assert replace(WORLD, namespace=namespace).blocked(spark) is None  # a server's list
        blocked = replace(WORLD, namespace=namespace, oldest_dump=HOUR).blocked(spark)
        assert blocked is not None
        assert blocked.startswith(f"the staged list may be incomplete: addresses inside the namespace {namespace} have")
    assert replace(WORLD, namespace="s3://lake/orchard", oldest_dump=HOUR).blocked(spark) is None


@pytest.mark.long
def test_a_plan_is_blocked_if_a_commit_of_an_earlier_plan_no_longer_exists(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    seen = Memory((SeenHead("branch", "main", "c2", NOW - HOUR),), {"c2": None}, NOW - HOUR)
    assert replace(WORLD, memory=seen, commits=["c1", "c2"]).blocked(spark) is None
    blocked = planned(spark, warehouse, replace(WORLD, memory=seen, commits=["c1"])).blocked
    assert blocked is not None
    assert "branch main had c2. lakeFS never removes commits, so the repository was restored" in blocked


@pytest.mark.long
@pytest.mark.parametrize("older", ["listed_at", "staged_at", "references_at"])
def test_the_oldest_input_decides_what_is_young(spark: SparkSession, warehouse: Warehouse, older: str) -> None:
    """One second before everything's age plus the grace period: nothing is old enough."""
    early: dict[str, Any] = {older: OLD + WORLD.grace}
    world = replace(WORLD, **early)
    assert world.plan(spark, warehouse).candidates.count() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("listed", "settles_at"),
    [
        pytest.param(timedelta(0), timedelta(0), id="listed_just_before"),
        pytest.param(HOUR / 2, HOUR / 2, id="the_listing_took_half_an_hour", marks=pytest.mark.slow),
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


@pytest.mark.long
@pytest.mark.parametrize("late", ["staged_at", "references_at"])
def test_an_object_waits_from_the_newest_input_of_one_plan_to_the_older_one_of_another(
    spark: SparkSession, warehouse: Warehouse, late: str
) -> None:
    """An object that moved between the list and the references of the first plan is in the list of the second."""
    world = replace(WORLD, listed_at=NOW - 40 * HOUR, settle=timedelta(hours=24))
    early = {"staged_at": NOW - 40 * HOUR, "references_at": NOW - 40 * HOUR, late: NOW}
    assert planned(spark, warehouse, replace(world, **early)).first_wait_ends == NOW - HOUR + world.settle
    at = NOW + 23 * HOUR
    for hours, expected in ((-1, 0), (0, WORLD_CANDIDATES)):
        later = {"staged_at": at + hours * HOUR, "references_at": at + HOUR, "made_at": at + HOUR}
        assert planned(spark, warehouse, replace(world, **later)).candidates.objects == expected


@pytest.mark.long
def test_an_object_that_one_plan_did_not_find_due_waits_again(spark: SparkSession, warehouse: Warehouse) -> None:
    """The object was referenced between the first and the third plan. An operation that began then may still use it."""
    hold = Policy(WORLD.policy.retention, (), (Hold("audit", "prefix", "a/5", "an audit", until=DAY),))
    settle = timedelta(hours=24)
    named = []
    for hours, policy in ((0, WORLD.policy), (12, hold), (36, WORLD.policy)):
        at = NOW + hours * HOUR
        world = replace(
            WORLD,
            settle=settle,
            policy=policy,
            listed_at=at,
            staged_at=at,
            references_at=at,
            made_at=at,
            run_id=f"{at}",
        )
        named.append({row["address"] for row in world.plan(spark, warehouse).candidates.collect()})
    assert named[:2] == [set(), set()]
    assert ALSO_DEAD in named[2]
    assert DEAD not in named[2]


@pytest.mark.long
@pytest.mark.parametrize(
    "old",
    [
        pytest.param(("staged_at", "references_at"), id="staged_at_and_references_at"),
        pytest.param(("staged_at",), id="staged_at", marks=pytest.mark.slow),
        pytest.param(("references_at",), id="references_at", marks=pytest.mark.slow),
    ],
)
def test_a_plan_from_tables_of_an_old_day_does_not_let_an_object_settle_that_was_staged_since(
    spark: SparkSession, warehouse: Warehouse, old: tuple[str, ...]
) -> None:
    world = replace(WORLD, settle=timedelta(hours=24))
    also_staged = replace(world, staged=[Staged(STAGED), Staged(UNREFERENCED)])

    def plan_at(hours: int, world: World, **changes: Any) -> Plan:
        at = NOW + hours * HOUR
        times = {"listed_at": at, "staged_at": at, "references_at": at, "made_at": at, **changes}
        return planned(spark, warehouse, replace(world, **times, run_id=f"{at}"))

    plan_at(24, also_staged)
    for hours in (25, 26, 27):  # the tables of NOW still exist, and only the candidates are materialized again
        from_old = plan_at(hours, world, listed_at=NOW, **dict.fromkeys(old, NOW))
        assert UNREFERENCED in {row["address"] for row in due_objects_of(spark, warehouse, from_old).collect()}
    newest = plan_at(49, world)
    named = {row["address"] for row in planned_objects(spark, warehouse, newest).collect()}
    assert DEAD in named  # the plan of hour 24 found it due
    assert UNREFERENCED not in named
    assert newest.first_wait_ends == newest.last_wait_ends == NOW + 73 * HOUR


@pytest.mark.long
@pytest.mark.parametrize(
    "stored_last",
    [
        pytest.param("the_newer_state", marks=pytest.mark.slow),
        "the_older_state",
        pytest.param("the_older_state_that_read_the_other", marks=pytest.mark.slow),
    ],
)
def test_an_object_that_a_plan_found_live_at_the_same_time_waits_again(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, stored_last: str
) -> None:
    """The plan of the newer state names the object, because it did not read the due objects of the other plan."""
    world = replace(WORLD, settle=timedelta(hours=24))
    also_staged = replace(world, staged=[Staged(STAGED), Staged(UNREFERENCED)])

    def plan_at(hours: int, world: World, made_at: float | None = None) -> Plan:
        at = NOW + hours * HOUR
        times = {"listed_at": at, "staged_at": at, "references_at": at, "made_at": NOW + (made_at or hours) * HOUR}
        return planned(spark, warehouse, replace(world, **times, run_id=f"{at}"))

    def named(plan: Plan) -> set[str]:
        return {row["address"] for row in planned_objects(spark, warehouse, plan).collect()}

    plan_at(0, world)
    both = [(30, also_staged), (31, world)]
    earlier = due_objects(spark, warehouse, "orchard")
    plans = {}
    with monkeypatch.context() as at_the_same_time:
        at_the_same_time.setattr(planning, "due_objects", lambda *_: earlier)
        for made_at, (hours, one) in zip(
            (31.1, 31.2), both if stored_last == "the_newer_state" else both[::-1], strict=True
        ):
            plans[hours] = plan_at(hours, one, made_at)
            if stored_last == "the_older_state_that_read_the_other":
                at_the_same_time.undo()
    assert {DEAD, UNREFERENCED} <= named(plans[31])
    may_go = named_since(spark, warehouse, plans[31])
    assert may_go is not None
    assert {row["address"] for row in may_go.collect()} == named(plans[31]) - {UNREFERENCED}
    after = plan_at(32, world)
    assert named(after) == named(plans[31]) - {UNREFERENCED}
    assert named_since(spark, warehouse, after) is None
    assert UNREFERENCED in named(plan_at(56, world))


@pytest.mark.long
def test_a_plan_is_not_made_from_earlier_objects_of_which_rows_were_lost(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    first = planned(spark, warehouse, replace(WORLD, settle=timedelta(hours=24)))
    place = Path(due_objects_location(warehouse, first))
    next(part for part in place.glob("*.parquet") if pq.read_metadata(part).num_rows).unlink()
    with pytest.raises(
        TableContractError, match=rf"{re.escape(str(place))}: has \d rows, and {WORLD_CANDIDATES} were written"
    ):
        WORLD.plan(spark, warehouse)
    shutil.rmtree(place)
    assert planned(spark, warehouse, WORLD).candidates.objects == WORLD_CANDIDATES


@pytest.mark.long
def test_objects_wait_anew_after_the_earlier_objects_of_the_last_plan_were_lost(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """The due objects of the plan before do not replace them, since the live objects of the last plan are unknown."""
    world = replace(WORLD, settle=timedelta(hours=24))

    def plan_at(hours: int) -> Plan:
        at = NOW + hours * HOUR
        times = {"listed_at": at, "staged_at": at, "references_at": at, "made_at": at}
        return planned(spark, warehouse, replace(world, **times, run_id=f"{at}"))

    plan_at(0)
    lost = plan_at(20)
    shutil.rmtree(due_objects_location(warehouse, lost))
    anew = plan_at(25)
    assert anew.candidates.objects == 0
    assert anew.first_wait_ends == NOW + 49 * HOUR
    assert plan_at(49).candidates.objects == WORLD_CANDIDATES + 1  # `YOUNG` is old enough at this time


def test_the_candidates_that_are_shown_are_those_of_the_current_plan(spark: SparkSession, warehouse: Warehouse) -> None:
    """The run of the current plan was killed before it wrote the table of the day, which another run wrote."""
    table = "orchard", DELETION_CANDIDATES.name, DAY
    write_rows(candidates(spark, Candidate(LIVE)), warehouse, *table, shared=False)
    warehouse.write_metadata(*table, PartitionMetadata(NOW, 1, "another run", Details()))
    assert open_table(warehouse, *table)["address"].to_pylist() == [LIVE]
    current = planned(spark, warehouse, WORLD)
    expected = sorted(row["address"] for row in planned_objects(spark, warehouse, current).collect())
    assert open_table(warehouse, *table)["address"].to_pylist() == expected
    nothing: Any = None
    rows = PlanTables(warehouse, nothing, current).rows(DELETION_CANDIDATES.name, columns=["address"])
    assert sorted(row["address"] for row in rows) == expected
    withdraw_plan(warehouse, "orchard", DAY)
    assert open_table(warehouse, *table)["address"].to_pylist() == [LIVE]


def test_candidates_of_a_plan_that_are_no_longer_stored_are_refused(spark: SparkSession, warehouse: Warehouse) -> None:
    made = planned(spark, warehouse, WORLD)
    shutil.rmtree(warehouse.location("orchard", PLANNED_OBJECTS, made.plan_hash))
    refused = r"^orchard: the objects of the plan of .* are no longer stored\. .* `retention plan orchard --as-of "
    with pytest.raises(TableContractError, match=refused):
        open_table(warehouse, "orchard", DELETION_CANDIDATES.name, DAY)


def test_planned_objects_of_which_rows_were_lost_are_not_used(spark: SparkSession, warehouse: Warehouse) -> None:
    made = planned(spark, warehouse, WORLD)
    assert planned_of_all(spark, warehouse, [made]).count() == WORLD_CANDIDATES
    place = Path(warehouse.location("orchard", PLANNED_OBJECTS, made.plan_hash))
    next(part for part in place.glob("*.parquet") if pq.read_metadata(part).num_rows).unlink()
    with pytest.raises(TableContractError, match=rf"rows, and {WORLD_CANDIDATES} were written. Nothing was deleted"):
        planned_of_all(spark, warehouse, [made])


def _exchange_an_address(file: Path) -> None:
    rows = pq.read_table(file)
    exchanged = [f"{name[:-1]}x" for name in rows["address"].to_pylist()]
    pq.write_table(rows.set_column(rows.column_names.index("address"), "address", pa.array(exchanged)), file)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def _damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[4:60] = bytes(56)
    file.write_bytes(content)


@pytest.mark.long
@pytest.mark.parametrize("harm", [_exchange_an_address, _cut, _damage])
def test_planned_objects_that_were_damaged_are_refused_until_the_same_plan_is_made_again(
    spark: SparkSession, warehouse: Warehouse, harm: Callable[[Path], None]
) -> None:
    made = planned(spark, warehouse, WORLD)
    place = Path(warehouse.location("orchard", PLANNED_OBJECTS, made.plan_hash))
    file = next(part for part in place.glob("*.parquet") if pq.read_metadata(part).num_rows)
    (place / f".{file.name}.crc").unlink(missing_ok=True)
    harm(file)
    with pytest.raises(GuardRefused, match=r"\. Nothing was deleted\. Plan again: `retention plan orchard"):
        planned_objects(spark, warehouse, made)
    assert planned(spark, warehouse, WORLD).plan_hash == made.plan_hash
    assert planned_objects(spark, warehouse, made).count() == WORLD_CANDIDATES


def test_candidates_of_plans_with_equal_hashes_are_returned_once(spark: SparkSession, warehouse: Warehouse) -> None:
    made = planned(spark, warehouse, WORLD)
    next_day = replace(made, day=made.day + timedelta(days=1))
    assert planned_of_all(spark, warehouse, [made, next_day]).count() == WORLD_CANDIDATES


def test_objects_with_the_same_content_as_a_head_are_counted_as_may_be_staged(
    spark: SparkSession, warehouse: Warehouse, tmp_path: Path
) -> None:
    """An object with such content may be staged without its address being in any list."""
    content = b"ten bytes."
    etag = md5(content).hexdigest()
    for address in (LIVE, UNREFERENCED):
        (tmp_path / address).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / address).write_bytes(content)
    alike = [replace(row, etag=etag) if row.address in (LIVE, UNREFERENCED) else row for row in LISTED]
    pairs = [replace(pair, at_head=True, etag=etag) if pair.address == LIVE else pair for pair in PAIRS]
    made = planned(spark, warehouse, replace(WORLD, inventory=alike, pairs=pairs, storage=f"file://{tmp_path}"))
    assert made.totals["may_be_staged"] == Amount(1, 10)
    assert made.candidates.objects == WORLD_CANDIDATES - 1


def test_a_plan_names_objects_that_are_due_at_one_path_and_that_another_path_keeps(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    policy = replace(WORLD.policy, lifecycle=(LifecycleRule("old", "old", HOUR, {}),))
    pairs = [*PAIRS, Pair(LIVE, "old/1", active=True), Pair(ALSO_LIVE, "old/2", active=True, size=11)]
    made = planned(spark, warehouse, replace(WORLD, policy=policy, pairs=pairs))
    assert made.duplicates == (Duplicate(ALSO_LIVE, "old/2", "a/2"), Duplicate(LIVE, "old/1", "a/1"))
    assert load_plan(warehouse, "orchard", DAY) == made


def test_a_plan_warns_about_gone_heads_of_earlier_plans_and_names_them(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    gone = SeenHead("branch", "gold", "first", NOW - HOUR)
    kept = Policy(CommittedRetention((BranchRetention("gold", "gold", None),), 10 * HOUR, has_default=True), (), ())
    made = planned(spark, warehouse, replace(WORLD, memory=Memory((gone,)), commits=["first"], policy=kept))
    assert made.reflog == ("branch gold",)
    (warning,) = [one for one in made.warnings if "reflog" in one]
    assert "1 branch head of earlier plans is gone: gold" in warning
    assert "gold was at first" in warning
    assert warning.endswith(" `retention lint orchard` lists all of them with their commits.")


def test_the_policy_of_a_plan_is_stored_with_the_keys_of_earlier_versions(warehouse: Warehouse) -> None:
    policy = Policy(CommittedRetention((BranchRetention("gold", "g*", 10 * HOUR),), None, has_default=True), (), ())
    keep_policy(warehouse, "orchard", policy)
    document = warehouse.read_document("orchard", "policies", f"{policy.policy_hash}.json")
    assert document is not None
    assert document["retention"]["rules"] == [{"rule_id": "gold", "branch": "g*", "span": "PT10H"}]
    assert kept_policy(warehouse, "orchard", policy.policy_hash, Policy) == policy
    warehouse.write_document({"rules": []}, "orchard", "policies", f"{policy.policy_hash}.json")
    assert kept_policy(warehouse, "orchard", policy.policy_hash, Policy) is None


def test_a_plan_warns_about_keys_that_are_not_valid_paths(spark: SparkSession, warehouse: Warehouse) -> None:
    unusual = "2 keys are not valid paths (first: 'a//b')"
    made = planned(spark, warehouse, replace(WORLD, unusual=unusual))
    assert f"In the store, {unusual}. They are classified as foreign and are never deleted." in made.warnings


def test_a_plan_warns_about_old_references_and_a_grace_period_of_zero(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    warnings = planned(spark, warehouse, replace(WORLD, made_at=NOW + timedelta(days=2), grace=timedelta(0))).warnings
    assert [warning.split(" ")[1] for warning in warnings] == ["references", "grace"]


@pytest.mark.long
def test_a_hold_on_a_prefix_keeps_until_its_last_day(spark: SparkSession, warehouse: Warehouse) -> None:
    hold = Hold("audit", "prefix", "a/5", "an audit", until=DAY)
    held = replace(WORLD, policy=Policy(WORLD.policy.retention, (), (hold,)))
    assert DEAD not in {row["address"] for row in held.plan(spark, warehouse).candidates.collect()}
    ended = Policy(WORLD.policy.retention, (), (replace(hold, until=DAY - timedelta(days=1)),))
    after = replace(WORLD, policy=ended).plan(spark, warehouse)
    assert DEAD in {row["address"] for row in after.candidates.collect()}


# ---- plans in the warehouse


def test_a_stored_plan_is_read_back_unchanged(warehouse: Warehouse) -> None:
    plan = a_plan(blocked="for a reason")
    keep_plan(warehouse, plan)
    assert load_plan(warehouse, "orchard", DAY) == plan
    assert last_plan(warehouse, "orchard", DAY) == plan


def test_a_withdrawn_plan_is_not_current_but_stays_stored(warehouse: Warehouse) -> None:
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("listed", "deleted_before", "is_purged", "is_planned"),
    [
        pytest.param(True, timedelta(days=3), False, False, id="yesterdays_plan_listed_it_again"),
        pytest.param(True, timedelta(days=3), True, False, id="its_versions_were_purged_after_yesterdays_plan"),
        pytest.param(True, timedelta(hours=23), False, True, id="it_was_deleted_after_yesterdays_plan"),
        pytest.param(False, timedelta(days=3), False, True, id="yesterdays_plan_did_not_list_it"),
    ],
)
def test_a_deleted_object_that_was_brought_back_refuses_the_plan_when_it_is_missing_again(
    spark: SparkSession,
    warehouse: Warehouse,
    listed: bool,
    deleted_before: timedelta,
    is_purged: bool,
    is_planned: bool,
) -> None:
    yesterday = a_plan(day=DAY - timedelta(days=1), made_at=NOW - timedelta(days=1))
    keep_plan(warehouse, yesterday)
    write_ledger(warehouse, "orchard", DAY, "b" * 64, {ALSO_LIVE: "deleted"}, NOW - deleted_before)
    if is_purged:
        purged_at = NOW - timedelta(hours=23)
        write_ledger(warehouse, "orchard", DAY, "b" * 64, {ALSO_LIVE: "purged"}, purged_at, fence=2)
    lost = WORLD.without(ALSO_LIVE)
    rows = inventory(spark, *(WORLD if listed else lost).inventory)
    partition = "orchard", STORAGE_INVENTORY.name, yesterday.day
    written = write_rows(rows, warehouse, *partition, shared=True)
    warehouse.write_metadata(*partition, PartitionMetadata(yesterday.made_at, written.rows, "a-run"))
    made = lost.plan(spark, warehouse)
    assert {one.guard for one in made.check_results if not one.passed} == (set() if is_planned else {"live_listed"})
    assert (made.plan is not None and made.plan.collected == 1) is is_planned


def day(number: int) -> date:
    return date(2026, 10, number)


@pytest.mark.parametrize(
    ("made", "until", "live"),
    [
        pytest.param({}, 5, None, id="no_earlier_plan"),
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


@pytest.mark.long
def test_no_plan_is_made_while_a_plan_from_the_future_is_stored(spark: SparkSession, warehouse: Warehouse) -> None:
    """The candidates of the plan would count as named by every later plan."""
    planned(spark, warehouse, replace(WORLD, made_at=NOW + HOUR))
    with pytest.raises(
        GuardRefused, match=r"a plan whose time is later .* has stored \S+memory/\w+-\w+ and \S+due_objects/"
    ):
        planned(spark, warehouse, WORLD)
    for table in ("due_objects", "memory"):
        warehouse.remove_directory("orchard", table)
    planned(spark, warehouse, WORLD)


AGAIN = "lan again: `retention plan orchard --as-of 2026-11-01`."


def test_a_plan_whose_objects_are_no_longer_stored_is_not_executed(spark: SparkSession, warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused) as refused:
        planned_objects(spark, warehouse, a_plan())
    message = str(refused.value)
    assert f"the stored objects of the plan {a_plan().plan_hash} are not complete. Nothing was deleted" in message
    assert message.endswith(AGAIN)


def test_stored_objects_that_a_new_plan_uses_again_count_as_written_again(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """Housekeeping may have listed them as those of an old plan. It removes nothing that was written since then."""
    planned(spark, warehouse, WORLD)
    (directory,) = Path(warehouse.location("orchard", "planned_objects")).iterdir()
    for file in directory.iterdir():
        os.utime(file, (OLD.timestamp(), OLD.timestamp()))
    planned(spark, warehouse, WORLD)
    written_again = {file.name for file in directory.iterdir() if file.stat().st_mtime > OLD.timestamp()}
    assert written_again == {"_SUCCESS"}


def test_a_plan_whose_heads_are_no_longer_stored_is_not_executed(warehouse: Warehouse) -> None:
    with pytest.raises(GuardRefused) as refused:
        planned_heads(warehouse, a_plan())
    message = str(refused.value)
    assert message.startswith("orchard 2026-11-01: the heads of branches and tags at planning are no longer stored.")
    assert "Nothing was deleted" in message
    assert message.endswith(AGAIN)


def test_a_plan_with_fewer_stored_objects_than_candidates_is_refused(spark: SparkSession, warehouse: Warehouse) -> None:
    """Each machine of a cluster may have written its rows to its own disk."""
    with pytest.raises(TableContractError) as refused:
        keep_planned(warehouse, a_plan(), candidates(spark, Candidate(DEAD)), Heads({}, {}))
    message = str(refused.value)
    assert f"{warehouse.root}/orchard/planned_objects/{a_plan().plan_hash}: has 1 rows, and 2" in message
    assert "were written. Nothing was deleted" in message
    assert AGAIN in message


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"approvals": 2}, "has the unknown field 'approvals'", id="newer"),
        pytest.param({"totals": None}, "has no 'totals'", id="much older"),
        pytest.param(
            {"candidates": {"rows": 1}},
            "cannot be read (Amount.__init__() got an unexpected keyword argument 'rows')",
            id="another shape",
        ),
        pytest.param(
            {"live": None},
            "cannot be read (Plan.__init__() missing 1 required positional argument: 'live')",
            id="older",
        ),
    ],
)
def test_a_plan_that_another_version_wrote_is_not_read(
    warehouse: Warehouse, changes: dict[str, object], problem: str
) -> None:
    document = {**a_plan().document(), **changes}
    document = {name: value for name, value in document.items() if value is not None or name not in changes}
    warehouse.write_document(document, "orchard", PLANS, DAY.isoformat(), CURRENT)
    with pytest.raises(TableContractError) as refused:
        load_plan(warehouse, "orchard", DAY)
    message = str(refused.value)
    assert (
        f"the plan of 2026-11-01 was written by another version, or is damaged: it {problem}. Nothing was deleted"
        in message
    )
    assert f"{AGAIN} If the plan was swept, copy its document from a backup" in message


def test_a_plan_of_another_repository_is_not_read_from_a_renamed_directory(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan())
    Path(warehouse.root, "orchard").rename(Path(warehouse.root, "peach"))
    reads: list[Callable[[], object]] = [
        lambda: load_plan(warehouse, "peach", DAY),
        lambda: last_plan(warehouse, "peach", DAY),
        lambda: find_plan(warehouse, "peach", a_plan().plan_hash),
    ]
    for read in reads:
        with pytest.raises(TableContractError) as refused:
            read()
        message = str(refused.value)
        assert message.startswith("peach: the directory of this name in the warehouse has a plan of the repository ")
        assert "orchard, for the day 2026-11-01. The directory was renamed or copied. Nothing was changed" in message
        assert "Name the directory and the repository in the configuration orchard again" in message


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        pytest.param("0" * 8, "2 plans were found whose hash begins with '00000000'", id="several"),
        pytest.param("f" * 8, "no plan was found whose hash begins with 'ffffffff'", id="none"),
        pytest.param("0" * 7, "'0000000' has fewer than 8 digits, so no plan was looked for", id="too_short"),
    ],
)
def test_a_plan_is_found_by_the_first_digits_of_its_hash(warehouse: Warehouse, start: str, problem: str) -> None:
    for number in (1, 2):
        keep_plan(warehouse, a_plan(plan_hash=f"{number:064x}", made_at=NOW + number * HOUR))
    with pytest.raises(GuardRefused) as refused:
        find_plan(warehouse, "orchard", start)
    message = str(refused.value)
    assert f"orchard: {problem}. Nothing was changed. Give at least 8 digits" in message
    assert "`retention status orchard --json`" in message
    assert find_plan(warehouse, "orchard", f"{2:064x}").made_at == NOW + 2 * HOUR


def test_the_candidates_of_an_earlier_plan_are_copied_unless_they_are_stored(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """A sweep may be reading those that are stored."""
    rows = candidates(spark, Candidate(DEAD))
    digest, amount = candidates_digest(rows.drop("etag")), Amount(1, 10)
    first, second = (
        a_plan(plan_hash=plan_hash("orchard", "p", of, digest), policy_hash="p", references_hash=of, candidates=amount)
        for of in ("first", "second")
    )
    keep_planned(warehouse, first, rows, Heads({}, {}))
    stored = warehouse.files("orchard", PLANNED_OBJECTS, first.plan_hash)
    for one, other in ((second, first), (first, second), (first, first)):
        kept = keep_planned(warehouse, one, planned_objects(spark, warehouse, other), Heads({}, {}), other)
        assert [row["address"] for row in kept.collect()] == [DEAD]
        assert planned_objects(spark, warehouse, one).count() == 1
    assert warehouse.files("orchard", PLANNED_OBJECTS, first.plan_hash) == stored
