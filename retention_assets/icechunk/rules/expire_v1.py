"""Expiration in format 1: snapshot files are written again with another parent, one after the other.

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
    """Return the writes that expire `history` under `policy` at `as_of` (UTC), in the order to do them.

    Tags come first, then branches, each by name, as in icechunk. Along a history the last snapshot before the first
    expired one gets the root as its parent; a tip that has expired itself stays, and gets it:

        root <- x <- x <- k <- k (tip)   becomes   root <- k <- k (tip)
        root <- x <- x (tip)             becomes   root <- x (tip)

    A held or unapproved snapshot counts as a root here, and its own history is cut like that of a tag. The tip of a
    reference that is deleted is not written again, since that would make its file young.
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
    """The histories of several starts, cut one after the other.

    What was walked before is not walked again: below a kept snapshot everything is cut already, and below an expired
    one noted. So many references on one long history cost one walk of it, and nothing is written twice.
    """

    def __init__(self, history: History, expired: frozenset[bytes], anchor: dict[bytes, bytes]) -> None:
        self._parents = {snapshot_id: one.parent_id for snapshot_id, one in history.snapshots.items()}
        self._expired = expired
        self._anchor = anchor
        self._settled: set[bytes] = set()
        self.edits: list[Edit] = []
        self.passed: set[bytes] = set()

    def cut(self, start: bytes) -> None:
        """Give the last snapshot before the first expired one, or a start that has expired, its anchor as parent."""
        editable = self._last_kept(start)
        if editable is None or self._parents[editable] not in self._expired:
            return
        self.pass_over(editable)
        self.edits.append(Reparented(editable, self._anchor[editable]))

    def pass_over(self, start: bytes) -> None:
        """Note `start` and what is below it as passed over, where it has expired and its parent too."""
        at: bytes | None = start
        if self._parents[start] not in self._expired:
            return
        while at is not None and at not in self.passed:
            if at in self._expired:
                self.passed.add(at)
            at = self._parents[at]

    def _last_kept(self, start: bytes) -> bytes | None:
        """Return the last snapshot that is kept all the way from `start`, or `start`; None where that is settled."""
        at = start
        while at not in self._settled:
            self._settled.add(at)
            parent = self._parents[at]
            if parent is None or parent in self._expired:
                return at
            at = parent
        return None
