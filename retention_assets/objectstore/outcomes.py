"""The words of deleting: what is doomed, what a store answers about it once, and what became of it in the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from retention_assets.objectstore.failures import Failure, Kind

_NOT_SAID = "the store answered 404 without saying that the object is absent"


class Outcome(StrEnum):
    """What became of one object. A store that cannot tell whether it was there says `deleted`."""

    DELETED = "deleted"
    MISSING = "missing"
    FAILED = "failed"
    CHANGED = "changed"  # the store refused: another object is there now
    LATE = "late"  # not asked for: by then the caller's time was over


@dataclass(frozen=True, slots=True)
class DeleteTarget:
    """One object to delete: its path, its ETag if only that object may go, its version if only that one may."""

    path: str
    e_tag: str | None = None  # without the quotes of HTTP
    version_id: str | None = None

    def __hash__(self) -> int:
        return hash(self.path)  # a text keeps its own; each object is looked up several times on its way


@dataclass(frozen=True, slots=True)
class Deletion:
    """What became of the object at `path`; `detail` says why, where the outcome is not `deleted`."""

    path: str
    outcome: Outcome
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store said about one object, this once; `failure` says why it is not gone."""

    outcome: Outcome
    failure: Failure | None = None
    retry_alone: bool = (
        False  # a request for several was refused for the sake of some: this one is to be asked for alone
    )


class DeletingStore(Protocol):
    """A store as the deleter asks it. Its errors come back as answers; nothing is raised, waited for or tried again."""

    most: int  # objects that one request may name; 1: only `alone` is asked

    def delete_many(self, to_delete: Sequence[DeleteTarget]) -> Sequence[Answer]:
        """Delete several objects by one request, and return an answer for each in their order."""
        ...

    def delete_one(self, to_delete: DeleteTarget) -> Answer:
        """Delete one object."""
        ...


def answer_of(failure: Failure | None) -> Answer:
    """Return the answer about one object that a request for it alone ended with."""
    if failure is None:
        return Answer(Outcome.DELETED)
    if failure.kind is not Kind.OBJECT_MISSING:
        return Answer(Outcome.FAILED, failure)
    # A 404 may speak of the bucket: only the store's own word for an absent object counts.
    return Answer(Outcome.MISSING) if failure.names_object else Answer(Outcome.FAILED, Failure(failure.kind, _NOT_SAID))
