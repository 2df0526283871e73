"""Makes Arrow columns from pieces of decoded blocks, in memory from Arrow's pool."""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.decoding.kernels import decode_fields, gather
from retention_assets.errors import corrupt


def bytes_array(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` uninitialised bytes.

    The memory comes from Arrow's pool, which keeps its pages between files: new pages from the operating system cost
    more time than decoding does.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def table_array(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Return an uninitialised table of integers from Arrow's pool."""
    return bytes_array(8 * rows * columns).view(np.int64).reshape(rows, columns)


def offsets_array(values: int) -> npt.NDArray[np.int32]:
    """Return an uninitialised array for Arrow's offsets of `values` values."""
    return bytes_array(4 * (values + 1)).view(np.int32)


_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as Python's `surrogateescape` decodes them
MAX_COLUMN = (1 << 31) - 1  # bytes; the limit of Arrow's 32-bit offsets


@dataclass(frozen=True, slots=True)
class Pieces:
    """One byte string per row: `lengths` bytes of `source`, beginning at `starts`."""

    source: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """The fields to decode from a protobuf message: a slot and a kind for each, by level and field number."""

    wanted: np.ndarray
    slots: int


@dataclass(frozen=True, slots=True)
class Fields:
    """The decoded fields of one message per row, by slot. An absent field is zero or empty."""

    source: np.ndarray
    values: np.ndarray
    sizes: np.ndarray

    def numbers(self, slot: int) -> np.ndarray:
        """Return the 64-bit numbers of a varint field."""
        return self.values[slot]

    def present(self, slot: int) -> np.ndarray:
        """Return the rows in which a message field is present, as booleans."""
        return self.sizes[slot] > 0

    def pieces(self, slot: int) -> Pieces:
        """Return the bytes of a text field."""
        return Pieces(self.source, self.values[slot], self.sizes[slot])


def plan_fields(*wanted: tuple[int, int, int]) -> FieldPlan:
    """Return the plan for fields, given in slot order as (level, number, kind). Level 1 is the nested message."""
    table = np.full((2, 1 + max(number for _, number, _ in wanted)), -1, np.int64)
    for slot, (level, number, kind) in enumerate(wanted):
        table[level, number] = 4 * slot + kind
    return FieldPlan(table, len(wanted))


def decode(messages: Pieces, plan: FieldPlan, name: str) -> Fields:
    """Return the fields in `plan` of every message. Errors: CorruptFile when a message is malformed."""
    values, sizes = (table_array(plan.slots, len(messages.starts)) for _ in range(2))
    bad = decode_fields(messages.source, messages.starts, messages.lengths, plan.wanted, values, sizes)
    if bad >= 0:
        raise corrupt(name, f"the message of row {bad:,} is malformed")
    return Fields(messages.source, values, sizes)


def binary_column(pieces: Pieces, name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Return the pieces as a column of bytes, or of the type `kind`.

    `kind` must have the layout of bytes. Its values are not validated.

    Errors: CorruptFile when a piece is outside the file, or the column would be longer than `MAX_COLUMN`.
    """
    total = int(pieces.lengths.sum())
    if total > MAX_COLUMN:
        raise corrupt(name, f"a column of {total:,} bytes is larger than in any file that lakeFS or Icechunk writes")
    offsets = offsets_array(len(pieces.starts))
    target = bytes_array(total)
    if (bad := gather(pieces.source, pieces.starts, pieces.lengths, offsets, target)) >= 0:
        raise corrupt(name, f"the bytes of row {bad:,} are outside the file")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(target)]
    return pa.Array.from_buffers(kind or pa.binary(), len(pieces.starts), buffers)


def text_column(pieces: Pieces, name: str, what: str) -> pa.Array:
    """Return the pieces as a text column. Errors: CorruptFile when a piece is not UTF-8."""
    column = binary_column(pieces, name, pa.string())
    if not _is_utf8(column):
        raise corrupt(name, f"{what} is not UTF-8")
    return column


def readable(column: pa.Array, mark: str) -> pa.Array:
    """Return a text column of any bytes as valid UTF-8.

    `mark` and two hexadecimal digits replace each byte that is not part of a UTF-8 character.
    """
    if _is_utf8(column):
        return column
    texts = (value.decode(errors="surrogateescape") for value in column.view(pa.binary()).to_pylist())
    return pa.array([_ESCAPED.sub(lambda byte: f"{mark}{ord(byte[0]) - 0xDC00:02x}", text) for text in texts])


def _is_utf8(column: pa.Array) -> bool:
    characters = column.buffers()[2]
    # Nearly all columns are ASCII, and this test takes a sixth of the time of a full validation.
    if characters is None or np.frombuffer(characters, np.uint8).max(initial=0) < 128:
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
