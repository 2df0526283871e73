"""Selects the objects of an inventory that lie in a storage namespace, with their addresses relative to it."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import canonical_namespace
from retention_assets.errors import ConfigurationError
from retention_assets.inventory.manifest import Manifest
from retention_assets.tables import STORAGE_INVENTORY

_METADATA = "_lakefs/"


def addresses_below(batch: pa.RecordBatch, namespace: str) -> pa.RecordBatch:
    """Return the rows of `batch` that lie in `namespace`, as rows of the table `storage_inventory`.

    Addresses are relative to `namespace` (`s3://bucket/prefix`). The result leaves out other buckets, other prefixes
    (`orchard` does not contain `orchards/x`), `_lakefs/`, and the marker object of the namespace's own folder.

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
    return rows.filter(pc.and_(pc.not_equal(address, pa.scalar("")), pc.invert(pc.starts_with(address, _METADATA))))


def bucket_and_prefix(namespace: str) -> tuple[str, str]:
    """Return the bucket of an `s3://` namespace and the prefix of its keys. The prefix is empty or ends with a slash.

    Raises:
        ConfigurationError: `namespace` is not in Amazon S3.
    """
    scheme, _, location = canonical_namespace(namespace).partition("://")
    bucket, _, path = location.partition("/")
    if scheme != "s3" or not bucket:
        raise ConfigurationError(
            f"{namespace}: an S3 inventory lists s3:// namespaces only. Nothing was read or deleted. "
            f"List the store itself instead: remove the repository's inventory."
        )
    return bucket, f"{path}/" if path else ""


def require_bucket_listed(manifests: Sequence[Manifest], namespace: str) -> None:
    """Refuse inventories when none of them lists the namespace's bucket: the bucket would look empty.

    Raises:
        ConfigurationError: no inventory lists the bucket, or `namespace` is not in Amazon S3.
    """
    bucket, _ = bucket_and_prefix(namespace)
    if all(manifest.source_bucket != bucket for manifest in manifests):
        listed = ", ".join(sorted({manifest.source_bucket for manifest in manifests})) or "nothing"
        raise ConfigurationError(
            f"{namespace}: the repository's inventories list {listed}, not the bucket {bucket!r}. Nothing was deleted. "
            f"Name the folder of an inventory of that bucket: `…/{bucket}/<inventory>`."
        )
