"""Computes the retained set of an Icechunk repository: the snapshots and transaction logs that stay, and why.

The functions are pure. Plan, sweep and verification all use them.
Source: docs/icechunk.md, "What is deleted"; docs/icechunk-formats.md, "Expiration" and "Garbage collection".
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.collection import in_use, kept_transaction_logs, kept_v1, kept_v2, repo_without
from retention_assets.icechunk.rules.expiration import (
    Expiration,
    edited,
    expiration_v1,
    expiration_v2,
    repo_after,
)
from retention_assets.icechunk.rules.planned import PlannedEdits, expiration_within, raw_ids
from retention_assets.icechunk.rules.retention import Decision, Unapproved, held_snapshots
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.tables import EXPIRED_SNAPSHOTS

KEPT, RELEASED, DROPPED = "kept", "released", "dropped"
_UNKNOWN = Decision(False, None, None, None, "only its file exists: the repository's history does not contain it")
_YOUNG = "; its file stays while this snapshot, or one that needs it, is younger than the grace period or may be in use"
_NEEDED = "; it stays as long as a branch or tag, or a younger snapshot, needs it"
_UNREACHED = "; it is removed because nothing reaches it and its file is older than the grace period"
_DROPPED = Decision(
    False, None, None, None, "dropped: no branch or tag reaches it, and the default does not keep such a snapshot"
)


@dataclass(frozen=True, slots=True)
class RetainedSet:
    """The snapshots and transaction logs that stay, and the edits that lead to this set.

    `before` is the history before the edits. The `snapshots` stay with everything that they reference. The
    `transaction_logs` stay too, but need not exist. `expiration` has the edits to make; None: the set is computed
    without edits. The `dropped` snapshots are removed from the repo object after the edits; format 1 has none.
    """

    before: History
    snapshots: frozenset[bytes]
    transaction_logs: frozenset[bytes]
    expiration: Expiration | None = None
    dropped: frozenset[bytes] = frozenset()

    def leaving(self, state: IcechunkState) -> frozenset[bytes]:
        """Return the released snapshots whose files exist and do not stay; they explain why chunks are deleted."""
        released = self.expiration.released if self.expiration else frozenset()
        return frozenset(released & state.stored.keys()) - self.snapshots


def held_ids(state: IcechunkState, policy: SnapshotPolicy, as_of: datetime) -> frozenset[bytes]:
    """Return the snapshots that a hold in force names. Errors: GuardRefused when such a snapshot does not exist."""
    return frozenset(held_snapshots(state.history, policy, as_of))


def retained_set_of(
    state: IcechunkState,
    policy: SnapshotPolicy,
    as_of: datetime,
    cutoff: datetime,
    planned: PlannedEdits | None = None,
) -> RetainedSet:
    """Return what stays after an expiration under `policy` at `as_of` and a collection of files older than `cutoff`.

    A snapshot that may have been a tip since `cutoff` stays, because sessions may still be open on it (`in_use`). So
    does a branch or tag that was made or moved since `cutoff`.
    With `planned`, only snapshots and references that the plan names are released or deleted, and the snapshots that
    were in use when the plan was made stay.
    Errors: SourceError and GuardRefused as `select` and `require_allowed`.
    """
    bases = in_use(state.history, state.stored, cutoff, state.left, state.repo)
    young = Unapproved(deletions=frozenset(one.deletion for one, at in state.moved.items() if at >= cutoff))
    if planned:
        bases |= raw_ids(planned.in_use) & state.history.snapshots.keys()
    if state.repo is None:
        expiration = _within(planned, young, partial(expiration_v1, state.history, policy, as_of, in_use=bases))
        after = edited(state.history, expiration.edits)
        kept = kept_v1(after, state.stored, cutoff, expiration.selection.held | bases)
        return RetainedSet(state.history, kept, kept, expiration)
    expiration = _within(planned, young, partial(expiration_v2, state.history, policy, as_of, in_use=bases))
    repo = repo_after(state.repo, expiration)
    kept = kept_v2(repo, state.stored, cutoff, expiration.selection.held | bases)
    dropped = frozenset(repo.snapshots.keys() - kept)
    logs = kept_transaction_logs(repo_without(repo, dropped), kept)
    return RetainedSet(state.history, kept, logs, expiration, dropped)


def _within(planned: PlannedEdits | None, young: Unapproved, expire: Callable[[Unapproved], Expiration]) -> Expiration:
    return expiration_within(planned, expire)[0] if planned else expire(young)


def current_retained_set(state: IcechunkState, cutoff: datetime, held: Collection[bytes]) -> RetainedSet:
    """Return what stays of `state` without any edit: no snapshot expires.

    In format 2, every snapshot that the repo object lists and that has a file stays too. The sweep and the verification
    use this function: a snapshot must be removed from the history before its files may be deleted.
    Errors: as `kept_v1` and `kept_v2`.
    """
    if state.repo is None:
        kept = kept_v1(state.history, state.stored, cutoff, held)
        return RetainedSet(state.history, kept, kept)
    listed = kept_v2(state.repo, state.stored, cutoff, held) | (state.repo.snapshots.keys() & state.stored.keys())
    return RetainedSet(state.history, listed, kept_transaction_logs(state.repo, listed))


def edits_of(state: IcechunkState, retained: RetainedSet, as_of: datetime, cutoff: datetime) -> PlannedEdits:
    """Return the edits that lead from `state` to the set `retained`."""
    expiration = retained.expiration
    assert expiration is not None  # a plan's retained set always has an expiration
    return PlannedEdits(
        format=state.format,
        as_of=as_of,
        cutoff=cutoff,
        known=encoded(state.history.snapshots),
        released=encoded(expiration.released),
        dropped=encoded(retained.dropped),
        deleted=frozenset(expiration.selection.deleted),
        in_use=encoded(expiration.selection.in_use),
    )


def encoded(ids: Collection[bytes]) -> tuple[str, ...]:
    """Return the texts of ids, sorted."""
    return tuple(sorted(map(encode_id, ids)))


def decision_rows(state: IcechunkState, retained: RetainedSet) -> pa.Table:
    """Return `expired_snapshots`: one row for each snapshot of the history and for each other snapshot file."""
    rows = [_row(retained, snapshot_id) for snapshot_id in sorted(state.history.snapshots.keys() | state.stored.keys())]
    return pa.Table.from_pylist(rows, schema=EXPIRED_SNAPSHOTS.schema)


def _row(retained: RetainedSet, snapshot_id: bytes) -> dict[str, Any]:
    expiration = retained.expiration
    assert expiration is not None  # see `edits_of`
    decision = expiration.selection.decisions.get(snapshot_id, _UNKNOWN)
    released, stays = snapshot_id in expiration.released, snapshot_id in retained.snapshots
    if not (stays or released or decision.expired or decision is _UNKNOWN):
        decision = _DROPPED
    parent = expiration.reparented.get(snapshot_id)
    return {
        "snapshot_id": encode_id(snapshot_id),
        "decision": RELEASED if released else KEPT if stays else DROPPED,
        "stays": stays,
        "rule_id": decision.rule_id,
        "reference": decision.reference,
        "due_since": decision.due_since,
        "reason": decision.reason + _addition(decision, released=released, stays=stays),
        "new_parent_id": None if parent is None else encode_id(parent),
        "deleted_references": [str(one) for one in expiration.selection.deleted if one.tip == snapshot_id],
    }


def _addition(decision: Decision, *, released: bool, stays: bool) -> str:
    """Return the second part of the reason: why the snapshot stays or not, if the policy's reason is not enough."""
    if released:
        return _YOUNG if stays else ""
    if stays:
        return _NEEDED if decision.expired else ""
    return _UNREACHED
