"""Reading the warehouse with pyarrow."""

from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import StoreError
from retention_assets.spark.frames import from_arrow
from retention_assets.tables import NAMES, STRINGS, packed
from retention_assets.warehouse.reading import read_directory
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


def test_an_unreachable_warehouse_is_reported_with_its_location(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": REGION}
    for name, value in {**keys, "AWS_ENDPOINT_URL": NOBODY}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"s3://nowhere/tables: cannot read 'warehouse\.json'.* It was not read\."):
        Warehouse("s3://nowhere/tables")
