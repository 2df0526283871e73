"""Reads objects of S3, GCS, Azure, local files or this process's memory through obstore.

All errors are this package's own, with one line of text that never contains a value of the options. Code that changes
objects is in `mutate`.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError

from retention_assets.errors import ObjectMissing
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import LIST, READ, READ_VERSION, Failure, Kind, RequestKind, failure_of

if TYPE_CHECKING:
    from retention_assets.objectstore.s3 import S3Bucket

LISTING = pa.schema(
    (
        pa.field("path", pa.string(), nullable=False),  # relative to the URL
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),  # the store's clock
        pa.field("size", pa.int64(), nullable=False),  # bytes
        pa.field("e_tag", pa.string(), nullable=True),  # without the quotes of HTTP, as in inventories
    )
)

_ROWS_PER_BATCH = 10_000
_ROWS_PER_PAGE = 1_000  # one page of S3 and GCS; a listing of a key range reads at most one page too much
_CONNECTIONS = 16  # of boto3's client, because up to 16 threads use one reader
_CHUNK = 8 * 1024**2  # bytes
_RANGE = 64 * 1024**2  # bytes that one request reads; a request must end within the option `timeout` (10 minutes)
_UNNAMEABLE = "invalid path"  # part of obstore's message
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """The metadata of one object."""

    path: str
    size: int  # bytes
    last_modified: datetime  # the store's clock
    e_tag: str | None  # without the quotes of HTTP


class OpenStore:
    """An opened object store. Paths are relative to its URL, without a leading slash."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._store: Any = access.open()

    @cached_property
    def _bucket(self) -> "S3Bucket":
        """The bucket for requests of boto3. Its client is made at the first use and kept."""
        from retention_assets.objectstore.s3 import s3_bucket  # importing boto3 takes a second

        return s3_bucket(self._access, _CONNECTIONS)

    def describe(self, path: str) -> str:
        """Return the full URL of `path`, for messages."""
        return f"{self._access.url}/{path}"

    def _call[T](self, call: Callable[[], T], path: str, request: RequestKind) -> T:
        return self._value_or_raise(self._try(call), path, request)

    def _value_or_raise[T](self, result: T | Failure, path: str, request: RequestKind) -> T:
        """Return the result, or raise the error for a failure.

        The store's own exception is not attached, because its text may contain signed URLs.
        """
        if isinstance(result, Failure):
            raise self._access.error(result, path, request)
        return result

    def _try[T](self, call: Callable[[], T]) -> T | Failure:
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._access.options.values())


