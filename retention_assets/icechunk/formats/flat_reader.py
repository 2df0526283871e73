"""Reads flatbuffers. All checks against crafted files are here: no read leaves the bytes of the file.

A `Table` is one table. `TableRows` are many tables of one kind, whose values of one field are read at once. A field is
given as its slot, as listed in docs/icechunk-formats.md, "Flatbuffers".
"""

import struct

import numpy as np
import numpy.typing as npt

from retention_assets.decoding.columns import Pieces
from retention_assets.errors import corrupt
from retention_assets.icechunk.formats.envelope import unknown_to_us

IDENTIFIER = b"Ichk"
LAST_TIMESTAMP = 253_402_300_799_999_999  # microseconds since 1970: the end of the year 9999, the last datetime
UINT8, BOOL, UINT16, UINT32, INT32, UINT64 = (struct.Struct(f"<{code}") for code in "B?HIiQ")

type Numbers = npt.NDArray[np.int64]
type Octets = npt.NDArray[np.uint8]

_OUTSIDE = "an offset in it leads outside the file"
_MOST_SHARED = 64  # limit of the length of all texts, as a multiple of the file's size; rows may share texts


class FlatBuffer:
    """The bytes of one flatbuffer, and a limit of the bytes that may be read.

    Objects share no bytes, except texts, which are decoded once. So each byte of a valid file is read once or twice. A
    corrupt file can refer to the same objects again and again. It reaches the limit and is refused, because reading it
    could take for ever.
    """

    __slots__ = ("_bytes_left", "_texts", "content", "name")

    def __init__(self, content: bytes, name: str) -> None:
        self.content = content
        self.name = name  # of the file, for messages
        self._bytes_left = 4 * len(content)
        self._texts: dict[int, str] = {}

    def root(self) -> "Table":
        """Return the root table; CorruptFile when the identifier is not icechunk's."""
        if self.content[4:8] != IDENTIFIER:
            raise corrupt(self.name, f"its content is marked {self.content[4:8]!r}, not {IDENTIFIER!r}")
        return Table(self, self.target(0))

    def number(self, kind: struct.Struct, position: int) -> int:
        """Return the number at `position`."""
        if not 0 <= position <= len(self.content) - kind.size:
            raise corrupt(self.name, _OUTSIDE)
        value: int = kind.unpack_from(self.content, position)[0]
        return value

    def target(self, position: int) -> int:
        """Return the position that the offset at `position` points to."""
        return position + self.number(UINT32, position)

    def vector(self, position: int, size: int) -> tuple[int, int]:
        """Return the start and the number of items of the vector at `position`; each item takes `size` bytes."""
        count = self.number(UINT32, position)
        self.visit(position + 4, count * size)
        return position + 4, count

    def piece(self, start: int, size: int) -> bytes:
        """Return `size` bytes from `start` on."""
        self.visit(start, size)
        return self.content[start : start + size]

    def visit(self, start: int, size: int) -> None:
        """Count `size` bytes from `start` on as read; CorruptFile when they are outside the file."""
        if not 0 <= start <= len(self.content) - size:
            raise corrupt(self.name, _OUTSIDE)
        self.spend(size)

    def spend(self, size: int) -> None:
        """Count `size` bytes as read, wherever they are; CorruptFile when the limit is exceeded."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise corrupt(self.name, "its objects are used more than once")

    def text(self, position: int) -> str:
        """Return the string at `position`."""
        if (known := self._texts.get(position)) is None:
            start, count = self.vector(position, 1)
            try:
                known = self._texts[position] = self.content[start : start + count].decode()
            except UnicodeDecodeError as error:
                raise corrupt(self.name, f"a text in it is not UTF-8 ({error})") from error
        return known


class Table:
    """A table of a flatbuffer. An absent field is None or has its default."""

    __slots__ = ("_fields", "_position", "_vtable", "buffer")

    def __init__(self, buffer: FlatBuffer, position: int) -> None:
        buffer.visit(position, 4)
        self.buffer = buffer
        self._position = position
        self._vtable = position - buffer.number(INT32, position)
        self._fields = buffer.number(UINT16, self._vtable)
        if self._fields < 4 or self._vtable + self._fields > len(buffer.content):
            raise corrupt(buffer.name, _OUTSIDE)

    def require_known(self, slots: int, what: str) -> None:
        """Raise CorruptFile when the table has fields from slot `slots` on: a newer writer's fields may matter."""
        if self._fields > 4 + 2 * slots:
            raise unknown_to_us(self.buffer.name, f"{what} in it has fields that this version does not know")

    def _field_position(self, slot: int) -> int | None:
        offset = 4 + 2 * slot
        if offset + 2 > self._fields or not (field := self.buffer.number(UINT16, self._vtable + offset)):
            return None
        return self._position + field

    def _target(self, slot: int) -> int | None:
        position = self._field_position(slot)
        return None if position is None else self.buffer.target(position)

    def number(self, slot: int, kind: struct.Struct, default: int = 0) -> int:
        """Return a scalar field."""
        position = self._field_position(slot)
        return default if position is None else self.buffer.number(kind, position)

    def timestamp(self, slot: int, what: str) -> int:
        """Return a time in microseconds since 1970; CorruptFile when a datetime cannot hold it."""
        if (micros := self.number(slot, UINT64)) > LAST_TIMESTAMP:
            raise corrupt(self.buffer.name, f"{what} has an impossible time")
        return micros

    def inline(self, slot: int, size: int) -> bytes | None:
        """Return the bytes of a struct field, such as an id."""
        position = self._field_position(slot)
        return None if position is None else self.buffer.piece(position, size)

    def inline_position(self, slot: int, size: int) -> int | None:
        """Return the position of a struct field."""
        position = self._field_position(slot)
        if position is not None:
            self.buffer.visit(position, size)
        return position

    def octets(self, slot: int, size: int = 1) -> bytes | None:
        """Return the bytes of a vector of bytes, or of structs or numbers that take `size` bytes each."""
        if (found := self.vector(slot, size)) is None:
            return None
        start, count = found
        return self.buffer.content[start : start + count * size]

    def vector(self, slot: int, size: int) -> tuple[int, int] | None:
        """Return the start and the number of items of a vector whose items take `size` bytes each."""
        target = self._target(slot)
        return None if target is None else self.buffer.vector(target, size)

    def text(self, slot: int) -> str | None:
        """Return a string."""
        target = self._target(slot)
        return None if target is None else self.buffer.text(target)

    def texts(self, slot: int) -> list[str] | None:
        """Return a vector of strings."""
        positions = self._targets(slot)
        return None if positions is None else [self.buffer.text(position) for position in positions]

    def table(self, slot: int) -> "Table | None":
        """Return the table that a field refers to."""
        target = self._target(slot)
        return None if target is None else Table(self.buffer, target)

    def tables(self, slot: int) -> "list[Table] | None":
        """Return a vector of tables."""
        positions = self._targets(slot)
        return None if positions is None else [Table(self.buffer, position) for position in positions]

    def rows(self, slot: int, what: str) -> "TableRows":
        """Return a vector of tables as rows; CorruptFile when the table does not have the field."""
        if (found := self.vector(slot, 4)) is None:
            raise corrupt(self.buffer.name, f"{what} are missing in it")
        start, count = found
        return _rows(self.buffer, np.array([start], np.int64), np.array([count], np.int64))

    def _targets(self, slot: int) -> list[int] | None:
        if (found := self.vector(slot, 4)) is None:
            return None
        start, count = found
        return [self.buffer.target(position) for position in range(start, start + 4 * count, 4)]


