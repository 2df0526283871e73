"""Writes and reads the assets' tables: a directory per partition, always replaced completely, and its metadata."""

import time

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from retention_assets.assets.catalog import column_description
from retention_assets.assets.resources import WarehouseResource, session
from retention_assets.assets.runs import day_of
from retention_assets.core.sessions import reporting_out_of_memory
from retention_assets.state.metadata import PartitionMetadata
from retention_assets.state.table_writer import write_rows
from retention_assets.state.warehouse import Rows, Written


class WarehouseIOManager(dg.ConfigurableIOManager):
    """Writes an asset's partition as Parquet and reads it back. Errors: TableContractError with what is missing."""

    tables: dg.ResourceDependency[WarehouseResource]
    pyspark: dg.ResourceDependency[LazyPySparkResource]

    @reporting_out_of_memory()
    def handle_output(self, context: dg.OutputContext, obj: Rows) -> None:
        """Overwrite the partition, then write its metadata. Without metadata, a partition is incomplete."""
        repository, name = context.asset_key.path
        day = day_of(context)
        warehouse = self.tables.open()
        written = obj.written or write_rows(obj.data, warehouse, repository, name, day, shared=self.tables.shared)
        warehouse.write_metadata(
            repository, name, day, PartitionMetadata(obj.taken_at, written.rows, context.run_id, obj.details)
        )
        metadata = _metadata(obj, f"{repository}.{name}", warehouse.partition(repository, name, day), written)
        if obj.began is not None:  # Spark makes most rows only when they are written, so this counts writing too
            metadata["seconds"] = dg.MetadataValue.float(round(time.monotonic() - obj.began, 3))
        context.add_output_metadata(metadata)

    @reporting_out_of_memory()
    def load_input(self, context: dg.InputContext) -> Rows:
        """Return the rows of the partition that a step reads."""
        repository, name = context.asset_key.path
        return self.tables.open().rows(session(self.pyspark), repository, name, day_of(context))


def _metadata(obj: Rows, table: str, target: str, written: Written) -> dict[str, dg.MetadataValue]:
    schema = from_arrow_schema(obj.data.schema) if isinstance(obj.data, pa.Table) else obj.data.schema
    metadata: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(written.rows),
        "dagster/partition_row_count": dg.MetadataValue.int(written.rows),
        "dagster/column_schema": dg.MetadataValue.table_schema(_column_schema(schema, table)),
        "dagster/table_name": dg.MetadataValue.text(table),
        "dagster/uri": dg.MetadataValue.text(target),
        "taken_at": dg.MetadataValue.timestamp(obj.taken_at),
    }
    if "size" in schema.names:
        metadata["bytes"] = dg.MetadataValue.int(written.size)
    return metadata


def _column_schema(schema: StructType, table: str) -> dg.TableSchema:
    name = table.rpartition(".")[2]
    return dg.TableSchema(
        [
            dg.TableColumn(field.name, field.dataType.simpleString(), column_description(name, field.name))
            for field in schema.fields
        ]
    )
