"""The actions of a sweep: delete, quarantine, restore, purge, remove versions.

An action processes one chunk of objects on an executor, and returns a result for each object. An action can be repeated
after a crash at any point: it completes partly processed objects. Source: promise 4 of docs/safety.md.

The fields with `init=False` are clients. Only an open action has them, because they cannot be pickled to executors.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from math import inf
from socket import gethostname
from typing import ClassVar, Self

import pyarrow as pa

from retention_assets.config.timestamps import elapsed_seconds
from retention_assets.errors import AccessDenied, ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.copying import SIZE, Copy, ObjectCopier, VerifiedCopy, have_same_md5
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import OF_COPY, DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.objectstore.versions import all_versions
from retention_assets.state.quarantine import MANIFESTS, QuarantineLocation
from retention_assets.sweep.preconditions import InterruptedMoves, require_mounted, size_at
from retention_assets.sweep.worker import Action, BeforeDeadline, chunks

_OF_COPY_VERSIONS_UNKNOWN = f"{OF_COPY}; whether the store keeps versions of the copy is unknown"
_OF_VERSIONS = "its versions"
_AT_ONCE = 10  # objects that one worker copies or restores at the same time
_OTHER_OBJECT = "is another object than was planned"
OTHER_BYTES = "the object at its path is missing or has other bytes: this copy may be the last"
_TOO_SLOW = ObjectResult(
    Outcome.FAILED,
    "sweep.window ended while the copy was compared with the object at its path: purge again, and if it fails again, "
    "raise sweep.window",
)
_NOT_DONE = ObjectResult(Outcome.ATTEMPTED)  # the next pass checks the liveness of the object again
_MOST_COPIED = 10 * 1024**3  # bytes of a chunk: about 90 s at 1 Gbit/s, well within a window
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
        return [_as_planned(one) for one in self.deleter.delete_all(_to_delete(objects), before_deadline)]


@dataclass(slots=True, repr=False, eq=False)
class Quarantine:
    """Moves objects to quarantine: writes a manifest, copies, verifies the copy, and only then deletes the original.

    `marker`: the name of a file that the driver wrote into a local quarantine, see `marked`. A worker that does not see
    it would move objects to another disk. None: the workers run on the driver's machine, or all see the same store.
    """

    chunk_bytes: ClassVar[int | None] = _MOST_COPIED

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
        if self.marker is None:
            self.location.prepare()
        else:
            self._require_marker(self.marker)
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
        deadline_poll = _polled_rarely(before_deadline)
        for start, length in _steps(objects):
            step = objects.slice(start, length)
            copies = self._copied(step, deadline_poll)
            moved = self._moved(step, copies, before_deadline)
            self._write_copies(step, copies, moved, f"{name}-{start:07d}")
            results += moved
        return results

    def _require_marker(self, marker: str) -> None:
        try:
            ObjectReader(self.location.access).head(marker)
        except StoreError as error:
            reason = f" The reason: {error}" if isinstance(error, AccessDenied) else ""
            raise StoreError(
                f"{self.location.access.url}: the machine {gethostname()} does not see the quarantine of the machine "
                "that runs the sweep. Nothing was moved. Mount the directory on every machine that runs a worker of "
                f"Spark, or set quarantine.url to a location in an object store. Then sweep again.{reason}"
            ) from None

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

    def _not_copied(
        self, result: ObjectResult, address: str, size: int, earlier_targets: Collection[str]
    ) -> ObjectResult:
        """Return the ledger's result of an object that was not copied. `result`: of the copier."""
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
        """Return the ledger's result of an object that was copied. `result`: of the deletion of its original."""
        if result.outcome is Outcome.ATTEMPTED:
            return result
        if result.outcome in (Outcome.DELETED, Outcome.MISSING):
            return ObjectResult(Outcome.QUARANTINED, self.location.describe(address))
        return replace(result, detail=f"copied, not deleted: {result.detail}")


