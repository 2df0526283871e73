"""Bringing quarantined objects back, and purging those whose time is over: each a sweep of its own, in the same ledger.

Restoring does not look at what is live, for it only adds. Purging does: what it deletes may be an object's last bytes.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config import Repository
from retention_assets.errors import GuardRefused
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.listing import Prefixes, list_objects
from retention_assets.stores.presence import presence
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.approval import Approval
from retention_assets.sweep.deeds import OF_COPY, Purge, RemoveVersions, Restore
from retention_assets.sweep.engine import Done, Round, run_on_spark, width
from retention_assets.sweep.execute import Carried, Charge, Clock, Log, work_and_conclude
from retention_assets.sweep.lease import MARGIN, release_lease, require_seen_by_all, take_lease
from retention_assets.sweep.ledger import (
    ATTEMPTED,
    DELETED,
    MISSING,
    PURGED,
    QUARANTINED,
    RESTORED,
    SKIPPED,
    ended_of,
    latest_of,
    newest_of,
    plans_with_ledgers,
    read_ledgers,
)
from retention_assets.sweep.plan import Amount, Plan, find_plan, planned_objects, together
from retention_assets.sweep.quarantine import place_of_plan
from retention_assets.sweep.records import seal_of
from retention_assets.sweep.spark import amounts_of, ledger_digest
from retention_assets.sweep.work import OBJECTS, Deed, Orders
from retention_assets.transforms.digest import candidates_digest
from retention_assets.transforms.paths import below_any

_NEEDED = "came back to life, and is not where it was: these are its last bytes"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which quarantined objects: of one plan, below one path of the repository, one address; nothing given: all."""

    plan_hash: str | None = None
    path: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Who works on a repository's quarantine, and with what."""

    spark: SparkSession
    warehouse: Warehouse
    repository: Repository
    run_id: str
    person: str
    log: Log
    clock: Clock

    def access(self) -> StoreAccess:
        """Return the repository's own store."""
        return StoreAccess(self.repository.storage, self.repository.storage_options())

    def quarantined(self) -> "Chosen":
        """Return the rows of each plan that say what was moved last, with the columns of `LEDGER`.

        What could not be restored or purged since is still where it was.
        """
        return [(plan, ended_of(rows).where(F.col("outcome") == QUARANTINED)) for plan, rows in self._ledgers()]

    def with_versions(self) -> "Chosen":
        """Return the rows of each plan that say what is gone, but for the versions that a bucket may keep of it.

        Of what is in quarantine they stay, in case its copy is lost. What several plans name is of the last of them.
        """
        ledgers = self._ledgers()
        if not ledgers:
            return []
        ended = [ended_of(rows).withColumn("ledger", F.lit(number)) for number, (_, rows) in enumerate(ledgers)]
        everywhere = reduce(DataFrame.unionByName, ended)
        moved = everywhere.where(F.col("outcome") == QUARANTINED).select("address")
        purged_copy = (F.col("outcome") == PURGED) & (F.col("detail") == OF_COPY)
        last = ended_of(everywhere).where(F.col("outcome").isin(DELETED, MISSING) | purged_copy)
        gone = last.join(moved, on="address", how="left_anti").cache()  # every plan asks it
        return [
            (plan, gone.where(F.col("ledger") == number).drop("ledger")) for number, (plan, _) in enumerate(ledgers)
        ]

    def restorable(self) -> "Chosen":
        """Return the rows of each plan that say what can be brought back: what is in quarantine.

        So may be what a sweep was at when it was cut off; nobody says so but the copy itself. A worker of that sweep
        may be at it still, until the window of its look is over: restored before, an object would go once more, and
        its copy with it. Such objects are left where they are, and the log says until when.
        """
        found = []
        limit = self.clock() - self.repository.settings.sweep.window - MARGIN
        for plan, rows in self._ledgers():
            known = ended_of(rows).where(F.col("outcome") == QUARANTINED)
            unknown = newest_of(rows).where(F.col("outcome") == ATTEMPTED)
            unsaid = unknown.join(known.select("address"), on="address", how="left_anti").cache()
            self._tell_of_recent(unsaid.where(F.col("at") > F.lit(limit)))
            found.append((plan, known.unionByName(self.copied(plan, unsaid.where(F.col("at") <= F.lit(limit))))))
        return found

    def _tell_of_recent(self, rows: DataFrame) -> None:
        row = rows.agg(F.count(F.lit(1)), F.max(F.unix_micros("at"))).first()
        assert row is not None
        if row[0]:
            free = datetime.fromtimestamp(row[1] / 1e6, UTC) + self.repository.settings.sweep.window + MARGIN
            self.log(
                f"{self.repository.name}: a sweep that was cut off may still be at {row[0]:,} objects, which are left "
                f"as they are. Those of them that it moved can be brought back after {free:%Y-%m-%d %H:%M:%S} UTC."
            )

    def _ledgers(self) -> "Chosen":
        """Return every row of each plan's ledger."""
        found = []
        for day, plan_hash in plans_with_ledgers(self.warehouse, self.repository.name):
            plan = find_plan(self.warehouse, self.repository.name, plan_hash, date.fromisoformat(day))
            found.append((plan, read_ledgers(self.spark, self.warehouse, self.repository.name, [(day, plan_hash)])))
        return found

    def copied(self, plan: Plan, rows: DataFrame) -> DataFrame:
        """Return the rows of which a whole copy is in the plan's quarantine."""
        if rows.isEmpty():
            return rows
        place = place_of_plan(self.repository, plan)
        place.prepare()
        copies = list_objects(self.spark, place.access, Prefixes((place.path(""),), ()))
        there = copies.select(F.substring("address", len(place.path("")) + 1, 2**31 - 1).alias("address"), "size")
        return rows.join(there, on=["address", "size"], how="left_semi")


