"""Deleting objects, with an answer for each. Only `sweep` calls this."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from itertools import batched

from obstore.store import AzureStore, LocalStore, MemoryStore, S3Store

from retention_assets.stores.failures import Failure, Kind
from retention_assets.stores.objects import OpenStore

_BULK = 1_000  # keys in one DeleteObjects request; obstore cuts smaller batches for Azure
_AT_ONCE = 10  # more than 12 deletions at a time made S3 answer SlowDown. Source: lakeFS facts 8, #5729
_UNKNOWN = "the outcome is unknown, for the request that named it failed as a whole"


class Outcome(StrEnum):
    """What became of one object. A store that cannot tell whether it was there says `deleted`."""

    DELETED = "deleted"
    MISSING = "missing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of the object at `path`; `detail` says why it failed."""

    path: str
    outcome: Outcome
    detail: str | None = None


class ObjectDeleter(OpenStore):
    """Deletes objects by path. It asks no questions: the plan, the guards and liveness are its caller's."""

    def delete_all(self, paths: Sequence[str]) -> Sequence[Deletion]:
        """Delete objects and return what became of each, in the order of `paths`. A store's error raises nothing.

        S3 and Azure are asked in bulk first. Where a bulk request fails for the sake of single objects, each of its
        objects is deleted alone, so that its own answer is known. An object that is gone is a success.
        """
        results = {path: _refused(path) for path in paths if not _is_plain(path)}
        plain = [path for path in dict.fromkeys(paths) if path not in results]
        for batch in batched(plain, _BULK):
            results |= {done.path: done for done in self._delete_batch(batch)}
        return [results[path] for path in paths]

    def _delete_batch(self, paths: Sequence[str]) -> Sequence[Deletion]:
        in_bulk = isinstance(self._store, (S3Store, AzureStore))
        if in_bulk:
            failure = self._failure(lambda: self._store.delete(list(paths)))
            if failure is None:
                return [Deletion(path, Outcome.DELETED) for path in paths]
            if failure.kind.is_of_the_store:
                return [Deletion(path, Outcome.FAILED, f"{failure.detail}; {_UNKNOWN}") for path in paths]
        return self._delete_one_by_one(paths, after_bulk=in_bulk)

    def _delete_one_by_one(self, paths: Sequence[str], *, after_bulk: bool) -> Sequence[Deletion]:
        broken: list[Failure] = []  # filled by the first request that shows the store itself to fail

        def delete(path: str) -> Deletion:
            if broken:
                return Deletion(path, Outcome.FAILED, f"not tried alone: {broken[0].detail}")
            failure = self._failure(lambda: self._store.delete(path))
            if failure is not None and failure.kind.is_of_the_store:
                broken.append(failure)
            return self._deletion(path, failure, after_bulk=after_bulk)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(delete, paths))

    def _deletion(self, path: str, failure: Failure | None, *, after_bulk: bool) -> Deletion:
        if failure is None:
            return Deletion(path, Outcome.DELETED)
        if failure.kind is not Kind.OBJECT_MISSING:
            return Deletion(path, Outcome.FAILED, failure.detail)
        # A 404 may speak of the bucket: only the store's own word for an absent object counts.
        if not failure.names_object and not isinstance(self._store, (LocalStore, MemoryStore)):
            return Deletion(path, Outcome.FAILED, "the store answered 404 without saying that the object is absent")
        # The bulk request before this one may have been what removed it.
        return Deletion(path, Outcome.DELETED if after_bulk else Outcome.MISSING)


def _is_plain(path: str) -> bool:
    """Return whether the store takes `path` as it is: obstore cuts outer slashes off and deletes what is left."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _refused(path: str) -> Deletion:
    return Deletion(path, Outcome.FAILED, "not tried: the path has an empty part, `.` or `..`")
