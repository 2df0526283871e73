"""Shared code for Spark: readers, cached frames, functions on executors, and numbers of tasks."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from functools import reduce
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, DataFrameReader, GroupedData, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.config.settings import MANY_OBJECTS, READ_TASKS, SWEEP_WORKERS
from retention_assets.errors import RetentionError, WorkerError
from retention_assets.tables import plain

_ONE_PROCESS = re.compile(r"local(\[.*\])?")
_WITH_NULLS = {"ignoreNullFields": "false"}
Batches = Iterator[pa.RecordBatch]


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return the rows of an Arrow table as a frame. Spark Connect needs the explicit schema for empty tables."""
    table = table.cast(plain(table.schema)).combine_chunks()  # pyspark 4.3 loses rows that come after an empty chunk
    return spark.createDataFrame(table, from_arrow_schema(table.schema))


def opened_files(spark: SparkSession) -> DataFrameReader:
    """Return a new reader of files. Its frames never use the cached rows of another reader's frames.

    Spark takes the result of a query from the cached rows of an equal query, even if the files were replaced since.
    Queries with different options are not equal, so each reader has an option with a unique value.

    A path names exactly one file or directory. By default, Spark takes `[`, `{`, `*` and `?` in a path as wildcards. It
    would not find these files, or would read the files of another directory.
    """
    return spark.read.option("retention.opened", uuid4().hex).option("__globPaths__", "false")


def as_frame(spark: SparkSession, rows: DataFrame | pa.Table) -> DataFrame:
    """Return the rows as a frame. Rows of an Arrow table become part of each query of the frame."""
    return from_arrow(spark, rows) if isinstance(rows, pa.Table) else rows


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session is remote, by Spark Connect. A remote session has no Java process of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def master_of(spark: SparkSession) -> str:
    """Return the Spark master of the session, `Spark Connect` for a remote session.

    `spark.conf` is not used: if the session already existed, it can name a master that did not take effect.
    """
    return "Spark Connect" if is_connect(spark) else str(spark.sparkContext.master)


def is_one_process(spark: SparkSession) -> bool:
    """Return whether the driver is also the executor."""
    return is_local_master(master_of(spark))


def is_local_master(master: str) -> bool:
    """Return whether the Spark master is `local` or `local[...]`: the driver is then the only executor."""
    return bool(_ONE_PROCESS.fullmatch(master))


def read_tasks(spark: SparkSession) -> int:
    """Return the number of tasks that list a store or read its files: `READ_TASKS`, else the shuffle partitions."""
    return int(spark.conf.get(READ_TASKS, "") or spark.conf.get("spark.sql.shuffle.partitions", "") or 2)


def sweep_workers(spark: SparkSession) -> int:
    """Return the number of workers of a sweep: `SWEEP_WORKERS`, else as many tasks as the executors run at once.

    The workers share the rate of a sweep. If some of them had to wait for a free core, the sweep would not reach its
    rate.
    """
    if chosen := spark.conf.get(SWEEP_WORKERS, ""):
        return int(chosen)
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    numbers = spark.range(2**16).select(F.spark_partition_id())  # one partition for each core
    return numbers.distinct().count()


class CachedFrames:
    """The frames that one operation has in Spark's cache. The end of the `with` block releases them, also after errors.

    Frames that depend on a released frame can still be read, but are computed again.
    """

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all frames."""
        while self._frames:
            self._frames.pop().unpersist()

    def cache(self, frame: DataFrame) -> DataFrame:
        """Mark the frame for Spark's cache until the end of the block, and return the frame.

        In a local session, the rows of a large repository are on disk, which leaves more memory for aggregates, joins
        and sorts.
        """
        on_disk = frame.sparkSession.conf.get(MANY_OBJECTS, "") == "true"
        self._frames.append(frame.persist(StorageLevel.DISK_ONLY) if on_disk else frame.cache())
        return self._frames[-1]

    def release(self, frame: DataFrame) -> None:
        """Release one frame before the end of the block."""
        self._frames.remove(frame)
        frame.unpersist()

    def compute(self, frame: DataFrame) -> DataFrame:
        """Compute the rows of the frame now and once, and return them.

        In one process, the rows are a local checkpoint, so the plans of later queries do not repeat how the rows were
        made. The checkpoint is on disk, which leaves more memory for sorts and joins. On a cluster, an executor
        could be lost with its checkpointed rows. So the rows are cached there, and Spark computes lost rows again. A
        separate query counts the cached rows: if two stages of one query computed them at the same time, Spark would
        observe some rows twice or not at all.
        """
        if is_one_process(frame.sparkSession):
            return frame.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
        cached = self.cache(frame)
        cached.count()
        return cached


def collected(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame. If a signal interrupts this thread meanwhile, cancel the Spark job first.

    A signal does not interrupt Java. After a signal, a thread that waits for Java's response still waits for the end of
    the job. So another thread waits here.
    """
    spark, tag = frame.sparkSession, f"retention_assets-{uuid4().hex}"
    remote = is_connect(spark)
    tag_jobs, cancel = (
        (spark.addTag, spark.interruptTag)
        if remote
        else (spark.sparkContext.addJobTag, spark.sparkContext.cancelJobsWithTag)
    )

    def collect() -> list[Row]:
        tag_jobs(tag)
        return frame.collect()

    with ThreadPoolExecutor(1, "spark-collect") as pool:
        rows = pool.submit(collect)
        try:
            return rows.result()
        except BaseException as error:
            if not isinstance(error, Exception):  # Dagster or a person interrupted this thread
                while not rows.done():
                    cancel(tag)  # does nothing before Java has begun the job
                    wait([rows], timeout=1)
            raise


def collect_together(frames: Mapping[str, DataFrame]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of several frames by the frame's name, collected by one Spark query.

    Each query has a fixed cost, and a small plan spends most of its time on this cost. The frames must be small. Their
    columns may only be numbers, texts, booleans and lists of these, because the rows are passed as JSON.
    """
    rows = [
        frame.select(F.lit(name).alias("name"), F.to_json(F.struct("*"), _WITH_NULLS).alias("row"))
        for name, frame in frames.items()
    ]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in frames}
    for row in reduce(DataFrame.unionAll, rows).collect():
        found[row["name"]].append(json.loads(row["row"]))
    return found


def on_workers(frame: DataFrame, function: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """Return the rows that `function` makes of the frame's record batches, on executors. `schema`: their schema.

    The files that `function` reads can change, so no two frames of this function share cached rows: see `opened_files`.
    If `function` raises an error of this project, `errors.own_error` returns the error on the driver.
    """
    opened = uuid4().hex

    def run(batches: Batches, _opened: str = opened) -> Batches:
        try:
            yield from function(batches)
        except RetentionError as error:
            raise WorkerError(error) from error

    return frame.mapInArrow(run, from_arrow_schema(schema))


def by_address(rows: DataFrame) -> GroupedData:
    """Return the rows grouped by address, for tables in which most addresses have one row or few.

    Without the repartition, Spark also aggregates the rows before it distributes them. That makes hardly fewer rows,
    but needs a hash table of all rows, or sorts them on disk.
    """
    return rows.repartition("address").groupBy("address")


def union_of(column: str) -> Column:
    """Return the aggregate of a column of lists: all their items, sorted and without duplicates."""
    return F.array_sort(F.array_distinct(F.flatten(F.collect_set(column))))
