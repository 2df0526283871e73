"""Keeps the policy of each plan in the warehouse, by its hash. So a plan can be explained after the policy changed."""

from pydantic import TypeAdapter

from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.warehouse import Warehouse

POLICIES = "policies"


def keep_policy(warehouse: Warehouse, repository: str, policy: Policy | SnapshotPolicy) -> None:
    """Store the policy of a plan."""
    document = TypeAdapter(type(policy)).dump_python(policy, mode="json")
    warehouse.write_document(document, repository, POLICIES, f"{policy.policy_hash}.json")


def kept_policy[P: (Policy, SnapshotPolicy)](
    warehouse: Warehouse, repository: str, policy_hash: str, kind: type[P]
) -> P | None:
    """Return the policy with this hash. None: an earlier version made the plan, or the stored text has another hash."""
    document = warehouse.read_document(repository, POLICIES, f"{policy_hash}.json")
    policy = None if document is None else TypeAdapter(kind).validate_python(document)
    return policy if policy is not None and policy.policy_hash == policy_hash else None
