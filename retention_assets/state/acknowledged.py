"""Live objects that a person acknowledged as lost. A plan accepts that these objects are missing, and counts them.

Each file below `acknowledged/` is one entry: the person, the time and the addresses. If a plan finds an acknowledged
object in the listing again, the plan adds an entry too. The object is then treated like any other: if it is missing
again later, plans are refused until a person acknowledges it again. The same applies after the configuration gave the
repository another location.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import pyarrow as pa
from pydantic import AwareDatetime

from retention_assets.config.configuration import INTERNAL, Repository
from retention_assets.core.amounts import counted
from retention_assets.errors import ConfigurationError, GuardRefused, TableContractError
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.lease import name_newest_record
from retention_assets.state.records import NO_SEAL, Seal, read_records, record_without_plan, write_record
from retention_assets.tables import ADDRESSES, REACHABLE_CHUNKS, REACHABLE_MANIFESTS, STORAGE_INVENTORY, TIMESTAMP
from retention_assets.warehouse.reading import one_of, read_directory
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # Spark is imported in the functions that use it: commands without Spark start faster
    from pyspark.sql import DataFrame, SparkSession

ACKNOWLEDGED, MISSING = "acknowledged", "missing_live.json"
_KIND = "acknowledge"  # of an audit record
LOST, FOUND, RELOCATED = "lost", "found", "relocated"
MOST_LISTED = 100_000  # missing addresses stored when a plan is refused or a verification fails: about 10 MB
_SNAPSHOT = re.compile(r"snapshots/[0-9A-Z]{20}")
_NAMING = (ADDRESSES.name, REACHABLE_MANIFESTS.name, REACHABLE_CHUNKS.name, STORAGE_INVENTORY.name)
_FOUND_AT = "found_at"  # key of the document `MISSING`: when the check that had failed found all objects again
_TRIES = 10
_AT_ONCE = 16  # concurrent requests to the store
_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),  # of the entry; an address has the kind of its newest entry
        pa.field("address", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),  # lost, found or relocated
        pa.field("acknowledged_by", pa.string(), nullable=False),
        pa.field("at", TIMESTAMP, nullable=False),
    ]
)


class _Missing(TypedDict):
    """The keys of the document `MISSING`. Earlier versions did not write all of them."""

    guard: str
    at: NotRequired[AwareDatetime]
    addresses: NotRequired[list[str]]


def acknowledged_addresses(spark: "SparkSession", warehouse: Warehouse, repository: str) -> "DataFrame":
    """Return `known_addresses` as a frame with one column, `address`."""
    from retention_assets.spark.frames import from_arrow

    known = sorted(known_addresses(warehouse, repository))
    return from_arrow(spark, pa.table({"address": pa.array(known, pa.string())}))


def lost_addresses(
    spark: "SparkSession", warehouse: Warehouse, repository: str, access: StoreAccess
) -> "DataFrame | None":
    """Return the acknowledged addresses whose objects are missing from the store now; None if there are none.

    This takes one request for each acknowledged address. An object that somebody put back is not lost any more: it must
    be read, because its references may be unknown.
    """
    from retention_assets.objectstore.listing import presence
    from retention_assets.spark.frames import from_arrow

    if not known_addresses(warehouse, repository):
        return None
    found = presence(acknowledged_addresses(spark, warehouse, repository), access)
    missing = found.where("last_modified IS NULL").select("address").toArrow()  # computed once, not at each use
    return from_arrow(spark, missing) if missing.num_rows else None


def known_addresses(warehouse: Warehouse, repository: str) -> set[str]:
    """Return the addresses that are acknowledged as lost at this location and have not been found again."""
    return {address for address, (kind, _) in _newest_entries(warehouse, repository).items() if kind == LOST}


def _newest_entries(warehouse: Warehouse, repository: str) -> dict[str, tuple[str, datetime]]:
    """Return the kind and the time of the newest entry of each address."""
    newest: dict[str, tuple[str, datetime]] = {}
    for name in _files(warehouse, repository):
        rows = warehouse.read_rows(repository, ACKNOWLEDGED, name)
        entries = zip(rows["kind"].to_pylist(), rows["at"].to_pylist(), strict=True)
        newest.update(zip(rows["address"].to_pylist(), entries, strict=True))
    return newest


def write_acknowledgement(
    warehouse: Warehouse, repository: str, addresses: Sequence[str], kind: str, by: str, at: datetime
) -> str:
    """Write one entry, and return the name of its file.

    `by`: the person, the run that found the objects again, or the change of the location.

    Errors: TableContractError when other processes write the next entry at each attempt.
    """
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
        f"{repository}: other runs wrote the next entry of {ACKNOWLEDGED} at each of {_TRIES} attempts. Nothing "
        "was acknowledged. Run the same command again."
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
    _record(warehouse, repository, name, addresses, by, at, at, run_id, seal)


def complete_records(warehouse: Warehouse, repository: str, now: datetime, run_id: str, seal: Seal = NO_SEAL) -> None:
    """Append the audit record of each acknowledgement that was interrupted before it wrote its record."""
    names = _files(warehouse, repository)
    if not names:
        return
    records = (one.document for one in read_records(warehouse, repository))
    recorded = {(one["published"] or {}).get("file") for one in records if one["kind"] == _KIND}
    for name in names:
        if f"{ACKNOWLEDGED}/{name}" in recorded:
            continue
        lost = [row for row in warehouse.read_rows(repository, ACKNOWLEDGED, name).to_pylist() if row["kind"] == LOST]
        if lost:
            addresses = [row["address"] for row in lost]
            by, at = lost[0]["acknowledged_by"], lost[0]["at"]
            _record(warehouse, repository, name, addresses, by, at, now, run_id, seal)


def _record(
    warehouse: Warehouse,
    repository: str,
    name: str,
    addresses: Sequence[str],
    by: str,
    at: datetime,
    ended: datetime,
    run_id: str,
    seal: Seal,
) -> None:
    """Append the audit record of the entry in the file `name`. See `name_newest_record`: this run has no lease."""
    digest = addresses_digest(addresses)
    written = {"file": f"{ACKNOWLEDGED}/{name}", "addresses": len(addresses), "digest": digest}
    write_record(warehouse, record_without_plan(_KIND, repository, by, at, ended, run_id, written), seal)
    name_newest_record(warehouse, repository, ended)


def changed_entry(warehouse: Warehouse, repository: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return which entry of lost objects does not agree with the audit records, and why; empty: all agree."""
    acknowledged = [one["published"] for one in records if one["kind"] == _KIND and one["published"]]
    digests = {str(one.get("file")): one.get("digest") for one in acknowledged}
    for name in _files(warehouse, repository):
        rows = warehouse.read_rows(repository, ACKNOWLEDGED, name).to_pylist()
        lost = [row["address"] for row in rows if row["kind"] == LOST]
        file = f"{ACKNOWLEDGED}/{name}"
        recorded = digests.pop(file, None)
        if recorded is None and lost:
            return (
                f"{repository}/{file} has no record. If a person acknowledged these objects, `retention acknowledge "
                f"{repository}` writes the missing record"
            )
        if recorded is not None and addresses_digest(lost) != recorded:
            return f"{repository}/{file} was changed after its record was written"
    return f"{repository}/{min(digests)} was removed, or has no lost objects any more" if digests else ""


