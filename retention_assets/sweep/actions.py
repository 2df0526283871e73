"""The actions of a sweep: delete, quarantine, restore, purge, remove versions.

An action processes one chunk of objects on an executor, and returns a result for each object. An action can be repeated
after a crash at any point: it completes partly processed objects. Source: DESIGN.md, invariant 8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from time import monotonic
from typing import ClassVar

import pyarrow as pa

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.copying import SIZE, Copy, ObjectCopier, VerifiedCopy
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.objectstore.versions import all_versions, noncurrent_versions
from retention_assets.state.quarantine import MANIFESTS, QuarantineLocation
from retention_assets.sweep.worker import BeforeDeadline, chunks

OF_COPY = "its copy in quarantine"  # detail in the ledger: the purged copy; the bucket may keep the original's versions
_OF_COPY_VERSIONS_UNKNOWN = f"{OF_COPY}; whether the store keeps versions of the copy is unknown"
_OF_VERSIONS = "its versions"
_AT_ONCE = 10  # objects that one worker copies or restores at the same time
_OTHER_OBJECT = "is another object than was planned"
_NOT_DONE = ObjectResult(Outcome.ATTEMPTED)  # the next pass checks the liveness of the object again, and continues
_MOST_COPIED = 10 * 1024**3  # bytes of a chunk: about 90 s at 1 Gbit/s, well within a window
_POLL_SECONDS = 2.0  # seconds between two checks of the deadline: each check may cost a request
_STEP_OBJECTS, _STEP_BYTES = 1_000, 1024**3  # limits of a step, whose originals are deleted in one bulk request


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes objects. Where the store has conditional deletes, it deletes only an object with the planned ETag."""

    chunk_bytes: ClassVar[int | None] = None

    access: StoreAccess

    def open(self, rate_limiter: RateLimiter) -> "Deleting":
        """See `Action`."""
        return Deleting(ObjectDeleter(self.access, rate_limiter))


