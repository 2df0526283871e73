"""Writes this project's own objects beside a repository's data, and changes objects only if they are unchanged."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

from obstore.exceptions import BaseError

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.conditional import BeforeWrite, Conditional, require_known
from retention_assets.objectstore.failures import WRITE, Failure
from retention_assets.objectstore.objects import ObjectReader, OpenStore
from retention_assets.objectstore.outcomes import DeleteTarget, Outcome
from retention_assets.objectstore.rate_limiter import RetryPolicy, backoffs

if TYPE_CHECKING:
    from retention_assets.objectstore.mutate.deletion import ObjectDeleter

_SCRATCH = ".retention-conditions-"
_ONE_TRY = RetryPolicy(attempts=1, seconds=-1.0)  # with 0 seconds, a throttled request could be sent twice
_MORE_TRIES = 4  # the most further attempts after a deletion that failed


class ObjectWriter(OpenStore):
    """Writes whole objects. Replaces and removes objects on the condition that they have a certain ETag.

    Local files have no conditional writes. For them, `replace` and `remove` lock the repository's directory, check the
    file's ETag under the lock, and replace the file with a rename. The lock protects against other writers of this
    project. Icechunk does not take the lock, so an Icechunk writer can write between the check and the rename.
    Concurrent Icechunk writers have the same problem among themselves. Source: docs/icechunk.md, "Limits".

    Every method raises AccessDenied or, for any other failure, StoreError. The message has the URL, the path and the
    remedy in one line.

    Args:
        access: access to the store.
        before_write: called before each request that creates, replaces or removes an object on a condition, also before
            one that is sent again. It raises an error if the writer may not write any more. The error ends the method.
    """

    def __init__(self, access: StoreAccess, before_write: BeforeWrite = lambda: None) -> None:
        super().__init__(access)
        self._reader = ObjectReader(access)
        self._before_write = before_write
        secrets = access.options.values()
        self._conditional = Conditional(access.open(retrying=False), secrets, before_write=before_write)

    def put(self, path: str, content: bytes) -> None:
        """Write an object, and replace any object at `path`."""
        self._call(lambda: self._store.put(path, content), path, WRITE)

    def create(self, path: str, content: bytes) -> bool:
        """Write an object and return True; if an object exists at `path`, leave it unchanged and return False.

        Of several concurrent writers, exactly one gets True. After a lost response, an object with equal bytes counts
        as ours. If the store ignores `If-None-Match: *`, as old S3 servers do, all writers get True: see
        `require_conditions`.

        Errors: StoreError also when it is unknown whether the object was written.
        """
        return self._known(self._conditional.create(path, content), path)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool:
        """Replace the object if it has this ETag (without quotes). Return whether it was replaced.

        A store that ignores `If-Match` always replaces the object: see `require_conditions`. After a lost response, an
        object with equal bytes counts as ours.

        Errors: as `create`; for local files, StoreError if the directory cannot be locked.
        """
        if not self._access.is_local:
            return self._known(self._conditional.replace(path, content, e_tag), path)
        with _locked(self._access):
            self._before_write()
            if self._e_tag(path) != e_tag:
                return False
            self.put(path, content)
            return True

    def remove(self, path: str, e_tag: str) -> bool:
        """Delete the object if it has this ETag. Return True if it is deleted or missing, False if it has another ETag.

        Only S3 has conditional deletion. It is sent in a request of its own: some S3 servers ignore the conditions of
        bulk requests. On other stores, and on S3 servers that ignore all conditions of deletions, the ETag is checked
        right before each request to delete, also before a request that is sent again.

        Errors: StoreError when the object was not deleted, or may not have been deleted.
        """
        found: str | None = None

        def is_unchanged() -> bool:
            nonlocal found
            self._before_write()
            found = self._e_tag(path)
            return found == e_tag

        with _locked(self._access) if self._access.is_local else nullcontext():
            for wait in (*islice(backoffs(Random()), _MORE_TRIES), None):
                (result,) = self._deleter.delete_all([DeleteTarget(path, e_tag)], is_unchanged)
                if wait is None or result.failure is None or not result.failure.retryable:
                    break
                time.sleep(wait)
        if result.outcome is Outcome.ATTEMPTED:  # no request was sent: the object is missing or was changed
            return found is None
        if result.failure is not None and result.failure.ambiguous:
            raise StoreError(
                f"{self.describe(path)}: {result.failure.detail}. Whether it was deleted is unknown. Run the same "
                "command again."
            )
        if result.outcome is Outcome.FAILED:
            raise StoreError(f"{self.describe(path)}: it was not deleted: {result.detail}. Run the same command again.")
        return result.outcome is not Outcome.SKIPPED

    def require_conditions(self) -> None:
        """Raise an error if the store ignores conditions. The test writes a scratch object and removes it afterwards.

        Local files are not tested: `create` relies on the operating system, and `replace` on the lock.

        Errors: GuardRefused when the store ignored a condition; AccessDenied or StoreError when the test could not run;
        ConfigurationError when the options of S3 do not allow deletions. Then files could be written that cannot be
        deleted, or, if the endpoint is that of another bucket, files could be written to that bucket.
        """
        if self._access.is_local:
            return
        if self._access.is_s3:
            _ = self._bucket
        scratch = f"{_SCRATCH}{uuid4().hex}"
        try:
            self._conditional.require_honoured(scratch, self._access.url)
        finally:
            with suppress(BaseError, OSError):  # the scratch object may stay; the result of the test matters more
                self._store.delete(scratch)

    @cached_property
    def _deleter(self) -> "ObjectDeleter":
        from retention_assets.objectstore.mutate.deletion import ObjectDeleter  # importing boto3 takes a second

        return ObjectDeleter(self._access, in_bulk=False, retry_policy=_ONE_TRY)

    def _known(self, result: bool | Failure, path: str) -> bool:
        return require_known(result, self._access.url, path, settings=self._access.settings)

    def _e_tag(self, path: str) -> str | None:
        """Return the ETag of the object, empty if the store gives none; None if the object is missing."""
        found = self._reader.find(path)
        return None if found is None else found.e_tag or ""


@contextmanager
def _locked(access: StoreAccess) -> Iterator[None]:
    try:
        import fcntl

        handle = os.open(access.directory, os.O_RDONLY)
    except (ImportError, OSError) as error:
        raise _no_lock(access.directory, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            raise _no_lock(access.directory, error) from None
        yield
    finally:
        os.close(handle)  # this unlocks the directory


def _no_lock(directory: Path, error: Exception) -> StoreError:
    return StoreError(
        f"{directory}: the directory cannot be locked ({error}). Without a lock, two writers could overwrite each "
        f"other's changes. Nothing was changed. Keep the repository in an object store, or on a local disk."
    )
