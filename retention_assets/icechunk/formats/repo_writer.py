"""Writes the `repo` object of a repository of format 2.

The writer checks only the form of entries of the ops log. The code that makes a change decides which entry it adds.
Source: docs/icechunk-formats.md, "Repo object" and "Edits of the repo object".
"""

import struct
from collections.abc import Mapping, Set

from retention_assets.icechunk.formats.envelope import FileType, seal
from retention_assets.icechunk.formats.flat_writer import Fields, Scalar, Structs, Value, write_flatbuffer
from retention_assets.icechunk.formats.model import MAIN, Repo, RepoStatus, SnapshotInfo, Update
from retention_assets.icechunk.formats.repo_reader import (
    ROOT_PARENT,
    UPDATE_FIELDS,
    UPDATE_NUMBERS,
    RefSlot,
    RepoSlot,
    SnapshotSlot,
    StatusSlot,
    UpdateSlot,
    read_repo,
)
from retention_assets.icechunk.formats.snapshots import ItemSlot


def write_repo(repo: Repo) -> bytes:
    """Return the file content for `repo`, after reading it back and comparing the result with `repo`.

    Raises:
        ValueError: a parent or the tip of a reference is not among the snapshots, `main` or the ops log is missing, or
            a value does not fit the file or would be read back differently.
    """
    _require_complete(repo)
    try:
        body = write_flatbuffer(_repo_fields(repo))
    except struct.error as error:
        raise ValueError(f"a number does not fit the repo object ({error})") from error
    content = seal(body, FileType.REPO, spec_version=2)
    if read_repo(content, "the repo object to be written") != repo:
        raise ValueError("the repo object to be written would be read back differently")
    return content


def _require_complete(repo: Repo) -> None:
    known = repo.snapshots.keys()
    if any(its_id != snapshot.id for its_id, snapshot in repo.snapshots.items()):
        raise ValueError("a snapshot is listed under another id than its own")
    if not {snapshot.parent_id for snapshot in repo.snapshots.values()} - {None} <= known:
        raise ValueError("the parent of a snapshot is not in the repo object")
    if not {*repo.branches.values(), *repo.tags.values()} <= known:
        raise ValueError("a branch or tag names a snapshot that is not in the repo object")
    if MAIN not in repo.branches or not repo.latest_updates:
        raise ValueError("a repo object has a branch `main` and an ops log")


def _repo_fields(repo: Repo) -> Fields:
    index = {its_id: position for position, its_id in enumerate(sorted(repo.snapshots))}
    fields: dict[int, Value] = {
        RepoSlot.SPEC_VERSION: Scalar("B", repo.spec_version),
        RepoSlot.TAGS: _references(repo.tags, index),
        RepoSlot.BRANCHES: _references(repo.branches, index),
        RepoSlot.DELETED_TAGS: sorted(repo.deleted_tags),
        RepoSlot.SNAPSHOTS: [_snapshot(repo.snapshots[its_id], index) for its_id in index],
        RepoSlot.STATUS: _status(repo.status),
        RepoSlot.METADATA: _items(repo.metadata),
        RepoSlot.LATEST_UPDATES: [_update(update) for update in repo.latest_updates],
    }
    optional = {
        RepoSlot.REPO_BEFORE_UPDATES: repo.repo_before_updates,
        RepoSlot.CONFIG: repo.config,
        RepoSlot.ENABLED_FLAGS: _flags(repo.enabled_feature_flags),
        RepoSlot.DISABLED_FLAGS: _flags(repo.disabled_feature_flags),
        RepoSlot.EXTRA: repo.extra,
    }
    return fields | {slot: value for slot, value in optional.items() if value is not None}


def _references(references: Mapping[str, bytes], index: Mapping[bytes, int]) -> list[Fields]:
    return [
        {RefSlot.NAME: name, RefSlot.SNAPSHOT_INDEX: Scalar("I", index[its_id])}
        for name, its_id in sorted(references.items())
    ]


def _snapshot(snapshot: SnapshotInfo, index: Mapping[bytes, int]) -> Fields:
    parent = ROOT_PARENT if snapshot.parent_id is None else index[snapshot.parent_id]
    fields: dict[int, Value] = {
        SnapshotSlot.ID: Scalar("12s", snapshot.id),
        SnapshotSlot.PARENT_OFFSET: Scalar("i", parent),
        SnapshotSlot.FLUSHED_AT: Scalar("Q", snapshot.flushed_at),
        SnapshotSlot.MESSAGE: snapshot.message,
        SnapshotSlot.METADATA: _items(snapshot.metadata),
    }
    if pruned := snapshot.pruned_ancestor_tx_logs:
        fields[SnapshotSlot.PRUNED_ANCESTOR_TX_LOGS] = Structs(len(pruned), b"".join(pruned))
    return fields


def _items(metadata: Mapping[str, bytes]) -> list[Fields]:
    return [{ItemSlot.NAME: name, ItemSlot.VALUE: metadata[name]} for name in sorted(metadata)]


def _flags(flags: Set[int] | None) -> Structs | None:
    return None if flags is None else Structs(len(flags), struct.pack(f"<{len(flags)}H", *sorted(flags)))


def _update(update: Update) -> Fields:
    fields: dict[int, Value] = {
        UpdateSlot.KIND: Scalar("B", update.kind),
        UpdateSlot.VALUE: {
            slot: _update_field(update, field) for slot, field in enumerate(UPDATE_FIELDS.get(update.kind, ()))
        },
        UpdateSlot.UPDATED_AT: Scalar("Q", update.updated_at),
    }
    if update.backup_path is not None:
        fields[UpdateSlot.BACKUP_PATH] = update.backup_path
    return fields


def _update_field(update: Update, field: str) -> Value:
    if field == "flag_is_set":
        return Scalar("?", update.flag_value is not None)
    value = getattr(update, field)
    if field == "flag_value":
        return Scalar("?", bool(value))
    if kind := UPDATE_NUMBERS.get(field):
        return Scalar(kind.format[1:], value)
    if field == "status":
        return _status(value)
    return str(value) if field == "name" else Scalar("12s", value)


def _status(status: RepoStatus) -> Fields:
    fields: dict[int, Value] = {
        StatusSlot.AVAILABILITY: Scalar("B", status.availability),
        StatusSlot.SET_AT: Scalar("Q", status.set_at),
    }
    if status.limited_availability_reason is not None:
        fields[StatusSlot.REASON] = status.limited_availability_reason
    return fields
