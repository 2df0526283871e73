"""Deletes through obstore: in bulk on Azure; one by one on GCS, in local files and in this process's memory."""

from collections.abc import Sequence
from dataclasses import replace

from obstore.store import AzureStore, LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.objects import OpenStore
from retention_assets.objectstore.outcomes import Answer, DeleteTarget, Outcome, answer_of

_BULK = 256  # objects that one request of Azure may name
_NO_VERSIONS = Failure(Kind.OTHER, "not tried: only S3's versions can be deleted by their id")


class ObstoreDeletion(OpenStore):
    """Deletes any object at a path. None of these stores accepts an ETag as a condition for deleting."""

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        if access.is_local:  # as lakeFS does, delete directories that become empty
            self._store = LocalStore(access.url.removeprefix("file://"), automatic_cleanup=True)
        self.most = _BULK if isinstance(self._store, AzureStore) else 1

    def delete_many(self, to_delete: Sequence[DeleteTarget]) -> Sequence[Answer]:
        """See `DeletingStore`. A failed request may have deleted some objects: obstore does not say which."""
        if any(one.version_id for one in to_delete):
            return [Answer(Outcome.FAILED, _NO_VERSIONS, retry_alone=True)] * len(to_delete)
        failure = self._failure(lambda: self._store.delete([one.path for one in to_delete]))
        if failure is None:
            return [Answer(Outcome.DELETED)] * len(to_delete)
        retry_alone = not (failure.passing or failure.kind.is_of_the_store)
        return [Answer(Outcome.FAILED, failure, retry_alone=retry_alone)] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget) -> Answer:
        """See `DeletingStore`."""
        if to_delete.version_id:
            return Answer(Outcome.FAILED, _NO_VERSIONS)
        failure = self._failure(lambda: self._store.delete(to_delete.path))
        if failure is not None and isinstance(self._store, (LocalStore, MemoryStore)):
            failure = replace(failure, names_object=True)  # there is no bucket that could be missing instead
        return answer_of(failure)
