"""Checks planned objects against the store just before the action: missing or changed objects are not processed.

Some objects must stay, but an interrupted attempt may have deleted or moved them. They are skipped here, and not at the
liveness check: if one of them is gone, the ledger must record this. The action never gets such an object.

Source: docs/safety.md, "Before and during a sweep".
"""

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, groupby
from socket import gethostname

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import RetentionError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import LISTING, ObjectReader
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.state.quarantine import QuarantineLocation

GONE = "was already gone"
CHANGED = "changed since it was planned"
_MAY_BE_AT = (
    "may have been moved to {url} by an interrupted sweep: {problem}. Make this location available again: mount it, "
    "give access, or set quarantine.url and storage_options back. Then sweep again"
)
_AT_ONCE = 16  # concurrent requests
# The names in the plan and in the listing.
_COMPARED_COLUMNS = (("size", "size"), ("last_modified", "last_modified"), ("etag", "e_tag"))


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The precondition check of objects in a store; pickled to executors.

    With `keeps_missing`, missing objects without a detail are passed on to the action, which looks for them in
    quarantine.
    """

    access: StoreAccess
    keeps_missing: bool = False

    def open(self) -> ObjectReader:
        """Return an open client for `classified`."""
        return ObjectReader(self.access)

    def classified(self, objects: pa.Table, reader: ObjectReader) -> pa.Table:
        """Return rows of `OBJECTS`, each address once, with an outcome for missing and for changed objects.

        Errors: AccessDenied or StoreError, also if the directory of a local store is empty on this machine. Objects
        that cannot be checked are not processed.
        """
        addresses = sorted(objects["address"].to_pylist())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            if self.access.lists_from_any_name:
                directories = (list(of_one) for _, of_one in groupby(addresses, key=_directory))
                found = list(chain.from_iterable(pool.map(partial(_listed, reader), directories)))
            else:
                heads = pool.map(partial(self._head, reader), addresses)
                found = [pa.RecordBatch.from_pylist([row for row in heads if row], LISTING)]
        listed = pa.Table.from_batches(found, LISTING)
        if self.access.is_local and objects.num_rows and not listed.num_rows:
            require_mounted(self.access.url, "deleted")
        return self._with_earlier_moves(compared(objects, listed, keeps_missing=self.keeps_missing))

    def _with_earlier_moves(self, objects: pa.Table) -> pa.Table:
        """Return `objects` with the results of the missing objects that an interrupted attempt may have moved."""
        is_missing = pc.fill_null(pc.equal(objects["outcome"], Outcome.MISSING), False)
        is_open = pc.and_(is_missing, pc.is_valid(objects["earlier_targets"])).combine_chunks()
        rows = objects.filter(is_open)
        if not rows.num_rows:
            return objects
        columns = [rows[name].to_pylist() for name in ("address", "size", "earlier_targets")]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            results = list(pool.map(InterruptedMoves(self.access.options).result, *columns))
        for name in ("outcome", "detail"):
            found = pa.array([getattr(one, name) for one in results], pa.string())
            column = pc.replace_with_mask(objects[name].combine_chunks(), is_open, found)
            objects = objects.set_column(objects.schema.get_field_index(name), name, column)
        return objects

    def _head(self, reader: ObjectReader, address: str) -> dict[str, object] | None:
        metadata = reader.find(address)
        if metadata is None:
            return None
        e_tag = None if self.access.is_local else metadata.e_tag  # a local ETag identifies the file, not its content
        return {"path": address, "last_modified": metadata.last_modified, "size": metadata.size, "e_tag": e_tag}


def require_mounted(url: str, undone: str) -> None:
    """Raise StoreError if the local directory of a repository is empty or cannot be listed on this machine.

    Every repository has files that no plan deletes. So the directory is empty only where it is not mounted: its objects
    are not missing, and a restored object would be written below the mount. `undone`: completes "Nothing was ...".
    """
    try:
        with os.scandir(url.removeprefix("file://")) as entries:
            problem = "" if next(entries, None) else "is empty"
    except OSError as error:
        problem = f"cannot be listed ({error.strerror})"
    if problem:
        raise StoreError(
            f"{url}: the directory {problem} on the machine {gethostname()}, and a repository always has files. "
            f"Nothing was {undone}. Mount the directory on every machine that runs a worker of Spark. If it is "
            "mounted and has lost all its files, write a file into it: a sweep then records all objects as missing. "
            "Then run the same command again."
        )


def _directory(address: str) -> str:
    return address[: address.rfind("/") + 1]


def _listed(reader: ObjectReader, addresses: Sequence[str]) -> Sequence[pa.RecordBatch]:
    """Return what the store lists from the first to the last of these addresses, which are of one directory."""
    if not (directory := _directory(addresses[0])):
        return list(reader.list_direct(""))
    # A listing begins after a name. The first path without its last character comes before the first path.
    return list(reader.list_between(directory, addresses[0][:-1], addresses[-1]))


def compared(objects: pa.Table, listed: pa.Table, *, keeps_missing: bool) -> pa.Table:
    """Return `objects` with an outcome for those that are missing from `listed`, differ from it, or have a detail.

    An object with a detail is skipped if it is in `listed`, and else missing. With `keeps_missing`, other objects that
    are missing have no outcome. `objects` has rows of `OBJECTS`, `listed` has rows of `LISTING`. A size, modification
    time or ETag that is null on one side is not compared. A planned ETag that is null becomes the listed one, so that
    the action does not delete an object that is written after this check. If a store lists an object twice with
    different values, the object counts as changed.
    """
    number = pc.index_in(listed["path"], value_set=objects["address"].combine_chunks())
    rows = listed.filter(pc.is_valid(number))
    of = pc.drop_null(number).to_numpy()
    planned = objects.take(pa.array(of, pa.int64()))
    there, changed = np.zeros((2, objects.num_rows), bool)
    there[of] = True
    for name, listed_as in _COMPARED_COLUMNS:
        differ = pc.fill_null(pc.not_equal(planned[name], rows[listed_as]), False)
        changed[of[differ.to_numpy()]] = True
    must_stay = pc.is_valid(objects["detail"]).to_numpy()
    excluded = there & must_stay
    stays = changed | must_stay | ~(there | keeps_missing)
    known = {name: objects[name] for name in objects.column_names}
    known["outcome"] = pa.array(np.where(there, Outcome.SKIPPED, Outcome.MISSING), pa.string(), mask=~stays)
    detail = pa.array(np.where(changed, CHANGED, GONE), pa.string(), mask=~stays)
    known["detail"] = pc.if_else(pa.array(excluded), objects["detail"], detail)
    if objects["etag"].null_count:
        listed_at = pc.index_in(objects["address"], value_set=listed["path"].combine_chunks())
        known["etag"] = pc.coalesce(objects["etag"], listed["e_tag"].take(listed_at))
    return pa.table(known)


class InterruptedMoves:
    """Finds objects that an interrupted attempt may have moved to quarantine without recording it.

    `earlier_targets` of an object are the URLs of the quarantine folders in the `attempted` rows of all sweeps of the
    plan. These folders may be in another quarantine than the current one.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options`: the options of the repository's store, which its quarantine has too."""
        self._folder = cache(partial(_opened, options))

    def result(self, address: str, size: int, earlier_targets: Collection[str]) -> ObjectResult:
        """Return the result of an object that is missing from the repository.

        The object is `quarantined` if a folder has its copy. The object is `missing` only if each folder has a manifest
        and no copy: the manifest shows that the attempt used this quarantine. Otherwise the object is `failed`.
        """
        result = ObjectResult(Outcome.MISSING, GONE)
        for url in earlier_targets:
            opened = self._folder(url)
            try:
                if isinstance(opened, RetentionError):
                    raise opened
                location, copies, has_manifest = opened
                if size_at(copies, location.path(address)) == size:
                    return ObjectResult(Outcome.QUARANTINED, location.describe(address))
                problem = "" if has_manifest else "this plan has no files there"
            except RetentionError as error:
                problem = str(error)
            if problem:
                result = ObjectResult(Outcome.FAILED, _MAY_BE_AT.format(url=url, problem=problem))
        return result


def _opened(options: Mapping[str, str], url: str) -> tuple[QuarantineLocation, ObjectReader, bool] | RetentionError:
    """Return the folder at `url`, a reader, and whether it has a manifest; or the error, which is cached, too."""
    try:
        location = QuarantineLocation.at(url, options)
        return location, ObjectReader(location.access), location.has_manifest()
    except RetentionError as error:
        return error


def size_at(reader: ObjectReader, path: str) -> int | None:
    """Return the size of the object at `path`; None if it does not exist. Errors: StoreError when this is unknown."""
    found = reader.find(path)
    return None if found is None else found.size
