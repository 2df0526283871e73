"""Copying objects, each copy looked at before it counts. Only `sweep` calls this."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind, failure_of
from retention_assets.objectstore.mutate.copy_strategies import OTHER_OBJECT, copy_strategy
from retention_assets.objectstore.objects import ObjectFacts, OpenStore, facts_of
from retention_assets.objectstore.rate_limiter import Patience, RateLimiter, Trials
from retention_assets.objectstore.s3 import S3_ERRORS, is_s3, s3_bucket

_AT_ONCE = 10  # more requests at a time made S3 answer SlowDown. Source: lakeFS facts 8, #5729
_PATIENCE = Patience()
SIZE, SIZE_AND_ETAG = "size", "size and etag"  # by what a copy was verified
_HASH = re.compile(r"[0-9a-f]{32}")  # an ETag that may be the content's MD5, not one of several parts


class Outcome(StrEnum):
    """What became of one copy."""

    COPIED = "copied"  # it lies at its target, looked at
    MISSING = "missing"  # there is no such object, says the store
    CHANGED = "changed"  # another object is there than was planned; what was copied of it does not count
    FAILED = "failed"
    LATE = "late"  # not begun: the caller's time was over


@dataclass(frozen=True, slots=True)
class Copy:
    """One object to copy, as it was planned. `path` is relative to the source's URL, `to` to the target's."""

    path: str
    to: str
    size: int  # bytes
    e_tag: str | None = None  # without the quotes of HTTP; None: whichever it is


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of a copy: by what it was compared with its source, or why it does not count."""

    path: str
    to: str
    outcome: Outcome
    verified_by: str | None = None  # `SIZE` or `SIZE_AND_ETAG`
    detail: str | None = None
    e_tag: str | None = None  # of the source, when the copy was verified
    copy_e_tag: str | None = None  # of the copy, when it was verified


@dataclass(frozen=True, slots=True)
class VerifiedCopy:
    """What an earlier attempt saw when it verified a copy."""

    size: int  # bytes, of source and copy
    e_tag: str  # of the source
    copy_e_tag: str


def _none() -> Mapping[str, VerifiedCopy]:
    return {}


class ObjectCopier:
    """Copies objects from one place to another. It asks no questions: plan, guards and liveness are its caller's.

    Where both places are of one S3 endpoint and credentials, in one container of Azure or in one bucket of GCS, the
    store copies by itself. Else, files of this machine included, the bytes come through here, a few chunks at a time.
    A copy has the time of its making. Another object that is seen at the target is not written over; one that comes
    between the look and the copy is.
    """

    def __init__(self, source: StoreAccess, target: StoreAccess, rate_limiter: RateLimiter | None = None) -> None:
        """Open both places. Errors: as `StoreAccess.open` and `s3_bucket`."""
        self._source, self._target = _Place(source), _Place(target)
        self._carrier = copy_strategy(source, target, connections=_AT_ONCE)
        self._pace, self._random = rate_limiter or RateLimiter(), Random()

    def copy(self, path: str, to: str, size: int, e_tag: str | None = None) -> Copied:
        """Copy one object and return what became of it. A store's error raises nothing.

        The object must have the planned size and ETag before the copy, and the same ETag after it, for not every
        store makes that a condition. The copy must have the object's size. Their ETags are compared if both look like
        MD5 sums, unless S3 says that it encrypts one of them, which makes its ETag another number. An equal copy that
        is there already is not made again.
        """
        (copied,) = self.copy_all([Copy(path, to, size, e_tag)])
        return copied

    def copy_all(
        self,
        copies: Sequence[Copy],
        before_deadline: Callable[[], bool] = lambda: True,
        earlier: Callable[[], Mapping[str, VerifiedCopy]] = _none,
    ) -> Sequence[Copied]:
        """Copy objects, ten at once, and return what became of each, in the order given. Nothing is raised either.

        After a failure that any other object would meet too, those that have not begun are not tried. Once `in_time`
        says no, no further copy begins. `earlier` gives the copies that earlier attempts verified, by the path of
        their source. Such a copy is not made again while source and copy still have the ETags of then. `earlier` is
        called only when something lies at a target whose ETag cannot be compared.
        """
        broken: list[Failure] = []

        def copied(copy: Copy) -> Copied:
            if broken:
                return _ended(copy, Outcome.FAILED, f"not tried: {broken[0].detail}")
            if not before_deadline():
                return _ended(copy, Outcome.LATE)
            result = self._copied(copy, earlier)
            if isinstance(result, Failure):
                if result.kind.is_of_the_store:
                    broken.append(result)
                return _ended(copy, Outcome.FAILED, result.detail)
            return result

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(copied, copies))

    def _copied(self, copy: Copy, earlier: Callable[[], Mapping[str, VerifiedCopy]]) -> Copied | Failure:
        if not (_is_plain(copy.path) and _is_plain(copy.to)):
            return _ended(copy, Outcome.FAILED, "not tried: a path has an empty part, `.` or `..`")
        found = self._source.look(copy.path)
        if found is None:
            return self._source.absent(copy.path) or _ended(copy, Outcome.MISSING)
        if isinstance(found, Failure):
            return found
        if found.size != copy.size or (copy.e_tag and found.e_tag != copy.e_tag):
            return _ended(copy, Outcome.CHANGED, f"what is there now is {_described(found)}")
        there = self._target.look(copy.to)
        if isinstance(there, Failure):
            return there
        alike = self._same_content(copy, found, there) if there else SIZE
        if alike is None:
            return _ended(copy, Outcome.FAILED, "another object is at the target; it was not written over")
        if there and (alike == SIZE_AND_ETAG or _verified_before(earlier().get(copy.path), found, there)):
            return _verified(copy, SIZE_AND_ETAG, found, there)
        return self._copy_object(copy, found) or self._verified(copy, found)

    def _copy_object(self, copy: Copy, found: ObjectFacts) -> Copied | Failure | None:
        """Copy what was found; None is success."""
        failure = self._sent(copy, found)
        if failure is OTHER_OBJECT:
            return _ended(copy, Outcome.CHANGED, failure.detail)
        if failure and failure.kind is Kind.OBJECT_MISSING and self._source.look(copy.path) is None:
            return self._source.absent(copy.path) or _ended(copy, Outcome.MISSING)
        return failure

    def _sent(self, copy: Copy, found: ObjectFacts) -> Failure | None:
        """Copy with patience: a copy that was made although no answer came is made again."""
        trials = Trials(_PATIENCE, self._pace, self._random)
        while True:
            self._pace.before(1)
            asked_at = self._pace.now()
            failure = self._carrier.copy_object(copy.path, copy.to, found)
            if failure is None:
                self._pace.clean(asked_at)
                return None
            if failure.throttled:
                self._pace.throttled(asked_at)
            if not (failure.passing and trials.wait(throttled=failure.throttled)):
                return failure

    def _verified(self, copy: Copy, found: ObjectFacts) -> Copied | Failure:
        again = self._source.look(copy.path)
        if isinstance(again, Failure):
            return again
        if again is None or (again.size, again.e_tag) != (found.size, found.e_tag):
            return _ended(copy, Outcome.CHANGED, "it was written to, or went, while it was copied")
        there = self._target.look(copy.to)
        if isinstance(there, Failure):
            return there
        alike = self._same_content(copy, found, there) if there else None
        if there is None or alike is None:
            seen = _described(there) if there else "nothing"
            return _ended(copy, Outcome.FAILED, f"copied from {_described(found)}, but at the target is {seen}")
        return _verified(copy, alike, found, there)

    def _same_content(self, copy: Copy, found: ObjectFacts, there: ObjectFacts) -> str | None:
        """Return by what two objects are seen to be the same, or None when they are not."""
        if there.size != found.size:
            return None
        if not (_HASH.fullmatch(found.e_tag or "") and _HASH.fullmatch(there.e_tag or "")):
            return SIZE
        if there.e_tag == found.e_tag:
            return SIZE_AND_ETAG
        encrypted = self._source.is_encrypted(copy.path) or self._target.is_encrypted(copy.to)
        return SIZE if encrypted else None


