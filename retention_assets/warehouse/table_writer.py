"""Writes the rows of a partition: the columns of its table, in their order, with their types."""

from collections.abc import Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.config.configuration import require_seen_by_executors
from retention_assets.errors import TableContractError
from retention_assets.spark.frames import master_of
from retention_assets.tables import NAMES, TABLES, Table, plain, with_names
from retention_assets.warehouse.warehouse import Warehouse, Written

_FAULT = "This is a bug of retention_assets: report it with the policy and the log of the run."


def write_rows(
    rows: DataFrame | pa.Table,
    warehouse: Warehouse,
    repository: str,
    table: str,
    day: date,
    *,
    shared: bool,
    observe: Sequence[Column] = (),
) -> Written:
    """Overwrite a partition with `rows`. The partition is complete when its `PartitionMetadata` is written too.

    The driver writes an Arrow table itself, without a Spark job.

    `shared`: whether all machines see a warehouse that is a directory (`shared_warehouse` of the configuration).
    `observe`: named aggregates that Spark computes while it writes the rows of a frame.
    Errors: TableContractError when the rows do not fit the table, or when not all of them can be read back;
    ConfigurationError when executors may not see the warehouse; as `Warehouse.write_frame`.
    """
    if isinstance(rows, pa.Table):
        files = warehouse.write_table(_stored(rows, TABLES[table]), repository, table, day.isoformat())
        size = pc.sum(rows["size"]).as_py() or 0 if "size" in rows.column_names else 0
        written = Written(rows.num_rows, size, files=files)
    else:
        if not shared:  # an existing session may have another master than the configuration
            require_seen_by_executors(warehouse.root, [master_of(rows.sparkSession)])
        conforming = conform(rows, TABLES[table])
        written = write_counted(conforming, warehouse, repository, table, day.isoformat(), observe=observe)
    warehouse.require_rows(repository, table, day, written.rows)
    return written


def write_counted(rows: DataFrame, warehouse: Warehouse, *parts: str, observe: Sequence[Column] = ()) -> Written:
    """Overwrite a directory with `rows`, and return the figures that Spark counted while it wrote them.

    Errors: as `Warehouse.write_frame`.
    """
    observed = Observation()
    size = F.sum("size") if "size" in rows.columns else F.lit(None).cast("long")
    counted = rows.observe(observed, F.count(F.lit(1)).alias("rows"), size.alias("bytes"), *observe)
    files = warehouse.write_frame(counted, *parts)
    return Written(observed.get["rows"], observed.get["bytes"] or 0, observed.get, files)


def _stored(rows: pa.Table, table: Table) -> pa.Table:
    """Return `rows` with the schema of the table's files. Errors: TableContractError if the rows do not fit `table`."""
    if not plain(rows.schema).equals(table.schema):
        differing = ", ".join(sorted({field.name for field in {*rows.schema} ^ {*table.schema}}))
        problem = "columns out of order"
        if differing:
            problem = f"columns missing, unexpected or of another type: {differing}"
        raise TableContractError(f"{table.name}: {problem}. The table was not written. {_FAULT}")
    names = [field.name for field in rows.schema if field.type == NAMES]
    return rows.cast(with_names(table.stored, *names))


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """Return `frame` with the column order and types of `table`. Errors: TableContractError if it does not fit."""
    if differing := set(table.schema.names) ^ set(frame.columns):
        raise TableContractError(
            f"{table.name}: columns missing or unexpected: {', '.join(sorted(differing))}. The table was not written. "
            f"{_FAULT}"
        )
    try:
        return frame.to(_nullable(table))
    except AnalysisException as error:
        raise TableContractError(f"{table.name}: {error.getMessage()}. The table was not written. {_FAULT}") from error


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
