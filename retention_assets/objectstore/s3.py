"""Makes boto3's S3 client with the endpoint and credentials that obstore uses, and lists exact keys with this client.

obstore lists a bucket and boto3 deletes from it, so both must use the same bucket. For this reason, the location and
the options are read from obstore's store. As in obstore, environment variables are used, and AWS profiles and
configuration files are ignored.

obstore treats a key as a path. If a key has an empty, `.` or `..` segment or a control character, obstore's listing
fails. If a key begins or ends with a slash, obstore removes this slash, so that the key looks like another object's.
boto3 lists the prefixes that have one of these keys.
"""

import atexit
import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import md5
from math import inf
from pathlib import Path
from tempfile import mkstemp
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed does not have it

import boto3  # type: ignore[import-untyped]
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError
from botocore.session import Session

from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import LIST, Failure, RequestKind, failure_of_response, unreachable

S3_ERRORS = (BotoCoreError, ClientError, ResponseParserError)  # all errors that a client raises for a request

_NO_RESPONSE = (HTTPClientError, NoConnection, ResponseParserError)
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_TRUE = frozenset({"1", "true", "yes", "y", "on", "t"})
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_CUSTOMER_KEY = "sse-c"  # the option's value for encryption with a key of the customer
_DELAYS = (0.0, 0.2, 0.5, 1.0, 1.0, 2.0, 3.0, 3.0)  # seconds before each attempt to list a page
_DURATION = re.compile(r"(\d+)\s*(ns|us|ms|[smhd])[a-z]*")  # as obstore writes durations: 3s, 1min 30s, 500ms
# obstore also accepts these credential settings as options. boto3 reads them only from the environment.
_ENVIRONMENT_ONLY = (
    "role_arn", "web_identity_token_file", "metadata_endpoint", "container_credentials_relative_uri",
    "container_credentials_full_uri", "container_authorization_token_file",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket, its client, and the prefix that paths are relative to."""

    access: StoreAccess
    client: Any  # boto3's client; it raises S3_ERRORS and does not retry
    name: str
    prefix: str  # empty, or with a trailing slash
    extra: Mapping[str, str]  # parameters of every request
    encryption: Mapping[str, Any]  # parameters of requests that create objects; obstore sends them with its own writes
    in_bulk: bool  # whether one request may delete several objects

    def key(self, path: str) -> str:
        """Return the key of a path."""
        return self.prefix + path

    def path(self, key: str) -> str:
        """Return the path of a key below the prefix."""
        return key.removeprefix(self.prefix)


def s3_bucket(access: StoreAccess, connections: int = 10, longest_wait: float = inf) -> S3Bucket:
    """Return the bucket of `access`, without a request to the store.

    The client uses the same credentials as obstore: those of the options, else of the environment, a web identity, the
    container or the machine. The client sends each request once, so that the caller sees every error. It waits for
    the connection and the response for `longest_wait` seconds at most, whatever timeouts the options have.

    Raises:
        ConfigurationError: an option is invalid, or boto3 does not support it.
    """
    store = access.open()
    options = _settings(store.config)
    name = str(store.config["bucket"])
    for option in _ENVIRONMENT_ONLY:
        if option in store.config and "access_key_id" not in store.config:
            raise ConfigurationError(
                f"{access.url}: {access.settings.options}.{option} cannot be used, because boto3, which deletes "
                f"objects, does not have this option. Nothing was deleted. Set AWS_{option.upper()} in the environment "
                "instead."
            )
    endpoint = _endpoint(access, name, options, store.client_options)
    client = _session().client(
        "s3",
        region_name=options.get("region") or options.get("default_region") or "us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=store.config.get("access_key_id"),
        aws_secret_access_key=store.config.get("secret_access_key"),
        aws_session_token=store.config.get("session_token"),
        verify=_verify(store.client_options),
        config=_config(endpoint, options, store.client_options, connections, longest_wait),
    )
    client.meta.events.register("before-call.s3.DeleteObjects", _add_content_md5)
    extra = {"RequestPayer": "requester"} if options.get("request_payer", "").lower() in _TRUE | {"requester"} else {}
    in_bulk = not _is_true(options.get("disable_bulk_delete", ""))
    prefix = f"{store.prefix}/" if store.prefix else ""
    return S3Bucket(access, client, name, prefix, extra, _encryption(options), in_bulk)


def require_copyable(*stores: StoreAccess) -> None:
    """Raise ConfigurationError if the options of a store, or the environment, name a key of the customer (SSE-C).

    A copy by S3 needs the keys of source and copy. Every check of a copy needs them too: S3 refuses a HEAD without the
    key.
    """
    for access in (store for store in stores if store.is_s3):
        options = _settings(access.open().config)
        if options.get("server_side_encryption") == _CUSTOMER_KEY:
            raise ConfigurationError(
                f"{access.url}: objects that are encrypted with a key of the customer (server_side_encryption: "
                f"{_CUSTOMER_KEY}) cannot be copied. Nothing was copied. Write the objects again with encryption by S3 "
                "or by KMS. Or use `mode: delete`, which cannot be undone."
            )


def is_encrypted(bucket: S3Bucket, path: str) -> bool:
    """Return whether S3 reports an encryption with which the object's ETag is not its MD5 sum. Errors: S3_ERRORS."""
    response = bucket.client.head_object(Bucket=bucket.name, Key=bucket.key(path), **bucket.extra)
    return response.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in response


def failure_of_s3(error: Exception, access: StoreAccess) -> Failure:
    """Return the failure for one of S3_ERRORS. Its detail contains no value of the options."""
    secrets = access.options.values()
    if isinstance(error, ClientError):
        fields = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return failure_of_response(str(fields.get("Code", "")), status, str(fields.get("Message", "")), secrets)
    if isinstance(error, _NO_CREDENTIALS):
        return failure_of_response("", 401, "", secrets)
    if isinstance(error, _NO_RESPONSE):
        return unreachable()
    return failure_of_response("", None, str(error), secrets)


def _settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of the environment, overridden by the `given` options, as obstore combines them."""
    set_here = {name.removeprefix("AWS_").lower(): value for name, value in os.environ.items() if name[:4] == "AWS_"}
    if "endpoint_url" in set_here:
        set_here["endpoint"] = set_here["endpoint_url"]
    settings = set_here | {name: str(value) for name, value in given.items()}
    if "endpoint_url_s3" in set_here:
        settings["endpoint"] = set_here["endpoint_url_s3"]  # as in obstore, this variable overrides the options
    return settings


def _encryption(options: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the encryption in the options as parameters of boto3; none for a key of the customer."""
    kind = options.get("server_side_encryption", "")
    if kind in ("", _CUSTOMER_KEY):
        return {}
    parameters: dict[str, Any] = {"ServerSideEncryption": kind}
    if key := options.get("sse_kms_key_id"):
        parameters["SSEKMSKeyId"] = key
    if in_bucket_key := options.get("sse_bucket_key_enabled"):
        parameters["BucketKeyEnabled"] = _is_true(in_bucket_key)
    return parameters


def _endpoint(access: StoreAccess, bucket: str, options: Mapping[str, str], client: Mapping[str, Any]) -> str | None:
    """Return the endpoint for boto3, without the bucket's name, because boto3 adds the name itself."""
    endpoint = options.get("endpoint")
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme == "http" and not _is_true(client.get("allow_http", "")):
        raise ConfigurationError(
            f"{access.url}: the endpoint is http://, and allow_http does not allow that. Nothing was deleted. Set "
            f"{access.settings.options}.allow_http to `true`, or use an endpoint with https://."
        )
    if not _is_true(options.get("virtual_hosted_style_request", "")):
        return endpoint
    if not parts.netloc.startswith(f"{bucket}."):
        raise ConfigurationError(
            f"{access.url}: with virtual_hosted_style_request, objects can be deleted only if the endpoint begins with "
            f"the bucket's name. Nothing was deleted. Correct {access.settings.options}.endpoint, or remove it."
        )
    return urlunsplit(parts._replace(netloc=parts.netloc.removeprefix(f"{bucket}.")))


def _config(
    endpoint: str | None,
    options: Mapping[str, str],
    client: Mapping[str, Any],
    connections: int,
    longest_wait: float,
) -> Config:
    virtual = _is_true(options.get("virtual_hosted_style_request", "")) or _is_true(options.get("s3_express", ""))
    proxy, host = client.get("proxy_url"), urlsplit(endpoint or "").hostname or "amazonaws.com"
    excluded = proxy_bypass_environment(host, {"no": str(client.get("proxy_excludes", ""))})
    return Config(
        signature_version=UNSIGNED if _is_true(options.get("skip_signature", "")) else "s3v4",
        s3={"addressing_style": "virtual" if virtual else "path"},
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=min(seconds_of(client["connect_timeout"]), longest_wait / 4),
        read_timeout=min(seconds_of(client["read_timeout"]), longest_wait * 3 / 4),
        max_pool_connections=connections,
        proxies={"http": proxy, "https": proxy} if proxy and not excluded else None,
        parameter_validation=False,  # saves a fifth of a bulk deletion's time; the parameters are our own
    )


def _session() -> boto3.session.Session:
    """Return a new session that reads no files. Sessions are not shared, so that threads can make clients safely."""
    nothing = (None, None, os.devnull, None)
    variables = {"profile": (None, None, None, None), "config_file": nothing, "credentials_file": nothing}
    return boto3.session.Session(botocore_session=Session(session_vars=variables))


def _verify(client: Mapping[str, Any]) -> str | bool | None:
    if _is_true(client.get("allow_invalid_certificates", "")):
        return False
    certificate = client.get("root_certificate")  # obstore returns bytes
    return _certificate_file(bytes(certificate)) if certificate else None


@cache
def _certificate_file(certificate: bytes) -> str:
    """Write the certificate to a file for botocore, and return its name. The file is deleted when the process exits."""
    handle, name = mkstemp(suffix=".pem")
    with os.fdopen(handle, "wb") as file:
        file.write(certificate)
    atexit.register(Path(name).unlink, missing_ok=True)
    return name


def _add_content_md5(params: dict[str, Any], **_: object) -> None:
    """Add the Content-MD5 header, which servers that do not know newer checksums require for a bulk deletion."""
    digest = md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = b64encode(digest).decode()


def _is_true(value: object) -> bool:
    return str(value).lower() in _TRUE


def seconds_of(duration: object) -> float:
    """Return the seconds of a duration that obstore has accepted."""
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION.findall(str(duration)))


