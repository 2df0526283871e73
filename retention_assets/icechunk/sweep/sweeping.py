"""Sweeps an Icechunk repository: applies the plan's edits to the history, then removes the files, phase by phase.

Source: DESIGN.md, invariants 4 and 5.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.edits.stored import (
    begin_publication,
    edits_left,
    keep_publication,
    removed_references,
    unexplained,
    without_existing,
)
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.sweep.layout import IcechunkLayout, characters
from retention_assets.icechunk.sweep.liveness import IcechunkLiveness, IcechunkLivenessQuery
from retention_assets.icechunk.sweep.reach import IcechunkSweep
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.spark.frames import from_arrow
from retention_assets.state.lease import Lease
from retention_assets.state.ledger import ledger_of_plan, report_of
from retention_assets.state.plan import Plan, planned_heads
from retention_assets.sweep.engine import RepositorySweep
from retention_assets.sweep.sweep_run import Report, chosen_plan, planned_as_approved, require_clock, sweep_plan


def report(sweep: IcechunkSweep, *, execute: bool = True, plan_hash: str = "") -> Report:
    """Return the report of the day's plan, with the removed references.

    With `execute`, the plan is swept first, unless the repository's mode is `plan`.
    Errors: GuardRefused if the plan does not have the hash `plan_hash`. An empty `plan_hash` allows any plan.
    """
    mode = sweep.opened.repository.settings.mode
    plan = chosen_plan(sweep, plan_hash)
    if execute and mode != "plan":
        sweep_plan(sweep, mode, IcechunkRepositorySweep(sweep, plan))
    objects = report_of(ledger_of_plan(sweep.spark, sweep.warehouse, sweep.name, sweep.day, plan.plan_hash))
    references = from_arrow(sweep.spark, removed_references(sweep.warehouse, plan))
    return Report(plan, mode, objects.unionByName(references))


class IcechunkRepositorySweep(RepositorySweep):
    """The sweep of a plan of an Icechunk repository; see `RepositorySweep`."""

    publishes = True
    dump = None

    def __init__(self, sweep: IcechunkSweep, plan: Plan) -> None:
        """Errors: GuardRefused if the plan, its policy or its location is not as approved, or if clocks differ."""
        self._sweep, self.plan = sweep, plan
        self._policy = sweep.opened.policy()
        self.candidates = planned_as_approved(sweep, plan, self._policy.policy_hash)
        self._edits = edits = edits_left(sweep.warehouse, plan)
        self.history_changes = count_history_changes(edits)
        require_clock(sweep.opened.repository, sweep.opened.access, sweep.clock)
        self.access = sweep.opened.access
        listed = sum(amount.objects for amount in plan.totals.values())
        self.layout = IcechunkLayout(characters(listed, sweep.limits.sweep.round))
        self._heads = planned_heads(sweep.warehouse, plan)
        self._liveness = IcechunkLiveness(sweep, IcechunkLivenessQuery(self._policy, edits, self.candidates))

    def require_same(self) -> None:
        """See `RepositorySweep`."""
        self._sweep.others.require_known()
        self._liveness.require_same(self.plan, self._heads)

    def live_now(self) -> Liveness:
        """See `RepositorySweep`."""
        return self._liveness.now()

    def live_after_edits(self) -> Liveness:
        """See `RepositorySweep`."""
        return self._liveness.projected()

    def publish(self, lease: Lease) -> Mapping[str, Any]:
        """See `RepositorySweep`. Applies the plan's edits to the history and records them."""
        sweep, plan, edits = self._sweep, self.plan, self._edits
        ObjectWriter(self.access).require_conditions()
        begin_publication(sweep.warehouse, plan, edits, lease, sweep.clock())
        published = publish(self.access, edits, self._policy, sweep.clock, sweep.log)
        sweep.log(
            f"{sweep.name} {sweep.day}: published: {len(edits.released):,} snapshots released, "
            f"{len(published.references_removed):,} references removed now, {published.conflicts:,} conflicts"
        )
        if published.left:
            sweep.log(
                f"{sweep.name} {sweep.day}: {published.left:,} more snapshots and references have expired since the "
                "plan. They stay until a plan that contains them is approved."
            )
        gone = unexplained(sweep.warehouse, plan, edits, published)
        if gone:
            gone = without_existing(gone, sweep.opened.source.state().history)
        return keep_publication(sweep.warehouse, plan, published, gone, lease, sweep.clock())

    def finish(self, outcomes: Mapping[str, Amount], ledger: DataFrame) -> None:
        """See `RepositorySweep`. Logs how many objects were not tried because objects that reference them failed."""
        sweep = self._sweep
        left = self.plan.candidates.objects - sum(amount.objects for amount in outcomes.values())
        if left and Outcome.FAILED in outcomes:
            failed = outcomes[Outcome.FAILED].objects
            sweep.log(
                f"{sweep.name} {sweep.day}: {failed:,} objects failed, so {left:,} objects that they may reference "
                f"were not tried. Try again: `retention sweep {sweep.name} --as-of {sweep.day}`."
            )

    def release(self) -> None:
        """See `RepositorySweep`."""
        self._liveness.release()


def count_history_changes(edits: PlannedEdits) -> int:
    """Return the number of snapshots and references that the plan removes; a budget counts each as one object."""
    snapshots = {*edits.released, *edits.dropped}
    return len(snapshots) + len(edits.deleted)
