"""Reads the `repo` object of a repository of format 2, with its ops log.

The writer uses the same enumerations of the slots of each table's fields.
Source: docs/icechunk-formats.md, "Repo object".
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from retention_assets.errors import corrupt
from retention_assets.icechunk.formats.envelope import FileType, open_file, unknown_to_us
from retention_assets.icechunk.formats.flat_reader import (
    BOOL,
    LAST_TIMESTAMP,
    UINT8,
    UINT16,
    UINT32,
    FlatBuffer,
    Table,
    TableRows,
    required,
)
from retention_assets.icechunk.formats.model import (
    MAIN,
    Availability,
    Repo,
    RepoStatus,
    SnapshotInfo,
    Update,
    UpdateKind,
)
from retention_assets.icechunk.formats.snapshots import item_maps


class RepoSlot(IntEnum):
    """Fields of the root table."""

    SPEC_VERSION = 0
    TAGS = 1
    BRANCHES = 2
    DELETED_TAGS = 3
    SNAPSHOTS = 4
    STATUS = 5
    METADATA = 6
    LATEST_UPDATES = 7
    REPO_BEFORE_UPDATES = 8
    CONFIG = 9
    ENABLED_FLAGS = 10
    DISABLED_FLAGS = 11
    EXTRA = 12


class RefSlot(IntEnum):
    """Fields of a branch or tag."""

    NAME = 0
    SNAPSHOT_INDEX = 1  # index into the list of snapshots


class SnapshotSlot(IntEnum):
    """Fields of a snapshot's entry."""

    ID = 0
    PARENT_OFFSET = 1  # index into the list of snapshots; -1 for a root
    FLUSHED_AT = 2
    MESSAGE = 3
    METADATA = 4
    PRUNED_ANCESTOR_TX_LOGS = 5  # absent when empty


class UpdateSlot(IntEnum):
    """Fields of an entry of the ops log."""

    KIND = 0
    VALUE = 1  # a table with the fields in `UPDATE_FIELDS`
    UPDATED_AT = 2
    BACKUP_PATH = 3


class StatusSlot(IntEnum):
    """Fields of the status."""

    AVAILABILITY = 0
    SET_AT = 1
    REASON = 2


_NAME, _PREVIOUS, _NEW = "name", "previous_snapshot_id", "new_snapshot_id"
UPDATE_FIELDS: dict[UpdateKind, tuple[str, ...]] = {  # in the order of their slots; kinds that are not here have none
    UpdateKind.REPO_MIGRATED: ("from_version", "to_version"),
    UpdateKind.TAG_CREATED: (_NAME,),
    UpdateKind.TAG_DELETED: (_NAME, _PREVIOUS),
    UpdateKind.BRANCH_CREATED: (_NAME,),
    UpdateKind.BRANCH_DELETED: (_NAME, _PREVIOUS),
    UpdateKind.BRANCH_RESET: (_NAME, _PREVIOUS),
    UpdateKind.NEW_COMMIT: (_NAME, _NEW),
    UpdateKind.COMMIT_AMENDED: (_NAME, _PREVIOUS, _NEW),
    UpdateKind.NEW_DETACHED_SNAPSHOT: (_NEW,),
    UpdateKind.FEATURE_FLAG_CHANGED: ("flag_id", "flag_value", "flag_is_set"),
    UpdateKind.REPO_STATUS_CHANGED: ("status",),
}
UPDATE_NUMBERS = {
    "from_version": UINT8,
    "to_version": UINT8,
    "flag_id": UINT16,
    "flag_value": BOOL,
    "flag_is_set": BOOL,
}
ROOT_PARENT = -1  # the parent index of a root; an absent field reads as 0, the first snapshot of the list


def read_repo(content: bytes, name: str) -> Repo:
    """Return the repo object in the file `content`; `name` is its path, for messages.

    Raises:
        CorruptFile: as `open_file`; or a reference or parent points to no snapshot, names or ids are not in strictly
            ascending order (icechunk would not find them), `main` or the ops log is missing, or a part of the file
            comes from a newer icechunk.
    """
    header, body = open_file(content, FileType.REPO, name)
    root = FlatBuffer(body, name).root()
    root.require_known(len(RepoSlot), "the repo object")
    if not root.number(RepoSlot.SPEC_VERSION, UINT8) == header.spec_version == 2:
        raise corrupt(name, f"its content has spec version {root.number(RepoSlot.SPEC_VERSION, UINT8)}, not 2")
    snapshots = _snapshots(root)
    ids = [snapshot.id for snapshot in snapshots]
    updates = tuple(map(_update, root.tables(RepoSlot.LATEST_UPDATES) or ()))
    branches = _references(root, RepoSlot.BRANCHES, ids)
    if MAIN not in branches or not updates:
        raise corrupt(name, "it has no branch `main`, or no ops log")
    return Repo(
        branches=branches,
        snapshots=dict(zip(ids, snapshots, strict=True)),
        status=_status(required(root.table(RepoSlot.STATUS), name, "its status")),
        latest_updates=updates,
        tags=_references(root, RepoSlot.TAGS, ids),
        deleted_tags=_deleted_tags(root),
        metadata=_metadata(root),
        repo_before_updates=root.text(RepoSlot.REPO_BEFORE_UPDATES),
        config=root.octets(RepoSlot.CONFIG),
        enabled_feature_flags=_flags(root, RepoSlot.ENABLED_FLAGS),
        disabled_feature_flags=_flags(root, RepoSlot.DISABLED_FLAGS),
        extra=root.octets(RepoSlot.EXTRA),
    )


