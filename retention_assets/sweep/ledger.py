"""The ledger: what was done to each object, by plan and attempt. Only ever added to. Source: DESIGN.md, Decisions."""

from datetime import date

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.stores.warehouse import Warehouse
from retention_assets.tables import DELETION_REPORT

LEDGER = "ledger"
DELETED, MISSING, FAILED, SKIPPED = "deleted", "missing", "failed", "skipped"
OUTCOMES = (DELETED, MISSING, FAILED, SKIPPED)
GONE = (DELETED, MISSING)


def ledger_location(warehouse: Warehouse, repository: str, day: date, plan_hash: str, attempt: str) -> str:
    """Return where one attempt at a plan writes its rows."""
    return warehouse.location(repository, LEDGER, day.isoformat(), plan_hash, attempt)


def ledger_of_plan(spark: SparkSession, warehouse: Warehouse, repository: str, day: date, plan_hash: str) -> DataFrame:
    """Return the latest outcome of each address over all attempts at one plan."""
    rows = _read(spark, _attempts(warehouse, repository, day.isoformat(), plan_hash))
    latest = Window.partitionBy("address").orderBy(F.col("at").desc(), F.col("outcome"))
    return rows.withColumn("rank", F.row_number().over(latest)).where(F.col("rank") == 1).drop("rank")


def collected_addresses(spark: SparkSession, warehouse: Warehouse, repository: str) -> DataFrame:
    """Return the addresses that any sweep of ours found gone or made go."""
    places = [
        place
        for day in warehouse.directories(repository, LEDGER)
        for plan in warehouse.directories(repository, LEDGER, day)
        for place in _attempts(warehouse, repository, day, plan)
    ]
    return _read(spark, places).where(F.col("outcome").isin(*GONE)).select("address").distinct()


def _attempts(warehouse: Warehouse, repository: str, day: str, plan: str) -> list[str]:
    """Return the attempts whose rows are whole; one that was cut off has none that may be believed."""
    names = warehouse.directories(repository, LEDGER, day, plan)
    whole = [name for name in names if warehouse.is_complete(repository, LEDGER, day, plan, name)]
    return [warehouse.location(repository, LEDGER, day, plan, name) for name in whole]


def _read(spark: SparkSession, places: list[str]) -> DataFrame:
    if not places:
        return spark.createDataFrame(DELETION_REPORT.schema.empty_table())
    return spark.read.schema(from_arrow_schema(DELETION_REPORT.schema)).parquet(*places)
