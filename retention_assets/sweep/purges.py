"""The actions that delete for good what a sweep kept: copies in quarantine, their versions, and versions of objects.

See `Action` and `retention_assets.sweep.actions`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from socket import gethostname
from typing import ClassVar, Self

import pyarrow as pa

from retention_assets.errors import ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader
from retention_assets.objectstore.outcomes import NOT_REQUESTED, OF_COPY, DeleteTarget, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.objectstore.versions import all_versions
from retention_assets.state.quarantine import MANIFESTS, QuarantineLocation
from retention_assets.sweep.actions import (
    AT_ONCE,
    MOST_COPIED,
    StoredVersion,
    are_one_file,
    polled_rarely,
    steps,
)
from retention_assets.sweep.worker import BeforeDeadline

_OF_COPY_VERSIONS_UNKNOWN = f"{OF_COPY}; whether the store keeps versions of the copy is unknown"
_OF_VERSIONS = "its versions"
OTHER_BYTES = "the object at its path is missing or has other bytes: this copy may be the last"
_TOO_SLOW = ObjectResult(
    Outcome.FAILED,
    "sweep.window ended while the copy was compared with the object at its path: purge again, and if it fails again, "
    "raise sweep.window",
)
_DIFFERS = ObjectResult(Outcome.SKIPPED, OTHER_BYTES)
type TargetsOf = Callable[[Sequence[str]], Sequence[DeleteTarget]]  # returns what to delete for these paths


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

        Without this check, all copies in the folder would count as purged, because a missing copy does. A folder that
        is mounted has manifests until its last copy is purged.
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
        return self._purge(objects["address"].to_pylist(), self._to_delete, before_deadline)

    def _purge(
        self, addresses: Sequence[str], targets_of: TargetsOf, before_deadline: BeforeDeadline
    ) -> list[ObjectResult]:
        paths = [self.location.path(address) for address in addresses]
        detail = OF_COPY if self.keeps_versions is not None else _OF_COPY_VERSIONS_UNKNOWN
        return _purged(self.deleter, paths, targets_of, detail, before_deadline)

    def _to_delete(self, paths: Sequence[str]) -> list[DeleteTarget]:
        if not self.keeps_versions:
            return [DeleteTarget(path) for path in paths]
        return [one.target for one in _versions(self.location.access, paths)]


@dataclass(slots=True, repr=False, eq=False)
class PurgeCompared(Purge):
    """Deletes copies whose originals exist, in the store `originals`. A copy that differs from its original is skipped.

    If the store keeps versions, each version of a copy is compared, and only versions that were listed before are
    deleted. (Another tool can overwrite a version with the id `null` meanwhile. A sweep cannot: a purge holds the
    lease.)
    """

    chunk_bytes: ClassVar[int | None] = MOST_COPIED

    originals: StoreAccess = field(kw_only=True)
    has_finished: bool = field(default=False, init=False)  # whether this worker finished any copy since it was opened

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """See `Action`. The copies of each small step are compared and deleted before the next step begins.

        If the window ends before this worker has finished any copy, the compared copies are `failed`: the next pass
        would take as long.
        """
        results: list[ObjectResult] = []
        deadline_poll = polled_rarely(before_deadline)
        for start, length in steps(objects):
            results += self._step(objects["address"].slice(start, length).to_pylist(), deadline_poll, before_deadline)
        return results

    def _step(
        self, addresses: Sequence[str], deadline_poll: BeforeDeadline, before_deadline: BeforeDeadline
    ) -> list[ObjectResult]:
        if not deadline_poll():
            return [NOT_REQUESTED] * len(addresses)
        try:
            comparison = _Comparison.of(self, addresses)
        except StoreError as error:
            self.has_finished = True
            return [ObjectResult(Outcome.FAILED, str(error))] * len(addresses)
        staying = comparison.staying(addresses, deadline_poll)
        same = [address for address in addresses if address not in staying]
        purged = self._purge(same, comparison.targets, before_deadline)
        self.has_finished |= any(one.outcome is not Outcome.ATTEMPTED for one in [*staying.values(), *purged])
        if not self.has_finished:
            purged = [_TOO_SLOW] * len(same)
        results = {**staying, **dict(zip(same, purged, strict=True))}
        return [results[address] for address in addresses]


@dataclass(slots=True, repr=False, eq=False)
class _Comparison:
    """Compares the copies of one step with their originals.

    `versions`: the versions of the copies by path; None: the store keeps no versions.
    """

    location: QuarantineLocation
    originals: ObjectReader
    copies: ObjectReader
    versions: Mapping[str, Sequence[StoredVersion]] | None

    @classmethod
    def of(cls, purge: PurgeCompared, addresses: Sequence[str]) -> Self:
        """Return the comparison for these objects. If the store keeps versions, list them now. Errors: StoreError."""
        versions: dict[str, list[StoredVersion]] | None = None
        if purge.keeps_versions:
            versions = {}
            for one in _versions(purge.location.access, [purge.location.path(address) for address in addresses]):
                versions.setdefault(one.metadata.path, []).append(one)
        return cls(purge.location, ObjectReader(purge.originals), ObjectReader(purge.location.access), versions)

    def staying(self, addresses: Sequence[str], deadline_poll: BeforeDeadline) -> dict[str, ObjectResult]:
        """Return the result of each object whose copy stays. All other copies have the bytes of their originals.

        After all copies are compared, the originals are looked up again, because an original may have changed
        meanwhile.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            compared = list(pool.map(partial(self._compared, deadline_poll), addresses))
            confirmed = pool.map(self._confirmed, addresses, compared)
            return {address: one for address, one in zip(addresses, confirmed, strict=True) if one is not None}

    def targets(self, paths: Sequence[str]) -> list[DeleteTarget]:
        """Return the copies at these paths, with all versions that were listed before the comparison."""
        if self.versions is None:
            return [DeleteTarget(path) for path in paths]
        return [one.target for path in paths for one in self.versions.get(path, ())]

    def _compared(self, deadline_poll: BeforeDeadline, address: str) -> ObjectResult | ObjectMetadata:
        """Return the result of a copy that stays, or the metadata of the original, which has the bytes of the copy."""
        if not deadline_poll():
            return NOT_REQUESTED
        path = self.location.path(address)
        if are_one_file(self.originals.describe(address), self.copies.describe(path)):
            return _DIFFERS
        digest = cache(partial(self.originals.digest, address))
        try:
            original = self.originals.head(address)
            is_same = all(copy.has_bytes_of(original, self.copies, digest) for copy in self._stored(path))
        except ObjectMissing:
            return _DIFFERS
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        return original if is_same else _DIFFERS

    def _stored(self, path: str) -> list[StoredVersion]:
        """Return the copy at this path, with its versions and without delete markers; empty if there is none."""
        if self.versions is None:
            with suppress(ObjectMissing):
                return [StoredVersion(self.copies.head(path))]
            return []
        return [one for one in self.versions.get(path, ()) if not one.is_delete_marker]

    def _confirmed(self, address: str, compared: ObjectResult | ObjectMetadata) -> ObjectResult | None:
        """Return the result of a copy that stays; None: its original has not changed since the comparison."""
        if isinstance(compared, ObjectResult):
            return compared
        try:
            is_unchanged = self.originals.head(address) == compared
        except ObjectMissing:
            return _DIFFERS
        except StoreError as error:
            return ObjectResult(Outcome.FAILED, str(error))
        return None if is_unchanged else NOT_REQUESTED


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

        def noncurrent(paths: Sequence[str]) -> list[DeleteTarget]:
            return [one.target for one in _versions(self.access, paths) if not one.is_current]

        return _purged(self.deleter, objects["address"].to_pylist(), noncurrent, _OF_VERSIONS, before_deadline)


