"""The hash of a set of candidates, computed where the rows are. Source: DESIGN.md, Decisions (Plan hash)."""

import hashlib

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Without a format Spark writes instants to the millisecond, and a change below that would not show.
_CANONICAL = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_BUCKET_DIGITS = 2  # hex digits: 256 digests reach the driver, whatever the number of rows


def candidates_digest(candidates: DataFrame) -> str:
    """Return a SHA-256 over the sorted rows; equal sets give equal digests, whatever their order or partitions.

    Each row is hashed from its canonical JSON (instants in UTC); rows are bucketed by their hash, each bucket is
    hashed in order, and the driver hashes the buckets' digests.
    """
    columns = sorted(candidates.columns)
    row = F.sha2(F.to_json(F.struct(*columns), _CANONICAL), 256)
    buckets = (
        candidates.select(row.alias("row"))
        .groupBy(F.substring("row", 1, _BUCKET_DIGITS).alias("bucket"))
        .agg(F.sha2(F.array_join(F.array_sort(F.collect_list("row")), ""), 256).alias("digest"))
        .collect()
    )
    parts = sorted((bucket["bucket"], bucket["digest"]) for bucket in buckets)
    return hashlib.sha256("".join(digest for _, digest in parts).encode()).hexdigest()
