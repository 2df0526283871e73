"""Finds the manifests of snapshots and the chunks of manifests, and whether each is live. Source: docs/icechunk.md.

Manifests inherit `live`, the rules and the branches from their snapshots, and chunks from their manifests. A chunk of
one live snapshot is live, however many expired snapshots share the chunk.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import END, decoded_location
from retention_assets.icechunk.formats.ids import CANONICAL
from retention_assets.icechunk.formats.paths import CHUNKS, MANIFESTS
from retention_assets.spark.frames import union_of

_LAST_SEGMENT = rf"/({CANONICAL}){END}"
_OWN_CHUNK = rf"^{CHUNKS}({CANONICAL}){END}"
_TEXTS = "array<string>"
KINDS = ("native", "virtual", "inline")  # of chunk refs


def manifests_of(snapshots: DataFrame, snapshot_manifests: DataFrame) -> DataFrame:
    """Return `reachable_manifests`: every manifest that a snapshot lists.

    `snapshots` has the columns snapshot_id, live, expired, rule_ids, branches, due_since, flushed_at.
    """
    held = snapshots.withColumns({"first_held_at": F.col("flushed_at"), "last_held_at": F.col("flushed_at")})
    files = snapshot_manifests.select("snapshot_id", "manifest_id", "size", "chunk_refs")
    rows = held.join(files, on="snapshot_id", how="inner")
    aggregates = [F.count(F.lit(1)).alias("snapshots"), *(F.max(name).alias(name) for name in ("size", "chunk_refs"))]
    found = _without_expiry_if_live(held_by(rows, "manifest_id", aggregates))
    return found.withColumn("address", F.concat(F.lit(MANIFESTS), "manifest_id"))


def chunks_of(manifests: DataFrame, manifest_chunks: DataFrame, storage: str) -> DataFrame:
    """Return `reachable_chunks`: every chunk that a manifest names, and every object in `storage` that a URL names.

    The URLs are the locations of virtual references. If the last segment of a URL is a chunk id, the chunk of this
    repository with that id is kept. The rest of the URL is not compared, because one location can have several URLs,
    and a named container can point to it. `certain` is true for native references and for URLs that name exactly this
    object of `storage`. Other chunks need not exist.
    """
    location = decoded_location(F.col("location"))
    chunk = F.coalesce("chunk_id", F.nullif(F.regexp_extract(location, _LAST_SEGMENT, 1), F.lit("")))
    within = F.when(lies_in(location, storage), F.substr(location, F.lit(len(storage) + 2)))
    address = F.coalesce(F.concat(F.lit(CHUNKS), chunk), within)
    certain = F.col("chunk_id").isNotNull() | F.coalesce(within == address, F.lit(False))
    named = manifest_chunks.select("manifest_id", address.alias("address"), certain.alias("certain"))
    held = manifests.drop("address").join(named.where("address IS NOT NULL"), on="manifest_id", how="inner")
    found = held_by(held, aggregates=[F.max("certain").alias("certain")])
    own_id = F.nullif(F.regexp_extract("address", _OWN_CHUNK, 1), F.lit(""))
    return _without_expiry_if_live(found).withColumn("chunk_id", own_id)


def refs_of(manifest_chunks: DataFrame) -> DataFrame:
    """Return one row per manifest: its number of chunk refs of each kind."""
    return manifest_chunks.groupBy("manifest_id").agg(*(F.sum(kind).alias(kind) for kind in KINDS))


def lies_in(location: Column, storage: str) -> Column:
    """Return whether `location`, decoded, is inside `storage`, a URL without a trailing slash."""
    return F.coalesce(location.startswith(f"{storage}/"), F.lit(False))


def held_by(rows: DataFrame, key: str = "address", aggregates: Sequence[Column] = ()) -> DataFrame:
    """Return one row per `key`, with `aggregates` and with the merged columns of all its `rows`.

    Spark uses hash aggregation only for types of fixed size. So the lists are aggregated separately, from rows with
    lists that are not empty.
    """
    every = rows.groupBy(key).agg(*aggregates, *_held())
    lists = (
        rows.where((F.size("rule_ids") > 0) | (F.size("branches") > 0))
        .groupBy(key)
        .agg(union_of("rule_ids").alias("rule_ids"), union_of("branches").alias("branches"))
    )
    none = F.array().cast(_TEXTS)
    merged = {name: F.coalesce(name, none) for name in ("rule_ids", "branches")}
    return every.join(lists, on=key, how="left").withColumns(merged)


def _held() -> list[Column]:
    return [
        F.max("live").alias("live"),
        F.max("expired").alias("expired"),
        F.max("due_since").alias("due_since"),
        F.min("first_held_at").alias("first_held_at"),
        F.max("last_held_at").alias("last_held_at"),
    ]


def _without_expiry_if_live(held: DataFrame) -> DataFrame:
    """Return the rows, with the columns about expiry cleared in rows that are live."""
    gone = ~F.col("live")
    none = F.array().cast(_TEXTS)
    return held.withColumns(
        {
            "expired": F.col("expired") & gone,
            "rule_ids": F.when(gone, F.col("rule_ids")).otherwise(none),
            "branches": F.when(gone, F.col("branches")).otherwise(none),
            "due_since": F.when(gone, F.col("due_since")),
        }
    )
