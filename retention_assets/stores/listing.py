"""What lies in a namespace, listed on executors, a task per slice. Source: lakeFS facts 1.1; DESIGN.md, Tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.formats.icechunk.ids import CHARACTERS
from retention_assets.formats.icechunk.paths import CHUNKS
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.objects import LISTING, ObjectReader

_LAST = "\U0010ffff"  # no path goes on with a greater character
_DATA = "data/"
_INTERNAL = "_lakefs/"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a directory: what lies below it, at any depth, after the path `after` and not after `until`."""

    directory: str
    after: str
    until: str

    def covers(self, path: str) -> bool:
        """Return whether the part has `path`, which lies in the directory."""
        return self.after < path <= self.until


def span_of(beginning: str) -> Span:
    """Return the part of a directory whose paths begin so and go on: `chunks/AB` has `chunks/AB7...`."""
    return Span(beginning[: beginning.rindex("/") + 1], beginning, beginning + _LAST)


def spans(directory: str, beginnings: str) -> tuple[Span, ...]:
    """Return parts that together have all of `directory`, cut before each of the characters `beginnings`."""
    cuts = [directory, *(directory + character for character in sorted(beginnings)[1:]), directory + _LAST]
    return tuple(Span(directory, after, until) for after, until in pairwise(cuts))


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What to list: places to the bottom, places whose direct objects count, and parts of large directories."""

    deep: tuple[str, ...]
    flat: tuple[str, ...]
    spans: tuple[Span, ...] = ()


def prefixes(reader: ObjectReader) -> Prefixes:
    """Return the places that together hold every object of the namespace, `_lakefs/` left out (invariant 9)."""
    top = [name for name in reader.prefixes("") if name != _INTERNAL]
    slices = reader.prefixes(_DATA) if _DATA in top else ()
    flat = ("", _DATA) if _DATA in top else ("",)
    return Prefixes((*(name for name in top if name != _DATA), *slices), flat)


def icechunk_prefixes(reader: ObjectReader) -> Prefixes:
    """Return the places that together hold every object of an Icechunk repository; its chunks in parts."""
    top = [name for name in reader.prefixes("") if name != CHUNKS]
    return Prefixes(tuple(top), ("",), spans(CHUNKS, CHARACTERS))


def list_objects(spark: SparkSession, access: StoreAccess, places: Prefixes) -> DataFrame:
    """Return (address, size, last_modified, etag, source) of every object in `places`."""
    tasks = _tasks(places, in_order=access.lists_in_order)
    # Of two equal plans Spark answers the second from the cached rows of the first: a listing equals no other.
    rows = pa.table({"task": range(len(tasks)), "listing": [str(uuid4())] * len(tasks)})
    width = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    frame = spark.createDataFrame(rows).repartition(width)
    listed = frame.mapInArrow(_lister(access, tasks), from_arrow_schema(LISTING)).withColumn("source", F.lit("listing"))
    # A local file's ETag names its inode: it says nothing of what is in it, and is another on each machine.
    etag = F.lit(None).cast("string") if access.is_local else F.col("e_tag")
    return listed.withColumnRenamed("path", "address").withColumn("etag", etag).drop("e_tag")


type _Task = tuple[str, bool, tuple[Span, ...]]  # a place, whether to the bottom, and which parts if not all of it


def _tasks(places: Prefixes, *, in_order: bool) -> list[_Task]:
    """Return what one listing call each is for; a store that lists in no order gives all parts of a place at once."""
    whole = [(place, True, ()) for place in places.deep] + [(place, False, ()) for place in places.flat]
    if in_order:
        return [*whole, *((span.directory, True, (span,)) for span in places.spans)]
    by_directory: dict[str, list[Span]] = {}
    for span in places.spans:
        by_directory.setdefault(span.directory, []).append(span)
    return [*whole, *((directory, True, tuple(parts)) for directory, parts in by_directory.items())]


def _lister(access: StoreAccess, tasks: Sequence[_Task]):  # type: ignore[no-untyped-def]  # a closure that Spark ships
    def list_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                place, deep, parts = tasks[number]
                if not deep:
                    yield from reader.list_direct(place)
                elif not parts:
                    yield from reader.list(place)
                elif access.lists_in_order:
                    yield from reader.list_between(place, parts[0].after, parts[0].until)
                else:
                    yield from (_within(batch, parts) for batch in reader.list(place))

    return list_places


def _within(listed: pa.RecordBatch, parts: Sequence[Span]) -> pa.RecordBatch:
    paths = listed.column(0).to_pylist()
    return listed.filter(pa.array([any(part.covers(path) for part in parts) for path in paths], pa.bool_()))


def place_of(address: Column) -> Column:
    """Return the place, as `prefixes` names it, that lists `address`."""
    top = F.substring_index(address, "/", 1)
    within = F.when(F.concat(top, F.lit("/")) == _DATA, F.substring_index(address, "/", 2)).otherwise(top)
    return F.concat(within, F.lit("/"))


def top_of(address: Column) -> Column:
    """Return the place, as `icechunk_prefixes` names it, that lists `address`."""
    return F.concat(F.substring_index(address, "/", 1), F.lit("/"))


def unlisted(
    inventory: DataFrame, places: Prefixes, reader: ObjectReader, place: Callable[[Column], Column] = place_of
) -> list[str]:
    """Return the places that hold objects by the store's word, yet gave none to the inventory."""
    directories = sorted({*places.deep, *(span.directory for span in places.spans)})
    named = inventory.sparkSession.createDataFrame(pa.table({"place": pa.array(directories, pa.string())}))
    unseen = named.join(
        inventory.select(place(F.col("address")).alias("place")).distinct(), on="place", how="left_anti"
    ).collect()
    return sorted(row["place"] for row in unseen if reader.holds_objects(row["place"]))
