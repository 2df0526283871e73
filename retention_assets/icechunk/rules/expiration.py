"""Computes which snapshots and references expire, and the edits: new parents of snapshots, deleted references.

In format 1, snapshot files are rewritten with another parent, one after the other. In format 2, one edit of the repo
object makes all changes, and no snapshot file changes.
Source: docs/icechunk.md; docs/icechunk-formats.md, "Expiration".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from retention_assets.core.amounts import counted
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN, Repo, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.rules.retention import NOTHING_UNAPPROVED, Selection, Unapproved, select
from retention_assets.icechunk.rules.snapshots import (
    History,
    ReferenceChange,
    anchors,
    descendants,
    history_of,
    reachable,
)
from retention_assets.icechunk.rules.updates import DELETE_TAG, Stamp, is_enabled, require_online, with_update
from retention_assets.policy.snapshots import SnapshotPolicy


@dataclass(frozen=True, slots=True)
class Reparented:
    """A snapshot that gets `parent_id` as its parent. Nothing else in the snapshot changes."""

    snapshot_id: bytes
    parent_id: bytes


Edit = Reparented | ReferenceChange


@dataclass(frozen=True, slots=True)
class Expiration:
    """The edits of an expiration, in the order in which they are made. The repository is consistent after each edit.

    An expiration deletes no file. `released` are the expired snapshots that are unreachable after the edits. A garbage
    collection may delete them.
    """

    selection: Selection
    edits: tuple[Edit, ...]
    released: frozenset[bytes]

    @property
    def reparented(self) -> Mapping[bytes, bytes]:
        """The new parent of each snapshot that gets one."""
        return {edit.snapshot_id: edit.parent_id for edit in self.edits if isinstance(edit, Reparented)}

    @property
    def deletions(self) -> tuple[ReferenceChange, ...]:
        """The edits that delete a branch or tag."""
        return tuple(edit for edit in self.edits if isinstance(edit, ReferenceChange))


def edited(history: History, edits: Iterable[Edit]) -> History:
    """Return the history after `edits`; released snapshots are still in it, because their files still exist."""
    snapshots, branches, tags = dict(history.snapshots), dict(history.branches), dict(history.tags)
    for edit in edits:
        if isinstance(edit, Reparented):
            snapshots[edit.snapshot_id] = replace(snapshots[edit.snapshot_id], parent_id=edit.parent_id)
        else:
            edit.make_in(branches if edit.kind == "branch" else tags)
    return History(snapshots, branches, tags)


def require_allowed(before: History, expiration: Expiration) -> None:
    """Raise GuardRefused, which names the snapshot or branch, when an expiration would lose data that must stay.

    The check is independent of the code that computed the expiration. A released snapshot must have expired, and must
    not be a root, held, or reachable from a remaining reference. No other snapshot may become unreachable, except held
    snapshots, and the root of a history that loses all its references. A new parent must be an ancestor, so that every
    history keeps its root. The branch `main` must stay. Source: docs/icechunk.md, "What is deleted".
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


def expiration_v1(
    history: History,
    policy: SnapshotPolicy,
    as_of: datetime,
    unapproved: Unapproved = NOTHING_UNAPPROVED,
    *,
    in_use: Collection[bytes] = (),
) -> Expiration:
    """Return the expiration of `history` under `policy` at `as_of` (UTC).

    Tags come first, then branches, each sorted by name, as in icechunk. Each history is walked from its tip. The last
    snapshot before the first expired one gets the root as its parent. An expired tip stays, and also gets the root as
    its parent:

        root <- x <- x <- k <- k (tip)   becomes   root <- k <- k (tip)
        root <- x <- x (tip)             becomes   root <- x (tip)

    A held or unapproved snapshot, or one that is `in_use`, is treated as a root, and its history is cut like the
    history of a tag. The tip of a deleted reference is not rewritten, because a rewritten file counts as young.
    Errors: as `select`; GuardRefused as `require_allowed`.
    """
    selection = select(history, policy, as_of, on_roots=True, unapproved=unapproved, in_use=in_use)
    walk = _Walk(history, selection.expired, anchors(history, selection.held))
    before, deleted = reachable(history, history.tips()), set(selection.deleted)
    for snapshot_id in sorted(selection.held & before):
        walk.cut(snapshot_id)
    for reference in history.references():
        if reference in deleted:
            walk.edits.append(reference.deletion)
        else:
            walk.cut(reference.tip)
    after = edited(history, walk.edits)
    released = (before & selection.expired) - reachable(after, after.tips())
    expiration = Expiration(selection, tuple(walk.edits), frozenset(released))
    require_allowed(history, expiration)
    return expiration


class _Walk:
    """Cuts the histories of several starting snapshots, one after the other.

    A walk ends at a snapshot that an earlier walk passed, because the history below it is already cut. So many
    references on one long history cost one walk, and no snapshot is rewritten twice.
    """

    def __init__(self, history: History, expired: frozenset[bytes], anchor: dict[bytes, bytes]) -> None:
        self._parents = {snapshot_id: one.parent_id for snapshot_id, one in history.snapshots.items()}
        self._expired = expired
        self._anchor = anchor
        self._walked: set[bytes] = set()
        self.edits: list[Edit] = []

    def cut(self, start: bytes) -> None:
        """Find the first snapshot from `start` on whose parent has expired, and give it its anchor as parent."""
        at: bytes | None = start
        while at is not None and at not in self._walked:
            self._walked.add(at)
            parent = self._parents[at]
            if parent in self._expired:
                self.edits.append(Reparented(at, self._anchor[at]))
                return
            at = parent


