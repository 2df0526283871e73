"""Computes which snapshots and transaction logs a garbage collection keeps, and drops the other snapshots.

A collection keeps snapshots with everything that they reference. The age of a file counts from the time at which the
store wrote it, not from the flush time that its writer recorded. The snapshots are listed before the references are
read. So a snapshot that is created in between is not in the listing, and is kept.
Source: docs/icechunk.md, "What is deleted" and "Where it differs from icechunk"; docs/icechunk-formats.md, "Garbage
collection".
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo, Update, UpdateKind
from retention_assets.icechunk.rules.expiration import remaining_snapshots
from retention_assets.icechunk.rules.snapshots import History, history_of, reachable, require_complete
from retention_assets.icechunk.rules.updates import Stamp, require_online, with_update

_SECOND = timedelta(seconds=1)


def is_old(stored: datetime, cutoff: datetime) -> bool:
    """Return whether a file written at `stored` (UTC, by the store's clock) is old: written before `cutoff`.

    Many stores list only whole seconds. So a time of whole seconds counts as the end of its second, as in `AgeCutoff`,
    and ages are never overestimated. Icechunk 2.3 adds one microsecond less than a second to such a time. So if the
    cutoff is exactly one second after `stored`, icechunk deletes the file, and this function returns False.
    """
    latest = stored if stored.microsecond else stored + _SECOND
    return latest < cutoff


def kept_v2(
    repo: Repo, stored: Mapping[bytes, datetime], cutoff: datetime, held: Collection[bytes] = ()
) -> frozenset[bytes]:
    """Return the snapshots that a garbage collection of a format 2 repository keeps, with their manifests and chunks.

    All other snapshots are dropped: they are removed from the repo object before any file is deleted.
    The collection keeps every snapshot that a reference reaches, every held snapshot, and every snapshot whose file is
    young or not listed. It also keeps the root of each of these snapshots, so that each one can get a parent when the
    snapshots in between are dropped.
    `stored` has the time at which each listed snapshot file was written. A file is young if it was not written before
    `cutoff`, see `is_old`. Errors: SourceError as `require_complete`.
    """
    history = history_of(repo)
    require_complete(history)
    reached = reachable(history, history.tips())
    young = (set(stored) | set(repo.snapshots)) - _old(stored, cutoff)
    kept = reached | young | set(held)
    kept |= {at for at in reachable(history, kept) if history.is_root(at)}
    return frozenset(kept)


def kept_v1(
    history: History, stored: Mapping[bytes, datetime], cutoff: datetime, held: Collection[bytes] = ()
) -> frozenset[bytes]:
    """Return the snapshots that a garbage collection of a format 1 repository keeps, with their manifests and chunks.

    The collection keeps every snapshot that a reference reaches, every held snapshot, and every snapshot that is not
    old, each with all its known ancestors: a snapshot file names its parent, and a branch can still be created on the
    snapshot. Icechunk itself keeps a young file without the files that the young file references.
    `history` has every snapshot file, and the references. `stored`, `cutoff`: see `kept_v2`. Errors: SourceError as
    `require_complete`.
    """
    require_complete(history)
    starts = history.tips() | (history.snapshots.keys() - _old(stored, cutoff)) | set(held)
    return frozenset(reachable(history, starts))


def in_use(
    history: History,
    stored: Mapping[bytes, datetime],
    cutoff: datetime,
    left: Mapping[bytes, datetime],
    repo: Repo | None = None,
) -> frozenset[bytes]:
    """Return the snapshots that may have been tips since `cutoff`. Sessions that began on them may still be open.

    A session begins on a tip. A snapshot stops being the tip of a branch when its child is written, or when the branch
    or tag leaves it, see `icechunk.sweep.left_tips`. So if its children are old, and it was left before `cutoff`, the
    sessions on it have been open for longer than the grace period. An open session needs the manifests and chunks of
    its snapshot: when it is rebased on newer commits, its own commit can name these chunks. The result also has the
    ancestors of a tip that was left since `cutoff`, unless a branch or tag still reaches them: the branch may have been
    reset or deleted by mistake.
    Icechunk's own expiration may have removed such a snapshot from the history. In format 2, the transaction logs that
    `repo` lists for removed ancestors then show its child. The snapshot stays if its file still exists.
    `stored`, `cutoff`: see `kept_v2`. `left`: the snapshots that branches and tags left, with the times.
    """
    young = (history.snapshots.keys() | stored.keys()) - _old(stored, cutoff)
    found = {history.snapshots[one].parent_id for one in history.snapshots.keys() & young}
    found |= {parent for parent, child in removed_parents(repo) if child in young} if repo else set()
    tips = {snapshot_id for snapshot_id, at in left.items() if at >= cutoff}
    found |= tips | (reachable(history, tips) - reachable(history, history.tips()))
    return frozenset(one for one in found if one is not None and (one in history.snapshots or one in stored))


def removed_parents(repo: Repo) -> Iterator[tuple[bytes, bytes]]:
    """Yield the removed snapshots whose transaction logs `repo` lists, each with its child before the removal."""
    for snapshot in repo.snapshots.values():
        yield from pairwise((*snapshot.pruned_ancestor_tx_logs, snapshot.id))


def kept_transaction_logs(repo: Repo, kept: frozenset[bytes]) -> frozenset[bytes]:
    """Return the ids of the transaction logs that stay: those of kept snapshots, and those that `repo` still lists.

    `repo` is the repo object after the edit of the collection, whether this edit is made or only planned.
    """
    return kept.union(*(one.pruned_ancestor_tx_logs for one in repo.snapshots.values()))


def _old(stored: Mapping[bytes, datetime], cutoff: datetime) -> set[bytes]:
    return {snapshot_id for snapshot_id, at in stored.items() if is_old(at, cutoff)}


def collected(repo: Repo, planned: Collection[bytes], dropped: Collection[bytes], stamp: Stamp) -> Repo:
    """Return `repo` without the `dropped` snapshots; `repo` itself when it has none of them.

    The caller reads `repo` again just before writing it. `planned` are the snapshots that the plan knew. A remaining
    snapshot whose parent is dropped gets its nearest remaining ancestor as parent, and takes over the transaction logs
    of the snapshots between the two.
    Errors: GuardRefused when the repository is not online; when a reference now reaches a dropped snapshot; when a
    snapshot that the plan did not know has a dropped parent; when a remaining snapshot would have no ancestor left; and
    as `with_update`.
    """
    require_online(repo, "more was changed or deleted")
    going = repo.snapshots.keys() & set(dropped)
    if not going:
        return repo
    history = history_of(repo)
    for snapshot_id in sorted(reachable(history, history.tips()) & going):
        raise outdated(f"a branch or tag reaches the snapshot {encode_id(snapshot_id)}, which the plan removes")
    for snapshot_id in sorted(repo.snapshots.keys() - set(planned)):
        if history.snapshots[snapshot_id].parent_id in going:
            raise outdated(f"the new snapshot {encode_id(snapshot_id)} is based on one that the plan removes")
    return with_update(repo_without(repo, going), Update(UpdateKind.GC_RAN, 0), stamp)


def repo_without(repo: Repo, dropped: Collection[bytes]) -> Repo:
    """Return `repo` without the `dropped` snapshots, and with an unchanged ops log.

    Errors: GuardRefused when a remaining snapshot would have no ancestor left.
    """
    history, going = history_of(repo), repo.snapshots.keys() & set(dropped)
    reparented = {
        snapshot_id: _nearest_remaining(history, snapshot_id, going)
        for snapshot_id, snapshot in history.snapshots.items()
        if snapshot_id not in going and snapshot.parent_id in going
    }
    return replace(repo, snapshots=remaining_snapshots(repo, going, reparented))


def _nearest_remaining(history: History, snapshot_id: bytes, going: Collection[bytes]) -> bytes:
    at = history.snapshots[snapshot_id].parent_id
    while at is not None and at in going:
        at = history.snapshots[at].parent_id
    if at is None:
        raise outdated(f"the snapshot {encode_id(snapshot_id)} would have no ancestor left")
    return at


def outdated(what: str) -> GuardRefused:
    """Return the refusal of edits that no longer fit the repository. `what`: the reason."""
    return GuardRefused(
        f"{what}. Nothing more was changed or deleted. Plan again, and approve that plan: `retention plan REPO --as-of "
        "DAY`."
    )
