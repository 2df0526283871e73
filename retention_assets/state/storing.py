"""Stores a plan with its objects and everything that later plans and sweeps read.

Planning does the same for both systems: `keep_objects`, then what only one system stores, then `make_current`. So a
plan becomes the current plan of its day last. A plan that reuses an earlier one starts with `same_objects`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession

from retention_assets.core import guards
from retention_assets.core.other_references import OtherReferences
from retention_assets.core.remedies import CheckResult
from retention_assets.errors import GuardRefused
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.acknowledged import record_found
from retention_assets.state.memory import included_by, keep_due
from retention_assets.state.plan import Heads, Plan, keep_plan, keep_planned, last_plan, planned_objects
from retention_assets.state.policies import keep_policy
from retention_assets.state.reuse import KnownPlan
from retention_assets.warehouse.warehouse import Rows, Warehouse


@dataclass(frozen=True, slots=True)
class PlanObjects:
    """The objects that a plan stores.

    `due`: the candidates and the waiting objects, or an earlier plan that found the same objects due; then the
    candidates are those of that plan. `includes`: the plans whose due objects were read, see `keep_due`. `made_from`:
    the partitions whose rows were read, and the references of other repositories.
    """

    candidates: DataFrame
    due: DataFrame | Plan
    includes: Collection[str]
    made_from: Sequence[Rows | OtherReferences] = ()

    def require_unchanged(self) -> None:
        """Require that no other run replaced the partitions whose rows were read. Errors: TableContractError."""
        for rows in self.made_from:
            rows.require_unchanged()


def live_not_shrunk(warehouse: Warehouse, repository: str, day: date, live: int, limit: float) -> CheckResult:
    """Compare the number of live addresses with that of the last plan. See `guards.live_not_shrunk`."""
    before = last_plan(warehouse, repository, day)
    return guards.live_not_shrunk(live, before.live if before else None, limit)


def same_objects(
    spark: SparkSession, warehouse: Warehouse, known: KnownPlan, day: date, limit: float
) -> tuple[PlanObjects, Sequence[CheckResult]] | None:
    """Return the objects of an earlier plan, and the check results of a new plan of `day` with the same objects.

    None: a guard refuses them, or they are not all stored. `limit`: of `live_not_shrunk`.
    """
    shrunk = live_not_shrunk(warehouse, known.plan.repository, day, known.plan.live, limit)
    check_results = [shrunk if one.guard == shrunk.guard else one for one in known.check_results]
    includes = included_by(warehouse, known.plan)
    if includes is None or guards.refusals(check_results):
        return None
    try:
        return PlanObjects(planned_objects(spark, warehouse, known.plan), known.plan, includes), check_results
    except GuardRefused:  # they are no longer stored
        return None


def keep_objects(
    warehouse: Warehouse, plan: Plan, objects: PlanObjects, heads: Heads, read_at: Collection[datetime]
) -> DataFrame:
    """Store the objects and heads of a plan, and return the stored candidates.

    `read_at`: see `keep_due`. Errors: as `keep_planned`, `keep_due` and `PlanObjects.require_unchanged`.
    """
    same = objects.due if isinstance(objects.due, Plan) else None
    stored = keep_planned(warehouse, plan, objects.candidates, heads, same)
    objects.require_unchanged()
    keep_due(warehouse, plan, objects.due, read_at, objects.includes)
    return stored


def make_current(
    spark: SparkSession,
    warehouse: Warehouse,
    plan: Plan,
    objects: PlanObjects,
    policy: Policy | SnapshotPolicy,
    inventory: DataFrame,
) -> None:
    """Make a stored plan the current plan of its day. Store which acknowledged objects its listing has again.

    Errors: as `PlanObjects.require_unchanged`.
    """
    objects.require_unchanged()
    keep_policy(warehouse, plan.repository, policy)
    keep_plan(warehouse, plan)
    record_found(spark, warehouse, plan.repository, inventory, plan.run_id, plan.made_at)
