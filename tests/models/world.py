"""A model of lakeFS in memory: the effect of each operation on commits, branches, staging areas and the store.

It imports no code of the package.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

Objects = Mapping[str, str]  # address by path
Changes = Mapping[str, str | None]  # address by path; None: the path was deleted


@dataclass(frozen=True, slots=True)
class Stored:
    """An object in the store. `at`: the store's clock."""

    size: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit with all its objects. `at`: its date, which the committer may set."""

    parents: tuple[str, ...]
    at: datetime
    objects: Objects
    main_is_last: bool = False  # as commits of version 0 have it

    @property
    def main(self) -> str | None:
        if not self.parents:
            return None
        return self.parents[-1] if self.main_is_last else self.parents[0]


@dataclass(frozen=True, slots=True)
class World:
    """A repository and its store at the moment `now`."""

    now: datetime
    commits: Mapping[str, Commit]
    branches: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)
    staging: Mapping[str, Changes] = field(default_factory=dict)  # by branch
    store: Mapping[str, Stored] = field(default_factory=dict)
    issued: Mapping[str, datetime] = field(default_factory=dict)  # when the server issued an address of its own

    def visible(self, branch: str) -> Objects:
        """Return the objects that a reader of the branch sees: its head with the staged changes."""
        return changed(self.commits[self.branches[branch]].objects, self.staging.get(branch, {}))

    def staged_addresses(self) -> set[str]:
        """Return the addresses of all staging areas inside the namespace."""
        found = {address for changes in self.staging.values() for address in changes.values() if address is not None}
        return {address for address in found if "://" not in address}

    def ancestry(self, commit: str) -> Iterator[str]:
        """Yield a commit and its ancestors by any parent, the nearest first."""
        waiting, seen = [commit], {commit}
        for name in waiting:  # grows while it is read
            yield name
            parents = [parent for parent in self.commits[name].parents if parent not in seen]
            waiting += parents
            seen.update(parents)

    # ---- the store

    def stored(self, address: str, size: int, *, issued: datetime | None = None, late: float = 0) -> "World":
        """Write an object, `late` seconds after now. Without `issued` it is a foreign file."""
        at = datetime.fromtimestamp(self.now.timestamp() + late, self.now.tzinfo)
        known = {**self.issued, address: issued} if issued else self.issued
        return replace(self, store={**self.store, address: Stored(size, at)}, issued=known)

    def swept(self, addresses: Collection[str]) -> "World":
        """Remove objects from the store. Commits still refer to them."""
        return replace(self, store={name: kept for name, kept in self.store.items() if name not in addresses})

    # ---- staging areas

    def staged(self, branch: str, path: str, address: str | None) -> "World":
        """Stage an object at a path, or its deletion."""
        return replace(self, staging={**self.staging, branch: {**self.staging.get(branch, {}), path: address}})

    def thrown_away(self, branch: str) -> "World":
        """Reset a staging area."""
        return replace(self, staging={name: kept for name, kept in self.staging.items() if name != branch})

    # ---- commits

    def committed(self, branch: str, name: str, objects: Objects, at: datetime | None = None) -> "World":
        """Add a commit to a branch. Its date is now unless the committer sets another."""
        return self._on(branch, name, Commit((self.branches[branch],), at or self.now, objects))

    def _on(self, branch: str, name: str, commit: Commit) -> "World":
        return replace(self, commits={**self.commits, name: commit}, branches={**self.branches, branch: name})

    def commit_staged(self, branch: str, name: str, at: datetime | None = None) -> "World":
        """Commit what is staged on a branch."""
        return self.committed(branch, name, self.visible(branch), at).thrown_away(branch)

    def merged(
        self, source: str, branch: str, name: str, *, squash: bool = False, main_is_last: bool = False
    ) -> "World":
        """Merge a branch into another. If both changed a path, the other keeps its own version."""
        theirs, ours = self.branches[source], self.branches[branch]
        mine = set(self.ancestry(ours))
        base = next((self.commits[name].objects for name in self.ancestry(theirs) if name in mine), {})
        own = difference(base, self.commits[ours].objects)
        taken = {
            path: address for path, address in difference(base, self.commits[theirs].objects).items() if path not in own
        }
        objects = changed(self.commits[ours].objects, taken)
        parents = (ours,) if squash else (theirs, ours) if main_is_last else (ours, theirs)
        return self._on(branch, name, Commit(parents, self.now, objects, main_is_last))

    def cherry_picked(self, picked: str, branch: str, name: str) -> "World":
        """Apply the changes of a commit to a branch."""
        changes = difference(self._before(picked), self.commits[picked].objects)
        return self.committed(branch, name, changed(self.commits[self.branches[branch]].objects, changes))

    def reverted(self, undone: str, branch: str, name: str) -> "World":
        """Apply the inverse of a commit's changes to a branch."""
        changes = difference(self.commits[undone].objects, self._before(undone))
        return self.committed(branch, name, changed(self.commits[self.branches[branch]].objects, changes))

    def _before(self, commit: str) -> Objects:
        main = self.commits[commit].main
        return {} if main is None else self.commits[main].objects

    # ---- names

    def branched(self, branch: str, commit: str) -> "World":
        """Create a branch, or reset it hard, after which its old commit may have no reference."""
        return replace(self.thrown_away(branch), branches={**self.branches, branch: commit})

    def unbranched(self, branch: str) -> "World":
        """Delete a branch with its staging area."""
        left = {name: head for name, head in self.branches.items() if name != branch}
        return replace(self.thrown_away(branch), branches=left)

    def tagged(self, tag: str, commit: str) -> "World":
        return replace(self, tags={**self.tags, tag: commit})

    def untagged(self, tag: str) -> "World":
        return replace(self, tags={name: commit for name, commit in self.tags.items() if name != tag})


def changed(objects: Objects, changes: Changes) -> Objects:
    """Return objects after changes."""
    after = {**objects, **changes}
    return {path: address for path, address in after.items() if address is not None}


def difference(before: Objects, after: Objects) -> Changes:
    """Return the changes that lead from one state to another."""
    return {path: after.get(path) for path in {**before, **after} if before.get(path) != after.get(path)}