class TableRows:
    """Tables of one kind, one row each. Each check of bounds and alignment covers all rows at once.

    A position is the number of bytes from the start of the file. Position 0: the row does not have the field.
    """

    __slots__ = ("_fields", "_vtables", "buffer", "positions")

    def __init__(self, buffer: FlatBuffer, positions: Numbers) -> None:
        self.buffer = buffer
        self.positions = positions
        self._vtables = positions - _read(buffer, np.int32, positions)
        self._fields = _read(buffer, np.uint16, self._vtables)
        _require_inside(buffer, self._vtables + self._fields, 0)
        if self._fields.min(initial=4) < 4:
            raise corrupt(buffer.name, _OUTSIDE)

    def __len__(self) -> int:
        return len(self.positions)

    def require_known(self, slots: int, what: str) -> None:
        """Raise CorruptFile when a row has fields from slot `slots` on: a newer writer's fields may matter."""
        if self._fields.max(initial=4) > 4 + 2 * slots:
            raise unknown_to_us(self.buffer.name, f"{what} in it has fields that this version does not know")

    def require_field(self, slot: int, what: str) -> None:
        """Raise CorruptFile when a row does not have the field."""
        if not self.field_positions(slot).all():
            raise corrupt(self.buffer.name, f"{what} is missing in it")

    def field_positions(self, slot: int) -> Numbers:
        """Return the position of the field in each row."""
        offset = 4 + 2 * slot
        there = self._fields >= offset + 2
        fields = _read(self.buffer, np.uint16, np.where(there, self._vtables + offset, 0))
        return np.where(there & (fields > 0), self.positions + fields, 0)

    def numbers(self, slot: int, kind: type[np.generic]) -> Numbers:
        """Return a scalar field as 64-bit integers, and 0 where a row does not have the field.

        All fields read this way have the default 0.

        Raises:
            CorruptFile: a number is 2^63 or more.
        """
        positions = self.field_positions(slot)
        values = np.where(positions > 0, _read(self.buffer, kind, positions), 0)
        if kind is np.uint64 and (values < 0).any():
            raise corrupt(self.buffer.name, "a number in it is 2^63 or more")
        return values

    def inline(self, slot: int, size: int) -> Octets:
        """Return the bytes of a struct field, one row each; the bytes of a row without the field are arbitrary."""
        positions = self.field_positions(slot)
        _require_inside(self.buffer, positions, size)
        if not len(positions):
            return np.empty((0, size), np.uint8)
        return np.lib.stride_tricks.sliding_window_view(self._octets(), size)[positions]

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
            raise corrupt(self.buffer.name, _OUTSIDE)
        return np.where(there, targets + 4, 0), counts

    def texts(self, slot: int) -> list[str | None]:
        """Return a string field, and None where a row does not have the field."""
        return [self.buffer.text(position) if position else None for position in self._targets(slot).tolist()]

    def tables(self, slot: int, wanted: npt.NDArray[np.bool_]) -> "TableRows":
        """Return the tables that a field of the `wanted` rows refers to; CorruptFile when a row has no such field."""
        targets = self._targets(slot)[wanted]
        if not targets.all():
            raise corrupt(self.buffer.name, "a table is missing in it")
        return TableRows(self.buffer, targets)

    def rows(self, slot: int) -> "tuple[TableRows, Numbers]":
        """Return the tables of a vector field, row after row, and the number of tables of each row."""
        starts, counts = self.vectors(slot, 4)
        return _rows(self.buffer, starts, counts), counts

    def _targets(self, slot: int) -> Numbers:
        """Return the position that a field's offset points to, and 0 where a row does not have the field."""
        positions = self.field_positions(slot)
        return np.where(positions > 0, positions + _read(self.buffer, np.uint32, positions), 0)

    def _octets(self) -> Octets:
        return np.frombuffer(self.buffer.content, np.uint8)


