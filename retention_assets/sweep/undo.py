"""Restores quarantined objects, and purges objects whose time in quarantine is over.

Each restore and each purge is a sweep of its own, and writes to the same ledgers. Both start from the contents of the
quarantine, compared with the ledgers (`copies`). A restore runs no liveness check, because it only adds objects. A
purge does run one, because a copy in quarantine may be the last copy of an object.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.core.amounts import Amount
from retention_assets.core.digest import candidates_digest
from retention_assets.core.frames import CachedFrames, sweep_workers
from retention_assets.core.liveness import LiveAddresses
from retention_assets.core.paths import below_any
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.presence import presence
from retention_assets.objectstore.versions import all_versions, keeps_versions, lists_versions
from retention_assets.state.approval import Approval
from retention_assets.state.binding import require_same_place
from retention_assets.state.lease import MARGIN, Lease, release_lease, require_seen_by_all, take_lease
from retention_assets.state.ledger import (
    LEDGERS,
    SURPLUS_LEDGERS,
    amounts_of,
    ended_of,
    latest_of,
    ledger_digest,
    plans_with_ledgers,
    read_ledgers,
)
from retention_assets.state.plan import Plan, find_plan, planned_objects, together
from retention_assets.state.quarantine import OBJECTS as COPIES
from retention_assets.state.quarantine import QuarantinePlace, place_of_plan, quarantine_access
from retention_assets.state.records import seal_of
from retention_assets.state.warehouse import Warehouse
from retention_assets.sweep.actions import OF_COPY, Purge, RemoveVersions, Restore, remove_manifests
from retention_assets.sweep.copies import Lying, Times, held_and_surplus, in_folders, lying, unnamed
from retention_assets.sweep.engine import Batch, Done, run_on_spark
from retention_assets.sweep.execute import Log, SweepResult, SweepRun, work_and_conclude
from retention_assets.sweep.sweep_run import require_clock
from retention_assets.sweep.worker import OBJECTS, Action, TaskSpec

_NEEDED = "came back to life, and is not where it was: these are its last bytes"
_ALONE = "the object is not in its place any more: this copy may hold its last bytes"


_NONE = Amount()


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects quarantined objects by plan, by path in the repository, or by address. Empty: all objects."""

    plan_hash: str | None = None
    path: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Inputs of a restore or purge: the repository, the person who acts, Spark, the warehouse, log and clock."""

    spark: SparkSession
    warehouse: Warehouse
    repository: Repository
    run_id: str
    person: str
    log: Log
    clock: Clock
    frames: CachedFrames = field(default_factory=CachedFrames, repr=False)  # a restore or purge ends by releasing these

    def access(self) -> StoreAccess:
        """Return access to the object store of the repository."""
        return StoreAccess(self.repository.storage, self.repository.storage_options())

    def copies(self, *, versions: bool = False) -> "Copies":
        """Return the contents of the quarantine, by the ledgers and by its listing. Errors: of the store."""
        ledgers = self.ledgers()
        places = self._places(ledgers)
        empty = read_ledgers(self.spark, self.warehouse, self.repository.name, [])
        rows = in_folders({place.folder: rows for place, (_, rows) in zip(places, ledgers, strict=False)}, empty)
        now, settings = self.clock(), self.repository.settings
        times = Times(now - settings.quarantine.keep, now - settings.sweep.window - MARGIN)
        plans = {place.folder: (plan, place) for place, (plan, _) in zip(places, ledgers, strict=False)}
        found = lying(self.spark, places, self.frames, versions=versions)
        return Copies(
            plans,
            self.frames.cache(held_and_surplus(rows, found.copies, self.access(), times, self.frames)),
            found,
            unnamed(rows, found.copies),
            rows.groupBy("folder").agg(F.max("at").alias("touched_at")),
            times,
        )

    def _places(self, ledgers: "Chosen") -> list[QuarantinePlace]:
        """Return the quarantine folders of the plans; empty if no quarantine is configured and no object was moved."""
        try:
            return [place_of_plan(self.repository, plan) for plan, _ in ledgers]
        except ConfigurationError:
            if any(not rows.where(F.col("outcome") == Outcome.QUARANTINED).isEmpty() for _, rows in ledgers):
                raise
            return []

    def with_versions(self) -> "Chosen":
        """Return, by plan, the deleted objects whose old versions may still be in the bucket.

        Objects that are in quarantine are excluded: their versions stay, in case the copy is lost. An object named by
        several plans belongs to the newest of them.
        """
        ledgers = self.ledgers()
        if not ledgers:
            return []
        newest = F.max("fence").over(Window.partitionBy("address"))
        ended = [
            ended_of(rows.withColumn("seen", newest)).withColumn("ledger", F.lit(number))
            for number, (_, rows) in enumerate(ledgers)
        ]
        everywhere = reduce(DataFrame.unionByName, ended)
        moved = everywhere.where(F.col("outcome") == Outcome.QUARANTINED).select("address")
        purged_copy = (F.col("outcome") == Outcome.PURGED) & F.col("detail").startswith(OF_COPY)
        last = ended_of(everywhere).where(F.col("outcome").isin(Outcome.DELETED, Outcome.MISSING) | purged_copy)
        gone = self.frames.cache(last.join(moved, on="address", how="left_anti"))  # read once for each plan
        return [
            (plan, gone.where(F.col("ledger") == number).drop("ledger")) for number, (plan, _) in enumerate(ledgers)
        ]

    def restorable(self) -> "list[OfPlan]":
        """Return, by plan, the objects in quarantine that can be restored.

        An interrupted sweep may have moved objects without recording it; only the copies show this. A worker of that
        sweep may still be running until its window ends, and could delete both the restored object and its copy. Such
        objects are not restored before the window ends. The log names their number and the time.
        """
        found = self.copies()
        is_whole = F.col("current_size") == F.col("size")
        unrecorded = ~F.col("recorded") & ~F.col("surplus") & F.coalesce(is_whole, F.lit(False))
        is_quiet = F.col("touched_at") <= F.lit(found.times.quiet_since)
        self._tell_of_recent(found.rows.where(unrecorded & ~is_quiet))
        return found.by_plan(found.rows.where(F.col("recorded") | (unrecorded & is_quiet)))

    def _tell_of_recent(self, rows: DataFrame) -> None:
        row = rows.agg(F.count(F.lit(1)), F.max(F.unix_micros("touched_at"))).first()
        assert row is not None
        if row[0]:
            free = datetime.fromtimestamp(row[1] / 1e6, UTC) + self.repository.settings.sweep.window + MARGIN
            self.log(
                f"{self.repository.name}: a sweep that was cut off may still be at {row[0]:,} objects, which are left "
                f"as they are. Those of them that it moved can be brought back after {free:%Y-%m-%d %H:%M:%S} UTC."
            )

    def ledgers(self) -> "Chosen":
        """Return each plan that has a ledger, with all rows of the ledger."""
        found = []
        for day, plan_hash in plans_with_ledgers(self.warehouse, self.repository.name):
            plan = find_plan(self.warehouse, self.repository.name, plan_hash, date.fromisoformat(day))
            rows = read_ledgers(self.spark, self.warehouse, self.repository.name, [(day, plan_hash)])
            found.append((plan, rows))
        return found


Chosen = list[tuple[Plan, DataFrame]]


@dataclass(frozen=True, slots=True)
class OfPlan:
    """The objects of one plan that are in quarantine or deleted."""

    plan: Plan
    held: Amount  # copies of objects that are missing from their path, or that were moved according to the ledger
    surplus: Amount  # copies of objects that are still at their path
    rows: DataFrame = field(repr=False)  # see `EndedEngine`


@dataclass(frozen=True, slots=True)
class Copies:
    """The contents of the quarantine of a repository."""

    plans: Mapping[str, tuple[Plan, QuarantinePlace]]  # by folder
    rows: DataFrame  # see `held_and_surplus`
    lying: Lying  # the listing of the quarantine
    unnamed: DataFrame  # copies that no ledger names: folder, address, current_size
    touched: DataFrame  # folder, and touched_at: the time of the newest row of its ledger
    times: Times

    def by_plan(self, rows: DataFrame | None = None) -> list[OfPlan]:
        """Return the copies by plan, all of them or only those in `rows`. Plans without copies are left out."""
        chosen = self.rows if rows is None else rows
        found = chosen.groupBy("folder", "surplus").agg(F.count(F.lit(1)), F.sum("size")).collect()
        amounts = {(folder, surplus): Amount(objects, size) for folder, surplus, objects, size in found}
        with_seen = chosen.withColumn("seen", F.col("fence"))
        return [
            OfPlan(
                self.plans[folder][0],
                amounts.get((folder, False), _NONE),
                amounts.get((folder, True), _NONE),
                with_seen.where(F.col("folder") == folder),
            )
            for folder in sorted({folder for folder, _ in amounts})
        ]

    def unknown(self) -> list[tuple[str, Amount]]:
        """Return, by folder, the amount of copies that no ledger of this warehouse names.

        They may belong to another repository.
        """
        named = self.unnamed.groupBy("folder").agg(F.count(F.lit(1)), F.sum("current_size")).collect()
        rows = [*self.lying.strangers.select("folder", "objects", "bytes").collect(), *named]
        return sorted((folder, Amount(objects, size or 0)) for folder, objects, size in rows)

    def with_manifests_alone(self) -> list[Plan]:
        """Return the plans that have manifests in quarantine but no copies any more."""
        gone = (
            self.lying.manifests.join(self.lying.copies, on="folder", how="left_anti")
            .join(self.rows, on="folder", how="left_anti")
            .join(
                self.touched.where(F.col("touched_at") <= F.lit(self.times.quiet_since)), on="folder", how="left_semi"
            )
        )
        return [self.plans[folder][0] for (folder,) in gone.select("folder").sort("folder").collect()]


@dataclass(frozen=True, slots=True)
class Due:
    """Objects that may be purged, by plan, with their total amount and the hash that approves the purge.

    `keeps_versions`: whether the bucket of the quarantine keeps versions of deleted objects; None: unknown.
    """

    rows: Sequence[OfPlan]
    amount: Amount
    digest: str
    surplus: Amount = _NONE
    manifests: Sequence[Plan] = ()  # plans that have manifests but no copies any more
    keeps_versions: bool | None = False

    @property
    def is_anything(self) -> bool:
        """Whether there is anything to purge."""
        return bool(self.rows or self.manifests)


@dataclass(frozen=True, slots=True)
class Undone:
    """The current totals of the ledgers by outcome, and the number of objects that failed in this run."""

    ledgers: Mapping[str, Amount]
    failed: int

    def require_complete(self, repository: str, done: str) -> None:
        """Raise StoreError when objects failed. `done`: what was done to the others, such as `restored`."""
        if self.failed:
            raise StoreError(
                f"{repository}: {self.failed:,} objects could not be {done}; the rest was. Why: "
                f"`retention report {repository} --as-of DAY`, of the plan's day. Then run the same command again."
            )


def restore(undo: Undo, selection: Selection) -> Undone:
    """Restore the selected objects, and return the results.

    Errors: GuardRefused when no object is selected, when another sweep of the repository is running, or when the
    ledgers are of another location than the configured one.
    """
    require_same_place(undo.warehouse, undo.repository)
    with undo.frames:
        chosen = _chosen(undo, selection)
        if not chosen:
            raise GuardRefused(
                f"{undo.repository.name}: nothing like that is in quarantine. Nothing was changed. What is there: "
                f"`retention quarantined {undo.repository.name}`."
            )
        access = undo.access()
        place = partial(place_of_plan, undo.repository)
        return _carried(undo, "restore", chosen, lambda plan: Restore(access, place(plan)))


def due_for_purge(undo: Undo, *, versions: bool = False) -> Due:
    """Return what may be purged: copies older than `quarantine.keep`, surplus copies, and manifests without copies.

    With `versions`, return instead the deleted objects whose old versions may still be in the bucket of the repository.
    The rows stay in Spark's cache until the `with` block of `undo.frames` ends.
    """
    if versions:
        gone = [OfPlan(plan, together(amounts_of(rows).values()), _NONE, rows) for plan, rows in undo.with_versions()]
        due = [one for one in gone if one.held.objects]
        return Due(due, together(one.held for one in due), _digest([_digest_of(one) for one in due]))
    keeps = _keeps_versions(undo)
    found = undo.copies(versions=keeps is True)
    over = undo.frames.cache(_lying_here(undo, found, found.rows.where("is_due")))
    due, manifests = found.by_plan(over), found.with_manifests_alone()
    parts = [candidates_digest(over.select("folder", "address", "size", "surplus"))]
    parts += [f"manifests {plan.day} {plan.plan_hash}" for plan in manifests]
    held, surplus = together(one.held for one in due), together(one.surplus for one in due)
    return Due(due, held, _digest(parts), surplus, manifests, keeps)


def _keeps_versions(undo: Undo) -> bool | None:
    """Return whether the store of the quarantine keeps versions of deleted objects; None: unknown.

    Errors: of the store, when it keeps versions and does not let us list them.
    """
    try:
        access = quarantine_access(undo.repository)
    except ConfigurationError:
        return False  # no quarantine is configured: see `Undo.copies`
    if access.is_local:
        return False
    keeps = keeps_versions(access)
    if keeps:
        next(all_versions(access), None)  # raises if listing versions is denied
    return (lists_versions(access) or None) if keeps is None else keeps


def _digest_of(found: OfPlan) -> str:
    return f"{found.plan.plan_hash}:{candidates_digest(found.rows.select('address', 'size'))}"


def purge(undo: Undo, approved: str, live: LiveAddresses, *, versions: bool = False) -> Undone:
    """Delete the copies that are due, and their manifests. With `versions`, delete old versions of deleted objects.

    `live` is asked before each pass which addresses are live. A quarantined object that is live again but missing from
    its path is not purged.

    The purge determines what is due under the lease, while no sweep runs. Copies that another run changes after that
    are skipped. Errors: GuardRefused unless `approved` is the hash of exactly the due copies, when the ledgers are of
    another location than the configured one (`live` then knows nothing of their objects), and when this machine's clock
    is wrong: it decides what is due; errors of `live`.
    """
    require_same_place(undo.warehouse, undo.repository)
    require_clock(undo.repository, undo.access(), undo.clock)
    with undo.frames:
        return _purged(undo, approved, live, versions=versions)


def _purged(undo: Undo, approved: str, live: LiveAddresses, *, versions: bool) -> Undone:
    lease = _leased(undo)
    try:
        due = due_for_purge(undo, versions=versions)
    finally:
        release_lease(undo.warehouse, lease, undo.clock())
    if not due.is_anything or due.digest != approved.lower():
        raise GuardRefused(
            f"{undo.repository.name}: {approved} is not the hash of what may be purged now. Nothing was deleted. "
            f"See it: `retention purge {undo.repository.name}{' --versions' if versions else ''}`."
        )
    if versions:
        access = undo.access()
        return _carried(undo, "purge", due.rows, lambda _: RemoveVersions(access), live)

    def action(plan: Plan) -> Purge:
        return Purge(place_of_plan(undo.repository, plan), due.keeps_versions)

    done = _carried(undo, "purge", due.rows, action, live)
    manifests = [*(one.plan for one in due.rows), *due.manifests]
    return replace(done, failed=done.failed + _clear(undo, [action(plan) for plan in manifests]))


def _clear(undo: Undo, actions: Sequence[Purge]) -> int:
    """Delete the manifests of plans that have no copies left. Return how many manifests could not be deleted."""
    try:
        lease = _leased(undo)
    except GuardRefused as error:  # the next purge deletes these manifests
        undo.log(f"{undo.repository.name}: manifests of purged copies are left for the next purge. {error}")
        return 0
    try:
        return sum(remove_manifests(action) for action in actions)
    finally:
        release_lease(undo.warehouse, lease, undo.clock())


def _lying_here(undo: Undo, found: Copies, rows: DataFrame) -> DataFrame:
    """Return `rows` without the copies that were moved to another quarantine location and are not in the current one.

    Deleting an object that does not exist succeeds, so the ledger would call such copies purged while they still exist
    elsewhere. The log names them.
    """
    if not found.plans:
        return rows
    url = next(iter(found.plans.values()))[1].access.url
    here = F.concat_ws("/", F.lit(url), "folder", F.lit(COPIES), "address")
    is_here = F.coalesce(F.col("current_size") == F.col("size"), F.lit(False))
    lacks = F.col("recorded") & F.coalesce(F.col("detail") != here, F.lit(True)) & ~is_here
    left = rows.where(lacks).groupBy("folder").agg(F.count(F.lit(1)), F.min("detail")).sort("folder").collect()
    for folder, objects, first in left:
        plan, place = found.plans[folder]
        undo.log(
            f"{undo.repository.name}: {objects:,} copies of the plan of {plan.day} are left out: they are not below "
            f"{place.describe('')}, but were moved to {first} and the like. To purge them, set quarantine.url to where "
            "they are, and run again."
        )
    return rows.where(~lacks)


def _count_and_first(rows: DataFrame, column: str) -> tuple[int, str | None]:
    row = rows.agg(F.count(F.lit(1)), F.min(column)).first()
    assert row is not None
    return row[0], row[1]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def _chosen(undo: Undo, selection: Selection) -> list[OfPlan]:
    """Return, by plan, the selected objects that can be restored."""
    chosen: list[OfPlan] = []
    for found in undo.restorable():
        if selection.plan_hash is None or found.plan.plan_hash.startswith(selection.plan_hash.lower()):
            picked = undo.frames.cache(_picked(undo, found.plan, found.rows, selection))
            if picked.count():
                chosen.append(replace(found, rows=picked))
    return chosen


def _picked(undo: Undo, plan: Plan, rows: DataFrame, selection: Selection) -> DataFrame:
    if selection.address is not None:
        rows = rows.where(F.col("address") == selection.address)
    if selection.path is not None:
        planned = planned_objects(undo.spark, undo.warehouse, plan).select("address", F.explode("paths").alias("path"))
        path = selection.path.rstrip("/")
        wanted = planned.where((F.col("path") == path) | below_any(F.col("path"), [path])).select("address")
        rows = rows.join(wanted, on="address", how="left_semi")
    return rows


def _carried(
    undo: Undo,
    kind: str,
    chosen: Sequence[OfPlan],
    action: Callable[[Plan], Action],
    live: LiveAddresses | None = None,
) -> Undone:
    ended: dict[str, Amount] = {}
    alone = undo.repository.settings.sweep.single_machine
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=alone)
    failed = 0
    for one in chosen:
        engine = EndedEngine(undo, one, live)
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
        for name, amount in _carry(undo, run, engine).outcomes.items():
            ended[name] = together([ended.get(name, Amount()), amount])
        failed += engine.failed
    return Undone(ended, failed)


def _leased(undo: Undo) -> Lease:
    sweep = undo.repository.settings.sweep
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=sweep.single_machine)
    return take_lease(undo.warehouse, undo.repository.name, undo.run_id, undo.clock(), sweep.lease)


def _carry(undo: Undo, run: SweepRun, engine: "EndedEngine") -> SweepResult:
    started = undo.clock()
    approval = Approval(run.plan.plan_hash, run.plan.day.isoformat(), undo.person, started.isoformat())
    run.seal.copy_records(undo.warehouse, run.plan.repository)
    lease = take_lease(undo.warehouse, run.plan.repository, undo.run_id, started, run.limits.sweep.lease)
    try:
        return work_and_conclude(run, engine, approval, lease, started)
    finally:
        release_lease(undo.warehouse, lease, undo.clock())


class EndedEngine:
    """The engine of a restore or purge: copies or versions of the objects of one plan. See `Engine`.

    Each row has an address, its size, and `seen`: the fence of the newest ledger row when the copies were listed.
    Objects that another run changed after that are skipped. `surplus` copies have a ledger of their own, because the
    totals of the plan count its objects, and the objects of surplus copies are still at their path.

    `live` knows the live addresses; None for a restore, which cannot lose data.
    """

    def __init__(self, undo: Undo, found: OfPlan, live: LiveAddresses | None = None) -> None:
        self._undo = undo
        self._live = live
        self._plan = found.plan
        rows = found.rows
        self._rows = rows if "surplus" in rows.columns else rows.withColumn("surplus", F.lit(False))
        self._rest: DataFrame | None = None
        self._surplus = found.surplus
        self.failed = 0  # objects, in this run

    def surplus(self) -> Mapping[str, Any]:
        """Return the entry of the audit record for surplus copies: their number, bytes and digest."""
        digest = candidates_digest(self._rows.where("surplus").select("address", "size"))
        return {"surplus_copies": self._surplus.objects, "bytes": self._surplus.bytes, "digest": digest}

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`. All objects are one batch: nothing has to be checked between batches."""
        ledger = self._ledger()
        known = (F.col("fence") == fence) & (F.col("outcome") != Outcome.ATTEMPTED)
        is_others = (F.col("fence") != fence) & (F.col("fence") > F.col("seen"))
        touched = ledger.join(self._rows.select("address", "seen"), on="address").where(is_others).select("address")
        done = ledger.where(known).select("address").unionByName(touched)
        if self._surplus.objects:
            done = done.unionByName(self._ledger(SURPLUS_LEDGERS).where(known).select("address"))
        self._rest = self._rows.join(done, on="address", how="left_anti")
        objects = self._rest.count()
        return [objects] if objects else []

    def resurrected(self) -> int:
        """See `Engine`."""
        return 0

    def check(self, number: int) -> Batch[DataFrame]:
        """See `Engine`."""
        assert self._rest is not None
        checked_at = self._undo.clock()
        empty = {"last_modified": F.lit(None).cast("timestamp"), "etag": F.lit(None).cast("string")}
        undecided = {"outcome": F.lit(None).cast("string"), "detail": F.lit(None).cast("string")}
        objects = self._rest.withColumns({**empty, **undecided})
        if self._live:
            objects = self._sparing(objects, self._live.now())
        if self._surplus.objects:
            objects = _left(objects, self._alone(objects), _ALONE)
        return Batch(objects.select(*OBJECTS.names, "surplus"), checked_at)

    def _sparing(self, objects: DataFrame, live: DataFrame) -> DataFrame:
        """Skip objects that are live again but missing from their path: the copy may be the last one."""
        again = objects.join(live, on="address", how="left_semi").select("address")
        absent = presence(again, self._undo.access()).where(F.col("last_modified").isNull())
        lacking = self._undo.frames.cache(absent.select("address"))
        number, first = _count_and_first(lacking, "address")
        if not number:
            return objects
        name = self._undo.repository.name
        self._undo.log(
            f"{name}: {number:,} objects came back to life and are not where they were, {first} first: they are left. "
            f"Bring them back: from quarantine by `retention restore {name} --address {first}`, else from the "
            "bucket's versions."
        )
        return _left(objects, lacking, _NEEDED)

    def _alone(self, objects: DataFrame) -> DataFrame:
        """Return the addresses of surplus copies whose objects are no longer at their path."""
        copies = objects.where("surplus").select("address", "size")
        there = presence(copies.select("address"), self._undo.access())
        alone = copies.join(there.select("address", "size"), on=["address", "size"], how="left_anti")
        return self._undo.frames.cache(alone.select("address"))

    def run(self, objects: Batch[DataFrame], task: TaskSpec) -> Done:
        """See `Engine`."""
        done = run_on_spark(objects.objects.where("NOT surplus"), task)
        if self._surplus.objects:
            beside = replace(task, ledger=replace(task.ledger, tree=SURPLUS_LEDGERS))
            done = _both(done, run_on_spark(objects.objects.where("surplus"), beside))
        self.failed += done.amounts.get(Outcome.FAILED, Amount()).objects
        return done

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts_of(latest_of(self._ledger()))

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self._undo.spark, self._undo.warehouse, self._plan.repository, self._plan.key, fence)

    def _ledger(self, tree: str = LEDGERS) -> DataFrame:
        return read_ledgers(self._undo.spark, self._undo.warehouse, self._plan.repository, [self._plan.key], tree)


def _left(objects: DataFrame, addresses: DataFrame, why: str) -> DataFrame:
    """Return `objects` with the outcome `skipped` and the detail `why` for those at `addresses`."""
    spared = addresses.select("address", F.lit(Outcome.SKIPPED).alias("left"), F.lit(why).alias("why"))
    decided = {"outcome": F.coalesce("outcome", "left"), "detail": F.coalesce("detail", "why")}
    return objects.join(spared, on="address", how="left").withColumns(decided).drop("left", "why")


def _both(one: Done, other: Done) -> Done:
    names = one.amounts.keys() | other.amounts.keys()
    amounts = {name: together([one.amounts.get(name, _NONE), other.amounts.get(name, _NONE)]) for name in names}
    until = max((at for at in (one.until, other.until) if at), default=None)
    return Done(amounts, until, other.reached or one.reached)
