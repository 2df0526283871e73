"""Reads snapshot files of both formats, and changes the parent in files of format 1.

Source: docs/icechunk-formats.md, "Snapshots".
"""

from dataclasses import replace
from enum import IntEnum
from itertools import islice

import numpy as np
import numpy.typing as npt

from retention_assets.errors import corrupt
from retention_assets.icechunk.formats.envelope import FileType, open_file, seal, unknown_to_us
from retention_assets.icechunk.formats.flat_reader import FlatBuffer, Table, TableRows, required
from retention_assets.icechunk.formats.ids import require_named
from retention_assets.icechunk.formats.model import ManifestFile, Snapshot

_ID, _PARENT, _NODES, _FLUSHED_AT, _MESSAGE, _METADATA, _FILES, _FILES_V2, _EXTRA = range(9)
_NODE_TYPE, _NODE_DATA, _ARRAY_MANIFESTS = 3, 4, 2
_ARRAY, _GROUP = 1, 2
_FILE = np.dtype([("id", "V12"), ("", "V4"), ("size_bytes", "<u8"), ("num_chunk_refs", "<u4"), ("", "V4")])


class ItemSlot(IntEnum):
    """Fields of a metadata item: a name with a value, whose bytes are not decoded here."""

    NAME = 0
    VALUE = 1


def read_snapshot(content: bytes, name: str) -> Snapshot:
    """Return the snapshot in the file `content`.

    `name` is the path of the file. If the last part of the path is an id, it must be the snapshot's id.

    Raises:
        CorruptFile: as `open_file`; or the file contradicts its name or itself, or a node uses an unlisted manifest.
    """
    header, body = open_file(content, FileType.SNAPSHOT, name)
    root = FlatBuffer(body, name).root()
    root.require_known(_EXTRA + 1, "the snapshot")
    manifests = _manifests(root)
    _require_listed(root, manifests)
    items = root.rows(_METADATA, "its metadata")
    return Snapshot(
        id=require_named(required(root.inline(_ID, 12), name, "its id"), name),
        parent_id=root.inline(_PARENT, 12),
        flushed_at=root.timestamp(_FLUSHED_AT, "the snapshot"),
        message=required(root.text(_MESSAGE), name, "its message"),
        metadata=item_maps(items, np.array([len(items)]))[0],
        manifests=manifests,
        spec_version=header.spec_version,
    )


def with_parent(content: bytes, parent_id: bytes, name: str) -> bytes:
    """Return the snapshot file `content` of spec version 1 with the parent `parent_id`. Nothing else changes.

    Raises:
        CorruptFile: as `read_snapshot`.
        ValueError: the snapshot has no parent that could be replaced: it is a root, or of spec version 2.
    """
    snapshot = read_snapshot(content, name)
    if snapshot.spec_version != 1 or snapshot.parent_id is None or len(parent_id) != 12:
        raise ValueError(f"{name}: the snapshot of spec version {snapshot.spec_version} has no parent to replace")
    _, body = open_file(content, FileType.SNAPSHOT, name)
    position = required(FlatBuffer(body, name).root().inline_position(_PARENT, 12), name, "its parent")
    written = seal(body[:position] + parent_id + body[position + 12 :], FileType.SNAPSHOT, spec_version=1)
    if read_snapshot(written, name) != replace(snapshot, parent_id=parent_id):
        raise corrupt(name, "changing its parent would change something else")
    return written


def item_maps(items: TableRows, counts: npt.NDArray[np.int64]) -> list[dict[str, bytes]]:
    """Return one mapping per owner: its items by name, in the file's order.

    `items` has the items of all owners, one owner after the other; `counts` has the number of items of each owner.

    Raises:
        CorruptFile: an item has no name or no value, or two items of one owner have the same name.
    """
    if not len(items):
        return [{} for _ in counts]
    buffer = items.buffer
    items.require_known(len(ItemSlot), "a metadata item")
    items.require_field(ItemSlot.NAME, "the name of a metadata item")
    items.require_field(ItemSlot.VALUE, "the value of a metadata item")
    values = items.pieces(ItemSlot.VALUE)
    pieces = zip(values.starts.tolist(), values.lengths.tolist(), strict=True)
    pairs = zip(
        items.texts(ItemSlot.NAME), (buffer.content[start : start + size] for start, size in pieces), strict=True
    )
    maps = []
    for count in counts.tolist():
        owned = {key: value for key, value in islice(pairs, count) if key is not None}
        if len(owned) != count:
            raise corrupt(buffer.name, "two metadata items of one owner have one name")
        maps.append(owned)
    return maps


def _manifests(root: Table) -> tuple[ManifestFile, ...]:
    """Return the manifests that the snapshot lists. The newer list is used if the file has one, even an empty one."""
    if root.vector(_FILES_V2, 4) is not None:
        rows = root.rows(_FILES_V2, "its manifests")
        rows.require_known(4, "a manifest's entry")
        rows.require_field(0, "a manifest's id")
        columns = (rows.inline(0, 12).view("V12")[:, 0], rows.numbers(1, np.uint64), rows.numbers(2, np.uint32))
    else:
        name = root.buffer.name
        table = np.frombuffer(required(root.octets(_FILES, _FILE.itemsize), name, "its list of manifests"), _FILE)
        columns = (table["id"], table["size_bytes"], table["num_chunk_refs"])
    return tuple(map(ManifestFile, *(column.tolist() for column in columns)))


def _require_listed(root: Table, manifests: tuple[ManifestFile, ...]) -> None:
    """Raise CorruptFile when a node uses a manifest that is not listed. Such a manifest would seem unreferenced."""
    nodes = root.rows(_NODES, "its nodes")
    kinds = nodes.numbers(_NODE_TYPE, np.uint8)
    if not ((kinds == _ARRAY) | (kinds == _GROUP)).all():
        raise unknown_to_us(root.buffer.name, "a node in it is neither an array nor a group")
    used, _ = nodes.tables(_NODE_DATA, kinds == _ARRAY).rows(_ARRAY_MANIFESTS)
    used.require_field(0, "the id of a node's manifest")
    if not set(used.inline(0, 12).view("V12")[:, 0].tolist()) <= {manifest.id for manifest in manifests}:
        raise corrupt(root.buffer.name, "a node in it has a manifest that the snapshot does not list")
