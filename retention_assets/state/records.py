"""Audit records: one document for each run, beside the ledger. Each record has the hash of the record before it.

A change to a record, or to a ledger row that a record covers, breaks the chain. So does the removal of a record.
`retention verify` checks the chain. The chain alone does not detect that someone rewrote all of it, or removed the
newest records. To detect this, a `Seal` signs each record with a key that is not in the warehouse, and copies each
record to a second location (the witness).
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from itertools import batched
from typing import Any, NotRequired, TypedDict

from pydantic import AwareDatetime

from retention_assets.config.configuration import Repository
from retention_assets.config.settings import FromEnvironment
from retention_assets.core.amounts import Amount
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError, TableContractError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import SettingNames
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.warehouse.warehouse import Warehouse

RECORDS = "records"
SIGNATURE = "signature"  # of a record's document: over all its other fields
_ALGORITHM = "hmac-sha256"
_SHORTEST_KEY = 32  # characters: 128 bits in hexadecimal, as printed by `openssl rand -hex 16`
_SIGNED_PREFIX = b"retention record\n"  # begins the signed bytes: a signature that the key made elsewhere is not valid
_FIRST = "0" * 64  # `previous` in the first record
_TRIES = 100  # attempts to append a record while other runs append records
_AT_ONCE = 16  # records that are read at the same time
_CHECKSUM = "checksum_algorithm"  # obstore's option, also accepted with the prefix `aws_`
_OF_WITNESS = SettingNames("records.witness", "records.storage_options")
_NAME = re.compile(r"[0-9]{8,}\.json")  # of a record; other files in the directory are not ours
_COPY = re.compile(r"[0-9]{8,}-[0-9a-f]{64}\.json")  # the name of a copy at the witness, see `copy_name`


@dataclass(frozen=True, slots=True)
class Record:
    """The audit record of one run that changed a store, or tried to.

    Timestamps are ISO 8601, UTC. `outcomes` has the totals of the whole ledger of the plan, by outcome. There, an
    object whose restore failed is `failed`, and an object whose copy a purge skipped is `skipped`; both are still in
    quarantine.
    """

    kind: str  # sweep, restore, purge, acknowledge, or the change that a person made to references
    repository: str
    day: str
    approved_by: str
    approved_at: str
    run_id: str
    started: str
    ended: str
    mode: str = ""
    plan_hash: str = ""  # empty: a change that a person made without a plan
    policy_hash: str = ""
    planned_objects: int = 0
    planned_bytes: int = 0
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fence: int = 0
    longest_window_seconds: float | None = None  # from a liveness check to the last object after it; None: unknown
    ledger_digest: str | None = None  # of the plan's ledger, up to and including this fence; None: unknown, or no plan
    # The edits that were written before any object was deleted, a person's change, the surplus copies of a purge, or
    # the plans without copies whose manifests a purge deleted; None: none of these
    published: Mapping[str, Any] | None = None
    ended_early: str | None = None  # the error that ended the run early
    terms: Mapping[str, str] | None = None  # the settings that were approved; None: the run needed no approval
    dump: Mapping[str, str] | None = None  # the dump used: `taken_at`, and `dump_age`, the greatest age allowed
    in_quarantine: Mapping[str, int] | None = None  # objects and bytes of the plan there; None: no plan


def record_without_plan(
    kind: str,
    repository: str,
    person: str,
    started: datetime,
    ended: datetime,
    run_id: str,
    published: Mapping[str, Any],
) -> Record:
    """Return the record of a change that a person made without a plan."""
    return Record(
        kind=kind,
        repository=repository,
        day=started.date().isoformat(),
        approved_by=person,
        approved_at=started.isoformat(),
        run_id=run_id,
        started=started.isoformat(),
        ended=ended.isoformat(),
        published=published,
    )


class AmountDocument(TypedDict):
    """An `Amount` in a JSON document."""

    objects: int
    bytes: int


class _Document(TypedDict):
    """The keys of a record that are read. Earlier versions did not write all keys of a `Record`."""

    kind: str
    repository: str
    day: date
    mode: str
    plan_hash: str
    planned_objects: int
    planned_bytes: int
    outcomes: dict[str, AmountDocument]
    approved_by: str
    approved_at: str
    fence: int
    run_id: str
    started: AwareDatetime
    ended: AwareDatetime
    ledger_digest: str | None
    published: NotRequired[dict[str, Any] | None]
    ended_early: NotRequired[str | None]
    terms: NotRequired[dict[str, str] | None]
    in_quarantine: NotRequired[AmountDocument | None]
    previous: str


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """An audit record as stored in the warehouse."""

    name: str
    document: Mapping[str, Any]
    follows: bool  # whether its number and its `previous` hash fit the record before it


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs the audit records of a repository, and copies each of them to the witness.

    `keys`: the first key signs, and every key verifies. Without keys, records are not signed. Records that ended before
    `signed_since` may be unsigned. `witness`: a second location for copies of the records. A copy is named
    `<repository>/<number>-<fingerprint>.json`, and is never overwritten.
    """

    keys: Sequence[bytes] = field(default=(), repr=False)
    signed_since: date | None = None
    witness: StoreAccess | None = None

    def signed(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the document of a record with its signature, or unchanged if there is no key."""
        return {**document, SIGNATURE: _signature(self.keys[0], document)} if self.keys else document

    def verifies(self, document: Mapping[str, Any]) -> bool:
        """Return whether one of the keys made the document's signature."""
        found = _bytes(document.get(SIGNATURE))
        return any(hmac.compare_digest(found, _bytes(_signature(key, document))) for key in self.keys)

    def copy_records(self, warehouse: Warehouse, repository: str, written: str = "") -> None:
        """Copy the record `written`, and all records that are newer than the newest copy, to the witness.

        A run that is interrupted after it wrote a record and before it copied the record leaves a gap. The next run
        fills the gap.

        Errors: AccessDenied or StoreError.
        """
        if self.witness is None:
            return
        newest = max((int(name.partition("-")[0]) for name in self.copies(repository)), default=0)
        for name in record_names(warehouse, repository):
            if name == written or int(name.removesuffix(".json")) > newest:
                document = _read(warehouse, repository, name)
                assert document is not None
                content = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode()
                ObjectWriter(self.witness).create(f"{repository}/{copy_name(name, document)}", content)

    def copies(self, repository: str) -> list[str]:
        """Return the names of the copies at the witness, sorted. Other files there are ignored, such as a README.

        Errors: AccessDenied or StoreError.
        """
        if self.witness is None:
            return []
        _make_directory(self.witness)
        batches = ObjectReader(self.witness).list_direct(repository)
        names = (path.rpartition("/")[2] for batch in batches for path in batch.column("path").to_pylist())
        return sorted(filter(_COPY.fullmatch, names))


NO_SEAL = Seal()


def seal_of(repository: Repository) -> Seal:
    """Return the `Seal` of a repository, from its configuration.

    Errors: ConfigurationError when the environment variable of a key is not set, or its value is too short.
    """
    settings, where = repository.records, f"{repository.file}: records"
    variables = {"signing_key": settings.signing_key} if settings.signing_key else {}
    variables |= {f"earlier_keys.{number}": variable for number, variable in enumerate(settings.earlier_keys)}
    keys = [_key(variable, f"{where}.{name}") for name, variable in variables.items()]
    return Seal(tuple(keys), settings.signed_since, witness_of(repository))


def witness_of(repository: Repository) -> StoreAccess | None:
    """Return access to the witness of a repository's records; None if none is configured.

    Errors: ConfigurationError when an environment variable is not set, or the URL cannot be used.
    """
    witness = repository.witness()
    return _with_checksums(StoreAccess(*witness, _OF_WITNESS)) if witness else None


def _with_checksums(access: StoreAccess) -> StoreAccess:
    """Return access to the witness that sends the checksum of each object to S3.

    In a bucket with a default retention (Object Lock), Amazon S3 refuses to create an object without a checksum. For
    other stores that refuse checksums, `checksum_algorithm` can be `none`. obstore does not know this value.
    """
    if not access.url.startswith("s3://"):
        return access
    named = {name.lower().removeprefix("aws_"): name for name in access.options}
    given = named.get(_CHECKSUM, "")
    algorithm = access.options.get(given, "sha256")
    others = {name: value for name, value in access.options.items() if name != given}
    return replace(access, options=others if algorithm == "none" else {**others, _CHECKSUM: algorithm})


def _make_directory(access: StoreAccess) -> None:
    if access.is_local:
        try:
            access.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{access.url}: the directory cannot be created: {error}. No record was copied, and nothing more was "
                "deleted. Check `records.witness`."
            ) from error


