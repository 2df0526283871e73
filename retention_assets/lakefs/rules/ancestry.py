"""Orders and walks over commits, without recursion: histories are deeper than Python's stack."""

from collections.abc import Iterable, Iterator, Mapping

from retention_assets.errors import SourceError
from retention_assets.lakefs.rules.references import Commit, References

_REMEDY = (
    "Nothing was deleted. Read the references again (a dump may miss what a branch moved to meanwhile); "
    "if it stays so, the source has lost a commit."
)


def require_whole(references: References) -> None:
    """Refuse references with a parent, a branch HEAD or a tag target that is not among the commits.

    Errors: SourceError that names both ends. Source: lakeFS facts, H2 (an unknown parent fails the run).
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
    """Return every commit after all commits that have it as a parent, whichever parent.

    Errors: SourceError for references that are not whole, and for a commit that is its own ancestor.
    """
    require_whole(references)
    commits = references.commits
    children = dict.fromkeys(commits, 0)
    for commit in commits.values():
        for parent in commit.parents:
            children[parent] += 1
    ordered = [commit for commit in commits.values() if not children[commit.commit_id]]
    for commit in ordered:  # grows while it is read
        for parent in commit.parents:
            children[parent] -= 1
            if not children[parent]:
                ordered.append(commits[parent])
    if len(ordered) < len(commits):
        in_cycle = min(commit_id for commit_id, waiting in children.items() if waiting)
        raise SourceError(f"commit {in_cycle} is its own ancestor, or an ancestor of one that is. {_REMEDY}")
    return ordered


def main_ancestry(commits: Mapping[str, Commit], starts: Iterable[str]) -> set[str]:
    """Return `starts` and what following main parents from them reaches."""
    reached: set[str] = set()
    for start in starts:
        commit_id: str | None = start
        while commit_id is not None and commit_id not in reached:
            reached.add(commit_id)
            commit_id = commits[commit_id].main_parent
    return reached


def all_ancestry(commits: Mapping[str, Commit], start: str) -> Iterator[str]:
    """Yield `start` and what following all parents from it reaches, each commit once."""
    seen = {start}
    waiting = [start]
    while waiting:
        commit_id = waiting.pop()
        yield commit_id
        for parent in commits[commit_id].parents:
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
