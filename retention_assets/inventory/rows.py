"""Reads files of Amazon S3 Inventory into Arrow batches of the bucket's current objects."""

import hashlib
import re
from collections.abc import Buffer, Iterator
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from retention_assets.core.amounts import counted
from retention_assets.core.paths import STRAY_PERCENT
from retention_assets.inventory.manifest import REQUIRED_COLUMNS, FileFormat, InventoryFile, Manifest, unusable
from retention_assets.tables import TIMESTAMP


def url_decoded(texts: pa.Array, name: str) -> pa.Array:
    """Return `texts` with each `+` replaced by a space and each `%XX` by the byte with that hexadecimal code.

    Args:
        texts: one value per row, none of them null.
        name: name of the file that the values come from, for error messages.

    Raises:
        CorruptFile: a row has a `%` that is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
            An encoder writes a `%` as `%25`, so a `%` without digits is an error and never a literal `%`.
    """
    has_percent = pc.match_substring(texts, "%")
    decoded = [_url_decoded(text, name) for text in texts.filter(has_percent).to_pylist()]
    return pc.replace_with_mask(pc.replace_substring(texts, "+", " "), has_percent, pa.array(decoded, pa.string()))


def _url_decoded(text: str, name: str) -> str:
    if re.search(STRAY_PERCENT, text):
        raise unusable(name, f"{text!r} is not URL-encoded: it has a `%` without two hexadecimal digits")
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as error:
        raise unusable(name, f"{text!r} is not UTF-8 when it is URL-decoded ({error})") from error


OBJECTS = pa.schema(
    (
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),  # as the store names the object, not URL-encoded
        pa.field("size", pa.int64(), nullable=False),  # bytes
        pa.field("last_modified", TIMESTAMP, nullable=False),  # the store's clock
        pa.field("etag", pa.string()),
    )
)
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

    The batches contain only latest versions that are not delete markers. The size and MD5 of the file are checked
    before the first batch. Use the batches only when the last one has arrived without an error.

    Raises:
        CorruptFile: the file is truncated, altered or not in the manifest's format; a row belongs to another bucket; a
            current object has no size or time; a key is not properly encoded.
    """
    name = f"{file.key} (of {manifest.name})"
    if len(memoryview(content)) != file.size:
        raise unusable(name, f"has {len(memoryview(content)):,} bytes, but the manifest says {file.size:,}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != file.md5:
        raise unusable(name, f"its MD5 is {found}, but the manifest says {file.md5}")
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
    if twice := [column for column in wanted if batch.schema.names.count(column) > 1]:
        raise unusable(name, f"has several columns with the name {', '.join(twice)}")
    time_type = batch["last_modified_date"].type
    if pa.types.is_integer(time_type) or pa.types.is_date(time_type):  # a cast would make young objects old
        raise unusable(name, f"its column last_modified_date has the type {time_type}, which is not a timestamp")
    if not pc.all(pc.equal(batch["bucket"], pa.scalar(manifest.source_bucket))).as_py():
        raise unusable(name, f"has rows of a bucket other than {manifest.source_bucket!r}")
    if manifest.lists_versions:
        _require_values(batch, ("is_latest", "is_delete_marker"), name)
        batch = batch.filter(pc.and_not(batch["is_latest"], batch["is_delete_marker"]))
    _require_values(batch, REQUIRED_COLUMNS, name)
    if pc.any(pc.or_(pc.equal(batch["key"], pa.scalar("")), pc.less(batch["size"], pa.scalar(0)))).as_py():
        raise unusable(name, "has an empty key or a negative size")
    key = batch["key"].cast(pa.string())
    if manifest.file_format is FileFormat.CSV:
        key = url_decoded(key, name)  # only CSV files have encoded keys. Source: S3 User Guide, inventory list
    etag = batch["e_tag"] if "e_tag" in wanted else pa.nulls(len(batch))
    columns = [batch["bucket"], key, batch["size"], batch["last_modified_date"], etag]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, OBJECTS, strict=True)], schema=OBJECTS
    )


def _require_values(batch: pa.RecordBatch, columns: tuple[str, ...], name: str) -> None:
    for column in columns:
        if batch[column].null_count:
            raise unusable(name, f"{counted(batch[column].null_count, 'row has', 'rows have')} no {column}")
