"""The objects to delete, and the result of an action for each object, as stores return it and ledgers store it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from retention_assets.objectstore.failures import Failure, Kind

_GONE = "it was gone already"
# The ledger's detail for a purged copy. The bucket may still have versions of the original object.
OF_COPY = "its copy in quarantine"
_AMBIGUOUS_404 = "the store returned 404 without reporting that the object is missing"

# Whether a request for this number of objects may be sent. 0: whether a request that was allowed may still be sent.
MaySend = Callable[[int], bool]


class Outcome(StrEnum):
    """The outcome of an action for one object. The values are the words in the ledger."""

    ATTEMPTED = "attempted"  # not requested before the deadline; in the ledger: started, with an unknown result
    DELETED = "deleted"  # also for stores that do not report whether the object existed
    QUARANTINED = "quarantined"
    PURGED = "purged"
    RESTORED = "restored"
    MISSING = "missing"
    FAILED = "failed"
    SKIPPED = "skipped"  # the object or its copy may be needed now, or another object is at its path


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """The result of an action for one object. `detail` is the reason for the outcome, if there is one.

    `failure`: the store's error, which decides about retries. The ledger stores outcome and detail.
    """

    outcome: Outcome
    detail: str | None = None
    failure: Failure | None = field(default=None, compare=False)

    @classmethod
    def failed(cls, failure: Failure) -> "ObjectResult":
        """Return the result of an object whose request failed."""
        return cls(Outcome.FAILED, failure.detail, failure)


NOT_REQUESTED = ObjectResult(Outcome.ATTEMPTED)
DELETED = ObjectResult(Outcome.DELETED)  # one instance for all deleted objects, which saves memory


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """One object to delete."""

    path: str
    e_tag: str | None = None  # delete only the object with this ETag (without the quotes of HTTP); None: any object
    version_id: str | None = None  # delete only this version; None: the current object

    def __hash__(self) -> int:
        return hash(self.path)  # faster: a string caches its hash, and each target is looked up several times


class DeletingStore(Protocol):
    """Sends deletion requests to a store. The store's errors are returned as results, and nothing is retried.

    `may_send` has already allowed the first request. An implementation can call `may_send(0)` again just before it
    sends a request. It calls `may_send` with the number of objects before any second request. If the result is False,
    the request is not sent, and the objects without a result are `attempted`. Errors of `may_send` are raised.
    """

    most_per_request: int  # the most objects in one bulk request; 1: only `delete_one` is called

    def delete_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
        """Delete several objects with one request, and return a result for each, in the same order."""
        ...

    def delete_one(self, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        """Delete one object."""
        ...


def result_of(failure: Failure | None) -> ObjectResult:
    """Return the result for one object. `failure`: of the request to delete only this object; None: it succeeded."""
    if failure is None:
        return DELETED
    if failure.kind is not Kind.OBJECT_MISSING:
        return ObjectResult.failed(failure)
    # After a 404, the bucket may be missing. The object is missing only if the store reports this.
    if failure.names_object:
        return ObjectResult(Outcome.MISSING, _GONE)
    return ObjectResult.failed(Failure(failure.kind, _AMBIGUOUS_404))
