"""Reads warehouse tables for the terminal, with pyarrow: showing a table should not start Spark."""

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.state.memory import due_objects_place
from retention_assets.state.plan import load_plan
from retention_assets.state.reading import read_directory
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import DUE_OBJECTS, REFERENCE_ADDRESSES, SHOWN


def open_table(warehouse: Warehouse, repository: str, name: str, day: date) -> pa.Table:
    """Return the table of a day, sorted by key. Errors: TableContractError with the command that makes the table."""
    if name == DUE_OBJECTS.name:
        place = due_objects_place(warehouse, load_plan(warehouse, repository, day))
    else:
        warehouse.require_rows(repository, name, day, warehouse.metadata(repository, name, day).rows)
        place = warehouse.require(repository, name, day)
    table = read_directory(warehouse, place.removeprefix(f"{warehouse.root}/"), schema=SHOWN[name].schema)
    return table.sort_by([(column, "ascending") for column in SHOWN[name].key])


def without_references(report: pa.Table) -> pa.Table:
    """Return the rows of `deletion_report` about objects. Branches and tags are not part of a plan's totals."""
    return report.filter(pc.invert(pc.starts_with(report["address"], REFERENCE_ADDRESSES)))
