"""Computes which commits may have objects that became due since `last_deleted` of the lifecycle rules.

The result is only a hint: pairs of all other commits are classified too. The rule uses the latest time of several
branches, but a pair is due by the branch with the longest retention. So older commits can also have objects that became
due. Source: docs/lifecycle.md.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from retention_assets.config.timestamps import start_of_day
from retention_assets.policy.matching import matches_name
from retention_assets.policy.table import CurrentRule

BEGINNING = datetime.min.replace(tzinfo=UTC)  # before every commit
_EVERY_BRANCH = ""


def thresholds(rules: Iterable[CurrentRule], branches: Collection[str]) -> Mapping[str, datetime]:
    """Return a time for each branch: objects of commits created after it may have become due.

    The time is the earliest `last_deleted` of the rules that name the branch (by its name or a glob) and of the rules
    for all branches. A rule that never deleted anything counts as `BEGINNING`. Branches without rules are left out. The
    empty name stands for all branches.
    """
    named: dict[str, datetime] = {}
    for rule in rules:
        if rule.date_to_be_deleted is None:
            continue  # a rule that keeps for ever makes nothing due
        day = rule.last_deleted
        since = BEGINNING if day is None else start_of_day(day)
        named[rule.branch] = min(since, named.get(rule.branch, since))
    by_branch = {_EVERY_BRANCH: named[_EVERY_BRANCH]} if _EVERY_BRANCH in named else {}
    for branch in branches:
        found = [since for name, since in named.items() if name == _EVERY_BRANCH or matches_name(name, branch)]
        if found:
            by_branch[branch] = min(found)
    return by_branch


def is_potential(created_at: datetime, branches: Collection[str], since: Mapping[str, datetime]) -> bool:
    """Return whether the commit may have objects that became due: it was created after the latest time of its branches.

    A branch without rules, and a commit without branches, have the time of the rules for all branches. If there are no
    such rules either, no object of the commit becomes due.

    `branches`: the branches that reach the commit. `since`: see `thresholds`.
    """
    bound = since.get(_EVERY_BRANCH)
    found = [since.get(branch, bound) for branch in branches] or [bound]
    known = [timestamp for timestamp in found if timestamp is not None]
    return bool(known) and created_at > max(known)
