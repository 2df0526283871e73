"""Counts what the guards compare: candidates, live addresses and the listing, in one aggregate by address.

Joins would shuffle the listing and the live addresses once for each guard. Source: DESIGN.md, Invariants.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.guards import must_be_listed
from retention_assets.core.states import UNREFERENCED

_PLANNED, _LISTED, _LIVE = "planned", "listed", "live"  # where a row comes from
_OF_ONE = ("nothing_young", "nothing_unknown", "only_generated_names")  # guards that need the candidate alone
_GUARDS = (*_OF_ONE, "nothing_live", "only_listed")


def tally(
    candidates: DataFrame,
    live: DataFrame,
    inventory: DataFrame,
    age_cutoff: AgeCutoff,
    *,
    listed_at: AgeCutoff | None,
    staged_known: bool,
    generated: Callable[[Column], Column],
) -> DataFrame:
    """Return one row with the amounts that guards compare, and the number of violations of each guard of candidates.

    Every candidate must be old enough, have a name that the system generates, not be live, and be listed exactly once
    with the size and time in the plan. An unreferenced candidate also needs a known staged list.

    Args:
        candidates: the candidates of the plan.
        live: the live addresses (`address`, `certain`, `last_modified`), with any number of rows for each.
        inventory: the listed objects.
        age_cutoff: the age rule of the plan.
        listed_at: the age rule of `guards.unlisted_live`; None: this guard is not asked.
        staged_known: whether the staged list is known.
        generated: returns whether the system generates names like that of an address.

    The row has `listed`, `live` (certain addresses), `candidates`, `candidate_bytes`, `unlisted`, and
    for each guard its violations and, as `first_<guard>`, the first address among them.
    """
    marks = {
        "nothing_young": ~age_cutoff.is_eligible(F.col("reason")),
        "nothing_unknown": (F.col("reason") == UNREFERENCED) & F.lit(not staged_known),
        "only_generated_names": ~F.coalesce(generated(F.col("address")), F.lit(False)),
    }
    no, no_size = F.lit(False), F.lit(None).cast("bigint").alias("size")
    unmarked = [no.alias(name) for name in _OF_ONE]
    size, marked = F.col("size").cast("bigint").alias("size"), [marks[name].alias(name) for name in _OF_ONE]
    rows = (
        candidates.select("address", F.lit(_PLANNED).alias("of"), size, "last_modified", no.alias("certain"), *marked)
        .unionAll(
            inventory.select(
                "address", F.lit(_LISTED).alias("of"), size, "last_modified", no.alias("certain"), *unmarked
            )
        )
        .unionAll(live.select("address", F.lit(_LIVE).alias("of"), no_size, "last_modified", "certain", *unmarked))
    )
    return _counted(_by_address(rows), must_be_listed(listed_at) if listed_at else no)


def _by_address(rows: DataFrame) -> DataFrame:
    """Return one row per address: how often it is planned, listed and live, and the guards that it violates."""
    planned, listed, live = (F.col("of") == where for where in (_PLANNED, _LISTED, _LIVE))
    as_planned = (F.col("listed_size") == F.col("planned_size")) & (F.col("listed_time") == F.col("planned_time"))
    once = (F.col("times_planned") == 1) & (F.col("times_listed") == 1)
    named = F.col("address").isNotNull()  # the group of rows without an address is no object
    return (
        rows.groupBy("address")
        .agg(
            F.count_if(planned).alias("times_planned"),
            F.count_if(listed).alias("times_listed"),
            F.bool_or(live).alias("is_live"),
            F.bool_or("certain").alias("certain"),
            F.sum(F.when(planned, F.col("size"))).alias("planned_size"),
            F.max(F.when(planned, F.col("last_modified"))).alias("planned_time"),
            F.sum(F.when(listed, F.col("size"))).alias("listed_size"),
            F.max(F.when(listed, F.col("last_modified"))).alias("listed_time"),
            F.max(F.when(live, F.col("last_modified"))).alias("last_modified"),
            *(F.bool_or(name).alias(name) for name in _OF_ONE),
        )
        .withColumns(
            {
                "nothing_live": (F.col("times_planned") > 0) & F.col("is_live"),
                "only_listed": (F.col("times_planned") > 0) & ~(once & named & F.coalesce(as_planned, F.lit(False))),
            }
        )
    )


def _counted(addresses: DataFrame, must_be_there: Column) -> DataFrame:
    def total(column: str) -> Column:
        return F.coalesce(F.sum(column), F.lit(0))

    unlisted = F.col("certain") & (F.col("times_listed") == 0) & must_be_there
    return addresses.agg(
        total("times_listed").alias("listed"),
        F.count_if("certain").alias("live"),
        total("times_planned").alias("candidates"),
        total("planned_size").alias("candidate_bytes"),
        F.count_if(unlisted).alias("unlisted"),
        *(F.count_if(name).alias(name) for name in _GUARDS),
        *(F.min(F.when(F.col(name), F.col("address"))).alias(f"first_{name}") for name in _GUARDS),
    )
