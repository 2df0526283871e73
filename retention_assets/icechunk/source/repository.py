"""Reads the current state of an Icechunk repository: its format, references, snapshots, and when each was stored.

This module changes nothing. Every unreadable file is an error: if a reference were skipped, the snapshots that only
this reference reaches would be deleted.
Source: docs/icechunk-formats.md, "Paths" and "Repo object".
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import batched
from typing import Literal, NamedTuple

from retention_assets.core.heads import moved_on_by_commits
from retention_assets.errors import CorruptFile, ObjectMissing, SourceError
from retention_assets.icechunk.formats.ids import decode_id, encode_id, is_canonical
from retention_assets.icechunk.formats.model import MAIN, Repo, UpdateKind
from retention_assets.icechunk.formats.model import Snapshot as SnapshotFile
from retention_assets.icechunk.formats.paths import (
    OVERWRITTEN,
    REFERENCES,
    REPO,
    SNAPSHOTS,
    read_reference,
    reference_file,
)
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.icechunk.rules.snapshots import (
    History,
    Reference,
    Snapshot,
    datetime_of,
    history_of,
    reachable,
    require_complete,
)
from retention_assets.icechunk.source.ops_log import backup, ops_log
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader
from retention_assets.policy.rules import RefKind

_READINGS = 10  # the most readings of the references, until no file changes during a reading
_FEWEST = 4  # from this reading on, changes during a reading are allowed if only commits made them
_ATTEMPTS = 3  # the most tries, until only commits made the changes
_AT_ONCE = 16  # files read at once


@dataclass(frozen=True, slots=True)
class References:
    """The snapshot that each branch, live tag and deleted tag names; None if a deleted tag has no readable file.

    `replaced`: branches and tags that had another snapshot in the reading before, with that snapshot. It is empty if no
    file changed during the reading.
    """

    branches: Mapping[str, bytes]
    tags: Mapping[str, bytes]
    deleted_tags: Mapping[str, bytes | None]
    paths: tuple[str, ...]  # of all files below `refs/`
    replaced: frozenset[tuple[RefKind, str, bytes]] = frozenset()

    def _heads(self) -> set[tuple[RefKind, str, bytes]]:
        branches: set[tuple[RefKind, str, bytes]] = {("branch", *one) for one in self.branches.items()}
        return branches | {("tag", *one) for one in self.tags.items()}

    def after(self, earlier: "References") -> "References":
        """Return these references, with what they replaced in an earlier reading."""
        return replace(self, replaced=frozenset(earlier._heads() - self._heads()))

    def only_moved_on(self, snapshots: Mapping[bytes, Snapshot], known: Collection[bytes]) -> bool:
        """Return whether only new commits, which are not in `known`, replaced the earlier snapshots.

        Then no other branch or tag can have taken over an earlier snapshot without being seen: see `read_references`.
        """

        def parent(at: bytes) -> bytes | None:
            return snapshots[at].parent_id if at in snapshots else None

        return all(
            kind == "branch" and name in self.branches and moved_on_by_commits(self.branches[name], tip, parent, known)
            for kind, name, tip in self.replaced
        )


def read_references(reader: ObjectReader) -> References:
    """Return all branches, live tags and deleted tags.

    Icechunk skips a tag that it cannot read, and its garbage collection then deletes the snapshots that only this tag
    reaches. Here an unreadable tag is an error that ends the run. Source: docs/icechunk.md, "Where it differs from
    icechunk".

    Someone can create a tag at a snapshot, and then delete or reset the branch that named it. If this happens while the
    files are read, the snapshot can be missed. So the files are listed before and after, and read again if one has
    changed. On a busy repository, a file may change during each reading. Then `replaced` has the earlier snapshots.
    `References.only_moved_on` checks that only commits replaced them.

    Errors: CorruptFile for a file without the id of a snapshot, and for a file below `refs/` that is no reference;
    SourceError if references come and go in each reading.
    """
    before, earlier = _listing(reader), None
    for number in range(1, _READINGS + 1):
        references, is_exact = _read(reader, before)
        listing = _listing(reader)
        if references and is_exact and listing == before:
            return references
        same_names = [one.path for one in listing] == [one.path for one in before]
        if references and earlier and same_names and earlier.paths == references.paths and number >= _FEWEST:
            return references.after(earlier)
        before, earlier = listing, references
    raise _busy(reader)


def _busy(reader: ObjectReader) -> SourceError:
    return SourceError(
        f"{reader.describe(REFERENCES)}: branches or tags were created, deleted or reset while they were read, again "
        "and again. Nothing was changed or deleted. Run again."
    )


def _listing(reader: ObjectReader) -> list[ObjectMetadata]:
    return sorted(reference_files(reader), key=lambda one: one.path)


def _read(reader: ObjectReader, listing: Sequence[ObjectMetadata]) -> tuple[References | None, bool]:
    """Return the references in the listed files, and whether all files are still the listed ones.

    None: the file of a branch or of a live tag does not exist any more.
    """
    files = [reference_file(one.path) for one in listing]
    deleted = {one.name for one in files if one.tombstone}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        contents = list(pool.map(partial(_content, reader), listing))
    branches: dict[str, bytes] = {}
    tags: dict[str, bytes] = {}
    named_by_deleted: dict[str, bytes | None] = dict.fromkeys(deleted)
    for file, one, (content, _) in zip(files, listing, contents, strict=True):
        where = reader.describe(one.path)
        if file.tombstone:
            continue
        if file.kind == "tag" and file.name in deleted:
            with suppress(CorruptFile):  # a deleted tag protects no snapshot
                named_by_deleted[file.name] = None if content is None else read_reference(content, where)
        elif content is None:
            return None, False
        else:
            (branches if file.kind == "branch" else tags)[file.name] = read_reference(content, where)
    paths = tuple(one.path for one in listing)
    return References(branches, tags, named_by_deleted, paths), all(is_listed for _, is_listed in contents)


def _content(reader: ObjectReader, listed: ObjectMetadata) -> tuple[bytes | None, bool]:
    """Return the content of a file, and whether it is the listed one; None: the file does not exist any more."""
    try:
        content, metadata = reader.read_with_metadata(listed.path)
    except ObjectMissing:
        return None, False
    return content, listed.e_tag in (None, metadata.e_tag)


def reference_files(reader: ObjectReader) -> Iterator[ObjectMetadata]:
    """Yield path, size, time and ETag of every file below `refs/`, of any kind.

    Some tools write an empty object with a slash at the end of its key for a folder. It is no reference.
    """
    for batch in reader.list(REFERENCES):
        for row in batch.to_pylist():
            if row["size"] == 0 and row["path"].endswith("/"):
                continue
            yield ObjectMetadata(row["path"], row["size"], row["last_modified"], row["e_tag"])


def references_written_since(reader: ObjectReader, cutoff: datetime) -> dict[tuple[RefKind, str], datetime]:
    """Return the branches and tags of format 1 whose files were written since `cutoff`, with these times."""
    files = ((reference_file(one.path), one.last_modified) for one in reference_files(reader))
    return {(file.kind, file.name): at for file, at in files if at >= cutoff and not file.tombstone}


_BATCH = 1_000  # snapshot files queued for reading


@dataclass(frozen=True, slots=True)
class IcechunkState:
    """The state of a repository at one point in time.

    `stored` has the time at which the store wrote each snapshot file. The files are listed before references are read,
    so a file that is written in between is not in `stored`, and is kept. `taken_at` is a time before all reads.
    `left` has the snapshots that references have left, and `moved` the branches and tags that were made or moved, with
    the times: see `icechunk.sweep.left_tips`. `not_before` has a time for each snapshot that cannot be older, although
    its writer says so: see `icechunk.sweep.true_ages`. Only a plan fills these three.
    """

    format: Literal[1, 2]
    history: History
    repo: Repo | None  # format 2
    deleted_tags: frozenset[str]
    stored: Mapping[bytes, datetime]
    taken_at: datetime
    left: Mapping[bytes, datetime] = field(default_factory=dict)
    moved: Mapping[Reference, datetime] = field(default_factory=dict)
    not_before: Mapping[bytes, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RepoObject:
    """The repo object of format 2, read with one request: its bytes, its ETag and its decoded content."""

    content: bytes
    etag: str
    repo: Repo


class _Listed(NamedTuple):
    at: datetime
    etag: str | None


class IcechunkSource:
    """Reads the state of the repository in one store.

    A later read of format 1 fetches only the snapshot files that are new or have another ETag. `on_snapshot_file` is
    called with each snapshot file that is read.
    """

    def __init__(
        self,
        access: StoreAccess,
        clock: Callable[[], datetime],
        on_snapshot_file: Callable[[SnapshotFile], None] | None = None,
    ) -> None:
        self._reader = ObjectReader(access)
        self._url = access.url
        self._clock = clock
        self._on_snapshot_file = on_snapshot_file
        self._known: dict[bytes, tuple[str | None, Snapshot]] = {}  # snapshots with the ETags of their files

    def state(self) -> IcechunkState:
        """Return the current state.

        A repository with a repo object has format 2, even if an upgrade left reference files of format 1.
        Errors: SourceError when there is no repository, when its format changes while it is read, and as
        `require_upgrade_complete` and `require_complete`; CorruptFile for a corrupt file; errors of the store.
        """
        taken_at = self._clock()
        listed = self._listed()
        stored = {snapshot_id: one.at for snapshot_id, one in listed.items()}
        found = self.repo_object()
        if found is None:
            self._require_no_backup()
            references, snapshots = self._references_and_snapshots(listed)
            self.require_still_format_1()
            history = History(snapshots, references.branches, references.tags)
            state = IcechunkState(1, history, None, frozenset(references.deleted_tags), stored, taken_at)
        else:
            self.require_upgrade_complete(found.repo)
            history = history_of(found.repo)
            state = IcechunkState(2, history, found.repo, found.repo.deleted_tags, stored, taken_at)
        require_complete(state.history)
        return state

    def repo_object(self) -> RepoObject | None:
        """Return the repo object, or None when there is none. Errors: CorruptFile, and errors of the store."""
        try:
            content, metadata = self._reader.read_with_metadata(REPO)
        except ObjectMissing:
            return None
        where = self._reader.describe(REPO)
        if not metadata.e_tag:
            raise SourceError(
                f"{where}: the store returns no ETag for this object. Nothing was changed. Copy the repository to a "
                "store that returns ETags."
            )
        return RepoObject(content, metadata.e_tag, read_repo(content, where))

    def references(self) -> References:
        """Return the references of format 1. Errors: SourceError when there is no branch `main`; CorruptFile."""
        references = read_references(self._reader)
        if MAIN in references.branches:
            return references
        files = (path for batch in self._reader.list_direct() for path in batch["path"].to_pylist())
        found = [*self._reader.prefixes(), *files]
        raise SourceError(
            f"{self._url}: there is no Icechunk repository: neither `repo` (format 2) nor refs/branch.main/ref.json "
            f"(format 1) exists. Found: {', '.join(found[:10]) or 'nothing'}. Nothing was changed. Check `storage`."
        )

    def _references_and_snapshots(self, listed: Mapping[bytes, _Listed]) -> tuple[References, Mapping[bytes, Snapshot]]:
        for _ in range(_ATTEMPTS):
            references = self.references()
            snapshots = self._snapshots(listed, references)
            if references.only_moved_on(snapshots, listed.keys()):
                return references, snapshots
        raise _busy(self._reader)

    def _require_no_backup(self) -> None:
        """Refuse a repository without a repo object but with backups of one. An upgrade may have left old references.

        Errors: SourceError.
        """
        backups = [path for batch in self._reader.list_direct(OVERWRITTEN) for path in batch["path"].to_pylist()]
        if names := sorted(path for path in backups if path.startswith(f"{OVERWRITTEN}{REPO}.")):
            raise SourceError(
                f"{self._url}: the object `repo` of format 2 is missing, and {names[0]} is its newest backup. Files of "
                "references of format 1 are out of date. Nothing was changed or deleted. Restore `repo`. Only if there "
                "is no copy of it, copy this backup to `repo`: the last change of the repository is then lost."
            )

    def parents_in_files(self, snapshots: Collection[bytes]) -> Mapping[bytes, bytes | None]:
        """Return the parents that the files of these snapshots of format 1 name now; missing files are left out.

        Only files that were changed since `state` are read again. Errors: CorruptFile; errors of the store.
        """
        listed = self._listed()
        known = {one: self._known[one] for one in snapshots if one in self._known and one in listed}
        same = {one: snapshot for one, (etag, snapshot) in known.items() if etag and listed[one].etag == etag}
        changed = self._files(sorted(set(snapshots) - same.keys()))
        return {
            **{one: snapshot.parent_id for one, snapshot in same.items()},
            **{file.id: file.parent_id for file, _ in changed},
        }

    def require_still_format_1(self) -> None:
        """Refuse a repository that was upgraded while it was read: the upgrade may have removed references."""
        if self.repo_object() is not None:
            raise SourceError(
                f"{self._url}: the repository was upgraded to format 2 while it was read. Nothing was changed or "
                f"deleted. Run again."
            )

    def _files(self, ids: Iterable[bytes]) -> Iterator[tuple[SnapshotFile, str | None]]:
        """Yield the decoded files of any number of snapshots with their ETags; missing files are left out."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for some in batched(ids, _BATCH):
                yield from (one for one in pool.map(self._file, some) if one is not None)

    def _file(self, snapshot_id: bytes) -> tuple[SnapshotFile, str | None] | None:
        path = f"{SNAPSHOTS}{encode_id(snapshot_id)}"
        try:
            content, metadata = self._reader.read_with_metadata(path)
        except ObjectMissing:
            return None
        return read_snapshot(content, self._reader.describe(path)), metadata.e_tag

    def _listed(self) -> dict[bytes, _Listed]:
        """Return the time and ETag of each snapshot file; ignore files whose names are not Icechunk ids."""
        found = {}
        for batch in self._reader.list(SNAPSHOTS):
            columns = (batch.column(name).to_pylist() for name in ("path", "last_modified", "e_tag"))
            for path, at, etag in zip(*columns, strict=True):
                if is_canonical(name := path.removeprefix(SNAPSHOTS)):
                    found[decode_id(name)] = _Listed(at, etag)
        return found

    def _snapshots(self, listed: Mapping[bytes, _Listed], references: References) -> dict[bytes, Snapshot]:
        """Return every listed snapshot, and every reachable snapshot that was written after the listing."""
        self._known = {
            snapshot_id: (etag, snapshot)
            for snapshot_id, (etag, snapshot) in self._known.items()
            if etag is not None and snapshot_id in listed and listed[snapshot_id].etag == etag
        }
        found = {snapshot_id: snapshot for snapshot_id, (_, snapshot) in self._known.items()}
        requested = set(found)
        wanted = {*listed, *self._referenced(found, references)} - requested
        while wanted:
            for file, etag in self._files(sorted(wanted)):
                found[file.id] = self._checked(file)
                if self._on_snapshot_file:
                    self._on_snapshot_file(file)
                self._known[file.id] = (etag, found[file.id])
            requested |= wanted
            wanted = self._referenced(found, references) - requested
        return found

    def _referenced(self, found: Mapping[bytes, Snapshot], references: References) -> set[bytes]:
        """Return the snapshots that references name, and the parents of reachable snapshots, even if not in `found`."""
        history = History(found, references.branches, references.tags)
        named = {found[snapshot_id].parent_id for snapshot_id in reachable(history, history.tips())} | history.tips()
        return {one for one in named if one is not None}

    def _checked(self, file: SnapshotFile) -> Snapshot:
        if file.spec_version != 1:
            raise SourceError(
                f"{self._url}: the repository has format 1, but snapshot {encode_id(file.id)} has format "
                f"{file.spec_version}, which does not name its parent. Nothing was changed or deleted. Run again. If "
                "the error persists, the object `repo` of format 2 is missing: restore it."
            )
        return Snapshot(file.id, file.parent_id, datetime_of(file.flushed_at, file.id))

    def require_upgrade_complete(self, repo: Repo, removed: Collection[bytes] = ()) -> None:
        """Refuse references of format 1 that name an existing snapshot which `repo` does not list and never listed.

        A writer with an old icechunk version committed such a snapshot during an upgrade or afterwards. A collection
        would delete the snapshot, because `repo` does not list it. The time of the reference's file does not matter: a
        copied repository has new times, and an upgrade can take hours. A snapshot that `repo` listed earlier was
        released or dropped since then, and its reference is a leftover.
        `removed`: snapshots that an edit is about to remove. The check treats them as removed from `repo`.
        """
        left = read_references(self._reader)
        named = History({}, left.branches, left.tags).references()
        listed = repo.snapshots.keys() - set(removed)
        unlisted = [
            one for one in named if one.tip not in listed and self._reader.find(f"{SNAPSHOTS}{encode_id(one.tip)}")
        ]
        once_listed = _once_listed(self._reader, repo) if unlisted else frozenset()
        for reference in unlisted:
            where = self._reader.describe(reference.address)
            if reference.tip in once_listed:
                continue
            if reference.tip in repo.snapshots:
                raise SourceError(
                    f"{where}: an upgrade to format 2 left this reference, and the plan removes its snapshot "
                    f"{encode_id(reference.tip)} from the history. The ops log no longer reaches back to the upgrade. "
                    "So after the removal, this reference would look as if a writer with an old icechunk version had "
                    "written it. Nothing was changed or deleted. Remove the files that the upgrade left: "
                    "`retention icechunk REPO upgrade`. Then run the same command again."
                )
            raise SourceError(
                f"{where}: somebody may have written this reference with an old icechunk version during or after the "
                f"upgrade to format 2. The repo object does not list its snapshot {encode_id(reference.tip)}, and its "
                "ops log does not show that it ever did. Nothing was changed or deleted. Stop that writer. If the "
                "upgrade was interrupted, run it again: `retention icechunk REPO upgrade`. Otherwise copy the data "
                "of the snapshot into another repository with that version of icechunk. Then, or if there is no such "
                f"writer, delete the object {where}."
            )

    def repo_after_upgrade(self, repo: Repo) -> Repo | None:
        """Return the repo object as the upgrade to format 2 wrote it; None if no backup has it any more."""
        for update in ops_log(self._reader, repo):
            if update.kind is UpdateKind.REPO_MIGRATED:
                return repo if update.backup_path is None else backup(self._reader, update.backup_path)
        return None


def _once_listed(reader: ObjectReader, repo: Repo) -> frozenset[bytes]:
    """Return the snapshots that the repo object listed at some time, as far as its ops log and its backups show.

    An upgrade lists the snapshots of all references of format 1. The repo object that the upgrade wrote is the current
    one or a backup. If this backup was deleted, entries of the ops log still name most of these snapshots.
    """
    listed: set[bytes] = set()
    for update in ops_log(reader, repo):
        if update.new_snapshot_id is not None:
            listed.add(update.new_snapshot_id)
        if update.kind is UpdateKind.REPO_MIGRATED:
            migrated = repo if update.backup_path is None else backup(reader, update.backup_path)
            listed |= migrated.snapshots.keys() if migrated else set()
    return frozenset(listed)
