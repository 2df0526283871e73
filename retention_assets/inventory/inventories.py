"""Reads the inventories that the store delivered into rows of `storage_inventory`, on executors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository
from retention_assets.core.frames import from_arrow, on_workers, read_tasks
from retention_assets.errors import ConfigurationError, ObjectMissing
from retention_assets.inventory.addresses import addresses_below, require_bucket_listed
from retention_assets.inventory.delivered import Inventory
from retention_assets.inventory.manifest import InventoryFile, Manifest
from retention_assets.objectstore.access import StoreAccess
from retention_assets.tables import STORAGE_INVENTORY

_FILES = pa.schema([("place", pa.int64()), ("key", pa.string()), ("size", pa.int64()), ("md5", pa.string())])


@dataclass(frozen=True, slots=True)
class Delivered:
    """The objects of the namespace that delivered inventories list; `created_at` is the oldest scan's start (UTC)."""

    frame: DataFrame
    created_at: datetime


def delivered_inventory(spark: SparkSession, repository: Repository) -> Delivered:
    """Return the objects of the newest complete delivery of each inventory of the repository.

    When several inventories list an object, the row with its newest `last_modified` counts.
    Errors: ObjectMissing when an inventory has no complete delivery; ConfigurationError when no inventory lists the
    namespace's bucket; CorruptFile when a manifest or a file does not verify.
    """
    opened = [_newest(access, expected) for access, expected in inventory_accesses(repository)]
    require_bucket_listed([manifest for _, manifest in opened], repository.namespace)
    # The files are passed as rows, not in the closure: Spark writes a large closure to disk, including its secrets.
    files = [{"place": place, **asdict(file)} for place, (_, manifest) in enumerate(opened) for file in manifest.files]
    rows = from_arrow(spark, pa.Table.from_pylist(files, _FILES))
    without_files = [(access, replace(manifest, files=())) for access, manifest in opened]
    listed = on_workers(
        rows.repartition(read_tasks(spark)), _reader(without_files, repository.namespace), STORAGE_INVENTORY.schema
    )
    newest = F.max_by(F.struct(*STORAGE_INVENTORY.schema.names), "last_modified").alias("row")
    frame = listed.groupBy("address").agg(newest).select("row.*")
    return Delivered(frame, min(manifest.created_at for _, manifest in opened))


def inventory_accesses(repository: Repository) -> list[tuple[StoreAccess, str]]:
    """Return the folder and the configured format of each inventory of the repository."""
    return [(StoreAccess(url, options), settings.format) for settings, url, options in repository.inventories()]


def _newest(access: StoreAccess, expected: str) -> tuple[StoreAccess, Manifest]:
    inventory = Inventory(access)
    delivery = inventory.newest_complete()
    if delivery is None:
        raise ObjectMissing(
            f"{inventory.url}: no complete inventory has been delivered there. Nothing was deleted. Wait for one (its "
            "manifest.checksum comes last), or remove `inventory` so that the store is listed."
        )
    manifest = inventory.load_manifest(delivery)
    if manifest.file_format.value.lower() != expected.lower():
        raise ConfigurationError(
            f"{inventory.url}: the inventory's files are {manifest.file_format.value}, `inventory.format` says "
            f"{expected}. Nothing was deleted. Correct it."
        )
    return access, manifest


def _reader(opened: Sequence[tuple[StoreAccess, Manifest]], namespace: str):  # type: ignore[no-untyped-def]
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inventories: Mapping[int, Inventory] = {place: Inventory(access) for place, (access, _) in enumerate(opened)}
        for batch in batches:
            for row in batch.to_pylist():
                place = row.pop("place")
                for rows in _rows(inventories[place], opened[place][1], InventoryFile(**row)):
                    yield addresses_below(rows, namespace)

    return read


def _rows(inventory: Inventory, manifest: Manifest, file: InventoryFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from inventory.read(manifest, file)
    except ObjectMissing:
        raise ObjectMissing(
            f"{manifest.name}: its file {file.key!r} is not there. Nothing was deleted. Wait for the next delivery, "
            "or remove `inventory` so that the store is listed."
        ) from None
