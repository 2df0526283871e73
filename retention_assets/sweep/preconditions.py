"""Checks planned objects against the store just before the action: missing or changed objects are not processed.

Objects that the newest plan does not name are checked here, and not skipped earlier: if an interrupted sweep deleted or
moved such an object, the ledger must say so.

Source: DESIGN.md, invariant 5.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import ObjectMissing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.objectstore.outcomes import Outcome

GONE = "was gone before"
CHANGED = "changed since it was planned"
_AT_ONCE = 16  # concurrent requests
_COMPARED_COLUMNS = (
    ("size", "size"),
    ("last_modified", "last_modified"),
    ("etag", "e_tag"),
)  # names in the plan, in the listing


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The precondition check of objects in a store; pickled to executors.

    With `keeps_missing`, missing objects are passed on to the action, which also checks other locations.
    """

    access: StoreAccess
    keeps_missing: bool = False

    def open(self) -> ObjectReader:
        """Return an open client for `classified`."""
        return ObjectReader(self.access)

    def classified(self, objects: pa.Table, reader: ObjectReader) -> pa.Table:
        """Return rows of `OBJECTS`, each address once, with an outcome for missing and for changed objects.

        Errors: of the store. Objects that cannot be checked are not processed.
        """
        addresses = sorted(objects["address"].to_pylist())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            if self.access.lists_from_any_name:
                found = list(chain.from_iterable(pool.map(partial(_between, reader), _key_ranges(addresses))))
            else:
                heads = pool.map(partial(self._head, reader), addresses)
                found = [pa.RecordBatch.from_pylist([row for row in heads if row], LISTING)]
        listed = pa.Table.from_batches(found, LISTING)
        return compared(objects, listed, keeps_missing=self.keeps_missing)

    def _head(self, reader: ObjectReader, address: str) -> dict[str, object] | None:
        try:
            metadata = reader.head(address)
        except ObjectMissing:
            return None
        e_tag = None if self.access.is_local else metadata.e_tag  # a local ETag identifies the file, not its content
        return {"path": address, "last_modified": metadata.last_modified, "size": metadata.size, "e_tag": e_tag}


@dataclass(frozen=True, slots=True)
class _KeyRange:
    """A key range: a directory, with the first and the last path in it to check."""

    directory: str
    first: str
    last: str


def _key_ranges(addresses: Sequence[str]) -> Iterator[_KeyRange]:
    """Yield the key range of each directory that has some of `addresses`, which must be sorted."""
    for directory, those_in in groupby(addresses, key=lambda address: address[: address.rfind("/") + 1]):
        names = list(those_in)
        yield _KeyRange(directory, names[0], names[-1])


def _between(reader: ObjectReader, keys: _KeyRange) -> Sequence[pa.RecordBatch]:
    if not keys.directory:
        return list(reader.list_direct(""))
    return list(reader.list_between(keys.directory, keys.first[:-1], keys.last))


def compared(objects: pa.Table, listed: pa.Table, *, keeps_missing: bool) -> pa.Table:
    """Return `objects` with an outcome for those that are missing from `listed`, differ from it, or have a detail.

    An object with a detail is skipped if it is in `listed`. `objects` has rows of `OBJECTS`, `listed` has rows of
    `LISTING`. A size, modification time or ETag that is null on one side is not compared. If a store lists an object
    twice with different values, the object counts as changed.
    """
    number = pc.index_in(listed["path"], value_set=objects["address"].combine_chunks())
    rows = listed.filter(pc.is_valid(number))
    of = pc.drop_null(number).to_numpy()
    planned = objects.take(pa.array(of, pa.int64()))
    there, changed = np.zeros((2, objects.num_rows), bool)
    there[of] = True
    for name, listed_as in _COMPARED_COLUMNS:
        changed[of[_differ(planned[name], rows[listed_as])]] = True
    excluded = there & pc.is_valid(objects["detail"]).to_numpy()
    stays = changed | excluded | ~(there | keeps_missing)
    known = {name: objects[name] for name in objects.column_names}
    known["outcome"] = pa.array(np.where(there, Outcome.SKIPPED, Outcome.MISSING), pa.string(), mask=~stays)
    seen = pa.array(np.where(changed, CHANGED, GONE), pa.string(), mask=~stays)
    known["detail"] = pc.if_else(pa.array(excluded), objects["detail"], seen)
    return pa.table(known)


def _differ(planned: pa.ChunkedArray, listed: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    differing: npt.NDArray[np.bool_] = pc.fill_null(pc.not_equal(planned, listed), False).to_numpy()
    return differing