def expiration_v2(
    history: History,
    policy: SnapshotPolicy,
    as_of: datetime,
    unapproved: Unapproved = NOTHING_UNAPPROVED,
    *,
    in_use: Collection[bytes] = (),
) -> Expiration:
    """Return the expiration of `history` under `policy` at `as_of` (UTC).

    Snapshots that are `in_use` stay, and so do snapshots and references that are `unapproved`. A snapshot is released
    when it has expired and no remaining reference names it. A remaining snapshot whose parent is released gets a new
    parent: the nearest held ancestor, or the root of its history. The nearest remaining ancestor is not used, because
    that snapshot may stay only because a reference names it.
    Errors: as `select`; GuardRefused as `require_allowed`.
    """
    selection = select(history, policy, as_of, on_roots=False, unapproved=unapproved, in_use=in_use)
    deleted = set(selection.deleted)
    released = selection.expired - {one.tip for one in history.references() if one not in deleted}
    anchor = anchors(history, selection.held)
    edits: list[Edit] = [
        Reparented(snapshot_id, anchor[snapshot_id])
        for snapshot_id, snapshot in sorted(history.snapshots.items())
        if snapshot_id not in released and snapshot.parent_id in released
    ]
    edits += [reference.deletion for reference in selection.deleted]
    expiration = Expiration(selection, tuple(edits), released)
    require_allowed(history, expiration)
    return expiration


def expired(repo: Repo, expiration: Expiration, stamp: Stamp) -> Repo:
    """Return `repo` after its expiration; `repo` itself when there is nothing to do.

    Errors: GuardRefused when the repository is not online, when a tag would be deleted although the feature flag
    delete_tag is off, and as `with_update`.
    """
    require_online(repo)
    if not expiration.edits and not expiration.released:
        return repo
    _require_tags_deletable(repo, expiration)
    return with_update(repo_after(repo, expiration), Update(UpdateKind.EXPIRATION_RAN, 0), stamp)


def repo_after(repo: Repo, expiration: Expiration) -> Repo:
    """Return `repo` with the edits of the expiration, and with an unchanged ops log."""
    after = edited(history_of(repo), expiration.edits)
    return replace(
        repo,
        branches=after.branches,
        tags=after.tags,
        deleted_tags=repo.deleted_tags | (repo.tags.keys() - after.tags.keys()),
        snapshots=remaining_snapshots(repo, expiration.released, expiration.reparented),
    )


def remaining_snapshots(
    repo: Repo, released: Collection[bytes], reparented: Mapping[bytes, bytes]
) -> dict[bytes, SnapshotInfo]:
    """Return the snapshots of `repo` without the `released` ones. The `reparented` ones have their new parents.

    A snapshot with a new parent takes over the transaction logs of the snapshots between itself and the new parent,
    because only these logs record the changes since the new parent. The logs are in the order of the snapshots, oldest
    first. The logs that such a snapshot had taken over earlier come just before its own log. The logs that the
    snapshot with the new parent had taken over earlier come last.
    Source: docs/icechunk-formats.md, "Pruned transaction logs".
    """
    remaining = {snapshot_id: one for snapshot_id, one in repo.snapshots.items() if snapshot_id not in released}
    for snapshot_id, parent in reparented.items():
        one = repo.snapshots[snapshot_id]
        logs = (*_logs_between(repo, one, parent), *one.pruned_ancestor_tx_logs)
        remaining[snapshot_id] = replace(one, parent_id=parent, pruned_ancestor_tx_logs=logs)
    return remaining


def _logs_between(repo: Repo, snapshot: SnapshotInfo, parent: bytes) -> list[bytes]:
    between: list[SnapshotInfo] = []
    at = snapshot.parent_id
    while at is not None and at != parent:
        between.append(repo.snapshots[at])
        at = repo.snapshots[at].parent_id
    return [log for one in reversed(between) for log in (*one.pruned_ancestor_tx_logs, one.id)]


def _require_tags_deletable(repo: Repo, expiration: Expiration) -> None:
    """Raise GuardRefused if tags would be deleted and the flag delete_tag is off. Icechunk itself ignores the flag."""
    tags = [deletion.name for deletion in expiration.deletions if deletion.kind == "tag"]
    if tags and not is_enabled(repo, DELETE_TAG):
        raise GuardRefused(
            f"{counted(len(tags), f'tag, {tags[0]!r}, has', f'tags, {tags[0]!r} first, have')} expired, and the "
            "repository's feature flag delete_tag is off. "
            "Nothing was changed or deleted. Take delete_expired_tags out of the policy, or turn the flag on with "
            "icechunk (`Repository.set_feature_flag`)."
        )
