"""Writing objects of our own beside a repository's data. Only `sweep` calls this."""

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
    """Writes objects whole.

    Every method raises AccessDenied or, for the rest, StoreError, with the URL, the path and the remedy in one line.
    """

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        self._conditional = Conditional(access.open(retrying=False), access.options.values())

    def put(self, path: str, content: bytes) -> None:
        """Write an object over what is there."""
        failure = self._failure(lambda: self._store.put(path, content))
        if failure is not None:
            raise failure.as_error(self._access.url, path, WRITE)

    def create(self, path: str, content: bytes) -> bool:
        """Write an object where none is; return False when something is there, which then stays as it is.

        Of several writers at once exactly one is answered True. After a lost answer equal bytes count as ours.
        A store that ignores `If-None-Match: *`, as old S3 servers do, lets all write: see `require_conditions`.
        Errors: also when it cannot be known whether the object was written.
        """
        return require_known(self._conditional.create(path, content), self._access.url, path)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool:
        """Write over the object that has this ETag (without quotes); return False when it is another one, or gone.

        A store that ignores `If-Match` writes without asking: see `require_conditions`. After a lost answer equal
        bytes count as ours. Errors: as `create`; also on files of this machine, which know no such condition.
        """
        if self._access.is_local:
            raise StoreError(
                f"{self.describe(path)}: a file of this machine cannot be replaced on the condition that it is still "
                "the same. It was not written. Keep what several write to in an object store."
            )
        return require_known(self._conditional.replace(path, content, e_tag), self._access.url, path)

    def require_conditions(self) -> None:
        """Refuse a store that ignores conditions. An object of our own shows it, which is removed again.

        Files of this machine are not tried: `create` relies on the system there, and `replace` refuses them.
        Errors: GuardRefused; AccessDenied or StoreError when it cannot be known.
        """
        if self._access.is_local:
            return
        scratch = f"{_SCRATCH}{uuid4().hex}"
        try:
            self._conditional.require_honoured(scratch, self._access.url)
        finally:
            with suppress(BaseError, OSError):  # one small file stays; what the trial found is what to tell
                self._store.delete(scratch)
