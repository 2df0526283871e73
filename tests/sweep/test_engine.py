"""The Spark engine: what a liveness check decides of each planned object, what remains, and the batches of a plan."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused
from retention_assets.objectstore.access import StoreAccess
from retention_assets.spark.frames import from_arrow
from retention_assets.state.memory import keep_due
from retention_assets.state.plan import Heads, Plan, keep_planned
from retention_assets.sweep.engine import Directories, SparkEngine, pack, with_outcomes
from retention_assets.sweep.preconditions import Preconditions
from retention_assets.sweep.worker import OBJECTS
from retention_assets.tables import DELETION_CANDIDATES, DUE_OBJECTS
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, OLD, Candidate, address, cached, candidates, of
from tests.ledgers import write_ledger
from tests.sweep.repository_sweep import FakeRepository, no_liveness_check
from tests.sweep.small_world import DAY, a_plan


@dataclass(frozen=True)
class Case:
    """A planned object at its liveness check. `ends`: its outcome, or None if it is to be deleted."""

    ends: str | None
    reason: str = "expired"
    is_live: bool = False
    is_committed: bool = False
    attempted: bool = False  # whether the ledger has an attempt to delete the object


CASES = {
    "nothing changed": Case(None),
    "only expired commits have it": Case(None, is_committed=True),
    "it is live again": Case("skipped", is_live=True, is_committed=True),
    "it is live again, and no commit has it": Case("skipped", is_live=True),
    "it was committed after the plan": Case("skipped", reason="unreferenced", is_committed=True),
    "no commit holds it": Case(None, reason="unreferenced"),
    "nothing changed since an attempt": Case(None, attempted=True),
    "it is live again since an attempt": Case(None, is_live=True, attempted=True),
    "it was committed since an attempt": Case(None, reason="unreferenced", is_committed=True, attempted=True),
}
ADDRESSES = {name: address(number) for number, name in enumerate(CASES)}


def frame(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=schema))


@pytest.fixture(scope="module")
def checked_rows(spark: SparkSession) -> dict[str, dict[str, Any]]:
    """Return the row of each case's object after a liveness check, by address."""
    names = pa.schema([("address", pa.string())])
    lists: dict[str, list[str]] = {"rule_ids": [], "paths": [], "branches": []}
    columns = {"size": 10, "last_modified": OLD, "etag": "an-etag"}
    planned = [{"address": ADDRESSES[name], "reason": case.reason, **columns, **lists} for name, case in CASES.items()]
    live = [{"address": ADDRESSES[name]} for name, case in CASES.items() if case.is_live]
    committed = [{"address": ADDRESSES[name]} for name, case in CASES.items() if case.is_committed]
    now = Liveness(frame(spark, live, names), frame(spark, committed, names), NOW)
    attempted = [ADDRESSES[name] for name, case in CASES.items() if case.attempted]
    remaining = frame(spark, planned, DELETION_CANDIDATES.schema).withColumns(
        {
            "attempted_targets": F.when(F.col("address").isin(attempted), F.array().cast("array<string>")),
            "earlier_targets": F.lit(None).cast("array<string>"),
        }
    )
    made = with_outcomes(remaining, now)
    assert made.columns == OBJECTS.names
    rows: list[dict[str, Any]] = made.toArrow().to_pylist()
    assert len(rows) == len(CASES)
    return {row["address"]: row for row in rows}


@pytest.mark.parametrize("name", CASES)
def test_an_object_that_is_live_again_is_skipped(checked_rows: dict[str, dict[str, Any]], name: str) -> None:
    assert checked_rows[ADDRESSES[name]]["outcome"] == CASES[name].ends


def test_each_object_that_is_live_again_has_its_reason_also_if_a_worker_must_look_it_up_first(
    checked_rows: dict[str, dict[str, Any]],
) -> None:
    details = {name: checked_rows[ADDRESSES[name]]["detail"] for name in CASES}
    assert {name: detail for name, detail in details.items() if detail} == {
        "it is live again": "is live again since it was planned",
        "it is live again, and no commit has it": "is live again since it was planned",
        "it was committed after the plan": "was committed since it was planned",
        "it is live again since an attempt": "is live again since it was planned",
        "it was committed since an attempt": "was committed since it was planned",
    }


