"""Deletes on S3 through boto3, with a result for each key, and a condition for each key if the store allows it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from threading import local
from typing import Any

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Failure, Kind, failure_of_response
from retention_assets.objectstore.outcomes import (
    DELETED,
    NOT_REQUESTED,
    DeleteTarget,
    MaySend,
    ObjectResult,
    Outcome,
    result_of,
)
from retention_assets.objectstore.s3 import S3_ERRORS, failure_of_s3, s3_bucket

# The longest time of a deletion request in seconds. It is less than `MARGIN` of a lease, so the request ends before
# another run can take the lease.
LONGEST = 240
_BULK = 1_000  # keys that one DeleteObjects request may name
_PRECONDITION_FAILED = ("PreconditionFailed", "412 Precondition Failed", "412")  # directory buckets send the second
_CONDITION_UNSUPPORTED = ("NotImplemented", "MalformedXML", "501")  # error codes of stores without conditional deletion
_UNNAMED = Failure(
    Kind.OTHER, "the store's response to a deletion in bulk does not name the object", retryable=True, ambiguous=True
)


class _NotSentError(Exception):
    """The permission to send ended before the request was complete. No store executes such a request."""


class _Permission(local):
    """Whether the request of a thread may still be sent."""

    may_send: MaySend
    error: Exception | None = None  # why the request was not sent

    def require(self) -> None:
        """Raise _NotSentError if the request may not be sent any more. Errors: also those of `may_send`."""
        try:
            if not self.may_send(0):
                raise _NotSentError
        except Exception as error:
            self.error = error
            raise


class _Body(BytesIO):
    """The body of a request. The client reads each part of it just before it sends the part."""

    def __init__(self, content: bytes, permission: _Permission) -> None:
        super().__init__(content)
        self._permission = permission

    def read(self, size: int | None = -1) -> bytes:
        """Return the next part. Errors: _NotSentError if the rest of the request may not be sent any more."""
        self._permission.require()
        return super().read(size)


class S3Deletion:
    """Deletes with DeleteObjects, or with DeleteObject if the store does not support DeleteObjects.

    Preparing a request of 1,000 keys takes milliseconds, in which the process may be suspended. So just before the
    bytes of a request are sent, `may_send` is asked again. An object whose request was not sent is `attempted`.

    With `conditional`, each request contains the ETag, and S3 deletes only the object that has this ETag (supported
    since 2025). S3 then requires s3:GetObject besides s3:DeleteObject. A request for a version has no ETag, because S3
    accepts only one of the two.

    If a store rejects the condition, the request is sent again without it. If that request succeeds, all later ones are
    sent without conditions. If a store ignores the condition, it deletes any object at the path, and no response shows
    this. MinIO always ignores the condition. versitygw and moto ignore it in bulk requests. Without `in_bulk`, or with
    the option `disable_bulk_delete`, each object has a request of its own, and these servers honour its condition.
    """

    def __init__(self, access: StoreAccess, *, conditional: bool, in_bulk: bool, connections: int) -> None:
        self._access = access
        self._bucket = s3_bucket(access, connections, LONGEST)
        self.most_per_request = _BULK if in_bulk and self._bucket.in_bulk else 1
        self.conditional = conditional
        self._permission = _Permission()
        self._bucket.client.meta.events.register("before-send.s3", self._before_send)

    def delete_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
        """See `DeletingStore`."""
        try:
            return self._deleted_many(to_delete, may_send)
        except _NotSentError:
            return [NOT_REQUESTED] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        """See `DeletingStore`."""
        try:
            return self._deleted_one(to_delete, may_send)
        except _NotSentError:
            return NOT_REQUESTED

    @contextmanager
    def _asking(self, may_send: MaySend) -> Iterator[None]:
        """Ask `may_send` before this thread sends a request in a `with` block. Errors: as `_Permission.require`."""
        self._permission.may_send, self._permission.error = may_send, None
        try:
            yield
        except S3_ERRORS:
            if self._permission.error:  # boto3 hides the error that a body raises
                raise self._permission.error from None
            raise

    def _before_send(self, request: Any, **_: object) -> None:
        """Ask for permission before a signed request is sent, and again before its body is. boto3 calls this."""
        self._permission.require()
        if isinstance(request.body, bytes):
            request.body = _Body(request.body, self._permission)

    def _deleted_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
        conditional = self.conditional and any(map(_has_condition, to_delete))
        response = self._delete_objects(to_delete, may_send, conditional=conditional)
        if conditional and isinstance(response, Failure) and response.code in _CONDITION_UNSUPPORTED:
            if not may_send(len(to_delete)):
                return [NOT_REQUESTED] * len(to_delete)
            response = self._delete_objects(to_delete, may_send, conditional=False)
            if not isinstance(response, Failure):  # if both fail, the condition was not the cause
                self.conditional = False
        if not isinstance(response, Failure):
            return response
        return [ObjectResult.failed(response.of_bulk())] * len(to_delete)

    def _deleted_one(self, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        conditional = self.conditional and _has_condition(to_delete)
        failure = self._delete_object(to_delete, may_send, conditional=conditional)
        if conditional and failure is not None and failure.code in _CONDITION_UNSUPPORTED:
            if not may_send(1):
                return NOT_REQUESTED
            failure = self._delete_object(to_delete, may_send, conditional=False)
            if failure is None:
                self.conditional = False
        return _result(failure)

    def _delete_objects(
        self, to_delete: Sequence[DeleteTarget], may_send: MaySend, *, conditional: bool
    ) -> Sequence[ObjectResult] | Failure:
        objects = [self._identifier(one, conditional=conditional) for one in to_delete]
        try:
            with self._asking(may_send):
                response = self._bucket.client.delete_objects(
                    Bucket=self._bucket.name, Delete={"Objects": objects}, **self._bucket.extra
                )
        except S3_ERRORS as error:
            return failure_of_s3(error, self._access)
        results = self._results(to_delete, response)
        return [results.get(one, ObjectResult.failed(_UNNAMED)) for one in to_delete]

    def _results(
        self, to_delete: Sequence[DeleteTarget], response: Mapping[str, Any]
    ) -> dict[DeleteTarget, ObjectResult]:
        """Return a result for each object that the response names. The state of any other object is unknown."""
        by_key: dict[str, list[DeleteTarget]] = defaultdict(list)
        for one in to_delete:
            by_key[self._bucket.key(one.path)].append(one)
        results = {one: DELETED for entry in response.get("Deleted", ()) for one in _targets_of(by_key, entry)}
        for entry in response.get("Errors", ()):
            secrets = self._access.options.values()
            failure = failure_of_response(str(entry.get("Code", "")), None, str(entry.get("Message", "")), secrets)
            results |= dict.fromkeys(_targets_of(by_key, entry), _result(failure))
        return results

    def _delete_object(self, to_delete: DeleteTarget, may_send: MaySend, *, conditional: bool) -> Failure | None:
        parameters = dict(self._bucket.extra)
        if to_delete.version_id:
            parameters["VersionId"] = to_delete.version_id
        if conditional:
            parameters["IfMatch"] = f'"{to_delete.e_tag}"'
        try:
            with self._asking(may_send):
                self._bucket.client.delete_object(
                    Bucket=self._bucket.name, Key=self._bucket.key(to_delete.path), **parameters
                )
        except S3_ERRORS as error:
            return failure_of_s3(error, self._access)
        return None

    def _identifier(self, to_delete: DeleteTarget, *, conditional: bool) -> dict[str, str]:
        identifier = {"Key": self._bucket.key(to_delete.path)}
        if to_delete.version_id:
            identifier["VersionId"] = to_delete.version_id
        if conditional and to_delete.e_tag and _has_condition(to_delete):
            identifier["ETag"] = to_delete.e_tag
        return identifier


def _has_condition(to_delete: DeleteTarget) -> bool:
    return bool(to_delete.e_tag) and not to_delete.version_id


def _result(failure: Failure | None) -> ObjectResult:
    if failure is not None and failure.code in _PRECONDITION_FAILED:
        return ObjectResult(Outcome.SKIPPED, f"another object is there now ({failure.code})", failure)
    return result_of(failure)


def _targets_of(by_key: Mapping[str, Sequence[DeleteTarget]], entry: Mapping[str, Any]) -> Sequence[DeleteTarget]:
    """Return the delete target for an entry of the response: the target with its key and, if several, its version."""
    same_key = by_key.get(str(entry.get("Key", "")), ())
    if len(same_key) == 1:
        return same_key
    return [one for one in same_key if one.version_id == entry.get("VersionId")]
