"""What is done to objects: each action works on one group on an executor, and says what became of every object.

A action can be done again after a crash at any point: what it finds half done, it ends. Source: DESIGN.md, invariant 8.
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
from retention_assets.objectstore.mutate.copying import SIZE, Copied, Copy, ObjectCopier, VerifiedCopy
from retention_assets.objectstore.mutate.copying import Outcome as CopyOutcome
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import DeleteTarget, Deletion, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.objectstore.versions import all_versions, noncurrent_versions
from retention_assets.state.ledger import ATTEMPTED, DELETED, FAILED, MISSING, PURGED, QUARANTINED, RESTORED, SKIPPED
from retention_assets.state.quarantine import MANIFESTS, QuarantinePlace
from retention_assets.sweep.worker import BeforeDeadline, ObjectResult

OF_COPY = "its copy in quarantine"  # what was purged; a bucket may keep versions of it where it was
_OF_COPY_ALONE = f"{OF_COPY}; whether the store keeps versions of the copy is unknown"
_OF_VERSIONS = "its versions"
_AT_ONCE = 10  # objects copied, or brought back, at once by one worker
_OTHER = "is another object than was planned"
_OUTCOMES = {
    Outcome.DELETED: DELETED,
    Outcome.MISSING: MISSING,
    Outcome.FAILED: FAILED,
    Outcome.CHANGED: SKIPPED,
    Outcome.LATE: ATTEMPTED,
}
_DELETED = ObjectResult(DELETED)
_LEFT = ObjectResult(ATTEMPTED)  # the next pass checks its liveness again, and goes on with it
_MOST_COPIED = 10 * 1024**3  # bytes of a group: about 90 s at 1 Gbit/s, well within a window
_EVERY = 2.0  # seconds between two questions whether the time is over: the answer may cost a request
_STEP_OBJECTS, _STEP_BYTES = 1_000, 1024**3  # copied before their originals are deleted: one request in bulk


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes objects, where the store can do so on the condition that they are the planned ones."""

    group_bytes: ClassVar[int | None] = None

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
        return [_of_deletion(done) for done in self.deleter.delete_all(_to_delete(objects), before_deadline)]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Moves objects: a manifest, a copy, a look at the copy, and only then the deletion."""

    group_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    place: QuarantinePlace

    def open(self, rate_limiter: RateLimiter) -> "Quarantining":
        """See `Action`."""
        self.place.prepare()
        return Quarantining(
            self.place,
            ObjectCopier(self.access, self.place.access),
            ObjectDeleter(self.access, rate_limiter),
            ObjectReader(self.place.access),
            cache(partial(_noted_copies, self.place)),
        )


@dataclass(frozen=True, slots=True)
class Quarantining:
    """See `Quarantine`."""

    place: QuarantinePlace
    copier: ObjectCopier
    deleter: ObjectDeleter
    copies: ObjectReader
    earlier: Callable[[], Mapping[str, VerifiedCopy]]  # copies that earlier attempts verified

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`. A few objects at a time: what is copied in time is moved, however long the rest takes."""
        try:
            self.place.note(objects, name)
        except StoreError as error:
            return [ObjectResult(FAILED, f"no manifest could be written: {error}")] * objects.num_rows
        ended: list[ObjectResult] = []
        goes_on = _asked_rarely(before_deadline)
        for start, length in _steps(objects["size"].to_pylist()):
            step = objects.slice(start, length)
            copies = self._copied(step, goes_on)
            moved = self._moved(step, copies, before_deadline)
            self._note(step, copies, moved, f"{name}-{start:07d}")
            ended += moved
        return ended

    def _copied(self, objects: pa.Table, goes_on: BeforeDeadline) -> Sequence[Copied]:
        wanted = [
            Copy(address, self.place.path(address), size, e_tag)
            for address, size, e_tag in _rows(objects, "address", "size", "etag")
        ]
        return self.copier.copy_all(wanted, goes_on, self.earlier)

    def _moved(
        self, objects: pa.Table, copies: Sequence[Copied], before_deadline: BeforeDeadline
    ) -> list[ObjectResult]:
        """Delete the originals of what was copied, and return how it ended for each object."""
        sizes = objects["size"].to_pylist()
        ended = {copy.path: self._result_of_copy(copy, size) for copy, size in zip(copies, sizes, strict=True)}
        copied = [one for one in _to_delete(objects) if ended[one.path] is None]
        if copied and before_deadline():
            for done in self.deleter.delete_all(copied, before_deadline):
                ended[done.path] = self._gone(done)
        return [one or _LEFT for one in ended.values()]

    def _note(self, objects: pa.Table, copies: Sequence[Copied], ended: Sequence[ObjectResult], name: str) -> None:
        """Note the copies whose originals stay, where no ETag of the copy would show that it was made."""
        verified = {
            copy.path: VerifiedCopy(size, copy.e_tag, copy.copy_e_tag)
            for copy, size, one in zip(copies, objects["size"].to_pylist(), ended, strict=True)
            if one.outcome in (ATTEMPTED, FAILED) and copy.verified_by == SIZE and copy.e_tag and copy.copy_e_tag
        }
        if verified:
            with suppress(StoreError):  # then they are copied once more
                self.place.note_copies(verified, name)

    def _result_of_copy(self, done: Copied, size: int) -> ObjectResult | None:
        """Return how it ended for what was not copied, None for what was."""
        if done.outcome is CopyOutcome.COPIED:
            return None
        if done.outcome is CopyOutcome.LATE:
            return _LEFT
        if done.outcome is CopyOutcome.CHANGED:
            return ObjectResult(SKIPPED, _OTHER)
        if done.outcome is not CopyOutcome.MISSING:
            return ObjectResult(FAILED, done.detail)
        try:  # gone: by an attempt that was cut off after the move, or before we came
            moved = _size_at(self.copies, done.to) == size
        except StoreError as error:
            return ObjectResult(FAILED, str(error))
        return (
            ObjectResult(QUARANTINED, self.copies.describe(done.to))
            if moved
            else ObjectResult(MISSING, "was gone before")
        )

    def _gone(self, done: Deletion) -> ObjectResult:
        if done.outcome is Outcome.LATE:
            return _LEFT
        if done.outcome in (Outcome.DELETED, Outcome.MISSING):
            return ObjectResult(QUARANTINED, self.place.describe(done.path))
        return replace(_of_deletion(done), detail=f"copied, not deleted: {done.detail}")