@contextmanager
def marked(action: Action) -> Iterator[None]:
    """Keep the marker of a `Quarantine` in its directory for the time of a `with` block.

    The file is not in the folder of a plan, so all other commands ignore it, also if it stays after a crash. If the
    block made the directory and moved nothing, for example because the sweep was refused, the directory is removed.
    """
    if not isinstance(action, Quarantine) or action.marker is None:
        yield
        return
    is_new = action.location.prepare()
    access = action.location.access
    ObjectWriter(access).put(action.marker, b"")
    try:
        yield
    finally:
        with suppress(StoreError):
            ObjectDeleter(access, conditional=False).delete_all([DeleteTarget(action.marker)])
        if is_new:
            action.location.remove_empty()


@dataclass(slots=True, repr=False, eq=False)
class Restore:
    """Restores objects from quarantine. An object is skipped when another object is at its path."""

    chunk_bytes: ClassVar[int | None] = _MOST_COPIED
    target: ClassVar[None] = None

    access: StoreAccess
    location: QuarantineLocation
    reader: ObjectReader = field(init=False)
    copies: ObjectReader = field(init=False)
    copier: ObjectCopier = field(init=False)
    deleter: ObjectDeleter = field(init=False)

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`. Errors: StoreError where the directory of the repository is not mounted."""
        if self.access.is_local:
            require_mounted(self.access.url, "restored")
        opened = replace(self)
        opened.reader, opened.copies = ObjectReader(self.access), ObjectReader(self.location.access)
        opened.copier = ObjectCopier(self.location.access, self.access, overwrites=False)
        opened.deleter = ObjectDeleter(self.location.access, rate_limiter)
        return opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. Objects are restored in small steps, as `Quarantine` moves them."""
        results: list[ObjectResult] = []
        deadline_poll = _polled_rarely(before_deadline)
        for start, length in _steps(objects):
            rows = _rows(objects.slice(start, length), "address", "size")
            restored = self._restored(rows, deadline_poll)
            results += self._without_copies(
                dict(zip((address for address, _ in rows), restored, strict=True)), before_deadline
            )
        return results

    def _restored(self, rows: Sequence[tuple[str, int]], deadline_poll: BeforeDeadline) -> list[ObjectResult]:
        """Copy objects back to their paths, unless objects are there already, and return the results."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
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
            return _NOT_DONE
        address, size = row
        try:
            there = size_at(self.reader, address)
            if there is None:
                return None
            is_back = there == size and self._is_the_copy(address)
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        if is_back:
            return ObjectResult(Outcome.RESTORED)
        return ObjectResult(Outcome.SKIPPED, "another object is at its path")

    def _copied_back(self, address: str, copied: VerifiedCopy | ObjectResult) -> ObjectResult:
        """Return the ledger's result of an object that was to be copied back. `copied`: of the copier."""
        if isinstance(copied, VerifiedCopy):
            return ObjectResult(Outcome.RESTORED)
        if copied.outcome is Outcome.ATTEMPTED:
            return _NOT_DONE
        return ObjectResult(Outcome.FAILED, copied.detail or self._no_copy(address))

    def _without_copies(
        self, results: Mapping[str, ObjectResult], before_deadline: BeforeDeadline
    ) -> list[ObjectResult]:
        """Delete the copies of the restored objects, and return the results.

        An object is restored even if its copy stays. Otherwise a restore that is slower than its deadline would never
        record an object as restored.
        """
        restored = [address for address, one in results.items() if one.outcome == Outcome.RESTORED]
        copies = [DeleteTarget(self.location.path(address)) for address in restored]
        left: dict[str, ObjectResult] = {}
        for address, deleted in zip(restored, self.deleter.delete_all(copies, before_deadline), strict=True):
            if deleted.outcome in (Outcome.ATTEMPTED, Outcome.FAILED):
                why = deleted.detail or "the deadline had passed"
                left[address] = ObjectResult(Outcome.RESTORED, f"its copy in quarantine stays until a purge: {why}")
        return [left.get(address, one) for address, one in results.items()]

    def _no_copy(self, address: str) -> str:
        return f"no copy is at {self.location.describe(address)}: it was removed, or quarantine.url was changed"

    def _is_the_copy(self, address: str) -> bool:
        """Return whether the object at the address has the bytes of the copy: by their MD5, or else by reading both.

        If the quarantine has a manifest of the plan, a missing copy counts as equal: an interrupted attempt removed the
        copy after it had restored the object. Otherwise this is another quarantine, or it is not mounted.
        Errors: StoreError.
        """
        has_copy = _has_copy(self.reader, address, self.copies, self.location.path(address))
        if has_copy is None and not self.location.has_manifest():
            raise StoreError(self._no_copy(address))
        return has_copy is not False


def _has_copy(originals: ObjectReader, address: str, copies: ObjectReader, path: str) -> bool | None:
    """Return whether the object has the bytes of the copy; None: the copy is missing.

    Errors: ObjectMissing when the object is missing; StoreError.
    """
    if _are_one_file(originals.describe(address), copies.describe(path)):
        return False
    there = originals.head(address)
    try:
        if have_same_md5(there, copies.head(path)):
            return True
        copy = copies.digest(path)
    except ObjectMissing:
        return None
    return originals.digest(address) == copy


def _are_one_file(*urls: str) -> bool:
    """Return whether these are one local file: somebody linked the object to its copy, which is then the last one."""
    if not all(url.startswith("file://") for url in urls):
        return False
    return len({os.path.realpath(url.removeprefix("file://")) for url in urls}) == 1


@dataclass(slots=True, repr=False, eq=False)
class Purge:
    """Deletes copies from quarantine. If the store keeps versions, all versions of a copy are deleted.

    `keeps_versions`: whether the store keeps versions of deleted objects. None: unknown. Then only the current copy is
    deleted, and the ledger records that versions of the copy may be left.
    """

    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None

    location: QuarantineLocation
    keeps_versions: bool | None = False
    deleter: ObjectDeleter = field(init=False)

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`. Errors: StoreError if the directory of the quarantine is not mounted on this machine.

        A copy that is not found counts as purged. The folder of a plan has manifests until its last copy is purged.
        """
        if self.location.access.is_local and not self.location.holds_files():
            raise StoreError(
                f"{self.location.url}: the machine {gethostname()} sees neither copies nor manifests there. Nothing "
                "was deleted. Mount the quarantine on every machine that runs a worker of Spark. Then run the same "
                "command again."
            )
        opened = replace(self)
        opened.deleter = ObjectDeleter(self.location.access, rate_limiter, conditional=False)
        return opened

    def compared(self, originals: StoreAccess) -> "PurgeCompared":
        """Return the action that first compares each copy with its original in the store `originals`."""
        return PurgeCompared(self.location, self.keeps_versions, originals=originals)

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. A missing copy counts as purged."""
        return self._purge(objects["address"].to_pylist(), before_deadline)

    def _purge(self, addresses: Sequence[str], before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        paths = [self.location.path(address) for address in addresses]
        detail = OF_COPY if self.keeps_versions is not None else _OF_COPY_VERSIONS_UNKNOWN
        return _purged(self.deleter, paths, self._to_delete, detail, before_deadline)

    def _to_delete(self, paths: Sequence[str]) -> list[DeleteTarget]:
        if not self.keeps_versions:
            return [DeleteTarget(path) for path in paths]
        return _versions(self.location.access, paths)


@dataclass(slots=True, repr=False, eq=False)
class PurgeCompared(Purge):
    """Deletes copies whose originals exist. A copy is skipped if its original, in the store `originals`, differs."""

    chunk_bytes: ClassVar[int | None] = _MOST_COPIED

    originals: StoreAccess = field(kw_only=True)
    has_finished: bool = field(default=False, init=False)  # whether this worker finished any copy since it was opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. Copies are compared in small steps, so that each step's copies are deleted before the next.

        If the first step takes longer than the window, its compared copies fail. The next pass would take as long.
        """
        results: list[ObjectResult] = []
        originals, copies = ObjectReader(self.originals), ObjectReader(self.location.access)
        compare = partial(self._compared, originals, copies, _polled_rarely(before_deadline))
        for start, length in _steps(objects):
            addresses = objects["address"].slice(start, length).to_pylist()
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                compared = list(pool.map(compare, addresses))
            same = [address for address, one in zip(addresses, compared, strict=True) if one is None]
            purged = list(self._purge(same, before_deadline))
            self.has_finished |= any(one and one.outcome is not Outcome.ATTEMPTED for one in [*compared, *purged])
            if not self.has_finished:
                purged = [_TOO_SLOW] * len(same)
            of_same = iter(purged)
            results += [one or next(of_same) for one in compared]
        return results

    def _compared(
        self, originals: ObjectReader, copies: ObjectReader, deadline_poll: BeforeDeadline, address: str
    ) -> ObjectResult | None:
        """Return the result of a copy that stays; None: the original has its bytes, or there is no current copy."""
        if not deadline_poll():
            return _NOT_DONE
        try:
            has_copy = _has_copy(originals, address, copies, self.location.path(address))
        except ObjectMissing:
            has_copy = False
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        return ObjectResult(Outcome.SKIPPED, OTHER_BYTES) if has_copy is False else None


@dataclass(slots=True, repr=False, eq=False)
class RemoveVersions:
    """Removes the old versions of deleted objects from a versioned bucket.

    A delete marker that is the current version stays: removing it would restore the version below it.
    """

    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None

    access: StoreAccess
    deleter: ObjectDeleter = field(init=False)

    def open(self, rate_limiter: RateLimiter) -> Self:
        """See `Action`."""
        opened = replace(self)
        opened.deleter = ObjectDeleter(self.access, rate_limiter, conditional=False)
        return opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`."""
        to_delete = partial(_versions, self.access, with_current=False)
        return _purged(self.deleter, objects["address"].to_pylist(), to_delete, _OF_VERSIONS, before_deadline)


def remove_manifests(purge: Purge) -> int:
    """Delete the manifests of a plan, if no copy of the plan is left. Return how many manifests could not be deleted.

    Errors: AccessDenied or StoreError, when the remaining copies cannot be listed.
    """
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


def _purged(
    deleter: ObjectDeleter,
    paths: Sequence[str],
    targets_of: Callable[[Sequence[str]], Sequence[DeleteTarget]],
    detail: str,
    before_deadline: BeforeDeadline,
) -> list[ObjectResult]:
    """Delete the targets of these paths. A path is purged, with this `detail`, if all of its targets are gone."""
    try:
        to_delete = targets_of(paths)
    except StoreError as error:
        return [ObjectResult(Outcome.FAILED, str(error))] * len(paths)
    failed = _not_gone(to_delete, deleter.delete_all(to_delete, before_deadline))
    return [failed.get(path, ObjectResult(Outcome.PURGED, detail)) for path in paths]


def _versions(access: StoreAccess, paths: Sequence[str], *, with_current: bool = True) -> list[DeleteTarget]:
    """Return all versions of these paths, or only the noncurrent ones. Each directory is listed once.

    Errors: AccessDenied or StoreError.
    """
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(f"{path.rpartition('/')[0]}/", []).append(path)
    return [
        DeleteTarget(row["path"], version_id=row["version_id"])
        for directory, in_directory in sorted(by_directory.items())
        for wanted in [set(in_directory)]
        for page in all_versions(access, directory, (min(in_directory), max(in_directory)))
        for row in page.to_pylist()
        if row["path"] in wanted and (with_current or not row["is_current"])
    ]


def _not_gone(to_delete: Sequence[DeleteTarget], results: Sequence[ObjectResult]) -> dict[str, ObjectResult]:
    """Return, by path, the result of each object that may still exist."""
    pairs = zip(to_delete, results, strict=True)
    return {one.path: result for one, result in pairs if result.outcome not in (Outcome.DELETED, Outcome.MISSING)}


def _steps(objects: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each step. A step has enough objects to copy `_AT_ONCE` of them at the same time."""
    return chunks(objects["size"].to_pylist(), _STEP_OBJECTS, _STEP_BYTES, fewest=_AT_ONCE)


def _polled_rarely(before_deadline: BeforeDeadline) -> BeforeDeadline:
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


def _to_delete(objects: pa.Table) -> list[DeleteTarget]:
    return [DeleteTarget(address, e_tag) for address, e_tag in _rows(objects, "address", "etag")]


def _as_planned(result: ObjectResult) -> ObjectResult:
    """Return the store's result, with the ledger's detail if the object is another one than was planned."""
    return ObjectResult(Outcome.SKIPPED, _OTHER_OBJECT) if result.outcome is Outcome.SKIPPED else result
