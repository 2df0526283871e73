"""A slow model of snapshot retention, from the words of the design. It uses no algorithm of what it judges.

A reference keeps what is not older than its rule's span and what is among the newest so many of its history. A snapshot
has expired when no reference that reaches it keeps it; one that none reaches, when the default's span does not.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

Span = timedelta | None  # None: for ever


@dataclass(frozen=True)
class Keeps:
    span: Span
    last: int = 0


@dataclass(frozen=True)
class Made:
    parent: str | None
    at: datetime


Made_by = dict[str, Made]


def walk(made: Made_by, tip: str) -> list[str]:
    found = [tip]
    while (parent := made[found[-1]].parent) is not None:
        found.append(parent)
    return found


def keeps(made: Made_by, tip: str, rules: list[Keeps], as_of: datetime) -> set[str]:
    """What one reference keeps."""
    kept = set()
    for place, one in enumerate(walk(made, tip)):
        for rule in rules:
            if place < rule.last or rule.span is None or made[one].at >= as_of - rule.span:
                kept.add(one)
    return kept


def expired(
    made: Made_by, tips: dict[str, str], rules: dict[str, list[Keeps]], default: Keeps | None, as_of: datetime
) -> set[str]:
    """What no reference keeps, without roots."""
    kept = set().union(*(keeps(made, tip, rules[name], as_of) for name, tip in tips.items()))
    reached = set().union(*(walk(made, tip) for tip in tips.values()))
    for one in set(made) - reached:
        counts_only = default is not None and not default.span and default.span is not None and default.last
        if default is None or default.span is None or counts_only or made[one].at >= as_of - default.span:
            kept.add(one)
    return {one for one in made if made[one].parent is not None} - kept
