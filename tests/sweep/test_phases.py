"""Phases of an Icechunk plan: snapshots, manifests, chunks. A phase begins when the one before has no objects left."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.limits import BudgetSettings
from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness
from retention_assets.icechunk.sweep.layout import IcechunkLayout
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.plan import keep_plan
from retention_assets.sweep.engine import SparkEngine
from retention_assets.sweep.execute import SweepResult, execute
from retention_assets.sweep.worker import BeforeDeadline
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, OLD, Candidate, candidates
from tests.ledgers import write_ledger
from tests.sweep.crashes.runs import sweep_run
from tests.sweep.crashes.world import World
from tests.sweep.repository_sweep import FakeRepository
from tests.sweep.small_world import DAY, a_plan

SNAPSHOTS = ("snapshots/a", "snapshots/b")
MANIFESTS = ("manifests/a",)
CHUNKS = ("chunks/a", "chunks/b", "chunks/c")
FILES = (*SNAPSHOTS, *MANIFESTS, *CHUNKS)


def engine_of(spark: SparkSession, warehouse: Warehouse, lake: Path, live: Sequence[str] = ()) -> SparkEngine:
    """Return an engine of a plan of `FILES`, with one directory in a batch. `live`: the addresses that are live now."""

    def check_liveness() -> Liveness:
        frame = spark.createDataFrame(pa.table({"address": pa.array(live, pa.string())}))
        return Liveness(frame, frame, NOW)

    objects = candidates(spark, *(Candidate(name) for name in FILES))
    access, layout = StoreAccess(f"file://{lake}"), IcechunkLayout(0)
    repository = FakeRepository(candidates=objects, access=access, live=check_liveness, layout=layout)
    return SparkEngine(spark, warehouse, repository, most=2)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> SparkEngine:
    (tmp_path / "lake").mkdir()
    return engine_of(spark, Warehouse(str(tmp_path / "warehouse")), tmp_path / "lake")


def write_to_ledger(root: Path, name: str, outcomes: Mapping[str, str], fence: int = 1) -> None:
    warehouse = Warehouse(str(root / "warehouse"))
    write_ledger(warehouse, "orchard", DAY, a_plan().plan_hash, outcomes, NOW, fence=fence, name=name)


@pytest.mark.long
def test_the_next_phase_remains_when_the_phase_before_has_no_objects_left(engine: SparkEngine, tmp_path: Path) -> None:
    remaining, later = [engine.remaining(1)], [engine.later]
    for name, outcomes in (
        ("a", {"snapshots/a": "deleted"}),
        ("b", {"snapshots/b": "skipped"}),
        ("c", {"manifests/a": "missing"}),
        ("d", dict.fromkeys(CHUNKS, "deleted")),
    ):
        write_to_ledger(tmp_path, name, outcomes)
        remaining.append(engine.remaining(1))
        later.append(engine.later)
    assert remaining == [[2], [1], [1], [3], []]
    assert later == [4, 4, 3, 0, 0]  # the objects of the next phases


def test_an_object_with_an_unknown_result_holds_the_next_phase_back(engine: SparkEngine, tmp_path: Path) -> None:
    write_to_ledger(tmp_path, "a", {"snapshots/a": "deleted", "snapshots/b": Outcome.ATTEMPTED})
    assert engine.remaining(1) == [1]


@pytest.mark.long
def test_after_a_failure_nothing_remains_for_this_sweep_and_the_next_sweep_begins_with_the_failed_objects(
    engine: SparkEngine, tmp_path: Path
) -> None:
    write_to_ledger(tmp_path, "a", {"snapshots/a": "deleted", "snapshots/b": "failed"})
    assert engine.remaining(1) == []
    assert engine.remaining(2) == [1]
    write_to_ledger(tmp_path, "b", {"snapshots/b": "deleted"}, fence=2)
    assert engine.remaining(2) == [1]


def test_a_failure_in_a_later_phase_does_not_hold_its_own_phase_back(engine: SparkEngine, tmp_path: Path) -> None:
    write_to_ledger(tmp_path, "a", dict.fromkeys((*SNAPSHOTS, *MANIFESTS), "deleted"))
    write_to_ledger(tmp_path, "b", {"chunks/a": "failed"})
    assert engine.remaining(1) == [2]


def test_resurrected_objects_are_counted_in_all_phases(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    engine = engine_of(
        spark, Warehouse(str(tmp_path / "w")), tmp_path / "lake", ["snapshots/a", "chunks/b", "chunks/z"]
    )
    engine.remaining(1)
    assert engine.resurrected() == 2


@dataclass(frozen=True)
class ActionThatFailsOnce:
    """An action that changes nothing. It reports one object as failed and all others as deleted."""

    address: str

    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None

    def open(self, rate_limiter: RateLimiter) -> "ActionThatFailsOnce":
        return self

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        return [
            ObjectResult(Outcome.FAILED if one == self.address else Outcome.DELETED)
            for one in objects["address"].to_pylist()
        ]


def outcomes(frame: DataFrame) -> dict[str, str]:
    return {row["address"]: row["outcome"] for row in frame.collect()}


def sweep_result(
    spark: SparkSession, world: World, run_id: str, fails_at: str, log: Callable[[str], None] = lambda _: None
) -> tuple[SweepResult, dict[str, str]]:
    """Execute the plan of `FILES` with an action that fails at one of them. Return also the outcome of each object."""
    plan = replace(a_plan(candidates=Amount(len(FILES), 10 * len(FILES))), made_at=NOW)
    keep_plan(world.warehouse, plan)
    world.limits = world.limits.model_copy(update={"budget": BudgetSettings(objects=len(FILES))})
    engine = engine_of(spark, world.warehouse, world.root / "files")
    action = ActionThatFailsOnce(fails_at)
    given = replace(sweep_run(world, "sweep", "delete", run_id), plan=plan, action=action, log=log)
    result = execute(given, engine, FakeRepository())
    return result, outcomes(engine.ledger())


@pytest.mark.long
def test_a_sweep_ends_after_a_failed_phase_and_the_next_sweep_continues(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    for name in FILES:
        path = world.root / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    result, ledger = sweep_result(spark, world, "a-run", "snapshots/b")
    assert ledger == {"snapshots/a": "deleted", "snapshots/b": "failed"}
    assert not result.is_complete
    lines: list[str] = []
    result, ledger = sweep_result(spark, world, "a-later-run", "nothing", lines.append)
    assert ledger == dict.fromkeys(FILES, "deleted")
    assert result.is_complete
    progress = [line.partition(": ")[2].partition(",")[0] for line in lines if " objects/s" in line]
    assert progress == ["1 of 5 objects", "2 of 5 objects", "5 of 5 objects"]
