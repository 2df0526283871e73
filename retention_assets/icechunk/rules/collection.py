"""Edits the repo object before a garbage collection deletes files. Source: Icechunk facts 4, step 7."""

from collections.abc import Collection
from dataclasses import replace

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo, Update, UpdateKind
from retention_assets.icechunk.rules.expire_v2 import remaining_snapshots
from retention_assets.icechunk.rules.snapshots import History, history_of, reachable
from retention_assets.icechunk.rules.updates import Stamp, require_online, with_update


def collected(repo: Repo, planned: Collection[bytes], dropped: Collection[bytes], stamp: Stamp) -> Repo:
    """Return `repo` without the snapshots `dropped`; `repo` itself when it has none of them.

    The caller reads `repo` again just before writing it. `planned` are the snapshots that the plan saw. A remaining
    snapshot whose parent is dropped gets its nearest remaining ancestor as parent, and takes over the transaction logs
    of the snapshots between the two.
    Errors: GuardRefused when the repository is not online; when a reference now reaches a dropped snapshot; when a
    snapshot that the plan did not see has a dropped parent; when a remaining snapshot would have no ancestor left; and
    as `with_update`.
    """
    require_online(repo)
    going = repo.snapshots.keys() & set(dropped)
    if not going:
        return repo
    history = history_of(repo)
    for snapshot_id in sorted(reachable(history, history.tips()) & going):
        raise _refusal(f"a branch or tag reaches the snapshot {encode_id(snapshot_id)}, which is to go")
    for snapshot_id in sorted(repo.snapshots.keys() - set(planned)):
        if history.snapshots[snapshot_id].parent_id in going:
            raise _refusal(f"the new snapshot {encode_id(snapshot_id)} stands on one that is to go")
    return with_update(repo_without(repo, going), Update(UpdateKind.GC_RAN, 0), stamp)


def repo_without(repo: Repo, dropped: Collection[bytes]) -> Repo:
    """Return `repo` without the snapshots `dropped`; its ops log is still the one from before.

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
        raise _refusal(f"the snapshot {encode_id(snapshot_id)} would have no ancestor left")
    return at


def _refusal(what: str) -> GuardRefused:
    return GuardRefused(f"{what}. Nothing more was changed, nothing deleted. Plan again, and approve that plan.")
