"""Writes and deletes branches and tags of format 1, one small file each, only if the file has not changed meanwhile.

Icechunk itself also writes branches conditionally, but deletes them unconditionally.
Source: Icechunk facts 1, Layout.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from retention_assets.errors import GuardRefused, ObjectMissing
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import MAIN
from retention_assets.icechunk.formats.paths import ReferenceFile, ReferenceKind, read_reference, write_reference
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.replacing import ObjectReplacer
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader

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
        self._replacer = ObjectReplacer(access)

    def create_branch(self, name: str, snapshot_id: bytes) -> None:
        """Create a branch. Errors: GuardRefused for a name that is in use, or that format 1 does not allow."""
        self._create(ReferenceFile(ReferenceKind.BRANCH, name), snapshot_id)

    def create_tag(self, name: str, snapshot_id: bytes) -> None:
        """Create a tag. Errors: GuardRefused as `create_branch`, and for the name of a deleted tag."""
        if self._is_deleted(name):
            _refuse(f"the tag {name!r} was deleted, and no name is used twice", "Choose another name.")
        self._create(ReferenceFile(ReferenceKind.TAG, name), snapshot_id)

    def reset_branch(self, name: str, snapshot_id: bytes, expected: bytes | None = None) -> None:
        """Move a branch. Errors: GuardRefused when the branch is not on `expected`, or when somebody else moves it."""
        found = self._branch(name)
        if expected is not None and found.tip != expected:
            on, wanted = encode_id(found.tip), encode_id(expected)
            _refuse(f"the branch {name!r} is on {on}, not on {wanted}", "Read the repository again.")
        if not self._replacer.replace(_branch_path(name), write_reference(snapshot_id), found.etag):
            _refuse(f"the branch {name!r} was moved or deleted meanwhile", "Read the repository again.")

    def delete_branch(self, name: str, expected: bytes | None = None) -> None:
        """Delete a branch. Errors: GuardRefused for `main`, for an unknown branch, and as `reset_branch`."""
        if name == MAIN:
            _refuse(f"the branch {MAIN!r} cannot be deleted", "Every repository has it.")
        if not self.try_delete_branch(name, self._branch(name).tip if expected is None else expected):
            _refuse(f"the branch {name!r} was moved meanwhile", "Read the repository again.")

    def try_delete_branch(self, name: str, expected: bytes) -> bool:
        """Delete a branch if it is on `expected`; return whether it is gone. A missing branch counts as gone."""
        try:
            found = self._branch_file(name)
        except ObjectMissing:
            return True
        return found.tip == expected and self._replacer.remove(_branch_path(name), found.etag)

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
