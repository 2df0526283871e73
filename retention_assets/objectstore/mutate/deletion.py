"""Deletes objects, with a result for each."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.mutate.deletion_obstore import ObstoreDeletion
from retention_assets.objectstore.mutate.deletion_s3 import S3Deletion
from retention_assets.objectstore.mutate.deletion_work import AT_ONCE, BeforeDeadline, DeletionWork
from retention_assets.objectstore.outcomes import Answer, DeleteTarget, Deletion, Outcome
from retention_assets.objectstore.rate_limiter import Patience, RateLimiter
from retention_assets.objectstore.s3 import is_s3

__all__ = ["DeleteTarget", "Deletion", "ObjectDeleter", "Outcome"]

_PATIENCE = Patience()
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # the XML of a bulk deletion changes these characters
_NOT_PLAIN = Failure(Kind.OTHER, "not tried: the path has an empty part, `.`, `..` or a control character")
_CONTRADICTION = Failure(Kind.OTHER, "not tried: the path was named twice, with different ETags")
_UNKNOWN = "the outcome is unknown, for a request that named it got no clear answer"
_GONE = "it was gone already"


class ObjectDeleter:
    """Deletes objects by path. The caller is responsible for the plan, the guards and the liveness check.

    S3 and Azure delete in bulk, all other stores one by one, with up to ten concurrent requests. Throttled requests,
    server errors and requests without a response are retried for each affected object, as `patience` allows. Other
    errors are not retried. `rate_limiter` is told of every throttle. For stores other than S3, it is told only after
    obstore's own four quick retries.

    On S3, an object with an ETag in its `DeleteTarget` is deleted only if it still has this ETag. With
    `conditional=False`, any object at the path is deleted. All other stores, and S3 servers without conditional
    deletion (see `S3Deletion`), delete any object at the path.

    Keep one deleter for many calls: it keeps connections, and its rate limiter keeps the rate that it has reached.

    Raises:
        ConfigurationError: an option is invalid, or cannot be used for deleting.
    """

    def __init__(
        self,
        access: StoreAccess,
        rate_limiter: RateLimiter | None = None,
        *,
        conditional: bool = True,
        patience: Patience = _PATIENCE,
        random: Random | None = None,
    ) -> None:
        self._store: S3Deletion | ObstoreDeletion
        if is_s3(access):
            self._store = S3Deletion(access, conditional=conditional, connections=AT_ONCE)
        else:
            self._store = ObstoreDeletion(access)
        self._pace, self._patience, self._random = rate_limiter or RateLimiter(), patience, random or Random()

    def delete_all(
        self, to_delete: Sequence[DeleteTarget | str], before_deadline: BeforeDeadline = lambda: True
    ) -> Sequence[Deletion]:
        """Delete objects and return the result of each, in the order given. A store's error is not raised.

        An object that is already missing is a success. If the responses do not show whether an object was deleted, its
        outcome is `failed`, and the detail says so. `before_deadline` is called every few seconds. Once it returns
        False, no further request is sent, and the remaining objects are `late`.
        """
        wanted = [DeleteTarget(one) if isinstance(one, str) else one for one in to_delete]
        answers = {one: Answer(Outcome.FAILED, _NOT_PLAIN) for one in wanted if not _is_plain(one.path)}
        answers |= dict.fromkeys(_contradictions(wanted), Answer(Outcome.FAILED, _CONTRADICTION))
        work = DeletionWork(self._store, self._pace, self._patience, self._random, before_deadline)
        answers |= work.done([one for one in dict.fromkeys(wanted) if one not in answers])
        return [_deletion(one, answers[one]) for one in wanted]


def _is_plain(path: str) -> bool:
    """Return whether the store uses `path` unchanged. obstore removes slashes at its ends and deletes that path."""
    within = f"/{path}/"
    return not ("//" in within or "/./" in within or "/../" in within or _CONTROL.search(path))


def _contradictions(to_delete: Iterable[DeleteTarget]) -> list[DeleteTarget]:
    """Return the targets that have the same path and version as another target, but a different ETag."""
    different = dict.fromkeys(to_delete)
    if len({one.path for one in different}) == len(different):
        return []
    times = Counter((one.path, one.version_id) for one in different)
    return [one for one in different if times[one.path, one.version_id] > 1]


def _deletion(to_delete: DeleteTarget, answer: Answer) -> Deletion:
    if answer.outcome is Outcome.MISSING:
        return Deletion(to_delete.path, answer.outcome, _GONE)
    if answer.failure is None:
        return Deletion(to_delete.path, answer.outcome)
    suffix = f"; {_UNKNOWN}" if answer.failure.unclear else ""
    return Deletion(to_delete.path, answer.outcome, answer.failure.detail + suffix)
