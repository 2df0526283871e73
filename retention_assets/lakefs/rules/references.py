"""The references of a repository at one time: commits, branches, tags; and how commits descend from one another."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from retention_assets.errors import SourceError
from retention_assets.lakefs.names.generated import TYPED_ADDRESSES

_REMEDY = (
    "Nothing was deleted. Run the same command again. With `source.dump`, take a new dump first: a dump can miss a "
    "commit that was made during the dump. If the error persists, the source has lost or damaged a commit."
)

UNKNOWN_TIME = datetime(9000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as lakeFS records it. `metarange_id` is empty for the first commit of a repository."""

    commit_id: str
    parents: tuple[str, ...]
    created_at: datetime  # see `creation_time`; a committer can set it, so it may decrease along history
    metarange_id: str
    version: int = 1  # 0: the main parent is the last one; from 1 on it is the first

    @property
    def main_parent(self) -> str | None:
        """The parent that was the branch's head before this commit. Source: docs/lakefs-formats.md, "Commits"."""
        if not self.parents:
            return None
        return self.parents[-1] if self.version == 0 else self.parents[0]


@dataclass(frozen=True, slots=True)
class References:
    """Commits by id, and the commit that each branch (hidden ones too) and each tag names."""

    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    taken_at: datetime  # aware, UTC: all changes before this time are included
    instance: str | None = None  # differs if the repository was created again; None: the source does not know it

    def hides_old_objects(self, *, of_dump: bool) -> bool:
        """Return whether staged objects may be in no input of a plan, because an old server staged them.

        Their addresses have no type: see `TYPED_ADDRESSES`. With a server (not `of_dump`), the objects that branches
        show are read too: see `StagedScan`.
        """
        return of_dump and has_older(self.commit_times(), TYPED_ADDRESSES)

    def commit_times(self) -> Iterator[datetime]:
        """Yield the creation time of each commit. The first commit has the creation time of the repository."""
        return (one.created_at for one in self.commits.values())


def has_older(times: Iterable[datetime], than: datetime) -> bool:
    """Return whether one of these creation times is before `than`. An unknown time counts as before."""
    return any(time < than or time == UNKNOWN_TIME for time in times)


def creation_time(seconds: int, microsecond: int) -> datetime:
    """Return the creation time (UTC) of a commit; `UNKNOWN_TIME` if `seconds` (since 1970) is impossible.

    Clients can send any number: milliseconds, or 0 for a date that they do not know. `UNKNOWN_TIME` is later than the
    end of any retention period. A later creation time only keeps more: the commit itself, its objects under lifecycle
    rules, and the version that the commit replaced.
    """
    if not 0 < seconds < UNKNOWN_TIME.timestamp():
        return UNKNOWN_TIME
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=microsecond)


def references_hash(references: References) -> str:
    """Return a hash of the branches, the tags and all commit ids. A commit id determines the content of the commit."""
    named = {
        "branches": dict(references.branches),
        "tags": dict(references.tags),
        "commits": sorted(references.commits),
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def require_complete(references: References) -> None:
    """Refuse references in which the commit of a parent, branch or tag is missing.

    Errors: SourceError that names the missing commit and what refers to it. Source: docs/lakefs-formats.md,
    "Commits".
    """
    commits = references.commits
    missing = f"is not among the {len(commits):,} commits. {_REMEDY}"
    for commit in commits.values():
        for parent in commit.parents:
            if parent not in commits:
                raise SourceError(f"commit {commit.commit_id}: its parent {parent} {missing}")
    for kind, names in (("branch", references.branches), ("tag", references.tags)):
        for name, commit_id in names.items():
            if commit_id not in commits:
                raise SourceError(f"{kind} {name!r}: its commit {commit_id} {missing}")


def children_first(references: References) -> list[Commit]:
    """Return all commits, sorted so that each commit comes after all of its children.

    A commit is a child of all its parents, not only of its main parent.

    Errors: SourceError when a commit is missing (see `require_complete`), or is its own ancestor.
    """
    require_complete(references)
    commits = references.commits
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            children[parent] += 1
    ordered = [commit for commit in commits.values() if not children[commit.commit_id]]
    for commit in ordered:  # the loop appends to the list that it reads
        for parent in commit.parents:
            children[parent] -= 1
            if not children[parent]:
                ordered.append(commits[parent])
    if len(ordered) < len(commits):
        in_cycle = min(commit_id for commit_id, waiting in children.items() if waiting)
        raise SourceError(f"commit {in_cycle} is its own ancestor, or the ancestor of such a commit. {_REMEDY}")
    return ordered


def main_ancestry(commits: Mapping[str, Commit], starts: Iterable[str]) -> set[str]:
    """Return `starts` and all commits that are reached from them by following main parents."""
    reached: set[str] = set()
    for start in starts:
        commit_id: str | None = start
        while commit_id is not None and commit_id not in reached:
            reached.add(commit_id)
            commit_id = commits[commit_id].main_parent
    return reached


def all_ancestry(commits: Mapping[str, Commit], start: str) -> Iterator[str]:
    """Yield `start` and all commits that are reached from it by following all parents, each commit once."""
    seen = {start}
    waiting = [start]
    while waiting:
        commit_id = waiting.pop()
        yield commit_id
        for parent in commits[commit_id].parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