class _Place(OpenStore):
    """A place as copying looks at it."""

    def look(self, path: str) -> ObjectFacts | Failure | None:
        """Return the object at `path`, None where the store says 404, or what prevented the look."""
        try:
            return facts_of(self._store.head(path))
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(error, self._access.options.values())
        return None if failure.kind is Kind.OBJECT_MISSING else failure

    def absent(self, path: str) -> Failure | None:
        """Return None when it is the object that is absent, else the failure: a 404 may speak of the bucket."""
        if isinstance(self._store, (LocalStore, MemoryStore)):
            return None
        failure = self._failure(lambda: self._store.get(path))  # the answer to a HEAD has no words
        if failure is None:
            return Failure(Kind.OTHER, "it is there again")
        return None if failure.names_object else failure

    def is_encrypted(self, path: str) -> bool:
        """Return whether S3 says that it holds the object encrypted such that its ETag is no MD5 sum."""
        if not is_s3(self._access):
            return False
        bucket = s3_bucket(self._access)
        try:
            told = bucket.client.head_object(Bucket=bucket.name, Key=bucket.key(path), **bucket.extra)
        except S3_ERRORS:
            return False  # so the two count as different, and nothing that follows a copy happens
        return told.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in told


def _is_plain(path: str) -> bool:
    """Return whether every store takes `path` as it is: obstore cuts outer slashes off."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _verified_before(earlier: VerifiedCopy | None, found: ObjectFacts, there: ObjectFacts) -> bool:
    """Return whether an earlier attempt made this very copy of this very object."""
    return earlier is not None and (earlier.size, earlier.e_tag, earlier.size, earlier.copy_e_tag) == (
        found.size,
        found.e_tag,
        there.size,
        there.e_tag,
    )


def _verified(copy: Copy, by: str, found: ObjectFacts, there: ObjectFacts) -> Copied:
    return Copied(copy.path, copy.to, Outcome.COPIED, by, e_tag=found.e_tag, copy_e_tag=there.e_tag)


def _described(facts: ObjectFacts) -> str:
    return f"an object of {facts.size:,} bytes with ETag {facts.e_tag}"


def _ended(copy: Copy, outcome: Outcome, detail: str | None = None) -> Copied:
    return Copied(copy.path, copy.to, outcome, detail=detail)
