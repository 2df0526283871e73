"""What is done to objects: each deed works on one group on an executor, and says what became of every object.

A deed can be done again after a crash at any point: what it finds half done, it ends. Source: DESIGN.md, invariant 8.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.copying import Copied, Copy, ObjectCopier
from retention_assets.stores.copying import Outcome as CopyOutcome
from retention_assets.stores.deletion import ObjectDeleter
from retention_assets.stores.objects import ObjectReader
from retention_assets.stores.outcomes import Deletion, Doomed, Outcome
from retention_assets.stores.pace import Pace
from retention_assets.stores.versions import noncurrent_versions
from retention_assets.sweep.ledger import ATTEMPTED, DELETED, FAILED, MISSING, PURGED, QUARANTINED, RESTORED, SKIPPED
from retention_assets.sweep.quarantine import QuarantinePlace
from retention_assets.sweep.work import Ended, InTime

OF_COPY = "its copy in quarantine"  # what was purged; a bucket may keep versions of it where it was
_OF_VERSIONS = "its versions"
_AT_ONCE = 10  # objects brought back at once by one worker
_OTHER = "is another object than was planned"
_OUTCOMES = {
    Outcome.DELETED: DELETED,
    Outcome.MISSING: MISSING,
    Outcome.FAILED: FAILED,
    Outcome.CHANGED: SKIPPED,
    Outcome.LATE: ATTEMPTED,
}
_DELETED = Ended(DELETED)
_LATE = (
    "copied, not deleted: by then the look at what is live was older than sweep.window, or the lease was lost. "
    "The next sweep goes on"
)
_MOST_COPIED = 10 * 1024**3  # bytes of a group: about 90 s at 1 Gbit/s, well within a window


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes objects, where the store can do so on the condition that they are the planned ones."""

    group_bytes: ClassVar[int | None] = None

    access: StoreAccess

    def open(self, pace: Pace) -> "Deleting":
        """See `Deed`."""
        return Deleting(ObjectDeleter(self.access, pace))


