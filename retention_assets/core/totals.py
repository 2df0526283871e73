"""Totals of classified objects: objects and bytes by state, and until when objects wait."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.states import STATES, WAITING


def _wait_ends() -> tuple[Column, Column]:
    until = F.unix_micros("waits_until")
    return F.min(until).alias("first"), F.max(until).alias("last")


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def counted_by_state(objects: DataFrame) -> DataFrame:
    """Return one row per state, for `totals_of`."""
    waits = (
        _wait_ends() if "waits_until" in objects.columns else (F.lit(None).alias("first"), F.lit(None).alias("last"))
    )
    return objects.groupBy("state").agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"), *waits)


def totals_of(
    by_state: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Amount], datetime | None, datetime | None]:
    """Return objects and bytes by state, and when the first and the last waiting object will have settled (UTC).

    `by_state`: the rows of `counted_by_state`.
    """
    rows = {row["state"]: row for row in by_state}
    totals = {state: Amount(row["objects"], row["bytes"]) for state, row in sorted(rows.items())}
    waits = rows.get(WAITING, {"first": None, "last": None})
    return totals, _instant(waits["first"]), _instant(waits["last"])


def counted(table: DataFrame) -> DataFrame:
    """Return one row with the `objects` of a table and their `bytes`. A table without sizes has 0 bytes."""
    size = F.sum("size") if "size" in table.columns else F.lit(None)
    return table.agg(F.count(F.lit(1)).alias("objects"), F.coalesce(size, F.lit(0)).alias("bytes"))


def counts_of_states() -> list[Column]:
    """Return the aggregates of classified objects to observe; `totals_counted` reads their results."""
    of_state = {state: F.col("state") == state for state in STATES}
    objects = [F.count_if(is_so).alias(f"{state}_objects") for state, is_so in of_state.items()]
    return [
        *objects,
        *(F.sum(F.when(is_so, F.col("size"))).alias(f"{state}_bytes") for state, is_so in of_state.items()),
    ]


def totals_counted(observed: Observation) -> Mapping[str, Amount]:
    """Return objects and bytes by state, as Spark counted them while it computed the rows; no rows are cached."""
    row = observed.get
    totals = {state: Amount(row[f"{state}_objects"], row[f"{state}_bytes"] or 0) for state in sorted(STATES)}
    return {state: amount for state, amount in totals.items() if amount.objects}
