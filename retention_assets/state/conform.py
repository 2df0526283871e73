"""Brings a frame into the contract of a table: its columns, their order and their types."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.tables import Table


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Return `frame` with the column order and types of `table`. Errors: TableContractError if it does not fit."""
    if differing := set(table.schema.names) ^ set(frame.columns):
        raise TableContractError(f"{table.name}: columns missing or unexpected: {', '.join(sorted(differing))}")
    try:
        return frame.to(_nullable(table))
    except AnalysisException as error:
        raise TableContractError(f"{table.name}: {error.getMessage()}") from error


def _nullable(table: Table):  # type: ignore[no-untyped-def]  # returns a Spark StructType
    """Return the schema of `table` with all columns nullable.

    Parquet does not keep nullability. `DataFrame.to` raises an error for a nullable column in place of a required one.
    """
    schema = from_arrow_schema(table.schema)
    for field in schema.fields:
        field.nullable = True
        if hasattr(field.dataType, "containsNull"):
            field.dataType.containsNull = True
    return schema