def record_found(
    spark: "SparkSession", warehouse: Warehouse, repository: str, inventory: "DataFrame", run_id: str, at: datetime
) -> None:
    """Store which of the objects that were acknowledged as lost are in the listing again."""
    if not known_addresses(warehouse, repository):
        return
    again = acknowledged_addresses(spark, warehouse, repository).join(inventory, on="address", how="left_semi")
    addresses = sorted(row["address"] for row in again.collect())
    if addresses:
        write_acknowledgement(warehouse, repository, addresses, FOUND, f"the run {run_id}", at)


def first_of(addresses: "DataFrame") -> list[str]:
    """Return the first `MOST_LISTED` addresses, sorted."""
    return [row["address"] for row in addresses.select("address").orderBy("address").limit(MOST_LISTED).collect()]


def end_acknowledgements(warehouse: Warehouse, repository: str, location: str, at: datetime) -> None:
    """Store that no acknowledgement counts any more, because the repository has another `location` since `at`.

    An object that was lost at the old location may be live at the new one. The entries remain, for the records.
    """
    if addresses := sorted(known_addresses(warehouse, repository)):
        write_acknowledgement(warehouse, repository, addresses, RELOCATED, f"the change to {location}", at)
    warehouse.remove_document(repository, MISSING)


def record_missing(warehouse: Warehouse, repository: str, guard: str, addresses: Sequence[str], at: datetime) -> None:
    """Store which live objects the check `guard` did not find. `retention acknowledge` shows them.

    They replace the objects of the last check. If the check found all objects, its own last list no longer counts. The
    list of another check stays: for example, a verification requires objects that a sweep deleted, and a plan does not.
    """
    document = {"guard": guard, "at": at.isoformat(), "addresses": list(addresses)}
    if not addresses:
        last = _read_missing(warehouse, repository)
        if last is None or last["guard"] != guard or _FOUND_AT in last:
            return
        document = {**last, _FOUND_AT: at.isoformat()}  # `noticed_as_lost` still needs the addresses
    warehouse.write_document(document, repository, MISSING)


