"""A slow model of committed retention, written from the design document. It imports nothing of the package.

"An object will exist in the storage iff it existed in the HEAD of some branch within the retention period of that
branch." So: follow each branch's first parents. A commit stopped being the HEAD when its child was created. A deleted
branch counts as a branch with the default retention, whose HEAD was created together with its last commit.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

Duration = timedelta | None  # None: for ever


@dataclass(frozen=True)
class NaiveCommit:
    parents: tuple[str, ...]
    at: datetime
    main_is_last: bool = False

    @property
    def before(self) -> str | None:
        if not self.parents:
            return None
        return self.parents[-1] if self.main_is_last else self.parents[0]


@dataclass(frozen=True)
class RetainedHead:
    """A commit that was the HEAD of a line until `left` (None: still is). The line is retained for `duration`."""

    commit: str
    left: datetime | None
    duration: Duration

    def ends(self) -> datetime | None:
        return None if self.left is None or self.duration is None else self.left + self.duration


History = dict[str, NaiveCommit]


def line(history: History, head: str) -> list[str]:
    """Return the branch's main ancestry, its HEAD first."""
    found = [head]
    while (before := history[found[-1]].before) is not None:
        found.append(before)
    return found


def dangling(history: History, branches: dict[str, str]) -> set[str]:
    """Return the commits in no branch's main ancestry."""
    return set(history) - {commit for head in branches.values() for commit in line(history, head)}


def last_commits_of_deleted_branches(history: History, branches: dict[str, str]) -> set[str]:
    """Return the dangling commits without main children."""
    return {commit for commit in dangling(history, branches) if all(made.before != commit for made in history.values())}


def retained_heads(
    history: History, branches: dict[str, str], durations: dict[str, Duration], default: Duration
) -> list[RetainedHead]:
    found = []
    for branch, head in branches.items():
        commits = line(history, head)
        left = [None, *(history[commit].at for commit in commits)]
        found += [
            RetainedHead(commit, at, durations.get(branch, default)) for commit, at in zip(commits, left, strict=False)
        ]
    for last in last_commits_of_deleted_branches(history, branches):
        commits = line(history, last)
        left = [history[last].at, *(history[commit].at for commit in commits)]
        found += [RetainedHead(commit, at, default) for commit, at in zip(commits, left, strict=False)]
    return found


def active(found: list[RetainedHead], as_of: datetime) -> set[str]:
    """Return the commits that were the HEAD of a line within its retention period."""
    return {reign.commit for reign in found if reign.ends() is None or reign.ends() > as_of}


def due_since(found: list[RetainedHead], commit: str) -> datetime | None:
    """Return when the commit is due in all lines; `None`: never."""
    ends = [reign.ends() for reign in found if reign.commit == commit]
    return None if None in ends else max(ends)


def reached(history: History, head: str) -> set[str]:
    """Return all ancestors of `head`, by any parent."""
    return {head}.union(*(reached(history, parent) for parent in history[head].parents))
