"""Lists S3 with boto3 under the exact keys, for prefixes with keys that obstore cannot name or names wrongly.

obstore treats a key as a path. If a key has an empty, `.` or `..` segment or a control character, obstore's listing
fails. If a key begins or ends with a slash, obstore removes this slash, so that the key looks like another object's.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from retention_assets.errors import StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import LIST, Failure
from retention_assets.objectstore.s3 import S3_ERRORS, S3Bucket, failure_of_s3, s3_bucket

_PAUSES = (0.0, 0.2, 0.5, 1.0, 1.0, 2.0, 3.0, 3.0)  # seconds to wait before each attempt to list a page

type Entries = Sequence[Mapping[str, Any]]  # with obstore's names: path, last_modified, size, e_tag


def list_exactly(access: StoreAccess, prefix: str, after: str | None = None) -> Iterator[Entries]:
    """Yield the objects below a directory whose paths come after `after`, page by page. Errors: those of the store."""
    bucket = s3_bucket(access)
    start = {"StartAfter": bucket.key(after)} if after else {}
    for page in _pages(access, bucket, prefix, start):
        if entries := _entries(bucket, page):
            yield entries


def level_exactly(access: StoreAccess, prefix: str) -> Mapping[str, Any]:
    """Return the objects and directories directly below a directory. As in obstore, directories have no last slash."""
    bucket = s3_bucket(access)
    objects: list[Mapping[str, Any]] = []
    directories: list[str] = []
    for page in _pages(access, bucket, prefix, {"Delimiter": "/"}):
        objects += _entries(bucket, page)
        directories += [bucket.path(one["Prefix"]).removesuffix("/") for one in page.get("CommonPrefixes", ())]
    return {"objects": objects, "common_prefixes": directories}


def _pages(
    access: StoreAccess, bucket: S3Bucket, prefix: str, parameters: Mapping[str, str]
) -> Iterator[Mapping[str, Any]]:
    place = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    token: dict[str, str] = {}
    while True:
        page = _page(access, bucket, {"Prefix": bucket.key(place), **parameters, **token})
        yield page
        if not page.get("IsTruncated"):
            return
        following = page.get("NextContinuationToken", "")
        if not following or following == token.get("ContinuationToken"):
            raise StoreError(
                f"{access.url}: the store's listing of {place!r} cannot be right: it does not say where the next page "
                "begins. The listing was not used. Run again; if it stays so, ask the store's makers."
            )
        token = {"ContinuationToken": following}


def _page(access: StoreAccess, bucket: S3Bucket, parameters: Mapping[str, str]) -> Mapping[str, Any]:
    failure: Failure | None = None
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            page: Mapping[str, Any] = bucket.client.list_objects_v2(Bucket=bucket.name, **parameters, **bucket.extra)
        except S3_ERRORS as error:
            failure = failure_of_s3(error, access)
        else:
            return page
        if not failure.passing:
            break
    assert failure is not None
    # Raised outside the `except` block, so that the traceback lacks botocore's error with the request's context.
    raise failure.as_error(access.url, bucket.path(parameters["Prefix"]), LIST)


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