type Entries = Sequence[Mapping[str, Any]]  # with obstore's names: path, last_modified, size, e_tag


def list_exactly(bucket: S3Bucket, prefix: str, after: str | None = None) -> Iterator[Entries]:
    """Yield the objects below a directory whose paths come after `after`, page by page. Errors: as `pages`."""
    start = {"StartAfter": bucket.key(after)} if after else {}
    for page in pages(bucket, OBJECT_PAGES, _directory(prefix), start):
        if entries := _entries(bucket, page):
            yield entries


def level_exactly(bucket: S3Bucket, prefix: str) -> Mapping[str, Any]:
    """Return the objects and directories directly below `prefix`. As in obstore, directories end without a slash.

    Errors: as `pages`.
    """
    objects: list[Mapping[str, Any]] = []
    directories: list[str] = []
    for page in pages(bucket, OBJECT_PAGES, _directory(prefix), {"Delimiter": "/"}):
        objects += _entries(bucket, page)
        directories += [bucket.path(one["Prefix"]).removesuffix("/") for one in page.get("CommonPrefixes", ())]
    return {"objects": objects, "common_prefixes": directories}


def _directory(prefix: str) -> str:
    return prefix if not prefix or prefix.endswith("/") else f"{prefix}/"


def _entries(bucket: S3Bucket, page: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        {
            "path": bucket.path(entry["Key"]),
            "last_modified": entry["LastModified"],
            "size": entry["Size"],
            "e_tag": entry.get("ETag"),
        }
        for entry in page.get("Contents", ())
    ]


