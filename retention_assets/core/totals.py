"""Totals of classified objects: objects and bytes by state, and until when objects wait."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.states import STATES, WAITING


def waits_of(due_objects: DataFrame) -> tuple[datetime | None, datetime | None]:
    """Return when the first and the last waiting object will have settled (UTC); None if no object waits."""
    row = due_objects.where(F.col("state") == WAITING).agg(*_wait_ends()).first()
    assert row is not None
    return _instant(row["first"]), _instant(row["last"])


def _wait_ends() -> tuple[Column, Column]:
    until = F.unix_micros("waits_until")
    return F.min(until).alias("first"), F.max(until).alias("last")


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def totals_of(objects: DataFrame) -> tuple[Mapping[str, Amount], datetime | None, datetime | None]:
    """Return objects and bytes by state, and when the first and the last waiting object will have settled (UTC)."""
    settling = "waits_until" in objects.columns
    amounts = F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")
    rows = objects.groupBy("state").agg(*amounts, *(_wait_ends() if settling else ())).collect()
    totals = {row["state"]: Amount(row["objects"], row["bytes"]) for row in sorted(rows)}
    waits = next((row for row in rows if row["state"] == WAITING and settling), {"first": None, "last": None})
    return totals, _instant(waits["first"]), _instant(waits["last"])


def _amounts_of(**tables: DataFrame) -> Mapping[str, Amount]:
    """Return objects and bytes of several tables, counted by one Spark job. A table without sizes has 0 bytes."""
    parts = [
        table.select(F.lit(name).alias("name"), (F.col("size") if "size" in table.columns else F.lit(0)).alias("size"))
        for name, table in tables.items()
    ]
    summed = F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes")
    rows = reduce(DataFrame.unionAll, parts).groupBy("name").agg(*summed).collect()
    return dict.fromkeys(tables, Amount()) | {row["name"]: Amount(row["objects"], row["bytes"] or 0) for row in rows}


def counts_of_states() -> list[Column]:
    """Return the aggregates of classified objects to observe; `totals_counted` reads their results."""
    of_state = {state: F.col("state") == state for state in STATES}
    objects = [F.count_if(is_so).alias(f"{state}_objects") for state, is_so in of_state.items()]
    return [
        *objects,
        *(F.sum(F.when(is_so, F.col("size"))).alias(f"{state}_bytes") for state, is_so in of_state.items()),
    ]


def totals_counted(counted: Observation) -> Mapping[str, Amount]:
    """Return objects and bytes by state, as Spark counted them while it computed the rows; no rows are cached."""
    row = counted.get
    totals = {state: Amount(row[f"{state}_objects"], row[f"{state}_bytes"] or 0) for state in sorted(STATES)}
    return {state: amount for state, amount in totals.items() if amount.objects}


def amount_of(chosen: DataFrame) -> Amount:
    """Return the number of objects and their bytes."""
    row = chosen.agg(F.count(F.lit(1)).alias("objects"), F.coalesce(F.sum("size"), F.lit(0)).alias("bytes")).first()
    assert row is not None
    return Amount(row["objects"], row["bytes"])
