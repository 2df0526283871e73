"""Deleting through obstore: Azure in bulk, Google, local files and this process's memory one by one."""

from collections.abc import Sequence
from dataclasses import replace

from obstore.store import AzureStore, LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.objects import OpenStore
from retention_assets.objectstore.outcomes import Answer, DeleteTarget, Outcome, answer_of

_BULK = 256  # what Azure takes in one request
_NO_VERSIONS = Failure(Kind.OTHER, "not tried: only S3's versions can be deleted by their id")


class ObstoreDeletion(OpenStore):
    """Deletes by path alone. No store behind it takes an ETag as a condition: what is there goes."""

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        if access.is_local:  # a directory that is empty then goes too, as lakeFS itself does it
            self._store = LocalStore(access.url.removeprefix("file://"), automatic_cleanup=True)
        self.most = _BULK if isinstance(self._store, AzureStore) else 1

    def delete_many(self, to_delete: Sequence[DeleteTarget]) -> Sequence[Answer]:
        """See `DeletingStore`. Of a request that is refused, some objects may be gone: obstore does not say which."""
        if any(one.version_id for one in to_delete):
            return [Answer(Outcome.FAILED, _NO_VERSIONS, retry_alone=True)] * len(to_delete)
        failure = self._failure(lambda: self._store.delete([one.path for one in to_delete]))
        if failure is None:
            return [Answer(Outcome.DELETED)] * len(to_delete)
        delete_one = not (failure.passing or failure.kind.is_of_the_store)
        return [Answer(Outcome.FAILED, failure, retry_alone=delete_one)] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget) -> Answer:
        """See `DeletingStore`."""
        if to_delete.version_id:
            return Answer(Outcome.FAILED, _NO_VERSIONS)
        failure = self._failure(lambda: self._store.delete(to_delete.path))
        if failure is not None and isinstance(self._store, (LocalStore, MemoryStore)):
            failure = replace(failure, names_object=True)  # it has no bucket that a 404 could speak of
        return answer_of(failure)
