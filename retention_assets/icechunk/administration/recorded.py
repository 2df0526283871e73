"""Runs a person's operation on an Icechunk repository under its lease, so that no sweep runs, and records it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from retention_assets.state.lease import release_lease, take_lease
from retention_assets.state.records import NO_SEAL, Record, Seal, write_record
from retention_assets.state.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Desk:
    """The person, the repository, and the warehouse that keeps the audit record of an operation."""

    warehouse: Warehouse
    repository: str
    person: str
    run_id: str
    life: timedelta  # of the lease
    clock: Callable[[], datetime]
    seal: Seal = NO_SEAL


def recorded(desk: Desk, operation: str, act: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Call `act` under the repository's lease, write its result into the audit record of `operation`, and return it.

    Errors: as `act` (then there is no record), and as `take_lease`.
    """
    started = desk.clock()
    desk.seal.copy_records(desk.warehouse, desk.repository)
    lease = take_lease(desk.warehouse, desk.repository, desk.run_id, started, desk.life)
    try:
        told = act()
        ended = desk.clock()
        record = Record(
            kind=operation,
            mode="",
            repository=desk.repository,
            day=started.date().isoformat(),
            plan_hash="",
            policy_hash="",
            planned_objects=0,
            planned_bytes=0,
            outcomes={},
            approved_by=desk.person,
            approved_at=started.isoformat(),
            fence=lease.fence,
            run_id=desk.run_id,
            started=started.isoformat(),
            ended=ended.isoformat(),
            longest_window_seconds=0.0,
            ledger_digest=None,
            published=told,
        )
        write_record(desk.warehouse, record, desk.seal)
    finally:
        release_lease(desk.warehouse, lease, desk.clock())
    return told
