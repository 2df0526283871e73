"""Which commits may hold what came due since the last run. Source: seed 002, Finding potential commits."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from retention_assets.policy.current import CurrentRule

BEGINNING = datetime.min.replace(tzinfo=UTC)  # "all commits of the branch"
_EVERY_BRANCH = ""


def thresholds(rules: Iterable[CurrentRule]) -> Mapping[str, datetime]:
    """Return by branch (empty: all) the instant after whose commits something may have come due.

    The minimum of `last_deleted` over the branch's rules, and over those for all branches as an upper bound; never
    deleted is the beginning.
    """
    by_branch: dict[str, datetime] = {}
    for rule in rules:
        if rule.date_to_be_deleted is None:
            continue  # a rule that keeps for ever makes nothing due
        day = rule.last_deleted
        since = BEGINNING if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
        by_branch[rule.branch] = min(since, by_branch.get(rule.branch, since))
    bound = by_branch.get(_EVERY_BRANCH)
    return by_branch if bound is None else {branch: min(since, bound) for branch, since in by_branch.items()}


def is_potential(created_at: datetime, branches: Collection[str], since: Mapping[str, datetime]) -> bool:
    """Return whether a commit that `branches` reach may hold what came due: created after the latest of theirs.

    A branch without rules of its own has those for all branches; so has a commit on no branch. Without any, nothing
    of it comes due.
    """
    bound = since.get(_EVERY_BRANCH)
    found = [since.get(branch, bound) for branch in branches] or [bound]
    known = [instant for instant in found if instant is not None]
    return bool(known) and created_at > max(known)
