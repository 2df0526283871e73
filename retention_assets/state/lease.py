"""The lease in the warehouse, which allows one sweep of a repository at a time. A lease has a fencing token (`fence`).

`leases/` has numbered documents. A conditional write creates each document only if its number does not exist yet. The
document with the highest number is the lease in force. A lease has an end: its holder stops at the end. If the holder
does not release the lease, another sweep can start `MARGIN` after the end. `retention stop` writes the next document,
too: then the running sweep loses its lease.

Each document stores the fingerprint of the newest audit record at that time. The chain of records does not protect its
newest record. This fingerprint shows whether that record was changed or removed. Source: promise 6 of docs/safety.md.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from pydantic import AwareDatetime

from retention_assets.config.timestamps import Clock
from retention_assets.errors import GuardRefused, RetentionError, TableContractError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.state.records import newest_fingerprint
from retention_assets.warehouse.warehouse import Warehouse

LEASES = "leases"
MARGIN = timedelta(minutes=5)  # assumption: clocks of two machines differ by less, and no request takes longer
_NAME = re.compile(r"\d{8,}\.json")
_UNKNOWN = "(unknown: the newest lease was damaged)"
_NO_END = datetime(9999, 12, 31, tzinfo=UTC)
_TRIES = 100  # attempts to stop a sweep that renews its lease at the same time


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to change the store of one repository until `until`. `fence` is higher for each new lease."""

    repository: str
    holder: str
    fence: int
    number: int  # of the newest document of this lease
    until: datetime
    life: timedelta


class _Document(TypedDict):
    """The keys that the document of a lease must have."""

    holder: str
    fence: int
    at: AwareDatetime
    until: AwareDatetime
    released: bool


def take_lease(warehouse: Warehouse, repository: str, holder: str, now: datetime, life: timedelta) -> Lease:
    """Take the lease of the repository, and return it.

    Errors: GuardRefused while another run holds the lease, when another run takes it at the same time, and when the
    store of the warehouse ignores conditional writes.
    """
    warehouse.require_conditions()
    number, document = _newest(warehouse, repository)
    if document and not document["released"]:
        _require_over(repository, document, now)
    return _write(warehouse, Lease(repository, holder, number + 1, number + 1, now + life, life), now)


@contextmanager
def held_lease(warehouse: Warehouse, repository: str, holder: str, clock: Clock, life: timedelta) -> Iterator[Lease]:
    """Hold the lease of the repository for the time of a `with` block.

    Errors: as `take_lease`. If the block ends with an error, an error of the release does not replace it, because the
    lease also ends by itself.
    """
    lease = take_lease(warehouse, repository, holder, clock(), life)
    try:
        yield lease
    except BaseException:
        with suppress(Exception):
            release_lease(warehouse, lease, clock())
        raise
    try:
        release_lease(warehouse, lease, clock())
    except RetentionError as error:
        error.say_nothing_more()  # the work under the lease was done
        raise


def require_seen_by_all(warehouse: Warehouse, repository: str, access: StoreAccess, *, single_machine: bool) -> None:
    """Raise GuardRefused if sweeps on other machines cannot see the lease. See `unseen_lease`."""
    if refusal := unseen_lease(warehouse, repository, access.url, single_machine=single_machine):
        raise refusal


def unseen_lease(warehouse: Warehouse, repository: str, url: str, *, single_machine: bool) -> GuardRefused | None:
    """Return the refusal of a sweep whose lease other machines cannot see; None: all machines see the lease.

    Other machines cannot see the lease if the warehouse is on a disk of this machine and the repository is in a bucket.
    `url`: the location of the objects, in its canonical spelling. `single_machine`: the configuration says that no
    other machine sweeps the repository.
    """
    if single_machine or not warehouse.is_local or url.startswith("file://"):
        return None
    return GuardRefused(
        f"{repository}: the warehouse {warehouse.root} is on this machine, and the repository {url} is not. A sweep on "
        f"another machine would not see the lease of this sweep. Nothing was deleted. Put the warehouse into a store "
        f"that all machines reach. If no other machine ever sweeps this repository, set "
        f"repositories.{repository}.sweep.single_machine to true."
    )


