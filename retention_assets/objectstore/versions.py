"""What a versioned S3 bucket keeps of objects that are gone or overwritten. Nothing here changes any."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pyarrow as pa

from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Action
from retention_assets.objectstore.s3 import S3_ERRORS, S3Bucket, failure_of_s3, is_s3, s3_bucket

VERSIONS = pa.schema(
    (
        pa.field("path", pa.string(), nullable=False),  # relative to the URL
        pa.field("version_id", pa.string(), nullable=False),  # `null`: written while the bucket kept no versions
        pa.field("size", pa.int64(), nullable=False),  # bytes; 0 of a delete marker
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),  # the store's clock
        pa.field("is_delete_marker", pa.bool_(), nullable=False),
    )
)

ALL_VERSIONS = VERSIONS.append(pa.field("is_current", pa.bool_(), nullable=False))  # a delete marker may be current

_LIST_VERSIONS = Action(
    "list the versions of", "The listing was not used.", "list the bucket's versions (s3:ListBucketVersions)"
)


def keeps_versions(access: StoreAccess) -> bool | None:
    """Return whether the bucket may keep what is deleted as a version, which goes on costing.

    A bucket whose versioning is suspended counts as one that does: of what was written before, it keeps the versions.
    None when that cannot be told: the store is not S3, denies the question (s3:GetBucketVersioning) or fails.
    """
    if not is_s3(access):
        return None
    bucket = s3_bucket(access, connections=1)
    try:
        told = bucket.client.get_bucket_versioning(Bucket=bucket.name)
    except S3_ERRORS:
        return None  # unknown, which is not `no`: nothing is decided by it but what to say
    return told.get("Status") in ("Enabled", "Suspended")


def noncurrent_versions(access: StoreAccess, prefix: str = "") -> Iterator[pa.RecordBatch]:
    """Yield the versions below `prefix` that are not the current one of their path, as `VERSIONS`, page by page.

    A prefix is a directory; the empty one covers everything. The current version is not among them even when it is
    a delete marker: without the marker, the version below it would be back. The listing is whole, or an error.

    Raises:
        ConfigurationError: the store is not S3.
        StoreError, AccessDenied: the store failed or denied it, or its pages repeat or do not go on.
    """
    for bucket, entries in _pages(access, prefix):
        rows = [_row(bucket, entry, is_marker) for entry, is_marker in entries if not _is_current(entry)]
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=VERSIONS)


def all_versions(
    access: StoreAccess, prefix: str = "", between: tuple[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield every version and delete marker below `prefix`, as `ALL_VERSIONS`, page by page.

    `between` are the first and the last path that are asked for. Only what begins as both do is listed, and nothing
    behind the last. Not every server begins a listing where it is told to. Errors: as `noncurrent_versions`.
    """
    first, last = between or ("", None)
    beginning = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, last or "", strict=False)))
    for bucket, entries in _pages(access, prefix, beginning):
        rows = [{**_row(bucket, entry, is_marker), "is_current": _is_current(entry)} for entry, is_marker in entries]
        wanted = [row for row in rows if last is None or first <= row["path"] <= last]
        if wanted:
            yield pa.RecordBatch.from_pylist(wanted, schema=ALL_VERSIONS)
        if last is not None and rows[-1]["path"] > last:
            return


def lists_versions(access: StoreAccess) -> bool:
    """Return whether the bucket may keep versions, and lets us list them."""
    if not is_s3(access) or keeps_versions(access) is False:
        return False
    try:
        next(_pages(access), None)
    except StoreError:
        return False
    return True


type _Entry = tuple[Mapping[str, Any], bool]  # as S3 has it, and whether it is a delete marker


def _pages(access: StoreAccess, prefix: str = "", beginning: str = "") -> Iterator[tuple[S3Bucket, Sequence[_Entry]]]:
    """Yield what is below the directory `prefix` and has a path with this beginning, page by page, in order."""
    if not is_s3(access):
        raise ConfigurationError(f"{access.url}: versions are listed on S3 only. Nothing was read.")
    bucket = s3_bucket(access, connections=1)
    directory = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
    place = beginning if beginning.startswith(directory) else directory
    listing = _Listing(access, place)
    while listing.goes_on:
        page = _page(access, bucket, place, listing.markers)
        if entries := listing.entries_of(page):
            yield bucket, entries


@dataclass
class _Listing:
    """How far a listing has come. S3 orders it by key, and of one key the newest first."""

    access: StoreAccess
    place: str
    goes_on: bool = True
    markers: Mapping[str, str] = field(default_factory=dict)
    last_key: str = ""
    versions_of_last: set[str] = field(default_factory=set)

    def entries_of(self, page: Mapping[str, Any]) -> Sequence[_Entry]:
        """Return what the next page has. Errors: StoreError when it does not come after the one before it."""
        entries = [(entry, False) for entry in page.get("Versions", ())]
        entries += [(entry, True) for entry in page.get("DeleteMarkers", ())]
        entries.sort(key=lambda pair: pair[0]["Key"])
        for entry, _ in entries:
            self._require_after(entry["Key"], entry.get("VersionId", "null"))
        self._turn(page)
        return entries

    def _require_after(self, key: str, version: str) -> None:
        if key < self.last_key or (key == self.last_key and version in self.versions_of_last):
            raise self._error(f"it came to {key!r} again")
        if key > self.last_key:
            self.last_key, self.versions_of_last = key, set()
        self.versions_of_last.add(version)

    def _turn(self, page: Mapping[str, Any]) -> None:
        names = {"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"}
        markers = {name: page[told] for name, told in names.items() if page.get(told)}
        self.goes_on = page.get("IsTruncated", False)
        if self.goes_on and ("KeyMarker" not in markers or markers == self.markers):
            raise self._error("it does not say where the next page begins")
        self.markers = markers

    def _error(self, problem: str) -> StoreError:
        return StoreError(
            f"{self.access.url}: the store's listing of versions of {self.place!r} cannot be right: {problem}. "
            "It was not used. Run again; if it stays so, ask the store's makers."
        )


def _page(access: StoreAccess, bucket: S3Bucket, place: str, markers: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        page: Mapping[str, Any] = bucket.client.list_object_versions(
            Bucket=bucket.name, Prefix=bucket.key(place), **markers, **bucket.extra
        )
    except S3_ERRORS as error:
        failure = failure_of_s3(error, access)
    else:
        return page
    # Raised out here: botocore's own error, which holds the request's context, stays out of the traceback.
    raise failure.as_error(access.url, place, _LIST_VERSIONS)


def _row(bucket: S3Bucket, entry: Mapping[str, Any], is_marker: bool) -> dict[str, Any]:
    return {
        "path": bucket.path(entry["Key"]),
        "version_id": entry.get("VersionId", "null"),
        "size": entry.get("Size", 0),
        "last_modified": entry["LastModified"],
        "is_delete_marker": is_marker,
    }


def _is_current(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("IsLatest", True))
