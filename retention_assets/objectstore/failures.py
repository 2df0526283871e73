"""Classifies a store's errors: the kind, one line of detail, and the remedy.

The store's own message is in the detail only if the kind is `OTHER`: in one line, shortened, and without secrets.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from urllib.parse import quote

from retention_assets.errors import AccessDenied, ObjectMissing, StoreError

_MAX_DETAIL = 200  # characters of the store's own message
_SHORTEST_REDACTED = 4  # characters; hiding shorter values (`k`, `1`) would make ordinary words unreadable
_HIDDEN = "***"

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>|\(code: (\w{1,80})\)")
_MESSAGE = re.compile(r"<Message>([^<]{1,400})</Message>")
_QUERY = re.compile(r"\?\S+")  # of a request's URL; on Azure it contains the signature

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "bucket does not exist")
# In the response to a bulk deletion, Azure reports a missing blob only by the last of these texts.
_NO_OBJECT = ("NoSuchKey", "NoSuchVersion", "BlobNotFound", "PathNotFound", "The specified blob does not exist")
_BAD_CREDENTIALS = (
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired",
    "InvalidSecurity", "AuthorizationHeaderMalformed", "AuthenticationFailed", "InvalidAuthenticationInfo",
)  # fmt: skip
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "error getting credentials", "no credentials")
_UNREACHABLE = ("error sending request", "timed out", "kind: Connect", "connection closed", "dns error")
_THROTTLES = (
    "SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests",
    "BandwidthLimitExceeded", "ServerBusy",
)  # fmt: skip
_THROTTLE_STATUSES = ("429", "503")
_SERVER_ERRORS = ("InternalError", "InternalServerError", "OperationTimedOut")
_DENIALS = (
    "AccessDenied", "Permission denied", "Read-only file system", "Operation not permitted",
    "Mkdirs failed to create",  # Hadoop's text for a directory in which this user may not write
)  # fmt: skip
_FULL = ("No space left on device", "quota exceeded")
_ARCHIVED = ("InvalidObjectState", "ObjectNotInActiveTierError")  # S3's codes, which have the status 403 of a denial
# The store did nothing, and the same request may succeed later:
_RETRYABLE_CODES = ("RequestTimeout", "OperationAborted", "ConditionalRequestConflict")


class Kind(Enum):
    """The kind of a failure. Callers react differently to each kind."""

    OBJECT_MISSING = "object missing"
    BUCKET_MISSING = "bucket missing"
    CREDENTIALS = "credentials refused"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    FULL = "full"
    OTHER = "other"

    @property
    def is_of_store(self) -> bool:
        """Whether the next request would fail too, for any object."""
        return self in (Kind.BUCKET_MISSING, Kind.CREDENTIALS, Kind.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class RequestKind:
    """The kind of a request, for messages about its failure."""

    verb: str
    undone: str  # a sentence that says what was not done
    permission: str  # the permission that the request needs
    of_warehouse: bool = False  # whether the request is for the warehouse, which has no `storage_options`


@dataclass(frozen=True, slots=True)
class SettingNames:
    """The names of the settings that hold the URL and the options of a store, for messages."""

    url: str = "storage"
    options: str = "storage_options"


OF_REPOSITORY = SettingNames()

READ = RequestKind("read", "It was not read.", "read objects (s3:GetObject)")
READ_VERSION = RequestKind("read a version of", "It was not read.", "read object versions (s3:GetObjectVersion)")
WRITE = RequestKind("write", "It was not written.", "write objects (s3:PutObject)")
LIST = RequestKind("list", "The listing was not used.", "list the bucket (s3:ListBucket)")
REMOVE = RequestKind("remove", "It was not removed.", "delete objects (s3:DeleteObject)")


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a store, classified by how callers react to it."""

    kind: Kind
    detail: str
    names_object: bool = False  # the store reported that the object, not the bucket, is missing
    code: str = ""  # the store's own code, such as PreconditionFailed
    throttled: bool = False  # the store asked for fewer requests
    retryable: bool = False  # the same request may succeed later
    ambiguous: bool = False  # the store may have done what was requested
    retry_singly: bool = False  # one object may have made a bulk request fail: each object is requested by itself next
    of_one_object: bool = False  # the failure of one object of a bulk request; the others may have been processed

    @property
    def is_archived(self) -> bool:
        """Whether S3 cannot read the object because its storage class is an archive."""
        return self.code in _ARCHIVED

    def of_bulk(self) -> "Failure":
        """Return the failure for each of the objects of a bulk request that failed."""
        if self.of_one_object and self.retryable:
            # A second bulk request could fail because of the same object, and not report that the others are deleted.
            return replace(self, retry_singly=True, retryable=False, ambiguous=True)
        return replace(self, retry_singly=not (self.retryable or self.kind.is_of_store))

    def as_error(self, url: str, path: str, request: RequestKind, settings: SettingNames = OF_REPOSITORY) -> StoreError:
        """Return the error to raise. Its message says where and what failed, what was not done, and the remedy."""
        remedies = _REMEDIES | _REMEDIES_OF_WAREHOUSE if request.of_warehouse else _REMEDIES
        remedy = remedies[self.kind].format(permission=request.permission, url=settings.url, options=settings.options)
        what = f"{url}: cannot {request.verb} {repr(path) if path else 'its objects'}"
        return _CLASSES.get(self.kind, StoreError)(f"{what}: {self.detail}. {request.undone} {remedy}")


