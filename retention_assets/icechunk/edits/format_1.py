"""Edits a repository of format 1: writes and deletes files of branches and tags, and rewrites snapshot files.

A file is changed only if nobody else has changed it since it was read. Icechunk itself writes branches conditionally,
but deletes them unconditionally. The repository is consistent after each edit. So a run that stops between two edits
needs no repair: the next run makes the remaining edits.
Source: docs/icechunk-formats.md, "Paths" and "Expiration".
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from retention_assets.errors import GuardRefused, ObjectMissing, StoreError
from retention_assets.icechunk.edits.commits import FIRST_WAIT, LONGEST_WAIT, TRIES, unconditional_writes_warning
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.paths import (
    SNAPSHOTS,
    ReferenceFile,
    read_reference,
    write_reference,
)
from retention_assets.icechunk.formats.snapshots import read_snapshot, with_parent
from retention_assets.icechunk.rules.expiration import Edit, Expiration, Reparented
from retention_assets.icechunk.rules.snapshots import History, ReferenceChange
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.conditional import BeforeWrite
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.rate_limiter import backoffs

_PLAIN = re.compile(r"[\w.+=@-]+", re.ASCII)  # icechunk does not find names with characters that paths must escape


class ReferenceFiles:
    """Changes the references of one repository. The caller checks that the new snapshots exist.

    `before_write`: as for `ObjectWriter`.
    """

    def __init__(self, access: StoreAccess, before_write: BeforeWrite = lambda: None) -> None:
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access, before_write)

    def apply(self, change: ReferenceChange, written_before: datetime | None = None) -> bool:
        """Make the change. Return False if another writer created, moved or deleted the reference since it was read.

        With `written_before`, the result is also False if the file was written then or later. A branch that was created
        again, or moved away and back, has a file with the same content and ETag as before.
        Deleting a reference that is already gone succeeds. The file of a deleted tag stays, and the tag gets a
        tombstone.
        Errors: GuardRefused for a new name that format 1 does not allow.
        """
        path = ReferenceFile(change.kind, change.name).path
        content = b"" if change.after is None else write_reference(change.after)
        if change.before is None:
            _require_plain(change.name)
            return self._writer.create(path, content)
        try:
            found, metadata = self._reader.read_with_metadata(path)
        except ObjectMissing:
            return change.after is None
        if read_reference(found, self._reader.describe(path)) != change.before:
            return False
        if written_before is not None and metadata.last_modified >= written_before:
            return False
        if change.kind == "tag":  # tags are only created and deleted
            self._writer.create(ReferenceFile("tag", change.name, tombstone=True).path, content)
            return True
        if change.after is None:
            return self._writer.remove(path, metadata.e_tag or "")
        return self._writer.replace(path, content, metadata.e_tag or "")


def _require_plain(name: str) -> None:
    if not _PLAIN.fullmatch(name) or name in (".", ".."):
        raise GuardRefused(
            f"{name!r} cannot be a name in format 1. Nothing was changed or deleted. Use letters, digits and `.`, `_`, "
            f"`-`, `+`, `=`, `@`."
        )


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of `apply_edits_v1`."""

    conflicts: int  # with other writers; the repository was read again after each
    references_removed: tuple[str, ...]  # `refs/branch.NAME`, `refs/tag.NAME`


def apply_edits_v1(
    access: StoreAccess,
    expiration_of: Callable[[History], Expiration | None],
    clock: Callable[[], datetime],
    log: Callable[[str], None],
    *,
    written_before: datetime | None = None,
    before_write: BeforeWrite = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Rewritten:
    """Make the edits that `expiration_of` returns for the current history (None: there are none).

    Changes of other writers are never overwritten. After a conflict, the repository is read again, and `expiration_of`
    is called again. With `written_before`, a reference whose file was written then or later counts as changed by
    another writer, and is not deleted. `before_write` is called before each request that writes. An error that it
    raises ends the run.
    Errors: as `expiration_of`, `before_write` and `IcechunkSource.state`; GuardRefused when the repository has format
    2; StoreError after `TRIES` conflicts.
    """
    rewriter, source = _Rewriter(access, before_write, written_before), IcechunkSource(access, clock)
    waits = backoffs(Random(), FIRST_WAIT, LONGEST_WAIT)
    for conflicts in range(TRIES):
        state = source.state()
        if state.format != 1:
            raise _has_format_2(access)
        expiration = expiration_of(state.history)
        edits = () if expiration is None else expiration.edits
        if edits and not conflicts and (warning := unconditional_writes_warning(access, None)):
            log(warning)
        if all(rewriter.apply(edit, state.history) for edit in edits):
            if edits and source.repo_object() is not None:  # an upgrade removes reference files, so they look deleted
                raise _has_format_2(access)
            return Rewritten(conflicts, tuple(sorted(rewriter.removed)))
        log(f"{access.url}: another writer was quicker; reading the repository again ({conflicts + 1} of {TRIES})")
        sleep(next(waits))
    raise StoreError(
        f"{access.url}: other writers were quicker {TRIES} times. Some edits of the expiration may have been made. No "
        "snapshot, manifest or chunk was deleted. Run again when fewer writers are active."
    )


def _has_format_2(access: StoreAccess) -> GuardRefused:
    return GuardRefused(f"{access.url}: the repository now has format 2. Nothing more was changed. Plan again.")


class _Rewriter:
    def __init__(self, access: StoreAccess, before_write: BeforeWrite, written_before: datetime | None) -> None:
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access, before_write)
        self._references = ReferenceFiles(access, before_write)
        self._written_before = written_before
        self.removed: set[str] = set()

    def apply(self, edit: Edit, history: History) -> bool:
        """Make one edit. Return False if the snapshot or reference is no longer as in `history`."""
        if isinstance(edit, Reparented):
            return self._reparent(edit, history)
        if edit.address in self.removed:
            raise GuardRefused(
                f"somebody created the {edit.kind} {edit.name} again after this sweep removed it, and nobody approved "
                "the deletion of the new one. Nothing more was changed or deleted. Plan again."
            )
        is_made = self._references.apply(edit, self._written_before)
        if is_made:
            self.removed.add(edit.address)
        return is_made

    def _reparent(self, edit: Reparented, history: History) -> bool:
        path = f"{SNAPSHOTS}{encode_id(edit.snapshot_id)}"
        where = self._reader.describe(path)
        content, metadata = self._reader.read_with_metadata(path)
        if read_snapshot(content, where).parent_id != history.snapshots[edit.snapshot_id].parent_id:
            return False
        return self._writer.replace(path, with_parent(content, edit.parent_id, where), metadata.e_tag or "")
