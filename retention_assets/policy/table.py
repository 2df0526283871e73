"""Makes the rows of `policy_table` (a policy's deletion dates on one day) and of `current_rules` (rules in force).

Source of `last_deleted`: docs/lifecycle.md, "Every plan evaluates every pair".
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.policy.rules import (
    DEFAULT_RULE,
    HOLD_IDS,
    RETENTION_IDS,
    CommittedRetention,
    Hold,
    LifecycleRule,
    Policy,
)
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.tables import CURRENT_RULES, POLICY_TABLE


class PolicyRow(NamedTuple):
    """One row, without the columns that all rows of a run share."""

    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date | None


def policy_rows(policy: Policy, as_of: date, run_id: str) -> pa.Table:
    """Return `policy_table` of a lakeFS repository for one run, sorted by rule and branch.

    Committed rules have the id `retention:<id>`, and holds in force on `as_of` have the id `hold:<id>`. Lifecycle rules
    keep their ids. A lifecycle rule with a glob has the prefix `glob:<glob>`. Disabled rules have no rows. The date is
    null if a rule keeps for ever. A duration that is not a whole number of days gives the earlier date, so that the
    table never shows an object as due too early.
    """
    rows = [row for rule in policy.lifecycle if rule.enabled for row in _lifecycle_rows(rule, as_of)]
    if policy.retention:
        rows += _retention_rows(policy.retention, as_of)
    rows += (_hold_row(hold) for hold in policy.holds if hold.in_force(as_of))
    return _table(rows, run_id, policy.policy_hash)


def snapshot_policy_rows(policy: SnapshotPolicy, as_of: date, run_id: str) -> pa.Table:
    """Return `policy_table` of an Icechunk repository for one run, sorted by rule and reference.

    `branch` names the references to whose history a rule applies, such as `branch main` or `tag v*`. The default rule
    has an empty `branch`. Snapshots from before `date_to_be_deleted` are not kept by age, but the rule may keep them by
    number. The date is null if the rule keeps for ever.
    """
    rows = [
        PolicyRow(rule.rule_id, "", f"{rule.kind} {rule.pattern}", days_before(as_of, rule.newer))
        for rule in policy.rules
    ]
    if policy.default is not None:
        rows.append(PolicyRow(policy.default.rule_id or "", "", "", days_before(as_of, policy.default.newer)))
    rows += (
        PolicyRow(f"{HOLD_IDS}{hold.hold_id}", "", f"{hold.kind} {hold.value}", None)
        for hold in policy.holds_in_force(as_of)
    )
    return _table(rows, run_id, policy.policy_hash)


def _table(rows: Sequence[PolicyRow], run_id: str, policy_hash: str) -> pa.Table:
    ordered = sorted(rows, key=lambda row: (row.rule_id, row.branch))
    columns = [[row[number] for row in ordered] for number in range(len(PolicyRow._fields))]
    return pa.table([[run_id] * len(rows), *columns, [policy_hash] * len(rows)], schema=POLICY_TABLE.schema)


def days_before(as_of: date, duration: timedelta | None) -> date | None:
    """Return the day that is `duration` before the start of `as_of`, at the earliest `date.min`; None for ever."""
    if duration is None:
        return None
    try:
        return (datetime.combine(as_of, time.min) - duration).date()
    except OverflowError:
        return date.min


def _lifecycle_rows(rule: LifecycleRule, as_of: date) -> Iterator[PolicyRow]:
    prefix = rule.prefix if rule.glob is None else f"glob:{rule.glob}"
    if rule.default is not None:  # without a default, the rule deletes nothing on branches that it does not name
        yield PolicyRow(rule.rule_id, prefix, "", days_before(as_of, rule.default))
    for branch, duration in rule.per_branch.items():
        yield PolicyRow(rule.rule_id, prefix, branch, days_before(as_of, duration))


def _retention_rows(retention: CommittedRetention, as_of: date) -> Iterator[PolicyRow]:
    if retention.has_default:
        yield PolicyRow(f"{RETENTION_IDS}{DEFAULT_RULE}", "", "", days_before(as_of, retention.default))
    for rule in retention.rules:
        yield PolicyRow(f"{RETENTION_IDS}{rule.rule_id}", "", rule.branch, days_before(as_of, rule.duration))


def _hold_row(hold: Hold) -> PolicyRow:
    prefix = hold.value if hold.kind == "prefix" else ""
    branch = hold.value if hold.kind == "branch" else ""
    return PolicyRow(f"{HOLD_IDS}{hold.hold_id}", prefix, branch, None)


@dataclass(frozen=True, slots=True)
class CurrentRule:
    """A rule in force. `last_deleted` is the day up to which a run deleted everything that was due; None: never."""

    prefix: str
    branch: str  # empty: all branches
    date_to_be_deleted: date | None  # None: never
    last_deleted: date | None


def current_rules(history: pa.Table, run_id: str, completed_runs: Collection[str]) -> pa.Table:
    """Return the rows of `current_rules`: the lifecycle rules of a run, by (prefix, branch).

    `last_deleted` is the newest day up to which a completed run deleted. Only runs that deleted everything that was due
    are completed: a plan, a partial sweep or a failed sweep does not change `last_deleted`. If two rules have the same
    prefix and branch, the later date counts, because an object is due if one of the rules is due.

    Args:
        history: the rows of `policy_table` of all runs.
        run_id: the run whose rules are in force.
        completed_runs: the runs under whose rules a plan was executed completely.
    """
    ids = history["rule_id"]
    rules = history.filter(pc.invert(pc.or_(pc.starts_with(ids, RETENTION_IDS), pc.starts_with(ids, HOLD_IDS))))
    completed = pc.is_in(rules["run_id"], value_set=pa.array(completed_runs, pa.string()))
    now = _latest_dates(rules.filter(pc.equal(rules["run_id"], run_id)), "date_to_be_deleted")
    deleted = _latest_dates(rules.filter(completed), "last_deleted")
    found = now.join(deleted, ["prefix", "branch"]).sort_by([("prefix", "ascending"), ("branch", "ascending")])
    return found.select(CURRENT_RULES.schema.names).cast(CURRENT_RULES.schema)


def _latest_dates(rules: pa.Table, name: str) -> pa.Table:
    """Return the latest date of each pair of prefix and branch, as `name`; null if all dates of the pair are null."""
    dates = rules.group_by(["prefix", "branch"]).aggregate([("date_to_be_deleted", "max")])
    return dates.rename_columns({"date_to_be_deleted_max": name})
