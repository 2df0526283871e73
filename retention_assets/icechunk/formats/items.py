"""Reads metadata items of snapshots and of the repo object: names with values, whose bytes are not decoded here."""

from itertools import islice

import numpy as np
import numpy.typing as npt

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.flat_columns import TableRows
from retention_assets.icechunk.formats.slots import ItemSlot


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
    spans = zip(values.starts.tolist(), values.lengths.tolist(), strict=True)
    pairs = zip(
        items.texts(ItemSlot.NAME), (buffer.content[start : start + size] for start, size in spans), strict=True
    )
    maps = []
    for count in counts.tolist():
        owned = {key: value for key, value in islice(pairs, count) if key is not None}
        if len(owned) != count:
            raise corrupt(buffer.name, "two metadata items of one owner have one name")
        maps.append(owned)
    return maps
