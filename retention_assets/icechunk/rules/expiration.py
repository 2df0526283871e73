"""What an expiration changes: snapshots get another parent, references go. The same words for formats 1 and 2."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN
from retention_assets.icechunk.rules.retention import Selection
from retention_assets.icechunk.rules.snapshots import History, Reference, descendants, reachable


@dataclass(frozen=True, slots=True)
class Reparented:
    """The snapshot gets `parent_id` as its parent and stays as it is otherwise."""

    snapshot_id: bytes
    parent_id: bytes


@dataclass(frozen=True, slots=True)
class TagDeleted:
    """The tag goes; its name can never be used again."""

    name: str


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    """The branch goes."""

    name: str


Edit = Reparented | TagDeleted | BranchDeleted


@dataclass(frozen=True, slots=True)
class Expiration:
    """What an expiration does. Nothing in it deletes a file; carried out in order, any part of `edits` is safe.

    `released` are the snapshots that nothing reaches afterwards and that the policy let go of: what a collection may
    take. `passed_over` is what icechunk's `expire_snapshots` returns. In format 2 both are the same. In format 1 it
    returns what some reference passes over, though another may still point at it, and not what only a deleted
    reference reached. Source: Icechunk facts 3.
    """

    selection: Selection
    edits: tuple[Edit, ...]
    released: frozenset[bytes]
    passed_over: frozenset[bytes]

    @property
    def reparented(self) -> Mapping[bytes, bytes]:
        """The snapshots with a new parent."""
        return {edit.snapshot_id: edit.parent_id for edit in self.edits if isinstance(edit, Reparented)}


def deletion_of(reference: Reference) -> Edit:
    """Return the edit that deletes a reference."""
    return TagDeleted(reference.name) if reference.kind == "tag" else BranchDeleted(reference.name)


def edited(history: History, edits: Iterable[Edit]) -> History:
    """Return the history after `edits`; released snapshots are still among its snapshots, as files are."""
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
    """Refuse an expiration that would lose what must stay, whatever made it.

    Nothing released may be a root, held, the tip of a remaining reference, or reachable from one, and nothing else may
    get out of reach but the root of a history without references; a new parent must be an ancestor of old, so that
    every history ends in the root it ended in; `main` stays. Source: seed 000, Forbidden operations.
    Errors: GuardRefused that names the snapshot or branch.
    """
    after = edited(before, expiration.edits)
    selection, released = expiration.selection, expiration.released
    reached = reachable(after, after.tips())
    lost = reachable(before, before.tips()) - reached - released - selection.held
    roots = {snapshot_id for snapshot_id in before.snapshots if before.is_root(snapshot_id)}
    below = {parent: descendants(before, parent) for parent in set(expiration.reparented.values())}
    astray = {child for child, parent in expiration.reparented.items() if child not in below[parent]}
    if MAIN not in after.branches:
        raise _refusal("the branch main would be deleted")
    for wrong, complaint in (
        (astray, "would get a parent that is no ancestor of it"),
        (lost - roots, "would be lost, but rules keep it"),
        (released & roots, "would be released, but it is a root"),
        (released - selection.expired, "would be released, but rules keep it"),
        (released & (reached | selection.held), "would be released, but a reference or a hold keeps it"),
    ):
        if wrong:
            raise _refusal(f"snapshot {encode_id(min(wrong))} {complaint}")


def _refusal(complaint: str) -> GuardRefused:
    return GuardRefused(
        f"{complaint}. Nothing was changed or deleted. Plan the expiration again; if it stays so, report it as a fault."
    )
