"""Checks what the configured credentials may do, without changing any object of the repository.

Reading is always tried. Writing and deleting are tried only on request: on a file that this module creates in the
quarantine, and on a name that does not exist in the repository.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from retention_assets.config.configuration import INTERNAL, Repository
from retention_assets.config.settings import Mode
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import counted
from retention_assets.errors import AccessDenied, ObjectMissing, RetentionError, StoreError
from retention_assets.objectstore.access import StoreAccess, open_store
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.versions import keeps_versions
from retention_assets.state.quarantine import quarantine_access

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


@dataclass(frozen=True, slots=True)
class PermissionCheck:
    """The result of the check of one permission."""

    place: Literal["server", "storage", "quarantine"]
    permission: str
    modes: tuple[Mode, ...]  # modes that need the permission
    state: State
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the credentials of one repository may do."""

    repository: str
    checks: Sequence[PermissionCheck] = field(default_factory=list)

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


def permissions_of(repository: Repository, *, try_writes: bool = False) -> Permissions:
    """Return what the credentials of a repository may do.

    Args:
        repository: its configuration.
        try_writes: also write, read and delete a new file in the quarantine, and delete a name that does not
            exist in the repository. On S3, the name is deleted only if the bucket keeps no versions.

    Errors: ConfigurationError if the configuration cannot be used. A refused or failed request is a check's result.
    """
    access = open_store(repository)
    checks = [] if repository.is_icechunk else list(_of_source(repository, access))
    checks += _of_storage(repository, access)
    checks += [_creating(repository, access)]
    checks += _deleting(access, try_writes=try_writes)
    checks += _of_quarantine(repository, try_writes=try_writes)
    return Permissions(repository.name, checks)


def _of_source(repository: Repository, access: StoreAccess) -> Iterator[PermissionCheck]:
    from retention_assets.lakefs.source.client import LakeFSClient  # this import takes half a second
    from retention_assets.lakefs.source.discovery import newest_metarange, reading_requests, send
    from retention_assets.lakefs.source.opening import open_repository

    api = repository.lakefs.source.api
    if api is None:
        yield _tried("server", "read the dump", MODES, lambda: _none(open_repository(repository, utc_now)))
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
        "storage", "is the server's storage", MODES, lambda: _same_storage(access, newest_metarange(client, name))
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

    yield _tried("storage", _permission(access, "list"), MODES, listed)
    get = _permission(access, "get")
    if found:
        yield _tried("storage", get, MODES, lambda: _none(ObjectReader(access).head(found[0])))
    else:
        yield PermissionCheck("storage", get, MODES, "not tried", "no object was listed")
    if repository.is_icechunk:
        yield _tried("storage", "is an Icechunk repository", MODES, lambda: _icechunk(access))


def _icechunk(access: StoreAccess) -> str:
    from retention_assets.icechunk.source.repository import IcechunkSource

    source = IcechunkSource(access, utc_now)
    if source.repo_object() is not None:
        return "format 2"
    return f"format 1, {counted(len(source.references().branches), 'branch', 'branches')}"


def _creating(repository: Repository, access: StoreAccess) -> PermissionCheck:
    """Return the check of the permission to create objects in the repository. Every restore needs it."""
    create, needed_by = _permission(access, "put"), "only a restore needs it"
    modes: tuple[Mode, ...] = ()
    if repository.is_icechunk:
        modes, needed_by = _SWEEPS, "a sweep writes the history, and a restore needs it too"
    elif repository.lakefs.write_results:
        modes, needed_by = MODES, "plans and sweeps write results, and a restore needs it too"
    if access.is_local:
        return _tried("storage", create, modes, lambda: _writable(access))
    return PermissionCheck("storage", create, modes, "not tried", f"it would create an object; {needed_by}")


def _deleting(access: StoreAccess, *, try_writes: bool) -> Iterator[PermissionCheck]:
    delete = _permission(access, "delete")
    if access.is_local:
        yield _tried("storage", delete, _SWEEPS, lambda: _writable(access))
    elif not try_writes:
        yield PermissionCheck("storage", delete, _SWEEPS, "not tried", _WRITES)
    elif access.url.startswith("s3://") and keeps_versions(access) is not False:
        detail = "the bucket may keep versions: deleting a name that does not exist would create a delete marker"
        yield PermissionCheck("storage", delete, _SWEEPS, "not tried", detail)
    else:
        yield _tried("storage", delete, _SWEEPS, lambda: _delete(access, _scratch()))


def _of_quarantine(repository: Repository, *, try_writes: bool) -> Iterator[PermissionCheck]:
    try:
        access = quarantine_access(repository)
    except RetentionError as error:
        yield PermissionCheck("quarantine", "a location", _QUARANTINE, "failed", str(error))
        return
    put, get, delete = (_permission(access, name) for name in ("put", "get", "delete"))
    if access.is_local:
        yield _tried("quarantine", put, _QUARANTINE, lambda: _writable(access))
        return
    if not try_writes:
        for permission in (put, get, delete):
            yield PermissionCheck("quarantine", permission, _QUARANTINE, "not tried", _WRITES)
        return
    scratch = _scratch()
    written = _tried("quarantine", put, _QUARANTINE, lambda: _write(access, scratch))
    yield written
    if written.state == "allowed":
        yield _tried("quarantine", get, _QUARANTINE, lambda: _none(ObjectReader(access).head(scratch)))
        yield _tried("quarantine", delete, _QUARANTINE, lambda: _delete(access, scratch, is_there=True))
    else:
        for permission in (get, delete):
            yield PermissionCheck("quarantine", permission, _QUARANTINE, "not tried", "no file could be written")


def _tried(
    place: Literal["server", "storage", "quarantine"], permission: str, modes: tuple[Mode, ...], call: Callable[[], str]
) -> PermissionCheck:
    try:
        return PermissionCheck(place, permission, modes, "allowed", call())
    except AccessDenied as error:
        return PermissionCheck(place, permission, modes, "refused", str(error))
    except RetentionError as error:
        return PermissionCheck(place, permission, modes, "failed", str(error))


def _permission(access: StoreAccess, action: str) -> str:
    return _NAMES.get(access.url.partition("://")[0], _AZURE)[action]


def _scratch() -> str:
    return f".retention-permissions-{uuid4().hex}"


def _write(access: StoreAccess, path: str) -> str:
    ObjectWriter(access).put(path, b"")
    return ""


def _delete(access: StoreAccess, path: str, *, is_there: bool = False) -> str:
    """Delete a file. `is_there`: the test wrote it; otherwise no such file exists. Errors: AccessDenied."""
    (result,) = ObjectDeleter(access).delete_all([path])
    if result.outcome in (Outcome.DELETED, Outcome.MISSING):
        return ""
    stays = f" The file of this test, {path}, stays in {access.url}: delete it there." if is_there else ""
    raise AccessDenied(
        f"{access.url}: cannot delete {path!r}: {result.detail}. No object of the repository was deleted.{stays} "
        f"Let the credentials in `storage_options` delete objects ({_permission(access, 'delete')})."
    )


def _writable(access: StoreAccess) -> str:
    """Check with the operating system whether files can be created; nothing is written. Errors: AccessDenied."""
    directory = Path(access.url.removeprefix("file://"))
    existing = next(one for one in (directory, *directory.parents) if one.is_dir())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise AccessDenied(
            f"{existing}: this user may not write to this directory. Nothing was written. Let the user create "
            "and delete files."
        )
    return "according to the operating system; nothing was written"


def _none(_: object) -> str:
    return ""
