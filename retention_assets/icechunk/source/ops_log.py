"""Reads the ops log of format 2 from the repo object and its backups.

Source: docs/icechunk-formats.md, "Repo object".
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from retention_assets.errors import ObjectMissing, SourceError
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo, Update, UpdateKind
from retention_assets.icechunk.formats.paths import OVERWRITTEN
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.rules.collection import removed_parents
from retention_assets.icechunk.rules.snapshots import History, Reference, RefKind, datetime_of, micros_of
from retention_assets.objectstore.objects import ObjectReader

_RESET_OR_DELETED: Mapping[UpdateKind, RefKind] = {
    UpdateKind.BRANCH_RESET: "branch",
    UpdateKind.BRANCH_DELETED: "branch",
    UpdateKind.TAG_DELETED: "tag",
}
_MADE_OR_MOVED: Mapping[UpdateKind, RefKind] = {
    UpdateKind.BRANCH_CREATED: "branch",
    UpdateKind.BRANCH_RESET: "branch",
    UpdateKind.TAG_CREATED: "tag",
}
_REMOVALS = (UpdateKind.EXPIRATION_RAN, UpdateKind.GC_RAN)


def ops_log(reader: ObjectReader, repo: Repo) -> Iterator[Update]:
    """Yield the updates, newest first, down to the oldest one, or until a backup no longer exists.

    Errors: CorruptFile when a backup is corrupt.
    """
    name: str | None = None
    while True:
        top, *older = repo.latest_updates
        yield replace(top, backup_path=name)  # in the file, the newest entry does not name the backup of the file
        yield from older
        name = repo.repo_before_updates
        before = None if name is None else backup(reader, name)
        if before is None:
            return
        repo = before


def tips_left(
    updates: Iterable[Update], besides: Collection[Reference] = (), parents: Mapping[bytes, bytes] | None = None
) -> dict[bytes, datetime]:
    """Return the snapshots that branches and tags left by these updates, each with the last time when one left it.

    These are the snapshots that a branch named before it was reset or deleted, that a tag named before it was deleted,
    and that were amended. The times are by the clocks of the machines that made these changes. An expiration that
    deletes references does not name them in the ops log. Resets and deletions of references in `besides` do not count.
    `updates`: newest first, as `updates_since` yields them. `parents`: the result of `former_parents`. A branch left
    each of these parents when the child was committed.
    """
    left: dict[bytes, datetime] = {}
    for update in updates:
        tips = [update.previous_snapshot_id] if _left_by(update) not in besides else []
        if parents and update.new_snapshot_id is not None:
            tips.append(parents.get(update.new_snapshot_id))
        for tip in tips:
            if tip is not None:
                left.setdefault(tip, datetime_of(update.updated_at, tip))
    return left


def _left_by(update: Update) -> Reference | None:
    """Return the reference that the update reset or deleted, as it was before; None: it did neither."""
    kind = _RESET_OR_DELETED.get(update.kind)
    if kind is None or update.name is None or update.previous_snapshot_id is None:
        return None
    return Reference(kind, update.name, update.previous_snapshot_id)


def updates_since(reader: ObjectReader, repo: Repo, cutoff: datetime) -> Iterator[Update]:
    """Yield the updates at or after `cutoff` (UTC), newest first. Backups that have only older updates are not read.

    Errors: SourceError when a backup with such an update no longer exists; CorruptFile when it is corrupt.
    """
    since = micros_of(cutoff)
    name: str | None = None
    while True:
        top, *older = repo.latest_updates
        for update in (replace(top, backup_path=name), *older):  # see `ops_log`
            if update.updated_at < since:
                return
            yield update
        name = repo.repo_before_updates
        if name is None:
            return
        before = backup(reader, name)
        if before is None:
            known_since = datetime_of(repo.latest_updates[-1].updated_at, b"")
            raise SourceError(
                f"{reader.describe(OVERWRITTEN + name)}: this backup of the repo object no longer exists. It has the "
                f"entries of the ops log before {known_since:%Y-%m-%d %H:%M:%S} UTC. The entries since "
                f"{cutoff:%Y-%m-%d %H:%M:%S} UTC must be read: they name the snapshots that branches and tags left "
                "within `grace`, and sessions may still be open on these. Nothing was changed or deleted. Restore this "
                f"backup. Or plan again when {known_since:%Y-%m-%d %H:%M:%S} UTC is longer ago than `grace`."
            )
        repo = before


def references_moved(updates: Iterable[Update], history: History) -> dict[tuple[RefKind, str], datetime]:
    """Return the branches and tags that these updates made or moved, with the last time of each.

    A commit moves a branch, too, but then the tip itself is young. An upgrade counts as a move of every reference: the
    entries that it reconstructs do not have the times of earlier changes. `updates`: newest first.
    """
    moved: dict[tuple[RefKind, str], datetime] = {}
    for update in updates:
        kind, at = _MADE_OR_MOVED.get(update.kind), datetime_of(update.updated_at, b"")
        if kind is not None and update.name is not None:
            moved.setdefault((kind, update.name), at)
        if update.kind is UpdateKind.REPO_MIGRATED:
            moved = {(one.kind, one.name): at for one in history.references()} | moved
    return moved


def former_parents(
    reader: ObjectReader, repo: Repo, updates: Sequence[Update], besides: Collection[bytes] = ()
) -> dict[bytes, bytes]:
    """Return the parents that snapshots had when these updates created them, unless `repo` shows the same parents.

    The keys of the result are the snapshots. A branch was on the parent until the snapshot was committed. Both may have
    been removed from the history since then, or only the parent. If `repo` does not list the parent as removed
    (icechunk 2.0 listed none), a backup from before the removal names it. One backup is read for all snapshots between
    two removals.
    `updates`: newest first, as `updates_since` yields them. `besides`: snapshots that are left out.
    Errors: SourceError when such a backup no longer exists; CorruptFile when it is corrupt.
    """
    listed: dict[bytes, bytes | None] = {child: parent for parent, child in removed_parents(repo)}
    known, changed = dict(listed), False
    found: dict[bytes, bytes] = {}
    name: str | None = None
    for update in updates:
        if update.kind in _REMOVALS:
            # a backup from after this removal may name other parents than the snapshots had at their commits
            known, changed = dict(listed), True
        name = update.backup_path or name  # the entries that an upgrade reconstructs have no backups of their own
        child = update.new_snapshot_id
        if child is None or child in besides or _has_its_parent(repo, child, listed, changed=changed):
            continue
        if child not in known and name is not None:
            known |= _parents(_backup_with(reader, name, child, update))
        parent = known.setdefault(child, None)
        if parent is not None and not (child in repo.snapshots and repo.snapshots[child].parent_id == parent):
            found[child] = parent
    return found


def _has_its_parent(repo: Repo, child: bytes, listed: Container[bytes], *, changed: bool) -> bool:
    """Return whether `repo` shows the parent that `child` had at its commit.

    `changed`: whether a removal came after the commit. A removal gives a snapshot whose parent it removes another one.
    """
    return child in repo.snapshots and (child in listed or not changed)


def _parents(repo: Repo) -> dict[bytes, bytes | None]:
    """Return the parent that each snapshot in `repo` had before any removal, as far as `repo` shows it."""
    return {one.id: one.parent_id for one in repo.snapshots.values()} | {
        child: parent for parent, child in removed_parents(repo)
    }


def _backup_with(reader: ObjectReader, name: str, child: bytes, update: Update) -> Repo:
    found = backup(reader, name)
    if found is None:
        at = datetime_of(update.updated_at, child)
        raise SourceError(
            f"{reader.describe(OVERWRITTEN + name)}: this backup of the repo object no longer exists. It names the "
            f"parent of the snapshot {encode_id(child)}, which was committed at {at:%Y-%m-%d %H:%M:%S} UTC, before an "
            "expiration or a collection changed the history. The parent was a tip within `grace`, and sessions may "
            "still be open on it. Nothing was changed or deleted. Restore this backup. Or plan again when "
            f"{at:%Y-%m-%d %H:%M:%S} UTC is longer ago than `grace`."
        )
    return found


def backup(reader: ObjectReader, name: str) -> Repo | None:
    """Return a backup of the repo object; None if it no longer exists."""
    path = f"{OVERWRITTEN}{name}"
    try:
        return read_repo(reader.read(path), reader.describe(path))
    except ObjectMissing:
        return None
