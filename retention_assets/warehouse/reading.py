"""Reads tables of the warehouse with pyarrow, without Spark: only the requested rows and columns."""

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from operator import or_
from posixpath import commonpath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from retention_assets.objectstore.access import from_environment, s3_endpoint
from retention_assets.tables import NAMES
from retention_assets.warehouse.cache_batches import cache_batches
from retention_assets.warehouse.warehouse import Warehouse

_FEW_VALUES = 16  # values for which a condition is written as comparisons
_BATCH_ROWS = 2**14  # of a scan
_BUFFER = 2**20  # bytes of a column that a scan reads at once


def read_directory(
    warehouse: Warehouse,
    *parts: str,
    schema: pa.Schema,
    where: pc.Expression | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return rows of the Parquet files in a directory and below it. A column that is missing from a file is null.

    Args:
        warehouse: the warehouse that contains the directory.
        parts: the names in the path of the directory, below the root of the warehouse.
        schema: the columns of the files; lists of type `NAMES` need less memory than lists of strings.
        where: the condition on rows; files and row groups whose statistics exclude it are not read.
        columns: the columns to return; None: all.
    """

    def read() -> pa.Table:
        files = _files_below(warehouse, *parts, schema=schema)
        return files.to_table(columns=None if columns is None else list(columns), filter=where)

    return warehouse.read_with(read, *parts)


def scan_directory(
    warehouse: Warehouse, *parts: str, schema: pa.Schema, columns: Sequence[str], where: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the Parquet files in a directory in batches, so that they are never all in memory.

    `where`: as in `read_directory`. It uses only columns that are also in `columns`.
    """
    batches = _batches(warehouse, *parts, schema=schema, columns=columns, where=where)
    while (batch := warehouse.read_with(lambda: next(batches, None), *parts)) is not None:
        yield batch


def _batches(
    warehouse: Warehouse, *parts: str, schema: pa.Schema, columns: Sequence[str], where: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    """As `scan_directory`. The scanner of `pyarrow.dataset` would hold whole row groups, and read ahead."""
    wanted = pa.schema([pa.field(name, schema.field(name).type) for name in columns])  # nullable, as Spark writes them
    for fragment in _files_below(warehouse, *parts, schema=schema).get_fragments(where):
        chosen = [group.id for part in fragment.split_by_row_group(where) for group in part.row_groups]
        with (
            fragment.filesystem.open_input_file(fragment.path) as opened,
            pq.ParquetFile(opened, buffer_size=_BUFFER, pre_buffer=False) as file,
        ):
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=chosen, columns=there, use_threads=False):
                found = [batch[name] if name in there else pa.nulls(batch.num_rows) for name in columns]
                rows = pa.table(found, list(columns)).cast(wanted)
                yield from (rows if where is None else rows.filter(where)).to_batches()


def first_rows(
    warehouse: Warehouse, *parts: str, schema: pa.Schema, columns: Sequence[str], most: int
) -> list[dict[str, Any]]:
    """Return the first rows of the Parquet files in a directory, at most `most`."""
    rows: list[dict[str, Any]] = []
    for batch in scan_directory(warehouse, *parts, schema=schema, columns=columns):
        rows += batch.slice(0, most - len(rows)).to_pylist()
        if len(rows) == most:
            break
    return rows


def read_files(
    warehouse: Warehouse, files: Sequence[str], schema: pa.Schema, where: pc.Expression | None = None
) -> pa.Table:
    """Return rows of Parquet files. `files`: paths below the root of the warehouse. `where`: as in `read_directory`."""
    if not files:
        return schema.empty_table()

    def read() -> pa.Table:
        store, root = _store(warehouse)
        paths = [f"{root}/{file}" for file in files]
        return ds.dataset(paths, format="parquet", filesystem=store, schema=schema).to_table(filter=where)

    return warehouse.read_with(read, commonpath(files))


def _files_below(warehouse: Warehouse, *parts: str, schema: pa.Schema) -> ds.Dataset:
    store, root = _store(warehouse)
    nullable = pa.schema([pa.field(field.name, field.type) for field in schema])  # as Spark writes them
    lists = [f"{field.name}.list.element" for field in schema if field.type == NAMES]
    parquet = ds.ParquetFileFormat(dictionary_columns=lists)
    return ds.dataset("/".join((root, *parts)), format=parquet, filesystem=store, schema=nullable)


def _store(warehouse: Warehouse) -> tuple[fs.FileSystem, str]:
    """Return Arrow's file system for a warehouse, and the root of the warehouse in it.

    The S3 endpoint is read from the same environment variables as in obstore, because Arrow does not know all of them.
    """
    root = warehouse.root.replace("s3a://", "s3://", 1)
    if "://" not in root:
        return fs.LocalFileSystem(), root
    endpoint = s3_endpoint()
    if not endpoint or not root.startswith("s3://"):
        return fs.FileSystem.from_uri(quote(root, safe=":/@"))  # Arrow decodes a URL; Spark takes it literally
    scheme, _, host = endpoint.rstrip("/").partition("://")
    region = from_environment("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1"
    return fs.S3FileSystem(endpoint_override=host, scheme=scheme, region=region), root.removeprefix("s3://")


def read_batches(warehouse: Warehouse, repository: str, kind: str, schema: pa.Schema, where: pc.Expression) -> pa.Table:
    """Return rows from the complete batches of a `TableCache`. The rows of a file in two batches are returned twice."""
    found = [
        read_directory(warehouse, repository, kind, batch.name, schema=schema, where=where)
        for batch in cache_batches(warehouse, repository, kind)
    ]
    return pa.concat_tables([schema.empty_table(), *found], promote_options="permissive")


def one_of(column: str, values: Collection[str]) -> pc.Expression:
    """Return the condition that a text column has one of the values.

    For few values, the condition is a list of comparisons, because Arrow does not skip row groups for `isin`.
    """
    ordered = sorted(values)
    if len(ordered) > _FEW_VALUES or not ordered:
        return pc.field(column).isin(pa.array(ordered, pa.string()))
    return reduce(or_, (pc.field(column) == value for value in ordered))
