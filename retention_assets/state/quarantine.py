"""The quarantine of a repository: one dated folder for each plan, with copies of objects and manifests.

The folder of a plan contains:

- `objects/<address>`: the copies.
- `manifest/<name>-<unique>.json`: the objects to move, written before they are moved.
- `manifest/<name>-<unique>-copied.json`: verified copies whose originals could not be deleted yet.

The unique part prevents that a manifest is overwritten: after a warehouse was restored from a backup, sweeps use names
a second time.

The quarantine is beside the repository or in another bucket. It must not be inside a namespace, because the listing of
the namespace would include its files.

A directory may be on a volume that is not mounted. So the first sweep writes a file with a unique name, its marker,
into the directory, and later sweeps and all workers require this file. Other commands ignore it, because it is not in
the folder of a plan.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from socket import gethostname
from typing import Any
from uuid import uuid4

import pyarrow as pa

from retention_assets.config.configuration import Repository
from retention_assets.config.locations import is_bucket, overlap
from retention_assets.errors import ConfigurationError, ObjectMissing, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import SettingNames
from retention_assets.objectstore.mutate.copying import VerifiedCopy
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.plan import Plan
from retention_assets.state.records import newest_first, quarantined_in
from retention_assets.warehouse.warehouse import Warehouse

OBJECTS, MANIFESTS = "objects", "manifest"  # below the folder of a plan
_SUFFIX = ".quarantine"
_VERIFIED = "-copied.json"  # end of the names of manifests of verified copies
HASH_DIGITS = 16  # of a plan's hash, in the name of its folder
_MARKERS = "quarantine_directories.json"  # document in the warehouse: the name of the marker of each URL
_SETTINGS = SettingNames("quarantine.url")
_MARKER = ".retention-quarantine-"  # begins the name of a marker


@dataclass(frozen=True, slots=True)
class QuarantineLocation:
    """The folder of one plan in the quarantine of its repository. `folder` is relative to the URL of `access`."""

    access: StoreAccess
    folder: str

    @classmethod
    def at(cls, url: str, options: Mapping[str, str]) -> "QuarantineLocation":
        """Return the location with this `url`. Errors: ConfigurationError, as `StoreAccess`."""
        root, day, plan = url.rsplit("/", 2)
        return cls(StoreAccess(root, options, _SETTINGS), f"{day}/{plan}")

    @property
    def url(self) -> str:
        """The URL of the folder."""
        return f"{self.access.url}/{self.folder}"

    def path(self, address: str) -> str:
        """Return the path of an object's copy, relative to the URL of `access`."""
        return f"{self.folder}/{OBJECTS}/{address}"

    def describe(self, address: str) -> str:
        """Return the URL of an object's copy."""
        return f"{self.access.url}/{self.path(address)}"

    def write_manifest(self, objects: pa.Table, name: str) -> None:
        """Write a manifest of the objects to move, so that the quarantine can be understood without the warehouse.

        Errors: AccessDenied or StoreError; in this case no object may be moved.
        """
        self._write(name, ".json", objects.select(("address", "size", "etag")).to_pylist())

    def write_copies(self, copies: Mapping[str, VerifiedCopy], name: str) -> None:
        """Write a manifest of verified copies whose originals are still there. `copies`: by address.

        The next attempt deletes these originals, and does not copy them again. Errors: as `write_manifest`.
        """
        rows = [
            {"address": address, "size": copy.size, "e_tag": copy.e_tag, "copy_e_tag": copy.copy_e_tag}
            for address, copy in copies.items()
        ]
        self._write(name, _VERIFIED, rows)

    def verified_copies(self) -> Mapping[str, VerifiedCopy]:
        """Return the copies that `write_copies` wrote in all attempts, by address. Damaged manifests are ignored.

        Errors: AccessDenied or StoreError.
        """
        reader = ObjectReader(self.access)
        found: dict[str, VerifiedCopy] = {}
        names = [path for page in reader.list(f"{self.folder}/{MANIFESTS}") for path in page["path"].to_pylist()]
        for path in sorted(name for name in names if name.endswith(_VERIFIED)):  # the newest attempt comes last
            with suppress(ValueError, KeyError, TypeError):  # the objects of a damaged manifest are copied again
                rows = json.loads(reader.read(path))["objects"]
                found |= {row["address"]: VerifiedCopy(row["size"], row["e_tag"], row["copy_e_tag"]) for row in rows}
        return found

    def has_manifest(self) -> bool:
        """Return whether a manifest is there. An interrupted sweep wrote one before it moved anything.

        Errors: AccessDenied or StoreError.
        """
        return ObjectReader(self.access).holds_objects(f"{self.folder}/{MANIFESTS}")

    def holds_files(self) -> bool:
        """Return whether the folder has copies or manifests, as seen from this machine.

        Errors: AccessDenied or StoreError, but not for a local directory that does not exist.
        """
        if self.access.is_absent:
            return False
        return ObjectReader(self.access).holds_objects(self.folder)

    def _write(self, name: str, suffix: str, rows: Sequence[Mapping[str, Any]]) -> None:
        content = json.dumps({"objects": rows}, ensure_ascii=False).encode()
        ObjectWriter(self.access).put(f"{self.folder}/{MANIFESTS}/{name}-{uuid4().hex}{suffix}", content)


def marker_of(warehouse: Warehouse, repository: str, access: StoreAccess) -> str | None:
    """Return the name of the quarantine's marker; a new name before the first sweep; None if it is in a store."""
    if not access.is_local:
        return None
    return _markers(warehouse, repository).get(access.url) or f"{_MARKER}{uuid4().hex}"


