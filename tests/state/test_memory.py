"""The memory of plans (heads and due objects), which is stored also by plans that do not use it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.sweep.memory import keep_memory, last_read_at, read_memory
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Policy
from retention_assets.spark.frames import from_arrow
from retention_assets.state.memory import (
    MEMORY,
    due_objects,
    due_objects_location,
    due_objects_of,
    forget,
    included_by,
    keep_due,
    named_since,
    require_no_future_plan,
)
from retention_assets.state.plan import Plan, keep_plan, made_name
from retention_assets.tables import DELETION_CANDIDATES, DUE_OBJECTS
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import DAY, NOW, OLD
from tests.sweep.small_world import a_plan

POLICY = Policy(CommittedRetention((BranchRetention("gold", "gold", None),), 10 * DAY, has_default=True), (), ())
COMMITS = {"first": OLD, "second": OLD + DAY}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


def plan(
    warehouse: Warehouse,
    made_at: datetime,
    seen_at: datetime | None = None,
    commits: Mapping[str, datetime] = COMMITS,
    **branches: str,
) -> None:
    """Write the memory of a plan."""
    made = {name: Commit(name, (), dated, name) for name, dated in commits.items()}
    references = References(made, branches, {}, seen_at or made_at)
    keep_memory(warehouse, a_plan(made_at=made_at), references, POLICY)


def memory(warehouse: Warehouse, *, reflog: bool = True) -> Memory:
    source = SourceSettings(dump="dump.json")
    settings = LakeFSSettings(
        kind="lakefs", namespace="s3://lake/orchard", policy=["policy.json"], source=source, reflog=reflog
    )
    return read_memory(warehouse, "orchard", settings)


def heads(seen: Memory) -> dict[str, tuple[str, datetime]]:
    return {head.name: (head.commit_id, head.last_seen) for head in seen.heads}


def test_a_plan_without_the_reflog_forgets_nothing(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    assert memory(warehouse, reflog=False) == Memory()
    plan(warehouse, NOW + DAY, commits={**COMMITS, "third": OLD}, main="first")
    seen = memory(warehouse)
    assert heads(seen) == {"gold": ("second", NOW), "main": ("first", NOW + DAY)}
    assert dict(seen.not_before) == {"first": None, "second": None, "third": NOW}


def test_the_time_of_the_newest_references_that_a_plan_read_is_known(warehouse: Warehouse) -> None:
    """A sweep compares a dump with it, also while the reflog is switched off."""
    assert last_read_at(warehouse, "orchard") is None
    plan(warehouse, NOW, NOW - timedelta(minutes=1), main="first")
    plan(warehouse, NOW + DAY, NOW - timedelta(hours=1), {"first": OLD}, main="first", lost="first")
    assert last_read_at(warehouse, "orchard") == NOW - timedelta(minutes=1)


def test_a_plan_from_older_references_forgets_nothing(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    before = memory(warehouse)
    plan(warehouse, NOW + DAY, NOW - timedelta(hours=1), {"first": OLD}, main="first")
    assert memory(warehouse) == before


@pytest.mark.parametrize("found", [{"main": "first", "gold": "second"}, {"main": "second"}], ids=["deleted", "reset"])
@pytest.mark.parametrize("order", ["newer_references_first", "older_references_first", "at_the_same_time"])
def test_heads_that_concurrent_plans_found_are_remembered(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, order: str, found: dict[str, str]
) -> None:
    """One plan found a branch that was deleted or reset before the other plan read its references."""
    plan(warehouse, NOW, main="first")
    hour = timedelta(hours=1)

    def older() -> None:
        plan(warehouse, NOW + 3 * hour, NOW + hour, **found)

    def newer(*commits: str) -> None:
        plan(warehouse, NOW + 2 * hour, commits={**COMMITS, **dict.fromkeys(commits, OLD)}, main="first")

    if order == "at_the_same_time":
        write, others = Warehouse.append_rows, [older]

        def append_rows(warehouse: Warehouse, *given: Any) -> None:
            write(warehouse, *given)
            while others:
                others.pop()()  # after the plan read the memory, and before it stored its own

        monkeypatch.setattr(Warehouse, "append_rows", append_rows)
        newer("third")
    else:
        for run in (newer, older) if order == "newer_references_first" else (older, newer):
            run()

    def remembered() -> set[tuple[str, str, datetime]]:
        return {(head.name, head.commit_id, head.last_seen) for head in memory(warehouse).heads}

    left = {(name, commit, NOW + hour) for name, commit in found.items() if commit == "second"}
    assert remembered() == {*left, ("main", "first", NOW + 2 * hour)}
    assert memory(warehouse).seen_at == NOW + 2 * hour
    for day in (1, 2, 3):
        plan(warehouse, NOW + day * DAY, main="first")
        assert remembered() == {*left, ("main", "first", NOW + day * DAY)}
    assert len(warehouse.directories("orchard", MEMORY)) == 2


def test_the_memory_of_an_earlier_version_includes_those_before_it(warehouse: Warehouse) -> None:
    for number in range(2):
        plan(warehouse, NOW + number * DAY, main="first", **{f"b{number}": "second"})
    before = memory(warehouse)
    for name in warehouse.directories("orchard", MEMORY):
        document = warehouse.read_document("orchard", MEMORY, name, "heads.json") or {}
        warehouse.write_document(
            {key: document[key] for key in ("seen_at", "heads")}, "orchard", MEMORY, name, "heads.json"
        )
    assert memory(warehouse) == before


def test_the_memory_of_the_last_two_plans_stays(warehouse: Warehouse) -> None:
    for number in range(4):
        plan(warehouse, NOW + number * DAY, main="first", **{f"b{number}": "second"})
    assert len(warehouse.directories("orchard", MEMORY)) == 2
    assert heads(memory(warehouse)).keys() == {"main", *(f"b{number}" for number in range(4))}


def test_a_lost_memory_is_refused_instead_of_treated_as_a_first_plan(warehouse: Warehouse) -> None:
    location = {"namespace": "s3://lake/orchard", "storage": "s3://lake/orchard"}
    made = a_plan(made_at=NOW, terms=location)
    warehouse.write_document(location, "orchard", "place.json")
    assert memory(warehouse) == Memory()  # before the first plan
    plan(warehouse, NOW, main="first", gold="second")
    keep_plan(warehouse, made)
    forget(warehouse, "orchard")
    with pytest.raises(TableContractError, match="orchard/memory: is missing, but earlier plans wrote it"):
        memory(warehouse)
    assert memory(warehouse, reflog=False) == Memory()
    plan(warehouse, NOW + DAY, main="first")  # with `reflog: false`
    assert heads(memory(warehouse)) == {"main": ("first", NOW + DAY)}


@pytest.mark.parametrize("lost", [("heads.json",), ()], ids=["its_heads", "its_directory"])
def test_a_lost_memory_of_the_newest_plan_is_refused_although_an_older_one_is_left(
    warehouse: Warehouse, lost: tuple[str, ...]
) -> None:
    plan(warehouse, NOW, main="first")
    plan(warehouse, NOW + DAY, main="first", gold="second")  # only this plan finds the branch, which is deleted later
    newest = warehouse.directories("orchard", MEMORY)[-1]
    remove(warehouse, newest, *lost)
    refused = rf"orchard/memory/{newest}/heads\.json: is missing, but earlier plans wrote it\. .*Nothing was deleted\."
    with pytest.raises(TableContractError, match=rf"{refused} Copy it .* plan once with `reflog: false`\.$"):
        memory(warehouse)
    assert memory(warehouse, reflog=False) == Memory()
    plan(warehouse, NOW + 2 * DAY, main="first")  # with `reflog: false`
    assert heads(memory(warehouse)) == {"main": ("first", NOW + 2 * DAY)}


def test_a_lost_memory_is_found_among_memories_of_plans_from_older_references(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first")
    plan(warehouse, NOW + DAY, NOW - timedelta(hours=1), main="first", gold="second")
    remove(warehouse, warehouse.directories("orchard", MEMORY)[-1])
    with pytest.raises(TableContractError, match=r"heads\.json: is missing"):
        memory(warehouse)


def test_a_lost_memory_that_a_later_one_includes_is_not_required(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    plan(warehouse, NOW + DAY, main="first")
    before = memory(warehouse)
    remove(warehouse, warehouse.directories("orchard", MEMORY)[0])
    assert memory(warehouse) == before


def test_a_plan_that_was_interrupted_while_it_stored_its_memory_loses_nothing(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    before, write = memory(warehouse), Warehouse.write_document

    def interrupted(document: str, at: datetime, name: str) -> None:
        def write_document(warehouse: Warehouse, content: Mapping[str, Any], *parts: str) -> None:
            if parts[-1] == document:
                raise KeyboardInterrupt
            write(warehouse, content, *parts)

        monkeypatch.setattr(Warehouse, "write_document", write_document)
        with pytest.raises(KeyboardInterrupt):
            plan(warehouse, at, main="first", **{name: "second"})
        monkeypatch.undo()

    interrupted("heads.json", NOW + timedelta(hours=1), "lost")
    assert memory(warehouse) == before
    interrupted("newest.json", NOW + timedelta(hours=2), "kept")
    assert heads(memory(warehouse)).keys() == {"main", "gold", "kept"}
    plan(warehouse, NOW + 2 * DAY, main="first")
    assert heads(memory(warehouse)).keys() == {"main", "gold", "kept"}


def test_a_newer_memory_of_an_earlier_version_replaces_the_one_that_was_stored_last(warehouse: Warehouse) -> None:
    """Earlier versions do not write `newest.json`, and do not name all memories that they include."""
    plan(warehouse, NOW, main="first")
    document = warehouse.read_document("orchard", MEMORY, "newest.json")
    assert document is not None
    warehouse.remove_document("orchard", MEMORY, "newest.json")
    assert heads(memory(warehouse)) == {"main": ("first", NOW)}
    remove(warehouse, document["name"])
    plan(warehouse, NOW + DAY, main="first")
    warehouse.write_document(document, "orchard", MEMORY, "newest.json")
    assert heads(memory(warehouse)) == {"main": ("first", NOW + DAY)}


def remove(warehouse: Warehouse, name: str, *document: str) -> None:
    """Remove the memory of a plan, or one of its documents."""
    parts = ("orchard", MEMORY, name, *document)
    (warehouse.remove_document if document else warehouse.remove_directory)(*parts)


def test_a_memory_that_was_removed_with_a_change_of_the_location_is_not_required(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan(made_at=NOW, terms={"namespace": "s3://lake/old", "storage": "s3://lake/old"}))
    warehouse.write_document({"namespace": "s3://lake/new", "storage": "s3://lake/new"}, "orchard", "place.json")
    assert memory(warehouse) == Memory()


def test_no_plan_is_made_while_a_plan_from_the_future_is_stored(warehouse: Warehouse) -> None:
    """The plan from the future would stay the newest plan, and later plans would not be remembered."""
    plan(warehouse, NOW, main="first", gold="second")
    require_no_future_plan(warehouse, "orchard", NOW - timedelta(minutes=5))  # as the clocks of two machines may differ
    with pytest.raises(
        GuardRefused, match=r"a plan whose time is later than now, .*, has stored \S+/memory/20\d+T\d+-\w+\."
    ):
        require_no_future_plan(warehouse, "orchard", NOW - timedelta(hours=1))


def test_memories_that_are_all_from_the_future_must_not_be_removed(warehouse: Warehouse) -> None:
    """Without them, the heads of deleted branches would be forgotten."""
    plan(warehouse, NOW, main="first", gold="second")
    wait = r"wait until 20\d\d-\d\d-\d\d \d\d:\d\d UTC, and plan again\. Do not remove"
    with pytest.raises(GuardRefused, match=wait):
        require_no_future_plan(warehouse, "orchard", NOW - timedelta(hours=1))
    plan(warehouse, NOW - timedelta(days=2), main="first", gold="second")
    with pytest.raises(GuardRefused, match="remove what that plan stored"):
        require_no_future_plan(warehouse, "orchard", NOW - timedelta(hours=1))


def test_after_a_plan_from_the_future_was_removed_the_memory_of_the_plan_before_is_used(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    before = memory(warehouse)
    plan(warehouse, NOW + DAY, main="first")
    with pytest.raises(GuardRefused, match=r"remove what that plan stored and \S+/orchard/memory/newest\.json\. Later"):
        require_no_future_plan(warehouse, "orchard", NOW)
    remove(warehouse, warehouse.directories("orchard", MEMORY)[-1])
    warehouse.remove_document("orchard", MEMORY, "newest.json")
    require_no_future_plan(warehouse, "orchard", NOW)
    assert memory(warehouse) == before


def test_the_due_objects_of_an_old_plan_are_reported_as_missing(warehouse: Warehouse) -> None:
    with pytest.raises(TableContractError) as refused:
        due_objects_location(warehouse, a_plan())
    message = str(refused.value)
    assert message.startswith(
        "orchard: due_objects of the plan of 2026-11-01 is missing: only the newest plans have it."
    )
    assert "Nothing was changed" in message
    assert message.endswith("Plan again: `retention plan orchard --as-of 2026-11-01`.")


def test_the_name_of_a_plan_from_the_future_does_not_stay_the_newest(spark: SparkSession, warehouse: Warehouse) -> None:
    nothing = from_arrow(spark, DUE_OBJECTS.schema.empty_table())
    ahead, later = (a_plan(made_at=NOW + days * DAY, plan_hash=f"{days}" * 64) for days in (9, 1))
    keep_due(warehouse, ahead, nothing, (ahead.made_at,), ())
    warehouse.remove_directory("orchard", "due_objects")  # as the refusal of later plans says
    keep_due(warehouse, later, nothing, (later.made_at,), ())
    assert due_objects_of(spark, warehouse, later).count() == 0
    assert named_since(spark, warehouse, later) is None


# ---- plans that run at the same time

HOUR = timedelta(hours=1)


def found_due(
    spark: SparkSession,
    warehouse: Warehouse,
    letter: str,
    seen: int,
    due: dict[str, int],
    *read: str,
    until: int | None = None,
) -> Plan:
    """Store the plan `letter` of the repository state at the hour `seen`. Plans are stored an hour apart.

    `due`: the hour of `found_at` by address. All due objects are candidates. `read`: the plans whose due objects the
    plan read. `until`: the hour at which the plan read its newest table; None: all at the hour `seen`.
    """
    made = a_plan(made_at=NOW + 100 * HOUR + ord(letter) * HOUR, plan_hash=letter * 64)
    rows = [
        {"address": one, "size": 1, "last_modified": OLD, "reason": "unreferenced", "found_at": NOW + at * HOUR}
        | dict.fromkeys(("rule_ids", "paths", "branches"), ())
        for one, at in due.items()
    ]
    table = pa.Table.from_pylist(rows, DUE_OBJECTS.schema)
    candidates = table.select(DELETION_CANDIDATES.schema.names)
    warehouse.write_table(candidates, "orchard", "planned_objects", made.plan_hash)
    includes = [name for name in warehouse.directories("orchard", "due_objects") if name[-1] in read]
    read_at = [NOW + at * HOUR for at in (seen, seen if until is None else until)]
    keep_due(warehouse, made, from_arrow(spark, table), read_at, includes)
    return made


def hours_found(spark: SparkSession, warehouse: Warehouse) -> dict[str, float]:
    """Return, by address, the hour since which the next plan uses the object as due."""
    rows = due_objects(spark, warehouse, "orchard").objects.toArrow().to_pylist()
    return {row["address"]: (row["found_at"] - NOW) / HOUR for row in rows}


def sweepable(spark: SparkSession, warehouse: Warehouse, plan: Plan) -> set[str]:
    """Return the addresses that a sweep of the plan may delete."""
    named = named_since(spark, warehouse, plan)
    assert named is not None
    return {row["address"] for row in named.collect()}


def test_an_old_plan_skips_what_a_plan_found_live_at_the_same_time_as_the_newest_plan(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """The due objects of the old plan are no longer stored."""
    old = found_due(spark, warehouse, "a", 1, {"x": 0, "y": 0})
    found_due(spark, warehouse, "b", 2, {"x": 0, "y": 0}, "a")
    found_due(spark, warehouse, "c", 4, {"x": 0, "y": 0}, "a", "b")
    found_due(spark, warehouse, "d", 3, {"y": 0}, "a", "b")
    assert len(warehouse.directories("orchard", "due_objects")) == 2
    assert sweepable(spark, warehouse, old) == {"y"}


def test_what_a_plan_found_live_counts_until_the_newest_state_includes_it(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.state.memory.planned_objects", due_objects_of)  # all due objects, see above
    found_due(spark, warehouse, "a", 1, {"x": 0, "y": 0})
    newest = found_due(spark, warehouse, "b", 9, {"x": 0, "y": 0}, "a")
    found_due(spark, warehouse, "c", 5, {"y": 0}, "a")
    found_due(spark, warehouse, "d", 6, {"x": 6, "y": 0}, "a", "b", "c")  # from older tables
    assert hours_found(spark, warehouse) == {"y": 0}
    assert sweepable(spark, warehouse, newest) == {"y"}
    found_due(spark, warehouse, "e", 10, {"x": 10, "y": 0}, "a", "b", "c", "d")
    assert hours_found(spark, warehouse) == {"x": 10, "y": 0}
    assert [name[-1] for name in warehouse.directories("orchard", "due_objects")] == ["b", "e"]


def test_an_object_waits_from_the_later_time_at_which_plans_at_the_same_time_found_it(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """The plan `c` found the object live. The plan of the newest state read neither `c` nor the plans after it."""
    found_due(spark, warehouse, "a", 1, {"x": 0, "y": 0})
    found_due(spark, warehouse, "c", 5, {"y": 0}, "a")
    found_due(spark, warehouse, "d", 6, {"x": 6, "y": 0}, "a", "c")
    found_due(spark, warehouse, "e", 7, {"x": 6, "y": 0}, "a", "c", "d")
    found_due(spark, warehouse, "f", 9, {"x": 0, "y": 0}, "a")
    assert hours_found(spark, warehouse) == {"x": 6, "y": 0}


def test_what_a_plan_found_live_at_the_end_of_its_reading_counts_at_the_same_time(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object x became live after both plans had read their staged lists, and before `b` read its references."""
    monkeypatch.setattr("retention_assets.state.memory.planned_objects", due_objects_of)  # all due objects, see above
    newest = found_due(spark, warehouse, "a", 5, {"x": 5, "y": 0, "z": 9})
    found_due(spark, warehouse, "b", 4, {"y": 0}, until=6)
    assert hours_found(spark, warehouse) == {"y": 0, "z": 9}
    assert sweepable(spark, warehouse, newest) == {"y", "z"}


