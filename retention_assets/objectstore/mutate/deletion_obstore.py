"""Deletes through obstore: in bulk on Azure; one by one on GCS, in local files and in this process's memory."""

from collections.abc import Sequence
from dataclasses import replace

from obstore.store import AzureStore, LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.objects import OpenStore
from retention_assets.objectstore.outcomes import DELETED, DeleteTarget, ObjectResult, result_of

_BULK = 256  # objects that one request of Azure may name
_NO_VERSIONS = Failure(Kind.OTHER, "not tried: only S3's versions can be deleted by their id")


class ObstoreDeletion(OpenStore):
    """Deletes any object at a path. None of these stores accepts an ETag as a condition for deleting."""

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        if access.is_local:  # as lakeFS does, delete directories that become empty
            self._store = LocalStore(access.url.removeprefix("file://"), automatic_cleanup=True)
        self.most = _BULK if isinstance(self._store, AzureStore) else 1

    def delete_many(self, to_delete: Sequence[DeleteTarget]) -> Sequence[ObjectResult]:
        """See `DeletingStore`. A failed request may have deleted some objects: obstore does not say which."""
        if any(one.version_id for one in to_delete):
            failure: Failure | None = _NO_VERSIONS
        else:
            failure = self._failure(lambda: self._store.delete([one.path for one in to_delete]))
        return [ObjectResult.failed(failure.of_bulk()) if failure else DELETED] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget) -> ObjectResult:
        """See `DeletingStore`."""
        if to_delete.version_id:
            return ObjectResult.failed(_NO_VERSIONS)
        failure = self._failure(lambda: self._store.delete(to_delete.path))
        if failure is not None and isinstance(self._store, (LocalStore, MemoryStore)):
            failure = replace(failure, names_object=True)  # there is no bucket that could be missing instead
        return result_of(failure)
