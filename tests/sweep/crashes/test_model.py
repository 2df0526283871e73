"""`InProcessEngine` and Spark read the same outcomes from any ledger."""

from collections.abc import Iterable
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.state.ledger import (
    ABSENT,
    FINISHED,
    OUTCOMES,
    LedgerLocation,
    all_collected_addresses,
    finished_of,
    ledger_of_plan,
    newest_conclusive,
    read_ledgers,
)
from retention_assets.sweep.engine import SparkEngine
from retention_assets.tables import LEDGER
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW
from tests.sweep.crashes.engine import conclusive, latest
from tests.sweep.crashes.world import Row
from tests.sweep.repository_sweep import FakeRepository
from tests.sweep.small_world import a_plan

DAY, HASH = NOW.date(), "a" * 64


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Random ledger rows of three sweeps and three hundred objects."""
    random = Random(7)
    return [
        {
            "address": f"data/{number}",
            "size": 10,
            "outcome": random.choice((*OUTCOMES, Outcome.ATTEMPTED, Outcome.ATTEMPTED)),
            "detail": random.choice((None, OF_COPY)),
            "at": NOW + timedelta(seconds=60 * fence + second),
            "fence": fence,
        }
        for number in range(300)
        for fence in random.sample((1, 2, 3), random.randint(1, 3))
        for second in random.sample(range(60), random.randint(1, 4))
    ]


@pytest.fixture(scope="module")
def warehouse(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse with these rows, and partial files of interrupted writes."""
    warehouse = Warehouse(str(tmp_path_factory.mktemp("warehouse")))
    for fence, of_sweep in groupby(sorted(rows, key=lambda row: row["fence"]), key=lambda row: row["fence"]):
        location = LedgerLocation(warehouse.root, "orchard", DAY, HASH, fence, "a-run")
        location.append(pa.Table.from_pylist(list(of_sweep), LEDGER), "rows", "done")
    for file in list(Path(warehouse.root).rglob("*.parquet")):
        file.with_name(f"{file.name}#1").write_bytes(file.read_bytes()[:100])
    return warehouse


def known(rows: Iterable[Row]) -> dict[str, tuple[str, int]]:
    return {row["address"]: (row["outcome"], row["fence"]) for row in rows}


def outcomes_in_frame(frame: DataFrame) -> dict[str, tuple[str, int]]:
    found = frame.select("address", "outcome", "fence").collect()
    assert len(found) == len({row["address"] for row in found})
    return known(row.asDict() for row in found)


def test_the_model_agrees_on_the_latest_outcome_of_each_address(
    spark: SparkSession, warehouse: Warehouse, rows: list[Row]
) -> None:
    assert outcomes_in_frame(ledger_of_plan(spark, warehouse, "orchard", DAY, HASH)) == known(latest(rows).values())


def test_the_model_agrees_on_the_last_finished_outcome_of_each_address(
    spark: SparkSession, warehouse: Warehouse, rows: list[Row]
) -> None:
    found = finished_of(read_ledgers(spark, warehouse, "orchard", [(DAY.isoformat(), HASH)]))
    assert outcomes_in_frame(found) == known(latest(row for row in rows if row["outcome"] in FINISHED).values())


def test_the_model_agrees_on_where_each_object_is(spark: SparkSession, warehouse: Warehouse, rows: list[Row]) -> None:
    found = newest_conclusive(read_ledgers(spark, warehouse, "orchard", [(DAY.isoformat(), HASH)]))
    assert outcomes_in_frame(found) == known(conclusive(rows))


def test_the_model_agrees_on_the_collected_addresses(
    spark: SparkSession, warehouse: Warehouse, rows: list[Row]
) -> None:
    found = {row["address"] for row in all_collected_addresses(spark, warehouse, "orchard").collect()}
    assert found == {row["address"] for row in conclusive(rows) if row["outcome"] in ABSENT}
    assert 50 < len(found) < 290


@pytest.mark.parametrize("fence", [1, 3, 4])
def test_the_model_agrees_on_the_remaining_objects(
    spark: SparkSession, warehouse: Warehouse, rows: list[Row], fence: int
) -> None:
    """Finished objects do not remain, nor do objects that the sweep with this fence has tried."""
    addresses = sorted({row["address"] for row in rows})
    planned = spark.createDataFrame(pa.table({"address": addresses}))
    access = StoreAccess(f"file://{warehouse.root}")
    repository = FakeRepository(plan=a_plan(day=DAY, plan_hash=HASH), candidates=planned, access=access)
    finished = {
        row["address"]
        for row in rows
        if row["outcome"] in FINISHED or (row["fence"] == fence and row["outcome"] != Outcome.ATTEMPTED)
    }
    assert (
        sum(SparkEngine(spark, warehouse, repository, most=1_000).remaining(fence))
        == len(addresses) - len(finished)
        > 0
    )
