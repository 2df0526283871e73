"""Reads a flatbuffer one table at a time, and checks that every step stays inside the file.

For vectors of many tables see `flat_columns`. Fields are named by their slot, as Icechunk facts 2 lists them.
"""

import struct

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.envelope import unknown_to_us

IDENTIFIER = b"Ichk"
UINT8, BOOL, UINT16, UINT32, INT32, UINT64 = (struct.Struct(f"<{code}") for code in "B?HIiQ")

OUTSIDE = "an offset in it leads outside the file"


class FlatBuffer:
    """The bytes of one flatbuffer, and a limit on how many bytes may still be read.

    Objects share no bytes, except texts, which are decoded once. So a sound file is read once or twice. A file that
    refers to the same objects again and again reaches the limit and is refused; otherwise reading could run for ever.
    """

    __slots__ = ("_texts", "_unvisited", "content", "name")

    def __init__(self, content: bytes, name: str) -> None:
        self.content = content
        self.name = name  # of the file, for messages
        self._unvisited = 4 * len(content)
        self._texts: dict[int, str] = {}

    def root(self) -> "Table":
        """Return the root table; CorruptFile when the identifier is not icechunk's."""
        if self.content[4:8] != IDENTIFIER:
            raise corrupt(self.name, f"its content is marked {self.content[4:8]!r}, not {IDENTIFIER!r}")
        return Table(self, self.target(0))

    def number(self, kind: struct.Struct, position: int) -> int:
        """Return the number at `position`."""
        if not 0 <= position <= len(self.content) - kind.size:
            raise corrupt(self.name, OUTSIDE)
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
            raise corrupt(self.name, OUTSIDE)
        self.spend(size)

    def spend(self, size: int) -> None:
        """Count `size` bytes as read, wherever they are; CorruptFile when the limit is exceeded."""
        self._unvisited -= size
        if self._unvisited < 0:
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
    """A table of a flatbuffer; an absent field is read as None, or as its default."""

    __slots__ = ("_fields", "_position", "_vtable", "buffer")

    def __init__(self, buffer: FlatBuffer, position: int) -> None:
        buffer.visit(position, 4)
        self.buffer = buffer
        self._position = position
        self._vtable = position - buffer.number(INT32, position)
        self._fields = buffer.number(UINT16, self._vtable)
        if self._fields < 4 or self._vtable + self._fields > len(buffer.content):
            raise corrupt(buffer.name, OUTSIDE)

    def require_known(self, slots: int, what: str) -> None:
        """Raise CorruptFile when the table has fields from slot `slots` on: a newer writer's fields may matter."""
        if self._fields > 4 + 2 * slots:
            raise unknown_to_us(self.buffer.name, f"{what} in it has fields that this version does not know")

    def _place(self, slot: int) -> int | None:
        offset = 4 + 2 * slot
        if offset + 2 > self._fields or not (field := self.buffer.number(UINT16, self._vtable + offset)):
            return None
        return self._position + field

    def _target(self, slot: int) -> int | None:
        place = self._place(slot)
        return None if place is None else self.buffer.target(place)

    def number(self, slot: int, kind: struct.Struct, default: int = 0) -> int:
        """Return a scalar field."""
        place = self._place(slot)
        return default if place is None else self.buffer.number(kind, place)

    def inline(self, slot: int, size: int) -> bytes | None:
        """Return the bytes of a struct field, such as an id."""
        place = self._place(slot)
        return None if place is None else self.buffer.piece(place, size)

    def inline_place(self, slot: int, size: int) -> int | None:
        """Return the position of a struct field."""
        place = self._place(slot)
        if place is not None:
            self.buffer.visit(place, size)
        return place

    def octets(self, slot: int) -> bytes | None:
        """Return a vector of bytes."""
        return self.structs(slot, 1)

    def structs(self, slot: int, size: int) -> bytes | None:
        """Return the bytes of a vector of structs or numbers that take `size` bytes each."""
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
        places = self._targets(slot)
        return None if places is None else [self.buffer.text(place) for place in places]

    def table(self, slot: int) -> "Table | None":
        """Return the table that a field refers to."""
        target = self._target(slot)
        return None if target is None else Table(self.buffer, target)

    def tables(self, slot: int) -> "list[Table] | None":
        """Return a vector of tables."""
        places = self._targets(slot)
        return None if places is None else [Table(self.buffer, place) for place in places]

    def _targets(self, slot: int) -> list[int] | None:
        if (found := self.vector(slot, 4)) is None:
            return None
        start, count = found
        return [self.buffer.target(place) for place in range(start, start + 4 * count, 4)]


def required[T](value: T | None, name: str, what: str) -> T:
    """Return `value`, a field that the file must have; CorruptFile when the field is absent (None)."""
    if value is None:
        raise corrupt(name, f"{what} is missing in it")
    return value