def _snapshots(root: Table) -> list[SnapshotInfo]:
    """Return the snapshots in the order of their ids."""
    name = root.buffer.name
    rows = root.rows(RepoSlot.SNAPSHOTS, "its snapshots")
    rows.require_known(len(SnapshotSlot), "a snapshot")
    rows.require_field(SnapshotSlot.ID, "the id of a snapshot")
    rows.require_field(SnapshotSlot.MESSAGE, "the message of a snapshot")
    ids: list[bytes] = rows.inline(SnapshotSlot.ID, 12).view("V12")[:, 0].tolist()
    _require_ascending(ids, name, "its snapshots")
    parents = rows.numbers(SnapshotSlot.PARENT_OFFSET, np.int32)
    flushed_at = rows.numbers(SnapshotSlot.FLUSHED_AT, np.uint64)
    if ((parents < ROOT_PARENT) | (parents >= len(ids))).any():
        raise corrupt(name, "the parent of a snapshot is not in it")
    if (flushed_at > LAST_TIMESTAMP).any():
        raise corrupt(name, "a snapshot in it has an impossible time")
    metadata = item_maps(*rows.rows(SnapshotSlot.METADATA))
    parent_ids = [None if parent == ROOT_PARENT else ids[parent] for parent in parents.tolist()]
    columns = (ids, parent_ids, flushed_at.tolist(), rows.texts(SnapshotSlot.MESSAGE), metadata, _pruned(rows))
    return list(map(SnapshotInfo, *columns))


def _pruned(rows: TableRows) -> list[tuple[bytes, ...]]:
    """Return for each snapshot its transaction logs of removed ancestors, which must stay."""
    starts, counts = rows.vectors(SnapshotSlot.PRUNED_ANCESTOR_TX_LOGS, 12)
    rows.buffer.spend(12 * int(counts.sum()))
    content = rows.buffer.content
    return [
        tuple(content[position : position + 12] for position in range(start, start + 12 * count, 12))
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True)
    ]


def _references(root: Table, slot: int, ids: Sequence[bytes]) -> dict[str, bytes]:
    """Return the snapshot that each branch or tag names."""
    name = root.buffer.name
    found: dict[str, bytes] = {}
    for table in required(root.tables(slot), name, "the list of its branches or tags"):
        table.require_known(len(RefSlot), "a reference")
        reference = required(table.text(RefSlot.NAME), name, "the name of a reference")
        index = table.number(RefSlot.SNAPSHOT_INDEX, UINT32)
        if index >= len(ids):
            raise corrupt(name, f"the snapshot of the reference {reference!r} is not in it")
        _require_ascending([*list(found)[-1:], reference], name, "its references")
        found[reference] = ids[index]
    return found


def _update(table: Table) -> Update:
    """Return one entry of the ops log."""
    name = table.buffer.name
    table.require_known(len(UpdateSlot), "an update")
    code = table.number(UpdateSlot.KIND, UINT8)
    if code not in UpdateKind:
        raise unknown_to_us(name, f"an update in it is of the unknown kind {code}")
    kind = UpdateKind(code)
    value = required(table.table(UpdateSlot.VALUE), name, "the value of an update")
    fields = UPDATE_FIELDS.get(kind, ())
    value.require_known(len(fields), f"an update of the kind {kind.name}")
    found = {field: _update_field(value, slot, field) for slot, field in enumerate(fields)}
    if found.pop("flag_is_set", True) is False:
        found["flag_value"] = None
    return Update(
        kind=kind,
        updated_at=table.timestamp(UpdateSlot.UPDATED_AT, "an update"),
        backup_path=table.text(UpdateSlot.BACKUP_PATH),
        **found,
    )


def _update_field(table: Table, slot: int, field: str) -> Any:
    name = table.buffer.name
    if kind := UPDATE_NUMBERS.get(field):
        number = table.number(slot, kind)
        return bool(number) if kind is BOOL else number
    if field == "status":
        return _status(required(table.table(slot), name, "the status in an update"))
    if field == "name":
        return required(table.text(slot), name, "the name in an update")
    return required(table.inline(slot, 12), name, "the snapshot in an update")


def _status(table: Table) -> RepoStatus:
    name = table.buffer.name
    table.require_known(len(StatusSlot), "the status")
    code = table.number(StatusSlot.AVAILABILITY, UINT8)
    if code not in Availability:
        raise unknown_to_us(name, f"its availability is the unknown {code}")
    set_at = table.timestamp(StatusSlot.SET_AT, "its status")
    return RepoStatus(Availability(code), set_at, table.text(StatusSlot.REASON))


def _deleted_tags(root: Table) -> frozenset[str]:
    name = root.buffer.name
    names = required(root.texts(RepoSlot.DELETED_TAGS), name, "the list of its deleted tags")
    _require_ascending(names, name, "its deleted tags")
    return frozenset(names)


def _metadata(root: Table) -> Mapping[str, bytes]:
    if root.vector(RepoSlot.METADATA, 4) is None:
        return {}
    items = root.rows(RepoSlot.METADATA, "its metadata")
    return item_maps(items, np.array([len(items)]))[0]


def _flags(root: Table, slot: int) -> frozenset[int] | None:
    content = root.octets(slot, 2)
    return None if content is None else frozenset(np.frombuffer(content, "<u2").tolist())


def _require_ascending(names: Sequence[str] | Sequence[bytes], name: str, what: str) -> None:
    """Raise CorruptFile unless names ascend in the order of their UTF-8 bytes; Python sorts str the same way."""
    if any(before >= after for before, after in pairwise(names)):  # type: ignore[operator]
        raise corrupt(name, f"{what} are not in order, or one is duplicated")