Chosen = list[tuple[Plan, DataFrame]]


@dataclass(frozen=True, slots=True)
class Due:
    """What may be purged, by plan, with its amount and the hash that approves it."""

    rows: Chosen = field(repr=False)
    amount: Amount
    digest: str


def restore(undo: Undo, selection: Selection) -> Mapping[str, Amount]:
    """Bring the selected objects back, and return what became of them by outcome.

    Errors: GuardRefused when nothing is selected, or somebody else sweeps the repository.
    """
    chosen: Chosen = []
    for plan, rows in undo.restorable():
        if selection.plan_hash is None or plan.plan_hash.startswith(selection.plan_hash.lower()):
            picked = _picked(undo, plan, rows, selection).cache()
            if picked.count():
                chosen.append((plan, picked))
    if not chosen:
        raise GuardRefused(
            f"{undo.repository.name}: nothing like that is in quarantine. Nothing was changed. What is there: "
            f"`retention quarantined {undo.repository.name}`."
        )
    access = undo.access()
    place = partial(place_of_plan, undo.repository)
    return _carried(undo, "restore", chosen, lambda plan: Restore(access, place(plan)))


def due_for_purge(undo: Undo, *, versions: bool = False) -> Due:
    """Return what has lain in quarantine longer than `quarantine.keep`; with `versions`, what is gone.

    Of what is gone, a versioned bucket may keep at least the bytes that were planned.
    """
    limit = undo.clock() - (timedelta(0) if versions else undo.repository.settings.quarantine.keep)
    due: Chosen = []
    digests, amount = [], Amount()
    for plan, rows in undo.with_versions() if versions else undo.quarantined():
        over = rows.where(F.col("at") <= F.lit(limit))
        over = (over if versions else _lying_here(undo, plan, over)).cache()
        found = amounts_of(over).values()
        if found:
            due.append((plan, over))
            digests.append(f"{plan.plan_hash}:{candidates_digest(over.select('address', 'size'))}")
            amount = together([amount, *found])
    return Due(due, amount, _digest(digests))


def purge(undo: Undo, approved: str, kept: Callable[[], DataFrame], *, versions: bool = False) -> Mapping[str, Amount]:
    """Delete the copies whose window is over, or the versions of what is gone, for good.

    `kept` tells what the repository keeps now (`kept_now`), and is asked before each pass: what is kept again and
    lacks is left. Errors: GuardRefused unless `approved` is the hash of just these; as `kept`.
    """
    due = due_for_purge(undo, versions=versions)
    if not due.rows or due.digest != approved.lower():
        raise GuardRefused(
            f"{undo.repository.name}: {approved} is not the hash of what may be purged now. Nothing was deleted. "
            f"See it: `retention purge {undo.repository.name}{' --versions' if versions else ''}`."
        )
    if versions:
        access = undo.access()
        return _carried(undo, "purge", due.rows, lambda _: RemoveVersions(access), kept, of_versions=True)
    return _carried(undo, "purge", due.rows, lambda plan: Purge(place_of_plan(undo.repository, plan)), kept)


def _lying_here(undo: Undo, plan: Plan, rows: DataFrame) -> DataFrame:
    """Return the rows without those whose copies went elsewhere than to the quarantine of now, and are not here.

    A deletion that finds nothing is a success: such copies would count as purged, and be nobody's. The log tells.
    """
    here = place_of_plan(undo.repository, plan).describe("")
    elsewhere = rows.where(F.col("detail") != F.concat(F.lit(here), F.col("address")))
    found = undo.copied(plan, elsewhere).select("address")
    lacking = elsewhere.join(found, on="address", how="left_anti").select("address", "detail").cache()
    objects, first = _count_and_first(lacking, "detail")
    if not objects:
        return rows
    undo.log(
        f"{undo.repository.name}: {objects:,} copies of the plan of {plan.day} are left out: they are not below "
        f"{here}, but were moved to {first} and the like. To purge them, set quarantine.url to where they are, and "
        "run again."
    )
    return rows.join(lacking.select("address"), on="address", how="left_anti")


