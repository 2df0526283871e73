"""What a collection keeps: snapshots with all that they reference, and transaction logs. Source: Icechunk facts 4.

Age is the store's: when a file was written, not when its writer says that it was flushed. The listing of snapshots is
taken before the references are read, so that what came in between is unlisted here, and kept.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo
from retention_assets.icechunk.rules.snapshots import History, history_of, reachable, require_whole

_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Kept:
    """The snapshots that a collection keeps, whose manifests and chunks it keeps too, and what it drops.

    `unlisted` are kept snapshots that the listing lacks and that the references did not explain: their files must
    still be there, or the collection stops. `dropped` go from the repo object before any file does; format 1 has none.
    """

    snapshots: frozenset[bytes]
    dropped: frozenset[bytes]
    unlisted: frozenset[bytes]


def is_old(stored: datetime, cutoff: datetime) -> bool:
    """Tell whether a file written at `stored` (UTC, the store's clock) may go: written before `cutoff`.

    A whole second may stand for any instant in it, and counts as its last microsecond: many stores list no fractions.
    """
    latest = stored if stored.microsecond else stored + _SECOND - _MICROSECOND
    return latest < cutoff


def kept_v2(repo: Repo, stored: Mapping[bytes, datetime], cutoff: datetime, held: Collection[bytes] = ()) -> Kept:
    """Return what a collection of a format 2 repository keeps.

    That is what references reach; what is held; every other snapshot of `repo` and of the listing that is not old, or
    not listed; and the roots of all these, so that each can get a parent when those between are dropped.
    `stored`: when each listed snapshot file was written. Errors: SourceError as `require_whole`.
    """
    history = history_of(repo)
    require_whole(history)
    reached = reachable(history, history.tips())
    young = (set(stored) | set(repo.snapshots)) - _old(stored, cutoff)
    kept = reached | young | _known(history, held)
    kept |= {at for at in reachable(history, kept) if history.is_root(at)}
    return Kept(frozenset(kept), frozenset(repo.snapshots.keys() - kept), frozenset(kept - stored.keys()))


def kept_v1(history: History, stored: Mapping[bytes, datetime], cutoff: datetime, held: Collection[bytes] = ()) -> Kept:
    """Return what a collection of a format 1 repository keeps.

    That is what references reach, what is held, and what the store wrote lately, each with its ancestors as far as
    they are there: a file names its parent, and a branch may be made on it yet. Icechunk keeps a young file without
    what it references. `history`: every snapshot file, and the references. Errors: SourceError as `require_whole`.
    """
    require_whole(history)
    starts = history.tips() | (history.snapshots.keys() - _old(stored, cutoff)) | _known(history, held)
    kept = reachable(history, starts)
    return Kept(frozenset(kept), frozenset(), frozenset(kept - stored.keys()))


def kept_transaction_logs(repo: Repo | None, kept: Kept) -> frozenset[bytes]:
    """Return the ids of the transaction logs that stay: those of kept snapshots, and those that `repo` still lists.

    `repo` is the object as it is after the collection's edit, or would be; `None` in format 1, which has no such list.
    """
    if repo is None:
        return kept.snapshots
    return kept.snapshots.union(*(one.pruned_ancestor_tx_logs for one in repo.snapshots.values()))


def _old(stored: Mapping[bytes, datetime], cutoff: datetime) -> set[bytes]:
    return {snapshot_id for snapshot_id, at in stored.items() if is_old(at, cutoff)}


def _known(history: History, held: Iterable[bytes]) -> set[bytes]:
    """Return the held snapshots. Errors: GuardRefused for one that is not there: a slip must not delete."""
    for snapshot_id in held:
        if snapshot_id not in history.snapshots:
            raise GuardRefused(
                f"a hold names the snapshot {encode_id(snapshot_id)}, which is not there. Nothing was changed or "
                f"deleted. Correct the id, or end the hold with `until`."
            )
    return set(held)
