"""The guards: the checks that a plan must pass. If a guard fails, there is no plan.

Each guard checks finished tables. So a guard can detect a bug in the steps that made the tables.
Source: docs/safety.md, "Guards: the checks of a plan".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.config.locations import overlap
from retention_assets.core.age import AgeCutoff
from retention_assets.core.amounts import Amount, counted, human_share
from retention_assets.core.remedies import CheckResult
from retention_assets.core.states import CANDIDATE, STATES, UNREFERENCED
from retention_assets.spark.frames import by_address


def listing_complete(unlisted: Sequence[str]) -> CheckResult:
    """Check that every prefix with objects is in the listing. `unlisted`: the prefixes that are missing from it."""
    detail = "every prefix of the store was listed"
    if unlisted:
        which = counted(len(unlisted), f"prefix, {unlisted[0]}, has", f"prefixes, {unlisted[0]} first, have")
        detail = f"{which} objects that were not listed"
    return CheckResult("listing_complete", not unlisted, detail, len(unlisted))


def namespaces_apart(repository: str, namespaces: Mapping[str, tuple[str, ...]]) -> CheckResult:
    """Check that no location of another repository contains a location of this repository, or is inside it."""
    mine = namespaces[repository]
    overlapping = sorted(
        (other, own, location)
        for other, locations in namespaces.items()
        for own in mine
        for location in locations
        if other != repository and overlap(location, own)
    )
    detail = f"no other repository uses {mine[0]}"
    if overlapping:
        other, own, location = overlapping[0]
        detail = f"its location {own} overlaps with {location} of repository {other}"
    return CheckResult("namespaces_apart", not overlapping, detail, len({other for other, _, _ in overlapping}))


@dataclass(frozen=True, slots=True)
class LiveListed:
    """The result of `live_listed`."""

    check_result: CheckResult
    collected: int  # live addresses that are not listed, but that an earlier sweep collected
    lost: int  # live addresses that are not listed, but that a person acknowledged as lost
    missing: DataFrame | None  # the other live addresses that are not listed (column `address`); None: there are none


ALL_LISTED = LiveListed(CheckResult("live_listed", True, "every live address is listed", 0), 0, 0, None)


def unlisted_live(live: DataFrame, inventory: DataFrame, listing_cutoff: AgeCutoff) -> DataFrame:
    """Return the live addresses that are missing from the listing (column `address`).

    Addresses that are not older than `listing_cutoff` are left out: they may have been written after the listing. An
    address of unknown age is not left out.
    """
    return live.where(must_be_listed(listing_cutoff)).select("address").join(inventory, on="address", how="left_anti")


def must_be_listed(listing_cutoff: AgeCutoff) -> Column:
    """Return whether a live address (columns `address`, `last_modified`) must be in the listing.

    It must be if it is older than `listing_cutoff`, or if its age is unknown.
    """
    known_since = F.coalesce(listing_cutoff.issued(F.col("address")), F.col("last_modified"))
    return known_since.isNull() | listing_cutoff.is_older(known_since)


def live_listed(
    unlisted: DataFrame, inventory: DataFrame, collected: DataFrame, acknowledged: DataFrame | None = None
) -> LiveListed:
    """Check that every live address is listed, collected by an earlier sweep, or acknowledged as lost.

    If any other live address is missing from the listing, the listing may be incomplete.

    Args:
        unlisted: the live addresses that are missing from the listing (see `unlisted_live`).
        inventory: the listed objects.
        collected: the addresses in `unlisted` that our sweeps deleted, found missing, or had started on when
            interrupted.
        acknowledged: the addresses that a person acknowledged as lost; None if there are none.

    Source: docs/safety.md, "Objects that are lost".
    """
    known = collected.limit(0) if acknowledged is None else acknowledged
    looked_up = unlisted.join(collected.withColumn("was_collected", F.lit(True)), on="address", how="left").join(
        known.withColumn("was_acknowledged", F.lit(True)), on="address", how="left"
    )
    was_collected = F.col("was_collected").isNotNull()
    is_lost = ~was_collected & F.col("was_acknowledged").isNotNull()
    is_missing = ~was_collected & ~is_lost
    row = looked_up.agg(
        F.count_if(is_missing).alias("missing"),
        F.min(F.when(is_missing, F.col("address"))).alias("first"),
        F.count_if(was_collected).alias("collected"),
        F.count_if(is_lost).alias("lost"),
    ).collect()[0]
    missing = looked_up.where(is_missing).select("address")
    exceptions = [
        f"{row[name]:,} {what}"
        for name, what in (("collected", "that sweeps removed"), ("lost", "acknowledged as lost"))
        if row[name]
    ]
    detail = "every live address is listed" + (f", except {' and '.join(exceptions)}" if exceptions else "")
    if row["missing"]:
        first = row["first"]
        which = counted(row["missing"], f"live address, {first}, is", f"live addresses, {first} first, are")
        detail = f"{which} not in the listing, which may be incomplete. {describe_missing(missing, inventory)}"
    return LiveListed(
        CheckResult("live_listed", not row["missing"], detail, row["missing"]), row["collected"], row["lost"], missing
    )


def describe_missing(missing: DataFrame, inventory: DataFrame) -> str:
    """Return a sentence, without its full stop, about the directories in which all objects are missing.

    All objects of a directory are missing if several of its live objects are missing and no object in it is listed.
    """
    directory = F.regexp_extract("address", "^(.*/)", 1).alias("directory")
    several = missing.groupBy(directory).agg(F.count(F.lit(1)).alias("objects")).where(F.col("objects") > 1)
    absent = several.join(inventory.select(directory).distinct(), on="directory", how="left_anti")
    row = absent.agg(
        F.count(F.lit(1)).alias("directories"), F.sum("objects").alias("objects"), F.min("directory").alias("first")
    ).collect()[0]
    if not row["directories"]:
        return "No directory is missing completely"
    first = row["first"]
    directories = counted(
        row["directories"],
        f"directory that is missing completely, {first}",
        f"directories that are missing completely, {first} first",
    )
    return f"{row['objects']:,} of them are in {directories}"


def live_not_empty(live: int, listed: int) -> CheckResult:
    """Check that some objects are live if any are listed. Without live objects, a plan could delete everything."""
    passed = live > 0 or listed == 0
    detail = f"{counted(live, 'live address', 'live addresses')}, {counted(listed, 'object')} listed"
    return CheckResult("live_not_empty", passed, detail, value=live, limit=None)


def live_not_shrunk(live: int, before: int | None, most: float) -> CheckResult:
    """Check that the number of live addresses fell by no more than the share `most` since the last plan."""
    addresses = counted(live, "live address", "live addresses")
    if before is None:
        return CheckResult("live_not_shrunk", True, f"{addresses}; there is no earlier plan", 0, most)
    lost = max(0.0, 1 - live / before) if before else 0.0
    shares = f"{human_share(lost)} fewer; at most {human_share(most)} is allowed"
    detail = f"{addresses}, {before:,} in the last plan: {shares}"
    return CheckResult("live_not_shrunk", lost <= most, detail, lost, most)


_PLANNED, _LISTED, _LIVE = "planned", "listed", "live"  # the table that a row of `tally` comes from
_VIOLATIONS = {
    "nothing_young": "too young to be deleted",
    "nothing_unknown": "unreferenced while the staged list is unknown",
    "only_generated_names": "foreign (with a name that the system does not generate)",
    "nothing_live": "live",
    "only_listed": "missing from the listing, planned or listed twice, or listed with another size or time",
}


def tally(
    candidates: DataFrame,
    live: DataFrame,
    inventory: DataFrame,
    age_cutoff: AgeCutoff,
    *,
    listing_cutoff: AgeCutoff | None,
    staged_known: bool,
    generated: Callable[[Column], Column],
) -> DataFrame:
    """Return one row with the amounts that the guards compare, and with the violations that `check_candidates` reports.

    Every candidate must be old enough, must have a name that the system generates, must not be live, and must be listed
    exactly once with the size and time in the plan. For an unreferenced candidate, the staged list must be known.

    One aggregation by address compares candidates, live addresses and the listing. Joins would shuffle the listing and
    the live addresses once for each guard.

    Args:
        candidates: the candidates of the plan.
        live: the live addresses (`address`, `certain`, `last_modified`), with any number of rows for each.
        inventory: the listed objects.
        age_cutoff: the age rule of the plan.
        listing_cutoff: the age rule of `unlisted_live`; None: missing live addresses are not counted.
        staged_known: whether the staged list is known.
        generated: returns whether the system can have generated the name of an address.

    The row has the numbers `listed`, `live` (certain addresses), `candidates`, `candidate_bytes`, `unlisted`, and
    `absent`: certain addresses of any age that are not listed. For each guard, it has the number of violations
    (`<guard>`) and the first address that violates it (`first_<guard>`).
    """
    marks = {
        "nothing_young": ~age_cutoff.is_eligible(F.col("reason")),
        "nothing_unknown": (F.col("reason") == UNREFERENCED) & F.lit(not staged_known),
        "only_generated_names": ~F.coalesce(generated(F.col("address")), F.lit(False)),
    }
    no, no_size = F.lit(False), F.lit(None).cast("bigint").alias("size")
    unmarked = [no.alias(name) for name in marks]
    size, marked = F.col("size").cast("bigint").alias("size"), [mark.alias(name) for name, mark in marks.items()]
    rows = (
        candidates.select("address", F.lit(_PLANNED).alias("of"), size, "last_modified", no.alias("certain"), *marked)
        .unionAll(
            inventory.select(
                "address", F.lit(_LISTED).alias("of"), size, "last_modified", no.alias("certain"), *unmarked
            )
        )
        .unionAll(live.select("address", F.lit(_LIVE).alias("of"), no_size, "last_modified", "certain", *unmarked))
    )
    return _amounts(_by_address(rows, marks), must_be_listed(listing_cutoff) if listing_cutoff else no)


def _by_address(rows: DataFrame, marks: Iterable[str]) -> DataFrame:
    """Return one row per address: how often it is planned and listed, whether it is live, and the guards it violates.

    `marks`: the columns of the guards that need only the candidate.
    """
    planned, listed, live = (F.col("of") == where for where in (_PLANNED, _LISTED, _LIVE))
    as_planned = (F.col("listed_size") == F.col("planned_size")) & (F.col("listed_time") == F.col("planned_time"))
    is_planned = F.col("times_planned") > 0
    once = (F.col("times_planned") == 1) & (F.col("times_listed") == 1)
    has_address = F.col("address").isNotNull()  # rows without an address form one group, which is not an object
    return (
        by_address(rows)
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
            *(F.bool_or(name).alias(name) for name in marks),
        )
        .withColumns(
            {
                "nothing_live": is_planned & F.col("is_live"),
                "only_listed": is_planned & ~(once & has_address & F.coalesce(as_planned, F.lit(False))),
            }
        )
    )


def _amounts(addresses: DataFrame, must_exist: Column) -> DataFrame:
    def total(column: str) -> Column:
        return F.coalesce(F.sum(column), F.lit(0))

    absent = F.col("certain") & (F.col("times_listed") == 0)
    return addresses.agg(
        total("times_listed").alias("listed"),
        F.count_if("certain").alias("live"),
        total("times_planned").alias("candidates"),
        total("planned_size").alias("candidate_bytes"),
        F.count_if(absent & must_exist).alias("unlisted"),
        F.count_if(absent).alias("absent"),
        *(F.count_if(name).alias(name) for name in _VIOLATIONS),
        *(F.min(F.when(F.col(name), F.col("address"))).alias(f"first_{name}") for name in _VIOLATIONS),
    )


def check_candidates(row: Mapping[str, Any]) -> tuple[CheckResult, ...]:
    """Return the results of the guards that check each candidate. `row`: the row of `tally`."""
    candidates = counted(row["candidates"], "candidate")
    check_results = []
    for name, violation in _VIOLATIONS.items():
        detail = f"no candidate is {violation} ({row['candidates']:,} checked)"
        if row[name]:
            first = row[f"first_{name}"]
            one, many = f"of {candidates}, {first}, is {violation}", f"of {candidates}, {first} first, are {violation}"
            detail = counted(row[name], one, many)
        check_results.append(CheckResult(name, not row[name], detail, row[name]))
    return tuple(check_results)


def totals_balance(totals: Mapping[str, Amount], listed: int, candidates: Amount) -> CheckResult:
    """Check that the objects of all states add up to the listed objects, and that the candidates are the plan's.

    `totals`: the amount in each state. `candidates`: the amount in the plan.

    Source: docs/safety.md, "Guards: the checks of a plan".
    """
    by_state = sum(totals.get(state, Amount()).objects for state in STATES)
    planned = totals.get(CANDIDATE, Amount())
    passed = by_state == listed and planned == candidates
    detail = f"{listed:,} listed = " + " + ".join(
        f"{totals.get(state, Amount()).objects:,} {state}" for state in STATES
    )
    if not passed:
        in_state, in_plan = (f"{counted(one.objects, 'candidate')} of {one.bytes:,} B" for one in (planned, candidates))
        differences = [f"the sum is {by_state:,}"] if by_state != listed else []
        differences += [f"the plan has {in_plan}, not {in_state}"] if planned != candidates else []
        detail = f"{detail}: {', and '.join(differences)}"
    return CheckResult("totals_balance", passed, detail, abs(listed - by_state))


def refusals(check_results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return the results that did not pass."""
    return [check_result for check_result in check_results if not check_result.passed]
