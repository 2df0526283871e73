"""Edits the repo object with conditional writes: the new object is written only if nobody changed the old one.

Icechunk edits the object in the same way. A writer copies the old object to `overwritten/`, then replaces it. If
another writer was faster, the writer reads the object again and repeats the edit.
Source: docs/icechunk-formats.md, "Edits of the repo object".
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from secrets import token_bytes

from retention_assets.config.timestamps import Clock
from retention_assets.errors import GuardRefused, ObjectMissing, RetentionError, SourceError, StoreError
from retention_assets.icechunk.formats.model import Repo, Update
from retention_assets.icechunk.formats.paths import OVERWRITTEN, REPO, backup_name
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.values import read_flexbuffer
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import Stamp
from retention_assets.icechunk.source.ops_log import ops_log
from retention_assets.icechunk.source.repository import IcechunkSource, RepoObject
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.clock import not_ahead_of_store
from retention_assets.objectstore.conditional import BeforeWrite
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.rate_limiter import backoffs

Edit = Callable[[Repo, Stamp], Repo]  # returns the same object when there is nothing to change

TRIES = 100
FIRST_WAIT, LONGEST_WAIT = 0.05, 30.0  # seconds between two tries, the same as in icechunk
_SETTING = "unsafe_use_conditional_update"
_MOST_AHEAD = timedelta(seconds=2)  # the edit waits if another writer's clock is ahead by less than this


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of an edit."""

    repo: Repo  # as the edit wrote it
    etag: str | None  # of the repo object after the edit, or after an edit of another writer; None: it is unknown
    conflicts: int  # with other writers; the edit was tried again after each
    backup: str | None  # address of the copy of the old object; None: nothing was changed


@dataclass(frozen=True, slots=True)
class _Attempt:
    before: Update  # the newest entry of the ops log before the edit
    backup: str  # name below `overwritten/`


