"""Live objects that a person acknowledged as lost. A plan accepts that these objects are missing, and counts them.

Each file below `acknowledged/` is one entry: the person, the time and the addresses. If a plan finds such an object in
the listing again, it adds an entry too. The object then counts like any other: if it is missing again later, plans are
refused until a person acknowledges it.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from retention_assets.errors import TableContractError
from retention_assets.state.records import NO_SEAL, Record, Seal, write_record
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import INSTANT

if TYPE_CHECKING:  # Spark is imported where it works: commands that only read the warehouse do without
    from pyspark.sql import DataFrame, SparkSession

ACKNOWLEDGED, MISSING = "acknowledged", "missing_live.json"
LOST, FOUND = "lost", "found"
MOST_LISTED = 100_000  # missing addresses stored when a plan is refused: about 10 MB
_TRIES = 10
_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),  # of the entry; of an address, the highest counts
        pa.field("address", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # lost or found
        pa.field("acknowledged_by", pa.string(), nullable=False),
        pa.field("at", INSTANT, nullable=False),
    ]
)


def acknowledged_addresses(spark: "SparkSession", warehouse: Warehouse, repository: str) -> "DataFrame":
    """Return `known_addresses` as a frame with one column, `address`."""
    from retention_assets.core.frames import from_arrow

    known = sorted(known_addresses(warehouse, repository))
    return from_arrow(spark, pa.table({"address": pa.array(known, pa.string())}))


def known_addresses(warehouse: Warehouse, repository: str) -> set[str]:
    """Return the addresses that are acknowledged as lost and have not been found again."""
    newest: dict[str, str] = {}
    for name in _files(warehouse, repository):
        rows = warehouse.read_rows(repository, ACKNOWLEDGED, name)
        newest.update(zip(rows["address"].to_pylist(), rows["kind"].to_pylist(), strict=True))
    return {address for address, kind in newest.items() if kind == LOST}


def write_acknowledgement(
    warehouse: Warehouse, repository: str, addresses: Sequence[str], kind: str, by: str, at: datetime
) -> str:
    """Write one entry, and return the name of its file. `by`: a person, or the run that found the objects again."""
    for _ in range(_TRIES):
        names = _files(warehouse, repository)
        number = int(names[-1].removesuffix(".parquet")) + 1 if names else 1
        rows = [{"number": number, "address": one, "kind": kind, "acknowledged_by": by, "at": at} for one in addresses]
        name = f"{number:08d}.parquet"
        try:
            warehouse.append_rows(pa.Table.from_pylist(rows, _SCHEMA), repository, ACKNOWLEDGED, name)
        except TableContractError:  # another process wrote this number meanwhile
            continue
        return name
    raise TableContractError(
        f"{repository}: {ACKNOWLEDGED} is being written by others all the time. Nothing was acknowledged. Try again."
    )


def acknowledge(
    warehouse: Warehouse,
    repository: str,
    addresses: Sequence[str],
    by: str,
    at: datetime,
    run_id: str,
    seal: Seal = NO_SEAL,
) -> None:
    """Store that a person acknowledged these objects as lost, and append an audit record."""
    seal.copy_records(warehouse, repository)  # if records cannot be copied, nothing is acknowledged
    name = write_acknowledgement(warehouse, repository, addresses, LOST, by, at)
    record = Record(
        kind="acknowledge",
        mode="",
        repository=repository,
        day=at.date().isoformat(),
        plan_hash="",
        policy_hash="",
        planned_objects=0,
        planned_bytes=0,
        outcomes={},
        approved_by=by,
        approved_at=at.isoformat(),
        fence=0,
        run_id=run_id,
        started=at.isoformat(),
        ended=at.isoformat(),
        longest_window_seconds=None,
        ledger_digest=None,
        published={"file": f"{ACKNOWLEDGED}/{name}", "addresses": len(addresses), "digest": _digest(addresses)},
    )
    write_record(warehouse, record, seal)


def note_found(
    spark: "SparkSession", warehouse: Warehouse, repository: str, inventory: "DataFrame", run_id: str, at: datetime
) -> None:
    """Store which of the objects acknowledged as lost are in the listing again."""
    if not known_addresses(warehouse, repository):
        return
    again = acknowledged_addresses(spark, warehouse, repository).join(inventory, on="address", how="left_semi")
    addresses = sorted(row["address"] for row in again.collect())
    if addresses:
        write_acknowledgement(warehouse, repository, addresses, FOUND, f"the run {run_id}", at)


def first_of(addresses: "DataFrame") -> list[str]:
    """Return the first `MOST_LISTED` addresses, sorted."""
    return [row["address"] for row in addresses.select("address").orderBy("address").limit(MOST_LISTED).collect()]


def note_missing(warehouse: Warehouse, repository: str, guard: str, addresses: Sequence[str], at: datetime) -> None:
    """Store the missing live objects for which `guard` refused a plan. `retention acknowledge` shows them."""
    document = {"guard": guard, "at": at.isoformat(), "addresses": list(addresses)}
    warehouse.write_document(document, repository, MISSING)


def missing_addresses(warehouse: Warehouse, repository: str) -> list[str]:
    """Return the missing addresses of the last plan that was refused for missing objects; empty when there is none."""
    document = warehouse.read_document(repository, MISSING)
    return [] if document is None else [str(address) for address in document["addresses"]]


def _digest(addresses: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(addresses)).encode()).hexdigest()


def _files(warehouse: Warehouse, repository: str) -> list[str]:
    return [name for name in warehouse.files(repository, ACKNOWLEDGED) if name.endswith(".parquet")]
