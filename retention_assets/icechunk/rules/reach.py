"""From snapshots to manifests to chunks: what each is held by, and whether any of it stays. Source: Icechunk facts 4.

Every step carries the columns of `reachable_chunks` that say who holds a row. `live` is never lost on the way: a chunk
of a manifest of a snapshot that stays is live, however many others let go of it.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.aggregates import union_of
from retention_assets.core.paths import spelled
from retention_assets.icechunk.formats.ids import CANONICAL
from retention_assets.icechunk.formats.paths import CHUNKS, MANIFESTS

_END = r"\z"  # not `$`, which in Java also stands before a line end
_LAST_SEGMENT = rf"/({CANONICAL}){_END}"
_OWN_CHUNK = rf"^{CHUNKS}({CANONICAL}){_END}"
_TEXTS = "array<string>"
KINDS = ("native", "virtual", "inline")  # of chunk refs


def manifests_of(snapshots: DataFrame, snapshot_manifests: DataFrame) -> DataFrame:
    """Return `reachable_manifests`: every manifest that a snapshot lists.

    `snapshots`: (snapshot_id, live, expired, rule_ids, branches, due_since, flushed_at).
    """
    held = snapshots.withColumns({"first_held_at": F.col("flushed_at"), "last_held_at": F.col("flushed_at")})
    files = snapshot_manifests.select("snapshot_id", "manifest_id", "size", "chunk_refs")
    rows = held.join(files, on="snapshot_id", how="inner")
    facts = [F.count(F.lit(1)).alias("snapshots"), *(F.max(name).alias(name) for name in ("size", "chunk_refs"))]
    found = _told(held_by(rows, "manifest_id", facts))
    return found.withColumn("address", F.concat(F.lit(MANIFESTS), "manifest_id"))


def chunks_of(manifests: DataFrame, manifest_chunks: DataFrame, storage: str) -> DataFrame:
    """Return `reachable_chunks`: every chunk that a manifest names, and what its virtual references name in `storage`.

    A virtual reference whose last part is like a chunk's name keeps such a chunk of this repository, wherever it seems
    to lie: the same place may be called by many names, and be that of a named container. It is then not `certain` that
    there is such a chunk.
    """
    location = spelled(F.col("location"))
    chunk = F.coalesce("chunk_id", F.nullif(F.regexp_extract(location, _LAST_SEGMENT, 1), F.lit("")))
    within = F.when(lies_in(location, storage), F.substr(location, F.lit(len(storage) + 2)))
    address = F.coalesce(F.concat(F.lit(CHUNKS), chunk), within)
    certain = F.col("chunk_id").isNotNull() | F.coalesce(within == address, F.lit(False))
    named = manifest_chunks.select("manifest_id", address.alias("address"), certain.alias("certain"))
    held = manifests.drop("address").join(named.where("address IS NOT NULL"), on="manifest_id", how="inner")
    found = held_by(held, facts=[F.max("certain").alias("certain")])
    return _told(found).withColumn("chunk_id", F.nullif(F.regexp_extract("address", _OWN_CHUNK, 1), F.lit("")))


def refs_of(manifest_chunks: DataFrame) -> DataFrame:
    """Return one row per manifest: its refs by kind."""
    return manifest_chunks.groupBy("manifest_id").agg(*(F.sum(kind).alias(kind) for kind in KINDS))


def lies_in(location: Column, place: str) -> Column:
    """Return whether a virtual reference, as `spelled`, names an object of `place`, a URL without a trailing slash."""
    return F.coalesce(location.startswith(f"{place}/"), F.lit(False))


def held_by(rows: DataFrame, key: str = "address", facts: Sequence[Column] = ()) -> DataFrame:
    """Return one row per `key` with these `facts`: who holds it, over all `rows`.

    Spark hashes what has a fixed size and sorts the rest: so lists are put together apart, of the rows that have any.
    """
    every = rows.groupBy(key).agg(*facts, *_held())
    lists = (
        rows.where((F.size("rule_ids") > 0) | (F.size("branches") > 0))
        .groupBy(key)
        .agg(union_of("rule_ids").alias("rule_ids"), union_of("branches").alias("branches"))
    )
    none = F.array().cast(_TEXTS)
    told = {name: F.coalesce(name, none) for name in ("rule_ids", "branches")}
    return every.join(lists, on=key, how="left").withColumns(told)


def _held() -> list[Column]:
    return [
        F.max("live").alias("live"),
        F.max("expired").alias("expired"),
        F.max("due_since").alias("due_since"),
        F.min("first_held_at").alias("first_held_at"),
        F.max("last_held_at").alias("last_held_at"),
    ]


def _told(held: DataFrame) -> DataFrame:
    """Return the rows; what is live has no rules by which it goes."""
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