@dataclass(frozen=True, slots=True)
class Deleting:
    """See `Delete`."""

    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`."""
        return [_as_planned(one) for one in self.deleter.delete_all(_to_delete(objects), before_deadline)]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Moves objects to quarantine: writes a manifest, copies, verifies the copy, and only then deletes the original."""

    chunk_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    location: QuarantineLocation

    def open(self, rate_limiter: RateLimiter) -> "Quarantining":
        """See `Action`."""
        self.location.prepare()
        return Quarantining(
            self.location,
            ObjectCopier(self.access, self.location.access),
            ObjectDeleter(self.access, rate_limiter),
            ObjectReader(self.location.access),
            cache(partial(_verified_copies, self.location)),
        )


@dataclass(frozen=True, slots=True)
class Quarantining:
    """See `Quarantine`."""

    location: QuarantineLocation
    copier: ObjectCopier
    deleter: ObjectDeleter
    copies: ObjectReader
    earlier: Callable[[], Mapping[str, VerifiedCopy]]  # copies that earlier attempts verified

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`. Objects are moved in small steps: a slow copy does not delay objects copied before it."""
        try:
            self.location.write_manifest(objects, name)
        except StoreError as error:
            return [ObjectResult(Outcome.FAILED, f"no manifest could be written: {error}")] * objects.num_rows
        results: list[ObjectResult] = []
        deadline_poll = _polled_rarely(before_deadline)
        # A step has enough objects to copy `_AT_ONCE` of them at the same time.
        steps = chunks(objects["size"].to_pylist(), _STEP_OBJECTS, _STEP_BYTES, fewest=_AT_ONCE)
        for start, length in steps:
            step = objects.slice(start, length)
            copies = self._copied(step, deadline_poll)
            moved = self._moved(step, copies, before_deadline)
            self._write_copies(step, copies, moved, f"{name}-{start:07d}")
            results += moved
        return results

    def _copied(self, objects: pa.Table, deadline_poll: BeforeDeadline) -> Sequence[VerifiedCopy | ObjectResult]:
        wanted = [
            Copy(address, self.location.path(address), size, e_tag)
            for address, size, e_tag in _rows(objects, "address", "size", "etag")
        ]
        return self.copier.copy_all(wanted, deadline_poll, self.earlier)

    def _moved(
        self, objects: pa.Table, copies: Sequence[VerifiedCopy | ObjectResult], before_deadline: BeforeDeadline
    ) -> list[ObjectResult]:
        """Delete the originals of the copied objects, and return a result for each object."""
        rows = zip(_rows(objects, "address", "size"), copies, strict=True)
        results = {
            address: None if isinstance(copy, VerifiedCopy) else self._not_copied(copy, address, size)
            for (address, size), copy in rows
        }
        copied = [one for one in _to_delete(objects) if results[one.path] is None]
        if copied and before_deadline():
            for one, done in zip(copied, self.deleter.delete_all(copied, before_deadline), strict=True):
                results[one.path] = self._moved_away(one.path, done)
        return [one or _NOT_DONE for one in results.values()]

    def _write_copies(
        self,
        objects: pa.Table,
        copies: Sequence[VerifiedCopy | ObjectResult],
        results: Sequence[ObjectResult],
        name: str,
    ) -> None:
        """Write a manifest of verified copies whose originals are still there.

        Only copies that were verified by size alone are written: their ETags do not show that they are complete.
        """
        verified = {
            address: copy
            for address, copy, one in zip(objects["address"].to_pylist(), copies, results, strict=True)
            if one.outcome in (Outcome.ATTEMPTED, Outcome.FAILED) and isinstance(copy, VerifiedCopy)
            if copy.verified_by == SIZE and copy.e_tag and copy.copy_e_tag
        }
        if verified:
            with suppress(StoreError):  # the objects are copied again
                self.location.write_copies(verified, name)

    def _not_copied(self, done: ObjectResult, address: str, size: int) -> ObjectResult:
        """Return the result of an object that was not copied."""
        if done.outcome is not Outcome.MISSING:
            return _as_planned(done)
        try:  # the original is missing: an interrupted attempt moved it, or somebody deleted it
            moved = _size_at(self.copies, self.location.path(address)) == size
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        if not moved:
            return ObjectResult(Outcome.MISSING, "was gone before")
        return ObjectResult(Outcome.QUARANTINED, self.location.describe(address))

    def _moved_away(self, address: str, done: ObjectResult) -> ObjectResult:
        """Return the result of an object that was copied, from the deletion of its original."""
        if done.outcome is Outcome.ATTEMPTED:
            return done
        if done.outcome in (Outcome.DELETED, Outcome.MISSING):
            return ObjectResult(Outcome.QUARANTINED, self.location.describe(address))
        return replace(done, detail=f"copied, not deleted: {done.detail}")


@dataclass(frozen=True, slots=True)
class Restore:
    """Restores objects from quarantine. An object is skipped when another object is at its path."""

    chunk_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    location: QuarantineLocation

    def open(self, rate_limiter: RateLimiter) -> "Restoring":
        """See `Action`."""
        return Restoring(
            self.location,
            ObjectReader(self.access),
            ObjectReader(self.location.access),
            ObjectCopier(self.location.access, self.access),
            ObjectDeleter(self.location.access, rate_limiter),
        )


@dataclass(frozen=True, slots=True)
class Restoring:
    """See `Restore`."""

    location: QuarantineLocation
    reader: ObjectReader
    copies: ObjectReader
    copier: ObjectCopier
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`."""
        rows = _rows(objects, "address", "size")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            results = dict(zip((address for address, _ in rows), pool.map(self._restored, rows), strict=True))
        back = [address for address, one in results.items() if one.outcome == Outcome.RESTORED]
        done = self.deleter.delete_all([DeleteTarget(self.location.path(address)) for address in back], before_deadline)
        for address, copy in zip(back, done, strict=True):
            if copy.outcome is Outcome.ATTEMPTED:
                results[address] = copy  # the next pass finds the object restored and removes the copy
            elif copy.outcome is Outcome.FAILED:
                results[address] = ObjectResult(Outcome.RESTORED, f"its copy in quarantine stays: {copy.detail}")
        return list(results.values())

    def _restored(self, row: tuple[str, int]) -> ObjectResult:
        """Copy one object back to its path, unless it is there already, and return the result."""
        address, size = row
        try:
            there = _size_at(self.reader, address)
            if there is not None:
                is_back = there == size and self._is_the_copy(address)
                return (
                    ObjectResult(Outcome.RESTORED)
                    if is_back
                    else ObjectResult(Outcome.SKIPPED, "another object is at its path")
                )
            (done,) = self.copier.copy_all([Copy(self.location.path(address), address, size, None)])
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        if isinstance(done, VerifiedCopy):
            return ObjectResult(Outcome.RESTORED)
        return ObjectResult(Outcome.FAILED, done.detail or "it is not in quarantine any more")

    def _is_the_copy(self, address: str) -> bool:
        """Return whether the object at the address has the bytes of the copy.

        A missing copy counts as equal: an interrupted attempt removed the copy after it had restored the object.
        """
        try:
            copy = self.copies.digest(self.location.path(address))
        except ObjectMissing:
            return True
        return self.reader.digest(address) == copy


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes copies from quarantine, with all their versions.

    `keeps_versions`: whether the store keeps versions of deleted objects; None: unknown, which the ledger records.
    """

    chunk_bytes: ClassVar[int | None] = None

    location: QuarantineLocation
    keeps_versions: bool | None = False

    def open(self, rate_limiter: RateLimiter) -> "Purging":
        """See `Action`."""
        self.location.prepare()
        return Purging(self, ObjectDeleter(self.location.access, rate_limiter, conditional=False))


@dataclass(frozen=True, slots=True)
class Purging:
    """See `Purge`."""

    action: Purge
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`. A missing copy counts as purged."""
        addresses = objects["address"].to_pylist()
        purged = ObjectResult(
            Outcome.PURGED, OF_COPY if self.action.keeps_versions is not None else _OF_COPY_VERSIONS_UNKNOWN
        )
        try:
            to_delete = self._to_delete([self.action.location.path(address) for address in addresses])
        except StoreError as error:
            return [ObjectResult(Outcome.FAILED, str(error))] * len(addresses)
        failed = _not_gone(to_delete, self.deleter.delete_all(to_delete, before_deadline))
        return [failed.get(self.action.location.path(address), purged) for address in addresses]

    def _to_delete(self, paths: Sequence[str]) -> list[DeleteTarget]:
        if not self.action.keeps_versions:
            return [DeleteTarget(path) for path in paths]
        access = self.action.location.access
        return _versions(paths, lambda directory, between: all_versions(access, directory, between))