@dataclass(frozen=True, slots=True)
class Restore:
    """Brings objects back from quarantine, where nothing else took their place."""

    group_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    place: QuarantinePlace

    def open(self, rate_limiter: RateLimiter) -> "Restoring":
        """See `Action`."""
        return Restoring(
            self.place,
            ObjectReader(self.access),
            ObjectReader(self.place.access),
            ObjectCopier(self.place.access, self.access),
            ObjectDeleter(self.place.access, rate_limiter),
        )


@dataclass(frozen=True, slots=True)
class Restoring:
    """See `Restore`."""

    place: QuarantinePlace
    reader: ObjectReader
    copies: ObjectReader
    copier: ObjectCopier
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`."""
        rows = _rows(objects, "address", "size")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            ended = dict(zip((address for address, _ in rows), pool.map(self._back, rows), strict=True))
        back = [address for address, one in ended.items() if one.outcome == RESTORED]
        done = self.deleter.delete_all([DeleteTarget(self.place.path(address)) for address in back], before_deadline)
        for address, copy in zip(back, done, strict=True):
            if copy.outcome is Outcome.LATE:
                ended[address] = ObjectResult(ATTEMPTED)  # the next pass finds it back, and removes the copy
            elif copy.outcome is Outcome.FAILED:
                ended[address] = ObjectResult(RESTORED, f"its copy in quarantine stays: {copy.detail}")
        return list(ended.values())

    def _back(self, row: tuple[str, int]) -> ObjectResult:
        address, size = row
        try:
            there = _size_at(self.reader, address)
            if there is not None:
                is_back = there == size and self._is_the_copy(address)
                return ObjectResult(RESTORED) if is_back else ObjectResult(SKIPPED, "another object took its place")
            (done,) = self.copier.copy_all([Copy(self.place.path(address), address, size, None)])
        except StoreError as error:
            return ObjectResult(FAILED, str(error))
        if done.outcome is CopyOutcome.COPIED:
            return ObjectResult(RESTORED)
        return ObjectResult(FAILED, done.detail or "it is not in quarantine any more")

    def _is_the_copy(self, address: str) -> bool:
        """Return whether what lies at the address has the copy's bytes. An attempt cut off late left no copy."""
        try:
            copy = self.copies.digest(self.place.path(address))
        except ObjectMissing:
            return True
        return self.reader.digest(address) == copy


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes copies from quarantine, with all versions of them.

    `keeps_versions`: whether the store keeps versions of what is deleted; None: unknown, and the ledger says so.
    """

    group_bytes: ClassVar[int | None] = None

    place: QuarantinePlace
    keeps_versions: bool | None = False

    def open(self, rate_limiter: RateLimiter) -> "Purging":
        """See `Action`."""
        self.place.prepare()
        return Purging(self, ObjectDeleter(self.place.access, rate_limiter, conditional=False))


@dataclass(frozen=True, slots=True)
class Purging:
    """See `Purge`."""

    action: Purge
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `OpenAction`. A copy that is gone is as good as purged."""
        addresses = objects["address"].to_pylist()
        told = ObjectResult(PURGED, OF_COPY if self.action.keeps_versions is not None else _OF_COPY_ALONE)
        try:
            to_delete = self._to_delete([self.action.place.path(address) for address in addresses])
        except StoreError as error:
            return [ObjectResult(FAILED, str(error))] * len(addresses)
        failed = _not_gone(self.deleter.delete_all(to_delete, before_deadline))
        return [failed.get(self.action.place.path(address), told) for address in addresses]

    def _to_delete(self, paths: Sequence[str]) -> list[DeleteTarget]:
        if not self.action.keeps_versions:
            return [DeleteTarget(path) for path in paths]
        return _versions(paths, lambda place, between: all_versions(self.action.place.access, place, between))


def remove_manifests(purge: Purge) -> int:
    """Delete the manifests of a plan of which no copy is left. Return how many could not be deleted.

    Errors: AccessDenied or StoreError, when it cannot be known what is left.
    """
    purge.place.prepare()
    access, folder = purge.place.access, f"{purge.place.folder}/{MANIFESTS}"
    if purge.keeps_versions:
        if next(all_versions(access, purge.place.path("")), None):
            return 0
        rows = [row for page in all_versions(access, folder) for row in page.to_pylist()]
        to_delete = [DeleteTarget(row["path"], version_id=row["version_id"]) for row in rows]
    else:
        reader = ObjectReader(access)
        if reader.holds_objects(purge.place.path("")):
            return 0
        to_delete = [DeleteTarget(path) for page in reader.list(folder) for path in page["path"].to_pylist()]
    return len(_not_gone(ObjectDeleter(access, conditional=False).delete_all(to_delete)))


@dataclass(frozen=True, slots=True)
class RemoveVersions:
    """Removes what a versioned bucket keeps of objects that are deleted; their delete markers stay."""

    group_bytes: ClassVar[int | None] = None

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
        """See `OpenAction`. The versions of a directory are listed once for all of the group's objects in it."""
        wanted = objects["address"].to_pylist()
        try:
            to_delete = _versions(wanted, lambda place, _: noncurrent_versions(self.access, place))
        except StoreError as error:
            return [ObjectResult(FAILED, str(error))] * len(wanted)
        failed = _not_gone(self.deleter.delete_all(to_delete, before_deadline))
        return [failed.get(address, ObjectResult(PURGED, _OF_VERSIONS)) for address in wanted]


def _versions(
    paths: Sequence[str], listed: Callable[[str, tuple[str, str]], Iterator[pa.RecordBatch]]
) -> list[DeleteTarget]:
    """Return the versions of these paths. Each of their directories is listed once."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(f"{path.rpartition('/')[0]}/", []).append(path)
    return [
        DeleteTarget(path, version_id=version)
        for directory, named in sorted(by_directory.items())
        for wanted in [set(named)]
        for page in listed(directory, (min(named), max(named)))
        for path, version in zip(page["path"].to_pylist(), page["version_id"].to_pylist(), strict=True)
        if path in wanted
    ]


def _not_gone(done: Sequence[Deletion]) -> dict[str, ObjectResult]:
    """Return by path what is not certainly gone, and why."""
    return {
        one.path: _LEFT if one.outcome is Outcome.LATE else ObjectResult(FAILED, one.detail)
        for one in done
        if one.outcome in (Outcome.FAILED, Outcome.LATE)
    }


def _asked_rarely(before_deadline: BeforeDeadline) -> BeforeDeadline:
    """Return `in_time` for callers that ask it often: it is asked every few seconds, and not again after its no."""
    asked_at, answer = -inf, True

    def goes_on() -> bool:
        nonlocal asked_at, answer
        if answer and monotonic() - asked_at > _EVERY:
            asked_at, answer = monotonic(), before_deadline()
        return answer

    return goes_on


def _noted_copies(place: QuarantinePlace) -> Mapping[str, VerifiedCopy]:
    try:
        return place.noted_copies()
    except StoreError:
        return {}  # then they are copied once more


def _steps(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each step of a group starts, and how many objects it has: enough to copy `_AT_ONCE` at once."""
    start = total = 0
    for place, size in enumerate(sizes):
        objects = place - start
        if objects == _STEP_OBJECTS or (objects >= _AT_ONCE and total + size > _STEP_BYTES):
            yield start, objects
            start, total = place, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes) - start


def _rows(objects: pa.Table, *columns: str) -> list[tuple]:
    return list(zip(*(objects[column].to_pylist() for column in columns), strict=True))


def _to_delete(objects: pa.Table) -> list[DeleteTarget]:
    return [DeleteTarget(address, e_tag) for address, e_tag in _rows(objects, "address", "etag")]


def _of_deletion(done: Deletion) -> ObjectResult:
    if done.outcome is Outcome.DELETED and done.detail is None:
        return _DELETED  # nearly all: they share one
    return ObjectResult(_OUTCOMES[done.outcome], _OTHER if done.outcome is Outcome.CHANGED else done.detail)


def _size_at(reader: ObjectReader, path: str) -> int | None:
    """Return the object's size, None when nothing is there. Errors: StoreError when that is not known."""
    try:
        return reader.head(path).size
    except ObjectMissing:
        return None
