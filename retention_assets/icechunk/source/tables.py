"""Decodes snapshot files and manifests of Icechunk into rows for `TableCache`.

From a snapshot file only the list of manifests is used. This list never changes, even when format 1 rewrites the file.
Source: docs/icechunk-formats.md, "Snapshots" and "Manifests".
"""

import numpy as np
import pyarrow as pa

from retention_assets.icechunk.formats.ids import encode_id, encode_ids, id_bytes, ids_array
from retention_assets.icechunk.formats.manifests import read_manifest_chunks
from retention_assets.icechunk.formats.paths import MANIFESTS, SNAPSHOTS
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.tables import CACHED_MANIFESTS, CACHED_SNAPSHOTS
from retention_assets.warehouse.table_cache import FILE_BYTES, Kind, on_first_row

SNAPSHOT_MANIFESTS = pa.schema(
    [
        ("snapshot_id", pa.string()),
        ("manifest_id", pa.string()),
        ("size", pa.int64()),  # bytes of the manifest's file
        ("chunk_refs", pa.int64()),  # number of the manifest's chunk refs of all kinds
        FILE_BYTES,
    ]
)
# One row for each chunk and each location that a manifest names. A manifest that names none has one row, with null in
# both columns. The first row of a manifest has its counts. On its other rows they are 0.
MANIFEST_CHUNKS = pa.schema(
    [
        ("manifest_id", pa.string()),
        ("chunk_id", pa.string()),
        ("location", pa.string()),
        ("native", pa.int64()),
        ("virtual", pa.int64()),
        ("inline", pa.int64()),
        FILE_BYTES,
    ]
)


def snapshot_manifests() -> Kind:
    """Return the cache kind whose rows are the manifests of each snapshot, without duplicates."""

    def decode(content: bytes, name: str, snapshot_id: str) -> pa.RecordBatch:
        files = list({one.id: one for one in read_snapshot(content, name).manifests}.values())
        columns = [
            pa.repeat(snapshot_id, len(files)),
            pa.array([encode_id(one.id) for one in files], pa.string()),
            pa.array([one.size_bytes for one in files], pa.int64()),
            pa.array([one.num_chunk_refs for one in files], pa.int64()),
            on_first_row(len(content), len(files)),
        ]
        return pa.record_batch(columns, schema=SNAPSHOT_MANIFESTS)

    return Kind(CACHED_SNAPSHOTS, "snapshot_id", SNAPSHOT_MANIFESTS, decode, SNAPSHOTS.rstrip("/"))


def manifest_chunks() -> Kind:
    """Return the cache kind whose rows are the chunks and locations that each manifest names, without duplicates."""

    def decode(content: bytes, name: str, manifest_id: str) -> pa.RecordBatch:
        refs = read_manifest_chunks(content, name)
        chunks, locations = _distinct(refs.chunk_ids), refs.locations.unique().cast(pa.string())
        nothing = 0 if len(chunks) or len(locations) else 1
        rows = len(chunks) + len(locations) + nothing
        counts = (len(refs.chunk_ids), len(refs.locations), refs.inline, len(content))
        columns = [
            pa.repeat(manifest_id, rows),
            pa.concat_arrays([chunks, pa.nulls(len(locations) + nothing, pa.string())]),
            pa.concat_arrays([pa.nulls(len(chunks), pa.string()), locations, pa.nulls(nothing, pa.string())]),
            *(on_first_row(count, rows) for count in counts),
        ]
        return pa.record_batch(columns, schema=MANIFEST_CHUNKS)

    return Kind(CACHED_MANIFESTS, "manifest_id", MANIFEST_CHUNKS, decode, MANIFESTS.rstrip("/"))


def _distinct(ids: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return the distinct ids as text."""
    rows = np.ascontiguousarray(id_bytes(ids)).view("V12")[:, 0] if len(ids) else np.empty(0, "V12")
    return encode_ids(ids_array(np.unique(rows).view(np.uint8).reshape(-1, 12)))
