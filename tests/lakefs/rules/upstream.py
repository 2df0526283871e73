"""The walk of lakeFS's own garbage collection, whose result depends on the order of commit ids."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from tests.lakefs.rules.naive import History


def walk(
    history: History, heads: dict[str, timedelta], default: timedelta, as_of: datetime, order: Iterable[str]
) -> set[str]:
    """Visit the starting points in `order`. Stop where an earlier walk had an equal or longer retention."""
    active: set[str] = set()
    visited: dict[str, datetime] = {}
    for start in order:
        threshold = as_of - heads.get(start, default)
        if start in heads or history[start].at > threshold:
            active.add(start)
        commit = start
        while (parent := history[commit].before) is not None:
            if parent in visited and visited[parent] <= threshold:
                break  # before it is asked whether this child makes the parent active: the defect
            visited[parent] = threshold
            if history[commit].at > threshold:
                active.add(parent)
            commit = parent
    return active


def starts(history: History, heads: dict[str, timedelta]) -> list[str]:
    """Return HEADs and ancestry leaves, by id."""
    mains = {made.before for made in history.values()}
    return sorted(commit for commit in history if commit in heads or commit not in mains)
