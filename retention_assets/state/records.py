"""The record of what was run: one document a run, beside the ledger, each with the hash of the one before it.

Who changes or removes a record, or a row of a ledger that one covers, breaks the chain; `retention verify` looks. The
chain alone does not show that somebody wrote all of it anew, or cut its end off. Against those who may write the
warehouse, a `Seal` signs each record with a key that is not in the warehouse, and copies each record to a second place.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import FromEnvironment
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.warehouse import Warehouse

RECORDS = "records"
SIGNATURE = "signature"  # of a record's document: over all its other fields
_ALGORITHM = "hmac-sha256"
_SHORTEST_KEY = 32  # characters: 128 bits as `openssl rand -hex 16` prints them
_OF_RECORDS = b"retention record\n"  # before what is signed, so that no other use of the key gives a signature
_FIRST = "0" * 64  # what the first record says of the one before it
_TRIES = 100  # of writing behind records that others write at the same time


@dataclass(frozen=True, slots=True)
class Record:
    """One run that changed a store, or meant to. Instants ISO 8601, UTC; amounts by outcome, of the whole ledger."""

    kind: str  # sweep, restore or purge, or what a person did to references
    mode: str
    repository: str
    day: str
    plan_hash: str
    policy_hash: str
    planned_objects: int
    planned_bytes: int
    outcomes: Mapping[str, Mapping[str, int]]
    approved_by: str
    approved_at: str
    fence: int
    run_id: str
    started: str
    ended: str
    longest_window_seconds: float | None  # from a look to the last object that was worked on after it; None: not known
    ledger_digest: str | None  # of the plan's ledger, up to and with this fence; None: not known, or no plan
    published: Mapping[str, Any] | None = None  # what was written before any object went; None: the plan has no such
    ended_early: str | None = None  # the error that ended it before it was through
    terms: Mapping[str, str] | None = None  # the settings that the approval was for; None: it needed none
    dump: Mapping[str, str] | None = None  # that it swept from: `taken_at`, and `dump_age`, the oldest that it takes


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as it lies in the warehouse, and whether it follows the one before it."""

    name: str
    document: Mapping[str, Any]
    follows: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """How the records of a repository are signed, and where a copy of each goes.

    `keys`: the first one signs, each of them verifies; none: records are not signed. Records that ended before
    `signed_since` may lack a signature. `witness` is a second place: the copy of a record there is named
    `<repository>/<number>-<fingerprint>.json`, and is never written over.
    """

    keys: Sequence[bytes] = field(default=(), repr=False)
    signed_since: date | None = None
    witness: StoreAccess | None = None

    def signed(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the document of a record with its signature; without a key, as it is."""
        return {**document, SIGNATURE: _signature(self.keys[0], document)} if self.keys else document

    def verifies(self, document: Mapping[str, Any]) -> bool:
        """Return whether one of the keys made the document's signature."""
        found = _bytes(document.get(SIGNATURE))
        return any(hmac.compare_digest(found, _bytes(_signature(key, document))) for key in self.keys)

    def copy_records(self, warehouse: Warehouse, repository: str, written: str = "") -> None:
        """Copy the record `written`, and all records that are newer than the newest copy.

        A run that was cut off between a record and its copy leaves a gap, which the next run fills.
        Errors: AccessDenied or StoreError.
        """
        if self.witness is None:
            return
        newest = max((int(name.partition("-")[0]) for name in self.copies(repository)), default=0)
        for name in warehouse.documents(repository, RECORDS):
            if name == written or int(name.removesuffix(".json")) > newest:
                document = warehouse.read_document(repository, RECORDS, name)
                assert document is not None
                content = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()
                ObjectWriter(self.witness).create(f"{repository}/{copy_name(name, document)}", content)

    def copies(self, repository: str) -> list[str]:
        """Return the names of the copies at the witness, sorted. Errors: AccessDenied or StoreError."""
        if self.witness is None:
            return []
        _make_directory(self.witness)
        batches = ObjectReader(self.witness).list_direct(repository)
        return sorted(path.rpartition("/")[2] for batch in batches for path in batch.column("path").to_pylist())


NO_SEAL = Seal()


def seal_of(repository: Repository) -> Seal:
    """Return how the configuration protects the records of a repository.

    Errors: ConfigurationError when the variable of a key is not set, or its value is short.
    """
    settings, where = repository.records, f"{repository.file}: records"
    variables = {"signing_key": settings.signing_key} if settings.signing_key else {}
    variables |= {f"earlier_keys.{number}": variable for number, variable in enumerate(settings.earlier_keys)}
    keys = [_key(variable, f"{where}.{name}") for name, variable in variables.items()]
    place = repository.witness()
    return Seal(tuple(keys), settings.signed_since, StoreAccess(*place) if place else None)


def _make_directory(access: StoreAccess) -> None:
    if access.is_local:
        try:
            Path(access.url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{access.url}: no directory can be made there: {error}. Check `records.witness`."
            ) from error


def _key(variable: FromEnvironment, where: str) -> bytes:
    value = variable.resolve(where)
    if len(value) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"{where}: the value of {variable.env} has {len(value)} characters, and a key has at least "
            f"{_SHORTEST_KEY}. Nothing was read or deleted. Make one: `openssl rand -hex 32`."
        )
    return value.encode()


