"""What a store's error means: its kind, one line about it, and the remedy. Never the store's own dump of itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote

from retention_assets.errors import AccessDenied, ObjectMissing, StoreError

_MAX_DETAIL = 200  # characters of the store's own words
_SHORTEST_SECRET = 4  # shorter values (`k`, `1`) would blot out ordinary words
_HIDDEN = "***"

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,80})</Code>|\(code: (\w{1,80})\)")
_MESSAGE = re.compile(r"<Message>([^<]{1,400})</Message>")
_QUERY = re.compile(r"\?\S+")  # of a request's address; with Azure it holds the signature

_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "FilesystemNotFound", "bucket does not exist")
_NO_OBJECT = ("NoSuchKey", "BlobNotFound", "PathNotFound")
_BAD_CREDENTIALS = (
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired",
    "InvalidSecurity", "AuthorizationHeaderMalformed", "AuthenticationFailed", "InvalidAuthenticationInfo",
)  # fmt: skip
_NO_CREDENTIALS = ("169.254.169.254", "metadata.google.internal", "error getting credentials", "no credentials")
_UNREACHABLE = ("error sending request", "timed out", "kind: Connect", "connection closed", "dns error")


class Kind(Enum):
    """What went wrong, as far as a caller reacts differently."""

    OBJECT_MISSING = "object missing"
    BUCKET_MISSING = "bucket missing"
    CREDENTIALS = "credentials refused"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    OTHER = "other"

    @property
    def is_of_the_store(self) -> bool:
        """Whether the next request would fail alike, whatever object it names."""
        return self in (Kind.BUCKET_MISSING, Kind.CREDENTIALS, Kind.UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Action:
    """What was attempted: the verb, what its failing leaves undone, and the permission that it needs."""

    verb: str
    undone: str
    permission: str


READ = Action("read", "It was not read.", "read objects (s3:GetObject)")
WRITE = Action("write", "It was not written.", "write objects (s3:PutObject)")
LIST = Action("list", "The listing was not used.", "list the bucket (s3:ListBucket)")


@dataclass(frozen=True, slots=True)
class Failure:
    """A store's error in our words. `names_object`: the store itself said that it is the object that is absent."""

    kind: Kind
    detail: str
    names_object: bool = False

    def as_error(self, url: str, path: str, action: Action) -> StoreError:
        """Return the error to raise: where, what, what was not done, the remedy."""
        told = _TOLD[self.kind].format(permission=action.permission)
        place = f"{url}: cannot {action.verb} {repr(path) if path else 'its objects'}"
        return _CLASSES.get(self.kind, StoreError)(f"{place}: {self.detail}. {action.undone} {told}")


_CLASSES: dict[Kind, type[StoreError]] = {
    Kind.OBJECT_MISSING: ObjectMissing,
    Kind.CREDENTIALS: AccessDenied,
    Kind.DENIED: AccessDenied,
}
_TOLD = {
    Kind.OBJECT_MISSING: "Check that `storage` is the right place, and whether something else deleted the object.",
    Kind.BUCKET_MISSING: "Check the bucket's name in `storage`, and the options `endpoint` and `region`.",
    Kind.CREDENTIALS: "Check the credentials in `storage_options` (access_key_id and secret_access_key on S3).",
    Kind.DENIED: "Let the credentials in `storage_options` {permission}.",
    Kind.UNREACHABLE: "Check the option `endpoint`, and the network between here and the store.",
    Kind.OTHER: "If it passes by itself, run again; else check `storage` and `storage_options`.",
}


def failure_of(error: Exception, secrets: Iterable[str]) -> Failure:
    """Return what `error`, raised by obstore, means. No value in `secrets` is in its words."""
    text = str(error)
    kind = _kind(error, text)
    names_object = isinstance(error, FileNotFoundError) and any(code in text for code in _NO_OBJECT)
    return Failure(kind, scrubbed(_detail(kind, text), secrets), names_object)


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without any of `secrets`, plain or percent-encoded."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _HIDDEN).replace(quote(secret, safe=""), _HIDDEN)
    return text


def _kind(error: Exception, text: str) -> Kind:
    status = _first(_STATUS, text)
    signs = (
        (Kind.BUCKET_MISSING, any(sign in text for sign in _NO_BUCKET)),
        (Kind.OBJECT_MISSING, isinstance(error, FileNotFoundError)),
        (Kind.CREDENTIALS, status == "401" or _first(_CODE, text) in _BAD_CREDENTIALS),
        (Kind.CREDENTIALS, any(sign in text for sign in _NO_CREDENTIALS)),
        (Kind.DENIED, status == "403" or "AccessDenied" in text or "Permission denied" in text),
        (Kind.UNREACHABLE, any(sign in text for sign in _UNREACHABLE)),
    )
    return next((kind for kind, holds in signs if holds), Kind.OTHER)


def _detail(kind: Kind, text: str) -> str:
    code, status = _first(_CODE, text), _first(_STATUS, text)
    code = f" ({code})" if code else f" (status {status})" if status else ""
    if kind is Kind.OTHER:
        own = _first(_MESSAGE, text) or text.split("\n\n", 1)[0]
        return "the store failed" + code + ": " + _QUERY.sub("?…", " ".join(own.split()))[:_MAX_DETAIL].rstrip(".")
    return {
        Kind.OBJECT_MISSING: "it is not in the store",
        Kind.BUCKET_MISSING: "the bucket does not exist",
        Kind.CREDENTIALS: "the store refused the credentials, or there are none",
        Kind.DENIED: "the store denied it",
        Kind.UNREACHABLE: "the store cannot be reached",
    }[kind] + code


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""
