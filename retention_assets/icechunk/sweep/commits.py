"""One edit of the repo object, made on the object as it is and written on the condition that it still is.

As icechunk does: the object as it was is kept below `overwritten/`, then the new one takes its place; who comes too
late reads it again and edits that. Source: Icechunk facts 2, Writing a `repo` object.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from secrets import token_bytes

from retention_assets.errors import GuardRefused, ObjectMissing, SourceError, StoreError
from retention_assets.icechunk.formats.model import Repo, Update
from retention_assets.icechunk.formats.paths import OVERWRITTEN, REPO, Backup, Original
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import Stamp
from retention_assets.icechunk.source.log import ops_log
from retention_assets.icechunk.source.repository import IcechunkSource, RepoObject
from retention_assets.icechunk.sweep.unconditional_writes import unguarded_writers
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.replacing import ObjectReplacer
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.rate_limiter import backoffs

Edit = Callable[[Repo, Stamp], Repo]  # the same object when there is nothing to change

TRIES = 100
FIRST_WAIT, LONGEST_WAIT = 0.05, 30.0  # seconds between them, as icechunk waits
_MOST_AHEAD = timedelta(seconds=2)  # that another writer's clock may be, and is waited for


@dataclass(frozen=True, slots=True)
class Committed:
    """How an edit ended: the object as it was left, its ETag, and what was done for it."""

    repo: Repo
    etag: str
    conflicts: int  # with other writers; each was tried again
    backup: str | None  # address of the object as it was before; None: nothing was changed


@dataclass(frozen=True, slots=True)
class _Attempt:
    before: Update  # the newest entry of the log as it was
    backup: str  # name below `overwritten/`


class RepoCommits:
    """Edits the repo object of one repository.

    Args:
        access: of the repository.
        clock: aware, UTC.
        log: is told of conflicts, of writers that look at no condition, and of backups that stay without need.
        random: of the waits.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        access: StoreAccess,
        clock: Callable[[], datetime],
        log: Callable[[str], None],
        *,
        random: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._source = IcechunkSource(access, clock)
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access)
        self._replacer = ObjectReplacer(access)
        self._clock, self._log, self._sleep = clock, log, sleep
        self._random = random or Random()

    def commit(self, edit: Edit) -> Committed:
        """Make the edit, and make it again on the newer object as long as others are quicker.

        Errors: whatever `edit` refuses; SourceError where no repo object is; StoreError after `TRIES` conflicts, and
        where it cannot be known whether the object was written: the same edit can then be asked for again.
        """
        waits = backoffs(self._random, FIRST_WAIT, LONGEST_WAIT)
        found = self._read()
        for conflicts in range(TRIES):
            stamp = self._stamp(found.repo)
            after = edit(found.repo, stamp)
            if after is found.repo:
                return Committed(after, found.etag, conflicts, None)
            if not conflicts and (warning := unguarded_writers(self._access, found.repo.config)):
                self._log(warning)
            attempt = _Attempt(found.repo.latest_updates[0], stamp.backup)
            is_ours = self._written(found, write_repo(after), attempt)
            found = self._read()
            if is_ours or self._was_written(attempt, found.repo):
                return Committed(after, found.etag, conflicts, f"{OVERWRITTEN}{attempt.backup}")
            self._log(f"{self._reader.describe(REPO)}: another writer was quicker; trying again ({conflicts + 1})")
            self._sleep(next(waits))
        raise StoreError(
            f"{self._reader.describe(REPO)}: other writers were quicker {TRIES} times. Nothing was changed or deleted. "
            f"Run again when fewer write."
        )

    def _read(self) -> RepoObject:
        found = self._source.repo_object()
        if found is None:
            raise SourceError(f"{self._reader.describe(REPO)}: it is not there. Nothing was changed. Check `storage`.")
        return found

    def _stamp(self, repo: Repo) -> Stamp:
        """Return when and under which name the edit is made; another writer's clock may be a little ahead."""
        now = self._clock()
        ahead = timedelta(microseconds=repo.latest_updates[0].updated_at - micros_of(now) + 1)
        if timedelta(0) < ahead < _MOST_AHEAD:
            self._sleep(ahead.total_seconds())
            now = self._clock()
        return Stamp(now, Backup(Original.REPO, micros_of(now) // 1000, token_bytes(12)).name)

    def _written(self, found: RepoObject, content: bytes, attempt: _Attempt) -> bool:
        backup = f"{OVERWRITTEN}{attempt.backup}"
        if not self._writer.create(backup, found.content):
            raise GuardRefused(f"{self._reader.describe(backup)}: it is there already. Nothing was changed. Run again.")
        return self._replacer.replace(REPO, content, found.etag)

    def _was_written(self, attempt: _Attempt, now: Repo) -> bool:
        """Return whether our object was written after all, and others built on it; if not, remove our backup.

        An answer may have been lost, and others may have gone on before we asked again. The log tells: the entry that
        was the newest one names the backup of whoever came next.
        """
        entry = next((one for one in ops_log(self._reader, now) if _same_entry(one, attempt.before)), None)
        if entry is None or entry.backup_path is None:
            self._log(f"{OVERWRITTEN}{attempt.backup}: it stays, though perhaps nothing names it: the log is cut off")
            return False
        if entry.backup_path == attempt.backup:
            return True
        self._remove_orphan(f"{OVERWRITTEN}{attempt.backup}")
        return False

    def _remove_orphan(self, address: str) -> None:
        try:
            self._replacer.remove(address, self._reader.head(address).e_tag or "")
        except ObjectMissing:
            return
        except StoreError as error:  # one file more is kept than is needed
            self._log(f"{address}: it stays, though nothing names it: {error}")


def _same_entry(one: Update, other: Update) -> bool:
    return (one.kind, one.updated_at, one.name) == (other.kind, other.updated_at, other.name)
