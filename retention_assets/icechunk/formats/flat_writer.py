"""Writes flatbuffers front to back: each object comes before the objects that it refers to.

A table is given as a mapping of its fields. The builder of the library `flatbuffers` is not used, because it needs
inner objects first and in a fixed order.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from retention_assets.icechunk.formats.flat_reader import IDENTIFIER

_OFFSET = "I"
_ALIGNMENTS = {"Q": 8, "I": 4, "i": 4, "H": 2, "B": 1, "?": 1, "12s": 1, "8s": 1}


class Scalar(NamedTuple):
    """A number or struct inside its table. `code` is its format for `struct`: ids have `12s` or `8s`."""

    code: str
    value: int | bytes


class Structs(NamedTuple):
    """An encoded vector of structs or numbers, which need an alignment of at most four bytes."""

    length: int
    content: bytes


type Fields = Mapping[int, Value]  # a table: value by slot; a missing slot is an absent field, not an empty one
type Object = Structs | bytes | str | Fields | Sequence[Fields | str]  # an object that a table refers to
type Value = Scalar | Object


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of all tables with the same fields, and the position of their vtable."""

    vtable: int
    alignment: int
    packing: struct.Struct
    offsets: Sequence[int]  # of each field within the table, in the order in which the fields are given


def write_flatbuffer(root: Fields) -> bytes:
    """Return the flatbuffer with this root table and icechunk's identifier."""
    writer = _Writer()
    start = writer.table(root)
    struct.pack_into("<I4s", writer.out, 0, start, IDENTIFIER)
    return bytes(writer.out)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(8)  # the root's offset and the identifier
        self._layouts: dict[tuple[int | str, ...], _Layout] = {}

    def table(self, fields: Fields) -> int:
        """Append a table and the objects that it refers to; return the position of the table."""
        values = fields.values()
        codes = [value.code if isinstance(value, Scalar) else _OFFSET for value in values]
        layout = self._layouts.get((*fields, *codes)) or self._layout(fields, codes)
        self._align(layout.alignment)
        start = len(self.out)
        numbers = [value.value if isinstance(value, Scalar) else 0 for value in values]
        self.out += layout.packing.pack(start - layout.vtable, *numbers)
        for offset, value in zip(layout.offsets, values, strict=True):
            if not isinstance(value, Scalar):
                self._point(start + offset, self._object(value))
        return start

    def _layout(self, fields: Fields, codes: Sequence[str]) -> _Layout:
        """Append the vtable of tables with these fields, which are laid out in the given order; return the layout."""
        offsets = []
        packing, size = "<i", 4
        for code in codes:
            gap = -size % _ALIGNMENTS[code]
            offsets.append(size + gap)
            packing += "x" * gap + code
            size += gap + struct.calcsize(f"<{code}")
        self._align(2)
        entries = [0] * (1 + max(fields, default=-1))
        for slot, offset in zip(fields, offsets, strict=True):
            entries[slot] = offset
        alignment = max([4, *(_ALIGNMENTS[code] for code in codes)])
        layout = _Layout(len(self.out), alignment, struct.Struct(packing), offsets)
        self.out += struct.pack(f"<{2 + len(entries)}H", 4 + 2 * len(entries), size, *entries)
        self._layouts[(*fields, *codes)] = layout
        return layout

    def _object(self, value: Object) -> int:
        if isinstance(value, str):
            encoded = value.encode()
            return self._vector(len(encoded), encoded + b"\0")
        if isinstance(value, bytes):
            return self._vector(len(value), value)
        if isinstance(value, Structs):
            return self._vector(value.length, value.content)
        if isinstance(value, Mapping):
            return self.table(value)
        start = self._vector(len(value), bytes(4 * len(value)))
        for position, item in enumerate(value):
            self._point(start + 4 + 4 * position, self._object(item))
        return start

    def _vector(self, count: int, content: bytes) -> int:
        self._align(4)
        start = len(self.out)
        self.out += struct.pack("<I", count)
        self.out += content
        return start

    def _point(self, position: int, target: int) -> None:
        struct.pack_into("<I", self.out, position, target - position)

    def _align(self, size: int) -> None:
        self.out += bytes(-len(self.out) % size)
