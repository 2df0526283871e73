"""Writing objects of our own beside a repository's data. Only `sweep` calls this."""

from retention_assets.stores.failures import WRITE
from retention_assets.stores.objects import OpenStore


class ObjectWriter(OpenStore):
    """Writes objects whole, over what is there."""

    def put(self, path: str, content: bytes) -> None:
        """Write an object. Errors: AccessDenied or StoreError, with the URL, the path and the remedy in one line."""
        failure = self._failure(lambda: self._store.put(path, content))
        if failure is not None:
            raise failure.as_error(self._access.url, path, WRITE)
