"""Writes the policy's decision on each snapshot as rows of `expired_snapshots`, for people to read."""

from typing import Any

import pyarrow as pa

from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.retention import Decision
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.retained_set import RetainedSet
from retention_assets.tables import EXPIRED_SNAPSHOTS

KEPT, RELEASED, DROPPED = "kept", "released", "dropped"
_UNKNOWN = Decision(False, None, None, None, "only its file is there: no history knows it")
_YOUNG = "; its file is younger than the grace period, and stays"
_NAMED = "; it stays as long as a branch or tag, or a younger snapshot, needs it"
_UNREACHED = "; it goes since nothing reaches it and its file is old"


def decision_rows(state: IcechunkState, retained: RetainedSet) -> pa.Table:
    """Return `expired_snapshots`: one row for each snapshot of the history and for each other snapshot file."""
    rows = [_row(retained, snapshot_id) for snapshot_id in sorted(state.history.snapshots.keys() | state.stored.keys())]
    return pa.Table.from_pylist(rows, schema=EXPIRED_SNAPSHOTS.schema)


def _row(retained: RetainedSet, snapshot_id: bytes) -> dict[str, Any]:
    expiration = retained.expiration
    assert expiration is not None  # a plan's retained set always has an expiration
    decision = expiration.selection.decisions.get(snapshot_id, _UNKNOWN)
    released, stays = snapshot_id in expiration.released, snapshot_id in retained.snapshots
    parent = expiration.reparented.get(snapshot_id)
    return {
        "snapshot_id": encode_id(snapshot_id),
        "decision": RELEASED if released else KEPT if stays else DROPPED,
        "stays": stays,
        "rule_id": decision.rule_id,
        "reference": decision.reference,
        "due_since": decision.due_since,
        "reason": decision.reason + _but(decision, released=released, stays=stays),
        "new_parent_id": None if parent is None else encode_id(parent),
        "deleted_references": [str(one) for one in expiration.selection.deleted if one.tip == snapshot_id],
    }


def _but(decision: Decision, *, released: bool, stays: bool) -> str:
    """Return the second part of the reason: why the snapshot stays or goes, if the policy's reason does not tell."""
    if released:
        return _YOUNG if stays else ""
    if stays:
        return _NAMED if decision.expired else ""
    return _UNREACHED