def _key(variable: FromEnvironment, where: str) -> bytes:
    value = variable.resolve(where)
    if len(value) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"{where}: the value of {variable.env} has {len(value)} characters, and a key needs at least "
            f"{_SHORTEST_KEY}. Nothing was read or deleted. Make a key: `openssl rand -hex 32`."
        )
    return value.encode()


def _signature(key: bytes, document: Mapping[str, Any]) -> Mapping[str, str]:
    rest = {name: value for name, value in document.items() if name != SIGNATURE}
    value = hmac.new(key, _SIGNED_PREFIX + _bytes(rest), hashlib.sha256).hexdigest()
    return {"algorithm": _ALGORITHM, "value": value}


def write_record(warehouse: Warehouse, record: Record, seal: Seal = NO_SEAL) -> str:
    """Append the record to the chain, sign and copy it as `seal` defines, and return its name.

    Errors: GuardRefused when other runs append records at each attempt; AccessDenied or StoreError when the record
    cannot be copied.
    """
    for _ in range(_TRIES):
        names = record_names(warehouse, record.repository)
        before = _read(warehouse, record.repository, names[-1]) if names else None
        name = f"{int(names[-1].removesuffix('.json')) + 1 if names else 1:08d}.json"
        document = {**asdict(record), "previous": _FIRST if before is None else fingerprint(before)}
        if warehouse.create_document(seal.signed(document), record.repository, RECORDS, name):
            seal.copy_records(warehouse, record.repository, name)
            return name
    raise GuardRefused(
        f"{record.repository}: the audit record was not written, because other runs wrote records at each of {_TRIES} "
        "attempts. The ledger has what was done. Run the same command again when fewer runs are active."
    )