def renew_lease(warehouse: Warehouse, lease: Lease, now: datetime) -> Lease:
    """Return the lease, extended if at least a quarter of its life is over. Errors: GuardRefused when it is lost."""
    require_lease(warehouse, lease, now)
    if lease.until - now > lease.life * 3 / 4:
        return lease
    return _write(warehouse, replace(lease, number=lease.number + 1, until=now + lease.life), now)


def require_lease(warehouse: Warehouse, lease: Lease, now: datetime) -> None:
    """Raise GuardRefused when the lease has expired, or when its document is not the newest any more."""
    if not holds(warehouse, lease, now):
        raise _lease_lost(warehouse, lease)


def holds(warehouse: Warehouse, lease: Lease, now: datetime) -> bool:
    """Return whether the lease is still in force: it has not expired, and no newer document exists."""
    return now < lease.until and _is_newest(warehouse, lease)


def _is_newest(warehouse: Warehouse, lease: Lease) -> bool:
    """Return whether the newest document is the document of `lease`.

    Workers call this before each chunk. So only the names after the name of the document are listed, not all leases
    that the repository ever had.
    """
    parts = lease.repository, LEASES, _name(lease.number)
    if warehouse.has_document_after(*parts, named=_NAME) or (document := warehouse.read_document(*parts)) is None:
        return False
    written = tuple(map(document.get, ("holder", "fence", "until", "released")))
    return written == (lease.holder, lease.fence, lease.until.isoformat(), False)


def require_not_taken_over(warehouse: Warehouse, lease: Lease) -> None:
    """Raise GuardRefused when another run has taken the lease since.

    This happens to a run that was suspended for longer than its lease, and then continues. The documents of `retention
    stop` and `retention resume` are not of a run, and do not count.
    """
    last = _name(lease.number)
    later = [one for one in warehouse.documents(lease.repository, LEASES) if one > last and _NAME.fullmatch(one)]
    documents = filter(None, (warehouse.read_document(lease.repository, LEASES, name) for name in later))
    if any(one.get("fence") != lease.fence and one.get("until") != _NO_END.isoformat() for one in documents):
        raise _lease_lost(warehouse, lease)


def lease_written_at(warehouse: Warehouse, lease: Lease) -> datetime:
    """Return when the document of the lease was written, by the clock of the store (UTC).

    Errors: GuardRefused when the lease is lost.
    """
    document = warehouse.file(lease.repository, LEASES, _name(lease.number))
    if document is None:
        raise _lease_lost(warehouse, lease)
    return document.written_at


def release_lease(warehouse: Warehouse, lease: Lease, now: datetime) -> None:
    """Release the lease, also after renewals. Do nothing if the lease was lost to another holder."""
    number, document = _newest(warehouse, lease.repository)
    ours = lease.holder, lease.fence
    if document and (document["holder"], document["fence"]) == ours and not document["released"]:
        _create(warehouse, replace(lease, number=number + 1), now, released=True)


def stop_sweeps(warehouse: Warehouse, repository: str, person: str, now: datetime) -> str | None:
    """Refuse all runs that need the lease of the repository until `resume_sweeps`. Workers stop within seconds.

    These are sweeps, restores, purges, housekeeping, and changes with `retention icechunk`.

    Return the holder of the lease that was in force; None if there was none, or if the sweeps were stopped already.

    Errors: GuardRefused when other processes write a lease at each attempt.
    """
    for _ in range(_TRIES):
        try:
            number, document = _newest(warehouse, repository)
            holder, was_stopped = _in_force(document, now) or (None, False)
        except TableContractError:  # a damaged file must not prevent a stop
            number, holder, was_stopped = _newest_number(warehouse, repository), _UNKNOWN, False
        stop = Lease(repository, person, number + 1, number + 1, _NO_END, timedelta(0))
        if _create(warehouse, stop, now, released=False):
            return None if was_stopped else holder
    raise GuardRefused(
        f"{repository}: the sweeps were not stopped: other processes wrote a lease at each of {_TRIES} attempts. "
        f"Nothing was changed. Try again: `retention stop {repository}`."
    )