class RepoCommits:
    """Edits the repo object of one repository.

    Args:
        access: access to the repository's store.
        clock: returns the current time, aware, UTC.
        log: receives a line for each conflict, for each backup that stays although it is not needed, if icechunk's own
            writers write unconditionally, and if the ETag after an edit is unknown.
        before_write: called before each request that writes. An error that it raises ends the edit, and nothing more is
            written. Only the backup of an edit that was not sent is removed then.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        access: StoreAccess,
        clock: Callable[[], datetime],
        log: Callable[[str], None],
        *,
        before_write: BeforeWrite = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._source = IcechunkSource(access, clock)
        self._reader = ObjectReader(access)
        self._writer, self._backups = ObjectWriter(access, before_write), ObjectWriter(access)
        self._clock, self._log, self._sleep, self._before_write = clock, log, sleep, before_write

    def commit(self, edit: Edit) -> Committed:
        """Make the edit. After a conflict with another writer, make it again on the newer object.

        Errors: as `edit` and `before_write`; SourceError when there is no repo object; GuardRefused when a backup
        with the generated name already exists; StoreError after `TRIES` conflicts, and when it is unknown whether the
        object was written. The caller can then repeat the same edit.
        """
        waits = backoffs(Random(), FIRST_WAIT, LONGEST_WAIT)
        # Icechunk's writers fail as long as the newest entry of the ops log is in their future.
        clock = not_ahead_of_store(self._access, self._clock)
        found = self._read()
        for conflicts in range(TRIES):
            stamp = self._stamp(found.repo, clock)
            after = edit(found.repo, stamp)
            if after is found.repo:
                return Committed(after, found.etag, conflicts, None)
            if not conflicts and (warning := unconditional_writes_warning(self._access, found.repo.config)):
                self._log(warning)
            attempt = _Attempt(found.repo.latest_updates[0], stamp.backup)
            is_ours = self._write(found, write_repo(after), attempt)
            if not is_ours:
                found, is_ours = self._read_after_conflict(attempt)
            if is_ours:
                return Committed(after, self._etag_after_edit(), conflicts, f"{OVERWRITTEN}{attempt.backup}")
            self._log(
                f"{self._reader.describe(REPO)}: another writer was quicker; trying again ({conflicts + 1} of {TRIES})"
            )
            self._sleep(next(waits))
        raise StoreError(
            f"{self._reader.describe(REPO)}: other writers were quicker {TRIES} times. This edit was not made, "
            f"and no file was deleted. Run again when fewer writers are active."
        )

    def _read(self) -> RepoObject:
        found = self._source.repo_object()
        if found is None:
            raise SourceError(
                f"{self._reader.describe(REPO)}: the repo object does not exist. Nothing was changed. Check `storage`."
            )
        return found

    def _stamp(self, repo: Repo, clock: Clock) -> Stamp:
        """Return the time of the edit and the name of its backup.

        The entries of the ops log must be in order of time. If the newest entry is less than `_MOST_AHEAD` in the
        future, because another writer's clock is ahead, this method waits until that time has passed.
        """
        now = clock()
        ahead = timedelta(microseconds=repo.latest_updates[0].updated_at - micros_of(now) + 1)
        if timedelta(0) < ahead < _MOST_AHEAD:
            self._sleep(ahead.total_seconds())
            now = clock()
        return Stamp(now, backup_name(micros_of(now) // 1000, token_bytes(12)))

    def _write(self, found: RepoObject, content: bytes, attempt: _Attempt) -> bool:
        backup = f"{OVERWRITTEN}{attempt.backup}"
        if not self._writer.create(backup, found.content):
            raise GuardRefused(
                f"{self._reader.describe(backup)}: this backup exists already. This edit was not made. Run again."
            )
        try:
            self._before_write()
        except RetentionError:  # the edit is not sent
            self._remove_orphan(backup)
            raise
        return self._writer.replace(REPO, content, found.etag)

    def _etag_after_edit(self) -> str | None:
        try:
            return self._reader.head(REPO).e_tag
        except StoreError as error:  # the edit was made and must be recorded; the ETag is only for the record
            error.say_nothing_more()
            self._log(f"{self._reader.describe(REPO)}: this edit was made. Its ETag is not recorded: {error}")
            return None

    def _read_after_conflict(self, attempt: _Attempt) -> tuple[RepoObject, bool]:
        """Return the current object, and whether our write succeeded although the store reported a conflict."""
        try:
            found = self._read()
            return found, self._was_written(attempt, found.repo)
        except RetentionError as error:
            error.say_nothing_more()
            raise StoreError(
                f"{self._reader.describe(REPO)}: the store reported a conflict with another writer. It is unknown "
                f"whether this edit was made, because an object could not be read afterwards: {error} When it can be "
                "read again, look at the repository (`retention icechunk REPO status`). If the edit is missing, run "
                "the same command again."
            ) from error

    def _was_written(self, attempt: _Attempt, now: Repo) -> bool:
        """Return whether our write succeeded although the store reported a conflict; if not, remove our backup.

        The response to a successful write can be lost, and other writers can edit our object before we read it again.
        The ops log shows who wrote: the entry that was newest before our write names the backup of the next writer.
        When the log no longer reaches that entry, the result is False and our backup stays.
        """
        before = attempt.before.kind, attempt.before.updated_at, attempt.before.name
        log = ops_log(self._reader, now)
        entry = next((one for one in log if (one.kind, one.updated_at, one.name) == before), None)
        if entry is None or entry.backup_path is None:
            self._log(
                f"{OVERWRITTEN}{attempt.backup}: this backup stays, although it may not be needed: the ops log no "
                "longer shows whether our write succeeded"
            )
            return False
        if entry.backup_path == attempt.backup:
            return True
        self._remove_orphan(f"{OVERWRITTEN}{attempt.backup}")
        return False

    def _remove_orphan(self, address: str) -> None:
        try:
            self._backups.remove(address, self._reader.head(address).e_tag or "")
        except ObjectMissing:
            return
        except StoreError as error:  # a backup that is not needed does no harm
            self._log(f"{address}: this backup is not needed, but was not removed: {error}")


def unconditional_writes_warning(access: StoreAccess, config: bytes | None) -> str | None:
    """Return a warning if icechunk's own writers write unconditionally; None if they use conditional writes.

    On local files, icechunk always writes unconditionally. The configuration of a repository that was created on local
    files turns conditional writes off. A copy of the repository in a bucket has this setting too.
    Source: docs/icechunk.md, "Limits".
    Errors: CorruptFile for a configuration that cannot be read.
    """
    if access.is_local:
        return f"{access.url}: icechunk's own writers do not lock files. Stop them until this run ends."
    found = {} if config is None else read_flexbuffer(config, "the configuration in the repo object")
    storage = found.get("storage") if isinstance(found, dict) else None
    if isinstance(storage, dict) and storage.get(_SETTING) is False:
        return (
            f"{access.url}: with the repository's configuration (storage.{_SETTING}), icechunk's own writers write "
            f"unconditionally. Stop them until this run ends, and remove that setting."
        )
    return None
