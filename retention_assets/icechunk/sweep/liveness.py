"""The liveness check of Icechunk repositories: reads the state again and applies the plan's rules to it.

Before the plan's edits are published, the check projects the state after them. Afterwards it uses the state as it is.
Source: DESIGN.md, invariant 5.
"""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.candidates import is_content
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.reach import IcechunkSweep, current_cache, reach_of, unread_refusal
from retention_assets.icechunk.sweep.retained_set import RetainedSet, current_retained_set, held_ids, retained_set_of
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.plan import Heads, Plan


@dataclass(frozen=True, slots=True)
class IcechunkLivenessQuery:
    """The inputs of a liveness check: the policy, the planned edits, and the objects of the plan."""

    policy: SnapshotPolicy
    planned: PlannedEdits
    candidates: DataFrame


class IcechunkLiveness:
    """Checks what is live, any number of times. Unchanged snapshot files and manifests are not read again."""

    def __init__(self, sweep: IcechunkSweep, query: IcechunkLivenessQuery) -> None:
        self._sweep = sweep
        self._query = query
        self._last: tuple[RetainedSet, Liveness] | None = None

    def now(self) -> Liveness:
        """Return the files that must stay now. Errors: GuardRefused when this cannot be determined."""
        query = self._query
        checked_at, state = self._sweep.clock(), self._state()
        held = held_ids(state, query.policy, query.planned.as_of)
        return self._of(current_retained_set(state, query.planned.cutoff, held), checked_at)

    def projected(self) -> Liveness:
        """Return the files that must stay once the planned edits are published. Errors: GuardRefused, as in `now`."""
        query = self._query
        checked_at, state, planned = self._sweep.clock(), self._state(), query.planned
        return self._of(retained_set_of(state, query.policy, planned.as_of, planned.cutoff, planned), checked_at)

    def require_same(self, plan: Plan, heads: Heads) -> None:
        """Refuse a repository that has another format than planned, was created again, or was rolled back.

        Every snapshot that a branch or tag named at planning must still be known, unless the plan itself releases or
        drops it.
        """
        planned, state = self._query.planned, self._state()
        if state.format != planned.format:
            raise _another(plan, f"it has format {state.format}, and the plan is for format {planned.format}")
        known = {encode_id(snapshot_id) for snapshot_id in state.history.snapshots}
        going = {*planned.released, *planned.dropped}
        named = {**{f"tag {name}": tip for name, tip in heads.tags.items()}, **heads.branches}
        gone = sorted(f"{name} named {tip}" for name, tip in named.items() if tip not in known | going)
        if gone:
            raise _another(plan, f"{gone[0]}, which no longer exists")

    def release(self) -> None:
        """Release the cached rows. The rows that any check returned must not be used any more."""
        if self._last:
            self._last[1].live.unpersist()
            self._last = None

    def _state(self) -> IcechunkState:
        return self._sweep.opened.source.state()

    def _of(self, retained: RetainedSet, checked_at: datetime) -> Liveness:
        """Return the files that `retained` reaches; use the last result while the same snapshots and logs stay.

        Errors: GuardRefused when the plan has manifests or chunks, and it is unknown which of them are needed.
        """
        if self._last and _stays(self._last[0]) == _stays(retained):
            known = self._last[1]
            return Liveness(known.live, known.committed, checked_at)
        reach = reach_of(self._sweep.spark, current_cache(self._sweep), retained)
        if reach.unread and not self._query.candidates.where(is_content(F.col("address"))).isEmpty():
            raise GuardRefused(
                f"{self._sweep.name} {self._sweep.day}: {unread_refusal(reach.unread)} Nothing more was "
                "deleted. Put this file back, then run the same command again. Or plan again: "
                f"`retention plan {self._sweep.name} --as-of {self._sweep.day}`."
            )
        live = reach.live().cache()
        if self._last:
            self._last[1].live.unpersist()
        found = Liveness(live, live, checked_at)  # `committed` is `live`: here unreferenced means not live
        self._last = retained, found
        return found


def _stays(retained: RetainedSet) -> tuple[frozenset[bytes], frozenset[bytes]]:
    return retained.snapshots, retained.transaction_logs


def _another(plan: Plan, why: str) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository} {plan.day}: the repository is not the one that was planned: {why}. Nothing was changed or "
        f"deleted. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
    )
