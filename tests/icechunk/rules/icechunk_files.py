"""Writes histories as files that icechunk reads: in format 1 a file per snapshot and reference, in format 2 one object.

icechunk writes the time of the clock into its files. So its files serve as templates, with other ids and times.
"""

import shutil
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from retention_assets.icechunk.formats.envelope import FileType, open_file, seal
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.formats.paths import ReferenceFile, read_reference, write_reference
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.icechunk.rules.snapshots import History, Snapshot, datetime_of, micros_of
from tests.icechunk_repositories import INITIAL_SNAPSHOT, create_repository, open_repository

BEGINNING = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Template:
    """A snapshot file of icechunk, and the positions of its id, parent, time and message."""

    body: bytes
    snapshot_id: bytes
    parent_id: bytes | None
    flushed_at: int

    def filled(self, snapshot: Snapshot) -> bytes:
        body = _replaced(self.body, self.snapshot_id, snapshot.snapshot_id)
        if self.parent_id is not None and snapshot.parent_id is not None:
            body = _replaced(body, self.parent_id, snapshot.parent_id)
        times = (struct.pack("<Q", self.flushed_at), struct.pack("<Q", micros_of(snapshot.flushed_at)))
        return seal(_replaced(body, *times), FileType.SNAPSHOT, spec_version=1)


@dataclass(frozen=True)
class Templates:
    root: Template
    child: Template


def _replaced(body: bytes, old: bytes, new: bytes) -> bytes:
    assert body.count(old) == 1
    return body.replace(old, new)


def templates_of(directory: Path) -> Templates:
    """Create a repository of format 1 with one commit in the empty `directory`, and return its files as templates."""
    child = create_repository(directory, 1).writable_session("main").commit("a commit", allow_empty=True)
    return Templates(_template(directory, encode_id(INITIAL_SNAPSHOT)), _template(directory, child))


def _template(directory: Path, name: str) -> Template:
    content = (directory / "snapshots" / name).read_bytes()
    snapshot = read_snapshot(content, name)
    return Template(
        open_file(content, FileType.SNAPSHOT, name)[1], snapshot.id, snapshot.parent_id, snapshot.flushed_at
    )


def write_v1(directory: Path, history: History, templates: Templates) -> None:
    """Replace the content of `directory` by a repository of format 1."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "snapshots").mkdir(parents=True)
    for snapshot_id, snapshot in history.snapshots.items():
        template = templates.root if snapshot.parent_id is None else templates.child
        (directory / "snapshots" / encode_id(snapshot_id)).write_bytes(template.filled(snapshot))
    for reference in history.references():
        path = directory / ReferenceFile(reference.kind, reference.name).path
        path.parent.mkdir(parents=True)
        path.write_bytes(write_reference(reference.tip))


def read_v1(directory: Path) -> History:
    """Return the history of the repository in `directory`, without deleted tags."""
    snapshots = {}
    for path in (directory / "snapshots").iterdir():
        one = read_snapshot(path.read_bytes(), path.name)
        snapshots[one.id] = Snapshot(one.id, one.parent_id, datetime_of(one.flushed_at, one.id))
    references: dict[str, dict[str, bytes]] = {"branch": {}, "tag": {}}
    for path in (directory / "refs").glob("*/ref.json"):
        if not path.with_name("ref.json.deleted").exists():
            kind, name = path.parent.name.split(".", 1)
            references[kind][name] = read_reference(path.read_bytes(), str(path))
    return History(snapshots, references["branch"], references["tag"])


def repo_of(history: History) -> Repo:
    """Return a repo object with `history`."""
    snapshots = {
        snapshot_id: SnapshotInfo(snapshot_id, one.parent_id, micros_of(one.flushed_at), "a commit")
        for snapshot_id, one in history.snapshots.items()
    }
    made = micros_of(BEGINNING)
    return Repo(
        branches=dict(history.branches),
        tags=dict(history.tags),
        snapshots=snapshots,
        status=RepoStatus(Availability.ONLINE, made),
        latest_updates=(Update(UpdateKind.REPO_INITIALIZED, made),),
    )


def write_v2(directory: Path, repo: Repo) -> None:
    """Replace the content of `directory` by the repo object of a repository of format 2."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "repo").write_bytes(write_repo(repo))


def read_v2(directory: Path) -> Repo:
    return read_repo((directory / "repo").read_bytes(), "repo")


def expire(directory: Path, older_than: datetime, *, branches: bool, tags: bool) -> set[bytes]:
    """Let icechunk expire snapshots; return their ids."""
    returned = open_repository(directory).expire_snapshots(
        older_than, delete_expired_branches=branches, delete_expired_tags=tags
    )
    return {decode_id(text) for text in returned}
