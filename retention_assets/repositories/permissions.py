"""Checks what the configured credentials may do, without changing any object of the repository.

Reading is always tried. Writing and deleting are tried only on request: on a file that this module creates in the
warehouse, in the quarantine and at the witness, and on a name that does not exist in the repository. For a local
directory, this module asks the operating system whether files can be written there, and writes none.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from retention_assets.config.configuration import INTERNAL, Configuration, Repository, canonical_namespace
from retention_assets.config.settings import Mode
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import counted
from retention_assets.errors import AccessDenied, GuardRefused, ObjectMissing, RetentionError, StoreError
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.failures import Kind, RequestKind
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.versions import keeps_versions
from retention_assets.state.binding import require_outside
from retention_assets.state.quarantine import quarantine_access, require_parent
from retention_assets.state.records import witness_of
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from retention_assets.inventory.manifest import Manifest

Place = Literal["server", "storage", "quarantine", "warehouse", "inventory", "witness"]
State = Literal["allowed", "refused", "failed", "not tried"]
MODES: tuple[Mode, ...] = ("plan", "quarantine", "delete")
_SWEEPS: tuple[Mode, ...] = ("quarantine", "delete")
_QUARANTINE: tuple[Mode, ...] = ("quarantine",)

_S3 = {"list": "s3:ListBucket", "get": "s3:GetObject", "put": "s3:PutObject", "delete": "s3:DeleteObject"}
_GCS = {name: f"storage.objects.{name}" for name in ("list", "get", "delete")} | {"put": "storage.objects.create"}
_LOCAL = {"list": "list files", "get": "read files", "put": "create files", "delete": "delete files"}
_AZURE = {
    "list": "list (l of a SAS)",
    "get": "read (r of a SAS)",
    "put": "create and write (cw of a SAS)",
    "delete": "delete (d of a SAS)",
}
_NAMES: Mapping[str, Mapping[str, str]] = {"s3": _S3, "gs": _GCS, "file": _LOCAL}
_WRITES = "it is tried only with --try-writes"
_NOT_THERE = "the directory does not exist yet"
_Request = tuple[str, tuple[Mode, ...], Callable[[], object]]  # the permission, the modes that need it, the call


@dataclass(frozen=True, slots=True)
class PermissionCheck:
    """The result of the check of one permission."""

    place: Place
    permission: str
    modes: tuple[Mode, ...]  # modes that need the permission
    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the credentials of one repository may do."""

    repository: str
    checks: Sequence[PermissionCheck]

    def missing(self, mode: Mode) -> list[PermissionCheck]:
        """Return the checks that failed and that a mode needs."""
        return [one for one in self.checks if mode in one.modes and one.state in ("refused", "failed")]

    def untried(self, mode: Mode) -> list[PermissionCheck]:
        """Return the checks that were not tried and that a mode needs."""
        return [one for one in self.checks if mode in one.modes and one.state == "not tried"]

    @property
    def can_try_more(self) -> bool:
        """Whether `try_writes` would make further checks."""
        return any(one.detail == _WRITES for one in self.checks)

    def document(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        modes = {
            mode: {
                "lacking": [f"{one.place}: {one.permission}" for one in self.missing(mode)],
                "not_tried": [f"{one.place}: {one.permission}" for one in self.untried(mode)],
            }
            for mode in MODES
        }
        return {"repository": self.repository, "modes": modes, "checks": [asdict(one) for one in self.checks]}


def permissions_of(configuration: Configuration, name: str, *, try_writes: bool = False) -> Permissions:
    """Return what the credentials of a repository may do.

    Args:
        configuration: the configuration with the repository.
        name: the name of the repository.
        try_writes: also write, read and delete a new file in the warehouse, in the quarantine and at the witness, and
            delete a name that does not exist in the repository. On S3, the name is deleted only if the bucket keeps no
            versions.

    Errors: ConfigurationError if the configuration cannot be used. A refused or failed request is a check's result.
    """
    repository = configuration.repository(name)
    access = open_store(repository)
    checks = [] if repository.is_icechunk else list(_of_source(repository, access))
    checks += _of_storage(repository, access)
    checks += _of_locations(configuration, repository)
    checks += [_creating(repository, access)]
    checks += _deleting(access, try_writes=try_writes)
    checks += _opened("quarantine", _QUARANTINE, _of_quarantine(repository, try_writes=try_writes))
    checks += _of_warehouse(configuration.warehouse, try_writes=try_writes)
    checks += [] if repository.is_icechunk else _opened("inventory", MODES, _of_inventories(repository))
    checks += _opened("witness", _SWEEPS, _of_witness(repository, try_writes=try_writes))
    return Permissions(name, checks)


def _of_source(repository: Repository, access: StoreAccess) -> Iterator[PermissionCheck]:
    from retention_assets.lakefs.source.client import LakeFSClient  # these imports take half a second
    from retention_assets.lakefs.source.discovery import newest_metarange, reading_requests, send
    from retention_assets.lakefs.source.opening import open_repository

    api = repository.lakefs.source.api
    if api is None:
        yield _tried("server", "read the dump", MODES, lambda: open_repository(repository, utc_now))
        return
    client, name = LakeFSClient(api.url, *repository.api_keys()), api.repository or repository.name
    try:
        for request in reading_requests(client, name):
            needed = MODES if request.is_needed else ()
            yield _tried("server", request.permission, needed, partial(send, client, request))
    except RetentionError:
        return  # the first request failed too, and its check has the error
    detail = "the server would write a list into the repository; a plan sends this request"
    yield PermissionCheck("server", "retention:PrepareGarbageCollectionUncommitted", MODES, "not tried", detail)
    yield _tried(
        "storage", "is the storage of the server", MODES, lambda: _same_storage(access, newest_metarange(client, name))
    )


def _same_storage(access: StoreAccess, metarange: str | None) -> str:
    """Return a remark for the check. Errors: StoreError if the metarange of the newest commit is not in the storage."""
    if metarange is None:
        return "unknown, because the newest commit is empty"
    try:
        ObjectReader(access).head(f"{INTERNAL}/{metarange}")
    except ObjectMissing as error:
        raise StoreError(
            f"{access.url}: the storage does not have the newest commit of the server ({INTERNAL}/{metarange}). "
            "Nothing was changed. Check `storage` and `namespace`."
        ) from error
    return ""


def _of_storage(repository: Repository, access: StoreAccess) -> Iterator[PermissionCheck]:
    found: list[str] = []

    def listed() -> str:
        page = next(ObjectReader(access).list(), None)
        found.extend(page.column(0).slice(0, 1).to_pylist() if page else [])
        return f"{counted(page.num_rows, 'object')} in the first page" if page else "there are no objects"

    yield _tried("storage", _permission(access.url, "list"), MODES, listed)
    get = _permission(access.url, "get")
    if found:
        yield _tried("storage", get, MODES, lambda: ObjectReader(access).head(found[0]))
    else:
        yield PermissionCheck("storage", get, MODES, "not tried", "no object was listed")
    if repository.is_icechunk:
        yield _tried("storage", "is an Icechunk repository", MODES, lambda: _icechunk(access))


def _of_locations(configuration: Configuration, repository: Repository) -> Iterator[PermissionCheck]:
    """Yield the checks of the locations, which plans check, too."""
    from retention_assets.core.guards import namespaces_apart  # this imports Spark, which takes a second

    def apart() -> None:
        if not (found := namespaces_apart(repository.name, configuration.locations())).passed:
            raise GuardRefused(f"{repository.name}: a plan would be refused. Nothing was changed. {found.message}")

    def outside() -> None:
        require_outside(configuration.warehouse, repository, configuration.repositories)

    yield _tried("storage", "is apart from other repositories", MODES, apart)
    yield _tried("storage", "is apart from the warehouse", MODES, outside)


def _icechunk(access: StoreAccess) -> str:
    from retention_assets.icechunk.source.repository import IcechunkSource

    source = IcechunkSource(access, utc_now)
    if source.repo_object() is not None:
        return "format 2"
    return f"format 1, {counted(len(source.references().branches), 'branch', 'branches')}"


def _creating(repository: Repository, access: StoreAccess) -> PermissionCheck:
    """Return the check of the permission to create objects in the repository. Every restore needs it."""
    create, needed_by = _permission(access.url, "put"), "only a restore needs it"
    modes: tuple[Mode, ...] = ()
    if repository.is_icechunk:
        modes, needed_by = _SWEEPS, "a sweep writes the history, and a restore needs it too"
    elif repository.lakefs.write_results:
        modes, needed_by = MODES, "plans and sweeps write results, and a restore needs it too"
    if access.is_local:
        return _tried("storage", create, modes, lambda: _writable(access.url))
    return PermissionCheck("storage", create, modes, "not tried", f"it would create an object; {needed_by}")


def _deleting(access: StoreAccess, *, try_writes: bool) -> Iterator[PermissionCheck]:
    delete = _permission(access.url, "delete")
    if access.is_local:
        yield _tried("storage", delete, _SWEEPS, lambda: _writable(access.url))
    elif not try_writes:
        yield PermissionCheck("storage", delete, _SWEEPS, "not tried", _WRITES)
    elif access.url.startswith("s3://") and keeps_versions(access) is not False:
        detail = "the bucket may keep versions: deleting a name that does not exist would create a delete marker"
        yield PermissionCheck("storage", delete, _SWEEPS, "not tried", detail)
    else:
        yield _tried("storage", delete, _SWEEPS, lambda: _delete(access, _scratch()))


def _opened(place: Place, modes: tuple[Mode, ...], checks: Iterator[PermissionCheck]) -> Iterator[PermissionCheck]:
    """Yield the checks of a place. If it cannot be opened, for example without credentials, yield a failed check."""
    try:
        yield from checks
    except RetentionError as error:
        yield PermissionCheck(place, "a location", modes, "failed", str(error))


def _of_quarantine(repository: Repository, *, try_writes: bool) -> Iterator[PermissionCheck]:
    access = quarantine_access(repository)
    put, get, delete = (_permission(access.url, name) for name in ("put", "get", "delete"))
    if access.is_local:
        require_parent(access)
        yield _tried("quarantine", put, _QUARANTINE, lambda: _writable(access.url))
        return
    scratch = _scratch()
    requests: list[_Request] = [
        (put, _QUARANTINE, lambda: ObjectWriter(access).put(scratch, b"")),
        (get, _QUARANTINE, lambda: ObjectReader(access).head(scratch)),
        (delete, _QUARANTINE, lambda: _delete(access, scratch, is_there=True)),
    ]
    yield from _on_new_file("quarantine", requests, try_writes=try_writes)


def _of_warehouse(root: str, *, try_writes: bool) -> Iterator[PermissionCheck]:
    """Yield the checks of the warehouse. Spark's own client and credentials are not tested."""
    url = canonical_namespace(root if "://" in root else f"file://{root}")
    listing, get, put, delete = (_permission(url, name) for name in ("list", "get", "put", "delete"))
    if url.startswith("file://"):
        is_there = Path(url.removeprefix("file://")).exists()  # opening the warehouse would create the directory
        yield _tried("warehouse", get, MODES, lambda: Warehouse(root).directories() if is_there else _NOT_THERE)
        yield _tried("warehouse", put, MODES, lambda: _writable(url))
        return
    listed = _tried("warehouse", listing, MODES, lambda: Warehouse(root, any_layout=True).directories())
    yield listed
    if listed.state == "failed":
        return  # the other requests would fail too, each after a long time
    warehouse, scratch = Warehouse(root, any_layout=True), _scratch()
    yield _tried("warehouse", get, MODES, warehouse.require_layout)
    requests: list[_Request] = [
        (put, MODES, lambda: warehouse.create_document({}, scratch)),
        ("conditional writes", _SWEEPS, partial(warehouse.require_conditions, scratch)),  # for the lease
        (delete, MODES, partial(warehouse.remove_file, scratch)),
    ]
    yield from _on_new_file("warehouse", requests, try_writes=try_writes)


def _of_inventories(repository: Repository) -> Iterator[PermissionCheck]:
    if not repository.lakefs.inventory:
        return
    from retention_assets.inventory.delivered import (  # this imports Spark, which takes a second
        Inventory,
        inventoried_location,
        inventory_accesses,
        require_bucket_listed,
    )

    manifests: list[Manifest] = []

    def listed(access: StoreAccess) -> str:
        return Inventory(access).require_complete()

    def read(access: StoreAccess, expected: str) -> str:
        inventory = Inventory(access)
        manifest = inventory.newest_manifest(expected)
        for file in manifest.files[:1]:
            inventory.require_file(manifest, file)
        manifests.append(manifest)
        return f"{manifest.name}, {counted(len(manifest.files), 'file')}"

    accesses = inventory_accesses(repository)
    for access, expected in accesses:
        listing, get = _permission(access.url, "list"), _permission(access.url, "get")
        check = _tried("inventory", listing, MODES, partial(listed, access))
        yield check
        if check.state == "allowed":
            yield _tried("inventory", get, MODES, partial(read, access, expected))
    if len(manifests) == len(accesses):
        is_listed = partial(require_bucket_listed, manifests, inventoried_location(repository))
        yield _tried("inventory", "lists the repository's bucket", MODES, is_listed)


def _of_witness(repository: Repository, *, try_writes: bool) -> Iterator[PermissionCheck]:
    """Yield the checks of the witness, if one is configured. Sweeps list it, and copy their records to it."""
    access = witness_of(repository)
    if access is None:
        return
    folder = repository.name
    listing, put, get, delete = (_permission(access.url, name) for name in ("list", "put", "get", "delete"))
    is_there = not access.is_local or access.directory.exists()

    def listed() -> object:
        return list(ObjectReader(access).list_direct(folder)) if is_there else _NOT_THERE

    yield _tried("witness", listing, _SWEEPS, listed)
    if access.is_local:
        yield _tried("witness", put, _SWEEPS, lambda: _writable(access.url))
        return
    scratch = f"{folder}/{_scratch()}"
    requests: list[_Request] = [
        (put, _SWEEPS, lambda: ObjectWriter(access).create(scratch, b"")),
        (get, _SWEEPS, lambda: ObjectReader(access).head(scratch)),
        (delete, (), lambda: _delete_at_witness(access, scratch)),
    ]
    yield from _on_new_file("witness", requests, try_writes=try_writes)


def _on_new_file(place: Place, requests: Iterable[_Request], *, try_writes: bool) -> Iterator[PermissionCheck]:
    """Yield the check of each request. The first one writes a new file; if it fails, the others are not tried."""
    untried = "" if try_writes else _WRITES
    for number, (permission, modes, call) in enumerate(requests):
        if untried:
            yield PermissionCheck(place, permission, modes, "not tried", untried)
            continue
        check = _tried(place, permission, modes, call)
        yield check
        if number == 0 and check.state != "allowed":
            untried = "no file could be written"


def _tried(place: Place, permission: str, modes: tuple[Mode, ...], call: Callable[[], object]) -> PermissionCheck:
    """Return the check of a permission. `call` needs the permission. A text that it returns is a remark."""
    try:
        found = call()
        return PermissionCheck(place, permission, modes, "allowed", found if isinstance(found, str) else "")
    except AccessDenied as error:
        return PermissionCheck(place, permission, modes, "refused", str(error))
    except RetentionError as error:
        return PermissionCheck(place, permission, modes, "failed", str(error))


def _permission(url: str, action: str) -> str:
    return _NAMES.get(url.partition("://")[0], _AZURE)[action]


def _scratch() -> str:
    return f".retention-permissions-{uuid4().hex}"


def _delete(access: StoreAccess, path: str, *, is_there: bool = False) -> None:
    """Delete a file. `is_there`: the test wrote it; otherwise no such file exists. Errors: as `_require_deleted`."""
    stays = f" The file of this test, {path}, stays in {access.url}: delete it there." if is_there else ""
    _require_deleted(access, path, f"No object of the repository was deleted.{stays}")


def _delete_at_witness(access: StoreAccess, path: str) -> None:
    """Delete the file of this test. Errors: as `_require_deleted`. No mode needs this permission."""
    undone = "The file of this test stays there. Nothing else was written."
    no_action = "A witness is safest if nobody may delete its files. No action is needed."
    _require_deleted(access, path, undone, no_action)


def _require_deleted(access: StoreAccess, path: str, undone: str, remedy: str = "") -> None:
    """Delete a file. Errors: AccessDenied if the credentials may not; StoreError if the deletion failed otherwise.

    `undone`: sentences that say what was not done. `remedy`: the sentences after them; empty: the usual remedy.
    """
    (result,) = ObjectDeleter(access).delete_all([path])
    failure = result.failure
    if failure is None:
        return
    if remedy:
        error = AccessDenied if failure.kind is Kind.DENIED else StoreError
        raise error(f"{access.url}: cannot delete {path!r}: {failure.detail}. {undone} {remedy}")
    request = RequestKind("delete", undone, f"delete objects ({_permission(access.url, 'delete')})")
    raise access.error(failure, path, request)


def _writable(url: str) -> str:
    """Check with the operating system whether files can be created; nothing is written. Errors: AccessDenied."""
    directory = Path(url.removeprefix("file://"))
    existing = next(one for one in (directory, *directory.parents) if one.is_dir())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise AccessDenied(
            f"{existing}: this user may not write to this directory. Nothing was written. Let the user create "
            "and delete files."
        )
    return "according to the operating system; nothing was written"