@dataclass(frozen=True, slots=True)
class PagedRequest:
    """A request of boto3's client that returns one page of a listing."""

    name: str
    # The parameters that request the next page. A page has their values as `Next<name>`. Each page except the last has
    # at least the first.
    markers: tuple[str, ...]
    kind: RequestKind


OBJECT_PAGES = PagedRequest("list_objects_v2", ("ContinuationToken",), LIST)


def pages(
    bucket: S3Bucket, request: PagedRequest, start: str, parameters: Mapping[str, str] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the pages of a listing of all keys that begin with the key of `start`.

    A listing that ends without an error is complete. botocore's paginator is not used, because it ends without an error
    at a page that does not say where the next page begins.

    Errors: AccessDenied or StoreError.
    """
    markers: dict[str, str] = {}
    while True:
        page = _page(bucket, request, start, {**(parameters or {}), **markers})
        yield page
        if not page.get("IsTruncated"):
            return
        following = {name: page[f"Next{name}"] for name in request.markers if page.get(f"Next{name}")}
        if request.markers[0] not in following or following == markers:
            raise wrong_listing(bucket, request, start, "a page does not say where the next page begins")
        markers = following


def wrong_listing(bucket: S3Bucket, request: PagedRequest, start: str, problem: str) -> StoreError:
    """Return the error for a listing whose pages do not follow each other. The caller raises the error."""
    return StoreError(
        f"{bucket.access.url}: cannot {request.kind.verb} {start!r}: {problem}. {request.kind.undone} "
        "Run the same command again. If the error persists, contact the store's vendor."
    )


def _page(bucket: S3Bucket, request: PagedRequest, start: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
    """Return one page. The request is repeated after retryable failures. Errors: AccessDenied or StoreError."""
    failure: Failure | None = None
    for delay in _DELAYS:
        time.sleep(delay)
        try:
            page: Mapping[str, Any] = getattr(bucket.client, request.name)(
                Bucket=bucket.name, Prefix=bucket.key(start), **parameters, **bucket.extra
            )
        except S3_ERRORS as error:
            failure = failure_of_s3(error, bucket.access)
        else:
            return page
        if not failure.retryable:
            break
    assert failure is not None
    # Raised outside the `except` block, so that the traceback does not show botocore's error with the request.
    raise bucket.access.error(failure, start, request.kind)
