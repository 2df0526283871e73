"""Lists the objects of a namespace on executors, one task per slice. Source: lakeFS facts 1.1; DESIGN.md, Tables."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.frames import from_arrow, on_workers, read_tasks
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.local_listing import list_named, plain_names
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.objectstore.spans import Parts, Span

_MOST_READERS = 8  # of one local directory, because each of them reads all its names


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The prefixes to list."""

    deep: tuple[str, ...]  # list at any depth
    flat: tuple[str, ...]  # list only the objects directly below
    spans: tuple[Span, ...] = ()  # key ranges of large directories


def list_objects(spark: SparkSession, access: StoreAccess, places: Prefixes) -> DataFrame:
    """Return (address, size, last_modified, etag, source) of every object in the prefixes `places`."""
    width = read_tasks(spark)
    tasks = _tasks(access, places, width)
    shares = [share for worker in range(width) if (share := tasks[worker::width])]
    # Spark answers a query plan from the cached rows of an equal one, so a unique id makes each listing different.
    rows = pa.table({"tasks": _as_rows(shares), "listing": [str(uuid4())] * len(shares)})
    frame = from_arrow(spark, rows)
    listed = on_workers(frame, _lister(access), LISTING).withColumn("source", F.lit("listing"))
    # The ETag of a local file contains its inode: it does not depend on the content, and differs between machines.
    etag = F.lit(None).cast("string") if access.is_local else F.col("e_tag")
    return listed.withColumnRenamed("path", "address").withColumn("etag", etag).drop("e_tag")


_TEXTS = pa.list_(pa.string())
_TASK = pa.struct([("place", pa.string()), ("deep", pa.bool_()), ("after", _TEXTS), ("until", _TEXTS)])
type _Task = tuple[str, bool, tuple[Span, ...]]  # a prefix, whether to list at any depth, key ranges (empty: all)


def _tasks(access: StoreAccess, places: Prefixes, width: int) -> list[_Task]:
    """Return the listing tasks, one for each listing call.

    On a store that lists in order, each key range is a task. On others, one task has all key ranges of a directory. The
    key ranges of a local directory are divided among up to `width` tasks, each of which reads all its names.
    """
    whole = [(place, True, ()) for place in places.deep] + [(place, False, ()) for place in places.flat]
    if access.lists_in_order:
        return [*whole, *((span.directory, True, (span,)) for span in places.spans)]
    by_directory: dict[str, list[Span]] = {}
    for span in places.spans:
        by_directory.setdefault(span.directory, []).append(span)
    workers = min(width, _MOST_READERS) if access.is_local else 1
    shares = [
        (directory, True, share)
        for directory, parts in by_directory.items()
        for worker in range(workers)
        if (share := tuple(parts[worker::workers]))
    ]
    return [*whole, *shares]


def _as_rows(shares: Sequence[Sequence[_Task]]) -> pa.Array:
    """Return the tasks as a column.

    The tasks are not part of the closure, because Spark writes a large closure to disk, with the secrets in it.
    """
    rows = [
        [
            {"place": place, "deep": deep, "after": [part.after for part in parts], "until": [p.until for p in parts]}
            for place, deep, parts in share
        ]
        for share in shares
    ]
    return pa.array(rows, pa.list_(_TASK))


def _lister(access: StoreAccess):  # type: ignore[no-untyped-def]  # Spark sends this closure to executors
    def list_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for task in batch.column(0).flatten().to_pylist():
                place, deep = task["place"], task["deep"]
                parts = [Span(place, *ends) for ends in zip(task["after"], task["until"], strict=True)]
                if not deep:
                    yield from reader.list_direct(place)
                elif not parts:
                    yield from reader.list(place)
                elif access.lists_in_order:
                    yield from reader.list_between(place, parts[0].after, parts[0].until)
                else:
                    yield from _in_parts(reader, access, place, Parts(parts))

    return list_places


def _in_parts(reader: ObjectReader, access: StoreAccess, place: str, parts: Parts) -> Iterator[pa.RecordBatch]:
    """Yield the objects in key ranges of a directory that the store does not list in order."""
    root = Path(access.url.removeprefix("file://"))
    if access.is_local and (names := plain_names(root, place, parts)) is not None:
        yield from list_named(root, place, names)
        return
    for batch in reader.list(place):
        paths = np.array([path.encode() for path in batch.column(0).to_pylist()])
        yield batch.filter(pa.array(parts.cover(paths)))


def unlisted(seen: Collection[str], places: Prefixes, reader: ObjectReader) -> list[str]:
    """Return the prefixes that have no objects in the inventory although the store has objects there.

    `seen`: the prefixes that have objects in the inventory.
    """
    unseen = {*places.deep, *(span.directory for span in places.spans)}.difference(seen)
    return sorted(place for place in unseen if reader.holds_objects(place))
