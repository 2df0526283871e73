"""Writes ledgers without running a sweep."""

from collections.abc import Mapping
from datetime import date, datetime

import pyarrow as pa

from retention_assets.state.ledger import LedgerLocation
from retention_assets.tables import LEDGER
from retention_assets.warehouse.warehouse import Warehouse


def write_ledger(
    warehouse: Warehouse,
    repository: str,
    day: date,
    plan_hash: str,
    outcomes: Mapping[str, str],
    at: datetime,
    *,
    fence: int = 0,
    run_id: str = "a-sweep",
    size: int = 10,
    name: str = "rows",
    detail: str | None = None,
) -> None:
    """Write the ledger rows of a sweep with these outcomes by address."""
    rows = [
        {"address": address, "size": size, "outcome": outcome, "detail": detail, "at": at, "fence": fence}
        for address, outcome in outcomes.items()
    ]
    place = LedgerLocation(warehouse.root, repository, day, plan_hash, fence, run_id)
    place.append(pa.Table.from_pylist(rows, schema=LEDGER), name, "done")
