"""Types for deletions: what to delete, the result of one request for an object, and the final result."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from retention_assets.objectstore.failures import Failure, Kind

_NOT_SAID = "the store answered 404 without saying that the object is absent"


class Outcome(StrEnum):
    """The result of deleting one object. A store that cannot say whether the object existed reports `deleted`."""

    DELETED = "deleted"
    MISSING = "missing"
    FAILED = "failed"
    CHANGED = "changed"  # the store refused to delete, because there is another object now
    LATE = "late"  # not requested: the caller's deadline was exceeded


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """One object to delete."""

    path: str
    e_tag: str | None = None  # delete only the object with this ETag (without the quotes of HTTP); None: any object
    version_id: str | None = None  # delete only this version; None: the current object

    def __hash__(self) -> int:
        return hash(self.path)  # faster: a string caches its hash, and each target is looked up several times


@dataclass(frozen=True, slots=True)
class Deletion:
    """The final result for the object at `path`. If the outcome is not `deleted`, `detail` says why."""

    path: str
    outcome: Outcome
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one request for one object. If the object was not deleted, `failure` says why."""

    outcome: Outcome
    failure: Failure | None = None
    retry_alone: bool = False  # the store refused a bulk request because of some of its objects: delete this one alone


class DeletingStore(Protocol):
    """Sends deletion requests to a store. It returns errors as answers: it raises nothing and retries nothing."""

    most: int  # objects that one request may name; 1: only `delete_one` is called

    def delete_many(self, to_delete: Sequence[DeleteTarget]) -> Sequence[Answer]:
        """Delete several objects with one request, and return an answer for each, in the same order."""
        ...

    def delete_one(self, to_delete: DeleteTarget) -> Answer:
        """Delete one object."""
        ...


def answer_of(failure: Failure | None) -> Answer:
    """Return the answer for one object from the failure of a request for that object alone; None is success."""
    if failure is None:
        return Answer(Outcome.DELETED)
    if failure.kind is not Kind.OBJECT_MISSING:
        return Answer(Outcome.FAILED, failure)
    # A 404 may mean that the bucket is missing. The object is missing only if the store says so.
    return Answer(Outcome.MISSING) if failure.names_object else Answer(Outcome.FAILED, Failure(failure.kind, _NOT_SAID))
