"""The rows of immutable files, read on executors, each file once, and kept by its id between runs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import batched

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.warehouse import Warehouse

_AT_ONCE = 8  # files fetched at once by one task: hides the store's latency, bounds memory to a few hundred MB


FILE_BYTES = pa.field("file_bytes", pa.int64())  # a file's size on its first row, 0 on others: sums to bytes read


_BATCH = pa.field("batch", pa.string())  # which run read the file


_ROWS = pa.field("rows", pa.int64())  # of the file


Decode = Callable[[bytes, str, str], pa.RecordBatch]  # content, name of the file, id


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table file: the column of its id, the rows it gives, and where they are kept.

    `name` is the cache's folder. It carries a version: rows that were decoded by other rules are not read.
    """

    name: str
    id_column: str
    schema: pa.Schema
    decode: Decode
    folder: str  # where the files are


def on_first_row(value: int, rows: int) -> pa.Array:
    """Return a column with `value` on its first row and 0 on the others, so that it sums to `value`."""
    return pa.array(np.concatenate([[value], np.zeros(rows - 1)]) if rows else [], pa.int64())


def read_tables(ids: DataFrame, kind: Kind, access: StoreAccess) -> DataFrame:
    """Return the rows of each table file named in `ids` (one column, distinct), read on executors."""
    decode, folder = kind.decode, kind.folder

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for batch in batches:
                for group in batched(batch.column(0).to_pylist(), _AT_ONCE):
                    names = [f"{folder}/{table_id}" for table_id in group]
                    for table_id, name, content in zip(group, names, pool.map(reader.read, names), strict=True):
                        yield decode(content, reader.describe(name), table_id)

    return ids.mapInArrow(read, from_arrow_schema(kind.schema))


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run had to fetch: files that no earlier run had read."""

    files: int
    bytes: int


class TableCache:
    """The rows of table files that earlier runs read, by id, in the warehouse.

    `run_id` names what this run adds. A `full` run believes only what it reads itself; its rows then count for later
    runs, since of a file that was read twice the newest batch counts. `lost`: the addresses of files that are not
    there any more (column `address`): they are not fetched, and have rows only if an earlier run read them.
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
        self._gone = lost

    @property
    def place(self) -> str:
        """The URL of the repository whose files these are."""
        return self._access.url

    def rows(self, ids: DataFrame, kind: Kind) -> tuple[DataFrame, Reading]:
        """Return the rows of all files in `ids` (column `kind.id_column`), fetching those not read before.

        Errors: of the files and the store, as the executors meet them.
        """
        wanted = ids.select(kind.id_column).distinct()
        missing = wanted.join(self._kept(kind), on=kind.id_column, how="left_anti")
        if self._gone is not None:
            name = F.substring_index("address", "/", -1).alias(kind.id_column)
            lost = self._gone.where(F.col("address").startswith(f"{kind.folder}/")).select(name)
            missing = missing.join(lost, on=kind.id_column, how="left_anti")
        missing = missing.cache()
        files = missing.count()
        size = self._fetch(missing, kind, files) if files else 0
        missing.unpersist()
        return self.known_rows(ids, kind), Reading(files, size)

    def known_rows(self, ids: DataFrame, kind: Kind) -> DataFrame:
        """Return the rows of those files in `ids` that this run or an earlier one read; nothing is fetched."""
        wanted = ids.select(kind.id_column).distinct()
        read = self._known(kind).join(wanted, on=kind.id_column, how="left_semi")
        rows = self._read(kind.name, [*kind.schema, _BATCH], self._batches(kind))
        return rows.join(read, on=[kind.id_column, _BATCH.name], how="left_semi")

    def _fetch(self, missing: DataFrame, kind: Kind, files: int) -> int:
        """Read the missing `files` files and keep their rows; return their bytes.

        The rows of each file are counted as they are decoded, and again as they are read back.
        Errors: TableContractError when the counts differ; then the batch does not count. Later runs read it anew.
        """
        width = int(self._spark.conf.get("spark.sql.shuffle.partitions") or 2)
        batch = F.lit(name := self._next_batch(kind)).alias(_BATCH.name)
        observed = Observation()
        rows = read_tables(missing.repartition(width), kind, self._access).select("*", batch)
        decoded = F.count(F.lit(1)).alias(_ROWS.name), F.sum(_share(kind)).alias("shares")
        counted = rows.observe(observed, F.sum(FILE_BYTES.name).alias("bytes"), *decoded)
        counted.write.mode("errorifexists").parquet(self._place(kind.name, name))
        there = self._counts(kind, [name]).drop(_BATCH.name).cache()
        shares = F.sum(F.col(_ROWS.name) * _share(kind)).alias("shares")
        found = there.agg(F.coalesce(F.sum(_ROWS.name), F.lit(0)).alias(_ROWS.name), shares).first()
        assert found is not None
        if (observed.get[_ROWS.name], observed.get["shares"]) != (found[_ROWS.name], found["shares"]):
            raise self._lost(kind.name, name, observed.get[_ROWS.name], found[_ROWS.name])
        written = missing.join(there, on=kind.id_column, how="left")
        ids = written.select(kind.id_column, batch, F.coalesce(_ROWS.name, F.lit(0)).alias(_ROWS.name))
        ids.coalesce(1).write.mode("errorifexists").parquet(self._place(_ids_of(kind), name))
        there.unpersist()
        if (named := self._warehouse.row_count(self._repository, _ids_of(kind), name)) != files:
            raise self._lost(_ids_of(kind), name, files, named)
        return observed.get["bytes"] or 0

    def _lost(self, table: str, batch: str, written: int, found: int) -> TableContractError:
        return TableContractError(
            f"{self._place(table, batch)}: {written:,} rows were written, and {found:,} can be read, or rows of other "
            f"files. Nothing was deleted. Do all machines of the cluster see one warehouse? Then run the same again."
        )

    def _known(self, kind: Kind) -> DataFrame:
        """Return (id, batch, rows) of each file that was read, with its newest batch."""
        batches = [name for name in self._batches(kind) if not self._full or name.endswith(self._run_id)]
        ids = self._read(_ids_of(kind), [pa.field(kind.id_column, pa.string()), _BATCH, _ROWS], batches)
        newest = F.max(F.struct(_BATCH.name, _ROWS.name)).alias("newest")
        return ids.groupBy(kind.id_column).agg(newest).select(kind.id_column, "newest.*")

    def _kept(self, kind: Kind) -> DataFrame:
        """Return the files that were read and of which every row is still there.

        Of a metarange whose rows were lost nobody would miss the ranges: their objects would seem to be in no commit.
        """
        there = self._counts(kind, self._batches(kind)).withColumnRenamed(_ROWS.name, "there")
        known = self._known(kind).join(there, on=[kind.id_column, _BATCH.name], how="left")
        return known.where(F.coalesce("there", F.lit(0)) == F.col(_ROWS.name))

    def _counts(self, kind: Kind, batches: list[str]) -> DataFrame:
        """Return (id, batch, rows) as the rows themselves say."""
        rows = self._read(kind.name, [pa.field(kind.id_column, pa.string()), _BATCH], batches)
        return rows.groupBy(kind.id_column, _BATCH.name).agg(F.count(F.lit(1)).alias(_ROWS.name))

    def _batches(self, kind: Kind) -> list[str]:
        """Return the batches that were written whole: first their rows, then their ids."""
        names = self._warehouse.directories(self._repository, _ids_of(kind))
        tables = (kind.name, _ids_of(kind))
        return [
            name
            for name in names
            if all(self._warehouse.is_complete(self._repository, table, name) for table in tables)
        ]

    def _next_batch(self, kind: Kind) -> str:
        """Return a name that sorts after all others, also after those of batches that were cut off."""
        names = self._warehouse.directories(self._repository, kind.name)
        newest = max((int(name.partition("-")[0]) for name in names), default=0)
        return f"{newest + 1:08d}-{self._run_id}"

    def _read(self, name: str, columns: list[pa.Field], batches: list[str]) -> DataFrame:
        schema = pa.schema(columns)
        if not batches:
            return self._spark.createDataFrame(schema.empty_table())
        places = [self._place(name, batch) for batch in batches]
        return self._spark.read.schema(from_arrow_schema(schema)).parquet(*places)

    def _place(self, name: str, batch: str) -> str:
        return self._warehouse.location(self._repository, name, batch)


def _share(kind: Kind) -> Column:
    """Return a number that each row adds to a sum. Two batches of equal sums have as many rows of each file."""
    return F.pmod(F.xxhash64(kind.id_column), F.lit(2**20))


def _ids_of(kind: Kind) -> str:
    return f"{kind.name}_ids"
