"""Keys that are no valid paths: each is listed once, under its own name, and counts as foreign."""

import pyarrow as pa
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from pyspark.sql import SparkSession

from retention_assets.errors import StoreError
from retention_assets.inventory.unusual import is_unusual, unusual_counts, unusual_names
from retention_assets.lakefs.names.columns import is_generated
from retention_assets.lakefs.source.inventory_snapshot import directory_prefix, prefixes
from retention_assets.objectstore.listing import list_objects, unlisted
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.s3 import list_exactly, s3_bucket
from retention_assets.sweep.preconditions import Preconditions
from retention_assets.sweep.worker import OBJECTS
from tests.faulty_s3 import Faults, FaultyS3
from tests.objectstore.s3 import Bucket, count_clients
from tests.objectstore.servers import server_that_answers

SLICE = "data/g0nksc1ksduf4a1dfd7g/"
OBJECT = f"{SLICE}d8frai1ksduf4a1dfda0"
USUAL = [OBJECT, f"{SLICE}d8fraahksduf4a1dfd9g", "data/other/x", "top", "tables/part-0", "data/ünï/+ %2F *"]
UNUSUAL_KEYS = [
    pytest.param(f"{OBJECT}/", id="a_marker_under_an_object_s_name"),
    pytest.param("data/g1nksc1ksduf4a1dfd7g/d9frai1ksduf4a1dfda0/", id="a_marker_of_no_object"),
    pytest.param("tables/", id="a_marker_of_a_directory"),
    pytest.param("data/", id="a_marker_of_data"),
    pytest.param("tables//part-0", id="an_empty_segment"),
    pytest.param(f"data//{OBJECT}", id="an_empty_segment_below_data"),
    pytest.param(f"/{OBJECT}", id="a_leading_slash"),
    pytest.param(f"//{OBJECT}", id="two_leading_slashes"),
    pytest.param(f"{SLICE}./x", id="a_dot"),
    pytest.param(f"data/../{OBJECT}", id="two_dots_below_data"),
    pytest.param(f"./{OBJECT}", id="a_dot_at_the_top"),
    pytest.param("..", id="only_two_dots"),
    pytest.param(f"{OBJECT}\n", id="a_line_end"),
    pytest.param("a\tb/x", id="a_tab_in_a_directory"),
    pytest.param(f"{SLICE}\x01", id="a_control_character"),
    pytest.param("tables/a\x7f", id="del"),
]


def put(bucket: Bucket, prefix: str, *keys: str) -> None:
    for key in keys:  # past the server's door, which lets no key through that ends with a line end
        content = b"" if key.endswith("/") else b"bytes"
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket.name, prefix + key, content)


def keys(reader: ObjectReader, place: str = "") -> list[str]:
    return [path for batch in reader.list(place) for path in batch.column(0).to_pylist()]


def by_places(reader: ObjectReader) -> list[str]:
    """List each prefix by its own call, as executors do."""
    places = prefixes(reader)
    deep = [key for place in places.deep for key in keys(reader, place)]
    flat = [batch for place in places.flat for batch in reader.list_direct(place)]
    return [*deep, *(path for batch in flat for path in batch.column(0).to_pylist())]


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param("", id="top_of_the_bucket", marks=pytest.mark.slow),
        pytest.param("name space/", id="below_a_prefix"),
    ],
)
@pytest.mark.parametrize("key", UNUSUAL_KEYS)
def test_a_key_that_is_not_a_path_is_listed_once_and_does_not_end_the_listing(
    bucket: Bucket, prefix: str, key: str
) -> None:
    put(bucket, prefix, *USUAL, key)
    reader = ObjectReader(bucket.access(prefix))
    assert sorted(keys(reader)) == sorted([*USUAL, key])
    assert sorted(by_places(reader)) == sorted([*USUAL, key])


def test_a_key_range_has_the_keys_between_its_ends(bucket: Bucket) -> None:
    put(bucket, "", "chunks/A", "chunks/B", "chunks/B/", "chunks/B//x", "chunks/C", "chunks/D")
    reader = ObjectReader(bucket.access())
    batches = reader.list_between("chunks/", "chunks/A", "chunks/C")
    assert [path for batch in batches for path in batch.column(0).to_pylist()] == [
        "chunks/B",
        "chunks/B/",
        "chunks/B//x",
        "chunks/C",
    ]


