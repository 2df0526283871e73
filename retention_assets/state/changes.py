"""Makes a change that needs no plan, such as a new branch, for a person: under the lease, with an audit record."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.objectstore.access import open_store
from retention_assets.state.binding import require_same_location
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import held_lease, require_seen_by_all
from retention_assets.state.records import record_without_plan, seal_of, write_record
from retention_assets.warehouse.warehouse import Warehouse

Result = Mapping[str, Any]


def recorded_change(
    warehouse: Warehouse,
    repository: Repository,
    kind: str,
    person: str,
    run_id: str,
    clock: Clock,
    change: Callable[[], Result],
) -> Result:
    """Call `change` under the lease of the repository, write its result into an audit record, and return the result.

    No sweep runs at the same time. `kind`: what is changed, for the record.

    Errors: the errors of `change`, after which there is no record; GuardRefused as `require_same_location` and
    `held_lease`, when other machines would not see the lease, and when this machine's clock is wrong. A clock that is
    ahead would take the lease of a running sweep. Its times in the repository would make icechunk refuse later commits.
    """
    started, name, sweep, seal = clock(), repository.name, repository.settings.sweep, seal_of(repository)
    require_same_location(warehouse, repository)  # a lease under another name would exclude nobody
    access = open_store(repository)
    require_seen_by_all(warehouse, name, access, single_machine=sweep.single_machine)
    require_clock(repository, access, clock, "was changed")
    seal.copy_records(warehouse, name)  # if records cannot be copied, nothing is changed
    with held_lease(warehouse, name, run_id, clock, sweep.lease) as lease:
        result = change()
        record = record_without_plan(kind, name, person, started, clock(), run_id, result)
        write_record(warehouse, replace(record, fence=lease.fence, longest_window_seconds=0.0), seal)
    return result
