"""What lies in a namespace, listed on executors, a task per slice. Source: lakeFS facts 1.1; DESIGN.md, Tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.stores.access import StoreAccess
from retention_assets.stores.objects import LISTING, ObjectReader

_DATA = "data/"
_INTERNAL = "_lakefs/"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What the store names below a namespace: places to list to the bottom, and places whose direct objects count."""

    deep: tuple[str, ...]
    flat: tuple[str, ...]


def prefixes(reader: ObjectReader) -> Prefixes:
    """Return the places that together hold every object of the namespace, `_lakefs/` left out (invariant 9)."""
    top = [name for name in reader.prefixes("") if name != _INTERNAL]
    slices = reader.prefixes(_DATA) if _DATA in top else ()
    flat = ("", _DATA) if _DATA in top else ("",)
    return Prefixes((*(name for name in top if name != _DATA), *slices), flat)


def list_objects(spark: SparkSession, access: StoreAccess, places: Prefixes) -> DataFrame:
    """Return (address, size, last_modified, etag, source) of every object in `places`."""
    deep = [True] * len(places.deep) + [False] * len(places.flat)
    # Of two equal plans Spark answers the second from the cached rows of the first: a listing equals no other.
    unique = [str(uuid4())] * len(deep)
    rows = pa.table({"place": [*places.deep, *places.flat], "deep": deep, "listing": unique})
    width = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    frame = spark.createDataFrame(rows).repartition(width)
    listed = frame.mapInArrow(_lister(access), from_arrow_schema(LISTING)).withColumn("source", F.lit("listing"))
    # A local file's ETag names its inode: it says nothing of what is in it, and is another on each machine.
    etag = F.lit(None).cast("string") if access.is_local else F.col("e_tag")
    return listed.withColumnRenamed("path", "address").withColumn("etag", etag).drop("e_tag")


def _lister(access: StoreAccess):  # type: ignore[no-untyped-def]  # a closure that Spark ships
    def list_places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = ObjectReader(access)
        for batch in batches:
            for place, deep in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                if deep:
                    yield from reader.list(place)
                else:
                    yield from reader.list_direct(place)

    return list_places


def place_of(address: Column) -> Column:
    """Return the place, as `prefixes` names it, that lists `address`."""
    top = F.substring_index(address, "/", 1)
    within = F.when(F.concat(top, F.lit("/")) == _DATA, F.substring_index(address, "/", 2)).otherwise(top)
    return F.concat(within, F.lit("/"))


def unlisted(inventory: DataFrame, places: Prefixes, reader: ObjectReader) -> list[str]:
    """Return the places that hold objects by the store's word, yet gave none to the inventory."""
    named = inventory.sparkSession.createDataFrame(pa.table({"place": pa.array(places.deep, pa.string())}))
    unseen = named.join(
        inventory.select(place_of(F.col("address")).alias("place")).distinct(), on="place", how="left_anti"
    ).collect()
    return sorted(row["place"] for row in unseen if reader.holds_objects(row["place"]))