def test_a_set_of_due_objects_counts_only_with_the_names_of_the_sets_that_it_includes(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    """A plan was interrupted between the two, or is still running."""
    found_due(spark, warehouse, "a", 1, {"x": 0})
    newest = warehouse.read_document("orchard", "newest_due.json")
    assert newest is not None
    interrupted = found_due(spark, warehouse, "b", 2, {}, "a")
    warehouse.remove_document("orchard", "due_objects", made_name(interrupted), "_rows.json")
    warehouse.write_document(newest, "orchard", "newest_due.json")
    assert hours_found(spark, warehouse) == {"x": 0}
    assert [name[-1] for name in due_objects(spark, warehouse, "orchard").plans] == ["a"]


def test_a_plan_that_is_stored_while_another_reads_the_due_objects_is_not_a_loss_of_due_objects(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_due(spark, warehouse, "a", 1, {"x": 0})
    listing, stored_meanwhile = Warehouse.directories, ["b"]

    def directories(warehouse: Warehouse, *parts: str) -> list[str]:
        names = listing(warehouse, *parts)
        while stored_meanwhile:
            found_due(spark, warehouse, stored_meanwhile.pop(), 2, {"x": 0}, "a")
        return names

    monkeypatch.setattr(Warehouse, "directories", directories)
    assert hours_found(spark, warehouse) == {"x": 0}


# ---- a plan with the due objects of an earlier one


def test_due_objects_of_an_earlier_plan_are_stored_again_for_a_plan_that_finds_the_same(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    first = found_due(spark, warehouse, "a", 1, {"x": 0, "y": 1})
    includes = included_by(warehouse, first)
    assert includes == (made_name(first),)
    again = a_plan(made_at=NOW + 200 * HOUR, plan_hash="b" * 64)
    keep_due(warehouse, again, first, [NOW + 150 * HOUR], includes)
    assert hours_found(spark, warehouse) == {"x": 0, "y": 1}
    assert included_by(warehouse, again) == (made_name(first), made_name(again))
    assert included_by(warehouse, first) is None  # another plan saw a newer state
    stored = warehouse.read_document("orchard", "due_objects", made_name(again), "_rows.json")
    assert stored is not None
    assert (stored["rows"], stored["includes"]) == (2, [made_name(first)])


def test_due_objects_are_not_those_of_one_plan_if_another_ran_at_the_same_time(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    found_due(spark, warehouse, "a", 1, {"x": 0})
    newest = found_due(spark, warehouse, "b", 9, {"x": 0}, "a")
    assert included_by(warehouse, newest) is not None
    found_due(spark, warehouse, "c", 5, {"x": 0}, "a")
    assert included_by(warehouse, newest) is None


def test_due_objects_with_missing_rows_are_not_stored_again(spark: SparkSession, warehouse: Warehouse) -> None:
    first = found_due(spark, warehouse, "a", 1, {"x": 0, "y": 1})
    for name in warehouse.files("orchard", "due_objects", made_name(first)):
        if name.endswith(".parquet"):
            warehouse.remove_file("orchard", "due_objects", made_name(first), name)
    assert included_by(warehouse, first) is None
    with pytest.raises(TableContractError, match=made_name(first)):  # the plan that computes all objects names it
        due_objects(spark, warehouse, "orchard")


def test_a_forgotten_plan_is_not_one_whose_due_objects_are_stored_again(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    first = found_due(spark, warehouse, "a", 1, {"x": 0})
    forget(warehouse, "orchard")
    assert included_by(warehouse, first) is None
