"""The actions `Delete`, `Quarantine` and `Restore`. The actions of a purge are in `purges`.

An action processes one chunk of objects on an executor, and returns a result for each object. An action can be repeated
after a crash at any point: it completes partly processed objects. Source: promise 4 of docs/safety.md.

The fields with `init=False` are clients. Only an open action has them, because they cannot be pickled to executors.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from typing import ClassVar, Self

import pyarrow as pa

from retention_assets.config.timestamps import elapsed_seconds
from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.copying import SIZE, Copy, ObjectCopier, VerifiedCopy, have_same_md5
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader
from retention_assets.objectstore.outcomes import NOT_REQUESTED, DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.quarantine import QuarantineLocation, require_marker
from retention_assets.sweep.preconditions import InterruptedMoves, require_mounted, size_at
from retention_assets.sweep.worker import BeforeDeadline, chunks

AT_ONCE = 10  # objects that one worker copies, restores or compares at the same time
NOT_RESTORED = "not restored: "  # begins the ledger's detail of an object that a restore failed to restore, or skipped
GONE_AGAIN = "then somebody removed or changed the object; its copy in quarantine stays"
_OTHER_OBJECT = "is another object than was planned"
MOST_COPIED = 10 * 1024**3  # bytes of a chunk: about 90 s at 1 Gbit/s, well within a window
_POLL_SECONDS = 2.0  # seconds between two checks of the deadline: each check may cost a request
_STEP_OBJECTS, _STEP_BYTES = 1_000, 1024**3  # limits of a step, whose originals are deleted in one bulk request


@dataclass(slots=True, repr=False, eq=False)
class Delete:
    """Deletes objects. If the store has conditional deletion, only objects with the planned ETag are deleted."""

    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None

    access: StoreAccess
    deleter: ObjectDeleter = field(init=False)

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`."""
        opened = replace(self)
        opened.deleter = ObjectDeleter(self.access, rate_limiter)
        return opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`."""
        to_delete = [DeleteTarget(address, e_tag) for address, e_tag in _rows(objects, "address", "etag")]
        return [_as_planned(one) for one in self.deleter.delete_all(to_delete, before_deadline)]


@dataclass(slots=True, repr=False, eq=False)
class Quarantine:
    """Moves objects to quarantine: writes a manifest, copies, verifies the copy, and only then deletes the original.

    `marker`: the name of the marker of a local quarantine, see `prepare_directory`. A worker that does not see the
    marker would move objects to another disk. None: the quarantine is in a store.
    """

    chunk_bytes: ClassVar[int | None] = MOST_COPIED

    access: StoreAccess
    location: QuarantineLocation
    marker: str | None = None
    copier: ObjectCopier = field(init=False)
    deleter: ObjectDeleter = field(init=False)
    copies: ObjectReader = field(init=False)
    earlier: Callable[[], Mapping[str, VerifiedCopy]] = field(init=False)  # copies that earlier attempts verified
    interrupted: InterruptedMoves = field(init=False)

    @property
    def target(self) -> str:
        """See `Action`."""
        return self.location.url

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`. Errors: StoreError if this machine does not see the marker."""
        if self.marker is not None:
            require_marker(self.location.access, self.marker)
        opened = replace(self)
        opened.copier = ObjectCopier(self.access, self.location.access)
        opened.deleter = ObjectDeleter(self.access, rate_limiter)
        opened.copies = ObjectReader(self.location.access)
        opened.earlier = cache(partial(_verified_copies, self.location))
        opened.interrupted = InterruptedMoves(self.access.options)
        return opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. Objects are moved in small steps, so a slow copy does not delay objects copied before it."""
        try:
            self.location.write_manifest(objects, name)
        except StoreError as error:
            return [ObjectResult(Outcome.FAILED, f"no manifest could be written: {error}")] * objects.num_rows
        results: list[ObjectResult] = []
        deadline_poll = polled_rarely(before_deadline)
        for start, length in steps(objects):
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
        """Delete the originals of the copied objects, and return a result for each object.

        Only the object that was copied may be deleted. So its ETag is the condition, even if the plan has no ETag.
        """
        rows = zip(_rows(objects, "address", "size", "earlier_targets"), copies, strict=True)
        results = {
            address: None if isinstance(copy, VerifiedCopy) else self._not_copied(copy, address, size, targets or ())
            for (address, size, targets), copy in rows
        }
        pairs = zip(results, copies, strict=True)
        copied = [DeleteTarget(address, copy.e_tag) for address, copy in pairs if isinstance(copy, VerifiedCopy)]
        if copied and before_deadline():
            for one, result in zip(copied, self.deleter.delete_all(copied, before_deadline), strict=True):
                results[one.path] = self._moved_away(one.path, result)
        return [one or NOT_REQUESTED for one in results.values()]  # the next pass checks their liveness again

    def _write_copies(
        self,
        objects: pa.Table,
        copies: Sequence[VerifiedCopy | ObjectResult],
        results: Sequence[ObjectResult],
        name: str,
    ) -> None:
        """Write a manifest of verified copies whose originals are still there.

        Only copies that were verified by size alone are written. The next attempt recognizes all other copies by their
        ETags.
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

    def _not_copied(
        self, result: ObjectResult, address: str, size: int, earlier_targets: Collection[str]
    ) -> ObjectResult:
        """Return the result for the ledger of an object that was not copied. `result`: the copier's result."""
        if result.failure is not None and result.failure.is_archived:
            return replace(result, detail=f"{result.detail}. Or use `mode: delete`, which cannot be undone")
        if result.outcome is not Outcome.MISSING:
            return _as_planned(result)
        try:  # the original is missing: an interrupted attempt moved it, or somebody deleted it
            moved = size_at(self.copies, self.location.path(address)) == size
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        if moved:
            return ObjectResult(Outcome.QUARANTINED, self.location.describe(address))
        return self.interrupted.result(address, size, [url for url in earlier_targets if url != self.target])

    def _moved_away(self, address: str, result: ObjectResult) -> ObjectResult:
        """Return the result for the ledger of an object that was copied. `result`: of the deletion of its original."""
        if result.outcome is Outcome.ATTEMPTED:
            return result
        if result.outcome in (Outcome.DELETED, Outcome.MISSING):
            return ObjectResult(Outcome.QUARANTINED, self.location.describe(address))
        return replace(result, detail=f"copied, not deleted: {result.detail}")


