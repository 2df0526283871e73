"""Which commits may hold what came due since the last run. Source: seed 002, Finding potential commits.

This tells where to look first; no pair is left out for it. By the seed's rule the latest of several branches counts,
while a pair comes due by its longest branch, so that an older commit may hold what came due as well.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from retention_assets.policy.matching import names_branch
from retention_assets.policy.rules_in_force import CurrentRule

BEGINNING = datetime.min.replace(tzinfo=UTC)  # "all commits of the branch"
_EVERY_BRANCH = ""


def thresholds(rules: Iterable[CurrentRule], branches: Collection[str]) -> Mapping[str, datetime]:
    """Return by branch (empty: all) the instant after whose commits something may have come due.

    The minimum of `last_deleted` over the rules that name the branch, by its name or a glob, and over those for all
    branches as an upper bound; never deleted is the beginning. Branches that nothing speaks of are left out.
    """
    named: dict[str, datetime] = {}
    for rule in rules:
        if rule.date_to_be_deleted is None:
            continue  # a rule that keeps for ever makes nothing due
        day = rule.last_deleted
        since = BEGINNING if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
        named[rule.branch] = min(since, named.get(rule.branch, since))
    by_branch = {_EVERY_BRANCH: named[_EVERY_BRANCH]} if _EVERY_BRANCH in named else {}
    for branch in branches:
        found = [since for name, since in named.items() if name == _EVERY_BRANCH or names_branch(name, branch)]
        if found:
            by_branch[branch] = min(found)
    return by_branch


def is_potential(created_at: datetime, branches: Collection[str], since: Mapping[str, datetime]) -> bool:
    """Return whether a commit that `branches` reach may hold what came due: created after the latest of theirs.

    A branch without rules of its own has those for all branches; so has a commit on no branch. Without any, nothing
    of it comes due.
    """
    bound = since.get(_EVERY_BRANCH)
    found = [since.get(branch, bound) for branch in branches] or [bound]
    known = [instant for instant in found if instant is not None]
    return bool(known) and created_at > max(known)
