"""Converts the state of an Icechunk repository to rows and details of `repository_history`, and back.

The state is read once, so every step of a plan uses the same state, whatever writers do meanwhile.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import pyarrow as pa

from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo
from retention_assets.icechunk.rules.snapshots import History, Reference, Snapshot, lineage, micros_of
from retention_assets.icechunk.rules.updates import DELETE_TAG, is_enabled
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.tables import REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import Details, needed


def history_rows(state: IcechunkState) -> pa.Table:
    """Return `repository_history`: a row for each snapshot of the history, and for each other snapshot file."""
    names = _Names(state.history)
    infos = state.repo.snapshots if state.repo else {}
    rows = [
        _row(state, snapshot_id, names, infos.get(snapshot_id))
        for snapshot_id in sorted(state.history.snapshots.keys() | state.stored.keys())
    ]
    return pa.Table.from_pylist(rows, schema=REPOSITORY_HISTORY.schema)


def history_details(state: IcechunkState, cutoff: datetime | None = None) -> Details:
    """Return the details that are in no row, such as format, status and cutoff; `state_of` reads them again."""
    status = state.repo.status if state.repo else RepoStatus(Availability.ONLINE, 0)
    return Details(
        format=state.format,
        deleted_tags=tuple(sorted(state.deleted_tags)),
        availability=status.availability.word,
        limits=status.limited_availability_reason or "",
        tags_deletable=state.repo is None or is_enabled(state.repo, DELETE_TAG),
        cutoff=cutoff,
        moved=tuple(sorted(f"{one.kind} {at.isoformat()} {one.name}" for one, at in state.moved.items())) or None,
        not_before=tuple(sorted(f"{encode_id(one)} {at.isoformat()}" for one, at in state.not_before.items())) or None,
    )


def _moved(texts: Sequence[str], history: History) -> dict[Reference, datetime]:
    times = {(kind, name): at for kind, at, name in (text.split(" ", 2) for text in texts)}
    return {
        one: datetime.fromisoformat(times[one.kind, one.name])
        for one in history.references()
        if (one.kind, one.name) in times
    }


def not_before_of(details: Details) -> dict[bytes, datetime]:
    """Return the snapshots that cannot be as old as their writer says, each with its earliest time (UTC)."""
    pairs = (text.split(" ") for text in details.not_before or ())
    return {decode_id(snapshot_id): datetime.fromisoformat(at) for snapshot_id, at in pairs}


def history_hash(history: History) -> str:
    """Return a hash of all branches and tags with their snapshots, and of all snapshots with their parents."""
    named = {
        "branches": {name: encode_id(tip) for name, tip in history.branches.items()},
        "tags": {name: encode_id(tip) for name, tip in history.tags.items()},
        "snapshots": sorted([encode_id(one.snapshot_id), _text(one.parent_id)] for one in history.snapshots.values()),
    }
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()


def state_of(rows: pa.Table, details: Details, taken_at: datetime) -> IcechunkState:
    """Return the state that `history_rows` and `history_details` recorded.

    The state is only for planning: its repo object has no ops log, and its snapshots have no messages and no metadata.
    No snapshot is older than its time in `not_before`.
    """
    found: list[dict[str, Any]] = rows.to_pylist()
    listed = [row for row in found if row["listed"]]
    not_before = not_before_of(details)
    snapshots = {
        (raw := decode_id(row["snapshot_id"])): Snapshot(
            raw, _raw(row["parent_id"]), max(row["flushed_at"], not_before.get(raw, row["flushed_at"]))
        )
        for row in listed
    }
    history = History(snapshots, _named(found, "tip_of"), _named(found, "tags"))
    stored_format: Literal[1, 2] = 1 if details.format == 1 else 2
    deleted_tags = frozenset(needed(details.deleted_tags, REPOSITORY_HISTORY.name, "deleted_tags"))
    stored = {decode_id(row["snapshot_id"]): row["stored_at"] for row in found if row["stored_at"]}
    left = {decode_id(row["snapshot_id"]): row["left_at"] for row in found if row["left_at"]}
    repo = _repo(listed, history, deleted_tags, details) if stored_format == 2 else None
    moved = _moved(details.moved or (), history)
    return IcechunkState(stored_format, history, repo, deleted_tags, stored, taken_at, left, moved, not_before)


class _Names:
    """The branches and tags that name each snapshot, and the branches that reach each snapshot."""

    def __init__(self, history: History) -> None:
        self.tip_of: dict[bytes, list[str]] = {}
        self.tags: dict[bytes, list[str]] = {}
        self.branches: dict[bytes, list[str]] = {}
        for name, tip in sorted(history.branches.items()):
            self.tip_of.setdefault(tip, []).append(name)
            for snapshot_id in lineage(history, tip, ()):
                self.branches.setdefault(snapshot_id, []).append(name)
        for name, tip in sorted(history.tags.items()):
            self.tags.setdefault(tip, []).append(name)


def _row(state: IcechunkState, snapshot_id: bytes, names: _Names, info: SnapshotInfo | None) -> dict[str, Any]:
    known = state.history.snapshots.get(snapshot_id)
    return {
        "snapshot_id": encode_id(snapshot_id),
        "parent_id": encode_id(known.parent_id) if known and known.parent_id else None,
        "flushed_at": known.flushed_at if known else None,
        "stored_at": state.stored.get(snapshot_id),
        "listed": known is not None,
        "message": info.message if info else None,
        "branches": names.branches.get(snapshot_id, []),
        "tip_of": names.tip_of.get(snapshot_id, []),
        "tags": names.tags.get(snapshot_id, []),
        "pruned_logs": [encode_id(one) for one in info.pruned_ancestor_tx_logs] if info else [],
        "left_at": state.left.get(snapshot_id),
    }


def _repo(rows: list[dict[str, Any]], history: History, deleted_tags: frozenset[str], details: Details) -> Repo:
    logs = {decode_id(row["snapshot_id"]): tuple(map(decode_id, row["pruned_logs"])) for row in rows}
    snapshots = {
        raw: SnapshotInfo(raw, one.parent_id, micros_of(one.flushed_at), "", {}, logs[raw])
        for raw, one in history.snapshots.items()
    }
    word = needed(details.availability, REPOSITORY_HISTORY.name, "availability")
    availability = {one.word: one for one in Availability}[word]
    status = RepoStatus(availability, 0, details.limits or None)
    return Repo(history.branches, snapshots, status, (), history.tags, deleted_tags)


def _named(rows: list[dict[str, Any]], column: str) -> dict[str, bytes]:
    return {name: decode_id(row["snapshot_id"]) for row in rows for name in row[column]}


def _raw(text: str | None) -> bytes | None:
    return None if text is None else decode_id(text)


def _text(raw: bytes | None) -> str:
    return "" if raw is None else encode_id(raw)