def ending_of_stop(stopped: str | None) -> str:
    """Return a sentence about the run that `stop_sweeps` returned."""
    if stopped is None:
        return "No run was in progress."
    return f"Within seconds, run {stopped} begins no more deletions or copies. Those under way can take minutes to end."


def resume_sweeps(warehouse: Warehouse, repository: str, now: datetime) -> None:
    """Allow sweeps again. Errors: GuardRefused when they are not stopped, or another process changes the lease now."""
    number, document = _newest(warehouse, repository)
    if document is None or document["until"] != _NO_END.isoformat() or document["released"]:
        raise GuardRefused(f"{repository}: its sweeps are not stopped. Nothing was changed. No action is needed.")
    stop = Lease(repository, document["holder"], document["fence"], number + 1, _NO_END, timedelta(0))
    if not _create(warehouse, stop, now, released=True):
        raise GuardRefused(
            f"{repository}: another process changed the lease at the same time. Nothing was changed. Run the same "
            f"command again: `retention resume {repository}`."
        )


def name_newest_record(warehouse: Warehouse, repository: str, now: datetime) -> None:
    """Write the newest lease again, with the fingerprint of the newest audit record, unless a run holds the lease.

    A run that writes a record without the lease calls this. A run that holds the lease names the record when it ends.
    """
    for _ in range(_TRIES):
        number, document = _newest(warehouse, repository)
        in_force = _in_force(document, now - MARGIN)  # within the margin, its holder may still write
        is_stopped = in_force is not None and in_force[1]
        if in_force and not is_stopped:
            return
        last = document or {"holder": "", "fence": 1, "at": now.isoformat(), "until": now.isoformat()}
        at, until = (datetime.fromisoformat(last[name]) for name in ("at", "until"))
        again = Lease(repository, last["holder"], last["fence"], number + 1, until, timedelta(0))
        if _create(warehouse, again, at, released=not is_stopped):
            return


def lease_in_force(warehouse: Warehouse, repository: str, now: datetime) -> tuple[str, bool] | None:
    """Return the holder of the lease, and whether sweeps are stopped until `resume_sweeps`; None: no lease is in force.

    After the end of a lease that was not released, the result is None, but no sweep can start before `MARGIN` is over.
    """
    return _in_force(_newest(warehouse, repository)[1], now)


def _in_force(document: dict[str, Any] | None, now: datetime) -> tuple[str, bool] | None:
    """Return the holder and whether it stopped all sweeps, from the newest document; None: no lease is in force."""
    if document is None or document["released"]:
        return None
    until = datetime.fromisoformat(document["until"])
    return (str(document["holder"]), until == _NO_END) if now < until else None


def _require_over(repository: str, document: dict[str, Any], now: datetime) -> None:
    _require_not_stopped(repository, document)
    until = datetime.fromisoformat(document["until"])
    if now < until + MARGIN:
        at = datetime.fromisoformat(document["at"])  # of the newest document: a running sweep renews its lease
        raise GuardRefused(
            f"{repository}: {document['holder']} holds the lease, and took or renewed it at {at:%Y-%m-%d %H:%M:%S} "
            f"UTC. Nothing was deleted. Wait until that run ends. If it died, the lease is free at "
            f"{until + MARGIN:%Y-%m-%d %H:%M:%S} UTC, or at once after `retention stop {repository}` and `retention "
            f"resume {repository}`."
        )