def _signature(key: bytes, document: Mapping[str, Any]) -> Mapping[str, str]:
    rest = {name: value for name, value in document.items() if name != SIGNATURE}
    value = hmac.new(key, _OF_RECORDS + _bytes(rest), hashlib.sha256).hexdigest()
    return {"algorithm": _ALGORITHM, "value": value}


def write_record(warehouse: Warehouse, record: Record, seal: Seal = NO_SEAL) -> str:
    """Write the record behind all others, signed and copied as `seal` says, and return its name.

    Errors: GuardRefused when others never stop; AccessDenied or StoreError when it cannot be copied.
    """
    for _ in range(_TRIES):
        names = warehouse.documents(record.repository, RECORDS)
        before = warehouse.read_document(record.repository, RECORDS, names[-1]) if names else None
        name = f"{int(names[-1].removesuffix('.json')) + 1 if names else 1:08d}.json"
        document = {**asdict(record), "previous": _FIRST if before is None else fingerprint(before)}
        if warehouse.create_document(seal.signed(document), record.repository, RECORDS, name):
            seal.copy_records(warehouse, record.repository, name)
            return name
    raise GuardRefused(f"{record.repository}: no record could be written behind those of {_TRIES} other runs.")


def read_records(warehouse: Warehouse, repository: str) -> Iterator[Kept]:
    """Yield all records, in order. One that was taken out shows as one that does not follow."""
    previous = _FIRST
    for number, name in enumerate(warehouse.documents(repository, RECORDS), start=1):
        document = warehouse.read_document(repository, RECORDS, name)
        assert document is not None
        yield Kept(name, document, document.get("previous") == previous and name == f"{number:08d}.json")
        previous = fingerprint(document)


def newest_of_plan(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> Mapping[str, Any] | None:
    """Return the newest record of a plan: it has the totals of its whole ledger. None when no run of it has one."""
    documents = (kept.document for kept in read_records(warehouse, repository))
    of_plan = [one for one in documents if (one["day"], one["plan_hash"]) == (day, plan_hash)]
    return of_plan[-1] if of_plan else None


def newest_fingerprint(warehouse: Warehouse, repository: str) -> str | None:
    """Return the hash of the newest record; None when there is none."""
    names = warehouse.documents(repository, RECORDS)
    document = warehouse.read_document(repository, RECORDS, names[-1]) if names else None
    return None if document is None else fingerprint(document)


def fingerprint(document: Mapping[str, Any]) -> str:
    """Return the hash that the next record names."""
    return hashlib.sha256(_bytes(document)).hexdigest()


def copy_name(name: str, document: Mapping[str, Any]) -> str:
    """Return how the copy of the record `name` is called at the witness."""
    return f"{name.removesuffix('.json')}-{fingerprint(document)}.json"


def _bytes(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
