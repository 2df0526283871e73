"""Corrects the ages of snapshots whose writer had a slow clock: no snapshot is older than a plan that did not list it.

Each plan compares the history with that of the newest earlier plan, which has the corrections of the plans before it.
Source: docs/icechunk.md, "What is deleted".
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime

from retention_assets.errors import TableContractError
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.source.history import not_before_of
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.replaced import EarlierPlans
from retention_assets.tables import REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.reading import read_directory


def with_true_ages(state: IcechunkState, plans: EarlierPlans) -> IcechunkState:
    """Return `state` with the snapshots that cannot be as old as their writer says, each with its earliest time.

    This is the time at which the newest plan that did not list the snapshot read the history. Without an earlier plan,
    all times are those of the writers. If the rows of the newest earlier plan cannot be read, those of an older plan
    are used, with the corrections of the newest plan. Errors: as `EarlierPlans`; AccessDenied or StoreError.
    """
    metadata, day = next(plans.since(state.taken_at), (None, ""))
    if metadata is None:
        return state
    earlier, listed = not_before_of(metadata.details), _listed(plans, day, metadata)
    if listed is None:
        older = (_listed(plans, *one) for one in _older(plans, metadata))
        listed = next((one for one in older if one is not None), ())
    not_before = {}
    for snapshot_id, snapshot in state.history.snapshots.items():
        at = earlier.get(snapshot_id, None if snapshot_id in listed else metadata.taken_at)
        if at is not None and at > snapshot.flushed_at:
            not_before[snapshot_id] = at
    return replace(state, not_before=not_before)


def _older(plans: EarlierPlans, newest: PartitionMetadata) -> Iterator[tuple[str, PartitionMetadata]]:
    """Yield the plans before the newest one, with the day of each plan, newest plan first.

    The metadata of all days are read, because the plan of an older day may be newer.
    """
    every = plans.since(datetime.min.replace(tzinfo=UTC))
    return ((day, metadata) for metadata, day in every if metadata.taken_at < newest.taken_at)


def _listed(plans: EarlierPlans, day: str, metadata: PartitionMetadata) -> Collection[bytes] | None:
    """Return the snapshots in the history of the last plan of `day`; None: its rows are damaged, or of another run."""
    warehouse, table, columns = plans.warehouse, REPOSITORY_HISTORY, ["snapshot_id", "listed"]
    try:
        warehouse.require_rows(plans.repository, table.name, date.fromisoformat(day), metadata.rows)
    except TableContractError:
        return None
    partition = plans.repository, table.name, day
    found = read_directory(warehouse, *partition, schema=table.schema, columns=columns)
    if not warehouse.has_files(metadata.files, *partition):  # checked last: another run writes files with other names
        return None
    return {decode_id(row["snapshot_id"]) for row in found.to_pylist() if row["listed"]}
