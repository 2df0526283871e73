"""Edits a repository of format 1: writes and deletes files of branches and tags, and rewrites snapshot files.

Each file is changed only if it has not changed meanwhile. Icechunk itself also writes branches conditionally, but
deletes them unconditionally. The repository is consistent after each edit. So a run that stops between two edits needs
no repair: the next run makes the remaining edits.
Source: Icechunk facts 1, Layout; 3, v1.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import NoReturn

from retention_assets.errors import GuardRefused, ObjectMissing, StoreError
from retention_assets.icechunk.edits.commits import FIRST_WAIT, LONGEST_WAIT, TRIES, unconditional_writes_warning
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN
from retention_assets.icechunk.formats.paths import (
    SNAPSHOTS,
    ReferenceFile,
    ReferenceKind,
    read_reference,
    write_reference,
)
from retention_assets.icechunk.formats.snapshots import read_snapshot, with_parent
from retention_assets.icechunk.rules.expiration import Edit, Expiration, Reparented, TagDeleted
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.icechunk.source.repository import IcechunkSource
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.rate_limiter import backoffs

_PLAIN = re.compile(r"[\w.+=@-]+", re.ASCII)  # icechunk does not find names that must be escaped in a path


@dataclass(frozen=True, slots=True)
class _Found:
    tip: bytes
    etag: str


class ReferenceFiles:
    """Writes the references of one repository. The caller makes sure that the snapshots exist."""

    def __init__(self, access: StoreAccess) -> None:
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access)

    def create_branch(self, name: str, snapshot_id: bytes) -> None:
        """Create a branch. Errors: GuardRefused for a name that is in use, or that format 1 does not allow."""
        self._create(ReferenceFile(ReferenceKind.BRANCH, name), snapshot_id)

    def create_tag(self, name: str, snapshot_id: bytes) -> None:
        """Create a tag. Errors: GuardRefused as `create_branch`, and for the name of a deleted tag."""
        if self._is_deleted(name):
            _refuse(f"the tag {name!r} was deleted, and its name can never be used again", "Choose another name.")
        self._create(ReferenceFile(ReferenceKind.TAG, name), snapshot_id)

    def reset_branch(self, name: str, snapshot_id: bytes, expected: bytes | None = None) -> None:
        """Move a branch. Errors: GuardRefused when the branch is not on `expected`, or when somebody else moves it."""
        found = self._branch(name)
        if expected is not None and found.tip != expected:
            on, wanted = encode_id(found.tip), encode_id(expected)
            _refuse(f"the branch {name!r} is on {on}, not on {wanted}", "Read the repository again.")
        if not self._writer.replace(_branch_path(name), write_reference(snapshot_id), found.etag):
            _refuse(f"the branch {name!r} was moved or deleted meanwhile", "Read the repository again.")

    def delete_branch(self, name: str, expected: bytes | None = None) -> None:
        """Delete a branch. Errors: GuardRefused for `main`, for an unknown branch, and as `reset_branch`."""
        if name == MAIN:
            _refuse(f"the branch {MAIN!r} cannot be deleted", "Every repository has this branch.")
        if not self.try_delete_branch(name, self._branch(name).tip if expected is None else expected):
            _refuse(f"the branch {name!r} was moved meanwhile", "Read the repository again.")

    def try_delete_branch(self, name: str, expected: bytes) -> bool:
        """Delete a branch if it is on `expected`; return whether it is gone. A missing branch counts as gone."""
        try:
            found = self._branch_file(name)
        except ObjectMissing:
            return True
        return found.tip == expected and self._writer.remove(_branch_path(name), found.etag)

    def delete_tag(self, name: str) -> None:
        """Delete a tag by writing its tombstone; the tag's file stays. Errors: GuardRefused for an unknown tag."""
        try:
            self._reader.head(ReferenceFile(ReferenceKind.TAG, name).path)
        except ObjectMissing:
            _refuse(f"there is no tag {name!r}", "Correct the name.")
        if not self.write_tombstone(name):
            _refuse(f"there is no tag {name!r}: it was deleted before", "Correct the name.")

    def write_tombstone(self, name: str) -> bool:
        """Mark a tag as deleted; return False when it was deleted already."""
        path = ReferenceFile(ReferenceKind.TAG, name, tombstone=True).path
        return not self._is_deleted(name) and self._writer.create(path, b"")

    def _create(self, file: ReferenceFile, snapshot_id: bytes) -> None:
        if not _PLAIN.fullmatch(file.name) or file.name in (".", ".."):
            _refuse(
                f"{file.name!r} cannot be a name in format 1",
                "Use letters, digits and `.`, `_`, `-`, `+`, `=`, `@`.",
            )
        if not self._writer.create(file.path, write_reference(snapshot_id)):
            _refuse(f"there is a {file.kind.value} {file.name!r} already", "Choose another name.")

    def _is_deleted(self, name: str) -> bool:
        try:
            self._reader.head(ReferenceFile(ReferenceKind.TAG, name, tombstone=True).path)
        except ObjectMissing:
            return False
        return True

    def _branch(self, name: str) -> _Found:
        try:
            return self._branch_file(name)
        except ObjectMissing:
            _refuse(f"there is no branch {name!r}", "Correct the name.")

    def _branch_file(self, name: str) -> _Found:
        path = _branch_path(name)
        content, metadata = self._reader.read_with_metadata(path)
        return _Found(read_reference(content, self._reader.describe(path)), metadata.e_tag or "")


