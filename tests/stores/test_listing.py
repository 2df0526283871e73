"""Large directories are listed in parts, which together have every name once."""

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention_assets.formats.icechunk.ids import CHARACTERS
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.listing import Prefixes, Span, icechunk_prefixes, list_objects, span_of, spans
from retention_assets.stores.objects import ObjectReader
from tests.stores.s3 import Bucket

NAMES = [
    "!first",
    "0",
    "00Z",
    "0ZZ",
    "1",
    "10",
    "9ZZ",
    "A",
    "ABC",
    "ABCD",
    "AC",
    "I-none-of-ours",
    "Z",
    "ZZ",
    "a-lower",
    "more/within",
    "é",
    "\U0001f9ca",
]
PATHS = {f"chunks/{name}" for name in NAMES}


def test_parts_cover_every_path_of_a_directory_once() -> None:
    parts = spans("chunks/", CHARACTERS)
    assert len(parts) == len(CHARACTERS)
    assert all(one.until == other.after for one, other in pairwise(parts))
    for path in PATHS:
        assert sum(part.covers(path) for part in parts) == 1, path


def test_a_beginning_covers_what_goes_on_from_it() -> None:
    part = span_of("chunks/AB")
    assert part.directory == "chunks/"
    assert {path for path in PATHS if part.covers(path)} == {"chunks/ABC", "chunks/ABCD"}


def laid(bucket: Bucket) -> StoreAccess:
    for path in (*PATHS, "chunks-of-another/0", "repo", "snapshots/A"):
        bucket.client().put_object(Bucket=bucket.name, Key=f"some/prefix/{path}", Body=b"1")
    return bucket.access("some/prefix")


def listed(reader: ObjectReader, part: Span) -> list[str]:
    found = reader.list_between(part.directory, part.after, part.until)
    return [path for batch in found for path in batch.column(0).to_pylist()]


def test_a_part_of_a_bucket_is_listed_alone(bucket: Bucket) -> None:
    reader = ObjectReader(laid(bucket))
    assert sorted(listed(reader, span_of("chunks/AB"))) == ["chunks/ABC", "chunks/ABCD"]
    found = [path for part in spans("chunks/", CHARACTERS) for path in listed(reader, part)]
    assert sorted(found) == sorted(PATHS)


@pytest.fixture(params=["local", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAccess:
    if request.param == "bucket":
        return laid(request.getfixturevalue("bucket"))
    for path in (*PATHS - {"chunks/more/within"}, "chunks/more/within", "chunks-of-another/0", "repo", "snapshots/A"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    return StoreAccess(f"file://{tmp_path}")


def test_a_repository_is_listed_whole_and_once(spark: SparkSession, place: StoreAccess) -> None:
    places = icechunk_prefixes(ObjectReader(place))
    found = [row["address"] for row in list_objects(spark, place, places).collect()]
    assert sorted(found) == sorted([*PATHS, "chunks-of-another/0", "repo", "snapshots/A"])


def test_parts_are_listed_on_executors_whether_or_not_the_store_has_an_order(
    spark: SparkSession, place: StoreAccess
) -> None:
    places = Prefixes((), (), (span_of("chunks/AB"), span_of("chunks/9")))
    found = [row["address"] for row in list_objects(spark, place, places).collect()]
    assert sorted(found) == ["chunks/9ZZ", "chunks/ABC", "chunks/ABCD"]
