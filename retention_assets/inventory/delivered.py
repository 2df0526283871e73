"""Inventories that Amazon S3 delivers to a folder: which deliveries are there, complete, and cover a day.

Deliveries are named as their folders are, `YYYY-MM-DDTHH-MMZ`: the start of the scan, UTC. The names sort as the
times do. Beside them lie `data/` and `hive/`. Source: Amazon S3 User Guide, "Locating your inventory list".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa

from retention_assets.errors import CorruptFile, ObjectMissing
from retention_assets.inventory.manifest import InventoryFile, Manifest, read_manifest
from retention_assets.inventory.rows import read_inventory_file
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader

_DELIVERY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")
_TIME = "%Y-%m-%dT%H-%MZ"


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
        """Return whether everything is there: `manifest.checksum` is written last."""
        try:
            self._reader.head(f"{delivery}/manifest.checksum")
        except ObjectMissing:
            return False
        return True

    def newest_complete(self, not_after: datetime | None = None) -> str | None:
        """Return the newest complete delivery whose scan began at `not_after` or before, `None` when there is none."""
        for delivery in reversed(self.deliveries()):
            if (not_after is None or scan_start(delivery) <= not_after) and self.is_complete(delivery):
                return delivery
        return None

    def load_manifest(self, delivery: str) -> Manifest:
        """Return the manifest of a delivery.

        Raises:
            ObjectMissing: the delivery is not complete.
            CorruptFile: the manifest cannot be believed.
        """
        name = f"{delivery}/manifest.json"
        checksum = self._reader.read(f"{delivery}/manifest.checksum")
        return read_manifest(self._reader.read(name), checksum, self._reader.describe(name))

    def read(self, manifest: Manifest, file: InventoryFile) -> Iterator[pa.RecordBatch]:
        """Return the current objects that one file lists, in batches (see `read_inventory_file`).

        Raises:
            ObjectMissing: the file is gone; the message names it.
            CorruptFile: the file cannot be believed, or does not lie below this inventory's folder.
        """
        return read_inventory_file(self._reader.read(self._place(manifest, file)), manifest, file)

    def _place(self, manifest: Manifest, file: InventoryFile) -> str:
        """Return the file's name relative to the inventory's folder.

        The manifest has the key in the bucket of the delivery. A copy of the deliveries, in a folder of any name, is
        good too: the last parts of the URL and the first ones of the key must be the same.
        """
        _, _, location = self.url.partition("://")
        folder = location.rstrip("/").split("/")[1:]  # without the bucket
        key = file.key.split("/")
        for start in range(len(folder)):
            depth = len(folder) - start
            if key[:depth] == folder[start:] and not {"", ".", ".."} & set(key[depth:]):
                return "/".join(key[depth:])
        raise CorruptFile(
            f"{manifest.name}: its file {file.key!r} does not lie in the inventory's folder {self.url}. It was not "
            f"read and nothing was deleted. Name the folder that the key begins with, or a copy with the same path."
        )


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one inventory."""

    inventory: Inventory
    name: str


def is_delivery(name: str) -> bool:
    """Return whether a folder is named as deliveries are; `data` and `hive` beside them are not."""
    return _DELIVERY.fullmatch(name) is not None


def scan_start(delivery: str) -> datetime:
    """Return the instant (UTC) that a delivery is named after. Raises: CorruptFile when it is no instant."""
    try:
        return datetime.strptime(delivery, _TIME).replace(tzinfo=UTC)
    except ValueError as error:
        raise CorruptFile(
            f"{delivery!r}: is no delivery of an inventory, which is named like 2026-11-01T00-00Z"
        ) from error


def covering_deliveries(inventories: Sequence[Inventory], day: date, max_age: timedelta) -> list[Delivery]:
    """Return the deliveries that together say what was stored on `day` (UTC): the newest complete of each inventory.

    Together they are as old as the oldest of them. Where inventories overlap, an object is listed more than once.

    Args:
        inventories: all that a repository needs, since its bucket or its prefixes are listed apart.
        day: no scan that began after its end counts.
        max_age: no scan that began longer than this before the day's end counts.

    Raises:
        ObjectMissing: an inventory has no such delivery; without it the day is not covered.
    """
    end = datetime.combine(day, time(), UTC) + timedelta(days=1)
    found = []
    for inventory in inventories:
        delivery = inventory.newest_complete(end - timedelta(microseconds=1))
        if delivery is None or scan_start(delivery) < end - max_age:
            raise ObjectMissing(
                f"{inventory.url}: no complete delivery covers {day}: the newest until its end is "
                f"{delivery or 'none'}, and it must have begun at {end - max_age:{_TIME}} or later. Nothing was "
                f"deleted. Wait for the delivery (its manifest.checksum comes last), or run a day that has one."
            )
        found.append(Delivery(inventory, delivery))
    return found
