"""Lists the versions that an S3 bucket keeps of deleted or overwritten objects. This module changes nothing."""

from collections.abc import Iterator, Mapping, Sequence
from posixpath import commonprefix
from typing import Any

import pyarrow as pa

from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import RequestKind
from retention_assets.objectstore.s3 import S3_ERRORS, PagedRequest, S3Bucket, pages, s3_bucket, wrong_listing

ALL_VERSIONS = pa.schema(
    (
        pa.field("path", pa.string(), nullable=False),  # relative to the URL
        pa.field("version_id", pa.string(), nullable=False),  # `null`: written while the bucket was not versioned
        pa.field("size", pa.int64(), nullable=False),  # bytes; 0 for a delete marker
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),  # the store's clock
        pa.field("is_delete_marker", pa.bool_(), nullable=False),
        pa.field("is_current", pa.bool_(), nullable=False),  # also of a delete marker
        pa.field("e_tag", pa.string(), nullable=True),  # without the quotes of HTTP; null for a delete marker
    )
)

_VERSION_PAGES = PagedRequest(
    "list_object_versions",
    ("KeyMarker", "VersionIdMarker"),
    RequestKind(
        "list the versions of", "The listing was not used.", "list the bucket's versions (s3:ListBucketVersions)"
    ),
)


def keeps_versions(access: StoreAccess) -> bool | None:
    """Return whether the bucket may keep deleted objects as versions, which still cost storage; None if unknown.

    The result is True for a bucket with suspended versioning, because the bucket keeps the versions written before the
    suspension. The result is None if the store is not S3, denies the request (s3:GetBucketVersioning) or fails.
    """
    if not access.is_s3:
        return None
    bucket = s3_bucket(access, connections=1)
    try:
        response = bucket.client.get_bucket_versioning(Bucket=bucket.name)
    except S3_ERRORS:
        return None  # the bucket may keep versions
    return response.get("Status") in ("Enabled", "Suspended")


def all_versions(
    access: StoreAccess, prefix: str = "", between: tuple[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield every version and delete marker below `prefix`, as `ALL_VERSIONS`, page by page.

    `between` is the first and the last path to return. The listing covers the paths that start with the common prefix
    of the two, and stops after the last. It does not start at the first path, because not every server supports that.
    A prefix is a directory; the empty prefix covers everything. A listing that ends without an error is complete.

    Raises:
        ConfigurationError: the store is not S3.
        StoreError, AccessDenied: the store failed or denied the request, or its pages repeat or are incomplete.
    """
    first, last = between or ("", None)
    for bucket, entries in _pages(access, prefix, beginning=commonprefix((first, last or ""))):
        rows = [_row(bucket, entry, is_marker) for entry, is_marker in entries]
        wanted = [row for row in rows if last is None or first <= row["path"] <= last]
        if wanted:
            yield pa.RecordBatch.from_pylist(wanted, schema=ALL_VERSIONS)
        if last is not None and rows[-1]["path"] > last:
            return


def lists_versions(access: StoreAccess) -> bool:
    """Return whether the bucket may keep versions and the credentials may list them."""
    if not access.is_s3 or keeps_versions(access) is False:
        return False
    try:
        next(_pages(access), None)
    except StoreError:
        return False
    return True


type _Entry = tuple[Mapping[str, Any], bool]  # S3's entry, and whether it is a delete marker


def _pages(access: StoreAccess, prefix: str = "", beginning: str = "") -> Iterator[tuple[S3Bucket, Sequence[_Entry]]]:
    """Yield the entries below the directory `prefix` whose paths have this beginning, page by page, in order.

    S3 orders entries by key, and the versions of a key from newest to oldest.
    """
    if not access.is_s3:
        raise ConfigurationError(
            f"{access.url}: versions are listed on S3 only. Nothing was read or deleted. Delete versions with "
            "the tools of this store, such as a lifecycle rule."
        )
    bucket = s3_bucket(access, connections=1)
    directory = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
    start = beginning if beginning.startswith(directory) else directory
    last_key, versions_of_last = "", set[str]()
    for page in pages(bucket, _VERSION_PAGES, start):
        entries = [(entry, False) for entry in page.get("Versions", ())]
        entries += [(entry, True) for entry in page.get("DeleteMarkers", ())]
        entries.sort(key=lambda pair: pair[0]["Key"])
        for entry, _ in entries:
            key, version = entry["Key"], entry.get("VersionId", "null")
            if key < last_key or (key == last_key and version in versions_of_last):
                raise wrong_listing(bucket, _VERSION_PAGES, start, f"{key!r} is listed twice")
            if key > last_key:
                last_key, versions_of_last = key, set()
            versions_of_last.add(version)
        if entries:
            yield bucket, entries


def _row(bucket: S3Bucket, entry: Mapping[str, Any], is_marker: bool) -> dict[str, Any]:
    return {
        "path": bucket.path(entry["Key"]),
        "version_id": entry.get("VersionId", "null"),
        "size": entry.get("Size", 0),
        "last_modified": entry["LastModified"],
        "is_delete_marker": is_marker,
        "is_current": bool(entry.get("IsLatest", True)),
        "e_tag": entry["ETag"].strip('"') if "ETag" in entry else None,
    }
