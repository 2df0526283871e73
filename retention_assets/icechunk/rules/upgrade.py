"""Upgrades format 1 to format 2: builds the repo object and a reconstructed ops log from references and snapshots.

Snapshot, manifest and transaction log files stay as they are. Source: docs/icechunk-formats.md, "Upgrade".
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.model import (
    MAIN,
    Availability,
    Repo,
    RepoStatus,
    SnapshotInfo,
    Update,
    UpdateKind,
)
from retention_assets.icechunk.rules.snapshots import (
    TO_THE_MICROSECOND,
    History,
    Snapshot,
    datetime_of,
    lineage,
    micros_of,
    reachable,
    require_complete,
)

_EVENT = 1_000  # µs from the flush of a snapshot to the assumed creation of a branch or tag on it


def upgraded(
    history: History,
    snapshots: Mapping[bytes, SnapshotInfo],
    deleted_tags: Mapping[str, bytes | None],
    config: bytes | None,
    at: datetime,
) -> Repo:
    """Return the repo object that the upgrade writes at the time `at` (UTC).

    The object has the snapshots that references reach.
    Its ops log is a reconstructed history. The first entry is for the root. Each commit has its flush time. A branch or
    tag is created one millisecond after the flush of its snapshot. Each deleted tag is created and deleted. The newest
    entry is the upgrade. Entries that would have the same time are one microsecond apart. No entry names a backup,
    because there was no repo object before.

    Args:
        history: the snapshots and references of format 1.
        snapshots: the snapshots of the history as a repo object lists them, with their metadata as FlexBuffers.
        deleted_tags: names that can never be used again, each with the snapshot of the tag, or None if unknown.
        config: the stored configuration as FlexBuffers; None if there is none.
        at: the time of the upgrade.

    Errors: SourceError as `require_complete`; GuardRefused when the log would not end before `at`, because every later
    writer would refuse that repo object.
    """
    require_complete(history)
    reached = reachable(history, history.tips())
    root = lineage(history, history.branches[MAIN], ())[-1]
    root_time = micros_of(history.snapshots[root].flushed_at)
    log = _strictly_ordered(_entries(history, reached, deleted_tags, root_time))
    now = micros_of(at)
    if log[-1].updated_at >= now:
        dated = datetime_of(log[-1].updated_at, b"")
        raise GuardRefused(
            f"the newest snapshot, branch or tag is dated {dated:{TO_THE_MICROSECOND}} UTC, but it is only "
            f"{at:{TO_THE_MICROSECOND}} UTC on this machine. Nothing was changed. Compare the clocks, and try again "
            f"after {dated:{TO_THE_MICROSECOND}} UTC."
        )
    log.append(Update(UpdateKind.REPO_MIGRATED, now, from_version=1, to_version=2))
    return Repo(
        branches=dict(history.branches),
        snapshots={snapshot_id: snapshots[snapshot_id] for snapshot_id in history.snapshots if snapshot_id in reached},
        status=RepoStatus(Availability.ONLINE, root_time),
        latest_updates=tuple(reversed(log)),
        tags=dict(history.tags),
        deleted_tags=frozenset(deleted_tags),
        config=config,
    )


def _entries(
    history: History, reached: Collection[bytes], deleted_tags: Mapping[str, bytes | None], root_time: int
) -> Iterator[Update]:
    """Yield the entries of the ops log, not sorted by time. Of entries with equal times, the first one is earlier."""
    main = lineage(history, history.branches[MAIN], ())
    listed = set(main)
    yield Update(UpdateKind.REPO_INITIALIZED, root_time)
    for snapshot_id in reversed(main[:-1]):
        yield _commit(MAIN, history.snapshots[snapshot_id])
    for name, tip in sorted(history.branches.items()):
        if name == MAIN:
            continue
        yield Update(UpdateKind.BRANCH_CREATED, _created_at(history, tip), name=name)
        own = lineage(history, tip, listed)  # commits that several branches share are listed for the first branch only
        listed.update(own)
        for snapshot_id in reversed(own):
            yield _commit(name, history.snapshots[snapshot_id])
    for name, tip in sorted(history.tags.items()):
        yield Update(UpdateKind.TAG_CREATED, _created_at(history, tip), name=name)
    for name, gone in sorted(deleted_tags.items()):
        if gone is not None:
            made = _created_at(history, gone) if gone in reached else root_time + _EVENT
            yield Update(UpdateKind.TAG_CREATED, made, name=name)
            yield Update(UpdateKind.TAG_DELETED, made + _EVENT, name=name, previous_snapshot_id=gone)


def _created_at(history: History, tip: bytes) -> int:
    return micros_of(history.snapshots[tip].flushed_at) + _EVENT


def _commit(branch: str, snapshot: Snapshot) -> Update:
    at = micros_of(snapshot.flushed_at)
    return Update(UpdateKind.NEW_COMMIT, at, name=branch, new_snapshot_id=snapshot.snapshot_id)


def _strictly_ordered(entries: Iterable[Update]) -> list[Update]:
    ordered: list[Update] = []
    for entry in sorted(entries, key=lambda entry: entry.updated_at):
        earliest = ordered[-1].updated_at + 1 if ordered else entry.updated_at
        ordered.append(replace(entry, updated_at=max(entry.updated_at, earliest)))
    return ordered
