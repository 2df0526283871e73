"""Caches the rows of immutable table files. Each file is read once. Later runs look up its rows by its id.

Executors read the files and the cached rows. If the ids and their rows are few, the driver reads them itself: each
Spark job takes longer than reading some small files.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import batched

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import CachedFrames, as_frame, from_arrow, on_workers, opened_files, read_tasks
from retention_assets.warehouse.cache_batches import (
    BATCH,
    ROWS,
    CacheBatch,
    cache_batches,
    complete_and_replaced,
    ids_of,
    merge_batches,
    need_merge,
    write_manifest,
)
from retention_assets.warehouse.reading import one_of, read_directory
from retention_assets.warehouse.warehouse import Warehouse

_AGAIN = "Run the same command again: it reads the files again."
_AT_ONCE = 8  # files that one task fetches at once, which hides the store's latency and takes a few hundred MB at most
_FEW_IDS = 10_000  # the most ids that the driver looks up
_FEW_ROWS = 20_000  # the most cached rows that the driver reads
_FEW_FILES = 128  # the most files that the driver fetches
_FEW_BYTES = 2**22  # the most bytes of these files, and of the cached ids that the driver reads

FILE_BYTES = pa.field("file_bytes", pa.int64())  # the file's size on its first row, 0 on others; the sum is bytes read
Decode = Callable[[bytes, str, str], pa.RecordBatch]  # arguments: content, file name for messages, id


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table file."""

    name: str  # the folder in the cache; it changes when files are decoded by other rules, so old rows are not read
    id_column: str
    schema: pa.Schema
    decode: Decode
    folder: str  # the folder of the files in the repository


def on_first_row(value: int, rows: int) -> pa.Array:
    """Return a column with `value` on its first row and 0 on the others, so that it sums to `value`."""
    return pa.array(np.concatenate([[value], np.zeros(rows - 1)]) if rows else [], pa.int64())


def read_tables(ids: DataFrame, kind: Kind, access: StoreAccess) -> DataFrame:
    """Return the rows of the table files with these ids (one column, distinct). Executors read the files."""
    decode, folder = kind.decode, kind.folder

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _decoded(batch.column(0).to_pylist(), decode, folder, access)

    return on_workers(ids, read, kind.schema)


