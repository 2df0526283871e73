"""The hash of a set of candidates, and the digests of whole tables.

Source: docs/safety.md, "Guards: the checks of a plan" and "Plans without changes".
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

# Spark's default format has only milliseconds, so timestamps that differ by microseconds would have the same hash.
_CANONICAL = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_BUCKET_DIGITS = 2  # hex digits: the driver gets at most 256 digests
_BATCH = 8192  # rows that are copied at the same time
_BITS = (0, 22), (22, 21), (43, 21)  # parts of a row's hash: their sums stay below 2^63 for 10^12 rows


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


def digest_counted(rows: DataFrame) -> list[Column]:
    """Return the aggregates of the rows from which `counted_digest` makes the digest of their table.

    They have a fixed size, and their values do not depend on the order of the rows. Spark computes them while it writes
    a table. They detect a difference, but not a forgery.
    """
    row = F.xxhash64(*(part for field in rows.schema.fields for part in _hashed(field.name, field.dataType)))
    return [
        F.sum(F.shiftrightunsigned(row, start).bitwiseAND(F.lit((1 << bits) - 1))).alias(_part(start))
        for start, bits in _BITS
    ]


def counted_digest(counts: Mapping[str, Any]) -> str:
    """Return the digest of a table. `counts`: its number of `rows`, and the values of `digest_counted`, by name."""
    return "-".join(f"{counts[name] or 0:x}" for name in ("rows", *(_part(start) for start, _ in _BITS)))


def table_digest(table: pa.Table, key: str | None = None) -> str:
    """Return the digest of the rows of an Arrow table.

    `key`: a column that identifies a row, if the order of the rows does not matter.
    """
    digest, rows = hashlib.sha256(), table if key is None else table.sort_by(key).combine_chunks()
    with pa.ipc.new_stream(pa.PythonFile(_Hashing(digest), "w"), rows.schema) as stream:
        for batch in rows.to_batches(max_chunksize=_BATCH):
            stream.write_batch(batch)
    return digest.hexdigest()


class _Hashing:
    """A file that hashes what is written to it, and stores nothing."""

    closed = False

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        return len(content)

    def flush(self) -> None:
        pass


def _hashed(name: str, kind: object) -> list[Column]:
    """Return the columns whose hash identifies a value: Spark's hash skips nulls, and joins the items of lists."""
    column = F.col(name)
    return [column, column.isNull(), *([F.size(column)] if isinstance(kind, ArrayType) else [])]


def _part(start: int) -> str:
    return f"digest_{start}"