def remove_manifests(purge: Purge) -> int:
    """Delete the manifests of a plan, if no copy of the plan is left. Return how many manifests could not be deleted.

    Errors: AccessDenied or StoreError, when the remaining copies cannot be listed.
    """
    purge.location.prepare()
    access, folder = purge.location.access, f"{purge.location.folder}/{MANIFESTS}"
    if purge.keeps_versions:
        if next(all_versions(access, purge.location.path("")), None):
            return 0
        rows = [row for page in all_versions(access, folder) for row in page.to_pylist()]
        to_delete = [DeleteTarget(row["path"], version_id=row["version_id"]) for row in rows]
    else:
        reader = ObjectReader(access)
        if reader.holds_objects(purge.location.path("")):
            return 0
        to_delete = [DeleteTarget(path) for page in reader.list(folder) for path in page["path"].to_pylist()]
    return len(_not_gone(to_delete, ObjectDeleter(access, conditional=False).delete_all(to_delete)))


@dataclass(frozen=True, slots=True)
class RemoveVersions:
    """Removes the old versions of deleted objects from a versioned bucket. The delete markers stay."""

    chunk_bytes: ClassVar[int | None] = None

    access: StoreAccess

    def open(self, rate_limiter: RateLimiter) -> "RemovingVersions":
        """See `Action`."""
        return RemovingVersions(self.access, ObjectDeleter(self.access, rate_limiter, conditional=False))


@dataclass(frozen=True, slots=True)
class RemovingVersions:
    """See `RemoveVersions`."""

    access: StoreAccess
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`. Each directory is listed once for all objects of the chunk in it."""
        wanted = objects["address"].to_pylist()
        try:
            to_delete = _versions(wanted, lambda directory, _: noncurrent_versions(self.access, directory))
        except StoreError as error:
            return [ObjectResult(Outcome.FAILED, str(error))] * len(wanted)
        failed = _not_gone(to_delete, self.deleter.delete_all(to_delete, before_deadline))
        return [failed.get(address, ObjectResult(Outcome.PURGED, _OF_VERSIONS)) for address in wanted]


def _versions(
    paths: Sequence[str], listed: Callable[[str, tuple[str, str]], Iterator[pa.RecordBatch]]
) -> list[DeleteTarget]:
    """Return all versions of these paths. Each directory is listed once."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(f"{path.rpartition('/')[0]}/", []).append(path)
    return [
        DeleteTarget(path, version_id=version)
        for directory, in_directory in sorted(by_directory.items())
        for wanted in [set(in_directory)]
        for page in listed(directory, (min(in_directory), max(in_directory)))
        for path, version in zip(page["path"].to_pylist(), page["version_id"].to_pylist(), strict=True)
        if path in wanted
    ]


def _not_gone(to_delete: Sequence[DeleteTarget], done: Sequence[ObjectResult]) -> dict[str, ObjectResult]:
    """Return, by path, a result for each object that may still exist."""
    results = zip(to_delete, done, strict=True)
    return {one.path: result for one, result in results if result.outcome not in (Outcome.DELETED, Outcome.MISSING)}


def _polled_rarely(before_deadline: BeforeDeadline) -> BeforeDeadline:
    """Return `before_deadline` with a cached result, for callers that call it often.

    `before_deadline` itself is called at most every `_POLL_SECONDS` seconds, and never again after it returned false.
    """
    polled_at, is_before = -inf, True

    def deadline_poll() -> bool:
        nonlocal polled_at, is_before
        if is_before and monotonic() - polled_at > _POLL_SECONDS:
            polled_at, is_before = monotonic(), before_deadline()
        return is_before

    return deadline_poll


def _verified_copies(location: QuarantineLocation) -> Mapping[str, VerifiedCopy]:
    try:
        return location.verified_copies()
    except StoreError:
        return {}  # the objects are copied again


def _rows(objects: pa.Table, *columns: str) -> list[tuple]:
    return list(zip(*(objects[column].to_pylist() for column in columns), strict=True))


def _to_delete(objects: pa.Table) -> list[DeleteTarget]:
    return [DeleteTarget(address, e_tag) for address, e_tag in _rows(objects, "address", "etag")]


def _as_planned(done: ObjectResult) -> ObjectResult:
    """Return the store's result with the ledger's detail for an object that is not the planned one."""
    return ObjectResult(Outcome.SKIPPED, _OTHER_OBJECT) if done.outcome is Outcome.SKIPPED else done


def _size_at(reader: ObjectReader, path: str) -> int | None:
    """Return the size of the object at `path`; None when there is none. Errors: StoreError when this is unknown."""
    try:
        return reader.head(path).size
    except ObjectMissing:
        return None
