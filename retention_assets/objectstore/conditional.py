"""Writes that happen only on a condition, with an answer that can be relied upon: done, not done, or an error.

An answer may be lost after the store has acted. So a write whose answer was lost is sent again under the same
condition; when the store then refuses it, what lies there tells whose write came first. Source: DESIGN.md, Invariants.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore

from retention_assets.errors import GuardRefused
from retention_assets.objectstore.failures import WRITE, Action, Failure, Kind, failure_of

_WRITE_UNKNOWN = Action(WRITE.verb, "Whether it was written is unknown.", WRITE.permission)
_PAUSES = (0.0, 0.2, 1.0, 3.0)  # seconds before each attempt
_NO_SUCH_VERSION = {"e_tag": f'"{"0" * 32}"', "version": "1"}  # of no object: an ETag, and GCS's generation
_NOT_FOUND, _NO_KEY = "status code: 404", "NoSuchKey"  # S3, of a replacement where nothing is


@dataclass(frozen=True, slots=True)
class Conditional:
    """Conditional writes to one store of obstore's, which must send each request once.

    Were obstore to send a write again by itself, it would take its own first one for somebody else's. `secrets` are
    kept out of what is said about failures.
    """

    store: Any
    secrets: Collection[str] = ()
    sleep: Callable[[float], None] = time.sleep

    def create(self, path: str, content: bytes) -> bool | Failure:
        """Write an object where none is, atomically; return whether it was written, or a failure.

        False: something lies there. After a lost answer equal bytes count as ours, so the bytes of two writers that
        must be told apart have to differ. After an `unclear` failure nobody knows whether it was written.
        """
        return self._written(lambda: self.store.put(path, content, mode="create"), path, content)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool | Failure:
        """Write over the object that has this ETag (without quotes); return whether it was written, or a failure.

        False: the object is another one by now, or gone. Lost answers as with `create`. GCS compares generations: the
        one that has the ETag is looked up first. Not for files of this machine, which know no such condition.
        """
        return self._written(lambda: self._replace(path, content, f'"{e_tag}"'), path, content)

    def require_honoured(self, path: str, url: str, *, with_replace: bool = True) -> None:
        """Refuse a store that ignores conditions. The scratch object `path` shows it, and is there afterwards.

        Writes the object where one is, and (`with_replace`) over one that has another ETag: a store that honours
        conditions does neither. `url` is for messages.
        Errors: GuardRefused when a condition was ignored; AccessDenied or StoreError when that cannot be known.
        """
        self._settled(lambda: self.store.put(path, _unique(), mode="create"), path, url)
        if self._settled(lambda: self.store.put(path, _unique(), mode="create"), path, url):
            raise _ignored(url, "If-None-Match", "an object was created where one was")
        if with_replace and self._settled(lambda: self.store.put(path, _unique(), mode=_NO_SUCH_VERSION), path, url):
            raise _ignored(url, "If-Match", "an object was replaced that had another ETag")

    def _settled(self, put: Callable[[], object], path: str, url: str) -> bool:
        return require_known(self._written(put, path, b""), url, path)

    def _replace(self, path: str, content: bytes, e_tag: str) -> None:
        condition: dict[str, str | None] = {"e_tag": e_tag}
        if isinstance(self.store, GCSStore):
            found = self.store.get(path).meta  # a HEAD's 404 would not say whether the bucket is there
            if found["e_tag"] != e_tag:
                raise PreconditionError
            condition["version"] = found["version"]
        self.store.put(path, content, mode=condition)

    def _written(self, put: Callable[[], object], path: str, content: bytes) -> bool | Failure:
        lost: Failure | None = None  # the first answer that left open what had happened
        for pause in _PAUSES:
            self.sleep(pause)
            answer = self._answer(put)
            if answer is True:
                return True
            if answer is False:
                return self._holds(path, content, lost) if lost else False
            lost = lost or (answer if _leaves_open(answer) else None)
            if not answer.passing:
                break
        return (self._holds(path, content, lost) or _unknown(lost)) if lost else answer

    def _answer(self, put: Callable[[], object]) -> bool | Failure:
        """Return True for done, False where the condition does not hold, else the failure."""
        try:
            put()
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(error, self.secrets)
            return False if _is_refusal(error, failure) else failure
        return True

    def _holds(self, path: str, content: bytes, lost: Failure) -> bool | Failure:
        """Return whether exactly `content` lies there; where that cannot be seen, what was lost stays unknown."""
        try:
            return bool(bytes(self.store.get(path).bytes()) == content)
        except (BaseError, OSError, ValueError) as error:
            return False if _is_absent(failure_of(error, self.secrets)) else _unknown(lost)


def require_known(answer: bool | Failure, url: str, path: str) -> bool:
    """Return the answer to a conditional write. Errors: AccessDenied or StoreError, which say if that is unknown."""
    if isinstance(answer, Failure):
        raise answer.as_error(url, path, _WRITE_UNKNOWN if answer.unclear else WRITE)
    return answer


def _unique() -> bytes:
    return uuid4().hex.encode()


def _ignored(url: str, condition: str, what: str) -> GuardRefused:
    return GuardRefused(
        f"{url}: the store ignored the condition {condition}: {what}. Two sweeps at once would both believe that they "
        f"are alone. Nothing was deleted. Use a store, or a version of it, that has conditional writes."
    )


def _is_refusal(error: Exception, failure: Failure) -> bool:
    """Return whether the condition does not hold; obstore says so too of a bucket that is not there."""
    if failure.passing:
        return False
    if isinstance(error, PreconditionError) and _NOT_FOUND in str(error):
        return failure.code == _NO_KEY
    return isinstance(error, (AlreadyExistsError, PreconditionError)) or _is_absent(failure)


def _is_absent(failure: Failure) -> bool:
    return failure.kind is Kind.OBJECT_MISSING and failure.names_object


def _leaves_open(failure: Failure) -> bool:
    """Return whether the object may have been written all the same; an error that has no code may be any."""
    return failure.unclear or (failure.kind is Kind.OTHER and not failure.code)


def _unknown(lost: Failure) -> Failure:
    return replace(lost, unclear=True)
