"""Policies that many tests use."""

from retention_assets.policy.rules import DEFAULT_RULE
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy


def everything_older(*, delete_expired_branches: bool = False, delete_expired_tags: bool = False) -> SnapshotPolicy:
    """Return the policy that expires the same snapshots as icechunk's `expire_snapshots(older_than=…)`.

    The time `older_than` is the `as_of` of the policy.
    """
    return SnapshotPolicy(
        default=Keep(DEFAULT_RULE, NOT_BY_AGE),
        delete_expired_branches=delete_expired_branches,
        delete_expired_tags=delete_expired_tags,
    )