def _read_missing(warehouse: Warehouse, repository: str) -> dict[str, Any] | None:
    return warehouse.read_document(repository, MISSING, shape=_Missing)


def noticed_as_lost(warehouse: Warehouse, repository: str, since: datetime) -> set[str]:
    """Return the addresses that are acknowledged as lost, or that were missing or found again since `since`."""
    document = _read_missing(warehouse, repository)
    is_recent = document is not None and datetime.fromisoformat(document.get("at", since.isoformat())) >= since
    missing = document.get("addresses", []) if document is not None and is_recent else []
    entries = _newest_entries(warehouse, repository)
    return {*missing, *(one for one, (kind, at) in entries.items() if kind == LOST or (kind == FOUND and at >= since))}


def missing_addresses(warehouse: Warehouse, repository: str) -> list[str]:
    """Return the missing addresses of the last plan or verification that failed for them.

    The list is empty when no check failed, or when the same check has found all objects since then.
    """
    document = _read_missing(warehouse, repository)
    return [] if document is None or _FOUND_AT in document else document.get("addresses", [])


def still_lost(repository: Repository, addresses: Sequence[str], *, whole_slices: bool) -> list[str]:
    """Return which of the stored missing addresses are not in the store now. `whole_slices`: see `require_lost`.

    Errors: GuardRefused for directories that are missing completely.
    """
    reader = ObjectReader(open_store(repository))
    there = set(_present(reader, addresses))
    lost = [one for one in addresses if one not in there]
    if not whole_slices:
        _require_single(repository, reader, lost)
    return lost


def require_lost(warehouse: Warehouse, repository: Repository, addresses: Sequence[str], *, whole_slices: bool) -> None:
    """Require that these are addresses of known objects, see `_require_known`, that are not in the store.

    Without `whole_slices`, several addresses of one directory that is empty now are refused: the storage may be wrong.

    Errors: ConfigurationError for text that is not an address of a known object; GuardRefused for objects that exist,
    and for directories that are missing completely.
    """
    reader = ObjectReader(open_store(repository))
    _require_missing(repository, reader, addresses)
    _require_known(warehouse, repository, addresses)
    if not whole_slices:
        _require_single(repository, reader, addresses)


