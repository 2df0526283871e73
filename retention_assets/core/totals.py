"""Totals of classified objects: objects and bytes by state, and the times until which objects wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount
from retention_assets.core.states import STATES, WAITING


@dataclass(frozen=True, slots=True)
class Totals:
    """Objects and bytes by state, and the times at which waiting objects have settled (UTC; None: no object waits)."""

    by_state: Mapping[str, Amount]
    first_wait_ends: datetime | None  # when the first waiting object has settled
    last_wait_ends: datetime | None  # when the last waiting object has settled

    @property
    def objects(self) -> int:
        """The number of objects in all states."""
        return sum(amount.objects for amount in self.by_state.values())


def with_totals(objects: DataFrame) -> tuple[DataFrame, Observation]:
    """Return the classified objects, and the observation of their totals: see `observed_totals`."""
    until = F.unix_micros("waits_until") if "waits_until" in objects.columns else F.lit(None).cast("bigint")
    waits = F.when(F.col("state") == WAITING, until)
    aggregates = [F.min(waits).alias("first"), F.max(waits).alias("last")]
    for state in STATES:
        in_state = F.col("state") == state
        aggregates += [
            F.count_if(in_state).alias(f"{state}_objects"),
            F.sum(F.when(in_state, F.col("size"))).alias(f"{state}_bytes"),
        ]
    observed = Observation()
    return objects.observe(observed, *aggregates), observed


def observed_totals(observed: Observation) -> Totals:
    """Return the totals that Spark counted while it computed the objects. No second query counts them.

    The call waits until Spark has computed the objects.
    """
    row = observed.get
    totals = {state: Amount(row[f"{state}_objects"], row[f"{state}_bytes"] or 0) for state in sorted(STATES)}
    counted = {state: amount for state, amount in totals.items() if amount.objects}
    return Totals(counted, _timestamp(row["first"]), _timestamp(row["last"]))


def _timestamp(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
