"""Reads one field of many flatbuffer tables at once, for one table or a million. Source: Icechunk facts 7."""

import numpy as np
import numpy.typing as npt

from retention_assets.core.columns import Pieces
from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.envelope import unknown_to_us
from retention_assets.icechunk.formats.flat_reader import OUTSIDE, FlatBuffer, Table

type Numbers = npt.NDArray[np.int64]
type Octets = npt.NDArray[np.uint8]

_MOST_SHARED = 64  # limit of the length of all texts, as a multiple of the file's size; rows may share texts


class TableRows:
    """Tables of one kind, one row each; every check of bounds and alignment covers all rows at once.

    Places are positions in the file's bytes. Place 0 means that the row lacks the field.
    """

    __slots__ = ("_fields", "_vtables", "buffer", "positions")

    def __init__(self, buffer: FlatBuffer, positions: Numbers) -> None:
        self.buffer = buffer
        self.positions = positions
        self._vtables = positions - _read(buffer, np.int32, positions)
        self._fields = _read(buffer, np.uint16, self._vtables)
        _require_inside(buffer, self._vtables + self._fields, 0)
        if self._fields.min(initial=4) < 4:
            raise corrupt(buffer.name, OUTSIDE)

    def __len__(self) -> int:
        return len(self.positions)

    def require_known(self, slots: int, what: str) -> None:
        """Raise CorruptFile when a row has fields from slot `slots` on: a newer writer's fields may matter."""
        if self._fields.max(initial=4) > 4 + 2 * slots:
            raise unknown_to_us(self.buffer.name, f"{what} in it has fields that this version does not know")

    def require_field(self, slot: int, what: str) -> None:
        """Raise CorruptFile when a row lacks the field."""
        if not self.places(slot).all():
            raise corrupt(self.buffer.name, f"{what} is missing in it")

    def places(self, slot: int) -> Numbers:
        """Return the place of the field in each row."""
        offset = 4 + 2 * slot
        there = self._fields >= offset + 2
        fields = _read(self.buffer, np.uint16, np.where(there, self._vtables + offset, 0))
        return np.where(there & (fields > 0), self.positions + fields, 0)

    def numbers(self, slot: int, kind: type[np.generic]) -> Numbers:
        """Return a scalar field as 64-bit integers, and 0 where a row lacks the field.

        All fields read this way have the default 0.

        Raises:
            CorruptFile: a number is 2^63 or more.
        """
        places = self.places(slot)
        values = np.where(places > 0, _read(self.buffer, kind, places), 0)
        if kind is np.uint64 and (values < 0).any():
            raise corrupt(self.buffer.name, "a number in it is too large to be true")
        return values

    def inline(self, slot: int, size: int) -> Octets:
        """Return the bytes of a struct field, one row each; the bytes of a row without the field are arbitrary."""
        places = self.places(slot)
        _require_inside(self.buffer, places, size)
        if not len(places):
            return np.empty((0, size), np.uint8)
        return np.lib.stride_tricks.sliding_window_view(self._octets(), size)[places]

    def pieces(self, slot: int) -> Pieces:
        """Return the bytes of a string or of a vector of bytes; empty where a row has none."""
        starts, lengths = self.vectors(slot, 1)
        if int(lengths.sum()) > _MOST_SHARED * len(self.buffer.content):
            raise corrupt(self.buffer.name, "its texts are used too often")
        return Pieces(self._octets(), starts, lengths)

    def vectors(self, slot: int, size: int) -> tuple[Numbers, Numbers]:
        """Return the start and the number of items, of `size` bytes each, of a vector field; 0 and 0 for none."""
        targets = self._targets(slot)
        there = targets > 0
        counts = np.where(there, _read(self.buffer, np.uint32, targets), 0)
        if (targets + 4 + size * counts > len(self.buffer.content)).any():
            raise corrupt(self.buffer.name, OUTSIDE)
        return np.where(there, targets + 4, 0), counts

    def texts(self, slot: int) -> list[str | None]:
        """Return a string field, and None where a row lacks the field."""
        return [self.buffer.text(place) if place else None for place in self._targets(slot).tolist()]

    def tables(self, slot: int, wanted: npt.NDArray[np.bool_]) -> "TableRows":
        """Return the tables that a field of the `wanted` rows refers to; CorruptFile when a row lacks the field."""
        targets = self._targets(slot)[wanted]
        if not targets.all():
            raise corrupt(self.buffer.name, "a table is missing in it")
        return TableRows(self.buffer, targets)

    def rows(self, slot: int) -> "tuple[TableRows, Numbers]":
        """Return the tables of a vector field, row after row, and the number of tables of each row."""
        starts, counts = self.vectors(slot, 4)
        return _rows(self.buffer, starts, counts), counts

    def _targets(self, slot: int) -> Numbers:
        """Return the place that a field's offset points to, and 0 where a row lacks the field."""
        places = self.places(slot)
        return np.where(places > 0, places + _read(self.buffer, np.uint32, places), 0)

    def _octets(self) -> Octets:
        return np.frombuffer(self.buffer.content, np.uint8)


def rows_of(table: Table, slot: int, what: str) -> TableRows:
    """Return the tables of a vector field; CorruptFile when `table` lacks the field."""
    if (found := table.vector(slot, 4)) is None:
        raise corrupt(table.buffer.name, f"{what} are missing in it")
    start, count = found
    return _rows(table.buffer, np.array([start], np.int64), np.array([count], np.int64))


def _rows(buffer: FlatBuffer, starts: Numbers, counts: Numbers) -> TableRows:
    """Return the tables that several vectors of offsets point to, vector after vector."""
    total = int(counts.sum())
    buffer.spend(4 * total)
    before = np.cumsum(counts) - counts
    items = np.repeat(starts - 4 * before, counts) + 4 * np.arange(total)
    return TableRows(buffer, items + _read(buffer, np.uint32, items))


def _read(buffer: FlatBuffer, kind: type[np.generic], places: Numbers) -> Numbers:
    """Return the number at each place; a number of 2^63 or more becomes negative."""
    size = np.dtype(kind).itemsize
    _require_inside(buffer, places, size)
    if (places & (size - 1)).any():
        raise corrupt(buffer.name, "a number in it is not aligned")
    numbers = np.frombuffer(buffer.content, kind, len(buffer.content) // size)
    return numbers[places >> (size.bit_length() - 1)].astype(np.int64)


def _require_inside(buffer: FlatBuffer, places: Numbers, size: int) -> None:
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) <= len(buffer.content) - size:
        raise corrupt(buffer.name, OUTSIDE)