def required[T](value: T | None, name: str, what: str) -> T:
    """Return `value`, a field that the file must have; CorruptFile when the field is absent (None)."""
    if value is None:
        raise corrupt(name, f"{what} is missing in it")
    return value


def _rows(buffer: FlatBuffer, starts: Numbers, counts: Numbers) -> TableRows:
    """Return the tables that several vectors of offsets point to, vector after vector."""
    total = int(counts.sum())
    buffer.spend(4 * total)
    before = np.cumsum(counts) - counts
    items = np.repeat(starts - 4 * before, counts) + 4 * np.arange(total)
    return TableRows(buffer, items + _read(buffer, np.uint32, items))


def _read(buffer: FlatBuffer, kind: type[np.generic], positions: Numbers) -> Numbers:
    """Return the number at each position; a number of 2^63 or more becomes negative."""
    size = np.dtype(kind).itemsize
    _require_inside(buffer, positions, size)
    if (positions & (size - 1)).any():
        raise corrupt(buffer.name, "a number in it is not aligned")
    numbers = np.frombuffer(buffer.content, kind, len(buffer.content) // size)
    return numbers[positions >> (size.bit_length() - 1)].astype(np.int64)


def _require_inside(buffer: FlatBuffer, positions: Numbers, size: int) -> None:
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) <= len(buffer.content) - size:
        raise corrupt(buffer.name, _OUTSIDE)
