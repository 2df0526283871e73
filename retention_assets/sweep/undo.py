"""Restores quarantined objects, and purges objects whose time in quarantine is over.

A restore and a purge take the lease and write to the ledgers of the plans, as a sweep does. Both start from the
contents of the quarantine, compared with the ledgers (`copies`). A restore runs no liveness check: it deletes a copy in
quarantine only after the object is at its path again. A purge runs a liveness check, because a copy in quarantine may
be the last copy of an object.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.config.configuration import is_on_this_machine
from retention_assets.core.amounts import Amount, counted, human_amount, sum_of
from retention_assets.core.digest import candidates_digest
from retention_assets.core.liveness import LiveAddresses
from retention_assets.core.paths import below_any
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError, StoreError
from retention_assets.objectstore.listing import presence
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.versions import all_versions, keeps_versions, lists_versions
from retention_assets.spark.frames import master_of, sweep_workers
from retention_assets.state.approval import Approval
from retention_assets.state.binding import require_same_location
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import Lease, held_lease, holds, renew_lease, require_seen_by_all
from retention_assets.state.ledger import (
    LEDGERS,
    SURPLUS_LEDGERS,
    amounts_of,
    latest_of,
    recorded_sweeps,
    rows_of_sweeps,
)
from retention_assets.state.plan import Plan, planned_objects
from retention_assets.state.quarantine import OBJECTS as COPIES
from retention_assets.state.quarantine import quarantine_access, quarantine_of_plan
from retention_assets.state.records import record_without_plan, seal_of, write_record
from retention_assets.sweep.actions import Restore
from retention_assets.sweep.copies import Copies, PlanCopies, Undo
from retention_assets.sweep.engine import Batch, BatchResult, LedgerEngine, run_on_spark
from retention_assets.sweep.execute import SweepResult, SweepRun, work_and_conclude
from retention_assets.sweep.preconditions import require_mounted
from retention_assets.sweep.purges import OTHER_BYTES, Purge, RemoveVersions, remove_manifests
from retention_assets.sweep.worker import OBJECTS, Action, TaskSpec

_IS_LAST = "is live again but missing from its path, or has another size there: this copy may be the last"
_IS_LIVE = "is live again: its versions stay"
_MAY_BE_LAST = "the object is missing from its path: this copy may be the last"
_OF_OTHERS = "of others"  # the key of the log line about objects that another run changed
_ZERO = Amount()


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects quarantined objects by plan, by path in the repository, or by address. None: no condition."""

    plan_hash: str | None = None
    path: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class DueForPurge:
    """Objects that may be purged, by plan, with their total amount and the hash that approves the purge.

    `versions`: whether old versions in the bucket of the repository are purged, and not copies in quarantine.
    `keeps_versions`: whether that bucket, or the bucket of the quarantine, keeps versions of deleted objects; None:
    unknown.
    """

    rows: Sequence[PlanCopies]
    amount: Amount
    digest: str
    surplus: Amount = _ZERO
    manifests: Sequence[Plan] = ()  # plans that have manifests but no copies in quarantine
    keeps_versions: bool | None = False
    versions: bool = False

    @property
    def has_any(self) -> bool:
        """Whether there is anything to purge."""
        return bool(self.rows or self.manifests)

    def sentences(self) -> list[str]:
        """Return the amounts in sentences that follow the name of the repository."""
        if self.versions and self.keeps_versions is False:
            return ["the store keeps no versions of deleted objects. No version is due."]
        none, what = (
            ("no deleted object of which the bucket may keep versions", "deleted, but the bucket may keep versions")
            if self.versions
            else ("no object whose time in quarantine is over", "due: their time in quarantine is over")
        )
        sentences = [f"{human_amount(self.amount)}, {what}." if self.amount.objects else f"there is {none}."]
        if self.surplus.objects:
            sentences.append(f"{human_amount(self.surplus)}, surplus: their originals are still in the repository.")
        if self.manifests:
            sentences.append(f"{counted(len(self.manifests), 'plan has', 'plans have')} manifests and no copies.")
        return sentences

    def unknown_versions(self) -> str:
        """Return a sentence if it is unknown whether the bucket keeps versions; empty if known, or nothing is due."""
        if not self.has_any or self.keeps_versions is not None:
            return ""
        if self.versions:
            return "It is unknown whether the bucket keeps versions of deleted objects."
        return (
            "It is unknown whether the quarantine's store keeps versions of deleted objects. If the store keeps "
            "versions, they stay."
        )


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The current totals of the ledgers by outcome, and the numbers of objects that this run did not restore or purge.

    `skipped` and `busy` are 0 for a purge. `skipped`: other objects are at their paths. `busy`: an interrupted sweep
    may still be processing them, so the run did not try them.
    """

    ledgers: Mapping[str, Amount]
    failed: int
    skipped: int = 0
    busy: int = 0

    def require_complete(self, repository: str, done: str) -> None:
        """Raise StoreError if an object was not restored or purged. `done`: what was done, such as `restored`."""
        remaining = self.failed + self.skipped + self.busy
        if not remaining:
            return
        reasons = []
        if self.failed:
            reasons.append(f"See why: `retention report {repository} --as-of DAY`, with the day of the plan.")
        if self.skipped:
            reasons.append(
                f"Other objects are at the paths of {self.skipped:,}; the log has the first. If the copies are right, "
                "move the objects at these paths away."
            )
        if self.busy:
            reasons.append(f"An interrupted sweep may still be processing {self.busy:,}; the log says until when.")
        raise StoreError(
            f"{repository}: {counted(remaining, 'object')} could not be {done}; the others were {done} or skipped. "
            f"{' '.join(reasons)} Then run the same command again."
        )


def restore(undo: Undo, selection: Selection) -> UndoResult:
    """Restore the selected objects, and return the results.

    Objects that another run changes after they were selected count as failed, unless that run restores them too.

    Errors: StoreError where the directory of the repository is not mounted; GuardRefused in these cases:

    - No object is selected.
    - Another run holds the lease of the repository, or other machines would not see the lease.
    - The ledgers are of another location than the configured one.
    - This machine's clock is wrong. If the clock is ahead, the restore could take the lease of a running sweep, whose
      workers could delete the restored objects.
    """
    access = undo.access()
    require_clock(undo.repository, access, undo.clock, "was restored")
    require_same_location(undo.warehouse, undo.repository)
    if access.is_local and is_on_this_machine(master_of(undo.spark)):  # else each worker checks this
        require_mounted(access.url, "restored")
    with undo.frames:
        selected, busy = _selected(undo, selection)
        if not selected:
            raise GuardRefused(
                f"{undo.repository.name}: no such object is in quarantine, or an interrupted sweep may still be "
                "processing it. Nothing was changed. See what is there: "
                f"`retention quarantined {undo.repository.name}`."
            )
        result = _execute_each(
            undo, "restore", selected, lambda plan: Restore(access, quarantine_of_plan(undo.repository, plan))
        )
        return replace(result, busy=busy)


def due_for_purge(undo: Undo, *, versions: bool = False) -> DueForPurge:
    """Return what may be purged: copies older than `quarantine.keep`, surplus copies, and manifests without copies.

    With `versions`, return instead the deleted objects whose old versions may still be in the bucket of the repository.
    The rows stay in Spark's cache until the `with` block of `undo.frames` ends.

    Errors: AccessDenied or StoreError when the bucket may keep versions, and they cannot be listed; ConfigurationError
    when the versions of this kind of store cannot be listed.
    """
    if versions:
        keeps = _repository_keeps_versions(undo)
        if keeps is False:
            return DueForPurge((), _ZERO, _digest([]), versions=True)
        gone = [PlanCopies(plan, sum_of(amounts_of(rows).values()), _ZERO, rows) for plan, rows in undo.with_versions()]
        due = [one for one in gone if one.moved.objects]
        parts = [f"{one.plan.plan_hash}:{candidates_digest(one.rows.select('address', 'size'))}" for one in due]
        digest = _digest(parts)
        return DueForPurge(due, sum_of(one.moved for one in due), digest, keeps_versions=keeps, versions=True)
    keeps = _keeps_versions(undo)
    found = undo.copies(versions=keeps is True)
    rows = undo.frames.cache(_in_current_quarantine(undo, found, found.rows.where("is_due")))
    due, manifests = found.by_plan(rows), found.with_only_manifests()
    parts = [candidates_digest(rows.select("folder", "address", "size", "surplus"))]
    parts += [f"manifests {plan.day} {plan.plan_hash}" for plan in manifests]
    moved, surplus = sum_of(one.moved for one in due), sum_of(one.surplus for one in due)
    return DueForPurge(due, moved, _digest(parts), surplus, manifests, keeps)


def _repository_keeps_versions(undo: Undo) -> bool | None:
    """Return whether the store of the repository keeps versions of deleted objects; None: unknown.

    Errors: AccessDenied, ConfigurationError or StoreError when the store may keep versions, and they cannot be listed.
    """
    access = undo.access()
    if access.is_local:
        return False
    keeps = keeps_versions(access)
    if keeps is not False:
        next(all_versions(access), None)  # raises before anything is written to a ledger
    return keeps


def _keeps_versions(undo: Undo) -> bool | None:
    """Return whether the store of the quarantine keeps versions of deleted objects; None: unknown.

    If the versioning status cannot be read, but versions can be listed, the result is True. Errors: AccessDenied or
    StoreError when the store keeps versions, and they cannot be listed.
    """
    try:
        access = quarantine_access(undo.repository)
    except ConfigurationError:
        return False  # no quarantine can be used. If a sweep moved objects, `Undo.copies` raises this error
    if access.is_local:
        return False
    keeps = keeps_versions(access)
    if keeps:
        next(all_versions(access), None)  # raises if listing versions is denied
    return (lists_versions(access) or None) if keeps is None else keeps


def purge(undo: Undo, approved: str, live: LiveAddresses, *, versions: bool = False) -> UndoResult:
    """Delete the copies that are due, and their manifests. With `versions`, delete old versions of deleted objects.

    Before each pass, `live` returns the live addresses. A quarantined object that is live again but missing from its
    path is not purged. The versions of an object that is live again all stay: which version is the current one is known
    only from the store's listing.

    The purge holds the lease while it determines what is due, so no sweep runs then. It skips copies whose objects
    another run changes after that.

    Errors: the errors of `live` and `due_for_purge`; GuardRefused in these cases:

    - `approved` is not the hash of exactly the objects that are due.
    - Another run holds the lease of the repository, or other machines would not see the lease.
    - The ledgers are of another location than the configured one. Then `live` has no objects of that location.
    - This machine's clock is wrong: the clock decides what is due.
    """
    require_same_location(undo.warehouse, undo.repository)
    require_clock(undo.repository, undo.access(), undo.clock)
    with undo.frames:
        return _purged(undo, approved, live, versions=versions)


def _purged(undo: Undo, approved: str, live: LiveAddresses, *, versions: bool) -> UndoResult:
    with _leased(undo):
        known_sweeps = recorded_sweeps(undo.warehouse, undo.repository.name)
        due = due_for_purge(undo, versions=versions)
    if not due.has_any or due.digest != approved.lower():
        raise GuardRefused(
            f"{undo.repository.name}: {approved} is not the hash of the objects that may be purged now. Nothing was "
            f"deleted. See the objects and their hash: `retention purge {undo.repository.name}"
            f"{' --versions' if versions else ''}`."
        )
    if versions:
        access = undo.access()
        remove = RemoveVersions(access)
        return _execute_each(undo, "purge", due.rows, lambda _: remove, live, known_sweeps, of_versions=True)

    def action(plan: Plan) -> Purge:
        return Purge(quarantine_of_plan(undo.repository, plan), due.keeps_versions)

    result = _execute_each(undo, "purge", due.rows, action, live, known_sweeps)
    failed = _delete_manifests(undo, {one.plan.key: action(one.plan) for one in due.rows}) if due.rows else 0
    if due.manifests:  # no copies of these plans were purged, so no record names the plans
        of_plans = {plan.key: action(plan) for plan in due.manifests}
        failed += _delete_manifests(undo, of_plans, due.manifests, has_purged=bool(due.rows))
    return replace(result, failed=result.failed + failed)


def _delete_manifests(
    undo: Undo,
    actions: Mapping[tuple[str, str], Purge],
    recorded: Sequence[Plan] = (),
    *,
    has_purged: bool = True,
) -> int:
    """Delete the manifests of plans that have no copies left. Return how many manifests could not be deleted.

    If the ledger of a plan still has an object in this quarantine, the manifests stay, also without a copy. They show
    that the quarantine is mounted, and a later purge of the object needs this.

    `actions`: by day and hash of the plan. `recorded`: plans whose manifests need an audit record of their own.
    `has_purged`: whether this purge has deleted copies.

    Errors: AccessDenied or StoreError when the manifests or the remaining copies cannot be listed, or when records
    cannot be copied to the witness: earlier ones before anything is deleted, the new one after that.
    """
    name, seal, started = undo.repository.name, seal_of(undo.repository), undo.clock()
    if recorded:
        seal.copy_records(undo.warehouse, name)
    with ExitStack() as stack:
        try:
            lease = stack.enter_context(_leased(undo))
        except GuardRefused as error:
            _log_left(undo, error, has_purged=has_purged)
            return 0
        failed: int | None = None  # unknown after an error
        try:
            unpurged = undo.unpurged({plan: one.location for plan, one in actions.items()})
            of_finished = [one for plan, one in actions.items() if plan not in unpurged]
            failed = sum(_removed(undo, lease, of_finished, has_purged=has_purged))
        finally:
            if recorded:
                done = {"manifests_of": [f"{plan.day} {plan.plan_hash}" for plan in recorded], "failed": failed}
                record = record_without_plan("purge", name, undo.person, started, undo.clock(), undo.run_id, done)
                write_record(undo.warehouse, record, seal)
        return failed


def _log_left(undo: Undo, error: GuardRefused, *, has_purged: bool) -> None:
    if has_purged:
        error.say_nothing_more()
    ended = "The copies were purged. " if has_purged else ""
    undo.log(
        f"{undo.repository.name}: {ended}Manifests of purged copies stay until the next purge deletes them. {error}"
    )


def _removed(undo: Undo, lease: Lease, actions: Sequence[Purge], *, has_purged: bool) -> Iterator[int]:
    """Delete the manifests of each plan while the lease is held, and yield how many could not be deleted."""
    for action in actions:
        try:
            lease = renew_lease(undo.warehouse, lease, undo.clock())
        except GuardRefused as error:
            _log_left(undo, error, has_purged=has_purged)
            return
        yield remove_manifests(action, partial(_holds, undo, lease))


def _holds(undo: Undo, lease: Lease) -> bool:
    return holds(undo.warehouse, lease, undo.clock())


def _in_current_quarantine(undo: Undo, found: Copies, rows: DataFrame) -> DataFrame:
    """Return `rows` without the copies that were moved to another quarantine and are not in the current one.

    Deleting an object that does not exist succeeds. So the ledger would call these copies purged while they still exist
    in the other quarantine: at another URL, or on a volume that is not mounted. The manifests of a plan exist until its
    ledger has no object in quarantine. So if a folder has neither copies nor manifests, the copies are in another
    quarantine. Log lines have the numbers.
    """
    if not found.plans:
        return rows
    with_files = found.listing.copies.select("folder").union(found.listing.manifests.select("folder")).distinct()
    url = next(iter(found.plans.values()))[1].access.url
    here = F.concat_ws("/", F.lit(url), "folder", F.lit(COPIES), "address")
    is_here = F.coalesce(F.col("current_size") == F.col("size"), F.lit(False))
    is_moved_here = F.coalesce(F.col("detail") == here, F.lit(False))
    is_empty = ~F.col("folder").isin([row["folder"] for row in with_files.collect()])
    is_elsewhere = F.col("recorded") & ~is_here & (~is_moved_here | is_empty)
    left = rows.where(is_elsewhere).groupBy("folder", is_moved_here.alias("is_moved_here"))
    of_folders = left.agg(F.count(F.lit(1)), F.min("detail")).sort("folder", "is_moved_here").collect()
    for folder, moved_here, objects, first in of_folders:
        plan, location = found.plans[folder]
        undo.log(
            f"{undo.repository.name}: not purged: {counted(objects, 'copy', 'copies')} of the plan of {plan.day}. "
            + (
                f"{location.url} has neither copies nor manifests. Check that the copies were moved to this "
                "quarantine, and that it is mounted. Then run again."
                if moved_here
                else f"No copy is below {location.describe('')}. The first was moved to {first}. To purge these "
                "copies, set quarantine.url to the URL to which they were moved, and run again."
            )
        )
    return rows.where(~is_elsewhere)


def _count_and_first_address(rows: DataFrame) -> tuple[int, str | None]:
    row = rows.agg(F.count(F.lit(1)), F.min("address")).collect()[0]
    return row[0], row[1]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _selected(undo: Undo, selection: Selection) -> tuple[list[PlanCopies], int]:
    """Return, by plan, the selected objects that can be restored, and the number of those that cannot yet."""
    selected: list[PlanCopies] = []
    busy = 0
    for found in undo.restorable():
        if selection.plan_hash is None or found.plan.plan_hash.startswith(selection.plan_hash.lower()):
            idle, others = undo.idle(undo.frames.cache(_matching(undo, found.plan, found.rows, selection)))
            busy += others
            if not idle.isEmpty():
                selected.append(replace(found, rows=idle))
    return selected, busy


def _matching(undo: Undo, plan: Plan, rows: DataFrame, selection: Selection) -> DataFrame:
    if selection.address is not None:
        rows = rows.where(F.col("address") == selection.address)
    if selection.path is not None:
        planned = planned_objects(undo.spark, undo.warehouse, plan).select("address", F.explode("paths").alias("path"))
        path = selection.path.rstrip("/")
        wanted = planned.where((F.col("path") == path) | below_any(F.col("path"), [path])).select("address")
        rows = rows.join(wanted, on="address", how="left_semi")
    return rows


def _execute_each(
    undo: Undo,
    kind: str,
    selected: Sequence[PlanCopies],
    action: Callable[[Plan], Action],
    live: LiveAddresses | None = None,
    known_sweeps: frozenset[str] | None = None,
    *,
    of_versions: bool = False,
) -> UndoResult:
    """Process the selected objects of each plan, one plan after the other. See `UndoEngine` for the last arguments."""
    outcomes: Mapping[str, Amount] = {}
    single_machine = undo.repository.settings.sweep.single_machine
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=single_machine)
    failed = skipped = 0
    for one in selected:
        engine = UndoEngine(undo, one, live, known_sweeps, of_versions=of_versions)
        run = SweepRun(
            warehouse=undo.warehouse,
            plan=one.plan,
            kind=kind,
            mode=kind,
            action=action(one.plan),
            limits=undo.repository.settings,
            run_id=undo.run_id,
            clock=undo.clock,
            log=undo.log,
            workers=sweep_workers(undo.spark),
            seal=seal_of(undo.repository),
            beyond_plan=engine.surplus() if one.surplus.objects else None,
        )
        try:
            result = _execute(undo, run, engine)
        except RetentionError as error:
            if outcomes:
                error.say_nothing_more()
            raise
        outcomes = _sums(outcomes, result.outcomes)
        failed += engine.failed() + engine.overtaken
        skipped += engine.not_restored()
    return UndoResult(outcomes, failed, skipped)


def _leased(undo: Undo) -> AbstractContextManager[Lease]:
    sweep = undo.repository.settings.sweep
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=sweep.single_machine)
    return held_lease(undo.warehouse, undo.repository.name, undo.run_id, undo.clock, sweep.lease)


def _execute(undo: Undo, run: SweepRun, engine: "UndoEngine") -> SweepResult:
    started = undo.clock()
    approval = Approval(run.plan.plan_hash, run.plan.day.isoformat(), undo.person, started.isoformat())
    run.seal.copy_records(undo.warehouse, run.plan.repository)
    with held_lease(undo.warehouse, run.plan.repository, undo.run_id, undo.clock, run.limits.sweep.lease) as lease:
        return work_and_conclude(run, engine, approval, lease, started, engine.remaining(lease.fence))


class UndoEngine(LedgerEngine):
    """The engine of a restore or purge: copies or versions of the objects of one plan. See `Engine`.

    Each row has an address, its size, and `last_fence`: the fence of the newest ledger row when the copies were listed.
    Objects that another run of this plan changed after that are skipped. A purge also skips the objects that a run of
    another plan changed: a new copy may be in quarantine, and the copies of one object are purged together. `surplus`
    copies have a ledger of their own: their objects are still at their paths, so the totals of the plan's ledger must
    not include them.

    `live` determines the live addresses; None for a restore, which needs no liveness check. `known_sweeps`: the sweeps
    in the ledgers when the purge determined what is due; None for a restore. `of_versions`: whether the versions of the
    objects are purged, and not their copies.
    """

    def __init__(
        self,
        undo: Undo,
        found: PlanCopies,
        live: LiveAddresses | None = None,
        known_sweeps: frozenset[str] | None = None,
        *,
        of_versions: bool = False,
    ) -> None:
        super().__init__(undo.spark, undo.warehouse, found.plan)
        self._known_sweeps = known_sweeps
        self._of_versions = of_versions
        self._undo = undo
        self._live = live
        rows = found.rows
        self._found = rows if "surplus" in rows.columns else rows.withColumn("surplus", F.lit(False))
        self._rest: DataFrame | None = None
        self._fence = 0  # of this run
        self._live_again: DataFrame | None = None  # addresses of the batch; None: no object is live again
        self._surplus = found.surplus
        self._logged: Counter[str] = Counter()  # objects by subject of a log line, such as copies with other bytes
        self._outcomes: set[str] = set()  # of this run, of all tries
        self.overtaken = 0  # selected objects that another run changed before this one could restore them

    def surplus(self) -> Mapping[str, Any]:
        """Return the entry of the audit record for surplus copies: their number, bytes and digest."""
        digest = candidates_digest(self._found.where("surplus").select("address", "size"))
        return {"surplus_copies": self._surplus.objects, "bytes": self._surplus.bytes, "digest": digest}

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`. All remaining objects are one batch, so one check of live addresses covers them."""
        self._fence, ledger = fence, self._rows()
        has_result = (F.col("fence") == fence) & (F.col("outcome") != Outcome.ATTEMPTED)
        is_others = (F.col("fence") != fence) & (F.col("fence") > F.col("last_fence"))
        touched = ledger.join(self._found.select("address", "last_fence"), on="address").where(is_others)
        if not self._live:
            is_restored = F.max(F.col("outcome") == Outcome.RESTORED).alias("is_restored")
            self._count_overtaken(touched.groupBy("address").agg(is_restored))
        finished = ledger.where(has_result).select("address").unionByName(touched.select("address"))
        if self._surplus.objects:
            finished = finished.unionByName(self._rows(SURPLUS_LEDGERS).where(has_result).select("address"))
        rest = self._found.join(finished, on="address", how="left_anti")
        objects, is_first_pass = rest.count(), self._rest is None
        if self._known_sweeps is not None and (objects or is_first_pass):  # this lists the ledgers of all plans
            others = recorded_sweeps(self._warehouse, self._plan.repository, self._undo.run_id) - self._known_sweeps
            if others:
                rest = rest.join(self._changed_by(others), on="address", how="left_anti")
                objects = rest.count()
        self._rest = rest
        return [objects] if objects else []

    def _changed_by(self, sweeps: frozenset[str]) -> DataFrame:
        """Return the addresses (column `address`) in the ledger rows of these sweeps. Log how many of them were due."""
        changed = rows_of_sweeps(self._spark, self._warehouse, sweeps).select("address").distinct()
        number, first = _count_and_first_address(self._found.join(changed, on="address", how="left_semi"))
        if number > self._logged[_OF_OTHERS]:
            self._logged[_OF_OTHERS] = number
            self._undo.log(
                f"{self._undo.repository.name}: another run worked on {counted(number, 'due object')} of the plan "
                f"of {self._plan.day} meanwhile, {first} first. They are not purged now. A later purge deletes those "
                "that are due then."
            )
        return changed

    def _count_overtaken(self, touched: DataFrame) -> None:
        """Count the objects that another run changed after they were selected, and did not restore."""
        number, first = _count_and_first_address(touched.where("NOT is_restored"))
        if number > self.overtaken:
            self._undo.log(
                f"{self._undo.repository.name}: another run changed {number:,} of the selected objects of the plan of "
                f"{self._plan.day} meanwhile, {first} first. They are not restored."
            )
        self.overtaken = number

    def check(self, number: int) -> Batch[DataFrame]:
        """See `Engine`."""
        assert self._rest is not None
        checked_at = self._undo.clock()
        types = {"last_modified": "timestamp", "earlier_targets": "array<string>"}
        types |= dict.fromkeys(("etag", "outcome", "detail"), "string")
        objects = self._rest.withColumns({name: F.lit(None).cast(of_name) for name, of_name in types.items()})
        self._live_again = None
        if self._live:
            objects = self._skip_live(objects, self._live.now())
        if self._surplus.objects:
            objects = _with_skipped(objects, self._without_object(objects.where("surplus")), _MAY_BE_LAST)
        return Batch(objects.select(*OBJECTS.names, "surplus"), checked_at)

    def _skip_live(self, objects: DataFrame, live: DataFrame) -> DataFrame:
        """Return `objects`, with the outcome `skipped` for those that are live again and not at their path.

        The copy of such an object may be the last one. If versions are purged, all objects that are live again are
        skipped. `run` compares the copies of the other objects that are live again (`_live_again`).
        """
        of_live = objects.select("address", "size").join(live, on="address", how="left_semi")
        of_live = self._undo.frames.cache(of_live)
        if of_live.isEmpty():
            return objects
        if self._of_versions:
            number, first = _count_and_first_address(of_live)
            self._undo.log(
                f"{self._undo.repository.name}: {counted(number, 'object is', 'objects are')} live again, {first} "
                "first. Their versions were not deleted."
            )
            return _with_skipped(objects, of_live, _IS_LIVE)
        self._live_again = of_live.select("address")
        missing = self._without_object(of_live)
        if missing.isEmpty():
            return objects
        self._log_last_copies(objects.join(missing, on="address", how="left_semi"))
        return _with_skipped(objects, missing, _IS_LAST)

    def _log_last_copies(self, objects: DataFrame) -> None:
        """Log how many of these live objects, which are not at their paths, can be restored, and how many cannot."""
        has_copy = F.coalesce(F.col("current_size") == F.col("size"), F.lit(False))
        name, live_again = self._undo.repository.name, "live again but missing from the path, or of another size there"
        number, first = _count_and_first_address(objects.where(has_copy))
        if number:
            self._undo.log(
                f"{name}: {counted(number, 'object is', 'objects are')} {live_again}, {first} first. The copies were "
                "not purged. If an object of another size is there, move it away. Restore from quarantine: `retention "
                f"restore {name} --address {first}`, or from the bucket's versions."
            )
        number, first = _count_and_first_address(objects.where(~has_copy))
        if number:
            self._undo.log(
                f"{name}: {counted(number, 'object is', 'objects are')} {live_again}, and the quarantine has no whole "
                f"copy under the plan of {self._plan.day}, {first} first. Nothing was purged of them. Unless another "
                "plan has a copy, look for them in a backup or, if the bucket keeps versions, among the versions of "
                "the object and of the copy."
            )

    def _without_object(self, copies: DataFrame) -> DataFrame:
        """Return the addresses of the copies whose object is not at its path.

        An object of another size at the path does not count: somebody may have brought back only a part of the object.
        """
        there = presence(copies.select("address"), self._undo.access()).select("address", "size")
        without = copies.join(there, on=["address", "size"], how="left_anti")
        return self._undo.frames.cache(without.select("address"))

    def run(self, objects: Batch[DataFrame], task: TaskSpec) -> BatchResult:
        """See `Engine`. Copies of objects that are surplus or live again are compared before they are purged."""
        moved = objects.objects.where("NOT surplus")
        live_again = self._live_again if isinstance(task.action, Purge) else None
        if live_again is None:
            result = run_on_spark(moved, task)
        else:
            result = run_on_spark(moved.join(live_again, on="address", how="left_anti"), task)
            of_live = moved.join(live_again, on="address", how="left_semi")
            result = _combined(result, self._run_compared(of_live, task))
        if self._surplus.objects:
            of_surplus = replace(task, ledger=replace(task.ledger, tree=SURPLUS_LEDGERS))
            result = _combined(result, self._run_compared(objects.objects.where("surplus"), of_surplus))
        self._outcomes |= result.amounts.keys()
        return result

    def failed(self) -> int:
        """Return how many objects failed in this run."""
        trees = LEDGERS, *([SURPLUS_LEDGERS] if self._surplus.objects else [])
        return sum(self._ended(Outcome.FAILED, tree)[0] for tree in trees)

    def not_restored(self) -> int:
        """Return how many objects this restore did not restore because of other objects at their paths; purge: 0."""
        if self._live:
            return 0
        number, first = self._ended(Outcome.SKIPPED, LEDGERS)
        if number:
            self._undo.log(
                f"{self._undo.repository.name}: {counted(number, 'object')} of the plan of {self._plan.day} not "
                f"restored, because other objects are at their paths, {first} first."
            )
        return number

    def _ended(self, outcome: Outcome, tree: str) -> tuple[int, str | None]:
        """Return the number of objects for which this is the outcome of this run, and the first address.

        Spark may try a task twice, so the number can be smaller than the number of such results.
        """
        if outcome not in self._outcomes:
            return 0, None
        of_run = latest_of(self._rows(tree).where(F.col("fence") == self._fence))
        return _count_and_first_address(of_run.where(F.col("outcome") == outcome))

    def _run_compared(self, objects: DataFrame, task: TaskSpec) -> BatchResult:
        """Purge the copies that have the bytes of their objects. A log line has the number of the copies that stay."""
        assert isinstance(task.action, Purge)
        result = run_on_spark(objects, replace(task, action=task.action.compared(self._undo.access())))
        if Outcome.SKIPPED not in result.amounts:
            return result
        of_run = self._rows(task.ledger.tree).where(F.col("fence") == task.ledger.fence)
        number, first = _count_and_first_address(
            of_run.where(F.col("detail") == OTHER_BYTES).select("address").distinct()
        )
        if number > self._logged[task.ledger.tree]:
            self._logged[task.ledger.tree] = number
            self._undo.log(
                f"{self._undo.repository.name}: {counted(number, 'copy was', 'copies were')} not purged, because the "
                f"objects at their paths are missing or have other bytes, {first} first. If the copy is right, move "
                f"the object at its path away, and restore: `retention restore {self._undo.repository.name} --address "
                f"{first}`. If the object at the path is right, delete the copy by hand, with its versions."
            )
        return result


def _with_skipped(objects: DataFrame, addresses: DataFrame, why: str) -> DataFrame:
    """Return `objects`; those at `addresses` that have no outcome get the outcome `skipped` and the detail `why`."""
    skipped = addresses.select("address", F.lit(Outcome.SKIPPED).alias("skipped"), F.lit(why).alias("why"))
    decided = {"outcome": F.coalesce("outcome", "skipped"), "detail": F.coalesce("detail", "why")}
    return objects.join(skipped, on="address", how="left").withColumns(decided).drop("skipped", "why")


def _combined(one: BatchResult, other: BatchResult) -> BatchResult:
    until = max((at for at in (one.until, other.until) if at), default=None)
    return BatchResult(_sums(one.amounts, other.amounts), until, other.reached or one.reached)


def _sums(one: Mapping[str, Amount], other: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the sums of the amounts of each outcome."""
    return {name: sum_of([one.get(name, _ZERO), other.get(name, _ZERO)]) for name in {**one, **other}}
