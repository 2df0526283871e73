"""The engine of a restore or purge: it finds the objects that remain, and checks them before each pass.

See `retention_assets.sweep.undo`, which decides what is restored or purged.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted, sums_of
from retention_assets.core.digest import candidates_digest
from retention_assets.core.liveness import LiveAddresses
from retention_assets.objectstore.listing import presence
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.state.acknowledged import acknowledged_addresses
from retention_assets.state.ledger import (
    LEDGERS,
    SURPLUS_LEDGERS,
    latest_of,
    recorded_sweeps,
    rows_of_sweeps,
)
from retention_assets.sweep.actions import GONE_AGAIN
from retention_assets.sweep.copies import PlanCopies, Undo
from retention_assets.sweep.engine import Batch, BatchResult, LedgerEngine, run_on_spark
from retention_assets.sweep.purges import OTHER_BYTES, Purge
from retention_assets.sweep.worker import OBJECTS, TaskSpec

_IS_LAST = "is live again but missing from its path, or has another size there: this copy may be the last"
_IS_LIVE = "is live again: its versions stay"
_IS_LOST = f"{OF_COPY} is lost, and a person acknowledged the loss of the object: nothing was deleted"
_MAY_BE_LAST = "the object is missing from its path: this copy may be the last"
_OF_OTHERS = "of others"  # the key of the log line about objects that another run changed


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
                f"of {self._plan.day} meanwhile, {first} first. Objects of the other run are not purged now. "
                "A later purge deletes those that are due then."
            )
        return changed

    def _count_overtaken(self, touched: DataFrame) -> None:
        """Count the objects that another run changed after they were selected, and did not restore."""
        number, first = _count_and_first_address(touched.where("NOT is_restored"))
        if number > self.overtaken:
            self._undo.log(
                f"{self._undo.repository.name}: another run changed {number:,} of the selected objects of the plan of "
                f"{self._plan.day} meanwhile, {first} first. This run leaves changed objects as they are."
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
            missing = self._without_object(objects.where("surplus"))
            objects = _decided(objects, missing, Outcome.SKIPPED, _MAY_BE_LAST)
        return Batch(objects.select(*OBJECTS.names, "surplus"), checked_at)

    def _skip_live(self, objects: DataFrame, live: DataFrame) -> DataFrame:
        """Return `objects`, with the outcome `skipped` for those that are live again and not at their path.

        The copy of such an object may be the last one. If versions are purged, all objects that are live again are
        skipped. `run` compares the copies of the other objects that are live again (`_live_again`).

        An object that is acknowledged as lost gets the outcome `purged` if the quarantine has no copy of it. Nothing is
        deleted: if a person puts the copy back meanwhile, it stays.
        """
        of_live = objects.select("address", "size").join(live, on="address", how="left_semi")
        of_live = self._undo.frames.cache(of_live)
        if of_live.isEmpty():
            return objects
        if self._of_versions:
            number, first = _count_and_first_address(of_live)
            self._undo.log(
                f"{self._undo.repository.name}: {counted(number, 'object is', 'objects are')} live again, {first} "
                "first. No versions of live objects were deleted."
            )
            return _decided(objects, of_live, Outcome.SKIPPED, _IS_LIVE)
        self._live_again = of_live.select("address")
        missing = self._without_object(of_live)
        lost = self._acknowledged(objects.where("is_lost").join(missing, on="address", how="left_semi"))
        if lost is not None:
            objects = _decided(objects, lost, Outcome.PURGED, _IS_LOST)
            missing = missing.join(lost, on="address", how="left_anti")
        if missing.isEmpty():
            return objects
        self._log_last_copies(objects.join(missing, on="address", how="left_semi"))
        return _decided(objects, missing, Outcome.SKIPPED, _IS_LAST)

    def _acknowledged(self, objects: DataFrame) -> DataFrame | None:
        """Return the addresses of those objects that a person acknowledged as lost; None: `objects` is empty."""
        if objects.isEmpty():
            return None
        known = acknowledged_addresses(self._spark, self._warehouse, self._plan.repository)
        return self._undo.frames.cache(objects.select("address").join(known, on="address", how="left_semi"))

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
                f"copy under the plan of {self._plan.day}, {first} first. No copy of them was purged. Unless another "
                "plan has a copy, look for them in a backup or, if the bucket keeps versions, among the versions of "
                "the object and of the copy. If an object is lost for good: `retention "
                f"acknowledge {name} {first}`, and purge again."
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
        return result

    def left(self) -> tuple[int, int]:
        """Return how many objects failed in this run, and how many a restore left because of objects at their paths.

        A log line has the number and the first address of the latter.
        """
        of_plan = self._ended(LEDGERS)
        of_surplus = self._ended(SURPLUS_LEDGERS) if self._surplus.objects else {}
        failed = sum(found[Outcome.FAILED][0] for found in (of_plan, of_surplus) if Outcome.FAILED in found)
        if GONE_AGAIN in of_plan:
            number, first = of_plan[GONE_AGAIN]
            failed += number
            self._undo.log(
                f"{self._undo.repository.name}: somebody removed or changed {counted(number, 'object')} of the plan of "
                f"{self._plan.day} after the restore, {first} first. The copies in quarantine stay. To restore again, "
                "run the same command again. If it then says that an interrupted run may still be processing an "
                "object, wait until the time that it names."
            )
        if self._live or Outcome.SKIPPED not in of_plan:
            return failed, 0
        number, first = of_plan[Outcome.SKIPPED]
        self._undo.log(
            f"{self._undo.repository.name}: {counted(number, 'object')} of the plan of {self._plan.day}, {first} "
            "first: not restored, because other objects are at the paths."
        )
        return failed, number

    def _ended(self, tree: str) -> dict[str, tuple[int, str]]:
        """Return, by the outcome of objects in this run (or `GONE_AGAIN`), their number and the first address.

        Spark may try a task twice, so the tallies of the tasks can have more or less than the ledger.
        """
        of_run = latest_of(self._rows(tree).where(F.col("fence") == self._fence))
        ended = F.when(F.col("detail") == GONE_AGAIN, GONE_AGAIN).otherwise(F.col("outcome"))
        found = of_run.groupBy(ended).agg(F.count(F.lit(1)), F.min("address")).collect()
        return {outcome: (number, first) for outcome, number, first in found}

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


def _decided(objects: DataFrame, addresses: DataFrame, outcome: Outcome, why: str) -> DataFrame:
    """Return `objects`; those at `addresses` that have no outcome get this outcome and the detail `why`."""
    found = addresses.select("address", F.lit(outcome).alias("decided"), F.lit(why).alias("why"))
    values = {"outcome": F.coalesce("outcome", "decided"), "detail": F.coalesce("detail", "why")}
    return objects.join(found, on="address", how="left").withColumns(values).drop("decided", "why")


def _combined(one: BatchResult, other: BatchResult) -> BatchResult:
    until = max((at for at in (one.until, other.until) if at), default=None)
    return BatchResult(sums_of(one.amounts, other.amounts), until, other.reached or one.reached)


def _count_and_first_address(rows: DataFrame) -> tuple[int, str | None]:
    row = rows.agg(F.count(F.lit(1)), F.min("address")).collect()[0]
    return row[0], row[1]
