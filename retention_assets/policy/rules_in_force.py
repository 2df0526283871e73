"""The rules in force, each with its last complete deletion. Source: seed 002, `current_rule`; DESIGN.md, Tables."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One lifecycle row of `policy_table`."""

    run_id: str
    prefix: str
    branch: str
    date_to_be_deleted: date | None


@dataclass(frozen=True, slots=True)
class CurrentRule:
    """A rule in force. `last_deleted` is the day up to which a run deleted everything that was due; None: never."""

    prefix: str
    branch: str  # empty: all branches
    date_to_be_deleted: date | None  # None: never
    last_deleted: date | None


def current_rules(
    now: Iterable[RuleRow], history: Iterable[RuleRow], completed_runs: Collection[str]
) -> tuple[CurrentRule, ...]:
    """Return the rules in force by (prefix, branch), each with the newest day up to which a completed run deleted.

    Only runs that deleted everything count: a plan, a partial sweep or a failed sweep does not change `last_deleted`.
    If two rules have the same prefix and branch, the later date counts, because one due rule is enough.
    """
    deleted: dict[tuple[str, str], date] = {}
    for row in history:
        if row.run_id in completed_runs and row.date_to_be_deleted is not None:
            key = row.prefix, row.branch
            deleted[key] = max(row.date_to_be_deleted, deleted.get(key, row.date_to_be_deleted))
    due: dict[tuple[str, str], date | None] = {}
    for row in now:
        key = row.prefix, row.branch
        days = [day for day in (due.get(key), row.date_to_be_deleted) if day is not None]
        due[key] = max(days, default=None)
    return tuple(CurrentRule(*key, day, deleted.get(key)) for key, day in sorted(due.items()))
