"""Where quarantined objects go: a folder per plan in a place of its own, dated, with a manifest of what came.

Below the folder: `objects/<address>`, the copies; `manifest/<name>.json`, what was about to be moved, written before;
`manifest/<name>-copied.json`, copies that were verified and whose originals could not be deleted yet.
The place lies beside the repository or in another bucket, never inside a namespace, whose listing it would enter.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention_assets.config.configuration import Repository
from retention_assets.errors import ConfigurationError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.copying import VerifiedCopy
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.plan import Plan

OBJECTS, MANIFESTS = "objects", "manifest"  # below the folder of a plan
_SUFFIX = ".quarantine"
_VERIFIED = "-copied.json"  # how the names of manifests of verified copies end
_HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class QuarantinePlace:
    """One plan's folder in the quarantine of its repository; `folder` is relative to the access's URL."""

    access: StoreAccess
    folder: str

    def path(self, address: str) -> str:
        """Return where the copy of an object lies."""
        return f"{self.folder}/{OBJECTS}/{address}"

    def describe(self, address: str) -> str:
        """Return the copy's whole URL."""
        return f"{self.access.url}/{self.path(address)}"

    def prepare(self) -> None:
        """Make the directory of a local quarantine, and of a local repository's own; stores need none."""
        if self.access.is_local:
            Path(self.access.url.removeprefix("file://")).mkdir(parents=True, exist_ok=True)

    def note(self, objects: pa.Table, name: str) -> None:
        """Write what is about to be moved, so that the quarantine explains itself without our warehouse.

        Errors: AccessDenied or StoreError; then nothing may be moved.
        """
        self._write(f"{name}.json", objects.select(("address", "size", "etag")).to_pylist())

    def note_copies(self, copies: Mapping[str, VerifiedCopy], name: str) -> None:
        """Write which copies were verified although their originals are still there, by address.

        The next attempt deletes these originals and copies nothing again. Errors: as `note`.
        """
        self._write(f"{name}{_VERIFIED}", [{"address": address, **asdict(copy)} for address, copy in copies.items()])

    def noted_copies(self) -> Mapping[str, VerifiedCopy]:
        """Return what `note_copies` wrote, of all attempts. A damaged manifest has no copies.

        Errors: AccessDenied or StoreError.
        """
        reader = ObjectReader(self.access)
        found: dict[str, VerifiedCopy] = {}
        names = [path for page in reader.list(f"{self.folder}/{MANIFESTS}") for path in page["path"].to_pylist()]
        for path in sorted(name for name in names if name.endswith(_VERIFIED)):  # the newest attempt comes last
            with suppress(ValueError, KeyError, TypeError):  # its objects are copied once more
                rows = json.loads(reader.read(path))["objects"]
                found |= {row["address"]: VerifiedCopy(row["size"], row["e_tag"], row["copy_e_tag"]) for row in rows}
        return found

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        content = json.dumps({"objects": rows}, ensure_ascii=False).encode()
        ObjectWriter(self.access).put(f"{self.folder}/{MANIFESTS}/{name}", content)


def quarantine_url(repository: Repository) -> str:
    """Return where a repository's quarantine lies. Errors: ConfigurationError when it would lie in the repository."""
    given = repository.settings.quarantine.url
    url = repository.absolute(given) if given else f"{repository.storage}{_SUFFIX}"
    inside = f"{url}/".startswith(f"{repository.storage}/") or f"{repository.storage}/".startswith(f"{url}/")
    bucket_only = not given and repository.storage.partition("://")[2].count("/") == 0
    if inside or bucket_only:
        raise ConfigurationError(
            f"{repository.file}: repositories.{repository.name}.quarantine.url: {url} is not a place beside "
            f"{repository.storage}. Nothing was moved. Name a URL outside of it, such as another bucket."
        )
    return url


def quarantine_access(repository: Repository) -> StoreAccess:
    """Return how a repository's quarantine is reached. Errors: as `quarantine_url`."""
    return StoreAccess(quarantine_url(repository), repository.storage_options())


def place_of_plan(repository: Repository, plan: Plan) -> QuarantinePlace:
    """Return the folder of a plan's objects."""
    return QuarantinePlace(quarantine_access(repository), f"{plan.day.isoformat()}/{plan.plan_hash[:_HASH_DIGITS]}")
