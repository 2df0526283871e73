"""Reads manifests of both formats: where the bytes of each chunk are. Source: Icechunk facts 2, Manifest; facts 7."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.core.columns import text_column
from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.checks import require_named
from retention_assets.icechunk.formats.envelope import FileType, open_file
from retention_assets.icechunk.formats.flat_columns import TableRows, rows_of
from retention_assets.icechunk.formats.flat_reader import UINT8, FlatBuffer, Table, required
from retention_assets.icechunk.formats.ids import ID, NODE_ID, ids_array
from retention_assets.icechunk.formats.locations import decompressed_locations

NATIVE, VIRTUAL, INLINE = "native", "virtual", "inline"
CHUNK_REF_SCHEMA = pa.schema(
    [
        pa.field("node_id", NODE_ID, nullable=False),  # of the array
        pa.field("kind", pa.string(), nullable=False),  # native, virtual or inline
        pa.field("chunk_id", ID),  # names the object `chunks/<id>`; only native refs have one
        pa.field("offset", pa.int64(), nullable=False),  # bytes; where the chunk begins in its object
        pa.field("length", pa.int64(), nullable=False),  # bytes
        pa.field("location", pa.string()),  # a URL, or `vcc://` with a container's name; only virtual refs have one
    ]
)

_ID, _ARRAYS, _DICTIONARY, _COMPRESSION, _EXTRA = range(5)
_NODE, _REFS, _ARRAY_EXTRA = range(3)
_INLINE, _OFFSET, _LENGTH, _CHUNK, _LOCATION, _COMPRESSED, _REF_EXTRA = 1, 2, 3, 4, 5, 8, 9
_NO_DICTIONARY, _ZSTD_DICTIONARY = 0, 1  # ways of compression; a file that names none uses the second

type Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ManifestChunks:
    """The part of a manifest that garbage collection needs, with one row per ref; several refs may share a chunk."""

    manifest_id: bytes
    chunk_ids: pa.FixedSizeBinaryArray  # of native refs, as `ID`
    locations: pa.StringArray  # of virtual refs
    inline: int  # number of refs whose bytes are in the manifest itself

    @property
    def num_chunk_refs(self) -> int:
        """The number of refs of all kinds; each snapshot that lists this manifest states the expected number."""
        return len(self.chunk_ids) + len(self.locations) + self.inline


@dataclass(frozen=True, slots=True)
class _Refs:
    """The refs of all arrays; a ref has the first kind that applies, as in icechunk: native, virtual, inline."""

    root: Table
    rows: TableRows
    arrays: TableRows
    counts: npt.NDArray[np.int64]  # refs of each array
    native: Mask
    compressed: Mask  # virtual, with a compressed location
    plain: Mask  # virtual, with a plain location
    inline: Mask


def read_manifest_chunks(content: bytes, name: str) -> ManifestChunks:
    """Return the chunks that the manifest file `content` refers to.

    `name` is the path of the file. If the last part of the path is an id, it must be the manifest's id.

    Raises:
        CorruptFile: as `open_file`; or the manifest contradicts its name or itself, or has a ref of an unknown kind.
    """
    refs = _open_refs(content, name)
    return ManifestChunks(
        manifest_id=required(refs.root.inline(_ID, 12), name, "its id"),
        chunk_ids=ids_array(refs.rows.inline(_CHUNK, 12)[refs.native]),
        locations=_locations(refs).drop_null(),
        inline=int(refs.inline.sum()),
    )


def read_manifest(content: bytes, name: str) -> pa.RecordBatch:
    """Return every chunk ref of the manifest file `content` as `CHUNK_REF_SCHEMA`, in the file's order.

    Raises:
        CorruptFile: as `read_manifest_chunks`.
    """
    refs = _open_refs(content, name)
    _, inline_lengths = refs.rows.vectors(_INLINE, 1)
    kinds = pa.DictionaryArray.from_arrays(refs.inline * 2 + (refs.compressed | refs.plain), [NATIVE, VIRTUAL, INLINE])
    refs.arrays.require_field(_NODE, "the id of an array")
    columns = [
        ids_array(np.repeat(refs.arrays.inline(_NODE, 8), refs.counts, axis=0)),
        kinds.dictionary_decode(),
        ids_array(refs.rows.inline(_CHUNK, 12), refs.native),
        pa.array(np.where(refs.inline, 0, refs.rows.numbers(_OFFSET, np.uint64))),
        pa.array(np.where(refs.inline, inline_lengths, refs.rows.numbers(_LENGTH, np.uint64))),
        _locations(refs),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=CHUNK_REF_SCHEMA)


def _open_refs(content: bytes, name: str) -> _Refs:
    _, body = open_file(content, FileType.MANIFEST, name)
    root = FlatBuffer(body, name).root()
    root.require_known(_EXTRA + 1, "the manifest")
    require_named(required(root.inline(_ID, 12), name, "its id"), name)
    arrays = rows_of(root, _ARRAYS, "its arrays")
    arrays.require_known(_ARRAY_EXTRA + 1, "an array's entry")
    arrays.require_field(_REFS, "the list of an array's refs")
    rows, counts = arrays.rows(_REFS)
    rows.require_known(_REF_EXTRA + 1, "a chunk ref")
    left = np.ones(len(rows), np.bool_)
    masks = []
    for slot in (_CHUNK, _COMPRESSED, _LOCATION, _INLINE):
        masks.append(left & (rows.places(slot) > 0))
        left = left & ~masks[-1]
    if left.any():
        raise corrupt(name, f"its chunk ref {int(left.argmax()):,} is neither native nor virtual nor inline")
    return _Refs(root, rows, arrays, counts, *masks)


def _locations(refs: _Refs) -> pa.StringArray:
    """Return the location of each virtual ref; null for the other refs."""
    name = refs.root.buffer.name
    if not (refs.compressed | refs.plain).any():
        return pa.nulls(len(refs.rows), pa.string())
    locations = text_column(refs.rows.pieces(_LOCATION), name, "a chunk's location")
    locations = locations if refs.plain.all() else pa.compute.if_else(refs.plain, locations, None)
    if not refs.compressed.any():
        return locations
    way = refs.root.number(_COMPRESSION, UINT8, default=_ZSTD_DICTIONARY)
    dictionary = refs.root.octets(_DICTIONARY)
    if way != _ZSTD_DICTIONARY or dictionary is None:
        raise corrupt(name, "the locations in it are compressed, and what they were compressed with is missing")
    frames = refs.rows.pieces(_COMPRESSED)
    return decompressed_locations(frames, dictionary, refs.compressed, name)
