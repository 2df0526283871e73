"""Converts ids between bytes and text: Crockford's base 32, upper case, most significant bit first.

The id of a snapshot, manifest or chunk has 12 bytes and 20 characters. Zero bits fill up the last character. No other
spelling is accepted, because icechunk writes no other.
Source: docs/icechunk-formats.md, "Ids".
"""

import base64
import re
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import corrupt

ID = pa.binary(12)
CANONICAL = r"[0-9A-HJKMNP-TV-Z]{19}[0G]"  # the text of a 12-byte id

CHARACTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # of the text; the index of a character is its value

_CHARACTERS = CHARACTERS.encode()
_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_TO_CROCKFORD = bytes.maketrans(_STANDARD, _CHARACTERS)
_FROM_CROCKFORD = bytes.maketrans(_CHARACTERS, _STANDARD)
_CANONICAL_NAME = re.compile(CANONICAL)
_HIGH, _LOW = 12, 8  # characters for the first 60 bits of an id, and for the last 36 bits with four zero bits


def is_canonical(name: str) -> bool:
    """Return whether `name` is the text of a 12-byte id, as icechunk writes it."""
    return _CANONICAL_NAME.fullmatch(name) is not None


def encode_id(raw: bytes) -> str:
    """Return the text of an id."""
    return base64.b32encode(raw).rstrip(b"=").translate(_TO_CROCKFORD).decode()


def decode_id(name: str) -> bytes:
    """Return the bytes of a canonical id; ValueError for any other text."""
    if not is_canonical(name):
        raise ValueError(f"{name!r} is not the text of an id")
    return base64.b32decode(name.encode().translate(_FROM_CROCKFORD) + b"====")


def require_named(its_id: bytes, name: str) -> bytes:
    """Return `its_id`, the id stored in the file `name`; CorruptFile when the file is named by another id."""
    stem = PurePosixPath(name).name
    if is_canonical(stem) and encode_id(its_id) != stem:
        raise corrupt(name, f"its content has the id {encode_id(its_id)}, not the id in its name")
    return its_id


def encode_ids(ids: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return the 20 characters of each 12-byte id; null stays null."""
    count = len(ids)
    words = id_bytes(ids)
    first = words[:, :8].copy().view(">u8")[:, 0].astype(np.uint64)
    last = words[:, 8:].copy().view(">u4")[:, 0].astype(np.uint64)
    high, low = first >> np.uint64(4), ((first & np.uint64(15)) << np.uint64(32) | last) << np.uint64(4)
    alphabet = np.frombuffer(_CHARACTERS, np.uint8)
    text = np.empty((count, _HIGH + _LOW), np.uint8)
    for word, start, size in ((high, 0, _HIGH), (low, _HIGH, _LOW)):
        for position in range(size):
            text[:, start + position] = alphabet[(word >> np.uint64(5 * (size - 1 - position))) & np.uint64(31)]
    offsets = np.arange(count + 1, dtype=np.int32) * 20
    encoded = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return pc.if_else(ids.is_null(), None, encoded) if ids.null_count else encoded


def ids_array(rows: npt.NDArray[np.uint8]) -> pa.FixedSizeBinaryArray:
    """Return rows of bytes as an Arrow column without copying them."""
    flat = np.ascontiguousarray(rows)
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(flat)])


def id_bytes(ids: pa.FixedSizeBinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of a column of ids, one row per id; the bytes of a null id are arbitrary."""
    size = ids.type.byte_width
    if not len(ids):
        return np.empty((0, size), np.uint8)
    return np.frombuffer(ids.buffers()[1], np.uint8, size * len(ids), size * ids.offset).reshape(-1, size)
