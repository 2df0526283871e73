"""URL-decodes whole Arrow columns without a Python object per row."""

import numpy as np
import pyarrow as pa

from retention_assets.inventory.manifest import unusable

_PERCENT, _PLUS, _SPACE = b"%+ "
_NOT_HEX = 255
_HEX_VALUES = np.full(256, _NOT_HEX, dtype=np.uint8)
for _digits, _first in ((b"0123456789", 0), (b"abcdef", 10), (b"ABCDEF", 10)):
    _HEX_VALUES[np.frombuffer(_digits, np.uint8)] = np.arange(_first, _first + len(_digits))


def url_decoded(texts: pa.Array, name: str) -> pa.Array:
    """Return `texts` with each `+` replaced by a space and each `%XX` by the byte with that hexadecimal code.

    Args:
        texts: one value per row, none of them null.
        name: name of the file that the values come from, for error messages.

    Raises:
        CorruptFile: a row has a `%` that is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
            An encoder writes a `%` as `%25`, so a `%` without digits is an error and never a literal `%`.
    """
    offsets, encoded = _bytes_of(texts)
    marks = np.flatnonzero(encoded == _PERCENT)
    pluses = encoded == _PLUS
    if not marks.size and not pluses.any():
        return texts
    rows = np.searchsorted(offsets, marks, side="right") - 1
    _require(marks + 2 < offsets[rows + 1], rows, texts, name)
    high, low = _HEX_VALUES[encoded[marks + 1]], _HEX_VALUES[encoded[marks + 2]]
    _require((high != _NOT_HEX) & (low != _NOT_HEX), rows, texts, name)

    decoded = np.where(pluses, np.uint8(_SPACE), encoded)
    decoded[marks] = high << 4 | low
    kept = np.ones(len(encoded), dtype=bool)
    kept[marks + 1] = kept[marks + 2] = False
    shorter_by = 2 * np.searchsorted(marks, offsets, side="left")  # bytes dropped before each row
    return _strings(offsets - shorter_by, decoded[kept], name)


def _bytes_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return (offsets, bytes): the joined bytes of all rows, the offset of each row in them, and the end offset."""
    _, offset_buffer, value_buffer = texts.buffers()
    if not len(texts) or offset_buffer is None or value_buffer is None:
        return np.zeros(len(texts) + 1, np.int64), np.zeros(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return offsets - offsets[0], np.frombuffer(value_buffer, np.uint8)[offsets[0] : offsets[-1]]


def _strings(offsets: np.ndarray, values: np.ndarray, name: str) -> pa.Array:
    buffers = (pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(values))
    texts = pa.StringArray.from_buffers(len(offsets) - 1, *buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise unusable(name, f"a URL-encoded key is not UTF-8 ({error})") from error
    return texts


def _require(good: np.ndarray, rows: np.ndarray, texts: pa.Array, name: str) -> None:
    if not good.all():
        text = texts[int(rows[np.argmin(good)])].as_py()
        raise unusable(name, f"{text!r} is not URL-encoded: a `%` without two digits")