def _count_and_first(rows: DataFrame, column: str) -> tuple[int, str | None]:
    row = rows.agg(F.count(F.lit(1)), F.min(column)).first()
    assert row is not None
    return row[0], row[1]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


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
    chosen: Chosen,
    deed: Callable[[Plan], Deed],
    kept: Callable[[], DataFrame] | None = None,
    *,
    of_versions: bool = False,
) -> dict[str, Amount]:
    ended: dict[str, Amount] = {}
    alone = undo.repository.settings.sweep.single_machine
    require_seen_by_all(undo.warehouse, undo.repository.name, undo.access(), single_machine=alone)
    for plan, rows in chosen:
        charge = Charge(
            warehouse=undo.warehouse,
            plan=plan,
            kind=kind,
            mode=kind,
            deed=deed(plan),
            limits=undo.repository.settings,
            run_id=undo.run_id,
            clock=undo.clock,
            log=undo.log,
            workers=width(undo.spark),
            seal=seal_of(undo.repository),
        )
        engine = EndedEngine(undo, plan, rows, kept, of_versions=of_versions)
        for name, amount in _carry(undo, charge, engine).outcomes.items():
            ended[name] = together([ended.get(name, Amount()), amount])
    return ended


def _carry(undo: Undo, charge: Charge, engine: "EndedEngine") -> Carried:
    started = undo.clock()
    approval = Approval(charge.plan.plan_hash, charge.plan.day.isoformat(), undo.person, started.isoformat())
    charge.seal.copy_records(undo.warehouse, charge.plan.repository)
    lease = take_lease(undo.warehouse, charge.plan.repository, undo.run_id, started, charge.limits.sweep.lease)
    try:
        return work_and_conclude(charge, engine, approval, lease, started)
    finally:
        release_lease(undo.warehouse, lease, undo.clock())


class EndedEngine:
    """Objects of one plan that an earlier sweep moved or deleted, as an engine of the sweep; see `Engine`.

    `kept` tells what must stay; None: whatever is done to them, nothing is lost.
    """

    def __init__(
        self,
        undo: Undo,
        plan: Plan,
        rows: DataFrame,
        kept: Callable[[], DataFrame] | None = None,
        *,
        of_versions: bool = False,
    ) -> None:
        self._undo = undo
        self._kept = kept
        self._of_versions = of_versions
        self._plan = plan
        self._rows = rows
        self._rest: DataFrame | None = None

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`. All in one round: there is nothing to look at between two."""
        moved_on = F.col("outcome").isin(PURGED, RESTORED)
        if self._of_versions:  # they are there when the copy is gone
            moved_on &= F.col("detail").isNull() | (F.col("detail") != OF_COPY)
        known_by_now = (F.col("fence") == fence) & (F.col("outcome") != ATTEMPTED)
        done = self._ledger().where(moved_on | known_by_now).select("address")
        self._rest = self._rows.join(done, on="address", how="left_anti")
        objects = self._rest.count()
        return [objects] if objects else []

    def revived(self) -> int:
        """See `Engine`."""
        return 0

    def look(self, number: int) -> Round[DataFrame]:
        """See `Engine`."""
        assert self._rest is not None
        looked_at = self._undo.clock()
        empty = {"last_modified": F.lit(None).cast("timestamp"), "etag": F.lit(None).cast("string")}
        undecided = {"outcome": F.lit(None).cast("string"), "detail": F.lit(None).cast("string")}
        objects = self._rest.withColumns({**empty, **undecided})
        if self._kept:
            objects = self._sparing(objects, self._kept())
        return Round(objects.select(*OBJECTS.names), looked_at)

    def _sparing(self, objects: DataFrame, kept: DataFrame) -> DataFrame:
        """Decide that what is kept again, and is not there, is left: then what is to go are its last bytes."""
        again = objects.join(kept, on="address", how="left_semi").select("address")
        lacking = presence(again, self._undo.access()).where(F.col("last_modified").isNull()).select("address").cache()
        number, first = _count_and_first(lacking, "address")
        if not number:
            return objects
        name = self._undo.repository.name
        self._undo.log(
            f"{name}: {number:,} objects came back to life and are not where they were, {first} first: they are left. "
            f"Bring them back: from quarantine by `retention restore {name} --address {first}`, else from the "
            "bucket's versions."
        )
        spared = lacking.select("address", F.lit(SKIPPED).alias("left"), F.lit(_NEEDED).alias("why"))
        decided = {"outcome": F.col("left"), "detail": F.col("why")}
        return objects.join(spared, on="address", how="left").withColumns(decided)

    def run(self, objects: Round[DataFrame], orders: Orders) -> Done:
        """See `Engine`."""
        return run_on_spark(objects.objects, orders)

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts_of(self._ledger())

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self._undo.spark, self._undo.warehouse, self._plan, fence)

    def _ledger(self) -> DataFrame:
        plans = [(self._plan.day.isoformat(), self._plan.plan_hash)]
        return latest_of(read_ledgers(self._undo.spark, self._undo.warehouse, self._plan.repository, plans))