def remove_manifests(purge: Purge, holds_lease: BeforeDeadline) -> int:
    """Delete the manifests of a plan, if no copy of the plan is left. Return how many manifests could not be deleted.

    `holds_lease`: whether this purge still holds the lease. Once it returns False, nothing more is deleted. The
    manifests are listed before the copies. Otherwise, manifests that another run writes between the two listings would
    be deleted, and its copies would stay.

    Errors: AccessDenied or StoreError, when the manifests or the remaining copies cannot be listed.
    """
    access, folder = purge.location.access, f"{purge.location.folder}/{MANIFESTS}"
    if purge.keeps_versions:
        rows = [row for page in all_versions(access, folder) for row in page.to_pylist()]
        to_delete = [DeleteTarget(row["path"], version_id=row["version_id"]) for row in rows]
        has_copies = next(all_versions(access, purge.location.path("")), None) is not None
    else:
        reader = ObjectReader(access)
        to_delete = [DeleteTarget(path) for page in reader.list(folder) for path in page["path"].to_pylist()]
        has_copies = reader.holds_objects(purge.location.path(""))
    if has_copies:
        return 0
    return len(_not_gone(to_delete, ObjectDeleter(access, conditional=False).delete_all(to_delete, holds_lease)))


def _purged(
    deleter: ObjectDeleter,
    paths: Sequence[str],
    targets_of: TargetsOf,
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


def _versions(access: StoreAccess, paths: Sequence[str]) -> Iterator[StoredVersion]:
    """Yield all versions of these paths. Each directory is listed once. Errors: AccessDenied or StoreError."""
    by_directory: dict[str, list[str]] = {}
    for path in paths:
        by_directory.setdefault(f"{path.rpartition('/')[0]}/", []).append(path)
    for directory, in_directory in sorted(by_directory.items()):
        wanted = set(in_directory)
        for page in all_versions(access, directory, (min(in_directory), max(in_directory))):
            for row in page.to_pylist():
                if row["path"] in wanted:
                    metadata = ObjectMetadata(row["path"], row["size"], row["last_modified"], row["e_tag"])
                    yield StoredVersion(metadata, row["version_id"], row["is_delete_marker"], row["is_current"])


def _not_gone(to_delete: Sequence[DeleteTarget], results: Sequence[ObjectResult]) -> dict[str, ObjectResult]:
    """Return, by path, the result of each object that may still exist."""
    pairs = zip(to_delete, results, strict=True)
    return {one.path: result for one, result in pairs if result.outcome not in (Outcome.DELETED, Outcome.MISSING)}