def _decoded(ids: Sequence[str], decode: Decode, folder: str, access: StoreAccess) -> Iterator[pa.RecordBatch]:
    reader = ObjectReader(access)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for chunk in batched(ids, _AT_ONCE):
            names = [f"{folder}/{table_id}" for table_id in chunk]
            for table_id, name, content in zip(chunk, names, pool.map(reader.read, names), strict=True):
                yield decode(content, reader.describe(name), table_id)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The number and size of the files that a run fetched because they were not in the cache.

    `unread`: the ids of lost files that no run has read. They have no rows, so the files that they reference are
    unknown.
    """

    files: int
    bytes: int
    unread: tuple[str, ...] = ()


class TableCache:
    """The rows of table files that this run and earlier runs read, stored in the warehouse by file id.

    Args:
        spark: the Spark session.
        warehouse: the warehouse that contains the cache.
        repository: name of the repository.
        access: the store of the repository, which has the table files.
        run_id: the end of the names of the batches that this run adds.
        full: use only rows that this run reads itself. Later runs then use these rows: if a file was read more than
            once, its newest batch counts.
        lost: addresses of files that no longer exist (column `address`). They are not fetched, and have rows only if an
            earlier run read them.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        repository: str,
        access: StoreAccess,
        run_id: str,
        *,
        full: bool = False,
        lost: DataFrame | None = None,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._repository = repository
        self._access = access
        self._run_id = run_id
        self._full = full
        self._lost = lost

    @property
    def url(self) -> str:
        """The URL of the repository that has the files."""
        return self._access.url

    def rows(self, ids: DataFrame | pa.Table, kind: Kind) -> tuple[DataFrame, Fetched]:
        """Return the rows of all files in `ids` (column `kind.id_column`), and how many files were fetched.

        Files that are not cached are fetched, except lost ones: these are `unread`, and their rows are missing.
        `ids`: a frame, or a table that the driver holds.

        Errors: CorruptFile, AccessDenied or StoreError, which executors raise too; TableContractError when cached rows
        are missing.
        """
        known = batches = self._batches(kind)
        if need_merge(known) and not self._full:  # a full run reads its own batches only
            merge_batches(self._warehouse, self._repository, kind.name, self._run_id)
            batches = self._batches(kind)
        wanted = _few_ids(ids, kind)
        index = None if wanted is None or self._lost is not None else self._index(kind, batches)
        if wanted is None or index is None:
            reading = self._fetch_missing(as_frame(self._spark, ids), kind, batches)
        else:
            cached = index[kind.id_column].combine_chunks()
            reading = self._fetch_few(wanted.filter(pc.invert(pc.is_in(wanted, cached))), kind)
        if reading.files:
            batches = self._batches(kind)
        rows = self._rows_in(batches, ids, kind)
        self._require_there(kind, known)
        return rows, reading

    def _require_there(self, kind: Kind, batches: Sequence[CacheBatch]) -> None:
        """Raise TableContractError if a batch is not complete any more: its rows are missing."""
        complete, _ = complete_and_replaced(self._warehouse, self._repository, kind.name)
        there = {batch.name for batch in complete}
        if gone := [batch.name for batch in batches if batch.name not in there]:
            raise TableContractError(
                f"{self._location(kind.name, gone[0])}: was removed or damaged during this run. Nothing was deleted. "
                f"{_AGAIN}"
            )

    def _fetch_missing(self, ids: DataFrame, kind: Kind, batches: Sequence[CacheBatch]) -> Fetched:
        """Fetch the files in `ids` that are not cached and not lost, on executors."""
        missing = ids.select(kind.id_column).distinct()
        if batches:
            missing = missing.join(self._complete_files(kind, batches), on=kind.id_column, how="left_anti")
        with CachedFrames() as frames:
            frames.cache(missing)
            unread: tuple[str, ...] = ()
            if self._lost is not None:
                name = F.substring_index("address", "/", -1).alias(kind.id_column)
                lost = self._lost.where(F.col("address").startswith(f"{kind.folder}/")).select(name)
                both = missing.join(lost, on=kind.id_column, how="left_semi").collect()
                unread = tuple(sorted(row[kind.id_column] for row in both))
                missing = missing.join(lost, on=kind.id_column, how="left_anti")
            width = read_tasks(self._spark)
            files = missing.count() if batches else width  # if the cache is empty, the fetch counts the files
            fetched = self._fetch(missing, kind, min(files, width)) if files else Fetched(0, 0)
            return replace(fetched, unread=unread)

    def _fetch_few(self, missing: pa.Array, kind: Kind) -> Fetched:
        """Fetch the files with these ids: on the driver if they are few and small, else on executors."""
        ids = missing.to_pylist()
        if not ids:
            return Fetched(0, 0)
        if len(ids) <= _FEW_FILES:
            reader = ObjectReader(self._access)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                metadata = pool.map(reader.head, [f"{kind.folder}/{one}" for one in ids])
                size = sum(one.size for one in metadata)
            if size <= _FEW_BYTES:
                return self._fetch_here(ids, kind, size)
        frame = from_arrow(self._spark, pa.table([missing], [kind.id_column]))
        return self._fetch(frame, kind, min(len(ids), read_tasks(self._spark)))

    def _fetch_here(self, ids: Sequence[str], kind: Kind, size: int) -> Fetched:
        """Fetch files on the driver, and store their rows as a new batch."""
        name = self._next_batch(kind)
        decoded = list(_decoded(ids, kind.decode, kind.folder, self._access))
        rows = pa.Table.from_batches(decoded, kind.schema)
        rows = rows.append_column(BATCH, pa.repeat(pa.scalar(name), rows.num_rows))
        columns = [ids, [name] * len(ids), [one.num_rows for one in decoded]]
        of_files = pa.table(columns, schema=pa.schema([pa.field(kind.id_column, pa.string()), BATCH, ROWS]))
        for table, stored in ((kind.name, rows), (ids_of(kind.name), of_files)):
            self._warehouse.write_table(stored, self._repository, table, name)
            self._require_rows(stored.num_rows, table, name)
        write_manifest(self._warehouse, self._repository, kind.name, name)
        return Fetched(len(ids), size)

    def cached_rows(self, ids: DataFrame | pa.Table, kind: Kind) -> DataFrame:
        """Return the cached rows of the files in `ids`. Nothing is fetched; files that are not cached have no rows."""
        return self._rows_in(self._batches(kind), ids, kind)

    def _rows_in(self, batches: Sequence[CacheBatch], ids: DataFrame | pa.Table, kind: Kind) -> DataFrame:
        wanted = _few_ids(ids, kind)
        index = None if wanted is None else self._index(kind, batches)
        if wanted is None or index is None:
            frame = as_frame(self._spark, ids)
            distinct = frame.select(kind.id_column).distinct()
            read = self._newest_batches(kind, batches).join(distinct, on=kind.id_column, how="left_semi")
            names = [batch.name for batch in batches]
        else:
            chosen = index.filter(pc.is_in(index[kind.id_column], wanted))
            if sum(chosen[ROWS.name].to_pylist()) <= _FEW_ROWS:
                return from_arrow(self._spark, self._rows_of(chosen, kind))
            read, names = from_arrow(self._spark, chosen), chosen[BATCH.name].unique().to_pylist()
        rows = self._read(kind.name, [*kind.schema, BATCH], names)
        return rows.join(read, on=[kind.id_column, BATCH.name], how="left_semi")

    def _rows_of(self, chosen: pa.Table, kind: Kind) -> pa.Table:
        """Return the rows of some files (id, batch) on the driver. Errors: TableContractError if some are missing."""
        schema = pa.schema([*kind.schema, BATCH])
        found = [schema.empty_table()]
        for name in chosen[BATCH.name].unique().to_pylist():
            ids = chosen.filter(pc.equal(chosen[BATCH.name], name))[kind.id_column].to_pylist()
            where = one_of(kind.id_column, ids)
            found.append(read_directory(self._warehouse, self._repository, kind.name, name, schema=schema, where=where))
        rows, expected = pa.concat_tables(found), sum(chosen[ROWS.name].to_pylist())
        if rows.num_rows != expected:
            directory = self._location(kind.name, "").rstrip("/")
            raise TableContractError(
                f"{directory}: {expected:,} rows were written, and {rows.num_rows:,} can be read. Nothing was "
                "deleted. Remove this directory, which is only a cache, and run the same command again. If a person "
                "acknowledged files as lost, copy the directory from a backup instead: only the cache has their "
                "content."
            )
        return rows

    def _index(self, kind: Kind, batches: Sequence[CacheBatch]) -> pa.Table | None:
        """Return (id, batch, rows) of each cached file, from its newest batch; None: Spark must look up the files.

        The driver does not count the rows of batches without a manifest, and does not read the ids of many files.
        """
        if sum(batch.ids_size for batch in batches) > _FEW_BYTES or not all(one.has_manifest for one in batches):
            return None
        schema = pa.schema([pa.field(kind.id_column, pa.string()), BATCH, ROWS])
        found = [
            read_directory(self._warehouse, self._repository, ids_of(kind.name), name, schema=schema)
            for name in self._used_names(batches)
        ]
        rows = pa.concat_tables([schema.empty_table(), *found])
        newest = rows.group_by(kind.id_column).aggregate([(BATCH.name, "max")])
        named = newest.rename_columns([kind.id_column, BATCH.name])
        return rows.join(named, keys=[kind.id_column, BATCH.name], join_type="left semi")

    def _fetch(self, missing: DataFrame, kind: Kind, width: int) -> Fetched:
        """Fetch the files in `missing` in `width` tasks, and store their rows as a new batch.

        The rows are counted when they are decoded, in the footers of the files written, and again as they are read
        back. Errors: TableContractError when the counts differ. The batch is then not used, and later runs fetch the
        files again.
        """
        batch = F.lit(name := self._next_batch(kind)).alias(BATCH.name)
        decoded, read_back = Observation(), Observation()
        rows = read_tables(missing.repartition(width), kind, self._access).select("*", batch)
        size = F.coalesce(F.sum(FILE_BYTES.name), F.lit(0)).alias("bytes")
        counts = F.count(F.lit(1)).alias(ROWS.name), F.coalesce(F.sum(_checksum_share(kind)), F.lit(0)).alias("shares")
        self._write(rows.observe(decoded, size, *counts), kind.name, name)
        written = decoded.get[ROWS.name]
        self._require_rows(written, kind.name, name)
        there = missing.join(self._counts(kind, [name]).drop(BATCH.name), on=kind.id_column, how="left")
        ids = there.select(kind.id_column, batch, F.coalesce(ROWS.name, F.lit(0)).alias(ROWS.name)).coalesce(1)
        files = F.count(F.lit(1)).alias("files")
        read = F.coalesce(F.sum(ROWS.name), F.lit(0)).alias(ROWS.name)
        shares = F.coalesce(F.sum(F.col(ROWS.name) * _checksum_share(kind)), F.lit(0)).alias("shares")
        self._write(ids.observe(read_back, files, read, shares), ids_of(kind.name), name)
        if any(decoded.get[one] != read_back.get[one] for one in (ROWS.name, "shares")):
            self._warehouse.remove_directory(self._repository, ids_of(kind.name), name)
            raise TableContractError(
                f"{self._location(kind.name, name)}: {written:,} rows were written, and {read_back.get[ROWS.name]:,} "
                f"can be read, or the rows of a file differ. Nothing was deleted. {_AGAIN}"
            )
        self._require_rows(read_back.get["files"], ids_of(kind.name), name)
        write_manifest(self._warehouse, self._repository, kind.name, name)
        return Fetched(read_back.get["files"], decoded.get["bytes"])

    def _write(self, rows: DataFrame, table: str, batch: str) -> None:
        self._warehouse.write_frame(rows, self._repository, table, batch, mode="error")

    def _require_rows(self, written: int, table: str, batch: str) -> None:
        self._warehouse.require_row_count(written, self._repository, table, batch, remedy=_AGAIN)

    def _newest_batches(self, kind: Kind, batches: Sequence[CacheBatch]) -> DataFrame:
        """Return (id, batch, rows) of each cached file, from its newest batch."""
        columns = [pa.field(kind.id_column, pa.string()), BATCH, ROWS]
        ids = self._read(ids_of(kind.name), columns, self._used_names(batches))
        newest = F.max(F.struct(BATCH.name, ROWS.name)).alias("newest")
        return ids.groupBy(kind.id_column).agg(newest).select(kind.id_column, "newest.*")

    def _complete_files(self, kind: Kind, batches: Sequence[CacheBatch]) -> DataFrame:
        """Return the cached files whose rows are all still in the cache.

        If rows of a metarange were missing from the cache, its ranges would be unknown, and their objects would look
        unreferenced. A batch with a manifest has all its files. The rows of other batches are counted.
        """
        known = self._newest_batches(kind, batches)
        uncounted = [batch.name for batch in batches if not batch.has_manifest]
        if not uncounted:
            return known
        there = self._counts(kind, uncounted).withColumnRenamed(ROWS.name, "there")
        counted = known.join(there, on=[kind.id_column, BATCH.name], how="left")
        is_complete = ~F.col(BATCH.name).isin(uncounted) | (F.coalesce("there", F.lit(0)) == F.col(ROWS.name))
        return counted.where(is_complete)

    def _counts(self, kind: Kind, batches: list[str]) -> DataFrame:
        """Return (id, batch, rows), counted from the stored rows."""
        rows = self._read(kind.name, [pa.field(kind.id_column, pa.string()), BATCH], batches)
        return rows.groupBy(kind.id_column, BATCH.name).agg(F.count(F.lit(1)).alias(ROWS.name))

    def _batches(self, kind: Kind) -> list[CacheBatch]:
        """Return the batches that can be read. A full run also reads its own batches that another run has merged."""
        return cache_batches(self._warehouse, self._repository, kind.name, self._run_id if self._full else "")

    def _used_names(self, batches: Sequence[CacheBatch]) -> list[str]:
        """Return the names of the batches whose rows this run uses. A full run uses only its own batches."""
        return [batch.name for batch in batches if not self._full or batch.name.endswith(self._run_id)]

    def _next_batch(self, kind: Kind) -> str:
        """Return a batch name that sorts after the names of all other batches, incomplete ones included."""
        names = self._warehouse.directories(self._repository, kind.name)
        newest = max((int(name.partition("-")[0]) for name in names), default=0)
        return f"{newest + 1:08d}-{self._run_id}"

    def _read(self, name: str, columns: list[pa.Field], batches: list[str]) -> DataFrame:
        schema = pa.schema(columns)
        if not batches:
            return from_arrow(self._spark, schema.empty_table())
        locations = [self._location(name, batch) for batch in batches]
        return opened_files(self._spark).schema(from_arrow_schema(schema)).parquet(*locations)

    def _location(self, name: str, batch: str) -> str:
        return self._warehouse.location(self._repository, name, batch)


def _few_ids(ids: DataFrame | pa.Table, kind: Kind) -> pa.Array | None:
    """Return the distinct ids if the driver holds them and they are few; None: Spark looks them up."""
    if not isinstance(ids, pa.Table) or ids.num_rows > _FEW_IDS:
        return None
    return ids[kind.id_column].combine_chunks().unique()


def _checksum_share(kind: Kind) -> Column:
    """Return the number that each row adds to a checksum. If a file has more or fewer rows, the checksum differs."""
    return F.pmod(F.xxhash64(kind.id_column), F.lit(2**20))
