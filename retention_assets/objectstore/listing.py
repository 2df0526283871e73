"""Lists the objects of a namespace on executors, and checks single objects.

Large directories are split into key ranges, so that several workers can list one directory. A flat local directory is
listed by key ranges too: each worker reads all names, but size and time only for the files of its own ranges. obstore
lists a local directory on one core, at about 6 microseconds a file; reading only the names takes a tenth of that. Only
directories with plain names, such as Icechunk's `chunks/`, are listed in this way. obstore lists all other directories.
Source: docs/uncommitted.md, "What is listed".
"""

import os
import re
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import batched, islice, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.spark.frames import from_arrow, is_one_process, on_workers, read_tasks
from retention_assets.tables import TIMESTAMP

LAST = "\U0010ffff"  # the greatest character: no path continues with a greater one
_MOST_READERS = 8  # tasks that list one local directory; each task reads all names
_PLAIN = re.compile(r"[0-9A-Za-z_.-]+(?:/[0-9A-Za-z_.-]+)*")  # names that obstore does not escape
_FILES_PER_BATCH = 10_000
# A listing without Spark has at most this many tasks, and fewer than this many objects.
_FEW_TASKS, _FEW_OBJECTS = 32, 10_000
_CONCURRENT_REQUESTS = 16  # concurrent requests of a task
PRESENCE = pa.schema([("address", pa.string()), ("last_modified", TIMESTAMP), ("size", pa.int64())])


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A key range of a directory: the paths below it, at any depth, after `after`, up to and including `until`."""

    directory: str
    after: str
    until: str

    def covers(self, path: str) -> bool:
        """Return whether `path`, which must be in the directory, is in the key range."""
        return self.after < path <= self.until


def key_ranges(directory: str, beginnings: str) -> tuple[KeyRange, ...]:
    """Return key ranges that together cover `directory`, with a cut before each character of `beginnings`."""
    cuts = [directory, *(directory + character for character in sorted(beginnings)[1:]), directory + LAST]
    return tuple(KeyRange(directory, after, until) for after, until in pairwise(cuts))


class KeyRanges:
    """Key ranges of one directory that do not overlap."""

    def __init__(self, parts: Sequence[KeyRange]) -> None:
        ordered = sorted(parts, key=lambda part: part.after)
        self._after = np.array([part.after.encode() for part in ordered])
        self._until = np.array([part.until.encode() for part in ordered])

    def cover(self, paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
        """Return for each path whether a key range covers it. Paths are in the directory, encoded as UTF-8."""
        number = np.searchsorted(self._after, paths, side="left") - 1
        return (number >= 0) & (paths <= self._until[number])


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes to list."""

    deep: tuple[str, ...]  # list at any depth
    flat: tuple[str, ...]  # list only the objects directly below
    key_ranges: tuple[KeyRange, ...] = ()  # key ranges of large directories


def list_objects(spark: SparkSession, access: StoreAccess, prefixes: Prefixes) -> DataFrame:
    """Return (address, size, last_modified, etag, source) of every object in `prefixes`.

    If this process is the only executor and the objects are few, this function lists them itself. Otherwise, executors
    list them when the rows are computed.
    """
    width = read_tasks(spark)
    tasks = _tasks(access, prefixes, width)
    few = _few_objects(access, tasks) if is_one_process(spark) else None
    if few is None:
        shares = [share for worker in range(width) if (share := tasks[worker::width])]
        rows = on_workers(from_arrow(spark, _as_table(shares)), _lister(access), LISTING)
    else:
        rows = from_arrow(spark, few)
    listed = rows.withColumn("source", F.lit("listing"))
    # The ETag of a local file contains its inode: it does not depend on the content, and differs between machines.
    etag = F.lit(None).cast("string") if access.is_local else F.col("e_tag")
    return listed.withColumnRenamed("path", "address").withColumn("etag", etag).drop("e_tag")


