"""Verifies that the store and the quarantine agree with the ledgers, plans and audit records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult
from retention_assets.errors import GuardRefused
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.versions import lists_versions
from retention_assets.spark.frames import CachedFrames
from retention_assets.state.acknowledged import changed_entry
from retention_assets.state.ledger import (
    OUTCOMES,
    finished_of,
    latest_of,
    ledger_digest,
    newest_conclusive,
    read_ledgers,
    sweeps_of,
    swept_plans,
    with_went_at,
)
from retention_assets.state.plan import Plan, planned_objects
from retention_assets.state.quarantine import OBJECTS, QuarantineLocation
from retention_assets.state.records import NO_SEAL, SIGNATURE, Seal, StoredRecord, copy_name, fingerprint, read_records
from retention_assets.sweep.copies import (
    attempted_places,
    attempted_since,
    list_quarantine,
    look_into,
    quarantine_of_copy,
    with_folders,
)
from retention_assets.warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class VerificationInputs:
    """The plans, audit records and quarantine folders that a verification compares with the store."""

    spark: SparkSession
    warehouse: Warehouse
    name: str  # of the repository
    plans: Sequence[Plan]  # the plans that have a ledger
    records: Sequence[StoredRecord]  # the audit records
    locations: Sequence[QuarantineLocation]  # of all plans; empty: the repository never used a quarantine
    witnessed: str | None  # fingerprint of the record that was the newest when a lease was written
    today: date  # UTC
    seal: Seal = NO_SEAL  # how records are signed, and where their copies are stored
    idle_since: datetime | None = None  # a run may still process objects that it attempted after this; None: no run

    def read_again(self) -> Self:
        """Return the inputs with the plans that have a ledger by now."""
        return replace(self, plans=swept_plans(self.warehouse, self.name))

    def newest_day(self, day: date) -> date:
        """Return `day`, or the day of the newest swept plan if that is later.

        The retention of an earlier day would require objects that expired since then and that a sweep deleted.
        """
        return max([day, *(plan.day for plan in self.plans)])

    def rows(self) -> DataFrame:
        """Return every row of the ledgers of all plans. See `read_ledgers`.

        These are the rows that exist at this call, whenever Spark reads them. So if this is called before the store is
        listed, the rows name only objects that were already gone then, even if a sweep runs meanwhile.
        """
        return read_ledgers(self.spark, self.warehouse, self.name, [plan.key for plan in self.plans])

    def ledger(self) -> DataFrame:
        """Return, for each address, the newest row over all plans that shows whether the object is gone.

        The rows have the hash of the plan. See `newest_conclusive` and `with_went_at`.
        """
        return newest_conclusive(with_went_at(self.rows()))


CHECKS_OF_SWEEPS = (  # the names of the checks of `what_was_done`
    "deleted_are_gone",
    "quarantine_is_whole",
    "totals_hold",
    "records_follow",
    "records_signed",
    "records_copied",
)


def what_was_done(inputs: VerificationInputs, listing: DataFrame, ledger: DataFrame) -> list[CheckResult]:
    """Return the results of the checks that compare store and quarantine with ledgers, plans and audit records."""
    return [
        deleted_are_gone(ledger, listing),
        copies_in_quarantine(inputs, ledger),
        *(_totals_hold(inputs, plan) for plan in inputs.plans),
        _records_follow(inputs),
        records_signed(inputs),
        records_copied(inputs),
    ]


GONE = (Outcome.DELETED, Outcome.MISSING, Outcome.PURGED, Outcome.QUARANTINED)


def deleted_are_gone(ledger: DataFrame, listing: DataFrame) -> CheckResult:
    """Check that no object that the ledger calls deleted, missing, quarantined or purged is in the listing.

    An object that was written after the deletion is a new object, and passes. A purged object counts as deleted since
    it was moved or deleted, not since its copy or its versions were purged.
    """
    gone = ledger.where(F.col("outcome").isin(*GONE)).select("address", F.coalesce("went_at", "at").alias("went_at"))
    still = listing.join(gone, on="address", how="inner").where(F.col("last_modified") <= F.col("went_at"))
    row = still.agg(F.count(F.lit(1)).alias("still"), F.min("address").alias("first")).collect()[0]
    detail = "no object that the ledger calls gone is in the listing"
    if row["still"]:
        objects = counted(
            row["still"], "object that the ledger calls gone is", "objects that the ledger calls gone are"
        )
        detail = f"{objects} in the listing, {row['first']} first"
    return CheckResult("deleted_are_gone", not row["still"], detail, row["still"])


def copies_in_quarantine(inputs: VerificationInputs, ledger: DataFrame) -> CheckResult:
    """Check that each quarantined object has a copy of the right size, and that purged objects have none.

    A copy in an earlier quarantine is looked up there. The check fails if that quarantine cannot be seen, and does not
    call the copy missing. Copies of purged objects are looked for only in the earlier quarantines that can be seen. All
    other copies pass, and the detail has their number: a sweep made them and did not delete the originals. Copies that
    a restore or purge may be processing pass, too.

    `ledger`: see `VerificationInputs.ledger`.
    """
    check = "quarantine_is_whole"
    if not inputs.locations:
        return CheckResult(check, True, "nothing was moved")
    access = inputs.locations[0].access
    rows = with_folders(inputs.rows())
    moved = _moved(rows, access.url)
    of_copy, of_purged = ["folder", "address"], ledger.where(F.col("outcome") == Outcome.PURGED).select("address")
    # An interrupted sweep may have left a copy in an earlier quarantine, and a later one moved the object elsewhere. A
    # copy that a sweep recorded was deleted by the purge.
    recorded = rows.where(F.col("outcome") == Outcome.QUARANTINED)
    recorded = recorded.withColumn("url", quarantine_of_copy(access.url)).select(*of_copy, "url")
    tried = attempted_places(rows).join(of_purged, on="address", how="left_semi")
    tried = tried.join(recorded, on=[*of_copy, "url"], how="left_anti")
    places = moved.select("url", "folder").unionByName(tried.select("url", "folder"))
    with CachedFrames() as frames:
        earlier = look_into(inputs.spark, places.where(F.col("url") != access.url), access.options, frames)
        listed = list_quarantine(inputs.spark, inputs.locations, frames, versions=lists_versions(access))
        copies = frames.cache(listed.copies.withColumn("url", F.lit(access.url)).unionByName(earlier.copies))
        seen = copies.withColumnRenamed("current_size", "size")
        here = seen.where(F.col("url") == access.url).drop("url")  # a person may have copied it here
        is_unseen = F.concat_ws("/", "url", "folder").isin(list(earlier.unseen))
        without_copy = (
            moved.join(here, on=[*of_copy, "size"], how="left_anti")
            .join(seen, on=[*of_copy, "size", "url"], how="left_anti")
            .withColumn("is_unseen", is_unseen)
        )
        surplus = copies.join(moved, on=of_copy, how="left_anti")
        found, busy = _Copies.counted(without_copy, surplus, of_purged), 0
        if found.has_any:  # a sweep, restore or purge may have changed these copies since the ledgers were read
            rows = with_folders(inputs.read_again().rows())
            later = _moved(rows, access.url).select(*of_copy)
            still = without_copy.join(later, on=of_copy, how="left_semi")
            idle = still.join(attempted_since(rows, inputs.idle_since), on=of_copy, how="left_anti")
            found = _Copies.counted(idle, surplus.join(later, on=of_copy, how="left_anti"), of_purged)
            busy = still.count() - found.missing - found.unseen
    detail = "; ".join(found.problems(earlier.unseen, busy)) or f"{access.url} has all copies"
    value = found.purged + found.missing + found.unseen
    return CheckResult(check, not value, detail, value)


def _moved(rows: DataFrame, url: str) -> DataFrame:
    """Return the objects that are in quarantine according to the ledgers: folder, address, size, detail, url.

    `url` is that of the quarantine; the given one, of the current quarantine, if the ledger has none.
    """
    moved = finished_of(rows, "folder").where(F.col("outcome") == Outcome.QUARANTINED)
    return moved.select("folder", "address", "size", "detail", quarantine_of_copy(url).alias("url"))


@dataclass(frozen=True, slots=True)
class _Copies:
    """The numbers of moved objects without a copy, and of copies that no ledger calls quarantined."""

    missing: int  # moved objects whose copies are gone
    moved_to: str | None  # the location of the first of them
    unseen: int  # moved objects whose copies are in an earlier quarantine that cannot be seen
    unseen_at: str | None  # the folder of the first of them
    surplus: int
    surplus_bytes: int
    purged: int  # objects that a ledger calls purged, with a surplus copy
    first_purged: str | None  # the location of the first of these copies

    @classmethod
    def counted(cls, without_copy: DataFrame, surplus: DataFrame, of_purged: DataFrame) -> Self:
        """Count the moved objects without a seen copy, the surplus copies, and those of purged objects."""
        folder, copy = F.concat_ws("/", "url", "folder"), F.concat_ws("/", "url", "folder", F.lit(OBJECTS), "address")
        without = without_copy.agg(
            F.count_if(~F.col("is_unseen")),
            F.min(F.when(~F.col("is_unseen"), F.col("detail"))),
            F.count_if("is_unseen"),
            F.min(F.when(F.col("is_unseen"), folder)),
        ).collect()[0]
        more = surplus.agg(F.count(F.lit(1)), F.coalesce(F.sum("current_size"), F.lit(0))).collect()[0]
        purged = surplus.join(of_purged, on="address", how="left_semi")
        return cls(*without, *more, *purged.agg(F.count_distinct("address"), F.min(copy)).collect()[0])

    @property
    def has_any(self) -> bool:
        """Whether any object has no copy, or any copy is surplus."""
        return bool(self.missing or self.unseen or self.surplus)

    def problems(self, why_unseen: Mapping[str, str], busy: int) -> list[str]:
        """Return a clause for each number that is not 0. `busy`: copies that a restore or purge may be processing."""
        clauses = []
        if self.surplus:
            size = f"({self.surplus_bytes:,} bytes)"
            have = counted(self.surplus, "copy", "copies")
            clauses.append(f"the quarantine has {have} {size} that no ledger calls quarantined")
        if self.purged:
            have = counted(self.purged, "object still has", "objects still have")
            clauses.append(f"{have} a copy, although the ledger calls it purged, {self.first_purged} first")
        if self.missing:
            have = counted(self.missing, "quarantined object has", "quarantined objects have")
            clauses.append(f"{have} no copy; the first was moved to {self.moved_to}")
        if self.unseen:
            have = counted(self.unseen, "quarantined object was", "quarantined objects were")
            why = f"{self.unseen_at}: {why_unseen[self.unseen_at or '']}"
            clauses.append(f"{have} moved to an earlier quarantine, and not checked: {why}")
        if busy:
            have = counted(busy, "copy is gone that", "copies are gone that")
            clauses.append(f"{have} a restore or purge was processing within sweep.window: verify again after it ended")
        return clauses


def _totals_hold(inputs: VerificationInputs, plan: Plan) -> CheckResult:
    """Check that the stored objects of the plan match its hash, and that its ledger names no other objects.

    The ledger must have known outcomes only.
    """
    check = f"totals_hold {plan.day} {plan.plan_hash}"
    try:
        planned = planned_objects(inputs.spark, inputs.warehouse, plan)
    except GuardRefused as error:
        return CheckResult(check, False, str(error))
    rows = read_ledgers(inputs.spark, inputs.warehouse, plan.repository, [plan.key])
    latest = latest_of(rows)
    not_planned = latest.join(planned.select("address", "size"), on=["address", "size"], how="left_anti").count()
    known = {row["outcome"]: row["count"] for row in latest.groupBy("outcome").count().collect()}
    attempted = known.pop(Outcome.ATTEMPTED, 0)
    count = planned.count()
    counts = " + ".join(f"{objects:,} {outcome}" for outcome, objects in sorted(known.items())) or "0 tried"
    left = f"{count - sum(known.values()):,} unattempted ({attempted:,} with an unknown result)"
    detail = f"{plan.candidates.objects:,} planned = {counts} + {left}"
    problems = []
    if count != plan.candidates.objects:
        problems.append(f"the stored objects of the plan are {count:,}")
    if not_planned:
        problems.append(f"the ledger has {counted(not_planned, 'row')} of objects that are not in the plan")
    if unknown := sorted(set(known) - set(OUTCOMES)):
        problems.append(f"the ledger has unknown outcomes: {', '.join(unknown)}")
    if problems:
        detail += f": {'; '.join(problems)}"
    return CheckResult(check, not problems, detail)


def _records_follow(inputs: VerificationInputs) -> CheckResult:
    """Check that the chain of audit records is unbroken, and that each ledger matches the digest in its records.

    This includes empty ledgers. The lists of objects that were acknowledged as lost are checked, too.
    """
    late: list[str] = []
    for kept in inputs.records:
        record, document = f"{inputs.name}/records/{kept.name}", kept.document
        if not kept.follows:
            return CheckResult("records_follow", False, f"{record} does not have the hash of the record before it")
        if document["ledger_digest"] is None:  # there was no ledger, or workers might still have written rows
            continue
        plan = document["day"], document["plan_hash"]
        rows = inputs.spark, inputs.warehouse, inputs.name, plan, document["fence"]
        if ledger_digest(*rows) != document["ledger_digest"]:
            # A run that was suspended until another run took its lease writes its last rows after that run's record.
            if ledger_digest(*rows, datetime.fromisoformat(document["ended"])) != document["ledger_digest"]:
                return CheckResult("records_follow", False, f"the ledger that {record} covers was changed")
            late.append(kept.name)
    if inputs.witnessed and inputs.witnessed not in [fingerprint(kept.document) for kept in inputs.records]:
        return CheckResult(
            "records_follow", False, f"the last record that {inputs.name}/leases names was changed or is gone"
        )
    if changed := _changed_entry(inputs):
        return CheckResult("records_follow", False, changed)
    detail = f"{counted(len(inputs.records), 'record')}, each with the hash of the record before it"
    if late:
        detail += f"; a run that had lost its lease wrote ledger rows after {', '.join(late)}"
    unrecorded = [plan for plan in inputs.plans if _is_unrecorded(inputs, plan)]
    if unrecorded:
        first = f"{unrecorded[0].day} {unrecorded[0].plan_hash}"
        have = counted(len(unrecorded), f"plan, {first}, has", f"plans, {first} first, have")
        detail += f"; {have} no record of the last sweep"
    return CheckResult("records_follow", True, detail)


def _changed_entry(inputs: VerificationInputs) -> str:
    """Return which list of lost objects does not agree with its record; empty: all agree."""
    documents = [kept.document for kept in inputs.records]
    if not changed_entry(inputs.warehouse, inputs.name, documents):
        return ""
    now = read_records(inputs.warehouse, inputs.name)  # a person may have acknowledged a loss since they were read
    return changed_entry(inputs.warehouse, inputs.name, [kept.document for kept in now])


def records_signed(inputs: VerificationInputs) -> CheckResult:
    """Check that each audit record is signed by a key of the configuration.

    Records that ended before `records.signed_since` may be unsigned if no signed record comes before them. After that
    day, there must be a signed record. This record has the hash of the record before it, so nobody can forge the
    earlier records without the key.
    """
    check, seal = "records_signed", inputs.seal
    signed = sum(SIGNATURE in kept.document for kept in inputs.records)
    if not seal.keys:
        detail = "records.signing_key is not configured: anyone who can write to the warehouse can rewrite all records"
        if signed:
            are = counted(signed, "record is", "records are")
            detail = f"{are} signed, but records.signing_key is not configured: no signature was checked"
        return CheckResult(check, not signed, detail)
    is_before_key = seal.signed_since is not None
    for kept in inputs.records:
        record, document = f"{inputs.name}/records/{kept.name}", kept.document
        if SIGNATURE not in document:
            since = seal.signed_since.isoformat() if seal.signed_since else ""
            if is_before_key and document.get("ended", since) < since:
                continue
            return CheckResult(check, False, f"{record} is not signed{f', and ended after {since}' if since else ''}")
        is_before_key = False  # from here on, each signature covers the hash of the record before
        if document.get("repository") != inputs.name or not seal.verifies(document):
            return CheckResult(check, False, f"{record} is not signed for {inputs.name} by a key of the configuration")
    if inputs.records and not signed and seal.signed_since and seal.signed_since < inputs.today:
        detail = (
            f"no record is signed, although records.signed_since, {seal.signed_since}, is over. If no run has written "
            "a record since then, set records.signed_since to the day of the next run"
        )
        return CheckResult(check, False, detail)
    detail = f"{counted(signed, 'record is', 'records are')} signed"
    if unsigned := len(inputs.records) - signed:
        detail += f"; {unsigned:,} unsigned ended before {seal.signed_since}, which is allowed"
    return CheckResult(check, True, detail)


def records_copied(inputs: VerificationInputs) -> CheckResult:
    """Check that the witness has an unchanged copy of each audit record, and no copies of other records."""
    check = "records_copied"
    if inputs.seal.witness is None:
        return CheckResult(
            check,
            True,
            "records.witness is not configured: anyone who can write to the warehouse can remove the newest records",
        )
    url = f"{inputs.seal.witness.url}/{inputs.name}"
    copies = set(inputs.seal.copies(inputs.name))
    records = {copy_name(kept.name, kept.document) for kept in inputs.records}
    lost = copies - records
    if lost:  # or other runs wrote records after these were read
        lost -= {copy_name(kept.name, kept.document) for kept in read_records(inputs.warehouse, inputs.name)}
    if lost:
        were = counted(len(lost), "record was", "records were")
        detail = f"{were} removed or changed after the copy to {url}, {min(lost)} first"
        return CheckResult(check, False, detail)
    if missing := sorted(records - copies):
        have = counted(len(missing), "record has", "records have")
        detail = f"{have} no copy in {url}, {missing[0]} first"
        return CheckResult(check, False, detail)
    return CheckResult(check, True, f"{url} has a copy of each record ({len(records):,})")


def _is_unrecorded(inputs: VerificationInputs, plan: Plan) -> bool:
    """Return whether no audit record covers the newest ledger rows of the plan: a change to them is not detected."""
    fences = sweeps_of(inputs.warehouse, inputs.name, *plan.key)
    digests = (one.document for one in inputs.records if one.document["ledger_digest"])
    covered = [one["fence"] for one in digests if (one["day"], one["plan_hash"]) == plan.key]
    return max(fences, default=0) > max(covered, default=0)


def by_check(check_results: Sequence[CheckResult], checks: Sequence[str]) -> list[CheckResult]:
    """Return one check result for each of `checks`.

    Results of a check that runs once for each plan are merged. The detail has the failed results, or else the number of
    plans.
    """
    merged = []
    for check in checks:
        of_check = [one for one in check_results if one.guard.partition(" ")[0] == check]
        by_plan = [(one.guard.removeprefix(check).strip(), one) for one in of_check]
        failed = [f"{plan}: {one.detail}" if plan else one.detail for plan, one in by_plan if not one.passed]
        detail = of_check[0].detail if len(of_check) == 1 else counted(len(of_check), "plan")
        values = [one.value for one in of_check if one.value is not None]
        merged.append(CheckResult(check, not failed, "; ".join(failed) or detail, sum(values) if values else None))
    return merged
