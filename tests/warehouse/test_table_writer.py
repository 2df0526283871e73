"""A frame is converted to the schema of its table, or is refused with the reason."""

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from retention_assets.core.digest import candidates_digest
from retention_assets.errors import ConfigurationError, StoreError, TableContractError
from retention_assets.tables import STORAGE_INVENTORY, TABLES
from retention_assets.warehouse.table_writer import conform, write_rows
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW, Listed, inventory

_FORM = "spark.sql.parquet.outputTimestampType"
EMPTY = STORAGE_INVENTORY.schema.empty_table()
DIFFERING = "columns missing, unexpected or of another type"


def test_written_columns_have_the_order_and_types_of_the_table(spark: SparkSession) -> None:
    frame = inventory(spark, Listed("a")).select(
        "source", "etag", F.col("size").cast("int"), "last_modified", "address"
    )
    made = conform(frame, STORAGE_INVENTORY)
    assert made.columns == STORAGE_INVENTORY.schema.names
    assert dict(made.dtypes)["size"] == "bigint"
    assert made.first() == inventory(spark, Listed("a")).first()


@pytest.mark.parametrize("form", ["INT96", "TIMESTAMP_MICROS"])
def test_times_are_read_in_utc_whatever_form_the_session_writes(spark: SparkSession, tmp_path: Path, form: str) -> None:
    rows, warehouse = inventory(spark, Listed("a"), Listed("b")), Warehouse(str(tmp_path))
    before = spark.conf.get(_FORM)
    spark.conf.set(_FORM, form)
    try:
        rows.write.parquet(warehouse.location("orchard", "rows"))
    finally:
        spark.conf.set(_FORM, before) if before else spark.conf.unset(_FORM)
    found = warehouse.frame(spark, "orchard", "rows")
    assert dict(found.dtypes)["last_modified"] == "timestamp"
    assert candidates_digest(found) == candidates_digest(rows)


def test_a_frame_that_spark_cannot_write_is_an_error_with_the_path_and_the_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "orchard").write_text("no directory")
    rows, warehouse = inventory(spark, Listed("a")), Warehouse(str(tmp_path))
    with pytest.raises(
        StoreError,
        match=rf"^{tmp_path}: cannot write 'orchard/storage_inventory/2026-11-01': .* not a directory: \S+/orchard\. "
        r"It was not written\. Run the same command again\. If it fails again, check `warehouse`",
    ):
        write_rows(rows, warehouse, "orchard", "storage_inventory", date(2026, 11, 1), shared=True)


def test_an_error_of_the_rows_is_not_an_error_of_the_directory_that_they_are_written_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = inventory(spark, Listed("a")).withColumn("size", F.expr("raise_error('no size')").cast("long"))
    with pytest.raises(Exception, match="no size") as told:
        write_rows(rows, Warehouse(str(tmp_path)), "orchard", "storage_inventory", date(2026, 11, 1), shared=True)
    assert not isinstance(told.value, StoreError)


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_table_of_each_contract_conforms_to_it(spark: SparkSession, name: str) -> None:
    contract = TABLES[name]
    made = conform(spark.createDataFrame(contract.schema.empty_table()), contract)
    kinds = {
        field.name: str(field.type).replace(" not null", "") for field in to_arrow_schema(made.schema, timezone="UTC")
    }
    assert kinds == {field.name: str(field.type).replace(" not null", "") for field in contract.schema}


@pytest.mark.parametrize(
    ("added", "dropped", "violation"),
    [
        pytest.param({}, ["etag"], "storage_inventory: columns missing or unexpected: etag", id="missing"),
        pytest.param({"more": "1"}, [], "storage_inventory: columns missing or unexpected: more", id="unexpected"),
        pytest.param(
            {"Size": "1"}, ["size"], "storage_inventory: columns missing or unexpected: Size, size", id="case"
        ),
        pytest.param(
            {"size": "address"}, [], "storage_inventory: .*size", id="a_type_that_cannot_become_the_contracts"
        ),
    ],
)
def test_rows_that_do_not_fit_are_an_error_with_the_table_and_the_column(
    spark: SparkSession, added: dict[str, str], dropped: list[str], violation: str
) -> None:
    frame = inventory(spark, Listed("a")).drop(*dropped)
    frame = frame.withColumns({name: F.expr(value) for name, value in added.items()})
    with pytest.raises(TableContractError, match=f"{violation}.* The table was not written. .* report it"):
        conform(frame, STORAGE_INVENTORY)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        pytest.param(EMPTY.drop_columns(["etag"]), f"{DIFFERING}: etag", id="missing"),
        pytest.param(EMPTY.append_column("more", pa.array([], pa.int8())), f"{DIFFERING}: more", id="unexpected"),
        pytest.param(EMPTY.select(EMPTY.column_names[::-1]), "columns out of order", id="another_order"),
    ],
)
def test_rows_of_the_driver_that_differ_are_an_error_that_names_the_table_and_the_column(
    tmp_path: Path, rows: pa.Table, problem: str
) -> None:
    warehouse = Warehouse(str(tmp_path))
    with pytest.raises(TableContractError) as refused:
        write_rows(rows, warehouse, "orchard", STORAGE_INVENTORY.name, date(2026, 11, 1), shared=False)
    message = str(refused.value)
    assert f"storage_inventory: {problem}. The table was not written." in message
    assert "report it" in message
    assert warehouse.directories() == []


def test_a_session_on_other_machines_writes_no_table_to_a_directory_of_this_one(tmp_path: Path) -> None:
    """The configuration may have `local[*]`, and the project may pass the session of a cluster."""
    rows: Any = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=SimpleNamespace(master="spark://far:7077")))
    with pytest.raises(ConfigurationError, match="spark://far:7077 also runs on other machines"):
        write_rows(cast("Any", rows), Warehouse(str(tmp_path)), "orchard", "addresses", NOW.date(), shared=False)
    assert list(tmp_path.iterdir()) == []