@dataclass(frozen=True, slots=True)
class Deleting:
    """See `Delete`."""

    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """See `Doer`."""
        return [_of_deletion(done) for done in self.deleter.delete_all(_doomed(objects), in_time)]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Moves objects: a manifest, a copy, a look at the copy, and only then the deletion."""

    group_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    place: QuarantinePlace

    def open(self, pace: Pace) -> "Quarantining":
        """See `Deed`."""
        self.place.prepare()
        return Quarantining(
            self.place,
            ObjectCopier(self.access, self.place.access),
            ObjectDeleter(self.access, pace),
            ObjectReader(self.place.access),
        )


@dataclass(frozen=True, slots=True)
class Quarantining:
    """See `Quarantine`."""

    place: QuarantinePlace
    copier: ObjectCopier
    deleter: ObjectDeleter
    copies: ObjectReader

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """See `Doer`."""
        try:
            self.place.note(objects, name)
        except StoreError as error:
            return [Ended(FAILED, f"no manifest could be written: {error}")] * objects.num_rows
        ended = dict(zip(objects["address"].to_pylist(), self._copied(objects), strict=True))
        copied = [one for one in _doomed(objects) if ended[one.path] is None]
        if copied and not in_time():
            return [one or Ended(FAILED, _LATE) for one in ended.values()]
        for done in self.deleter.delete_all(copied, in_time):
            ended[done.path] = self._moved(done)
        return [one for one in ended.values() if one is not None]

    def _copied(self, objects: pa.Table) -> list[Ended | None]:
        """Return how it ended for what was not copied, None for what was."""
        wanted = [
            Copy(address, self.place.path(address), size, e_tag)
            for address, size, e_tag in _rows(objects, "address", "size", "etag")
        ]
        return [self._fate(copy, done) for copy, done in zip(wanted, self.copier.copy_all(wanted), strict=True)]

    def _fate(self, copy: Copy, done: Copied) -> Ended | None:
        if done.outcome is CopyOutcome.COPIED:
            return None
        if done.outcome is CopyOutcome.CHANGED:
            return Ended(SKIPPED, _OTHER)
        if done.outcome is not CopyOutcome.MISSING:
            return Ended(FAILED, done.detail)
        try:  # gone: by an attempt that was cut off after the move, or before we came
            moved = _size_at(self.copies, copy.to) == copy.size
        except StoreError as error:
            return Ended(FAILED, str(error))
        return Ended(QUARANTINED, self.copies.describe(copy.to)) if moved else Ended(MISSING, "was gone before")

    def _moved(self, done: Deletion) -> Ended:
        if done.outcome is Outcome.LATE:
            return Ended(FAILED, _LATE)
        if done.outcome in (Outcome.DELETED, Outcome.MISSING):
            return Ended(QUARANTINED, self.place.describe(done.path))
        return replace(_of_deletion(done), detail=f"copied, not deleted: {done.detail}")


@dataclass(frozen=True, slots=True)
class Restore:
    """Brings objects back from quarantine, where nothing else took their place."""

    group_bytes: ClassVar[int | None] = _MOST_COPIED

    access: StoreAccess
    place: QuarantinePlace

    def open(self, pace: Pace) -> "Restoring":
        """See `Deed`."""
        return Restoring(
            self.place,
            ObjectReader(self.access),
            ObjectReader(self.place.access),
            ObjectCopier(self.place.access, self.access),
            ObjectDeleter(self.place.access, pace),
        )


@dataclass(frozen=True, slots=True)
class Restoring:
    """See `Restore`."""

    place: QuarantinePlace
    reader: ObjectReader
    copies: ObjectReader
    copier: ObjectCopier
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """See `Doer`."""
        rows = _rows(objects, "address", "size")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            ended = dict(zip((address for address, _ in rows), pool.map(self._back, rows), strict=True))
        back = [address for address, one in ended.items() if one.outcome == RESTORED]
        done = self.deleter.delete_all([Doomed(self.place.path(address)) for address in back], in_time)
        for address, copy in zip(back, done, strict=True):
            if copy.outcome is Outcome.LATE:
                ended[address] = Ended(ATTEMPTED)  # the next pass finds it back, and removes the copy
            elif copy.outcome is Outcome.FAILED:
                ended[address] = Ended(RESTORED, f"its copy in quarantine stays: {copy.detail}")
        return list(ended.values())

    def _back(self, row: tuple[str, int]) -> Ended:
        address, size = row
        try:
            there = _size_at(self.reader, address)
            if there is not None:
                is_back = there == size and self._is_the_copy(address)
                return Ended(RESTORED) if is_back else Ended(SKIPPED, "another object took its place")
            (done,) = self.copier.copy_all([Copy(self.place.path(address), address, size, None)])
        except StoreError as error:
            return Ended(FAILED, str(error))
        if done.outcome is CopyOutcome.COPIED:
            return Ended(RESTORED)
        return Ended(FAILED, done.detail or "it is not in quarantine any more")

    def _is_the_copy(self, address: str) -> bool:
        """Return whether what lies at the address has the copy's bytes. An attempt cut off late left no copy."""
        try:
            copy = self.copies.digest(self.place.path(address))
        except ObjectMissing:
            return True
        return self.reader.digest(address) == copy


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes copies from quarantine."""

    group_bytes: ClassVar[int | None] = None

    place: QuarantinePlace

    def open(self, pace: Pace) -> "Purging":
        """See `Deed`."""
        return Purging(self.place, ObjectDeleter(self.place.access, pace))


@dataclass(frozen=True, slots=True)
class Purging:
    """See `Purge`."""

    place: QuarantinePlace
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """See `Doer`. A copy that is gone is as good as purged."""
        copies = [Doomed(self.place.path(address)) for address in objects["address"].to_pylist()]
        return [_of_copy(done) for done in self.deleter.delete_all(copies, in_time)]


@dataclass(frozen=True, slots=True)
class RemoveVersions:
    """Removes what a versioned bucket keeps of objects that are deleted; their delete markers stay."""

    group_bytes: ClassVar[int | None] = None

    access: StoreAccess

    def open(self, pace: Pace) -> "RemovingVersions":
        """See `Deed`."""
        return RemovingVersions(self.access, ObjectDeleter(self.access, pace, conditional=False))


@dataclass(frozen=True, slots=True)
class RemovingVersions:
    """See `RemoveVersions`."""

    access: StoreAccess
    deleter: ObjectDeleter

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """See `Doer`. The versions of a directory are listed once for all of the group's objects in it."""
        wanted = objects["address"].to_pylist()
        named = set(wanted)
        try:
            doomed = [
                Doomed(path, version_id=version)
                for place in sorted({f"{address.rpartition('/')[0]}/" for address in wanted})
                for page in noncurrent_versions(self.access, place)
                for path, version in zip(page["path"].to_pylist(), page["version_id"].to_pylist(), strict=True)
                if path in named
            ]
        except StoreError as error:
            return [Ended(FAILED, str(error))] * len(wanted)
        done = self.deleter.delete_all(doomed, in_time)
        failed = {one.path: _of_copy(one) for one in done if one.outcome in (Outcome.FAILED, Outcome.LATE)}
        return [failed.get(address, Ended(PURGED, _OF_VERSIONS)) for address in wanted]


def _rows(objects: pa.Table, *columns: str) -> list[tuple]:
    return list(zip(*(objects[column].to_pylist() for column in columns), strict=True))


def _doomed(objects: pa.Table) -> list[Doomed]:
    return [Doomed(address, e_tag) for address, e_tag in _rows(objects, "address", "etag")]


def _of_deletion(done: Deletion) -> Ended:
    if done.outcome is Outcome.DELETED and done.detail is None:
        return _DELETED  # nearly all: they share one
    return Ended(_OUTCOMES[done.outcome], _OTHER if done.outcome is Outcome.CHANGED else done.detail)


def _of_copy(done: Deletion) -> Ended:
    if done.outcome is Outcome.LATE:
        return Ended(ATTEMPTED)
    return Ended(FAILED, done.detail) if done.outcome is Outcome.FAILED else Ended(PURGED, OF_COPY)


def _size_at(reader: ObjectReader, path: str) -> int | None:
    """Return the object's size, None when nothing is there. Errors: StoreError when that is not known."""
    try:
        return reader.head(path).size
    except ObjectMissing:
        return None