def require_not_stopped(warehouse: Warehouse, repository: str) -> None:
    """Raise GuardRefused if a person stopped all sweeps. `take_lease` checks this again, when Spark runs."""
    _, document = _newest(warehouse, repository)
    if document and not document["released"]:
        _require_not_stopped(repository, document)


def _require_not_stopped(repository: str, document: dict[str, Any]) -> None:
    if datetime.fromisoformat(document["until"]) == _NO_END:
        raise GuardRefused(
            f"{repository}: sweeps were stopped by {document['holder']} at {document['at']}. Nothing was deleted. "
            f"When the reason is gone, allow sweeps again: `retention resume {repository}`."
        )


def _write(warehouse: Warehouse, lease: Lease, now: datetime) -> Lease:
    """Write the document of the lease, read it back, and return the lease.

    Reading it back detects that the store accepted the documents of two writers. Errors: GuardRefused when the lease is
    lost.
    """
    if not _create(warehouse, lease, now, released=False) or not _is_newest(warehouse, lease):
        raise _lease_lost(warehouse, lease)
    return lease


def _create(warehouse: Warehouse, lease: Lease, now: datetime, *, released: bool) -> bool:
    try:
        record = newest_fingerprint(warehouse, lease.repository)
    except TableContractError:
        if lease.until != _NO_END:
            raise
        record = None  # a damaged record must not prevent a stop
        with suppress(TableContractError):
            record = witnessed_record(warehouse, lease.repository)
    document = {
        "holder": lease.holder,
        "fence": lease.fence,
        "at": now.isoformat(),
        "until": lease.until.isoformat(),
        "released": released,
        "record": record,
    }
    return warehouse.create_document(document, lease.repository, LEASES, _name(lease.number))


def _name(number: int) -> str:
    return f"{number:08d}.json"


def witnessed_record(warehouse: Warehouse, repository: str) -> str | None:
    """Return the fingerprint of the audit record that was the newest when the last lease was written; or None."""
    _, document = _newest(warehouse, repository)
    return document.get("record") if document else None


def _newest(warehouse: Warehouse, repository: str) -> tuple[int, dict[str, Any] | None]:
    """Return the number and content of the newest lease document. Errors: TableContractError if it is damaged."""
    number = _newest_number(warehouse, repository)
    if not number:
        return 0, None
    parts = repository, LEASES, _name(number)
    try:
        return number, warehouse.read_document(*parts, shape=_Document)
    except TableContractError as error:
        raise TableContractError(
            f"{warehouse.location(*parts)}: this newest lease is damaged, so it is unknown whether a run holds it. "
            "Nothing was changed or deleted. Make sure that no sweep, restore or purge runs. Then a new lease takes "
            f"its place: `retention stop {repository}`, and then `retention resume {repository}`."
        ) from error


def _newest_number(warehouse: Warehouse, repository: str) -> int:
    """Return the number of the newest lease document; 0 if there is none. Other files in the directory do not count."""
    names = filter(_NAME.fullmatch, warehouse.documents(repository, LEASES))
    return max((int(name.removesuffix(".json")) for name in names), default=0)


def _lease_lost(warehouse: Warehouse, lease: Lease) -> GuardRefused:
    """Return the error of a run that does not hold its lease any more. It names the person who stopped all sweeps."""
    _, document = _newest(warehouse, lease.repository)
    if document and document["until"] == _NO_END.isoformat() and not document["released"]:
        why = f"{document['holder']} stopped all sweeps"
        remedy = (
            f"When the reason is gone, allow sweeps again: `retention resume {lease.repository}`. Then run the same "
            "command again"
        )
    else:
        why = "another run or a person took it, or it expired"
        remedy = (
            "If a liveness check takes longer than sweep.lease, set a longer sweep.lease. Run the same command again"
        )
    return GuardRefused(
        f"{lease.repository}: the lease is lost: {why}. Nothing more was deleted. The ledger has what was done. "
        f"{remedy}: the run continues."
    )
