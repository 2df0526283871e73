"""The edits of an expiration: snapshots get another parent, references are deleted. Formats 1 and 2 share the types."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN
from retention_assets.icechunk.rules.retention import Selection
from retention_assets.icechunk.rules.snapshots import History, Reference, descendants, reachable


@dataclass(frozen=True, slots=True)
class Reparented:
    """The snapshot gets `parent_id` as its parent; nothing else in it changes."""

    snapshot_id: bytes
    parent_id: bytes


@dataclass(frozen=True, slots=True)
class TagDeleted:
    """The tag is deleted; its name can never be used again."""

    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    """The branch is deleted."""

    name: str


Edit = Reparented | TagDeleted | BranchDeleted


@dataclass(frozen=True, slots=True)
class Expiration:
    """The edits of an expiration, which deletes no file. Edits are made in order; stopping after any edit is safe.

    `released` are the expired snapshots that nothing reaches after the edits: a garbage collection may delete them.
    `passed_over` are the snapshots that icechunk's `expire_snapshots` returns. In format 2 both sets are the same. In
    format 1, icechunk returns the snapshots that some reference passes over, even when another reference still points
    at them. There it does not return snapshots that only a deleted reference reached. Source: Icechunk facts 3.
    """

    selection: Selection
    edits: tuple[Edit, ...]
    released: frozenset[bytes]
    passed_over: frozenset[bytes]

    @property
    def reparented(self) -> Mapping[bytes, bytes]:
        """The new parent of each snapshot that gets one."""
        return {edit.snapshot_id: edit.parent_id for edit in self.edits if isinstance(edit, Reparented)}


def deletion_of(reference: Reference) -> Edit:
    """Return the edit that deletes a reference."""
    return TagDeleted(reference.name) if reference.kind == "tag" else BranchDeleted(reference.name)


def edited(history: History, edits: Iterable[Edit]) -> History:
    """Return the history after `edits`; released snapshots are still in it, because their files still exist."""
    snapshots, branches, tags = dict(history.snapshots), dict(history.branches), dict(history.tags)
    for edit in edits:
        if isinstance(edit, Reparented):
            snapshots[edit.snapshot_id] = replace(snapshots[edit.snapshot_id], parent_id=edit.parent_id)
        elif isinstance(edit, TagDeleted):
            del tags[edit.name]
        else:
            del branches[edit.name]
    return History(snapshots, branches, tags)


def require_allowed(before: History, expiration: Expiration) -> None:
    """Raise GuardRefused, which names the snapshot or branch, when an expiration would lose data that must stay.

    The check is independent of the code that computed the expiration. A released snapshot must have expired, and must
    not be a root, held, the tip of a remaining reference, or reachable from one. No other snapshot may become
    unreachable, except the root of a history without references. A new parent must have been an ancestor before, so
    that every history keeps its root. The branch `main` must stay. Source: seed 000, Forbidden operations.
    """
    after = edited(before, expiration.edits)
    selection, released = expiration.selection, expiration.released
    reached = reachable(after, after.tips())
    lost = reachable(before, before.tips()) - reached - released - selection.held
    roots = {snapshot_id for snapshot_id in before.snapshots if before.is_root(snapshot_id)}
    below = {parent: descendants(before, parent) for parent in set(expiration.reparented.values())}
    misplaced = {child for child, parent in expiration.reparented.items() if child not in below[parent]}
    if MAIN not in after.branches:
        raise _refusal("the branch main would be deleted")
    for wrong, violation in (
        (misplaced, "would get a parent that is not its ancestor"),
        (lost - roots, "would be lost, but rules keep it"),
        (released & roots, "would be released, but it is a root"),
        (released - selection.expired, "would be released, but rules keep it"),
        (released & (reached | selection.held), "would be released, but a reference or a hold keeps it"),
    ):
        if wrong:
            raise _refusal(f"snapshot {encode_id(min(wrong))} {violation}")


def _refusal(violation: str) -> GuardRefused:
    return GuardRefused(
        f"{violation}. Nothing was changed or deleted. Plan again. If this happens again, report it as a bug."
    )
