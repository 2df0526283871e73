"""Large directories are listed in key ranges, which together have every name once."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from retention_assets.icechunk.formats.ids import CHARACTERS
from retention_assets.icechunk.sweep.layout import icechunk_prefixes
from retention_assets.objectstore import listing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.listing import (
    LAST,
    KeyRange,
    KeyRanges,
    Names,
    Prefixes,
    key_ranges,
    list_named,
    list_objects,
    plain_names,
)
from retention_assets.objectstore.objects import ObjectReader
from tests.objectstore.s3 import Bucket

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


def key_range_of(beginning: str) -> KeyRange:
    """Return the key range of longer paths with this beginning: the range of `chunks/AB` includes `chunks/AB7...`."""
    return KeyRange(beginning[: beginning.rindex("/") + 1], beginning, beginning + LAST)


def covered(parts: Sequence[KeyRange]) -> set[str]:
    found = KeyRanges(parts).cover(np.array([path.encode() for path in sorted(PATHS)]))
    return {path for path, is_in in zip(sorted(PATHS), found, strict=True) if is_in}


def test_key_ranges_cover_every_path_of_a_directory_once() -> None:
    parts = key_ranges("chunks/", CHARACTERS)
    assert len(parts) == len(CHARACTERS)
    assert all(one.until == other.after for one, other in pairwise(parts))
    for path in PATHS:
        assert sum(part.covers(path) for part in parts) == 1, path
    assert covered(key_ranges("chunks/", CHARACTERS)) == PATHS


def test_the_closure_for_executors_stays_small_however_many_prefixes_are_listed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes a function of more than 1 MB to disk in clear, with the credentials in it."""
    sent: list[int] = []
    frames = type(spark.range(1))
    ship = frames.mapInArrow

    def measured(frame: DataFrame, function: Any, schema: Any) -> DataFrame:
        sent.append(len(CloudPickleSerializer().dumps(function)))
        return ship(frame, function, schema)

    monkeypatch.setattr(frames, "mapInArrow", measured)
    places = Prefixes(
        tuple(f"data/{number:020}/" for number in range(30_000)), ("", "data/"), key_ranges("data/", "abc")
    )
    list_objects(spark, StoreAccess(f"file://{tmp_path}"), places)
    assert len(sent) == 1
    assert sent[0] < 10_000


def test_a_key_range_covers_the_paths_between_its_ends() -> None:
    part = key_range_of("chunks/AB")
    assert part.directory == "chunks/"
    assert {path for path in PATHS if part.covers(path)} == {"chunks/ABC", "chunks/ABCD"}
    assert covered([part, key_range_of("chunks/0")]) == {"chunks/00Z", "chunks/0ZZ", "chunks/ABC", "chunks/ABCD"}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    for number in range(300):
        path = tmp_path / "chunks" / f"{CHARACTERS[number % 32]}{number:019d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * number)
        os.utime(path, ns=(10**18 + number * 1_001, 1_500_000_000_123_456_789 + number * 1_001))
    return tmp_path


def names_in(root: Path, directory: str = "chunks/") -> Names | None:
    return plain_names(root, directory, KeyRanges(key_ranges(directory, CHARACTERS)))


@pytest.fixture(params=[1, 300, 301], ids=["executors", "executors_at_the_limit", "this_process"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say which number of objects is no longer a few: the directory has 300."""
    monkeypatch.setattr(listing, "_FEW_OBJECTS", request.param)


@pytest.mark.usefixtures("few")
def test_a_directory_of_plain_names_is_listed_in_parts_as_obstore_lists_it(spark: SparkSession, plain: Path) -> None:
    access = StoreAccess(f"file://{plain}")
    assert names_in(plain) is not None
    whole = list_objects(spark, access, Prefixes(("chunks/",), ())).collect()
    in_parts = list_objects(spark, access, Prefixes((), (), key_ranges("chunks/", CHARACTERS))).collect()
    assert len(whole) == 300
    assert sorted(in_parts) == sorted(whole)


@pytest.mark.parametrize("name", ["a b", "é", "more/within"])
def test_a_directory_with_any_other_name_is_not_plain(plain: Path, name: str) -> None:
    (plain / "chunks" / name).parent.mkdir(exist_ok=True)
    (plain / "chunks" / name).write_bytes(b"1")
    assert names_in(plain) is None


def test_a_link_or_a_directory_that_is_not_there_is_not_plain(plain: Path) -> None:
    (plain / "chunks" / "A").symlink_to(plain / "elsewhere")
    assert names_in(plain) is None
    assert names_in(plain, "nothing/") is None


def test_a_file_that_is_deleted_during_the_listing_is_left_out(plain: Path) -> None:
    names = names_in(plain)
    assert names is not None
    first = names[0][0].decode()
    (plain / "chunks" / first).unlink()
    found = [path for batch in list_named(plain, "chunks/", names) for path in batch.column(0).to_pylist()]
    assert len(found) == 299
    assert f"chunks/{first}" not in found


def laid(bucket: Bucket) -> StoreAccess:
    for path in (*PATHS, "chunks-of-another/0", "repo", "snapshots/A"):
        bucket.client().put_object(Bucket=bucket.name, Key=f"some/prefix/{path}", Body=b"1")
    return bucket.access("some/prefix")


def listed(reader: ObjectReader, part: KeyRange) -> list[str]:
    found = reader.list_between(part.directory, part.after, part.until)
    return [path for batch in found for path in batch.column(0).to_pylist()]


def test_a_key_range_of_a_bucket_is_listed_by_itself(bucket: Bucket) -> None:
    reader = ObjectReader(laid(bucket))
    assert sorted(listed(reader, key_range_of("chunks/AB"))) == ["chunks/ABC", "chunks/ABCD"]
    found = [path for part in key_ranges("chunks/", CHARACTERS) for path in listed(reader, part)]
    assert sorted(found) == sorted(PATHS)


@pytest.fixture(params=["local", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAccess:
    if request.param == "bucket":
        return laid(request.getfixturevalue("bucket"))
    for path in (*PATHS - {"chunks/more/within"}, "chunks/more/within", "chunks-of-another/0", "repo", "snapshots/A"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    return StoreAccess(f"file://{tmp_path}")


def test_every_object_of_a_repository_is_listed_once(spark: SparkSession, place: StoreAccess) -> None:
    places = icechunk_prefixes(ObjectReader(place))
    found = [row["address"] for row in list_objects(spark, place, places).collect()]
    assert sorted(found) == sorted([*PATHS, "chunks-of-another/0", "repo", "snapshots/A"])


def test_key_ranges_are_listed_on_executors_whether_or_not_the_store_lists_in_order(
    spark: SparkSession, place: StoreAccess
) -> None:
    places = Prefixes((), (), (key_range_of("chunks/AB"), key_range_of("chunks/9")))
    found = [row["address"] for row in list_objects(spark, place, places).collect()]
    assert sorted(found) == ["chunks/9ZZ", "chunks/ABC", "chunks/ABCD"]