def require_marker(access: StoreAccess, marker: str) -> None:
    """Raise StoreError if this machine does not see the marker in the directory of the quarantine."""
    directory = access.directory
    try:
        ObjectReader(access).head(marker)
    except StoreError as error:
        is_missing = isinstance(error, ObjectMissing) or not directory.is_dir()
        create = f"mkdir -p {quote(str(directory))} && touch {quote(str(directory / marker))}"
        raise StoreError(
            f"{access.url}: the machine {gethostname()} does not see the file {marker}, by which sweeps recognize this "
            f"quarantine{'' if is_missing else f' ({error})'}. It may not be mounted. Nothing was moved. Mount it on "
            "this machine and on every machine that runs a worker of Spark. Only if no volume belongs there, and this "
            f"directory is the quarantine from now on, create the file: `{create}`. Then sweep again."
        ) from None


def prepare_directory(warehouse: Warehouse, repository: str, access: StoreAccess, marker: str) -> None:
    """Make a local quarantine ready for a sweep: the first sweep creates the directory and the marker.

    `marker`: see `marker_of`. The sweep holds the lease. Errors: StoreError in these cases:

    - An earlier sweep wrote a marker, and this machine does not see it.
    - Sweeps of a version without markers moved objects, and the directory is empty or does not exist.
    - The directory cannot be read or created. Its parent must exist.
    """
    markers = _markers(warehouse, repository)
    if access.url not in markers and _is_empty(access) and _has_moved_objects(warehouse, repository, access):
        markers = {**markers, access.url: marker}  # so that the error always names the same file
        warehouse.write_document(markers, repository, _MARKERS)
    if access.url in markers:
        require_marker(access, markers[access.url])
    if markers.get(access.url) == marker:
        return
    require_parent(access)
    try:
        access.directory.mkdir(exist_ok=True)  # without parents: one of them may be a mount point
    except OSError as error:
        raise _not_created(access, error) from error
    ObjectWriter(access).put(marker, b"")  # before the document: else a crash in between would make sweeps impossible
    warehouse.write_document({**markers, access.url: marker}, repository, _MARKERS)


def require_parent(access: StoreAccess) -> None:
    """Raise StoreError if a sweep cannot create the directory of a local quarantine, because its parent is missing."""
    if access.is_local and not access.directory.is_dir() and not access.directory.parent.is_dir():
        raise _not_created(access, f"there is no directory {access.directory.parent}")


def _not_created(access: StoreAccess, problem: object) -> StoreError:
    return StoreError(
        f"{access.url}: the directory cannot be created: {problem}. Nothing was moved. Check `quarantine.url`, and "
        "create or mount the directory above it. Then sweep again."
    )


def _markers(warehouse: Warehouse, repository: str) -> Mapping[str, str]:
    return warehouse.read_document(repository, _MARKERS, shape=dict[str, str]) or {}


def _is_empty(access: StoreAccess) -> bool:
    try:
        return next(access.directory.iterdir(), None) is None
    except FileNotFoundError:
        return True
    except OSError as error:
        raise StoreError(
            f"{access.url}: the directory cannot be read: {error}. Nothing was moved. Check `quarantine.url` and the "
            "permissions of the directory. Then sweep again."
        ) from error


def _has_moved_objects(warehouse: Warehouse, repository: str, access: StoreAccess) -> bool:
    """Return whether objects of any plan are in this quarantine, by the plan's newest audit record."""
    in_quarantine: dict[tuple[str, str], bool] = {}
    swept: set[tuple[str, str]] = set()  # plans with a sweep to this quarantine
    for _, record in newest_first(warehouse, repository):
        plan = record["day"], record["plan_hash"]
        in_quarantine.setdefault(plan, quarantined_in(record).objects > 0)
        url = (record.get("terms") or {}).get("quarantine.url")
        if record["mode"] == "quarantine" and (url is None or StoreAccess(url, access.options).url == access.url):
            swept.add(plan)
    return any(in_quarantine[plan] for plan in swept)


def quarantine_url(repository: Repository) -> str:
    """Return the URL of a repository's quarantine.

    Errors: ConfigurationError when the quarantine would be inside the repository, or the repository inside it; also
    when `quarantine.url` is not set and the repository is a whole bucket.
    """
    given = repository.settings.quarantine.url
    url = repository.absolute(given) if given else f"{repository.storage}{_SUFFIX}"
    if not given and is_bucket(repository.storage):
        raise ConfigurationError(
            f"{repository.file}: repositories.{repository.name}.quarantine.url is not set, and there is no default "
            "for a storage that is a whole bucket. Nothing was moved. Set a URL outside of the storage, such as "
            "another bucket."
        )
    if overlap(url, repository.storage):
        raise ConfigurationError(
            f"{repository.file}: repositories.{repository.name}.quarantine.url: {url} is not outside of "
            f"{repository.storage}. Nothing was moved. Set a URL outside of the storage, such as another bucket."
        )
    return url


def quarantine_access(repository: Repository) -> StoreAccess:
    """Return access to the store of a repository's quarantine. Errors: as `quarantine_url`."""
    return StoreAccess(quarantine_url(repository), repository.storage_options(), _SETTINGS)


def quarantine_of_plan(repository: Repository, plan: Plan) -> QuarantineLocation:
    """Return the quarantine folder of a plan. Errors: as `quarantine_url`."""
    return QuarantineLocation(quarantine_access(repository), f"{plan.day.isoformat()}/{plan.plan_hash[:HASH_DIGITS]}")
