"""A slow model of committed retention, from the words of the design. It imports nothing of what it judges.

"An object will exist in the storage iff it existed in the HEAD of some branch within the retention period of that
branch." So: follow each branch's first parents; a commit stopped being the HEAD when its child was made. A branch that
was deleted goes on as a hypothetical HEAD, made together with its last commit, under the default retention.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

Span = timedelta | None  # None: for ever


@dataclass(frozen=True)
class Made:
    parents: tuple[str, ...]
    at: datetime
    main_is_last: bool = False

    @property
    def before(self) -> str | None:
        if not self.parents:
            return None
        return self.parents[-1] if self.main_is_last else self.parents[0]


@dataclass(frozen=True)
class Reign:
    """A commit was the HEAD of a line that is kept `span`, until `left`; `None`: it still is."""

    commit: str
    left: datetime | None
    span: Span

    def ends(self) -> datetime | None:
        return None if self.left is None or self.span is None else self.left + self.span


History = dict[str, Made]


def line(history: History, head: str) -> list[str]:
    """The branch's main ancestry, its HEAD first."""
    found = [head]
    while (before := history[found[-1]].before) is not None:
        found.append(before)
    return found


def dangling(history: History, branches: dict[str, str]) -> set[str]:
    """What no branch's main ancestry holds."""
    return set(history) - {commit for head in branches.values() for commit in line(history, head)}


def last_commits_of_deleted_branches(history: History, branches: dict[str, str]) -> set[str]:
    """Dangling commits after which no line went on."""
    return {commit for commit in dangling(history, branches) if all(made.before != commit for made in history.values())}


def reigns(history: History, branches: dict[str, str], spans: dict[str, Span], default: Span) -> list[Reign]:
    found = []
    for branch, head in branches.items():
        commits = line(history, head)
        left = [None, *(history[commit].at for commit in commits)]
        found += [Reign(commit, at, spans.get(branch, default)) for commit, at in zip(commits, left, strict=False)]
    for last in last_commits_of_deleted_branches(history, branches):
        commits = line(history, last)
        left = [history[last].at, *(history[commit].at for commit in commits)]
        found += [Reign(commit, at, default) for commit, at in zip(commits, left, strict=False)]
    return found


def active(found: list[Reign], as_of: datetime) -> set[str]:
    """Commits that were the HEAD of something within its retention period."""
    return {reign.commit for reign in found if reign.ends() is None or reign.ends() > as_of}


def due_since(found: list[Reign], commit: str) -> datetime | None:
    """When the last line lets the commit go; `None`: never."""
    ends = [reign.ends() for reign in found if reign.commit == commit]
    return None if None in ends else max(ends)


def reached(history: History, head: str) -> set[str]:
    """Everything that `head` came from, by any parent."""
    return {head}.union(*(reached(history, parent) for parent in history[head].parents))
