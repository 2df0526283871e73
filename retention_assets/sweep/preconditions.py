"""What lies at planned addresses by now, asked of the store just before it is worked on.

An object that is gone, or is another than was planned, is left alone. Source: DESIGN.md, invariant 5.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import ObjectMissing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.state.ledger import MISSING, SKIPPED

GONE = "was gone before"
CHANGED = "changed since it was planned"
_AT_ONCE = 16  # questions on their way at once
_FACTS = (("size", "size"), ("last_modified", "last_modified"), ("etag", "e_tag"))  # as planned, as listed


@dataclass(frozen=True, slots=True)
class Facts:
    """Where to ask; it travels to executors. `keeps_missing`: what is gone is left to the action, which knows more."""

    access: StoreAccess
    keeps_missing: bool = False

    def open(self) -> "FactsOf":
        """Return what asks, with its client open."""
        return FactsOf(self.access, ObjectReader(self.access), self.keeps_missing)


@dataclass(frozen=True, slots=True)
class FactsOf:
    """See `Facts`."""

    access: StoreAccess
    reader: ObjectReader
    keeps_missing: bool

    def classified(self, objects: pa.Table) -> pa.Table:
        """Return rows of `OBJECTS`, each address once, with an outcome for what is gone and what is another object.

        Errors: of the store; what cannot be asked about is not worked on.
        """
        addresses = sorted(objects["address"].to_pylist())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            if self.access.lists_from_any_name:
                found = list(chain.from_iterable(pool.map(self._between, _places(addresses))))
            else:
                found = [self._heads(pool, addresses)]
        listed = pa.Table.from_batches(found, LISTING)
        return compared(objects, listed, keeps_missing=self.keeps_missing)

    def _between(self, place: "_Place") -> Sequence[pa.RecordBatch]:
        if not place.directory:
            return list(self.reader.list_direct(""))
        return list(self.reader.list_between(place.directory, place.first[:-1], place.last))

    def _heads(self, pool: ThreadPoolExecutor, addresses: Sequence[str]) -> pa.RecordBatch:
        rows = [row for row in pool.map(self._head, addresses) if row]
        return pa.RecordBatch.from_pylist(rows, LISTING)

    def _head(self, address: str) -> dict[str, object] | None:
        try:
            facts = self.reader.head(address)
        except ObjectMissing:
            return None
        e_tag = None if self.access.is_local else facts.e_tag  # it names the file, not what is in it
        return {"path": address, "last_modified": facts.last_modified, "size": facts.size, "e_tag": e_tag}


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory, with the first and the last name in it that is asked about, as whole paths."""

    directory: str
    first: str
    last: str


def _places(addresses: Sequence[str]) -> Iterator[_Place]:
    """Yield the parts of directories that have these addresses, which are in order."""
    for directory, group in groupby(addresses, key=lambda address: address[: address.rfind("/") + 1]):
        names = list(group)
        yield _Place(directory, names[0], names[-1])


def compared(objects: pa.Table, listed: pa.Table, *, keeps_missing: bool) -> pa.Table:
    """Return rows of `OBJECTS` with an outcome for what `listed`, of `LISTING`, lacks or has otherwise.

    A fact that one of the two does not know makes no difference. A store may list an object twice, and differently:
    then it is not surely the planned one.
    """
    place = pc.index_in(listed["path"], value_set=objects["address"].combine_chunks())
    rows = listed.filter(pc.is_valid(place))
    of = pc.drop_null(place).to_numpy()
    planned = objects.take(pa.array(of, pa.int64()))
    there, changed = np.zeros((2, objects.num_rows), bool)
    there[of] = True
    for name, listed_as in _FACTS:
        changed[of[_differ(planned[name], rows[listed_as])]] = True
    stays = changed | ~(there | keeps_missing)
    known = {name: objects[name] for name in objects.column_names}
    known["outcome"] = pa.array(np.where(changed, SKIPPED, MISSING), pa.string(), mask=~stays)
    known["detail"] = pa.array(np.where(changed, CHANGED, GONE), pa.string(), mask=~stays)
    return pa.table(known)


def _differ(planned: pa.ChunkedArray, listed: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    differing: npt.NDArray[np.bool_] = pc.fill_null(pc.not_equal(planned, listed), False).to_numpy()
    return differing
