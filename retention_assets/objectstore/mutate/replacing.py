"""Replaces and removes objects only if they are unchanged, local files included."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget, Outcome


class ObjectReplacer:
    """Replaces and removes objects on the condition that they have a certain ETag.

    Local files have no conditional writes. For them, this class locks the repository's directory, checks the file's
    ETag under the lock, and replaces the file with a rename. The lock protects against other writers of this project.
    Icechunk does not take the lock, so an Icechunk writer can write between the check and the rename. Concurrent
    Icechunk writers have the same problem among themselves. Source: Icechunk facts 6, Conditional updates.
    """

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._reader = ObjectReader(access)
        self._writer = ObjectWriter(access)
        self._deleter = ObjectDeleter(access)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool:
        """Replace the object if it has this ETag. Return whether it was replaced.

        Errors: as `ObjectWriter.replace`; for local files, StoreError if the directory cannot be locked.
        """
        if not self._access.is_local:
            return self._writer.replace(path, content, e_tag)
        with _locked(self._access):
            if self._e_tag(path) != e_tag:
                return False
            self._writer.put(path, content)
            return True

    def remove(self, path: str, e_tag: str) -> bool:
        """Delete the object if it has this ETag. Return False if it has another ETag, True if it is missing.

        Only S3 has conditional deletion. On other stores, the ETag is checked right before the deletion.
        Errors: StoreError when the object was not deleted, or may not have been deleted.
        """
        with _locked(self._access) if self._access.is_local else nullcontext():
            found = self._e_tag(path)
            if found != e_tag:
                return found is None
            (result,) = self._deleter.delete_all([DeleteTarget(path, e_tag)])
        if result.outcome is Outcome.FAILED:
            raise StoreError(f"{self._reader.describe(path)}: it was not deleted: {result.detail}. Run again.")
        return result.outcome is not Outcome.SKIPPED

    def _e_tag(self, path: str) -> str | None:
        try:
            return self._reader.head(path).e_tag
        except ObjectMissing:
            return None


@contextmanager
def _locked(access: StoreAccess) -> Iterator[None]:
    directory = access.url.removeprefix("file://")
    try:
        import fcntl

        handle = os.open(directory, os.O_RDONLY)
    except (ImportError, OSError) as error:
        raise _no_lock(directory, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise _no_lock(directory, error) from None
        yield
    finally:
        os.close(handle)  # this unlocks the directory


def _no_lock(directory: str, error: Exception) -> StoreError:
    return StoreError(
        f"{directory}: the directory cannot be locked ({error}). Without a lock, two writers could overwrite each "
        f"other's changes. Nothing was changed. Keep the repository in an object store, or on a local disk."
    )
