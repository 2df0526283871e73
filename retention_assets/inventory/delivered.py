"""Reads the inventories that Amazon S3 delivers to a folder: lists the deliveries, and reads manifests and files.

A delivery has the name of its folder, `YYYY-MM-DDTHH-MMZ`: the start of the scan in UTC. So sorted names are in order
of time. The folders `data/` and `hive/` lie beside the deliveries.
Source: Amazon S3 User Guide, "Locating your inventory list".
"""

import re
from collections.abc import Iterator

import pyarrow as pa

from retention_assets.errors import CorruptFile, ObjectMissing
from retention_assets.inventory.manifest import InventoryFile, Manifest, read_manifest
from retention_assets.inventory.rows import read_inventory_file
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader

_DELIVERY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


class Inventory:
    """One inventory: the folder `…/source-bucket/config-ID` that `access` points to."""

    def __init__(self, access: StoreAccess) -> None:
        self.url = access.url
        self._reader = ObjectReader(access)

    def deliveries(self) -> list[str]:
        """Return the names of all deliveries, complete or not, oldest first."""
        names = (prefix.removesuffix("/") for prefix in self._reader.prefixes())  # sorted
        return [name for name in names if is_delivery(name)]

    def is_complete(self, delivery: str) -> bool:
        """Return whether the delivery is complete: S3 writes `manifest.checksum` last."""
        try:
            self._reader.head(f"{delivery}/manifest.checksum")
        except ObjectMissing:
            return False
        return True

    def newest_complete(self) -> str | None:
        """Return the newest complete delivery; None when there is none."""
        return next((delivery for delivery in reversed(self.deliveries()) if self.is_complete(delivery)), None)

    def load_manifest(self, delivery: str) -> Manifest:
        """Return the manifest of a delivery.

        Raises:
            ObjectMissing: the delivery is not complete.
            CorruptFile: the manifest does not verify.
        """
        name = f"{delivery}/manifest.json"
        checksum = self._reader.read(f"{delivery}/manifest.checksum")
        return read_manifest(self._reader.read(name), checksum, self._reader.describe(name))

    def read(self, manifest: Manifest, file: InventoryFile) -> Iterator[pa.RecordBatch]:
        """Return the current objects that one file lists, in batches (see `read_inventory_file`).

        Raises:
            ObjectMissing: the file is gone; the message names the file.
            CorruptFile: the file does not verify, or does not lie below this inventory's folder.
        """
        try:
            content = self._reader.read(self._path_of(manifest, file))
        except ObjectMissing:
            raise ObjectMissing(
                f"{manifest.name}: its file {file.key!r} is missing. Nothing was deleted. Wait for the next "
                "delivery, or remove `inventory` so that the store is listed."
            ) from None
        return read_inventory_file(content, manifest, file)

    def _path_of(self, manifest: Manifest, file: InventoryFile) -> str:
        """Return the path of `file` relative to the inventory's folder.

        The manifest gives the file's key in the bucket of the delivery. The inventory's folder can be that folder or a
        copy of it elsewhere: the last segments of the folder's URL must equal the first segments of the key.
        """
        _, _, location = self.url.partition("://")
        folder = location.rstrip("/").split("/")[1:]  # without the bucket
        key = file.key.split("/")
        for start in range(len(folder)):
            depth = len(folder) - start
            if key[:depth] == folder[start:] and not {"", ".", ".."} & set(key[depth:]):
                return "/".join(key[depth:])
        raise CorruptFile(
            f"{manifest.name}: its file {file.key!r} does not lie in the inventory's folder {self.url}. The file was "
            f"not read and nothing was deleted. Set `inventory` to the folder that the key begins with, or to a copy "
            f"with the same path."
        )


def is_delivery(name: str) -> bool:
    """Return whether a folder is a delivery, by its name: `YYYY-MM-DDTHH-MMZ`, in contrast to `data` and `hive`."""
    return _DELIVERY.fullmatch(name) is not None
