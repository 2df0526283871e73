"""A frame becomes a table's, or the contract says why not."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from retention_assets.core.digest import candidates_digest
from retention_assets.errors import TableContractError
from retention_assets.state.table_writer import conform
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import STORAGE_INVENTORY, TABLES
from tests.transforms.frames import Listed, inventory

_FORM = "spark.sql.parquet.outputTimestampType"


def test_columns_come_in_the_contracts_order_and_types(spark: SparkSession) -> None:
    frame = inventory(spark, Listed("a")).select(
        "source", "etag", F.col("size").cast("int"), "last_modified", "address"
    )
    made = conform(frame, STORAGE_INVENTORY)
    assert made.columns == STORAGE_INVENTORY.schema.names
    assert dict(made.dtypes)["size"] == "bigint"
    assert made.first() == inventory(spark, Listed("a")).first()


@pytest.mark.parametrize("form", ["INT96", "TIMESTAMP_MICROS"])
def test_times_are_read_as_instants_whatever_form_the_session_writes(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
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


@pytest.mark.parametrize("name", TABLES)
def test_an_empty_table_of_each_contract_conforms_to_it(spark: SparkSession, name: str) -> None:
    contract = TABLES[name]
    made = conform(spark.createDataFrame(contract.schema.empty_table()), contract)
    kinds = {
        field.name: str(field.type).replace(" not null", "") for field in to_arrow_schema(made.schema, timezone="UTC")
    }
    assert kinds == {field.name: str(field.type).replace(" not null", "") for field in contract.schema}


@pytest.mark.parametrize(
    ("added", "dropped", "complaint"),
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
def test_what_differs_is_an_error_that_names_the_table_and_the_column(
    spark: SparkSession, added: dict[str, str], dropped: list[str], complaint: str
) -> None:
    frame = inventory(spark, Listed("a")).drop(*dropped)
    frame = frame.withColumns({name: F.expr(value) for name, value in added.items()})
    with pytest.raises(TableContractError, match=complaint):
        conform(frame, STORAGE_INVENTORY)
