"""A slow model of snapshot retention, written from the design document. It uses no algorithm of the package.

A reference keeps snapshots that are not older than its rule's duration, and the newest ones of its history. A snapshot
has expired if no reference that reaches it keeps it. The default rule applies to snapshots that no reference reaches.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

Duration = timedelta | None  # None: for ever


@dataclass(frozen=True)
class Rule:
    duration: Duration
    last: int = 0


@dataclass(frozen=True)
class Snapshot:
    parent: str | None
    at: datetime


Snapshots = dict[str, Snapshot]


def walk(made: Snapshots, tip: str) -> list[str]:
    found = [tip]
    while (parent := made[found[-1]].parent) is not None:
        found.append(parent)
    return found


def keeps(made: Snapshots, tip: str, rules: list[Rule], as_of: datetime) -> set[str]:
    """Return the snapshots that one reference keeps."""
    kept = set()
    for place, one in enumerate(walk(made, tip)):
        for rule in rules:
            if place < rule.last or rule.duration is None or made[one].at >= as_of - rule.duration:
                kept.add(one)
    return kept


def expired(
    made: Snapshots, tips: dict[str, str], rules: dict[str, list[Rule]], default: Rule | None, as_of: datetime
) -> set[str]:
    """Return the snapshots that no reference keeps, without roots."""
    kept = set().union(*(keeps(made, tip, rules[name], as_of) for name, tip in tips.items()))
    reached = set().union(*(walk(made, tip) for tip in tips.values()))
    for one in set(made) - reached:
        counts_only = default is not None and not default.duration and default.duration is not None and default.last
        if default is None or default.duration is None or counts_only or made[one].at >= as_of - default.duration:
            kept.add(one)
    return {one for one in made if made[one].parent is not None} - kept