def _branch_path(name: str) -> str:
    return ReferenceFile(ReferenceKind.BRANCH, name).path


def _refuse(what: str, remedy: str) -> NoReturn:
    raise GuardRefused(f"{what}. Nothing was changed or deleted. {remedy}")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of `apply_edits_v1`."""

    conflicts: int  # with other writers; after each the repository was read again
    references_removed: tuple[str, ...]  # `refs/branch.NAME`, `refs/tag.NAME`


def apply_edits_v1(
    access: StoreAccess,
    expiration_of: Callable[[History], Expiration | None],
    clock: Callable[[], datetime],
    log: Callable[[str], None],
    *,
    random: Random | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Rewritten:
    """Make the edits that `expiration_of` returns for the current history; None: nothing is left to do.

    Changes by another writer are never overwritten. After a conflict the repository is read again, and `expiration_of`
    is called again.
    Errors: as `expiration_of` and `IcechunkSource.state`; StoreError after too many conflicts.
    """
    rewriter = _Rewriter(access)
    waits = backoffs(random or Random(), FIRST_WAIT, LONGEST_WAIT)
    for conflicts in range(TRIES):
        state = IcechunkSource(access, clock).state()
        if state.format != 1:
            raise GuardRefused(f"{access.url}: the repository now has format 2. Nothing more was changed. Plan again.")
        expiration = expiration_of(state.history)
        edits = () if expiration is None else expiration.edits
        if edits and not conflicts and (warning := unconditional_writes_warning(access, None)):
            log(warning)
        if all(rewriter.apply(edit, state.history) for edit in edits):
            return Rewritten(conflicts, tuple(sorted(rewriter.removed)))
        log(f"{access.url}: another writer was quicker; reading the repository again ({conflicts + 1})")
        sleep(next(waits))
    raise StoreError(
        f"{access.url}: other writers were quicker {TRIES} times. Some edits of the expiration were made. No file was "
        f"deleted. Run again when fewer writers are active."
    )


class _Rewriter:
    def __init__(self, access: StoreAccess) -> None:
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access)
        self._references = ReferenceFiles(access)
        self.removed: set[str] = set()

    def apply(self, edit: Edit, history: History) -> bool:
        """Make one edit; return False when the snapshot or branch to change is no longer as in `history`."""
        if isinstance(edit, Reparented):
            return self._reparent(edit, history)
        if isinstance(edit, TagDeleted):
            self._references.write_tombstone(edit.name)
            self.removed.add(f"refs/tag.{edit.name}")
            return True
        is_gone = self._references.try_delete_branch(edit.name, history.branches[edit.name])
        if is_gone:
            self.removed.add(f"refs/branch.{edit.name}")
        return is_gone

    def _reparent(self, edit: Reparented, history: History) -> bool:
        path = f"{SNAPSHOTS}{encode_id(edit.snapshot_id)}"
        where = self._reader.describe(path)
        content, metadata = self._reader.read_with_metadata(path)
        if read_snapshot(content, where).parent_id != history.snapshots[edit.snapshot_id].parent_id:
            return False
        return self._writer.replace(path, with_parent(content, edit.parent_id, where), metadata.e_tag or "")
