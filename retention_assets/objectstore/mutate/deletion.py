"""Deleting objects, with an answer for each. Only `sweep` calls this."""

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
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # the XML of a deletion in bulk does not carry them unaltered
_NOT_PLAIN = Failure(Kind.OTHER, "not tried: the path has an empty part, `.`, `..` or a control character")
_CONTRADICTION = Failure(Kind.OTHER, "not tried: the path was named twice, with different ETags")
_UNKNOWN = "the outcome is unknown, for a request that named it got no clear answer"
_GONE = "it was gone already"


class ObjectDeleter:
    """Deletes objects by path. It asks no questions: the plan, the guards and liveness are its caller's.

    S3 and Azure are asked in bulk, all others one by one, up to ten requests at once. What is throttled, broken or not
    answered is asked again, for each object that it concerns, as long as `patience` lasts; no other error is. `pace`
    hears of every throttle: from obstore's stores (all but S3), after obstore's own four quick retries.

    On S3 an object doomed with an ETag goes only if it still has it; `conditional=False` deletes whatever is there.
    A store that does not know the condition deletes whatever is there, too (see `S3Deletion`), and so does every
    store but S3. Keep one deleter for many calls: it holds connections, and what its pace has learnt.

    Raises:
        ConfigurationError: an option is wrong, or cannot be used for deleting.
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
        """Delete objects and return what became of each, in the order given. A store's error raises nothing.

        An object that is gone is a success. One whose fate no answer tells is `failed`, and its detail says so.
        `in_time` is asked every few seconds: once it says no, no further request is sent, and the rest is `late`.
        """
        wanted = [DeleteTarget(one) if isinstance(one, str) else one for one in to_delete]
        answers = {one: Answer(Outcome.FAILED, _NOT_PLAIN) for one in wanted if not _is_plain(one.path)}
        answers |= dict.fromkeys(_contradictions(wanted), Answer(Outcome.FAILED, _CONTRADICTION))
        work = DeletionWork(self._store, self._pace, self._patience, self._random, before_deadline)
        answers |= work.done([one for one in dict.fromkeys(wanted) if one not in answers])
        return [_deletion(one, answers[one]) for one in wanted]


def _is_plain(path: str) -> bool:
    """Return whether the store takes `path` as it is: obstore cuts outer slashes off and deletes what is left."""
    within = f"/{path}/"
    return not ("//" in within or "/./" in within or "/../" in within or _CONTROL.search(path))


def _contradictions(to_delete: Iterable[DeleteTarget]) -> list[DeleteTarget]:
    """Return those whose path and version another names with another ETag: only one of them can be meant."""
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
