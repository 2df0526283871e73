"""A frame brought into a table's contract: its columns, their order, their types."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.tables import Table


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Return `frame` in the column order and the types of `table`, or raise TableContractError."""
    if differing := set(table.schema.names) ^ set(frame.columns):
        raise TableContractError(f"{table.name}: columns missing or unexpected: {', '.join(sorted(differing))}")
    try:
        return frame.to(_nullable(table))
    except AnalysisException as error:
        raise TableContractError(f"{table.name}: {error.getMessage()}") from error


def _nullable(table: Table):  # type: ignore[no-untyped-def]  # the type is Spark's own
    """Return the schema with every column nullable: Parquet loses nullability, and `to` would refuse it."""
    schema = from_arrow_schema(table.schema)
    for field in schema.fields:
        field.nullable = True
        if hasattr(field.dataType, "containsNull"):
            field.dataType.containsNull = True
    return schema