def test_many_pages_before_and_after_an_unusual_key_are_listed_once(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.objectstore.objects._ROWS_PER_BATCH", 10)
    names = [f"data/s/{number:04}" for number in range(60)]
    put(bucket, "", *names, "data/s/0030//x")
    assert sorted(keys(ObjectReader(bucket.access()), "data/s/")) == sorted([*names, "data/s/0030//x"])


def test_empty_objects_of_usual_names_are_listed_as_they_are(bucket: Bucket) -> None:
    for name in ("data/s/_SUCCESS", "data/s/x"):
        bucket.client().put_object(Bucket=bucket.name, Key=name, Body=b"")
    assert keys(ObjectReader(bucket.access()), "data/s/") == ["data/s/_SUCCESS", "data/s/x"]


@pytest.fixture
def large_directory(bucket: Bucket) -> list[str]:
    """A directory of two pages, of which the second has an empty object. Returns its keys in order."""
    names = [f"data/s/{number:04}" for number in range(1_100)]
    put(bucket, "", *names)
    bucket.client().put_object(Bucket=bucket.name, Key="data/s/_SUCCESS", Body=b"")
    return [*names, "data/s/_SUCCESS"]


def test_an_empty_object_on_a_later_page_does_not_end_the_listing_of_a_key_range(
    bucket: Bucket, large_directory: list[str]
) -> None:
    batches = list(ObjectReader(bucket.access()).list_between("data/s/", "data/s/0000", "data/s/~"))
    assert [path for batch in batches for path in batch.column(0).to_pylist()] == large_directory[1:]
    assert all(len(batch) for batch in batches)


def test_a_check_before_deletion_finds_objects_beside_an_empty_object_on_a_later_page(
    bucket: Bucket, large_directory: list[str]
) -> None:
    access = bucket.access()
    listed = pa.Table.from_batches(ObjectReader(access).list("data/s/"))
    rows = [{**row, "address": row["path"], "etag": row["e_tag"]} for row in listed.to_pylist()]
    planned = pa.Table.from_pylist(rows, OBJECTS)
    check = Preconditions(access)
    assert check.classified(planned, check.open())["outcome"].null_count == len(large_directory)


def test_after_an_empty_object_the_listing_continues_behind_the_pages_that_it_has(
    bucket: Bucket, faulty: FaultyS3, large_directory: list[str]
) -> None:
    reader = ObjectReader(bucket.access(endpoint=faulty.endpoint))
    batches = reader.list_between("data/s/", "data/s/", "data/s/~")
    assert [path for batch in batches for path in batch.column(0).to_pylist()] == large_directory
    assert [request.query.get("start-after") for request in faulty.requests if request.is_listing] == [
        "data/s",
        "data/s",  # the second page, by its token
        "data/s/0999",
    ]


def test_objects_whose_keys_begin_with_a_slash_are_never_listed_as_objects_without_the_slash(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.objectstore.objects._ROWS_PER_BATCH", 2)
    sizes = {"/y": 3, "/z": 4, "a": 1, "b": 2, "y": 5, "z": 6, "zz": 0}
    for key, size in sizes.items():
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket.name, key, b"-" * size)
    rows = [row for batch in ObjectReader(bucket.access()).list() for row in batch.to_pylist()]
    assert {row["path"]: row["size"] for row in rows} == sizes
    assert len(rows) == len(sizes)


def test_an_exact_listing_continues_after_a_throttle_and_ends_with_the_stores_error(
    bucket: Bucket, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.objectstore.s3.time.sleep", lambda seconds: None)
    put(bucket, "", "data//x", "data/y")
    reader = ObjectReader(bucket.access(endpoint=faulty.endpoint))
    asked: list[int] = []

    def second_and_third(request: object) -> bool:
        asked.append(1)
        return len(asked) in (2, 3)

    faulty.faults = Faults(slow_down=1.0, applies=second_and_third)
    assert sorted(keys(reader, "data/")) == ["data//x", "data/y"]
    asked.clear()
    faulty.faults = Faults(broken=1.0, applies=lambda request: asked.append(1) is None and len(asked) > 1)
    with pytest.raises(StoreError, match=r"cannot list .* InternalError|cannot list .*\(InternalError\)"):
        keys(reader, "data/")


@pytest.mark.parametrize("token", [b"", b"<NextContinuationToken>a</NextContinuationToken>"], ids=["none", "the_same"])
def test_an_exact_listing_without_progress_is_an_error(bucket: Bucket, token: bytes) -> None:
    page = b"<ListBucketResult><IsTruncated>true</IsTruncated>" + token + b"</ListBucketResult>"
    with server_that_answers(200, page) as endpoint, pytest.raises(StoreError) as refused:
        list(list_exactly(s3_bucket(bucket.access(endpoint=endpoint)), "data"))
    message = str(refused.value)
    assert f"s3://{bucket.name}: cannot list 'data/': a page does not say where the next page begins." in message
    assert (
        "The listing was not used. Run the same command again. If the error persists, contact the store's vendor."
        in message
    )


def test_a_reader_makes_one_client_for_all_of_its_listings(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bucket, "", "data//x", "tables/")
    clients = count_clients(monkeypatch)
    reader = ObjectReader(bucket.access())
    assert [keys(reader, "data/"), keys(reader, "tables/")] == [["data//x"], ["tables/"]]
    assert [row["path"] for batch in reader.list_direct("tables/") for row in batch.to_pylist()] == ["tables/"]
    assert len(clients) == 1


def test_unusual_keys_are_foreign_and_reported_and_never_missing(spark: SparkSession, bucket: Bucket) -> None:
    unusual = [str(parameter.values[0]) for parameter in UNUSUAL_KEYS]
    put(bucket, "ns/", *USUAL, *unusual)
    access = bucket.access("ns")
    places = prefixes(ObjectReader(access))
    listed = list_objects(spark, access, places).cache()
    assert sorted(row["address"] for row in listed.collect()) == sorted([*USUAL, *unusual])
    seen = {row["place"] for row in listed.select(directory_prefix(listed["address"]).alias("place")).collect()}
    assert unlisted(seen, places, ObjectReader(access)) == []
    marked = listed.select("address", is_unusual(listed["address"]), is_generated(listed["address"])).collect()
    assert {row[0] for row in marked if row[1]} == set(unusual)
    assert {row[0] for row in marked if row[2]} == {name for name in USUAL if name.startswith(SLICE)}
    assert unusual_names(listed.agg(*unusual_counts()).first()) == (
        f"{len(unusual)} keys are not valid paths (first: '..')"
    )
    assert unusual_names(listed.where("address = 'top'").agg(*unusual_counts()).first()) is None