_TEXTS = pa.list_(pa.string())
_TASK = pa.struct([("prefix", pa.string()), ("deep", pa.bool_()), ("after", _TEXTS), ("until", _TEXTS)])
type _Task = tuple[str, bool, tuple[KeyRange, ...]]  # a prefix, whether to list at any depth, key ranges (empty: all)


def _tasks(access: StoreAccess, prefixes: Prefixes, width: int) -> list[_Task]:
    """Return the listing tasks, one for each listing call.

    On a store that lists in order, each key range is a task. On others, one task has all key ranges of a directory. The
    key ranges of a local directory are divided among up to `width` tasks, and at most `_MOST_READERS`. Each of these
    tasks reads all names of the directory.
    """
    tasks: list[_Task] = [(prefix, True, ()) for prefix in prefixes.deep]
    tasks += [(prefix, False, ()) for prefix in prefixes.flat]
    if access.lists_in_order:
        return tasks + [(one.directory, True, (one,)) for one in prefixes.key_ranges]
    by_directory: dict[str, list[KeyRange]] = {}
    for one in prefixes.key_ranges:
        by_directory.setdefault(one.directory, []).append(one)
    workers = min(width, _MOST_READERS) if access.is_local else 1
    return tasks + [
        (directory, True, share)
        for directory, parts in by_directory.items()
        for worker in range(workers)
        if (share := tuple(parts[worker::workers]))
    ]


def _few_objects(access: StoreAccess, tasks: Sequence[_Task]) -> pa.Table | None:
    """Return the objects of all tasks as `LISTING` if they are few; else stop the listing early and return None.

    Listing a few objects takes less time than starting the Python processes of Spark.
    """
    if len(tasks) > _FEW_TASKS or any(_is_large(access, prefix) for prefix, _, parts in tasks if parts):
        return None
    found = []
    for batch in _lister(access)(iter(_as_table([tasks]).to_batches())):
        found.append(batch)
        if sum(map(len, found)) >= _FEW_OBJECTS:
            return None
    return pa.Table.from_batches(found, LISTING)


def _is_large(access: StoreAccess, directory: str) -> bool:
    """Return whether a local directory has many files.

    A listing of its key ranges cannot stop early, because it reads all names of the directory first.
    """
    if not access.is_local:
        return False
    try:
        with os.scandir(access.directory / directory) as entries:
            return next(islice(entries, _FEW_OBJECTS, None), None) is not None
    except OSError:
        return False


def _as_table(shares: Sequence[Sequence[_Task]]) -> pa.Table:
    """Return a table with the tasks of each share in one row.

    The tasks are not part of the closure, because Spark writes a large closure to disk, with the secrets in it.
    """
    rows = [
        [
            {"prefix": prefix, "deep": deep, "after": [part.after for part in parts], "until": [p.until for p in parts]}
            for prefix, deep, parts in share
        ]
        for share in shares
    ]
    return pa.table({"tasks": pa.array(rows, pa.list_(_TASK))})


def _lister(access: StoreAccess):  # type: ignore[no-untyped-def]  # Spark sends this closure to executors
    def list_prefixes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for task in batch.column(0).flatten().to_pylist():
                prefix, deep = task["prefix"], task["deep"]
                parts = [KeyRange(prefix, *ends) for ends in zip(task["after"], task["until"], strict=True)]
                if not deep:
                    yield from reader.list_direct(prefix)
                elif not parts:
                    yield from reader.list(prefix)
                elif access.lists_in_order:
                    yield from reader.list_between(prefix, parts[0].after, parts[0].until)
                else:
                    yield from _in_parts(reader, access, prefix, KeyRanges(parts))

    return list_prefixes


def _in_parts(reader: ObjectReader, access: StoreAccess, prefix: str, parts: KeyRanges) -> Iterator[pa.RecordBatch]:
    """Yield the objects in key ranges of a directory that the store does not list in order."""
    if access.is_local and (names := plain_names(access.directory, prefix, parts)) is not None:
        yield from list_named(access.directory, prefix, names)
        return
    for batch in reader.list(prefix):
        paths = np.array([path.encode() for path in batch.column(0).to_pylist()])
        yield batch.filter(pa.array(parts.cover(paths)))


