"""Builders of small frames of the warehouse's tables, with defaults for columns that a test does not set."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from retention_assets.lakefs.rules.lifecycle import with_lifecycle
from retention_assets.tables import (
    ADDRESSES,
    DELETION_CANDIDATES,
    POTENTIAL_COMMITS,
    STORAGE_INVENTORY,
    UNCOMMITTED_OBJECTS,
    Table,
)

NOW = datetime(2026, 11, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
OLD = NOW - 100 * DAY

_SLICE = "fu2qb0hksduf3vibnmug"
_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def address(number: int, issued: datetime = OLD) -> str:
    """Return an address as lakeFS issues it. The xid of the object begins with `issued` in whole seconds."""
    value = (int(issued.timestamp()) << 64) | number
    xid = "".join(_DIGITS[((value << 4) >> shift) & 31] for shift in range(95, -1, -5))
    return f"data/{_SLICE}/{xid}"


@dataclass(frozen=True)
class Listed:
    address: str
    size: int = 10
    last_modified: datetime = OLD
    etag: str | None = None
    source: str = "listing"


@dataclass(frozen=True)
class Staged:
    address: str
    created_at: datetime | None = OLD


@dataclass(frozen=True)
class CommitRow:
    commit_id: str
    metarange_id: str
    branches: Sequence[str] = ()
    created_at: datetime = OLD
    active: bool = False
    potential: bool = False
    protected: bool = False
    due_since: datetime | None = None
    rule_id: str | None = None
    is_head: bool = False
    left_branches: Sequence[str] = ()


@dataclass(frozen=True)
class Pair:
    address: str
    key: str = "some/path"
    size: int = 10
    branches: Sequence[str] = ()
    added_at: datetime = OLD
    last_modified: datetime | None = OLD
    active: bool = False
    range_id: str = "range"
    protected: bool = False
    due_since: datetime | None = None
    rule_ids: Sequence[str] = ()
    last_held_at: datetime = OLD
    at_head: bool = False
    left_branches: Sequence[str] = ()
    etag: str = ""


@dataclass(frozen=True)
class Candidate:
    address: str
    size: int = 10
    last_modified: datetime = OLD
    etag: str | None = None
    reason: str = "expired"
    rule_ids: Sequence[str] = field(default=("retention:default",))
    paths: Sequence[str] = ("some/path",)
    branches: Sequence[str] = ("main",)
    due_since: datetime | None = OLD + DAY
    first_committed_at: datetime | None = OLD
    last_committed_at: datetime | None = OLD


Row = Listed | Staged | CommitRow | Pair | Candidate


def inventory(spark: SparkSession, *rows: Listed) -> DataFrame:
    return _frame(spark, STORAGE_INVENTORY, rows)


def staged(spark: SparkSession, *rows: Staged) -> DataFrame:
    return _frame(spark, UNCOMMITTED_OBJECTS, rows)


def commits(spark: SparkSession, *rows: CommitRow) -> DataFrame:
    return _frame(spark, POTENTIAL_COMMITS, rows)


def addresses(spark: SparkSession, *rows: Pair) -> DataFrame:
    return _frame(spark, ADDRESSES, rows)


def pairs(spark: SparkSession, *rows: Pair) -> DataFrame:
    """Return the frame of `addresses` as it is after lifecycle rules of which none covers them."""
    return with_lifecycle(addresses(spark, *rows), (), (), NOW)


def candidates(spark: SparkSession, *rows: Candidate) -> DataFrame:
    return _frame(spark, DELETION_CANDIDATES, rows)


def of(spark: SparkSession, values: Sequence[Any], kind: pa.DataType, then: Callable[[Column], Column]) -> list[Any]:
    """Return the results of `then` on a column with `values`, in their order."""
    table = pa.table({"place": range(len(values)), "value": pa.array(values, kind)})
    frame = spark.createDataFrame(table)
    made = frame.select("place", then(frame["value"]).alias("made")).toArrow().sort_by("place")
    return made["made"].to_pylist()


def cached(spark: SparkSession) -> set[int]:
    """Return the ids of the cached frames. Java may remove frames of earlier tests at any time."""
    context: Any = spark.sparkContext
    return {int(number) for number in context._jsc.getPersistentRDDs()}


def as_dicts(frame: DataFrame, *order: str) -> list[dict[str, Any]]:
    """Return the rows, sorted by `order`, with aware datetimes."""
    return frame.toArrow().sort_by([(name, "ascending") for name in order]).to_pylist()


def _frame(spark: SparkSession, contract: Table, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist([asdict(row) for row in rows], schema=contract.schema))
