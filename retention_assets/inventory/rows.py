"""Reads files of Amazon S3 Inventory into Arrow batches of the bucket's current objects."""

import hashlib
from collections.abc import Buffer, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from retention_assets.inventory.manifest import REQUIRED_COLUMNS, FileFormat, InventoryFile, Manifest, unusable
from retention_assets.tables import TIMESTAMP

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


_FIELDS: list[pa.Field] = [
    pa.field("bucket", pa.string(), nullable=False),
    pa.field("key", pa.string(), nullable=False),  # as the store names the object, not URL-encoded
    pa.field("size", pa.int64(), nullable=False),  # bytes
    pa.field("last_modified", TIMESTAMP, nullable=False),  # the store's clock
    pa.field("etag", pa.string()),
]
OBJECTS = pa.schema(_FIELDS)
_TYPES: dict[str, pa.DataType] = {
    "bucket": pa.string(),
    "key": pa.string(),
    "is_latest": pa.bool_(),
    "is_delete_marker": pa.bool_(),
    "size": pa.int64(),
    "last_modified_date": TIMESTAMP,
    "e_tag": pa.string(),
}


def read_inventory_file(content: Buffer, manifest: Manifest, file: InventoryFile) -> Iterator[pa.RecordBatch]:
    """Return the objects that one file lists, in batches of the schema `OBJECTS`.

    The batches contain only latest versions that are not delete markers. The size and MD5 of the whole file are checked
    before the first batch. Do not use any batch before the last one has arrived without an error.

    Raises:
        CorruptFile: the file is truncated, altered or not in the manifest's format; a row belongs to another bucket; a
            current object has no size or time; a key is not properly encoded.
    """
    name = f"{file.key} (of {manifest.name})"
    if len(memoryview(content)) != file.size:
        raise unusable(name, f"has {len(memoryview(content)):,} bytes, the manifest says {file.size:,}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise unusable(name, f"its MD5 is {found}, the manifest says {file.md5}")
    return _objects(content, manifest, name)


def _objects(content: Buffer, manifest: Manifest, name: str) -> Iterator[pa.RecordBatch]:
    readers = {FileFormat.CSV: _csv_batches, FileFormat.ORC: _orc_batches, FileFormat.PARQUET: _parquet_batches}
    wanted = [column for column in _TYPES if column in manifest.columns]
    batches = readers[manifest.file_format](pa.py_buffer(content), manifest, wanted)
    try:
        for batch in batches:
            yield _current(batch, manifest, wanted, name)
    except (pa.ArrowException, OSError) as error:
        raise unusable(name, f"is not a valid {manifest.file_format} file ({error})") from error


def _csv_batches(content: pa.Buffer, manifest: Manifest, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    with pa.CompressedInputStream(pa.BufferReader(content), "gzip") as probe:
        if not probe.read(1):
            return  # an empty file is valid here, but Arrow's reader raises an error for it
    yield from csv.open_csv(
        pa.CompressedInputStream(pa.BufferReader(content), "gzip"),
        read_options=csv.ReadOptions(column_names=list(manifest.columns)),
        convert_options=csv.ConvertOptions(
            column_types=_TYPES,
            include_columns=wanted,
            null_values=[""],  # a delete marker has no size and no ETag
            true_values=["true", "True"],
            false_values=["false", "False"],
        ),
    )


def _orc_batches(content: pa.Buffer, manifest: Manifest, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    file = orc.ORCFile(pa.BufferReader(content))
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=wanted)


def _parquet_batches(content: pa.Buffer, manifest: Manifest, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    yield from pq.ParquetFile(pa.BufferReader(content)).iter_batches(columns=wanted)


def _current(batch: pa.RecordBatch, manifest: Manifest, wanted: list[str], name: str) -> pa.RecordBatch:
    """Return the latest versions of `batch` that are not delete markers."""
    if missing := [column for column in wanted if column not in batch.schema.names]:
        raise unusable(name, f"is missing {', '.join(missing)}, which the manifest lists")
    if not pc.all(pc.equal(batch["bucket"], pa.scalar(manifest.source_bucket))).as_py():
        raise unusable(name, f"has rows of another bucket than {manifest.source_bucket!r}")
    if manifest.lists_versions:
        _require_values(batch, ("is_latest", "is_delete_marker"), name)
        batch = batch.filter(pc.and_not(batch["is_latest"], batch["is_delete_marker"]))
    _require_values(batch, REQUIRED_COLUMNS, name)
    if pc.any(pc.or_(pc.equal(batch["key"], pa.scalar("")), pc.less(batch["size"], pa.scalar(0)))).as_py():
        raise unusable(name, "has an empty key or a negative size")
    key = batch["key"].cast(pa.string())
    if manifest.file_format is FileFormat.CSV:
        key = url_decoded(key, name)  # only CSV encodes keys. Source: S3 User Guide, inventory list
    etag = batch["e_tag"] if "e_tag" in wanted else pa.nulls(len(batch))
    columns = [batch["bucket"], key, batch["size"], batch["last_modified_date"], etag]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, OBJECTS, strict=True)], schema=OBJECTS
    )


def _require_values(batch: pa.RecordBatch, columns: tuple[str, ...], name: str) -> None:
    for column in columns:
        if batch[column].null_count:
            raise unusable(name, f"{batch[column].null_count:,} rows have no {column}")
