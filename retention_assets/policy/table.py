"""The rows of `policy_table`: the deletion dates of a policy on one day, stored for later runs."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

import pyarrow as pa

from retention_assets.policy.rules import (
    DEFAULT_RULE,
    HOLD_IDS,
    RETENTION_IDS,
    CommittedRetention,
    Hold,
    LifecycleRule,
    Policy,
)
from retention_assets.tables import POLICY_TABLE


class PolicyRow(NamedTuple):
    """One row, without the columns that all rows of a run share."""

    rule_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date | None


def policy_rows(policy: Policy, as_of: date, run_id: str) -> pa.Table:
    """Return `policy_table` for one run, sorted by rule and branch. Source: seed 002, policy table.

    Committed rules have the id `retention:<id>`, and holds in force on `as_of` have the id `hold:<id>`. Lifecycle rules
    keep their ids. A lifecycle rule with a glob has the prefix `glob:<glob>`. Disabled rules have no rows. The date is
    null if a rule keeps for ever. A span that is not a whole number of days gives the earlier date, so that the table
    never shows too much as due.
    """
    rows = [row for rule in policy.lifecycle if rule.enabled for row in _lifecycle_rows(rule, as_of)]
    if policy.retention:
        rows += _retention_rows(policy.retention, as_of)
    rows += (_hold_row(hold) for hold in policy.holds if hold.in_force(as_of))
    rows.sort(key=lambda row: (row.rule_id, row.branch))
    shared = [[run_id] * len(rows), [policy.policy_hash] * len(rows)]
    columns = [[row[place] for row in rows] for place in range(len(PolicyRow._fields))]
    return pa.table([shared[0], *columns, shared[1]], schema=POLICY_TABLE.schema)


def days_before(as_of: date, span: timedelta | None) -> date | None:
    """Return the day that lies `span` before the start of `as_of`, at the earliest `date.min`; None for ever."""
    if span is None:
        return None
    try:
        return (datetime.combine(as_of, time.min) - span).date()
    except OverflowError:
        return date.min


def _lifecycle_rows(rule: LifecycleRule, as_of: date) -> Iterator[PolicyRow]:
    prefix = rule.prefix if rule.glob is None else f"glob:{rule.glob}"
    if rule.default is not None:  # else nothing is deleted on branches that the rule does not name
        yield PolicyRow(rule.rule_id, prefix, "", days_before(as_of, rule.default))
    for branch, span in rule.per_branch.items():
        yield PolicyRow(rule.rule_id, prefix, branch, days_before(as_of, span))


def _retention_rows(retention: CommittedRetention, as_of: date) -> Iterator[PolicyRow]:
    if retention.has_default:
        yield PolicyRow(f"{RETENTION_IDS}{DEFAULT_RULE}", "", "", days_before(as_of, retention.default))
    for rule in retention.rules:
        yield PolicyRow(f"{RETENTION_IDS}{rule.rule_id}", "", rule.branch, days_before(as_of, rule.span))


def _hold_row(hold: Hold) -> PolicyRow:
    prefix = hold.value if hold.kind == "prefix" else ""
    branch = hold.value if hold.kind == "branch" else ""
    return PolicyRow(f"{HOLD_IDS}{hold.hold_id}", prefix, branch, None)