class ObjectReader(OpenStore):
    """Reads and lists objects, and changes none.

    Every method raises ObjectMissing, AccessDenied or, for any other failure, StoreError. The message has the URL, the
    path and the remedy in one line. A prefix is a directory, with or without a trailing slash: `data` covers `data/x`,
    not `database/x`. The empty prefix covers everything.
    """

    def read(self, path: str) -> bytes:
        """Return the object's bytes."""
        return self._call(lambda: bytes(self._store.get(path).bytes()), path, READ)

    def read_with_metadata(self, path: str) -> tuple[bytes, ObjectMetadata]:
        """Return the object's bytes and metadata, from the same response."""

        def read() -> tuple[bytes, ObjectMetadata]:
            response = self._store.get(path)
            return bytes(response.bytes()), metadata_of(response.meta)

        return self._call(read, path, READ)

    def digest(self, path: str, algorithm: str = "sha256", version: str | None = None) -> bytes:
        """Return a digest of the object's bytes. The object is read in chunks, so it is never in memory as a whole.

        A large object is read with several requests. If the object changes between them, StoreError is raised.

        `version`: the id of an S3 version; None: the current one.
        """

        def digest() -> bytes:
            digester = hashlib.new(algorithm, usedforsecurity=False)
            for response in self._responses(path, {"version": version} if version else {}):
                for chunk in response.stream(min_chunk_size=_CHUNK):
                    digester.update(chunk)
            return digester.digest()

        return self._call(digest, path, READ_VERSION if version else READ)

    def _responses(self, path: str, options: Mapping[str, str]) -> Iterator[Any]:
        """Yield the responses whose bodies are the object: one, or for a large object one for each range."""
        whole = self._store.get(path, options=options)
        size, e_tag = whole.meta["size"], whole.meta["e_tag"]
        if size <= _RANGE:
            yield whole
            return
        del whole  # its body is not read
        options = {**options, "if_match": e_tag} if e_tag else options
        for start in range(0, size, _RANGE):
            yield self._store.get(path, options={**options, "range": (start, min(start + _RANGE, size))})

    def head(self, path: str) -> ObjectMetadata:
        """Return the object's metadata."""
        return metadata_of(self._call(lambda: self._store.head(path), path, READ))

    def find(self, path: str) -> ObjectMetadata | None:
        """Return the object's metadata; None if there is no object at the path."""
        try:
            return self.head(path)
        except ObjectMissing:
            return None

    def list(self, prefix: str = "") -> Iterator[pa.RecordBatch]:
        """Yield the objects below `prefix`, at any depth, as `LISTING`; nothing if there are none.

        A failure during the listing raises an error, so a listing that ends without an error is complete.
        """
        return self._listed(prefix, None, _ROWS_PER_BATCH)

    def list_between(self, prefix: str, after: str, until: str) -> Iterator[pa.RecordBatch]:
        """Yield the objects below `prefix` whose paths come after `after` and not after `until`, as `LISTING`.

        The store must list in order (`StoreAccess.lists_in_order`): the listing stops after `until`.
        """
        for batch in self._listed(prefix, after or None, _ROWS_PER_PAGE):
            paths = batch.column(0)
            yield batch.filter(pc.and_(pc.greater(paths, after), pc.less_equal(paths, until)))
            if paths[-1].as_py() > until:
                return

    def _listed(self, prefix: str, offset: str | None, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the objects that obstore lists, in batches that are not empty.

        On S3, boto3 lists all objects if obstore cannot use the prefix as it is, or if a key may begin with a slash. If
        obstore cannot name one of the keys exactly, boto3 lists the rest.
        """
        listed: list[pa.Array] = []
        if not self._names_exactly(prefix) or self._is_whole_bucket(prefix):
            yield from self._listed_exactly(prefix, offset, listed)
            return

        def start() -> Any:
            return self._store.list(prefix or None, offset=offset, chunk_size=rows, return_arrow=True)

        chunks: Any = self._try(start)
        chunk = chunks if isinstance(chunks, Failure) else self._try(lambda: next(chunks, None))
        while chunk is not None:
            if isinstance(chunk, Failure):
                if not (self._access.is_s3 and _is_unnameable(chunk)):
                    raise self._access.error(chunk, prefix, LIST)
                yield from self._listed_exactly(prefix, offset, listed)
                return
            batch = _conformed(pa.record_batch(chunk))
            if self._access.is_s3 and self._may_be_misnamed(batch, listed):
                yield from self._listed_exactly(prefix, offset, listed)
                return
            listed.append(batch.column(0))
            yield batch
            chunk = self._try(lambda: next(chunks, None))

    def _listed_exactly(self, prefix: str, offset: str | None, listed: Sequence[pa.Array]) -> Iterator[pa.RecordBatch]:
        """Yield the objects below `prefix` under their exact keys, without those in `listed`.

        On a store that lists in order, the listing continues after the last path in `listed`. This path is not greater
        than its key, because obstore can only have removed a slash at its end. All other keys are greater than this
        key, so none is left out.
        """
        from retention_assets.objectstore.s3 import list_exactly  # importing boto3 takes a second

        if listed and self._access.lists_in_order:
            offset, listed = listed[-1][-1].as_py(), ()
        already_listed = pa.chunked_array(listed, pa.string())
        for entries in list_exactly(self._bucket, prefix, offset):
            batch = _batch(entries)
            rest = batch.filter(pc.invert(pc.is_in(batch.column(0), value_set=already_listed)))
            if len(rest):
                yield rest

    def _is_whole_bucket(self, prefix: str) -> bool:
        """Return whether `prefix` covers a whole S3 bucket. Only then may a listed key begin with a slash."""
        return self._access.is_s3 and not prefix and "/" not in self._access.url.removeprefix("s3://")

    def _names_exactly(self, prefix: str) -> bool:
        """Return whether obstore keeps `prefix` unchanged: no empty, `.` or `..` segment, and no control character."""
        if not self._access.is_s3 or not prefix:
            return True
        return is_resolved(prefix.removesuffix("/")) and not CONTROL.search(prefix)

    def _may_be_misnamed(self, batch: pa.RecordBatch, before: Sequence[pa.Array]) -> bool:
        """Return whether obstore may have removed a slash from the beginning or the end of a key in the batch.

        A key that ends with a slash is usually an empty folder marker, so any empty object may be misnamed. A misnamed
        object that is not empty does harm only if there is also an object with the same key without the slash. Then
        both objects have the same name, so the listed names are not in strictly increasing order.
        """
        if pc.any(pc.equal(batch.column(2), 0), min_count=0).as_py():
            return True
        paths = batch.column(0)
        if not self._access.lists_in_order:
            return len(pc.unique(paths)) < len(paths)
        follows = not before or pc.less(before[-1][-1], paths[0]).as_py()
        return not (follows and pc.all(pc.less(paths[:-1], paths[1:]), min_count=0).as_py())

    def list_direct(self, prefix: str = "") -> Iterator[pa.RecordBatch]:
        """Yield the objects directly below `prefix`, as `LISTING`."""
        if objects := self.level(prefix)["objects"]:
            yield _batch(objects)

    def prefixes(self, prefix: str = "") -> Sequence[str]:
        """Return the directories directly below `prefix`, sorted, as full paths with a trailing slash."""
        return sorted(f"{name}/" for name in self.level(prefix)["common_prefixes"])

    def holds_objects(self, prefix: str) -> bool:
        """Return whether there is any object below `prefix`."""
        return next(self.list(prefix), None) is not None

    def level(self, prefix: str) -> Mapping[str, Any]:
        """Return the objects and directories directly below `prefix`, as obstore's `list_with_delimiter` does."""
        level: Any = None
        if self._names_exactly(prefix):
            level = self._try(lambda: self._store.list_with_delimiter(prefix or None))
            if not self._access.is_s3 or (isinstance(level, Failure) and not _is_unnameable(level)):
                return self._value_or_raise(level, prefix, LIST)
            if not isinstance(level, Failure) and not _misnames(level):
                return level
        from retention_assets.objectstore.s3 import level_exactly  # importing boto3 takes a second

        return level_exactly(self._bucket, prefix)


def is_resolved(path: str) -> bool:
    """Return whether `path` has no empty, `.` or `..` segment. obstore, for example, removes slashes at its ends."""
    return {"", ".", ".."}.isdisjoint(path.split("/"))


def _is_unnameable(failure: Failure) -> bool:
    """Return whether a listing ended at a key that obstore cannot name."""
    return failure.kind is Kind.OTHER and _UNNAMEABLE in failure.detail


def _misnames(level: Mapping[str, Any]) -> bool:
    """Return whether obstore may have removed a slash from a key in one directory level."""
    names = [row["path"] for row in level["objects"]]
    return (
        "" in level["common_prefixes"]
        or len(set(names)) < len(names)
        or any(row["size"] == 0 for row in level["objects"])
    )


def metadata_of(meta: Mapping[str, Any]) -> ObjectMetadata:
    """Return obstore's metadata of an object as `ObjectMetadata`."""
    return ObjectMetadata(meta["path"], meta["size"], meta["last_modified"], _unquoted(meta["e_tag"]))


def _conformed(listed: pa.RecordBatch) -> pa.RecordBatch:
    """Return a record batch that obstore listed, with the schema `LISTING`."""
    columns = [
        listed["path"],
        listed["last_modified"],
        listed["size"].cast(pa.int64()),
        pc.utf8_trim(listed["e_tag"], '"'),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING)


def _batch(objects: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    columns = [
        pa.array([row["path"] for row in objects], pa.string()),
        pa.array([row["last_modified"] for row in objects], LISTING.field("last_modified").type),
        pa.array([row["size"] for row in objects], pa.int64()),
        pa.array([_unquoted(row["e_tag"]) for row in objects], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LISTING)


def _unquoted(e_tag: str | None) -> str | None:
    return e_tag.strip('"') if e_tag else None