def test_objects_to_delete_have_the_size_time_and_etag_of_the_plan(checked_rows: dict[str, dict[str, Any]]) -> None:
    row = checked_rows[ADDRESSES["nothing changed"]]
    assert (row["size"], row["last_modified"], row["etag"]) == (10, OLD, "an-etag")


# ---- remaining objects


def new_engine(spark: SparkSession, root: Path, live: Callable[[], Liveness] = no_liveness_check) -> SparkEngine:
    """Return an engine of the plan of `a_plan`, which names six objects in two directories."""
    (root / "lake").mkdir()
    rows = [Candidate(name) for name in ("data/x/1", "data/x/2", "data/x/3", "data/y/1", "data/y/2", "data/y/3")]
    access = StoreAccess(f"file://{root}/lake")
    repository = FakeRepository(candidates=candidates(spark, *rows), access=access, live=live)
    return SparkEngine(spark, Warehouse(str(root / "warehouse")), repository, most=3)


def sweep(root: Path, name: str, fence: int = 1, detail: str | None = None, **outcomes: str) -> None:
    """Write a ledger of a sweep. `x1="deleted"` is the outcome of data/x/1."""
    by_address = {f"data/{short[0]}/{short[1]}": outcome for short, outcome in outcomes.items()}
    write_ledger(
        Warehouse(str(root / "warehouse")), "orchard", DAY, a_plan().plan_hash, by_address, NOW,
        fence=fence, name=name, detail=detail,
    )  # fmt: skip


