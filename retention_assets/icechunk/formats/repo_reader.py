"""Reads the `repo` object of a repository of format 2. Source: Icechunk facts 2, Repo."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.checks import LAST_INSTANT
from retention_assets.icechunk.formats.envelope import FileType, open_file
from retention_assets.icechunk.formats.flat_columns import TableRows, rows_of
from retention_assets.icechunk.formats.flat_reader import UINT8, UINT32, FlatBuffer, Table, required
from retention_assets.icechunk.formats.items import item_maps
from retention_assets.icechunk.formats.model import MAIN, Repo, SnapshotInfo
from retention_assets.icechunk.formats.slots import RefSlot, RepoSlot, SnapshotSlot
from retention_assets.icechunk.formats.updates import read_status, read_update

_ROOT = -1  # the parent index of a root; an absent field reads as 0, the first snapshot of the list


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
        raise corrupt(name, f"it says it is of spec version {root.number(RepoSlot.SPEC_VERSION, UINT8)}, not 2")
    snapshots = _snapshots(root)
    ids = [snapshot.id for snapshot in snapshots]
    updates = tuple(map(read_update, root.tables(RepoSlot.LATEST_UPDATES) or ()))
    branches = _references(root, RepoSlot.BRANCHES, ids)
    if MAIN not in branches or not updates:
        raise corrupt(name, "it has no branch `main`, or no ops log")
    return Repo(
        branches=branches,
        snapshots=dict(zip(ids, snapshots, strict=True)),
        status=read_status(required(root.table(RepoSlot.STATUS), name, "its status")),
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
    rows = rows_of(root, RepoSlot.SNAPSHOTS, "its snapshots")
    rows.require_known(len(SnapshotSlot), "a snapshot")
    rows.require_field(SnapshotSlot.ID, "the id of a snapshot")
    rows.require_field(SnapshotSlot.MESSAGE, "the message of a snapshot")
    ids: list[bytes] = rows.inline(SnapshotSlot.ID, 12).view("V12")[:, 0].tolist()
    _require_ascending(ids, name, "its snapshots")
    parents = rows.numbers(SnapshotSlot.PARENT_OFFSET, np.int32)
    flushed_at = rows.numbers(SnapshotSlot.FLUSHED_AT, np.uint64)
    if ((parents < _ROOT) | (parents >= len(ids))).any():
        raise corrupt(name, "the parent of a snapshot is not in it")
    if (flushed_at > LAST_INSTANT).any():
        raise corrupt(name, "a snapshot in it is from a time that cannot be")
    metadata = item_maps(*rows.rows(SnapshotSlot.METADATA))
    parent_ids = [None if parent == _ROOT else ids[parent] for parent in parents.tolist()]
    columns = (ids, parent_ids, flushed_at.tolist(), rows.texts(SnapshotSlot.MESSAGE), metadata, _pruned(rows))
    return list(map(SnapshotInfo, *columns))


def _pruned(rows: TableRows) -> list[tuple[bytes, ...]]:
    """Return for each snapshot the transaction logs that must stay although their own snapshots were removed."""
    starts, counts = rows.vectors(SnapshotSlot.PRUNED_ANCESTOR_TX_LOGS, 12)
    rows.buffer.spend(12 * int(counts.sum()))
    content = rows.buffer.content
    return [
        tuple(content[place : place + 12] for place in range(start, start + 12 * count, 12))
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


def _deleted_tags(root: Table) -> frozenset[str]:
    name = root.buffer.name
    names = required(root.texts(RepoSlot.DELETED_TAGS), name, "the list of its deleted tags")
    _require_ascending(names, name, "its deleted tags")
    return frozenset(names)


def _metadata(root: Table) -> Mapping[str, bytes]:
    if root.vector(RepoSlot.METADATA, 4) is None:
        return {}
    items = rows_of(root, RepoSlot.METADATA, "its metadata")
    return item_maps(items, np.array([len(items)]))[0]


def _flags(root: Table, slot: int) -> frozenset[int] | None:
    content = root.structs(slot, 2)
    return None if content is None else frozenset(np.frombuffer(content, "<u2").tolist())


def _require_ascending(names: Sequence[str] | Sequence[bytes], name: str, what: str) -> None:
    """Raise CorruptFile unless names ascend in the order of their UTF-8 bytes; Python sorts str the same way."""
    if any(before >= after for before, after in pairwise(names)):  # type: ignore[operator]
        raise corrupt(name, f"{what} are not in order, or one is there twice")