_CLASSES: dict[Kind, type[StoreError]] = {
    Kind.OBJECT_MISSING: ObjectMissing,
    Kind.CREDENTIALS: AccessDenied,
    Kind.DENIED: AccessDenied,
}
_REMEDIES = {
    Kind.OBJECT_MISSING: "Check that `{url}` is the right URL, and whether another program deleted the object.",
    Kind.BUCKET_MISSING: "Check the bucket's name in `{url}`, and `endpoint` and `region` in `{options}`.",
    Kind.CREDENTIALS: "Check the credentials in `{options}` (access_key_id and secret_access_key on S3).",
    Kind.DENIED: "Let the credentials in `{options}` {permission}.",
    Kind.UNREACHABLE: "Check `endpoint` in `{options}`, and the network between this machine and the store.",
    Kind.FULL: "Free space there, then run the same command again.",
    Kind.OTHER: "Run the same command again. If it fails again, check `{url}` and `{options}`.",
}
_REMEDIES_OF_WAREHOUSE = {
    Kind.OBJECT_MISSING: "Check that `warehouse` is the right location, and whether another program deleted the file.",
    Kind.BUCKET_MISSING: "Check the bucket's name in `warehouse`, and AWS_REGION and AWS_ENDPOINT_URL_S3 (on S3).",
    Kind.CREDENTIALS: "Check the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on S3).",
    Kind.DENIED: "Let this user, or the credentials in the environment, {permission} in `warehouse`.",
    Kind.UNREACHABLE: "Check AWS_ENDPOINT_URL_S3 (on S3), and the network between this machine and the warehouse.",
    Kind.OTHER: "Run the same command again. If it fails again, check `warehouse`.",
}


def failure_of(error: Exception, secrets: Collection[str]) -> Failure:
    """Return the failure for an error that obstore raised. Its detail contains no value in `secrets`."""
    text = str(error)
    absent = isinstance(error, FileNotFoundError)
    code, status = _first(_CODE, text), _first(_STATUS, text)
    of_one_object = not status and code.isdigit()  # a bulk deletion of Azure has a status for each blob
    if of_one_object:
        status = code
    message = _first(_MESSAGE, text) or text.split("\n\n", 1)[0]
    names_object = absent and any(sign in text for sign in _NO_OBJECT)
    kind = _kind(text, code, status, absent=absent)
    failure = _failure(kind, code, status, message, secrets, names_object=names_object)
    return replace(failure, of_one_object=of_one_object)


def failure_of_response(code: str, status: int | None, message: str, secrets: Collection[str]) -> Failure:
    """Return the failure for an error with this code, HTTP status and message, such as the error of one key."""
    number = str(status or "")
    text = f"<Code>{code}</Code>"
    names_object = code in _NO_OBJECT
    kind = _kind(text, code, number, absent=names_object or number == "404")
    return _failure(kind, code, number, message, secrets, names_object=names_object)


def unreachable() -> Failure:
    """Return the failure of a request without a response. The store may have done what was requested."""
    return _failure(Kind.UNREACHABLE, "", "", "", ())


def redacted(text: str, secrets: Collection[str]) -> str:
    """Return `text` with all of `secrets` hidden, plain or percent-encoded."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_REDACTED:
            text = text.replace(secret, _HIDDEN).replace(quote(secret, safe=""), _HIDDEN)
    return text


def _failure(
    kind: Kind, code: str, status: str, message: str, secrets: Collection[str], *, names_object: bool = False
) -> Failure:
    throttled = code in _THROTTLES or status in _THROTTLE_STATUSES
    is_server_error = code in _SERVER_ERRORS or (status.startswith("5") and status != "501" and not throttled)
    ambiguous = is_server_error or kind is Kind.UNREACHABLE
    return Failure(
        kind,
        # The message is redacted before it is shortened, so that no part of a secret is left at its end.
        redacted(_detail(kind, code, status, redacted(message, secrets)), secrets),
        names_object,
        code,
        throttled=throttled,
        retryable=throttled or ambiguous or code in _RETRYABLE_CODES,
        ambiguous=ambiguous,
    )


def _kind(text: str, code: str, status: str, *, absent: bool) -> Kind:
    rules = (
        (Kind.BUCKET_MISSING, any(sign in text for sign in _NO_BUCKET)),
        (Kind.OBJECT_MISSING, absent),
        (Kind.OTHER, code in _ARCHIVED),
        (Kind.CREDENTIALS, status == "401" or code in _BAD_CREDENTIALS),
        (Kind.CREDENTIALS, any(sign in text for sign in _NO_CREDENTIALS)),
        (Kind.DENIED, status == "403" or any(sign in text for sign in _DENIALS)),
        (Kind.FULL, any(sign in text for sign in _FULL)),
        (Kind.UNREACHABLE, any(sign in text for sign in _UNREACHABLE)),
    )
    return next((kind for kind, holds in rules if holds), Kind.OTHER)


def _detail(kind: Kind, code: str, status: str, message: str) -> str:
    shown = f"status {status}" if status and code in ("", status) else code
    code = f" ({shown})" if shown else ""
    if shown in _ARCHIVED:
        return (
            f"the object is archived by its storage class{code}, and S3 cannot read or copy it. Restore it in S3 "
            "(RestoreObject), then run the same command again"
        )
    if kind is Kind.OTHER:
        return "the store failed" + code + ": " + _QUERY.sub("?…", " ".join(message.split()))[:_MAX_DETAIL].rstrip(".")
    return {
        Kind.OBJECT_MISSING: "the object is not in the store",
        Kind.BUCKET_MISSING: "the bucket does not exist",
        Kind.CREDENTIALS: "the store refused the credentials, or no credentials are set",
        Kind.DENIED: "the store denied the request",
        Kind.UNREACHABLE: "the store cannot be reached",
        Kind.FULL: "no space is left",
    }[kind] + code


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""
