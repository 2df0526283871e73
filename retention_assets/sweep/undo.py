"""Restores quarantined objects, and purges objects whose time in quarantine is over.

A restore and a purge take the lease and write to the ledgers of the plans, as a sweep does. Both start from the
contents of the quarantine, compared with the ledgers (`copies`). A restore runs no liveness check: it deletes a copy in
quarantine only after the object is at its path again. A purge runs a liveness check, because a copy in quarantine may
be the last copy of an object.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.config.configuration import is_on_this_machine
from retention_assets.core.amounts import Amount, counted, human_amount, sum_of, sums_of
from retention_assets.core.digest import candidates_digest
from retention_assets.core.liveness import LiveAddresses
from retention_assets.core.paths import below_any
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError, StoreError
from retention_assets.objectstore.versions import all_versions, keeps_versions, lists_versions
from retention_assets.spark.frames import master_of, sweep_workers
from retention_assets.state.approval import Approval
from retention_assets.state.binding import require_same_location
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import Lease, held_lease, holds, renew_lease, require_seen_by_all
from retention_assets.state.ledger import (
    amounts_of,
    recorded_sweeps,
)
from retention_assets.state.plan import Plan, planned_objects
from retention_assets.state.quarantine import OBJECTS as COPIES
from retention_assets.state.quarantine import quarantine_access, quarantine_of_plan
from retention_assets.state.records import record_without_plan, seal_of, write_record
from retention_assets.sweep.actions import Restore
from retention_assets.sweep.copies import Copies, PlanCopies, Undo
from retention_assets.sweep.execute import SweepResult, SweepRun, work_and_conclude
from retention_assets.sweep.preconditions import require_mounted
from retention_assets.sweep.purges import Purge, RemoveVersions, remove_manifests
from retention_assets.sweep.undo_engine import UndoEngine
from retention_assets.sweep.worker import Action

_ZERO = Amount()


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects quarantined objects by plan, by path in the repository, or by address. None: no condition."""

    plan_hash: str | None = None
    path: str | None = None
    address: str | None = None

    def __str__(self) -> str:
        named = {"the plan": self.plan_hash, "the path": self.path, "the address": self.address}
        return " and ".join(f"{what} {text!r}" for what, text in named.items() if text is not None) or "every object"

    def require_utf_8(self, repository: str) -> None:
        """Raise ConfigurationError for a text that no table can have."""
        try:
            str(self.path).encode()
            str(self.address).encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(
                f"{repository}: {self} is not UTF-8. Nothing was restored. Name the object by its address: `retention "
                f"quarantined {repository}`."
            ) from error


