"""Writes this project's own objects beside a repository's data."""

from contextlib import suppress
from uuid import uuid4

from obstore.exceptions import BaseError

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.conditional import Conditional, require_known
from retention_assets.objectstore.failures import WRITE
from retention_assets.objectstore.objects import OpenStore

_SCRATCH = ".retention-conditions-"


class ObjectWriter(OpenStore):
    """Writes whole objects.

    Every method raises AccessDenied or, for any other failure, StoreError. The message has the URL, the path and the
    remedy in one line.
    """

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        self._conditional = Conditional(access.open(retrying=False), access.options.values())

    def put(self, path: str, content: bytes) -> None:
        """Write an object, and replace any object at `path`."""
        failure = self._failure(lambda: self._store.put(path, content))
        if failure is not None:
            raise failure.as_error(self._access.url, path, WRITE)

    def create(self, path: str, content: bytes) -> bool:
        """Write an object and return True; if an object exists at `path`, leave it unchanged and return False.

        Of several concurrent writers, exactly one gets True. After a lost response, an object with equal bytes counts
        as ours. If the store ignores `If-None-Match: *`, as old S3 servers do, all writers get True: see
        `require_conditions`.
        Errors: StoreError also when it is unknown whether the object was written.
        """
        return require_known(self._conditional.create(path, content), self._access.url, path)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool:
        """Replace the object if it has this ETag (without quotes). Return whether it was replaced.

        A store that ignores `If-Match` always replaces the object: see `require_conditions`. After a lost response, an
        object with equal bytes counts as ours.
        Errors: as `create`; also for local files, which have no conditional writes.
        """
        if self._access.is_local:
            raise StoreError(
                f"{self.describe(path)}: local files have no conditional writes. The file was not replaced. Keep files "
                "that several programs write in an object store."
            )
        return require_known(self._conditional.replace(path, content, e_tag), self._access.url, path)

    def require_conditions(self) -> None:
        """Raise an error if the store ignores conditions. The test writes a scratch object and removes it afterwards.

        Local files are not tested: `create` relies on the operating system, and `replace` does not support them.
        Errors: GuardRefused when the store ignored a condition; AccessDenied or StoreError when the test could not run.
        """
        if self._access.is_local:
            return
        scratch = f"{_SCRATCH}{uuid4().hex}"
        try:
            self._conditional.require_honoured(scratch, self._access.url)
        finally:
            with suppress(BaseError, OSError):  # the scratch object may stay; the result of the test matters more
                self._store.delete(scratch)
