"""The rows of `policy_table` for an Icechunk repository: the deletion dates of a policy on one day."""

from datetime import date, timedelta

import pyarrow as pa

from retention_assets.policy.rules import HOLD_IDS
from retention_assets.policy.snapshots import Keep, SnapshotPolicy
from retention_assets.policy.table import days_before
from retention_assets.tables import POLICY_TABLE


def snapshot_policy_rows(policy: SnapshotPolicy, as_of: date, run_id: str) -> pa.Table:
    """Return `policy_table` for one run, sorted by rule and reference.

    `branch` names the references to whose history a rule applies, such as `branch main` or `tag v*`. The default rule
    has an empty `branch`. Snapshots from before `date_to_be_deleted` are not kept by age, but the rule may keep them by
    number. The date is null if the rule keeps for ever.
    """
    rows = [(rule.rule_id, f"{rule.kind} {rule.pattern}", rule.newer) for rule in policy.rules]
    if policy.default is not None:
        rows.append((_default_id(policy.default), "", policy.default.newer))
    held: list[tuple[str, str, timedelta | None]] = [
        (f"{HOLD_IDS}{hold.hold_id}", f"{hold.kind} {hold.value}", None) for hold in policy.holds_in_force(as_of)
    ]
    found = sorted([*rows, *held], key=lambda row: row[:2])
    columns = [
        [run_id] * len(found),
        [rule_id for rule_id, _, _ in found],
        [""] * len(found),
        [reference for _, reference, _ in found],
        [days_before(as_of, span) for _, _, span in found],
        [policy.policy_hash] * len(found),
    ]
    return pa.table(columns, schema=POLICY_TABLE.schema)


def _default_id(default: Keep) -> str:
    return default.rule_id or ""