@dataclass(slots=True, repr=False, eq=False)
class Restore:
    """Restores objects from quarantine. An object is skipped when another object is at its path.

    A copy is deleted after the ledger has its object as restored, see `clean_up`.
    """

    chunk_bytes: ClassVar[int | None] = MOST_COPIED
    target: ClassVar[None] = None

    access: StoreAccess
    location: QuarantineLocation
    reader: ObjectReader = field(init=False)
    copies: ObjectReader = field(init=False)
    copier: ObjectCopier = field(init=False)
    deleter: ObjectDeleter = field(init=False)
    seen: dict[str, str | None] = field(init=False)  # the ETag of each restored object, until its copy is deleted

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`. Errors: StoreError where the directory of the repository is not mounted."""
        if self.access.is_local:
            require_mounted(self.access.url, "restored")
        opened = replace(self)
        opened.reader, opened.copies = ObjectReader(self.access), ObjectReader(self.location.access)
        opened.copier = ObjectCopier(self.location.access, self.access, overwrites=False)
        opened.deleter = ObjectDeleter(self.location.access, rate_limiter)
        opened.seen = {}
        return opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. Objects are restored in small steps, as `Quarantine` moves them."""
        results: list[ObjectResult] = []
        deadline_poll = polled_rarely(before_deadline)
        for start, length in steps(objects):
            results += self._restored(_rows(objects.slice(start, length), "address", "size"), deadline_poll)
        return [
            replace(one, detail=f"{NOT_RESTORED}{one.detail}")
            if one.outcome in (Outcome.FAILED, Outcome.SKIPPED)
            else one
            for one in results
        ]

    def _restored(self, rows: Sequence[tuple[str, int]], deadline_poll: BeforeDeadline) -> list[ObjectResult]:
        """Copy objects back to their paths, unless objects are there already, and return the results."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(partial(self._found, deadline_poll), rows))
        wanted = [
            Copy(self.location.path(address), address, size)
            for (address, size), one in zip(rows, found, strict=True)
            if one is None
        ]
        copied = iter(self.copier.copy_all(wanted, deadline_poll) if wanted else ())
        return [one or self._copied_back(address, next(copied)) for (address, _), one in zip(rows, found, strict=True)]

    def _found(self, deadline_poll: BeforeDeadline, row: tuple[str, int]) -> ObjectResult | None:
        """Return the result of an object that need not or cannot be copied; None: nothing is at its path."""
        if not deadline_poll():
            return NOT_REQUESTED
        address, size = row
        try:
            there = self.reader.find(address)
            if there is None:
                return None
            is_back = self._is_the_copy(address) and there.size == size
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        if is_back:
            self.seen[address] = there.e_tag
            return ObjectResult(Outcome.RESTORED)
        return ObjectResult(Outcome.SKIPPED, "another object is at its path")

    def _copied_back(self, address: str, copied: VerifiedCopy | ObjectResult) -> ObjectResult:
        """Return the result for the ledger of an object to copy back. `copied`: the copier's result."""
        if isinstance(copied, VerifiedCopy):
            self.seen[address] = copied.copy_e_tag
            return ObjectResult(Outcome.RESTORED)
        if copied.outcome is Outcome.ATTEMPTED:
            return NOT_REQUESTED
        return ObjectResult(Outcome.FAILED, copied.detail or self._no_copy(address))

    def clean_up(
        self, objects: pa.Table, results: Sequence[ObjectResult], before_deadline: BeforeDeadline
    ) -> Sequence[ObjectResult]:
        """See `CleansUp`. Deletes the copies of the restored objects, if the objects are still at their paths.

        The ledger already has these objects as restored. So if a copy is missing and the ledger says `quarantined`, no
        restore removed the copy. An object is restored even if its copy stays.
        """
        by_address = dict(zip(objects["address"].to_pylist(), results, strict=True))
        sizes = dict(_rows(objects, "address", "size"))
        restored = [address for address, one in by_address.items() if one.outcome == Outcome.RESTORED]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            checked = pool.map(lambda address: self._still_back(address, sizes[address]), restored)
        by_address |= dict(zip(restored, checked, strict=True))
        sure = [address for address in restored if by_address[address] == ObjectResult(Outcome.RESTORED)]
        copies = [DeleteTarget(self.location.path(address)) for address in sure]
        for address, deleted in zip(sure, self.deleter.delete_all(copies, before_deadline), strict=True):
            if deleted.outcome in (Outcome.ATTEMPTED, Outcome.FAILED):
                by_address[address] = _with_copy(deleted.detail or "the deadline had passed, or the lease was lost")
        return list(by_address.values())

    def _still_back(self, address: str, size: int) -> ObjectResult:
        """Return the result of an object that was restored, from what is at its path now."""
        try:
            there = self.reader.find(address)
        except StoreError as error:
            return _with_copy(str(error))
        if there is not None and (there.size, there.e_tag) == (size, self.seen.pop(address, there.e_tag)):
            return ObjectResult(Outcome.RESTORED)
        return ObjectResult(Outcome.RESTORED, GONE_AGAIN)

    def _no_copy(self, address: str) -> str:
        return f"no copy is at {self.location.describe(address)}: it was removed, or quarantine.url was changed"

    def _is_the_copy(self, address: str) -> bool:
        """Return whether the object at the address has the bytes of the copy: by their MD5, or else by reading both.

        Errors: StoreError, also if there is no copy.
        """
        path = self.location.path(address)
        if are_one_file(self.reader.describe(address), self.copies.describe(path)):
            return False
        copy = StoredVersion(self._unless_lost(address, partial(self.copies.head, path)))
        is_same = copy.has_bytes_of(self.reader.head(address), self.copies, partial(self.reader.digest, address))
        self._unless_lost(address, partial(self.copies.head, path))  # it may have been removed meanwhile
        return is_same

    def _unless_lost[Found](self, address: str, find: Callable[[], Found]) -> Found:
        try:
            return find()
        except ObjectMissing:
            raise StoreError(
                f"{self._no_copy(address)}. The object at its path may be another one: it was not changed. Compare it "
                "with a backup. If it is right, do not restore it again: a later purge takes it off the list of "
                "quarantined objects"
            ) from None


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A stored object, or one version or delete marker of it."""

    metadata: ObjectMetadata
    version_id: str | None = None  # None: the current version
    is_delete_marker: bool = False
    is_current: bool = True

    @property
    def target(self) -> DeleteTarget:
        """The version, as the target of a deletion."""
        return DeleteTarget(self.metadata.path, version_id=self.version_id)

    def has_bytes_of(self, original: ObjectMetadata, copies: ObjectReader, digest: Callable[[], bytes]) -> bool:
        """Return whether this version and the original have the same bytes: by their MD5, or else by reading both.

        A copy that somebody removed meanwhile counts as equal: there is nothing left of it. `digest` reads the
        original. Errors: ObjectMissing when the original is missing; StoreError.
        """
        if self.metadata.size != original.size:
            return False
        if have_same_md5(original, self.metadata):
            return True
        try:
            copy = copies.digest(self.metadata.path, version=self.version_id)
        except ObjectMissing:
            return True
        return copy == digest()


def are_one_file(*urls: str) -> bool:
    """Return whether these URLs are one local file: somebody linked the object to its last copy."""
    if not all(url.startswith("file://") for url in urls):
        return False
    return len({os.path.realpath(url.removeprefix("file://")) for url in urls}) == 1


def _with_copy(why: str) -> ObjectResult:
    return ObjectResult(Outcome.RESTORED, f"its copy in quarantine stays until a purge: {why}")


def steps(objects: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each step. Steps have at least `AT_ONCE` objects, except the last: no thread is idle."""
    return chunks(objects["size"].to_pylist(), _STEP_OBJECTS, _STEP_BYTES, fewest=AT_ONCE)


def polled_rarely(before_deadline: BeforeDeadline) -> BeforeDeadline:
    """Return `before_deadline` with a cached result, for callers that call it often.

    `before_deadline` itself is called at most every `_POLL_SECONDS` seconds, and never again after it returned false.
    """
    polled_at, is_before = -inf, True

    def deadline_poll() -> bool:
        nonlocal polled_at, is_before
        if is_before and elapsed_seconds() - polled_at > _POLL_SECONDS:
            polled_at, is_before = elapsed_seconds(), before_deadline()
        return is_before

    return deadline_poll


def _verified_copies(location: QuarantineLocation) -> Mapping[str, VerifiedCopy]:
    try:
        return location.verified_copies()
    except StoreError:
        return {}  # the objects are copied again


def _rows(objects: pa.Table, *columns: str) -> list[tuple]:
    return list(zip(*(objects[column].to_pylist() for column in columns), strict=True))


def _as_planned(result: ObjectResult) -> ObjectResult:
    """Return the result for the ledger. If the store skipped the object, it is another object than was planned."""
    return ObjectResult(Outcome.SKIPPED, _OTHER_OBJECT) if result.outcome is Outcome.SKIPPED else result
