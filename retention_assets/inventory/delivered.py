"""Reads the inventories that Amazon S3 delivers to a folder, as rows of `storage_inventory`, on executors.

A delivery is a folder named by the start of its scan in UTC, `YYYY-MM-DDTHH-MMZ`. So sorted names are in order of time.
The folders `data/` and `hive/` are beside the deliveries.
Source: Amazon S3 User Guide, "Locating your inventory list".
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import INTERNAL, Repository, canonical_namespace
from retention_assets.config.settings import InventorySettings
from retention_assets.errors import ConfigurationError, CorruptFile, ObjectMissing
from retention_assets.inventory.manifest import InventoryFile, Manifest, read_manifest
from retention_assets.inventory.rows import read_inventory_file
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import SettingNames
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import from_arrow, on_workers, read_tasks
from retention_assets.tables import STORAGE_INVENTORY

_BYTES_OF_TASK = 2**19  # bytes of files whose rows one task sorts: up to 100,000 rows, at 5 bytes for a row in Parquet
_MOST_TASKS = 200
_DELIVERY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")


class Inventory:
    """One inventory: the folder `…/source-bucket/config-ID` that `access` points to, read by `reader`."""

    def __init__(self, access: StoreAccess, reader: ObjectReader | None = None) -> None:
        self.url = access.url
        self._reader = reader or ObjectReader(access)

    def deliveries(self) -> list[str]:
        """Return the names of all deliveries, complete or not, oldest first."""
        names = (prefix.removesuffix("/") for prefix in self._reader.prefixes())  # sorted
        return [name for name in names if _DELIVERY.fullmatch(name)]

    def is_complete(self, delivery: str) -> bool:
        """Return whether the delivery is complete: S3 writes `manifest.checksum` last."""
        paths = (path for batch in self._reader.list_direct(delivery) for path in batch["path"].to_pylist())
        return f"{delivery}/manifest.checksum" in paths

    def newest_complete(self) -> str | None:
        """Return the newest complete delivery; None when there is none."""
        return next((delivery for delivery in reversed(self.deliveries()) if self.is_complete(delivery)), None)

    def require_complete(self) -> str:
        """Return the newest complete delivery. Errors: ObjectMissing when there is none."""
        delivery = self.newest_complete()
        if delivery is None:
            raise ObjectMissing(
                f"{self.url}: no complete inventory has been delivered there. Nothing was deleted. Wait for a complete "
                "inventory (S3 writes manifest.checksum last), or remove `inventory` so that the store is listed."
            )
        return delivery

    def newest_manifest(self, expected: str) -> Manifest:
        """Return the manifest of the newest complete delivery. `expected`: the configured format of its files.

        Raises:
            ObjectMissing: there is no complete delivery.
            CorruptFile: the manifest does not match its checksum, or cannot be used.
            ConfigurationError: the files have another format.
        """
        manifest = self.load_manifest(self.require_complete())
        if manifest.file_format.value.lower() != expected.lower():
            raise ConfigurationError(
                f"{self.url}: the inventory's files are {manifest.file_format.value}, but `inventory.format` is "
                f"{expected}. Nothing was deleted. Correct `inventory.format`."
            )
        return manifest

    def load_manifest(self, delivery: str) -> Manifest:
        """Return the manifest of a delivery.

        Raises:
            ObjectMissing: the delivery is not complete.
            CorruptFile: the manifest does not match its checksum, or cannot be used.
        """
        name = f"{delivery}/manifest.json"
        checksum = self._reader.read(f"{delivery}/manifest.checksum")
        return read_manifest(self._reader.read(name), checksum, self._reader.describe(name))

    def read(self, manifest: Manifest, file: InventoryFile) -> Iterator[pa.RecordBatch]:
        """Return the current objects that one file lists, in batches (see `read_inventory_file`).

        Raises:
            ObjectMissing: the file is gone; the message names the file.
            CorruptFile: the file does not match its manifest, or is not below this inventory's folder.
        """
        with _file_of(manifest, file):
            content = self._reader.read(self._path_of(manifest, file))
        return read_inventory_file(content, manifest, file)

    def require_file(self, manifest: Manifest, file: InventoryFile) -> None:
        """Require that one file exists and may be read, without reading it. Errors: as `read`."""
        with _file_of(manifest, file):
            self._reader.head(self._path_of(manifest, file))

    def _path_of(self, manifest: Manifest, file: InventoryFile) -> str:
        """Return the path of `file` relative to the inventory's folder.

        The manifest names the file by its key in the bucket to which S3 delivered the inventory. The inventory's folder
        is the folder with which this key begins, or a copy of that folder. So the last segments of the folder's URL
        must equal the first segments of the key.
        """
        _, _, location = self.url.partition("://")
        folder = location.rstrip("/").split("/")[1:]  # without the bucket
        key = file.key.split("/")
        for start in range(len(folder)):
            depth = len(folder) - start
            if key[:depth] == folder[start:] and not {"", ".", ".."} & set(key[depth:]):
                return "/".join(key[depth:])
        raise CorruptFile(
            f"{manifest.name}: its file {file.key!r} is not in the inventory's folder {self.url}. The file was "
            f"not read and nothing was deleted. Set `inventory` to the folder with which the key begins, or to a copy "
            f"of this folder with the same path."
        )


@contextmanager
def _file_of(manifest: Manifest, file: InventoryFile) -> Iterator[None]:
    """Replace an ObjectMissing from the `with` block with one that names the file and its manifest."""
    try:
        yield
    except ObjectMissing:
        raise ObjectMissing(
            f"{manifest.name}: its file {file.key!r} is missing. Nothing was deleted. Wait for the next "
            "delivery, or remove `inventory` so that the store is listed."
        ) from None


def addresses_below(batch: pa.RecordBatch, namespace: str) -> pa.RecordBatch:
    """Return the rows of `batch` in `namespace`, as rows of the table `storage_inventory`.

    Addresses are relative to `namespace` (`s3://bucket/prefix`). The result leaves out other buckets, other prefixes
    (`orchard` does not contain `orchards/x`), `_lakefs/`, and the marker object of the namespace's folder.

    Raises:
        ConfigurationError: `namespace` is not in Amazon S3.
    """
    bucket, prefix = bucket_and_prefix(namespace)
    own = pc.and_(pc.equal(batch["bucket"], pa.scalar(bucket)), pc.starts_with(batch["key"], prefix))
    batch = batch.filter(own)
    address = pc.utf8_slice_codeunits(batch["key"], len(prefix))
    source = pa.repeat(pa.scalar("inventory", pa.string()), len(batch))
    columns = [address, batch["size"], batch["last_modified"], batch["etag"], source]
    rows = pa.RecordBatch.from_arrays(columns, schema=STORAGE_INVENTORY.schema)
    is_internal = pc.starts_with(address, f"{INTERNAL}/")
    return rows.filter(pc.and_(pc.not_equal(address, pa.scalar("")), pc.invert(is_internal)))


def bucket_and_prefix(namespace: str) -> tuple[str, str]:
    """Return the bucket of an `s3://` namespace and the prefix of its keys. The prefix is empty or ends with a slash.

    Raises:
        ConfigurationError: `namespace` is not in Amazon S3.
    """
    scheme, _, location = canonical_namespace(namespace).partition("://")
    bucket, _, path = unquote(location).partition("/")  # the store decodes a URL, too
    if scheme != "s3" or not bucket:
        raise ConfigurationError(
            f"{namespace}: an S3 inventory lists s3:// namespaces only. Nothing was read or deleted. "
            f"Remove `inventory` from the configuration of the repository, so that the store itself is listed."
        )
    return bucket, f"{path}/" if path else ""


def require_bucket_listed(manifests: Sequence[Manifest], namespace: str) -> None:
    """Refuse inventories if none of them lists the namespace's bucket. Otherwise the bucket would seem to be empty.

    Raises:
        ConfigurationError: no inventory lists the bucket, or `namespace` is not in Amazon S3.
    """
    bucket, _ = bucket_and_prefix(namespace)
    if all(manifest.source_bucket != bucket for manifest in manifests):
        listed = ", ".join(sorted({manifest.source_bucket for manifest in manifests})) or "nothing"
        raise ConfigurationError(
            f"{namespace}: the repository's inventories list {listed}, not the bucket {bucket!r}. Nothing was deleted. "
            f"Set `inventory` to the folder of an inventory of that bucket: `…/{bucket}/<inventory>`."
        )


_FILES = pa.schema([("inventory", pa.int64()), ("key", pa.string()), ("size", pa.int64()), ("md5", pa.string())])


@dataclass(frozen=True, slots=True)
class Delivered:
    """The objects of the namespace in delivered inventories. `created_at`: the start of the oldest scan (UTC)."""

    frame: DataFrame
    created_at: datetime


def delivered_inventory(spark: SparkSession, repository: Repository) -> Delivered:
    """Return the objects of the newest complete delivery of each inventory of the repository.

    If one or several inventories list an object several times, the row with the newest `last_modified` counts.
    Errors: ObjectMissing when an inventory has no complete delivery; ConfigurationError when no inventory lists the
    bucket of the repository, or `inventory.format` is wrong; CorruptFile when a manifest is corrupt. Executors raise
    the errors of files: see `Inventory.read`.
    """
    opened = [
        (access, Inventory(access).newest_manifest(expected)) for access, expected in inventory_accesses(repository)
    ]
    location = inventoried_location(repository)
    require_bucket_listed([manifest for _, manifest in opened], location)
    # The files are passed as rows, not in the closure: Spark writes a large closure to disk, including its secrets.
    files = [
        {"inventory": number, **asdict(file)} for number, (_, manifest) in enumerate(opened) for file in manifest.files
    ]
    rows = from_arrow(spark, pa.Table.from_pylist(files, _FILES))
    without_files = [(access, replace(manifest, files=())) for access, manifest in opened]
    listed = on_workers(rows.repartition(read_tasks(spark)), _reader(without_files, location), STORAGE_INVENTORY.schema)
    newest = F.max_by(F.struct(*STORAGE_INVENTORY.schema.names), "last_modified").alias("row")
    frame = listed.repartition(_tasks(spark, opened), "address").groupBy("address").agg(newest).select("row.*")
    return Delivered(frame, min(manifest.created_at for _, manifest in opened))


def _tasks(spark: SparkSession, opened: Sequence[tuple[StoreAccess, Manifest]]) -> int:
    """Return the number of tasks that sort the rows of all files."""
    size = sum(file.size for _, manifest in opened for file in manifest.files)
    return max(read_tasks(spark), min(size // _BYTES_OF_TASK, _MOST_TASKS))


def inventory_accesses(repository: Repository) -> list[tuple[StoreAccess, str]]:
    """Return the folder and the configured format of each inventory of the repository."""
    return [
        (StoreAccess(url, options, _names_of(number, settings)), settings.format)
        for number, (settings, url, options) in enumerate(repository.inventories())
    ]


def _names_of(number: int, settings: InventorySettings) -> SettingNames:
    inventory, options = f"inventory[{number}]", "storage_options"
    return SettingNames(f"{inventory}.url", options if settings.storage_options is None else f"{inventory}.{options}")


def inventoried_location(repository: Repository) -> str:
    """Return the URL whose bucket the inventories of the repository must list.

    Objects are deleted in the storage, so the inventory must list the storage. A storage that is not in S3 is a copy or
    a mount of the namespace, so the inventory must list the namespace.
    """
    return repository.storage if repository.storage.startswith("s3://") else repository.namespace


def _reader(opened: Sequence[tuple[StoreAccess, Manifest]], namespace: str):  # type: ignore[no-untyped-def]
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inventories = [(Inventory(access), manifest) for access, manifest in opened]
        for batch in batches:
            for row in batch.to_pylist():
                inventory, manifest = inventories[row.pop("inventory")]
                for rows in inventory.read(manifest, InventoryFile(**row)):
                    yield addresses_below(rows, namespace)

    return read
