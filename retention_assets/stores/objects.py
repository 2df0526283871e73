"""Objects behind a URL, read: S3, GCS, Azure, local files or this process's memory, through obstore.

Errors are of our own tree, one line each, and never hold a value of the options. `deletion.py` deletes.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from obstore.exceptions import BaseError

from retention_assets.stores.access import StoreAccess
from retention_assets.stores.failures import LIST, READ, Action, Failure, failure_of

__all__ = ["LISTING", "ObjectFacts", "ObjectReader", "OpenStore", "StoreAccess"]

LISTING = pa.schema(
    (
        pa.field("path", pa.string(), nullable=False),  # relative to the URL
        pa.field("last_modified", pa.timestamp("us", tz="UTC"), nullable=False),  # the store's clock
        pa.field("size", pa.int64(), nullable=False),  # bytes
        pa.field("e_tag", pa.string(), nullable=True),  # without the quotes of HTTP, as inventories have it
    )
)

_ROWS_PER_BATCH = 10_000
_ROWS_PER_PAGE = 1_000  # of S3's and GCS's answers: what is read beyond the end of a part
_CHUNK = 8 * 1024**2  # bytes


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """One object as the store describes it: bytes, the store's clock, its ETag without quotes."""

    path: str
    size: int
    last_modified: datetime
    e_tag: str | None


class OpenStore:
    """An opened place of objects. Paths are relative to its URL and written without a leading slash."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._store: Any = access.open()

    def describe(self, path: str) -> str:
        """Return `path` as messages name it: with the URL that it is relative to."""
        return f"{self._access.url}/{path}"

    def _failure(self, call: Callable[[], object]) -> Failure | None:
        try:
            call()
        except (BaseError, OSError, ValueError) as error:
            return failure_of(error, self._access.options.values())
        return None


class ObjectReader(OpenStore):
    """What may be asked about objects. Nothing here changes any.

    Every method raises ObjectMissing, AccessDenied or, for the rest, StoreError, with the URL, the path and the
    remedy in one line. A prefix is a directory, with or without a trailing slash: `data` covers `data/x`, not
    `database/x`; the empty one covers everything.
    """

    def read(self, path: str) -> bytes:
        """Return the object's bytes."""
        return self._call(lambda: bytes(self._store.get(path).bytes()), path, READ)

    def read_with_facts(self, path: str) -> tuple[bytes, ObjectFacts]:
        """Return the object's bytes, and what the same answer says about them."""

        def read() -> tuple[bytes, ObjectFacts]:
            found = self._store.get(path)
            return bytes(found.bytes()), facts_of(found.meta)

        return self._call(read, path, READ)

    def digest(self, path: str, algorithm: str = "sha256") -> bytes:
        """Return a digest of the object's bytes, which are never held all at once."""

        def digest() -> bytes:
            found = hashlib.new(algorithm, usedforsecurity=False)
            for chunk in self._store.get(path).stream(min_chunk_size=_CHUNK):
                found.update(chunk)
            return found.digest()

        return self._call(digest, path, READ)

    def head(self, path: str) -> ObjectFacts:
        """Return what the store says about the object."""
        return facts_of(self._call(lambda: self._store.head(path), path, READ))

    def list(self, prefix: str = "") -> Iterator[pa.RecordBatch]:
        """Yield the objects below `prefix`, at any depth, as `LISTING`; where nothing is, nothing comes.

        A failure in the middle raises: a listing is whole, or an error.
        """
        return self._listed(prefix, None, _ROWS_PER_BATCH)

    def list_between(self, prefix: str, after: str, until: str) -> Iterator[pa.RecordBatch]:
        """Yield the objects below `prefix` whose paths come after `after` and not after `until`, as `LISTING`.

        The store must list in order (`StoreAccess.lists_in_order`): what follows `until` is not read.
        """
        for batch in self._listed(prefix, after or None, _ROWS_PER_PAGE):
            paths = batch.column(0)
            yield batch.filter(pc.and_(pc.greater(paths, after), pc.less_equal(paths, until)))
            if paths[-1].as_py() > until:
                return

    def _listed(self, prefix: str, offset: str | None, rows: int) -> Iterator[pa.RecordBatch]:
        def ask() -> Any:
            return self._store.list(prefix or None, offset=offset, chunk_size=rows, return_arrow=True)

        chunks = self._call(ask, prefix, LIST)
        while chunk := self._call(lambda: next(chunks, None), prefix, LIST):
            yield _conformed(pa.record_batch(chunk))

    def list_direct(self, prefix: str = "") -> Iterator[pa.RecordBatch]:
        """Yield the objects that lie directly below `prefix`, as `LISTING`."""
        if objects := self._level(prefix)["objects"]:
            yield _batch(objects)

    def prefixes(self, prefix: str = "") -> Sequence[str]:
        """Return the directories directly below `prefix`: whole paths, each with a trailing slash, sorted."""
        return sorted(f"{name}/" for name in self._level(prefix)["common_prefixes"])

    def holds_objects(self, prefix: str) -> bool:
        """Return whether anything lies below `prefix`."""
        return next(self.list(prefix), None) is not None

    def _level(self, prefix: str) -> Mapping[str, Any]:
        return self._call(lambda: self._store.list_with_delimiter(prefix or None), prefix, LIST)

    def _call[T](self, call: Callable[[], T], path: str, action: Action) -> T:
        try:
            return call()
        except (BaseError, OSError, ValueError) as error:
            failure = failure_of(error, self._access.options.values())
        # Raised out here: the store's own error, which may hold signed addresses, stays out of the traceback.
        raise failure.as_error(self._access.url, path, action)


def facts_of(meta: Mapping[str, Any]) -> ObjectFacts:
    """Return one object's facts from obstore's words for them."""
    return ObjectFacts(meta["path"], meta["size"], meta["last_modified"], _unquoted(meta["e_tag"]))


def _conformed(listed: pa.RecordBatch) -> pa.RecordBatch:
    """Return what obstore listed into Arrow as `LISTING`."""
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
