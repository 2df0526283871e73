"""Conditional writes with a reliable result: written, not written, or an error.

The response to a write may be lost after the store has written the object. The write is then sent again with the
same condition. If the store then refuses the write, the content of the object shows whether our first write succeeded.
Source: docs/stores.md, "Conditional writes".
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore

from retention_assets.errors import GuardRefused
from retention_assets.objectstore.failures import (
    OF_REPOSITORY,
    WRITE,
    Failure,
    Kind,
    RequestKind,
    SettingNames,
    failure_of,
)

BeforeWrite = Callable[[], None]  # called before each request that writes; an error that it raises ends the write

_DELAYS = (0.0, 0.2, 1.0, 3.0)  # seconds before each attempt
_NO_SUCH_VERSION = {"e_tag": f'"{"0" * 32}"', "version": "1"}  # an ETag and a GCS generation that no object has
_NOT_FOUND, _NO_KEY = "status code: 404", "NoSuchKey"  # S3's error if the object to replace does not exist


@dataclass(frozen=True, slots=True)
class Conditional:
    """Conditional writes to one obstore store.

    The store must be opened without obstore's retries: a retry would see our own first write as a conflict.

    Attributes:
        store: the store of obstore.
        secrets: values that messages about failures must not contain.
        sleep: waits for seconds.
        request: the kind of request in messages about failures.
        before_write: called before each request that writes, also before one that is sent again. An error that it
            raises ends the write. If the response to an earlier request was lost, the object may be written then.
    """

    store: Any
    secrets: Collection[str] = ()
    sleep: Callable[[float], None] = time.sleep
    request: RequestKind = WRITE
    before_write: BeforeWrite = lambda: None

    def create(self, path: str, content: bytes) -> bool | Failure:
        """Write an object if none exists at `path`, atomically; return whether it was written, or a failure.

        False means that an object already exists. After a lost response, an object with equal bytes counts as ours, so
        concurrent writers must write different bytes. After an `ambiguous` failure, it is unknown whether the object
        was written.
        """
        return self._written(lambda: self.store.put(path, content, mode="create"), path, content)

    def replace(self, path: str, content: bytes, e_tag: str) -> bool | Failure:
        """Replace the object if it has this ETag (without quotes); return whether it was replaced, or a failure.

        False means that the object has another ETag or does not exist. Lost responses are treated as in `create`. GCS
        compares generations instead of ETags, so the generation of the object with this ETag is looked up first. Local
        files are not supported: they have no conditional writes.
        """
        return self._written(lambda: self._replace(path, content, f'"{e_tag}"'), path, content)

    def require_honoured(self, path: str, url: str, *, with_replace: bool = True) -> None:
        """Raise an error if the store ignores conditions.

        The test creates the scratch object `path`, and leaves it in the store. It then tries to create the object again
        and, if `with_replace`, to replace it with a wrong ETag. A store that honours conditions refuses both. `url`:
        the URL of the store, for messages.

        Errors: GuardRefused when the store ignored a condition; AccessDenied or StoreError when the test could not run.
        """

        def is_written(mode: Any) -> bool:
            written = self._written(lambda: self.store.put(path, uuid4().hex.encode(), mode=mode), path, b"")
            return require_known(written, url, path, self.request)

        is_written("create")
        if is_written("create"):
            raise _ignored(url, "If-None-Match", "an existing object was overwritten")
        if with_replace and is_written(_NO_SUCH_VERSION):
            raise _ignored(url, "If-Match", "an object with another ETag was replaced")

    def _replace(self, path: str, content: bytes, e_tag: str) -> None:
        condition: dict[str, str | None] = {"e_tag": e_tag}
        if isinstance(self.store, GCSStore):
            found = self.store.get(path).meta  # a 404 to a HEAD would not show whether the bucket exists
            if found["e_tag"] != e_tag:
                raise PreconditionError
            condition["version"] = found["version"]
        self.store.put(path, content, mode=condition)

    def _written(self, put: Callable[[], object], path: str, content: bytes) -> bool | Failure:
        """Write with retries. Return whether the object was written, or the failure."""
        lost: Failure | None = None  # the first failure after which the write may have happened
        for delay in _DELAYS:
            self.sleep(delay)
            self.before_write()
            result = self._put_result(put)
            if result is True:
                return True
            if result is False:
                return self._has_content(path, content, lost) if lost else False
            lost = lost or (result if _may_be_written(result) else None)
            if not result.retryable:
                break
        return (self._has_content(path, content, lost) or _as_ambiguous(lost)) if lost else result

    def _put_result(self, put: Callable[[], object]) -> bool | Failure:
        """Return True if the write was done, False if its condition does not hold, else the failure."""
        try:
            put()
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(error, self.secrets)
            return False if _is_refusal(error, failure) else failure
        return True

    def _has_content(self, path: str, content: bytes, lost: Failure) -> bool | Failure:
        """Return whether the object has exactly `content`; the failure `lost`, as ambiguous, if it cannot be read."""
        try:
            return bool(bytes(self.store.get(path).bytes()) == content)
        except (BaseError, OSError, ValueError) as error:
            return False if _is_absent(failure_of(error, self.secrets)) else _as_ambiguous(lost)


def require_known(
    result: bool | Failure,
    url: str,
    path: str,
    request: RequestKind = WRITE,
    settings: SettingNames = OF_REPOSITORY,
) -> bool:
    """Return the result of a conditional write. Errors: AccessDenied or StoreError for a failure, ambiguous or not."""
    if isinstance(result, Failure):
        undone = "Whether it was written is unknown." if result.ambiguous else request.undone
        raise result.as_error(url, path, replace(request, undone=undone), settings)
    return result


def _ignored(url: str, condition: str, consequence: str) -> GuardRefused:
    return GuardRefused(
        f"{url}: the store ignored the condition {condition}: {consequence}. So two sweeps could hold the same lease, "
        "or an edit could overwrite the commit of another writer. Nothing was deleted. Use a store, or a version of "
        "the store, that has conditional writes."
    )


def _is_refusal(error: Exception, failure: Failure) -> bool:
    """Return whether the store refused the write because its condition does not hold.

    obstore raises the same errors for a bucket that does not exist; these are not refusals.
    """
    if failure.retryable:
        return False
    if isinstance(error, PreconditionError) and _NOT_FOUND in str(error):
        return failure.code == _NO_KEY
    return isinstance(error, (AlreadyExistsError, PreconditionError)) or _is_absent(failure)


def _is_absent(failure: Failure) -> bool:
    return failure.kind is Kind.OBJECT_MISSING and failure.names_object


def _may_be_written(failure: Failure) -> bool:
    """Return whether the object may have been written despite the failure. This includes errors without a code."""
    return failure.ambiguous or (failure.kind is Kind.OTHER and not failure.code)


def _as_ambiguous(lost: Failure) -> Failure:
    return replace(lost, ambiguous=True)