@dataclass(frozen=True, slots=True)
class DueForPurge:
    """Objects that may be purged, by plan, with their total amount and the hash that approves the purge.

    `versions`: whether old versions in the bucket of the repository are purged, and not copies in quarantine.
    `keeps_versions`: whether the store that is purged keeps versions of deleted objects; None: unknown.
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
            (
                "no deleted object of which the bucket may keep versions",
                "deleted, but the bucket may still keep versions",
            )
            if self.versions
            else (
                "no due copy in quarantine",
                "due: the time in quarantine is over, or an earlier purge left copies",
            )
        )
        sentences = [f"{human_amount(self.amount)}, {what}." if self.amount.objects else f"there is {none}."]
        if self.surplus.objects:
            sentences.append(f"{human_amount(self.surplus)}, surplus: the originals are still in the repository.")
        if self.manifests:
            sentences.append(f"{counted(len(self.manifests), 'plan has', 'plans have')} manifests and no copies.")
        return sentences

    def first(self, most: int) -> list[dict[str, Any]]:
        """Return the first objects, by plan and address, at most `most`. `surplus`: the original is still there."""
        found: list[dict[str, Any]] = []
        for one in self.rows:
            if len(found) < most:
                rows = one.rows if "surplus" in one.rows.columns else one.rows.withColumn("surplus", F.lit(False))
                rows = rows.select("address", "size", "surplus").orderBy("address").limit(most - len(found))
                day, plan_hash = one.plan.key
                found += [{"day": day, "plan_hash": plan_hash, **row.asDict()} for row in rows.collect()]
        return found

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

    `skipped`: objects at whose paths there are others. `busy`: objects that this run did not try, because an
    interrupted run may still be processing them. Both are 0 for a purge.
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
            reasons.append(
                f"{self.failed:,} failed, or somebody changed them: the log names the first, and `retention report "
                f"{repository} --as-of DAY` has the error, with the day of the plan."
            )
        if self.skipped:
            reasons.append(
                f"At the paths of {self.skipped:,} of them, there are other objects; the log names the first. If the "
                "copies are right, move the objects at these paths away."
            )
        if self.busy:
            reasons.append(
                f"An interrupted run may still be processing {self.busy:,} of them; the log has the time until which "
                "you must wait."
            )
        raise StoreError(
            f"{repository}: {counted(remaining, 'object')} could not be {done}; the others were {done} or left as they "
            f"are. {' '.join(reasons)} Then run the same command again."
        )


def restore(undo: Undo, selection: Selection) -> UndoResult:
    """Restore the selected objects, and return the results.

    Objects that another run changes after they were selected count as failed, unless that run restores them too.

    Errors: StoreError where the directory of the repository is not mounted; ConfigurationError when a path or address
    is not UTF-8; GuardRefused in these cases:

    - No object is selected.
    - Another run holds the lease of the repository, or other machines would not see the lease.
    - The ledgers are of another location than the configured one.
    - This machine's clock is wrong. If the clock is ahead, the restore could take the lease of a running sweep, whose
      workers could delete the restored objects.
    """
    selection.require_utf_8(undo.repository.name)
    access = undo.access()
    require_clock(undo.repository, access, undo.clock, "was restored")
    require_same_location(undo.warehouse, undo.repository)
    if access.is_local and is_on_this_machine(master_of(undo.spark)):  # else each worker checks this
        require_mounted(access.url, "restored")
    with undo.frames:
        selected, busy = _selected(undo, selection)
        if not selected:
            raise GuardRefused(
                f"{undo.repository.name}: no object in quarantine matches {selection}, or an interrupted run may still "
                "be processing the object. Nothing was changed. See what is there: "
                f"`retention quarantined {undo.repository.name}`. See whether an object is back: `retention explain "
                f"{undo.repository.name} ADDRESS`."
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
            f"{undo.repository.name}: {counted(objects, 'copy', 'copies')} of the plan of {plan.day} cannot be purged. "
            + (
                f"{location.url} has neither copies nor manifests. Check that the copies were moved to this "
                "quarantine, and that it is mounted. Then run again."
                if moved_here
                else f"They are not below {location.describe('')}. The first was moved to {first}. To purge these "
                "copies, set quarantine.url to the URL to which they were moved, and run again."
            )
        )
    return rows.where(~is_elsewhere)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _selected(undo: Undo, selection: Selection) -> tuple[list[PlanCopies], int]:
    """Return, by plan, the selected objects that can be restored, and the number of those that cannot yet."""
    selected: list[PlanCopies] = []
    busy = 0
    for found in undo.restorable():
        if selection.plan_hash is None or found.plan.plan_hash.startswith(selection.plan_hash.lower()):
            idle, others = undo.idle(found.plan, undo.frames.cache(_matching(undo, found.plan, found.rows, selection)))
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
        outcomes = sums_of(outcomes, result.outcomes)
        failed_now, skipped_now = engine.left()
        failed, skipped = failed + failed_now + engine.overtaken, skipped + skipped_now
    return UndoResult(outcomes, failed, skipped)


def _leased(undo: Undo) -> AbstractContextManager[Lease]:
    sweep = undo.repository.settings.sweep
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=sweep.single_machine)
    return held_lease(undo.warehouse, undo.repository.name, undo.run_id, undo.clock, sweep.lease)


def _execute(undo: Undo, run: SweepRun, engine: UndoEngine) -> SweepResult:
    started = undo.clock()
    approval = Approval(run.plan.plan_hash, run.plan.day.isoformat(), undo.person, started.isoformat())
    run.seal.copy_records(undo.warehouse, run.plan.repository)
    with held_lease(undo.warehouse, run.plan.repository, undo.run_id, undo.clock, run.limits.sweep.lease) as lease:
        return work_and_conclude(run, engine, approval, lease, started, engine.remaining(lease.fence))
