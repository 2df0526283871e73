"""Expiration in format 1: snapshot files are rewritten with another parent, one after the other.

Source: seed 000; Icechunk facts 3, v1.
"""

from datetime import datetime

from retention_assets.icechunk.rules.expiration import (
    Edit,
    Expiration,
    Reparented,
    deletion_of,
    edited,
    require_allowed,
)
from retention_assets.icechunk.rules.retention import NOTHING_UNAPPROVED, Unapproved, select
from retention_assets.icechunk.rules.snapshots import History, anchors, reachable
from retention_assets.policy.snapshots import SnapshotPolicy


def expire_v1(
    history: History, policy: SnapshotPolicy, as_of: datetime, unapproved: Unapproved = NOTHING_UNAPPROVED
) -> Expiration:
    """Return the expiration of `history` under `policy` at `as_of` (UTC), with its edits in the order to make them.

    Tags come first, then branches, each sorted by name, as in icechunk. A history is walked from its tip. The last
    snapshot before the first expired one gets the root as its parent. An expired tip stays, and also gets the root as
    its parent:

        root <- x <- x <- k <- k (tip)   becomes   root <- k <- k (tip)
        root <- x <- x (tip)             becomes   root <- x (tip)

    A held or unapproved snapshot counts as a root here, and its own history is cut like the history of a tag. The tip
    of a deleted reference is not rewritten, because a rewritten file counts as young.
    Errors: as `select`; GuardRefused as `require_allowed`.
    """
    selection = select(history, policy, as_of, on_roots=True, unapproved=unapproved)
    walk = _Walk(history, selection.expired, anchors(history, selection.held))
    before, deleted = reachable(history, history.tips()), set(selection.deleted)
    for snapshot_id in sorted(selection.held & before):
        walk.cut(snapshot_id)
    for reference in history.references():
        if reference in deleted:
            walk.pass_over(reference.tip)
            walk.edits.append(deletion_of(reference))
        else:
            walk.cut(reference.tip)
    after = edited(history, walk.edits)
    released = (before & selection.expired) - reachable(after, after.tips())
    expiration = Expiration(selection, tuple(walk.edits), frozenset(released), frozenset(walk.passed))
    require_allowed(history, expiration)
    return expiration


class _Walk:
    """Cuts the histories of several starting snapshots, one after the other.

    No snapshot is walked twice. Below a kept snapshot that was walked, the history is already cut. Below an expired
    snapshot that was walked, `passed` already contains all expired snapshots. So many references on one long history
    cost one walk, and no snapshot is rewritten twice.
    """

    def __init__(self, history: History, expired: frozenset[bytes], anchor: dict[bytes, bytes]) -> None:
        self._parents = {snapshot_id: one.parent_id for snapshot_id, one in history.snapshots.items()}
        self._expired = expired
        self._anchor = anchor
        self._walked: set[bytes] = set()
        self.edits: list[Edit] = []
        self.passed: set[bytes] = set()

    def cut(self, start: bytes) -> None:
        """Make its anchor the parent of the last snapshot before the first expired one, or of an expired `start`."""
        editable = self._last_kept(start)
        if editable is None or self._parents[editable] not in self._expired:
            return
        self.pass_over(editable)
        self.edits.append(Reparented(editable, self._anchor[editable]))

    def pass_over(self, start: bytes) -> None:
        """Add the expired snapshots of the history of `start` to `passed`, if the parent of `start` has expired."""
        at: bytes | None = start
        if self._parents[start] not in self._expired:
            return
        while at is not None and at not in self.passed:
            if at in self._expired:
                self.passed.add(at)
            at = self._parents[at]

    def _last_kept(self, start: bytes) -> bytes | None:
        """Return the first snapshot from `start` on that is a root or has an expired parent; None if walked before."""
        at = start
        while at not in self._walked:
            self._walked.add(at)
            parent = self._parents[at]
            if parent is None or parent in self._expired:
                return at
            at = parent
        return None