def record_names(warehouse: Warehouse, repository: str) -> list[str]:
    """Return the names of all records, the oldest first. Other files in their directory are ignored."""
    return [name for name in warehouse.documents(repository, RECORDS) if _NAME.fullmatch(name)]


def _read(warehouse: Warehouse, repository: str, name: str) -> dict[str, Any] | None:
    """Return a record; None if it does not exist. Errors: TableContractError if it is damaged."""
    return warehouse.read_document(repository, RECORDS, name, shape=_Document)


def read_records(warehouse: Warehouse, repository: str) -> Iterator[StoredRecord]:
    """Yield all records, in order. If a record was removed, `follows` of the next record is false."""
    previous = _FIRST
    for number, name in enumerate(record_names(warehouse, repository), start=1):
        document = _read(warehouse, repository, name)
        assert document is not None
        yield StoredRecord(name, document, document["previous"] == previous and name == f"{number:08d}.json")
        previous = fingerprint(document)


def newest_of_plan(warehouse: Warehouse, repository: str, day: str, plan_hash: str) -> Mapping[str, Any] | None:
    """Return the newest record of a plan, which has the totals of the plan's whole ledger; None when there is none."""
    of_plan = (
        one for _, one in newest_first(warehouse, repository) if (one["day"], one["plan_hash"]) == (day, plan_hash)
    )
    return next(of_plan, None)


def newest_of_day(warehouse: Warehouse, repository: str, day: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the newest record of each plan of a day, by the hash of the plan."""
    found: dict[str, Mapping[str, Any]] = {}
    for _, one in newest_first(warehouse, repository):
        if one["day"] == day and one["plan_hash"]:
            found.setdefault(one["plan_hash"], one)
    return found


def amounts_in(record: Mapping[str, Any]) -> dict[str, Amount]:
    """Return the totals of the ledger of the plan, by outcome, as a record has them."""
    return {outcome: _amount(amount) for outcome, amount in record["outcomes"].items()}


def quarantined_in(record: Mapping[str, Any]) -> Amount:
    """Return the objects of the plan that were in quarantine when the record was written.

    Records of earlier versions have only the totals. These leave out an object whose restore failed, or whose copy a
    purge skipped.
    """
    found = record.get("in_quarantine")
    return amounts_in(record).get(Outcome.QUARANTINED, Amount()) if found is None else _amount(found)


def _amount(document: AmountDocument) -> Amount:
    return Amount(document["objects"], document["bytes"])


def newest_first(warehouse: Warehouse, repository: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name, document) of all records, the newest first. Records are read in small batches, when needed."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for names in batched(reversed(record_names(warehouse, repository)), _AT_ONCE):
            documents = pool.map(lambda name: _read(warehouse, repository, name), names)
            yield from ((name, one) for name, one in zip(names, documents, strict=True) if one is not None)


def newest_fingerprint(warehouse: Warehouse, repository: str) -> str | None:
    """Return the hash of the newest record; None when there is none. Errors: TableContractError if it is damaged."""
    names = record_names(warehouse, repository)
    if not names:
        return None
    try:
        document = _read(warehouse, repository, names[-1])
    except TableContractError as error:
        raise TableContractError(
            f"{warehouse.location(repository, RECORDS, names[-1])}: the newest record is damaged. Nothing was changed "
            "or deleted. Copy it from a backup of the warehouse, or from the witness. If there is no copy, move it out "
            "of this directory: `retention verify` then reports that it is gone."
        ) from error
    return None if document is None else fingerprint(document)


def fingerprint(document: Mapping[str, Any]) -> str:
    """Return the hash of a record, which the next record stores as `previous`."""
    return hashlib.sha256(_bytes(document)).hexdigest()


def copy_name(name: str, document: Mapping[str, Any]) -> str:
    """Return the name of the copy of the record `name` at the witness."""
    return f"{name.removesuffix('.json')}-{fingerprint(document)}.json"


def _bytes(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
