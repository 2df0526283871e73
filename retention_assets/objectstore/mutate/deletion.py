"""Deletes objects with concurrent requests, and retries retryable failures.

S3 has its own requests (`deletion_s3`). All other stores delete through obstore.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from math import ceil, inf
from random import Random
from threading import Lock

from obstore.store import AzureStore, LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.mutate.deletion_s3 import LONGEST, S3Deletion
from retention_assets.objectstore.objects import CONTROL, OpenStore, is_resolved
from retention_assets.objectstore.outcomes import (
    DELETED,
    NOT_REQUESTED,
    DeleteTarget,
    DeletingStore,
    MaySend,
    ObjectResult,
    Outcome,
    result_of,
)
from retention_assets.objectstore.rate_limiter import RateLimiter, Retries, RetryPolicy
from retention_assets.objectstore.s3 import seconds_of

_BULK = 256  # objects that one request of Azure may name
_NO_VERSIONS = Failure(Kind.OTHER, "not tried: only S3's versions can be deleted by their id")


class ObstoreDeletion(OpenStore):
    """Deletes through obstore: in bulk on Azure; one by one on GCS, in local files and in memory.

    None of these stores accepts an ETag as a condition for deletion. So any object at a path is deleted.
    """

    def __init__(self, access: StoreAccess) -> None:
        super().__init__(access)
        if access.is_local:  # as lakeFS does, delete directories that become empty
            self._store = LocalStore(access.directory, automatic_cleanup=True)
        elif not isinstance(self._store, MemoryStore):  # obstore's own retries would not check the deadline
            is_longer = seconds_of(self._store.client_options["timeout"]) > LONGEST
            self._store = access.open(retrying=False, timeout=f"{LONGEST}s" if is_longer else None)
        self.most_per_request = _BULK if isinstance(self._store, AzureStore) else 1
        self._deleting = Lock()

    def delete_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
        """See `DeletingStore`. A failed request may have deleted some objects: obstore does not say which."""
        if any(one.version_id for one in to_delete):
            failure: Failure | None = _NO_VERSIONS
        else:
            failure = self._try(lambda: self._store.delete([one.path for one in to_delete]))
        return [ObjectResult.failed(failure.of_bulk()) if failure else DELETED] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        """See `DeletingStore`."""
        if to_delete.version_id:
            return ObjectResult.failed(_NO_VERSIONS)
        if not self._access.is_local:
            return self._deleted(to_delete.path)
        # The process may be suspended after a thread was allowed to delete, and another run may work then. So one
        # thread at a time asks again, just before it deletes a file.
        with self._deleting:
            return self._deleted(to_delete.path) if may_send(0) else NOT_REQUESTED

    def _deleted(self, path: str) -> ObjectResult:
        failure: Failure | None = self._try(lambda: self._store.delete(path))
        if failure is not None and isinstance(self._store, (LocalStore, MemoryStore)):
            failure = replace(failure, names_object=True)  # there is no bucket that could be missing instead
        return result_of(failure)


AT_ONCE = 10  # more than 12 concurrent deletions made S3 return SlowDown. Source: lakeFS issue 5729

_POLL_SECONDS = 2.0  # seconds between two polls of the caller's deadline, because a poll may cost a request
_LONGEST_POLL = 10.0  # seconds; the result of a longer poll does not count for the other threads
_RETRY_POLICY = RetryPolicy()
_NOT_PLAIN = Failure(Kind.OTHER, "not tried: the path has an empty part, `.`, `..` or a control character")
_CONTRADICTION = Failure(Kind.OTHER, "not tried: the path was given twice, with different ETags")
_UNKNOWN = "the outcome is unknown, because a request for the object got no clear response"

BeforeDeadline = Callable[[], bool]
_Send = Callable[[Sequence[DeleteTarget], MaySend], Sequence[ObjectResult]]
_Results = dict[DeleteTarget, ObjectResult]


class ObjectDeleter:
    """Deletes objects by path. The caller is responsible for the plan, the guards and the liveness check.

    S3 and Azure delete in bulk, all other stores one by one, with up to ten concurrent requests. Throttled requests,
    server errors and requests without a response are retried for each affected object, as `retry_policy` allows. Other
    errors are not retried. No client retries by itself, so `rate_limiter` counts every throttle.

    On S3, an object with an ETag in its `DeleteTarget` is deleted only if it still has this ETag. With
    `conditional=False`, any object at the path is deleted. All other stores, and S3 servers without conditional
    deletion (see `S3Deletion`), delete any object at the path. Some servers honour the condition only if each object
    has a request of its own: `in_bulk=False`.

    Use one deleter for many calls, because it keeps connections and the rate that its rate limiter has reached.

    Raises:
        ConfigurationError: an option is invalid, or cannot be used for deleting.
    """

    def __init__(
        self,
        access: StoreAccess,
        rate_limiter: RateLimiter | None = None,
        *,
        conditional: bool = True,
        in_bulk: bool = True,
        retry_policy: RetryPolicy = _RETRY_POLICY,
        random: Random | None = None,
    ) -> None:
        self._store: S3Deletion | ObstoreDeletion
        if access.is_s3:
            self._store = S3Deletion(access, conditional=conditional, in_bulk=in_bulk, connections=AT_ONCE)
        else:
            self._store = ObstoreDeletion(access)
        self._rate_limiter, self._random = rate_limiter or RateLimiter(), random or Random()
        self._retry_policy = retry_policy

    def delete_all(
        self, to_delete: Sequence[DeleteTarget | str], before_deadline: BeforeDeadline = lambda: True
    ) -> Sequence[ObjectResult]:
        """Delete objects and return the result of each, in the order given. A store's error is not raised.

        An object that is already missing is a success. If the responses do not show whether an object was deleted, its
        outcome is `failed`, and the detail says so. `before_deadline` is called every few seconds. Once it returns
        False, no further request is sent, and the outcome of the remaining objects is `attempted`. An error that it
        raises ends the deletion.
        """
        wanted = [DeleteTarget(one) if isinstance(one, str) else one for one in to_delete]
        results = {one: ObjectResult.failed(_NOT_PLAIN) for one in wanted if not _is_plain(one.path)}
        results |= dict.fromkeys(_contradictions(wanted), ObjectResult.failed(_CONTRADICTION))
        work = DeletionWork(self._store, self._rate_limiter, self._retry_policy, self._random, before_deadline)
        results |= work.delete([one for one in dict.fromkeys(wanted) if one not in results])
        return [_final(results[one]) for one in wanted]


def _is_plain(path: str) -> bool:
    """Return whether the store uses `path` unchanged: the XML of a bulk deletion changes control characters."""
    return is_resolved(path) and not CONTROL.search(path)


def _contradictions(to_delete: Iterable[DeleteTarget]) -> list[DeleteTarget]:
    """Return the targets that have the same path and version as another target, but a different ETag."""
    different = dict.fromkeys(to_delete)
    if len({one.path for one in different}) == len(different):
        return []
    times = Counter((one.path, one.version_id) for one in different)
    return [one for one in different if times[one.path, one.version_id] > 1]


def _final(result: ObjectResult) -> ObjectResult:
    """Return the result. If its failure is ambiguous, the detail also says that the outcome is unknown."""
    if result.failure is None or not result.failure.ambiguous:
        return result
    return replace(result, detail=f"{result.detail}; {_UNKNOWN}")


class DeletionWork:
    """Deletes one list of objects. An instance is used for one list only.

    If a request has an ambiguous result and the next request does not find the object, the object counts as deleted. If
    the next request fails too, or finds another object, the result stays ambiguous.

    Two events stop all further requests:

    - The store itself fails: its bucket, its credentials or the network.
    - `before_deadline()` returns False or raises an error. A throttling store can delay a list for a long time. Objects
      that were not requested, or whose requests were only throttled, are then `attempted`.
    """

    def __init__(
        self,
        store: DeletingStore,
        rate_limiter: RateLimiter,
        retry_policy: RetryPolicy,
        random: Random,
        before_deadline: BeforeDeadline = lambda: True,
    ) -> None:
        self._store, self._rate_limiter, self._retry_policy, self._random = store, rate_limiter, retry_policy, random
        self._before_deadline, self._polled_at, self._deadline_exceeded = before_deadline, -inf, False
        self._lock, self._polling = Lock(), Lock()
        self._ambiguous: set[DeleteTarget] = set()  # objects of requests with an ambiguous result
        self._responded_at = -inf
        self._broken: Failure | None = None

    def delete(self, to_delete: Sequence[DeleteTarget]) -> _Results:
        """Delete the objects, which must be distinct, and return the last result for each."""
        results: _Results = {}
        delete_one = list(to_delete)
        if in_bulk := self._store.most_per_request > 1:
            results = self._in_threads(to_delete, self._store.most_per_request, self._store.delete_many)
            delete_one = [one for one, result in results.items() if result.failure and result.failure.retry_singly]
        singly = self._in_threads(
            delete_one, 1, lambda batch, may_send: [self._store.delete_one(one, may_send) for one in batch]
        )
        results |= {
            one: result
            for one, result in singly.items()
            if result.outcome is not Outcome.ATTEMPTED or one not in results
        }
        several_requests = self._ambiguous.union(delete_one if in_bulk else ())
        return results | {one: self._final_after_several_requests(one, results[one]) for one in several_requests}

    def _in_threads(self, to_delete: Sequence[DeleteTarget], most: int, send: _Send) -> _Results:
        """Delete the objects in batches of at most `most`, several batches at a time; return the last result for each.

        `send` sends a request for the objects of a batch.
        """
        queue = deque(to_delete)

        def work() -> _Results:
            results: _Results = {}
            while batch := self._next_batch(queue, most):
                results |= self._deleted_with_retries(batch, send)
            return results

        workers = min(AT_ONCE, ceil(len(queue) / most))
        if not workers:
            return {}
        with ThreadPoolExecutor(workers) as pool:
            parts = [pool.submit(work) for _ in range(workers)]
        return {one: result for part in parts for one, result in part.result().items()}

    def _next_batch(self, queue: deque[DeleteTarget], most: int) -> Sequence[DeleteTarget]:
        with self._lock:
            return [queue.popleft() for _ in range(min(len(queue), self._rate_limiter.batch_size(most)))]

    def _deleted_with_retries(self, batch: Sequence[DeleteTarget], send: _Send) -> _Results:
        """Delete a batch, retry the objects whose failure is retryable, and return the last result for each."""
        if broken := self._broken:
            not_tried = replace(broken, detail=f"not tried: {broken.detail}", ambiguous=False)
            return dict.fromkeys(batch, ObjectResult.failed(not_tried))
        retries = Retries(self._retry_policy, self._rate_limiter, self._random)
        began = self._rate_limiter.now()
        results = self._sent(batch, send)
        if not results:
            return dict.fromkeys(batch, NOT_REQUESTED)
        while remaining := self._to_retry(results):
            if not retries.wait(throttled=any(map(_is_throttled, remaining.values()))):
                break
            again = self._sent(list(remaining), send)
            if not again:
                return results | self._not_requested(results)
            results |= again
        self._record_broken(results, began)
        return results

    def _not_requested(self, results: _Results) -> _Results:
        """Return `attempted` results for the objects that were only throttled, as if they had never been requested."""
        throttled_only = (
            one for one, result in results.items() if _is_throttled(result) and one not in self._ambiguous
        )
        return dict.fromkeys(throttled_only, NOT_REQUESTED)

    def _to_retry(self, results: _Results) -> _Results:
        """Return the objects to retry next, with their results: all retryable objects, or fewer after a throttle."""
        remaining = {one: result for one, result in results.items() if result.failure and result.failure.retryable}
        if any(map(_is_throttled, remaining.values())):
            return dict(islice(remaining.items(), self._rate_limiter.batch_size(len(remaining))))
        return remaining

    def _sent(self, batch: Sequence[DeleteTarget], send: _Send) -> _Results:
        """Send one request when the rate limiter allows it; return no results if the deadline is exceeded by then."""
        if not self._may_send(len(batch)):
            return {}
        sent_at = self._rate_limiter.now()
        results = dict(zip(batch, send(batch, self._may_send), strict=True))
        if all(result.outcome is Outcome.ATTEMPTED for result in results.values()):
            return {}
        failures = [result.failure for result in results.values() if result.failure]
        if any(failure.throttled for failure in failures):
            self._rate_limiter.throttled(sent_at)
            if len(failures) < len(batch):
                self._rate_limiter.progressed()
        elif not any(failure.retryable for failure in failures):
            self._rate_limiter.not_throttled(sent_at)
        with self._lock:
            self._ambiguous.update(
                one for one, result in results.items() if result.failure and result.failure.ambiguous
            )
            if not any(failure.kind is Kind.UNREACHABLE for failure in failures):
                self._responded_at = self._rate_limiter.now()
        return results

    def _may_send(self, objects: int) -> bool:
        if not self._deadline_exceeded:
            if objects:
                self._rate_limiter.wait_for(objects)
            with self._polling:  # a poll may last long: until it returns, the other threads send nothing
                now = self._rate_limiter.now()
                if not self._deadline_exceeded and now - self._polled_at >= _POLL_SECONDS:
                    self._poll()
                    polled_at = self._rate_limiter.now()
                    # after a long poll, the next thread polls again: the process may have been suspended
                    self._polled_at = polled_at if polled_at - now < _LONGEST_POLL else now
        return not self._deadline_exceeded

    def _poll(self) -> None:
        """Check the deadline. If `before_deadline` raises, the deadline counts as exceeded for all threads."""
        try:
            self._deadline_exceeded = not self._before_deadline()
        except Exception:
            self._deadline_exceeded = True
            raise

    def _record_broken(self, results: _Results, began: float) -> None:
        """Record a failure of the store itself, after which no further request is sent.

        A request without a response is not a failure of the store if other requests got responses in the meantime.
        """
        failures = (result.failure for result in results.values() if result.failure)
        failure = next((failure for failure in failures if failure.kind.is_of_store), None)
        if failure and (failure.kind is not Kind.UNREACHABLE or self._responded_at < began):
            self._broken = failure

    def _final_after_several_requests(self, to_delete: DeleteTarget, result: ObjectResult) -> ObjectResult:
        """Return the final result for an object that an earlier request may have deleted."""
        if result.outcome is Outcome.MISSING:
            return DELETED
        # Another object at the path now does not show that the earlier request left the object there.
        if result.outcome in (Outcome.FAILED, Outcome.SKIPPED) and result.failure and to_delete in self._ambiguous:
            return ObjectResult.failed(replace(result.failure, ambiguous=True))
        return result


def _is_throttled(result: ObjectResult) -> bool:
    return result.failure is not None and result.failure.throttled
