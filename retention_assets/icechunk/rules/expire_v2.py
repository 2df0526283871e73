"""Expiration in format 2: one edit of the repo object; no snapshot file changes. Source: Icechunk facts 3, v2."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.model import Repo, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.rules.expiration import (
    Edit,
    Expiration,
    Reparented,
    TagDeleted,
    deletion_of,
    edited,
    require_allowed,
)
from retention_assets.icechunk.rules.retention import NOTHING_UNAPPROVED, Unapproved, select
from retention_assets.icechunk.rules.snapshots import History, anchors, history_of
from retention_assets.icechunk.rules.updates import DELETE_TAG, Stamp, is_enabled, require_online, with_update
from retention_assets.policy.snapshots import SnapshotPolicy


def expiration_v2(
    history: History, policy: SnapshotPolicy, as_of: datetime, unapproved: Unapproved = NOTHING_UNAPPROVED
) -> Expiration:
    """Return the expiration of `history` under `policy` at `as_of` (UTC); `unapproved` snapshots and references stay.

    A snapshot is released when it has expired and no remaining reference points at it, whether it is reachable or not.
    A remaining snapshot whose parent is released gets a new parent: the nearest held ancestor, or the root of its
    history. The nearest remaining ancestor is no suitable parent, because a reference may be all that keeps it.
    Errors: as `select`; GuardRefused as `require_allowed`.
    """
    selection = select(history, policy, as_of, on_roots=False, unapproved=unapproved)
    deleted = set(selection.deleted)
    released = selection.expired - {one.tip for one in history.references() if one not in deleted}
    anchor = anchors(history, selection.held)
    edits: list[Edit] = [
        Reparented(snapshot_id, anchor[snapshot_id])
        for snapshot_id, snapshot in sorted(history.snapshots.items())
        if snapshot_id not in released and snapshot.parent_id in released
    ]
    edits += map(deletion_of, selection.deleted)
    expiration = Expiration(selection, tuple(edits), released, released)
    require_allowed(history, expiration)
    return expiration


def expire_v2(
    repo: Repo, policy: SnapshotPolicy, as_of: datetime, stamp: Stamp, unapproved: Unapproved = NOTHING_UNAPPROVED
) -> tuple[Repo, Expiration]:
    """Return `repo` after the expiration, and the expiration; `repo` itself when there is nothing to do.

    Errors: as `expiration_v2`; GuardRefused when the repository is not online, forbids the deletion of tags that
    have expired, or has an update that is not before `stamp.at`.
    """
    require_online(repo)
    expiration = expiration_v2(history_of(repo), policy, as_of, unapproved)
    if not expiration.edits and not expiration.released:
        return repo, expiration
    _require_tags_deletable(repo, expiration)
    return with_update(repo_after(repo, expiration), Update(UpdateKind.EXPIRATION_RAN, 0), stamp), expiration


def repo_after(repo: Repo, expiration: Expiration) -> Repo:
    """Return `repo` with the edits of the expiration; its ops log is still the one from before."""
    after = edited(history_of(repo), expiration.edits)
    return replace(
        repo,
        branches=after.branches,
        tags=after.tags,
        deleted_tags=repo.deleted_tags | (repo.tags.keys() - after.tags.keys()),
        snapshots=remaining_snapshots(repo, expiration.released, expiration.reparented),
    )


def remaining_snapshots(
    repo: Repo, released: Collection[bytes], reparented: Mapping[bytes, bytes]
) -> dict[bytes, SnapshotInfo]:
    """Return the snapshots of `repo` without those released, each with its new parent.

    A snapshot with a new parent takes over the transaction logs of the snapshots between the two, because only these
    logs record the changes since the new parent. The oldest snapshot comes first; the logs that a snapshot had taken
    over come before its own log. The logs that the reparented snapshot had taken over before come last.
    Source: Icechunk facts 3, Design doc 016.
    """
    remaining = {snapshot_id: one for snapshot_id, one in repo.snapshots.items() if snapshot_id not in released}
    for snapshot_id, parent in reparented.items():
        one = repo.snapshots[snapshot_id]
        logs = (*_logs_between(repo, one, parent), *one.pruned_ancestor_tx_logs)
        remaining[snapshot_id] = replace(one, parent_id=parent, pruned_ancestor_tx_logs=logs)
    return remaining


def _logs_between(repo: Repo, snapshot: SnapshotInfo, parent: bytes) -> list[bytes]:
    between: list[SnapshotInfo] = []
    at = snapshot.parent_id
    while at is not None and at != parent:
        between.append(repo.snapshots[at])
        at = repo.snapshots[at].parent_id
    return [log for one in reversed(between) for log in (*one.pruned_ancestor_tx_logs, one.id)]


def _require_tags_deletable(repo: Repo, expiration: Expiration) -> None:
    """Raise GuardRefused when tags are to be deleted and the flag delete_tag is off; icechunk ignores the flag here."""
    tags = [edit.name for edit in expiration.edits if isinstance(edit, TagDeleted)]
    if tags and not is_enabled(repo, DELETE_TAG):
        raise GuardRefused(
            f"{len(tags)} tags, {tags[0]!r} first, have expired, and the repository's feature flag delete_tag is off. "
            f"Nothing was changed or deleted. Take delete_expired_tags out of the policy, or turn the flag on."
        )
