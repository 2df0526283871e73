"""Sweeps an Icechunk repository: applies the plan's edits to the history, then removes the files, phase by phase.

Source: docs/icechunk.md, "What is deleted".
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.amounts import Amount, counted
from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.edits.created_again import marks_of, never_removed
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.edits.stored import (
    begin_publication,
    edits_left,
    interrupted_attempts,
    keep_publication,
    planned_edits,
    removed_references,
    unexplained,
    without_existing,
)
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.candidates import is_content
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.updates import require_online
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.layout import IcechunkLayout, characters
from retention_assets.icechunk.sweep.reach import IcechunkSweep, current_cache, reach_of, unread_refusal
from retention_assets.icechunk.sweep.replaced import EarlierPlans, require_not_replaced
from retention_assets.icechunk.sweep.retained_set import RetainedSet, current_retained_set, held_ids, retained_set_of
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.spark.frames import from_arrow
from retention_assets.state.lease import Lease, require_lease
from retention_assets.state.plan import Heads, Plan, require_plan
from retention_assets.sweep.engine import RepositorySweep
from retention_assets.sweep.sweep_run import Report, planned_as_approved, require_unchanged, swept


def report(sweep: IcechunkSweep, *, execute: bool = True, plan_hash: str = "") -> Report:
    """Return the report of the day's plan, with the removed references.

    With `execute`, the plan is swept first, unless the repository's mode is `plan`.
    Errors: GuardRefused if the plan does not have the hash `plan_hash` (an empty `plan_hash` allows any plan), and when
    the sweep is refused; errors of the sweep.
    """
    found = swept(sweep, IcechunkRepositorySweep, execute=execute, plan_hash=plan_hash)
    references = from_arrow(sweep.spark, removed_references(sweep.warehouse, found.plan))
    return replace(found, ledger=found.ledger.unionByName(references))


class IcechunkRepositorySweep(RepositorySweep):
    """The sweep of a plan of an Icechunk repository; see `RepositorySweep`."""

    publishes = True
    dump = None

    def __init__(self, sweep: IcechunkSweep, plan: Plan) -> None:
        """Load the plan's candidates and edits. Errors: GuardRefused as `planned_as_approved` and `planned_edits`."""
        self._sweep, self.plan = sweep, plan
        self._policy = sweep.opened.policy()
        self.candidates, self._heads = planned_as_approved(sweep, plan, self._policy.policy_hash)
        planned = planned_edits(sweep.warehouse, plan)
        self.history_changes = planned.history_changes().total  # of the whole plan: a budget approves whole plans
        self._planned_deletions, self._edits = planned.deleted, edits_left(sweep.warehouse, plan, planned)
        self.access = sweep.opened.access
        listed = sum(amount.objects for amount in plan.totals.values())
        self.layout = IcechunkLayout(characters(listed, sweep.limits.sweep.round))
        self._last: tuple[RetainedSet, Liveness] | None = None  # of the last liveness check

    def require_same(self) -> None:
        """See `RepositorySweep`."""
        self._sweep.others.require_known()
        sweep, state = self._sweep, self._state()
        require_same_repository(self.plan, self._heads, self._edits, state)
        if state.repo is not None:
            plans = EarlierPlans(sweep.warehouse, sweep.name, state.taken_at)
            require_not_replaced(ObjectReader(self.access), state.repo, plans, self._edits.cutoff)

    def live_now(self) -> Liveness:
        """See `RepositorySweep`. The check uses the state of the repository as it is."""
        require_unchanged(self.plan, self._sweep.opened)
        checked_at, state, edits = self._sweep.clock(), self._state(), self._edits
        held = held_ids(state, self._policy, edits.as_of)
        return self._liveness(current_retained_set(state, edits.cutoff, held), checked_at)

    def live_after_edits(self) -> Liveness:
        """See `RepositorySweep`. The check projects the state after the edits of the plan."""
        checked_at, state, edits = self._sweep.clock(), self._state(), self._edits
        return self._liveness(retained_set_of(state, self._policy, edits.as_of, edits.cutoff, edits), checked_at)

    def _state(self) -> IcechunkState:
        """Return the current state. Errors: GuardRefused, also later in a sweep, if the repository is not online."""
        state = self._sweep.opened.source.state()
        if state.repo is not None:
            require_online(state.repo, "more was changed or deleted")
        return state

    def _liveness(self, retained: RetainedSet, checked_at: datetime) -> Liveness:
        """Return the files that `retained` reaches. The last result is used again if the same snapshots and logs stay.

        Errors: GuardRefused when the plan has manifests or chunks and it is unknown which of them are live.
        """
        sweep = self._sweep
        if self._last:
            last, known = self._last
            if (last.snapshots, last.transaction_logs) == (retained.snapshots, retained.transaction_logs):
                return Liveness(known.live, known.committed, checked_at)
        reach = reach_of(sweep.spark, current_cache(sweep), retained)
        if reach.unread and not self.candidates.where(is_content(F.col("address"))).isEmpty():
            raise GuardRefused(
                f"{sweep.name} {sweep.day}: {unread_refusal(reach.unread)} Nothing more was deleted. Restore this "
                f"file, then run the same command again. Or plan again: `retention plan {sweep.name} --as-of "
                f"{sweep.day}`."
            )
        live = reach.live().cache()
        self.release()
        found = Liveness(live, live, checked_at)  # every referenced file is live, so `committed` adds no file
        self._last = retained, found
        return found

    def publish(self, lease: Lease) -> Mapping[str, Any]:
        """See `RepositorySweep`. Applies the plan's edits to the history and records them."""
        sweep, plan = self._sweep, self.plan
        ObjectWriter(self.access).require_conditions()
        state, planned = self._state(), self._edits
        self._edits = edits = self._without_removed(state, planned)
        marks = marks_of(ObjectReader(self.access), state, edits)
        begin_publication(sweep.warehouse, plan, edits, marks, lease, sweep.clock())
        may_write = partial(self._require_valid, lease)
        accepted = self._planned_deletions
        published = publish(self.access, edits, self._policy, sweep.clock, sweep.log, may_write, accepted)
        sweep.log(
            f"{sweep.name} {sweep.day}: edits applied: {counted(published.released, 'snapshot')} released, "
            f"{counted(len(published.references_removed), 'reference')} removed by this sweep, "
            f"{counted(published.conflicts, 'conflict')} with other writers"
        )
        for one in sorted(published.new):
            sweep.log(
                f"{sweep.name} {sweep.day}: the {one} was created again or moved since the plan. It stays, because "
                f"nobody approved the deletion of a new {one.kind}. To delete it, plan again after `grace`, and "
                "approve that plan."
            )
        if published.left:
            sweep.log(
                f"{sweep.name} {sweep.day}: the plan does not contain "
                f"{counted(published.left, 'expired snapshot or reference', 'expired snapshots and references')}. "
                "They expired later, or sessions may be open on them, or the clock of their writer was slow. They stay "
                "until a plan that contains them is approved."
            )
        gone = unexplained(sweep.warehouse, plan, planned, published)
        if gone:
            gone = without_existing(gone, self._state().history)
        return keep_publication(sweep.warehouse, plan, published, gone, lease, sweep.clock())

    def _without_removed(self, state: IcechunkState, edits: PlannedEdits) -> PlannedEdits:
        """Return the edits without the references that an interrupted sweep of the plan may have removed."""
        sweep, attempts = self._sweep, interrupted_attempts(self._sweep.warehouse, self.plan)
        if not attempts:
            return edits
        left = never_removed(ObjectReader(self.access), state, edits, attempts)
        for one in state.history.references():
            if one in edits.deleted - left:
                sweep.log(
                    f"{sweep.name} {sweep.day}: an interrupted sweep of this plan may have removed the {one.kind} "
                    f"{one.name}. If so, somebody has created it again. It stays, because nobody approved the deletion "
                    f"of a new {one.kind}. To delete it, approve a plan of a later day."
                )
        return replace(edits, deleted=left)

    def _require_valid(self, lease: Lease) -> None:
        """Raise GuardRefused if the lease is lost, sweeps were stopped, or the plan or the policy was replaced.

        Each edit is written after this check.
        """
        sweep = self._sweep
        require_lease(sweep.warehouse, lease, sweep.clock())
        require_plan(sweep.warehouse, sweep.name, self.plan.day, self.plan.plan_hash, undone="deleted")
        require_unchanged(self.plan, self._sweep.opened)
        self.has_edited = True

    def finish(self, outcomes: Mapping[str, Amount], ledger: DataFrame) -> None:
        """See `RepositorySweep`. Logs how many objects were not tried because objects that reference them failed."""
        sweep = self._sweep
        left = self.plan.candidates.objects - sum(amount.objects for amount in outcomes.values())
        if left and Outcome.FAILED in outcomes:
            failed = outcomes[Outcome.FAILED].objects
            sweep.log(
                f"{sweep.name} {sweep.day}: {counted(failed, 'object')} failed. "
                f"{counted(left, 'object was', 'objects were')} not tried, because a failed object may reference them. "
                f"Try again: `retention sweep {sweep.name} --as-of {sweep.day}`."
            )

    def release(self) -> None:
        """See `RepositorySweep`."""
        if self._last:
            self._last[1].live.unpersist()
            self._last = None


def require_same_repository(plan: Plan, heads: Heads, planned: PlannedEdits, state: IcechunkState) -> None:
    """Refuse a repository that has another format than planned, was created again, or was rolled back.

    Every snapshot that a branch or tag named at planning (`heads`) must still be known, unless the plan itself releases
    or drops it.
    """
    if state.format != planned.format:
        raise _another(plan, f"it has format {state.format}, and the plan is for format {planned.format}")
    known = {encode_id(snapshot_id) for snapshot_id in state.history.snapshots}
    going = {*planned.released, *planned.dropped}
    named = [(f"branch {name}", tip) for name, tip in heads.branches.items()]
    named += [(f"tag {name}", tip) for name, tip in heads.tags.items()]
    gone = sorted(f"the {name} named the snapshot {tip}" for name, tip in named if tip not in known | going)
    if gone:
        raise _another(plan, f"{gone[0]}, which no longer exists")


def _another(plan: Plan, why: str) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository} {plan.day}: the repository is not the one that was planned: {why}. Nothing was changed or "
        f"deleted. {plan.again}"
    )
