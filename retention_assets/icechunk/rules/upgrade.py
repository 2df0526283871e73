"""Upgrades format 1 to format 2: builds the repo object and a reconstructed ops log from references and snapshots.

Snapshot, manifest and transaction log files stay as they are. Source: Icechunk facts 5, upgrade.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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
    History,
    Snapshot,
    datetime_of,
    lineage,
    micros_of,
    reachable,
    require_complete,
)

_EVENT = 1_000  # µs from the flush of a snapshot to the assumed creation of a branch or tag on it


@dataclass(frozen=True, slots=True)
class Version1:
    """A repository of format 1, with the metadata of its snapshots converted to FlexBuffers.

    `deleted_tags` are names that can never be used again, each with the snapshot of the tag, or None if unknown.
    """

    snapshots: Mapping[bytes, SnapshotInfo]  # every snapshot that references reach; others may be there too
    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]
    deleted_tags: Mapping[str, bytes | None]
    config: bytes | None  # the stored configuration as FlexBuffers; None: there is none


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The repo object to write, and the snapshots that it leaves out because no reference reaches them."""

    repo: Repo
    left_out: frozenset[bytes]


def upgraded(old: Version1, at: datetime) -> Upgrade:
    """Return the repo object that the upgrade writes at the time `at` (UTC); a dry run does not write it.

    The ops log is a plausible history. It starts with the root. Each commit is at its flush time; the creation of a
    branch or tag is one millisecond after the flush of its snapshot. Deleted tags are created and deleted. The upgrade
    is on top. Entries that would have the same time are one microsecond apart. No entry names a backup, because there
    was no repo object before.
    Errors: SourceError as `require_complete`; GuardRefused when the log would end after `at`, because every later
    writer would refuse that repo object.
    """
    history = _history_of(old)
    require_complete(history)
    reached = reachable(history, history.tips())
    snapshots = {snapshot_id: one for snapshot_id, one in old.snapshots.items() if snapshot_id in reached}
    root = lineage(history, old.branches[MAIN], ())[-1]
    root_time = micros_of(history.snapshots[root].flushed_at)
    log = _strictly_ordered(_entries(old, history, root_time))
    now = micros_of(at)
    if log[-1].updated_at >= now:
        raise GuardRefused(
            f"the newest snapshot, branch or tag is dated {log[-1].updated_at - now} µs after {at}, the time of this "
            f"machine. Nothing was changed. Compare the clocks, and try again when that time has passed."
        )
    log.append(Update(UpdateKind.REPO_MIGRATED, now, from_version=1, to_version=2))
    repo = Repo(
        branches=dict(old.branches),
        snapshots=snapshots,
        status=RepoStatus(Availability.ONLINE, root_time),
        latest_updates=tuple(reversed(log)),
        tags=dict(old.tags),
        deleted_tags=frozenset(old.deleted_tags),
        config=old.config,
    )
    return Upgrade(repo, frozenset(old.snapshots.keys() - reached))


def _history_of(old: Version1) -> History:
    snapshots = {
        one.id: Snapshot(one.id, one.parent_id, datetime_of(one.flushed_at, one.id)) for one in old.snapshots.values()
    }
    return History(snapshots, old.branches, old.tags)


def _entries(old: Version1, history: History, root_time: int) -> Iterator[Update]:
    """Yield the entries of the ops log, not sorted by time; of entries with one time, the first yielded is earlier."""
    main = lineage(history, old.branches[MAIN], ())
    listed = set(main)
    yield Update(UpdateKind.REPO_INITIALIZED, root_time)
    for snapshot_id in reversed(main[:-1]):
        yield _commit(MAIN, history.snapshots[snapshot_id])
    for name, tip in sorted(old.branches.items()):
        if name == MAIN:
            continue
        yield Update(UpdateKind.BRANCH_CREATED, old.snapshots[tip].flushed_at + _EVENT, name=name)
        own = lineage(history, tip, listed)  # commits that several branches share are listed for the first branch only
        listed.update(own)
        for snapshot_id in reversed(own):
            yield _commit(name, history.snapshots[snapshot_id])
    for name, tip in sorted(old.tags.items()):
        yield Update(UpdateKind.TAG_CREATED, old.snapshots[tip].flushed_at + _EVENT, name=name)
    reached = reachable(history, history.tips())
    for name, gone in sorted(old.deleted_tags.items()):
        if gone is not None:
            made = (old.snapshots[gone].flushed_at if gone in reached else root_time) + _EVENT
            yield Update(UpdateKind.TAG_CREATED, made, name=name)
            yield Update(UpdateKind.TAG_DELETED, made + _EVENT, name=name, previous_snapshot_id=gone)


def _commit(branch: str, snapshot: Snapshot) -> Update:
    at = micros_of(snapshot.flushed_at)
    return Update(UpdateKind.NEW_COMMIT, at, name=branch, new_snapshot_id=snapshot.snapshot_id)


def _strictly_ordered(entries: Iterable[Update]) -> list[Update]:
    ordered: list[Update] = []
    for entry in sorted(entries, key=lambda entry: entry.updated_at):
        earliest = ordered[-1].updated_at + 1 if ordered else entry.updated_at
        ordered.append(replace(entry, updated_at=max(entry.updated_at, earliest)))
    return ordered
