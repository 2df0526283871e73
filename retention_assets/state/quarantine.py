"""The quarantine of a repository: one dated folder for each plan, with copies of objects and manifests.

The folder of a plan contains:

- `objects/<address>`: the copies.
- `manifest/<name>.json`: the objects to move, written before they are moved.
- `manifest/<name>-copied.json`: verified copies whose originals could not be deleted yet.

The quarantine is beside the repository or in another bucket. It must not be inside a namespace, because the listing of
the namespace would include its files.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention_assets.config.configuration import Repository
from retention_assets.config.locations import is_bucket, overlap
from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.copying import VerifiedCopy
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.plan import Plan

OBJECTS, MANIFESTS = "objects", "manifest"  # below the folder of a plan
_SUFFIX = ".quarantine"
_VERIFIED = "-copied.json"  # end of the names of manifests of verified copies
HASH_DIGITS = 16  # of a plan's hash, in the name of its folder


@dataclass(frozen=True, slots=True)
class QuarantineLocation:
    """The folder of one plan in the quarantine of its repository. `folder` is relative to the URL of `access`."""

    access: StoreAccess
    folder: str

    @classmethod
    def at(cls, url: str, options: Mapping[str, str]) -> "QuarantineLocation":
        """Return the location with this `url`. Errors: ConfigurationError, as `StoreAccess`."""
        root, day, plan = url.rsplit("/", 2)
        return cls(StoreAccess(root, options), f"{day}/{plan}")

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

    def prepare(self) -> bool:
        """Create the directory of a local quarantine, and return whether it did not exist. Stores need no directory.

        Errors: StoreError.
        """
        if not self.access.is_local:
            return False
        is_new = not self._directory.exists()
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self.access.url}: the directory cannot be created: {error}. Nothing was moved. Check "
                "`quarantine.url`."
            ) from error
        return is_new

    def remove_empty(self) -> None:
        """Remove the directory of a local quarantine if it is empty."""
        with suppress(OSError):  # it is not empty, or does not exist
            self._directory.rmdir()

    def write_manifest(self, objects: pa.Table, name: str) -> None:
        """Write a manifest of the objects to move, so that the quarantine can be understood without the warehouse.

        Errors: AccessDenied or StoreError; in this case no object may be moved.
        """
        self._write(f"{name}.json", objects.select(("address", "size", "etag")).to_pylist())

    def write_copies(self, copies: Mapping[str, VerifiedCopy], name: str) -> None:
        """Write a manifest of verified copies whose originals are still there. `copies`: by address.

        The next attempt deletes these originals, and does not copy them again. Errors: as `write_manifest`.
        """
        rows = [
            {"address": address, "size": copy.size, "e_tag": copy.e_tag, "copy_e_tag": copy.copy_e_tag}
            for address, copy in copies.items()
        ]
        self._write(f"{name}{_VERIFIED}", rows)

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
        if self.access.is_local and not self._directory.is_dir():
            return False
        return ObjectReader(self.access).holds_objects(self.folder)

    @property
    def _directory(self) -> Path:
        """The directory of a local quarantine."""
        return Path(self.access.url.removeprefix("file://"))

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        content = json.dumps({"objects": rows}, ensure_ascii=False).encode()
        ObjectWriter(self.access).put(f"{self.folder}/{MANIFESTS}/{name}", content)


def quarantine_url(repository: Repository) -> str:
    """Return the URL of a repository's quarantine.

    Errors: ConfigurationError when the quarantine would be inside the repository, or the repository inside it; also
    when `quarantine.url` is not set and the repository is a whole bucket.
    """
    given = repository.settings.quarantine.url
    url = repository.absolute(given) if given else f"{repository.storage}{_SUFFIX}"
    if (not given and is_bucket(repository.storage)) or overlap(url, repository.storage):
        raise ConfigurationError(
            f"{repository.file}: repositories.{repository.name}.quarantine.url: {url} is not outside of "
            f"{repository.storage}. Nothing was moved. Set a URL outside of the storage, such as another bucket."
        )
    return url


def quarantine_access(repository: Repository) -> StoreAccess:
    """Return access to the store of a repository's quarantine. Errors: as `quarantine_url`."""
    return StoreAccess(quarantine_url(repository), repository.storage_options())


def quarantine_of_plan(repository: Repository, plan: Plan) -> QuarantineLocation:
    """Return the quarantine folder of a plan. Errors: as `quarantine_url`."""
    return QuarantineLocation(quarantine_access(repository), f"{plan.day.isoformat()}/{plan.plan_hash[:HASH_DIGITS]}")
