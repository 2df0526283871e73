"""Verifies sweeps: reads all heads and active commits again, lists the store again, and compares with the ledger.

The cache is not used. References are read before the store is listed, so the listing must have every object of these
references. The checks change nothing. Source: docs/safety.md, "Afterwards".
"""

from dataclasses import replace
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult
from retention_assets.core.states import LIFECYCLE
from retention_assets.lakefs.names.columns import is_inside, stored_name
from retention_assets.lakefs.rules.ranges import canonical
from retention_assets.lakefs.source.inventory_snapshot import prefixes
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.source.repository import staged_list
from retention_assets.lakefs.source.staged_objects import staged_objects
from retention_assets.lakefs.sweep.guards import heads_present, ranges_complete
from retention_assets.lakefs.sweep.liveness import LivenessQuery, commits_now
from retention_assets.objectstore.listing import list_objects
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.spark.frames import CachedFrames, as_frame, from_arrow
from retention_assets.state.acknowledged import acknowledged_addresses, first_of, record_missing
from retention_assets.state.plan import planned_of_all
from retention_assets.sweep.verification import CHECKS_OF_SWEEPS, GONE, VerificationInputs, what_was_done
from retention_assets.warehouse.table_cache import read_tables

CHECKS = ("heads_present", "ranges_complete", "staged_read", "live_exist", *CHECKS_OF_SWEEPS)


def verify(inputs: VerificationInputs, query: LivenessQuery, now: datetime) -> list[CheckResult]:
    """Run all checks and return their results. The addresses of missing objects are stored for `retention acknowledge`.

    Errors: the errors of the source and the store.
    """
    query = replace(query, day=inputs.newest_day(query.day))
    with CachedFrames() as frames:
        referenced, readable = _referenced_now(inputs.spark, query, frames)
        access = query.opened.access
        ledger = frames.cache(inputs.ledger())  # before the listing: see `VerificationInputs.rows`
        listing = frames.cache(list_objects(inputs.spark, access, prefixes(ObjectReader(access))))
        acknowledged = acknowledged_addresses(inputs.spark, inputs.warehouse, inputs.name)
        exist, missing = live_exist(referenced, listing, ledger, _planned(inputs), acknowledged)
        if not exist.passed:  # a sweep may have deleted objects under a lifecycle rule since the ledgers were read
            later = inputs.read_again()
            exist, missing = live_exist(referenced, listing, later.ledger(), _planned(later), acknowledged)
        record_missing(inputs.warehouse, inputs.name, exist.guard, [] if exist.passed else first_of(missing), now)
        return [*readable, exist, *what_was_done(inputs, listing, ledger)]


def _planned(inputs: VerificationInputs) -> DataFrame:
    return planned_of_all(inputs.spark, inputs.warehouse, inputs.plans)


def _referenced_now(
    spark: SparkSession, query: LivenessQuery, frames: CachedFrames
) -> tuple[DataFrame, list[CheckResult]]:
    """Read the repository again, and return the addresses (column `address`) that must exist, with check results.

    These are the addresses of active commits, protected commits and staged objects. Addresses of paths that are due
    under a lifecycle rule are included.
    """
    opened = query.opened
    with staged_list(opened.source) as staged:
        references = opened.source.references()
        rows = commits_now(query, references, rules=())
        commits = from_arrow(spark, rows.select(["metarange_id", "active", "protected"])).where("active OR protected")
        ids = commits.where("metarange_id != ''").select("metarange_id").distinct()
        of_commits = frames.cache(read_tables(ids, metaranges(), opened.access))
        kept = frames.cache(of_commits.select("range_id").distinct())
        entries = frames.cache(read_tables(kept, ranges(), opened.access))
        check_results = [heads_present(references, rows), ranges_complete(of_commits, entries, kept)]
        listed = staged_objects(spark, opened.access, staged, opened.namespace_urls)
        uncommitted = as_frame(spark, listed).select("address")
        committed = canonical(entries, opened.namespace_urls).select("address")
        referenced = frames.cache(committed.unionByName(uncommitted).distinct())
        if staged is not None:
            referenced.count()  # computes the rows now, because the end of the block removes the list
    check_results.append(
        CheckResult(
            "staged_read", staged is not None, "the staged list was read" if staged else "no staged list is known"
        )
    )
    return referenced, check_results


def live_exist(
    referenced: DataFrame, listing: DataFrame, ledger: DataFrame, planned: DataFrame, acknowledged: DataFrame
) -> tuple[CheckResult, DataFrame]:
    """Check that every referenced address is listed, was deleted under a lifecycle rule, or is acknowledged as lost.

    The second result has the addresses that fail the check (column `address`). The ledger shows which objects were
    deleted under a lifecycle rule. An absolute or unresolved address can lie elsewhere. It counts as missing only if
    the ledger says that its object was deleted.

    `acknowledged`: the addresses that a person acknowledged as lost.
    """
    inside = is_inside(F.col("address"))
    named = referenced.select(stored_name(F.col("address")).alias("address"), inside.alias("certain"))
    by_address = named.groupBy("address").agg(F.bool_or("certain").alias("certain"))
    reasons = planned.select("plan_hash", "address", "reason")
    recorded = ledger.join(reasons, on=["plan_hash", "address"], how="left").select("address", "reason", "outcome")
    absent = by_address.join(listing.select("address"), on="address", how="left_anti").join(
        recorded, on="address", how="left"
    )
    absent = absent.join(acknowledged.withColumn("is_known", F.lit(True)), on="address", how="left")
    gone = F.coalesce(F.col("outcome").isin(*GONE, Outcome.ATTEMPTED), F.lit(False))
    collected = F.coalesce(F.col("reason") == LIFECYCLE, F.lit(False)) & gone
    lost = ~collected & F.col("is_known").isNotNull()
    missing = ~collected & ~lost & (F.col("certain") | gone)
    row = absent.agg(
        F.count_if(missing).alias("missing"),
        F.count_if(lost).alias("lost"),
        F.min(F.when(missing, F.concat_ws(", ", "address", "outcome", "reason"))).alias("first"),
        F.count_if(collected).alias("collected"),
        F.count_if(~missing & ~lost & ~collected).alias("elsewhere"),
    ).collect()[0]
    detail = "no referenced object is missing without a known reason"
    if row["collected"]:
        detail += f"; lifecycle rules deleted {row['collected']:,}"
    if row["elsewhere"]:
        elsewhere = counted(row["elsewhere"], "referenced address is", "referenced addresses are")
        detail += f"; {elsewhere} outside the namespace and not checked"
    if row["lost"]:
        detail += f"; {row['lost']:,} acknowledged as lost"
    if row["missing"]:
        objects = counted(row["missing"], "referenced object is", "referenced objects are")
        detail = f"{objects} not in the store, first {row['first']}"
    result = CheckResult("live_exist", not row["missing"], detail, row["missing"])
    return result, absent.where(missing).select("address")
