"""The memory of plans (heads and due objects), which is stored also by plans that do not use it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.config.settings import LakeFSSettings, SourceSettings
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.sweep.memory import keep_memory, read_memory
from retention_assets.policy.rules import BranchRetention, CommittedRetention, Policy
from retention_assets.spark.frames import from_arrow
from retention_assets.state.memory import (
    MEMORY,
    due_objects_location,
    due_objects_of,
    forget,
    keep_due,
    named_since,
    require_no_future_plan,
)
from retention_assets.state.plan import keep_plan
from retention_assets.tables import DUE_OBJECTS
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


def test_a_plan_from_older_references_forgets_nothing(warehouse: Warehouse) -> None:
    plan(warehouse, NOW, main="first", gold="second")
    before = memory(warehouse)
    plan(warehouse, NOW + DAY, NOW - timedelta(hours=1), {"first": OLD}, main="first")
    assert memory(warehouse) == before


@pytest.mark.parametrize("order", ["newer_references_first", "older_references_first", "at_the_same_time"])
def test_heads_that_concurrent_plans_found_are_remembered(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """One plan found a branch that was deleted before the other plan read its references."""
    plan(warehouse, NOW, main="first")
    hour = timedelta(hours=1)

    def older() -> None:
        plan(warehouse, NOW + 3 * hour, NOW + hour, main="first", gold="second")

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
    expected = {"main": ("first", NOW + 2 * hour), "gold": ("second", NOW + hour)}
    assert heads(memory(warehouse)) == expected
    assert memory(warehouse).seen_at == NOW + 2 * hour
    for day in (1, 2, 3):
        plan(warehouse, NOW + day * DAY, main="first")
        assert heads(memory(warehouse)) == {**expected, "main": ("first", NOW + day * DAY)}
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


def test_a_memory_that_was_removed_with_a_change_of_the_location_is_not_required(warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan(made_at=NOW, terms={"namespace": "s3://lake/old", "storage": "s3://lake/old"}))
    warehouse.write_document({"namespace": "s3://lake/new", "storage": "s3://lake/new"}, "orchard", "place.json")
    assert memory(warehouse) == Memory()


def test_no_plan_is_made_while_a_plan_from_the_future_is_stored(warehouse: Warehouse) -> None:
    """The plan from the future would stay the newest plan, and later plans would not be remembered."""
    plan(warehouse, NOW, main="first", gold="second")
    require_no_future_plan(warehouse, "orchard", NOW - timedelta(minutes=5))  # as the clocks of two machines may differ
    with pytest.raises(GuardRefused, match=r"memory/20\d+T\d+-\w+ belong to a plan whose time is later than now"):
        require_no_future_plan(warehouse, "orchard", NOW - timedelta(hours=1))


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
    keep_due(warehouse, ahead, nothing, ahead.made_at, ())
    warehouse.remove_directory("orchard", "due_objects")  # as the refusal of later plans says
    keep_due(warehouse, later, nothing, later.made_at, ())
    assert due_objects_of(spark, warehouse, later).count() == 0
    assert named_since(spark, warehouse, later) is None
