"""Upgrades a repository from format 1 to format 2: writes the repo object, then deletes references and configuration.

The repository has format 2 as soon as the repo object exists, even if some files of format 1 are left.
Source: docs/icechunk-formats.md, "Upgrade".
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from retention_assets.core.amounts import counted
from retention_assets.errors import CorruptFile, GuardRefused, ObjectMissing, SourceError, StoreError
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Repo, Snapshot, SnapshotInfo, UpdateKind
from retention_assets.icechunk.formats.paths import CONFIG, REPO, SNAPSHOTS, TOMBSTONE
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.values import Json, read_flexbuffer, upgraded_configuration, upgraded_metadata
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.icechunk.rules.upgrade import upgraded
from retention_assets.icechunk.source.repository import (
    IcechunkSource,
    References,
    RepoObject,
    read_references,
    reference_files,
)
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.clock import not_ahead_of_store
from retention_assets.objectstore.conditional import BeforeWrite
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget

_AT_ONCE = 16  # files removed at once


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The result of an upgrade or of a dry run."""

    snapshots: int
    branches: int
    tags: int
    left_out: int  # snapshots that no reference reaches
    removed: tuple[str, ...]  # addresses of the old files that were deleted; in a dry run, that would be deleted
    was_half_done: bool  # whether an interrupted upgrade had already written the repo object


def upgrade(
    access: StoreAccess,
    clock: Callable[[], datetime],
    *,
    dry_run: bool,
    before_write: BeforeWrite = lambda: None,
) -> Upgraded:
    """Upgrade a repository to format 2, or finish an interrupted upgrade. A dry run writes nothing.

    Stop all writers of format 1 first. If one of them wrote to the repository since this upgrade or the interrupted one
    began, the upgrade is refused. If nobody has edited the repo object, and no old file is gone, the object is then
    removed, and the repository has format 1 again. The caller holds the repository's lease. `before_write`: as
    for `ObjectWriter`.
    Errors: GuardRefused when the repository has format 2 already, when somebody wrote to it meanwhile, and as
    `upgraded`; errors of `IcechunkSource.state`; StoreError when an old file was not deleted.
    """
    writer = None if dry_run else ObjectWriter(access, before_write)
    old = _old_files(access)  # listed before they are read: a file that changes later has another ETag, and stays
    source = IcechunkSource(access, clock)
    found = source.repo_object()
    if found and not old:
        raise GuardRefused(
            f"{access.url}: the repository has format 2 already. Nothing was changed. No action is needed."
        )
    if found:
        _require_nobody_wrote_before(access, source, found, old, writer)
    repo, left_out = (found.repo, 0) if found else _new_repo_object(access, clock, writer)
    if writer:
        _remove(writer, old)
    counts = (len(repo.snapshots), len(repo.branches), len(repo.tags), left_out)
    return Upgraded(*counts, removed=tuple(one.path for one in old), was_half_done=found is not None)


def _new_repo_object(
    access: StoreAccess, clock: Callable[[], datetime], writer: ObjectWriter | None
) -> tuple[Repo, int]:
    """Build the repo object from the files of format 1, and write it; without a writer, it is not written.

    Return the object, and the number of snapshots that it leaves out.
    """
    snapshots: dict[bytes, SnapshotInfo] = {}
    source = IcechunkSource(access, clock, lambda file: snapshots.update({file.id: _upgraded_snapshot(file)}))
    references, config = source.references(), _configuration(ObjectReader(access))
    history = History(source.state().history.snapshots, references.branches, references.tags)
    source.require_still_format_1()
    stored = None if config is None else upgraded_configuration(config, CONFIG)
    repo = upgraded(history, snapshots, references.deleted_tags, stored, not_ahead_of_store(access, clock)())
    if writer:
        if not writer.create(REPO, write_repo(repo)):
            raise GuardRefused(
                f"{access.url}: somebody else upgraded the repository just now. Nothing was changed. Upgrade again to "
                "remove the files of format 1 that are left."
            )
        _require_nobody_wrote(access, source, references, config, repo, writer)
    return repo, len(snapshots) - len(repo.snapshots)


def _upgraded_snapshot(file: Snapshot) -> SnapshotInfo:
    metadata = upgraded_metadata(file.metadata, f"{SNAPSHOTS}{encode_id(file.id)}")
    return SnapshotInfo(file.id, file.parent_id, file.flushed_at, file.message, metadata)


def _configuration(reader: ObjectReader) -> bytes | None:
    try:
        return reader.read(CONFIG)
    except ObjectMissing:
        return None


def _require_nobody_wrote(
    access: StoreAccess,
    source: IcechunkSource,
    before: References,
    config: bytes | None,
    made: Repo,
    writer: ObjectWriter,
) -> None:
    """Refuse the upgrade, and remove the new repo object, if somebody changed a file after it was read for the object.

    The object does not have these changes. The object stays if somebody has already edited it. References,
    configuration and snapshots are compared: an expiration in format 1 gives snapshots other parents, and a collection
    then deletes the files of their old parents.
    """
    try:
        unchanged = source.references() == before and _configuration(ObjectReader(access)) == config
        unchanged = unchanged and _has_parents_of_files(source, made)
    except (CorruptFile, SourceError):  # somebody deleted a reference while it was read, or is writing one
        unchanged = False
    if not unchanged:
        found = source.repo_object()
        raise _undone(access, found if found and found.repo == made else None, writer)


def _has_parents_of_files(source: IcechunkSource, made: Repo) -> bool:
    """Return whether the snapshot files name the same parents as `made`, the object that an upgrade made.

    Missing files are ignored. An expiration is found nevertheless: if it released a snapshot, the file of a younger
    snapshot names another parent.
    """
    parents = {one: snapshot.parent_id for one, snapshot in made.snapshots.items()}
    return source.parents_in_files(parents).items() <= parents.items()


