"""Finds the ledger rows, approvals and records of objects that sweeps removed."""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.errors import RetentionError
from retention_assets.explain.explanations import Removal
from retention_assets.explain.plans import Row, approval_of
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import FINISHED, LEDGERS, plans_with_ledgers
from retention_assets.state.plan import PLANNED_OBJECTS, find_plan
from retention_assets.state.reading import one_of, read_directory, read_files
from retention_assets.state.records import RECORDS
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import DELETION_CANDIDATES, LEDGER


def removals(warehouse: Warehouse, repository: Repository, addresses: Collection[str]) -> dict[str, Removal]:
    """Return the removal of each address, from the newest ledger that has the address. Other addresses are omitted.

    Only the ledgers of plans that list one of the addresses are read.
    """
    found: dict[str, Removal] = {}
    asked = set(addresses)
    for day, plan_hash in reversed(plans_with_ledgers(warehouse, repository.name)):
        if not (left := asked - found.keys()):
            break
        planned = _planned(warehouse, repository.name, plan_hash, left)
        if not planned:
            continue
        rows = _ledger_rows(warehouse, repository.name, day, plan_hash, planned.keys())
        for address, of_address in rows.items():
            if row := deciding_row(of_address):
                found[address] = _removal(warehouse, repository, row, planned[address], day, plan_hash)
    return found


def deciding_row(rows: Collection[Row]) -> Row | None:
    """Return the newest row of an address that shows whether the object is gone, else the newest row of any kind.

    This is the same rule as in `ledger.newest_of`: finished outcomes count, and attempts with an unknown result.
    """
    attempts = Counter(row["fence"] for row in rows if row["outcome"] == Outcome.ATTEMPTED)
    results = Counter(row["fence"] for row in rows if row["outcome"] != Outcome.ATTEMPTED)
    deciding = [
        row
        for row in rows
        if row["outcome"] in FINISHED
        or (row["outcome"] == Outcome.ATTEMPTED and attempts[row["fence"]] > results[row["fence"]])
    ]
    return max(
        deciding or rows, key=lambda row: (row["fence"], row["outcome"] != Outcome.ATTEMPTED, row["at"]), default=None
    )


def _planned(warehouse: Warehouse, repository: str, plan_hash: str, addresses: Collection[str]) -> dict[str, Row]:
    if not warehouse.is_complete(repository, PLANNED_OBJECTS, plan_hash):
        return {address: {} for address in addresses}
    rows = read_directory(
        warehouse,
        repository,
        PLANNED_OBJECTS,
        plan_hash,
        schema=DELETION_CANDIDATES.schema,
        where=one_of("address", addresses),
    )
    return {row["address"]: row for row in rows.to_pylist()}


def _ledger_rows(
    warehouse: Warehouse, repository: str, day: str, plan_hash: str, addresses: Collection[str]
) -> dict[str, list[Row]]:
    ledger = repository, LEDGERS, day, plan_hash
    files = [
        "/".join((*ledger, sweep, name))
        for sweep in warehouse.directories(*ledger)
        for name in warehouse.files(*ledger, sweep)
        if name.endswith(".parquet")
    ]
    rows: dict[str, list[Row]] = {}
    for row in read_files(warehouse, files, LEDGER, one_of("address", addresses)).to_pylist():
        rows.setdefault(row["address"], []).append(row)
    return rows


def _removal(warehouse: Warehouse, repository: Repository, row: Row, planned: Row, day: str, plan_hash: str) -> Removal:
    name, record = _record_of(warehouse, repository.name, plan_hash, row["fence"])
    approval = record or approval_of(warehouse, repository.name, plan_hash) or {}
    is_copy = row["outcome"] == Outcome.QUARANTINED
    return Removal(
        outcome=row["outcome"],
        at=row["at"],
        detail=row["detail"],
        plan_hash=plan_hash,
        day=date.fromisoformat(day),
        fence=row["fence"],
        reason=planned.get("reason"),
        rule_ids=tuple(planned.get("rule_ids") or ()),
        paths=tuple(planned.get("paths") or ()),
        due_since=planned.get("due_since"),
        approved_by=approval.get("approved_by"),
        approved_at=approval.get("approved_at"),
        record=name,
        run_id=record.get("run_id"),
        copy=_copy_of(warehouse, repository, plan_hash, row["address"]) if is_copy else None,
        purge_after=row["at"] + repository.settings.quarantine.keep if is_copy else None,
    )


def _record_of(
    warehouse: Warehouse, repository: str, plan_hash: str, fence: int
) -> tuple[str | None, Mapping[str, Any]]:
    for name in reversed(warehouse.documents(repository, RECORDS)):
        document = warehouse.read_document(repository, RECORDS, name)
        if document and (document["plan_hash"], document["fence"]) == (plan_hash, fence):
            return name, document
    return None, {}


def _copy_of(warehouse: Warehouse, repository: Repository, plan_hash: str, address: str) -> str | None:
    from retention_assets.state.quarantine import quarantine_of_plan  # this import takes a quarter of a second

    try:
        quarantine = quarantine_of_plan(repository, find_plan(warehouse, repository.name, plan_hash))
    except (
        RetentionError
    ):  # the configuration differs, or a variable is not set here: only the URL of the copy is unknown
        return None
    return quarantine.describe(address)
