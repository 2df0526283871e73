"""Reading the warehouse with pyarrow."""

from functools import partial
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import StoreError
from retention_assets.spark.frames import from_arrow
from retention_assets.tables import NAMES, STRINGS, packed
from retention_assets.warehouse.reading import first_rows, read_directory, scan_directory
from retention_assets.warehouse.warehouse import Warehouse
from tests.objectstore.s3 import REGION, Bucket

ROWS = pa.table({"address": ["data/a", "data/b"]})
NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"AWS_ENDPOINT": "{}"}, id="endpoint"),
        pytest.param({"AWS_ENDPOINT_URL": "{}"}, id="endpoint_url"),
        pytest.param(
            {"AWS_ENDPOINT_URL_S3": "{}", "AWS_ENDPOINT_URL": NOBODY, "AWS_ENDPOINT": NOBODY}, id="endpoint_url_s3_wins"
        ),
    ],
)
def test_arrow_reads_tables_at_the_endpoint_where_obstore_reads_documents(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    file = BytesIO()
    pq.write_table(ROWS, file)
    client = bucket.client()
    client.put_object(Bucket=bucket.name, Key="tables/orchard/addresses/part-0.parquet", Body=file.getvalue())
    client.put_object(Bucket=bucket.name, Key="tables/orchard/document.json", Body=b'{"of": "obstore"}')
    keys = {"AWS_ACCESS_KEY_ID": bucket.access_key, "AWS_SECRET_ACCESS_KEY": bucket.secret_key, "AWS_REGION": REGION}
    endpoints = {name: text.format(bucket.endpoint) for name, text in environment.items()}
    for name, value in {**keys, **endpoints}.items():
        monkeypatch.setenv(name, value)
    warehouse = Warehouse(f"s3a://{bucket.name}/tables")
    assert warehouse.read_document("orchard", "document.json") == {"of": "obstore"}
    assert read_directory(warehouse, "orchard", "addresses", schema=ROWS.schema) == ROWS


@pytest.mark.parametrize("writer", ["the driver", "Spark"])
def test_a_name_that_many_rows_have_is_in_memory_once(spark: SparkSession, tmp_path: Path, writer: str) -> None:
    rows = pa.table({"branches": [["main", "dev"], [], ["main"]] * 5_000}, pa.schema([("branches", STRINGS)]))
    warehouse = Warehouse(str(tmp_path))
    if writer == "Spark":
        from_arrow(spark, rows).coalesce(1).write.parquet(warehouse.location("orchard", "commit_graph"))
    else:
        warehouse.write_table(rows, "orchard", "commit_graph")
    found = read_directory(warehouse, "orchard", "commit_graph", schema=packed(rows.schema))
    assert found.schema.field("branches").type == NAMES
    assert found.to_pylist() == rows.to_pylist()
    assert found.nbytes < rows.nbytes


def test_a_scan_holds_a_small_part_of_a_large_row_group(tmp_path: Path) -> None:
    count, schema = 1_000_000, pa.schema([("paths", STRINGS)])
    names = pa.array(range(10**9, 10**9 + 2 * count)).cast(pa.string())
    table = pa.table([pa.ListArray.from_arrays(pa.array(range(0, 2 * count + 1, 2), pa.int32()), names)], schema)
    directory, held, size = tmp_path / "orchard" / "addresses", table.nbytes, 0
    directory.mkdir(parents=True)
    pq.write_table(table, directory / "part-0.parquet", row_group_size=count)
    del table, names
    before, most = pa.total_allocated_bytes(), 0
    for batch in scan_directory(Warehouse(str(tmp_path)), "orchard", "addresses", schema=schema, columns=["paths"]):
        most = max(most, pa.total_allocated_bytes() - before)
        size += batch.num_rows
    assert size == count
    assert most < held / 4


def test_a_scan_fills_columns_that_older_files_lack_and_reads_only_the_rows_that_are_asked_for(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("key", pa.string(), nullable=False), ("size", pa.int64()), ("etag", pa.string())])
    directory = tmp_path / "orchard" / "addresses"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"key": ["a", "b"], "size": [1, 2]}), directory / "part-0.parquet")
    pq.write_table(pa.table({"etag": ["x"], "key": ["b"], "size": [3]}), directory / "part-1.parquet")
    scan = partial(scan_directory, Warehouse(str(tmp_path)), "orchard", "addresses", schema=schema)
    found = [row for batch in scan(columns=["key", "etag"]) for row in batch.to_pylist()]
    assert found == [{"key": "a", "etag": None}, {"key": "b", "etag": None}, {"key": "b", "etag": "x"}]
    some = [row for batch in scan(columns=["key", "size"], where=pc.field("key") == "b") for row in batch.to_pylist()]
    assert some == [{"key": "b", "size": 2}, {"key": "b", "size": 3}]


def test_the_first_rows_are_those_of_the_first_files(tmp_path: Path) -> None:
    directory = tmp_path / "orchard" / "addresses"
    directory.mkdir(parents=True)
    for number in range(3):
        pq.write_table(
            pa.table({"address": [f"data/{number}", f"data/{number}x"]}), directory / f"part-{number}.parquet"
        )
    first = partial(first_rows, Warehouse(str(tmp_path)), "orchard", "addresses", schema=ROWS.schema)
    assert [row["address"] for row in first(columns=["address"], most=3)] == ["data/0", "data/0x", "data/1"]
    assert len(first(columns=["address"], most=10)) == 6


@pytest.mark.long
def test_an_unreachable_warehouse_is_reported_with_its_location(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": REGION}
    for name, value in {**keys, "AWS_ENDPOINT_URL": NOBODY}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"s3://nowhere/tables: cannot read 'warehouse\.json'.* It was not read\."):
        Warehouse("s3://nowhere/tables")
