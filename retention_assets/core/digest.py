"""The hash of a set of candidates, computed on the executors.

Source: docs/safety.md, "Guards: the checks of a plan".
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Spark's default format has only milliseconds, so timestamps that differ by microseconds would have the same hash.
_CANONICAL = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_BUCKET_DIGITS = 2  # hex digits: the driver gets at most 256 digests


def candidates_digest(candidates: DataFrame) -> str:
    """Return a SHA-256 over the sorted rows. Equal sets have equal digests, whatever their order or partitions.

    Each row is hashed as canonical JSON (timestamps in UTC). Rows are grouped into buckets by their hash, and each
    bucket is hashed in sorted order. The driver then hashes the digests of the buckets.
    """
    return digest_of(row.asDict() for row in digested_buckets(candidates).collect())


def digested_buckets(candidates: DataFrame) -> DataFrame:
    """Return (bucket, digest) of each bucket of rows; see `candidates_digest`."""
    columns = sorted(candidates.columns)
    row = F.sha2(F.to_json(F.struct(*columns), _CANONICAL), 256)
    return (
        candidates.select(row.alias("row"))
        .groupBy(F.substring("row", 1, _BUCKET_DIGITS).alias("bucket"))
        .agg(F.sha2(F.array_join(F.array_sort(F.collect_list("row")), ""), 256).alias("digest"))
    )


def digest_of(buckets: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest that `candidates_digest` returns. `buckets`: the rows of `digested_buckets`."""
    parts = sorted((bucket["bucket"], bucket["digest"]) for bucket in buckets)
    return hashlib.sha256("".join(digest for _, digest in parts).encode()).hexdigest()