def test_a_finished_object_does_not_remain_whatever_rows_are_added_to_the_ledger(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = new_engine(spark, tmp_path)
    remaining = [engine.remaining(1), engine.remaining(1)]
    for name, outcomes in (
        ("a", {"x1": "deleted"}),
        ("b", {"x2": "missing", "y1": "deleted"}),
        ("c", {"x3": "deleted"}),
    ):
        sweep(tmp_path, name, **outcomes)
        remaining.append(engine.remaining(1))
    assert remaining == [[3, 3], [3, 3], [2, 3], [3], [2]]


def test_a_failed_or_skipped_object_remains_for_the_next_sweep_and_not_for_this_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = new_engine(spark, tmp_path)
    sweep(tmp_path, "a", x1="failed", x2="skipped", y1="attempted")
    assert engine.remaining(1) == [1, 3]
    assert engine.remaining(2) == [3, 3]


def test_an_object_whose_restore_failed_did_not_fail_in_a_sweep(spark: SparkSession, tmp_path: Path) -> None:
    engine = new_engine(spark, tmp_path)
    sweep(tmp_path, "a", x1="quarantined", x2="failed", x3="deleted")
    assert engine.failed_in_sweeps() == 1
    sweep(tmp_path, "b", 2, x1="failed")
    assert engine.outcomes()["failed"].objects == 2
    assert engine.failed_in_sweeps() == 1


def batches_of(engine: SparkEngine, fence: int) -> list[list[str]]:
    """Return the addresses of each remaining batch."""
    batches = range(len(engine.remaining(fence)))
    return [[row["address"] for row in engine.check(number).objects.sort("address").collect()] for number in batches]


def test_prefixes_with_objects_that_failed_come_last(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise a sweep that ended because its first batch failed would end there each time."""
    nothing = frame(spark, [], pa.schema([("address", pa.string())]))
    engine = new_engine(spark, tmp_path, lambda: Liveness(nothing, nothing, NOW))
    of_x, of_y = ([f"data/{directory}/{number}" for number in (1, 2, 3)] for directory in "xy")
    assert batches_of(engine, 1) == [of_x, of_y]
    sweep(tmp_path, "a", x1="attempted", x2="attempted")
    sweep(tmp_path, "b", x1="failed")
    assert batches_of(engine, 2) == [of_y, of_x]
    sweep(tmp_path, "c", 2, y1="failed")
    assert batches_of(engine, 3) == [of_x, of_y]


def test_a_remaining_object_has_the_quarantine_folders_to_which_sweeps_of_its_plan_attempted_to_move_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    nothing = frame(spark, [], pa.schema([("address", pa.string())]))
    engine = new_engine(spark, tmp_path, lambda: Liveness(nothing, nothing, NOW))
    sweep(tmp_path, "a", x1="attempted", x2="attempted", x3="quarantined", detail="s3://attic/1")
    sweep(tmp_path, "b", 2, x1="attempted", y1="attempted")  # as a sweep in mode `delete` writes them
    sweep(tmp_path, "c", 3, x1="attempted", detail="s3://attic/2")
    sweep(tmp_path, "d", 4, x2="attempted", detail="s3://attic/3")
    engine.remaining(4)
    rows = [row for number in (0, 1) for row in engine.check(number).objects.collect()]
    targets = {row["address"]: row["earlier_targets"] for row in rows if row["earlier_targets"] is not None}
    assert {name: sorted(urls) for name, urls in targets.items()} == {
        "data/x/1": ["s3://attic/1", "s3://attic/2"],
        "data/x/2": ["s3://attic/1", "s3://attic/3"],
    }


@pytest.mark.parametrize("mode", ["delete", "quarantine"])
def test_an_object_that_is_live_again_is_missing_if_an_interrupted_attempt_deleted_it(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """The attempt was in this sweep. A row that calls the object skipped would hide that this sweep deleted it."""
    live = frame(spark, [{"address": name} for name in ("data/x/1", "data/x/2")], pa.schema([("address", pa.string())]))
    engine = new_engine(spark, tmp_path, lambda: Liveness(live, live, NOW))
    sweep(tmp_path, "a", x1="attempted", x2="attempted")
    (tmp_path / "lake/data/x").mkdir(parents=True)
    (tmp_path / "lake/data/x/2").write_bytes(b"0123456789")
    engine.remaining(1)
    rows = engine.check(0).objects.where("detail IS NOT NULL AND outcome IS NULL").toArrow().cast(OBJECTS)
    no_time = pa.nulls(rows.num_rows, OBJECTS.field("last_modified").type)
    rows = rows.set_column(rows.column_names.index("last_modified"), "last_modified", no_time)
    access = StoreAccess(f"file://{tmp_path}/lake")
    preconditions = Preconditions(access, keeps_missing=mode == "quarantine")
    checked = preconditions.classified(rows, preconditions.open())
    assert dict(zip(checked["address"].to_pylist(), checked["outcome"].to_pylist(), strict=True)) == {
        "data/x/1": "missing",
        "data/x/2": "skipped",
    }


def test_the_engine_releases_its_frames_when_its_block_ends_in_an_error(spark: SparkSession, tmp_path: Path) -> None:
    before = cached(spark)
    with (
        pytest.raises(pytest.fail.Exception, match="no liveness check is expected"),
        new_engine(spark, tmp_path) as engine,
    ):
        engine.remaining(1)
        assert cached(spark) - before
        engine.check(0)
    assert cached(spark) <= before


# ---- a newer plan


def no_due_objects(spark: SparkSession) -> DataFrame:
    return from_arrow(spark, DUE_OBJECTS.schema.empty_table())


def newer_plan(spark: SparkSession, root: Path, *names: str) -> Plan:
    """Store the tables of a plan of the next day with these candidates."""
    amount = Amount(len(names), 10 * len(names))
    plan = a_plan(day=DAY + timedelta(days=1), made_at=NOW, plan_hash="f" * 64, candidates=amount)
    warehouse = Warehouse(str(root / "warehouse"))
    named = candidates(spark, *(Candidate(name) for name in names))
    keep_planned(warehouse, plan, named, Heads({}, {}))
    due = named.withColumns({"found_at": F.lit(plan.made_at), "waits_until": F.lit(plan.made_at)})
    keep_due(warehouse, plan, due, (plan.made_at,), ())
    return plan


def excluded(spark: SparkSession, root: Path) -> dict[str, str]:
    """Return, by address, the detail of each object that both liveness checks exclude."""
    nothing = frame(spark, [], pa.schema([("address", pa.string())]))
    with new_engine(spark, root, live=lambda: Liveness(nothing, nothing, NOW)) as engine:
        assert engine.remaining(1) == [3, 3]
        rows = [row for number in range(2) for row in engine.check(number).objects.toArrow().to_pylist()]
    assert {row["outcome"] for row in rows} == {None}
    return {row["address"]: row["detail"] for row in rows if row["detail"]}


def test_an_object_that_the_newest_plan_of_another_day_does_not_name_is_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    newer_plan(spark, tmp_path, "data/x/1", "data/x/3", "data/y/1", "data/y/3", "data/z/1")
    why = "is not a candidate of the newest plan, or was live in a plan made meanwhile"
    assert excluded(spark, tmp_path) == {"data/x/2": why, "data/y/2": why}


@pytest.mark.parametrize(
    "newest",
    [
        pytest.param(a_plan(made_at=NOW + timedelta(minutes=1)), id="the_plan_itself_after_an_older_plan"),
        pytest.param(a_plan(day=DAY + timedelta(days=2), made_at=NOW + timedelta(days=1)), id="another_with_its_hash"),
    ],
)
def test_the_newest_plan_excludes_nothing_from_a_sweep_of_the_same_plan(
    spark: SparkSession, tmp_path: Path, newest: Plan
) -> None:
    newer_plan(spark, tmp_path, "data/x/1")
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    earlier = warehouse.directories("orchard", "due_objects")
    keep_due(warehouse, newest, no_due_objects(spark), (newest.made_at,), earlier)
    assert excluded(spark, tmp_path) == {}


def test_a_plan_from_old_tables_does_not_replace_the_plan_of_the_newest_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    newer_plan(spark, tmp_path, "data/x/1")
    from_old_tables = a_plan(made_at=NOW + timedelta(hours=1))
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    keep_due(warehouse, from_old_tables, no_due_objects(spark), (NOW - timedelta(days=1),), ())
    assert len(excluded(spark, tmp_path)) == 5


@pytest.mark.parametrize("lost", ["newest", "all"])
def test_the_newest_plan_still_excludes_objects_if_its_due_objects_were_lost(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    earlier = a_plan(made_at=NOW - timedelta(hours=1))
    keep_due(warehouse, earlier, no_due_objects(spark), (earlier.made_at,), ())
    newest = newer_plan(spark, tmp_path, "data/x/1")
    folders = warehouse.directories("orchard", "due_objects")
    for folder in folders if lost == "all" else [one for one in folders if newest.plan_hash[:12] in one]:
        warehouse.remove_directory("orchard", "due_objects", folder)
    assert len(excluded(spark, tmp_path)) == 5


def test_no_object_is_deleted_while_the_candidates_of_the_newest_plan_cannot_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan = newer_plan(spark, tmp_path, "data/x/1")
    Warehouse(str(tmp_path / "warehouse")).remove_directory("orchard", "planned_objects", plan.plan_hash)
    with pytest.raises(GuardRefused, match=r"Nothing more was deleted\. Plan again: `retention plan orchard`"):
        excluded(spark, tmp_path)


# ---- batches


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("data/slice/object", "data/slice/"), ("data/object", "data/"), ("object", ""), ("a/b/c/d", "a/b/c/")],
)
def test_the_prefix_of_an_object_is_its_directory(spark: SparkSession, name: str, prefix: str) -> None:
    assert of(spark, [name], pa.string(), Directories().prefix) == [prefix]


@pytest.mark.parametrize(
    ("prefixes", "most", "batches"),
    [
        pytest.param([], 10, [], id="nothing"),
        pytest.param([("a", 4), ("b", 6)], 10, [(("a", "b"), 10)], id="as_many_as_fit"),
        pytest.param([("a", 5), ("b", 6)], 10, [(("a",), 5), (("b",), 6)], id="one_more_begins_another"),
        pytest.param([("a", 1), ("b", 99), ("c", 1)], 10, [(("a",), 1), (("b",), 99), (("c",), 1)], id="a_large_one"),
        pytest.param([("", 1), ("a", 1)], 10, [(("", "a"), 2)], id="the_top_of_the_namespace"),
    ],
)
def test_all_objects_of_a_prefix_are_in_one_batch(
    prefixes: list[tuple[str, int]], most: int, batches: list[tuple[tuple[str, ...], int]]
) -> None:
    assert pack(prefixes, most) == batches