def _require_nobody_wrote_before(
    access: StoreAccess,
    source: IcechunkSource,
    found: RepoObject,
    old: Sequence[DeleteTarget],
    writer: ObjectWriter | None,
) -> None:
    """Refuse to finish an interrupted upgrade if somebody wrote in format 1 during or after it.

    The repo object does not have these changes. If nobody has edited the object, and no old file is gone, the object is
    removed, and the repository has format 1 again. A branch that somebody deleted in format 1 is not noticed, because
    the interrupted upgrade may have deleted its file.
    Errors: GuardRefused; CorruptFile for a configuration that cannot be read; errors of `IcechunkSource.state`, also
    for a snapshot that the repo object does not list.
    """
    repo, reader = found.repo, ObjectReader(access)
    left, config = read_references(reader), _configuration(reader)
    is_changed = _has_other_references(left, repo) or _has_other_configuration(config, repo)
    can_be_undone = (
        repo.latest_updates[0].kind is UpdateKind.REPO_MIGRATED
        and repo.branches.keys() <= left.branches.keys()
        and repo.tags.keys() <= {*left.tags, *left.deleted_tags}
        and (repo.config is None or any(one.path == CONFIG for one in old))
    )
    if can_be_undone and (is_changed or not _has_parents_of_files(source, repo)):
        if writer is None:
            raise GuardRefused(
                f"{access.url}: somebody wrote to the repository in format 1 during or after an interrupted upgrade. "
                "Nothing was changed. Stop all writers of format 1. Then run the same command again without "
                "--dry-run, which undoes the interrupted upgrade."
            )
        raise _undone(access, found, writer)
    source.state()
    made = source.repo_after_upgrade(repo)  # what is not in this object was written in format 1 afterwards
    if made and (_has_other_references(left, made) or _has_other_configuration(config, made)):
        raise _undone(access, None, writer)


def _has_other_references(left: References, made: Repo) -> bool:
    """Return whether the files of references have changes that the repo object `made` does not have."""
    deleted = left.deleted_tags.keys() & made.tags.keys()  # the name of a deleted tag is never used again
    return bool(deleted or left.branches.items() - made.branches.items() or left.tags.items() - made.tags.items())


def _has_other_configuration(config: bytes | None, made: Repo) -> bool:
    """Return whether the configuration file has other settings than the repo object `made`; False: there is no file.

    The interrupted upgrade may have deleted the file.
    """
    if config is None:
        return False
    old = read_flexbuffer(upgraded_configuration(config, CONFIG), CONFIG)
    return made.config is None or not _is_same(old, read_flexbuffer(made.config, REPO))


def _is_same(old: Json, new: Json) -> bool:
    """Return whether a setting is the same in a configuration file, `old`, and in a repo object made from it, `new`.

    An older icechunk version does not write all settings into the file. For a missing setting, icechunk's own upgrade
    writes null or false.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old == new
    return all(
        _is_same(old[name], new.get(name)) if name in old else new[name] in (None, False)
        for name in old.keys() | new.keys()
    )


def _undone(access: StoreAccess, unchanged: RepoObject | None, writer: ObjectWriter | None) -> GuardRefused:
    """Remove the repo object, which does not have what somebody wrote in format 1, and return the refusal.

    `unchanged`: the object as the upgrade wrote it; None: the object stays, because somebody else has edited it, or
    because old files are already deleted.
    """
    if unchanged and writer and writer.remove(REPO, unchanged.etag):
        return GuardRefused(
            f"{access.url}: somebody wrote to the repository in format 1 during the upgrade, so the upgrade was "
            f"undone. No old file was deleted. Stop all writers of format 1, and upgrade again."
        )
    return GuardRefused(
        f"{access.url}: somebody wrote to the repository in format 1 during the upgrade. The upgrade was not undone: "
        "somebody else has already written in format 2, or some old files are already deleted. The remaining old files "
        "were not deleted. Make the changes of format 1 again in format 2: save the snapshots that the old references "
        "name, delete the tags that have a file `refs/tag.NAME/ref.json.deleted`, and save the configuration in "
        f"{CONFIG}. Then remove these files, and upgrade again to remove the other old files."
    )


def _old_files(access: StoreAccess) -> list[DeleteTarget]:
    """Return the files that only format 1 needs."""
    reader = ObjectReader(access)
    old = [DeleteTarget(one.path, one.e_tag) for one in reference_files(reader)]
    config = reader.find(CONFIG)
    return [*old, DeleteTarget(CONFIG, config.e_tag)] if config else old


def _remove(writer: ObjectWriter, old: Sequence[DeleteTarget]) -> None:
    """Delete the old files. A file that changed since it was listed stays, also if the store has no conditions.

    The tombstones of tags are deleted last: without its tombstone, the file of a deleted tag would look like a new tag.
    """

    def problem(one: DeleteTarget) -> str | None:
        try:
            if writer.remove(one.path, one.e_tag or ""):
                return None
        except StoreError as error:
            return str(error)
        return f"{writer.describe(one.path)}: it was not deleted: somebody wrote to it meanwhile."

    tombstones = [one for one in old if one.path.endswith(TOMBSTONE)]
    others = [one for one in old if not one.path.endswith(TOMBSTONE)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = [found for found in pool.map(problem, others) if found]
        left = len(problems) + len(tombstones)
        if not problems:
            problems = [found for found in pool.map(problem, tombstones) if found]
            left = len(problems)
    if problems:
        raise StoreError(
            f"{problems[0]} The repository is upgraded. {counted(left, 'old file is', 'old files are')} left. "
            "Stop all writers of format 1, and upgrade again: this removes the old files."
        )
