"""The policy of a plan: from the warehouse, or from the policy files if they have not changed since the plan."""

from collections.abc import Callable

from retention_assets.config.configuration import Repository
from retention_assets.errors import ConfigurationError, TableContractError
from retention_assets.explain.plans import PlanTables
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.kept_policies import kept_policy


def policy_of_plan[P: (Policy, SnapshotPolicy)](
    tables: PlanTables, kind: type[P], of_files: Callable[[Repository], P]
) -> P:
    """Return the policy of the plan. Errors: TableContractError when it is not known any more."""
    plan = tables.plan
    policy = kept_policy(tables.warehouse, plan.repository, plan.policy_hash, kind)
    if policy is None:  # an earlier version made the plan
        try:
            now = of_files(tables.repository)
            policy = now if now.policy_hash == plan.policy_hash else None
        except ConfigurationError:
            policy = None
    if policy is None:
        raise TableContractError(
            f"{plan.repository}: an earlier version made the plan of {plan.day}, and the policy files have changed "
            f"since. Nothing can be explained. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
        )
    return policy
