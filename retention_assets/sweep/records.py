"""The record of what was run: one document a run, beside the ledger, each with the hash of the one before it.

Who changes or removes a record, or a row of a ledger that one covers, breaks the chain; `retention verify` looks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from retention_assets.errors import GuardRefused
from retention_assets.stores.warehouse import Warehouse

RECORDS = "records"
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


def write_record(warehouse: Warehouse, record: Record) -> str:
    """Write the record behind all others, and return its name. Errors: GuardRefused when others never stop."""
    for _ in range(_TRIES):
        names = warehouse.documents(record.repository, RECORDS)
        before = warehouse.read_document(record.repository, RECORDS, names[-1]) if names else None
        name = f"{int(names[-1].removesuffix('.json')) + 1 if names else 1:08d}.json"
        document = {**asdict(record), "previous": _FIRST if before is None else fingerprint(before)}
        if warehouse.create_document(document, record.repository, RECORDS, name):
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
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