def _require_missing(repository: Repository, reader: ObjectReader, addresses: Sequence[str]) -> None:
    """Raise ConfigurationError for text that is not an address; GuardRefused when the store has one of the objects."""
    table = "reachable_chunks" if repository.is_icechunk else "addresses"
    for address in addresses:
        if "://" in address or address.startswith(("/", f"{INTERNAL}/")) or ".." in address.split("/"):
            raise ConfigurationError(
                f"{address}: is not the address of an object of {repository.name}. Nothing was acknowledged. Addresses "
                f"are relative to the storage: `retention show {repository.name} {table}` lists them."
            )
    if there := _present(reader, addresses):
        raise GuardRefused(
            f"{repository.name}: {len(there):,} of {counted(len(addresses), 'object')} can be found in the store, "
            f"{there[0]} first. Nothing was acknowledged. If a plan did not find them, its listing was incomplete. "
            f"Plan again: `retention plan {repository.name}`."
        )


def _require_known(warehouse: Warehouse, used: Repository, addresses: Sequence[str]) -> None:
    """Require addresses that the last failed check missed, or that are in the newest tables of objects.

    Else a directory or a mistyped name would look acknowledged. Icechunk: the name of a snapshot is accepted, because a
    plan that cannot read a snapshot writes no table that has its name. Errors: ConfigurationError.
    """
    repository = used.name
    document = _read_missing(warehouse, repository) or {}
    unknown = set(addresses).difference(document.get("addresses", ()))
    if used.is_icechunk:
        unknown = {one for one in unknown if not _SNAPSHOT.fullmatch(one)}
    schema = pa.schema([("address", pa.string())])
    for table in _NAMING:
        days = reversed(warehouse.directories(repository, table)) if unknown else iter(())
        if day := next((one for one in days if warehouse.is_complete(repository, table, one)), None):
            found = read_directory(warehouse, repository, table, day, schema=schema, where=one_of("address", unknown))
            unknown.difference_update(found["address"].to_pylist())
    if unknown:
        raise ConfigurationError(
            f"{repository}: {min(unknown)} is not the address of a known object ({len(unknown):,} of "
            f"{counted(len(addresses), 'address', 'addresses')}): the last refused plan or failed verification "
            "did not report it as missing, and the newest tables do not have it. Nothing was acknowledged. Plan first, "
            f"or verify: `retention plan {repository}`, `retention verify {repository}`. If objects are missing then, "
            f"`retention acknowledge {repository}` shows the addresses that it accepts."
        )


def _present(reader: ObjectReader, addresses: Sequence[str]) -> list[str]:
    """Return the addresses whose object is in the store, in the same order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [one for one, found in zip(addresses, pool.map(reader.find, addresses), strict=True) if found]


def _require_single(repository: Repository, reader: ObjectReader, addresses: Sequence[str]) -> None:
    """Raise GuardRefused when several addresses are of one directory that is empty now."""
    directories = Counter(address[: address.rfind("/") + 1] for address in addresses)
    several = sorted(name for name, objects in directories.items() if name and objects > 1)
    empty = [name for name in several if next(iter(reader.list(name)), None) is None]
    if empty:
        raise GuardRefused(
            f"{repository.name}: {counted(len(empty), 'directory is', 'directories are')} missing completely, "
            f"for example {empty[0]} with {directories[empty[0]]:,} of the addresses. Nothing was acknowledged. Check "
            "that `storage` is the right URL and that the credentials may list all of it. If the directories are lost, "
            "run the command with `--whole-slices`, or in Dagster with `whole_slices: true`."
        )


def addresses_digest(addresses: Sequence[str]) -> str:
    """Return the hash of a set of addresses. Their order does not matter."""
    return hashlib.sha256("\n".join(sorted(addresses)).encode()).hexdigest()


def _files(warehouse: Warehouse, repository: str) -> list[str]:
    return [name for name in warehouse.files(repository, ACKNOWLEDGED) if name.endswith(".parquet")]