def unlisted(listed: Collection[str], prefixes: Prefixes, reader: ObjectReader) -> list[str]:
    """Return the prefixes that have no objects in the inventory although the store has objects there.

    `listed`: the prefixes that have objects in the inventory. Only prefixes that are listed at any depth are checked.
    """
    empty = {*prefixes.deep, *(one.directory for one in prefixes.key_ranges)}.difference(listed)
    return sorted(prefix for prefix in empty if reader.holds_objects(prefix))


Names = Sequence[npt.NDArray[np.bytes_]]  # one array for each batch


def plain_names(root: Path, directory: str, parts: KeyRanges) -> Names | None:
    """Return the names in `root / directory` whose paths are in the key ranges `parts`.

    `directory` ends with a slash. The name of an Icechunk chunk takes 20 bytes of memory. The result is None if the
    directory cannot be read, or if it contains anything except files with plain names.
    """
    found = []
    try:
        with os.scandir(root / directory) as entries:
            for chunk in batched(entries, _FILES_PER_BATCH):
                names = [entry.name for entry in chunk]
                are_files = all(entry.is_file(follow_symlinks=False) for entry in chunk)
                if not (_PLAIN.fullmatch("/".join(names)) and are_files):
                    return None
                raw = np.array([name.encode() for name in names])
                found.append(raw[parts.cover(np.strings.add(directory.encode(), raw))])
    except OSError:
        return None
    return found


def list_named(root: Path, directory: str, names: Names) -> Iterator[pa.RecordBatch]:
    """Yield the files with these names as `LISTING`, without ETags. A file that no longer exists is left out.

    Errors: OSError.
    """
    descriptor = os.open(root / directory, os.O_RDONLY)
    try:
        for batch in names:
            yield _batch(directory, *_with_status(descriptor, batch.tolist()))
    finally:
        os.close(descriptor)


def _with_status(descriptor: int, names: list[bytes]) -> tuple[list[bytes], list[os.stat_result]]:
    """Return the names of the files that still exist, and the status of each. This takes most of a listing's time."""
    try:
        return names, [os.stat(name, dir_fd=descriptor, follow_symlinks=False) for name in names]
    except FileNotFoundError:
        found = [(name, status) for name in names if (status := _status(descriptor, name))]
        return [name for name, _ in found], [status for _, status in found]


def _status(descriptor: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _batch(directory: str, names: list[bytes], statuses: list[os.stat_result]) -> pa.RecordBatch:
    count = len(names)
    modified = np.fromiter((status.st_mtime_ns for status in statuses), np.int64, count) // 1_000
    columns = [
        pc.binary_join_element_wise(directory, pa.array(names, pa.binary()).cast(pa.string()), ""),
        pa.array(modified).cast(LISTING.field("last_modified").type),
        pa.array(np.fromiter((status.st_size for status in statuses), np.int64, count)),
        pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING)


def presence(addresses: DataFrame, access: StoreAccess) -> DataFrame:
    """Return (address, last_modified, size) of each of `addresses` (one column), with nulls for a missing object.

    Each address costs one request, so use this only for the few objects that are missing from a listing.

    Errors: AccessDenied or StoreError, raised when the rows are computed.
    """

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)

        def metadata(address: str) -> tuple[datetime, int] | tuple[None, None]:
            found = reader.find(address)
            return (found.last_modified, found.size) if found else (None, None)

        with ThreadPoolExecutor(_CONCURRENT_REQUESTS) as pool:
            for batch in batches:
                for chunk in batched(batch.column(0).to_pylist(), _CONCURRENT_REQUESTS):
                    times, sizes = zip(*pool.map(metadata, chunk), strict=True)
                    columns = [pa.array(chunk, pa.string()), pa.array(times, TIMESTAMP), pa.array(sizes, pa.int64())]
                    yield pa.record_batch(columns, schema=PRESENCE)

    return on_workers(addresses, check, PRESENCE)
