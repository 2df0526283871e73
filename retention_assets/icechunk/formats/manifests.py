"""Reads manifests of both formats: where the bytes of each chunk are.

Source: docs/icechunk-formats.md, "Manifests".
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import zstandard

from retention_assets.decoding.columns import Pieces, text_column
from retention_assets.errors import corrupt
from retention_assets.icechunk.formats.envelope import FileType, open_file
from retention_assets.icechunk.formats.flat_reader import UINT8, FlatBuffer, Table, TableRows, required
from retention_assets.icechunk.formats.ids import ids_array, require_named

MAX_LOCATION = 1024  # bytes; icechunk does not decompress longer locations

_ID, _ARRAYS, _DICTIONARY, _COMPRESSION, _EXTRA = range(5)
_REFS, _ARRAY_EXTRA = 1, 2
_INLINE, _CHUNK, _LOCATION, _COMPRESSED, _REF_EXTRA = 1, 4, 5, 8, 9
_ZSTD_DICTIONARY = 1  # the default compression of locations; 0: no dictionary

type Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ManifestChunks:
    """The part of a manifest that garbage collection needs. Each column has one row per ref; refs may share a chunk."""

    manifest_id: bytes
    chunk_ids: pa.FixedSizeBinaryArray  # of native refs, as `ids.ID`
    locations: pa.StringArray  # of virtual refs: URLs, or `vcc://` with a container's name
    inline: int  # number of refs whose bytes are in the manifest itself


def read_manifest_chunks(content: bytes, name: str) -> ManifestChunks:
    """Return the chunks that the manifest file `content` refers to.

    `name` is the path of the file. If the last part of the path is an id, it must be the manifest's id.

    Raises:
        CorruptFile: as `open_file`; or the manifest contradicts its name or itself, or has a ref of an unknown kind.
    """
    _, body = open_file(content, FileType.MANIFEST, name)
    root = FlatBuffer(body, name).root()
    root.require_known(_EXTRA + 1, "the manifest")
    manifest_id = require_named(required(root.inline(_ID, 12), name, "its id"), name)
    refs = _refs(root)
    left = np.ones(len(refs), np.bool_)
    kinds = []  # a ref has the first kind that applies, as in icechunk
    for slot in (_CHUNK, _COMPRESSED, _LOCATION, _INLINE):
        kinds.append(left & (refs.field_positions(slot) > 0))
        left = left & ~kinds[-1]
    if left.any():
        raise corrupt(name, f"its chunk ref {int(left.argmax()):,} is neither native nor virtual nor inline")
    native, compressed, plain, inline = kinds
    return ManifestChunks(
        manifest_id=manifest_id,
        chunk_ids=ids_array(refs.inline(_CHUNK, 12)[native]),
        locations=_locations(root, refs, plain, compressed),
        inline=int(inline.sum()),
    )


def _refs(root: Table) -> TableRows:
    """Return the refs of all arrays, in the file's order."""
    arrays = root.rows(_ARRAYS, "its arrays")
    arrays.require_known(_ARRAY_EXTRA + 1, "an array's entry")
    arrays.require_field(_REFS, "the list of an array's refs")
    refs, _ = arrays.rows(_REFS)
    refs.require_known(_REF_EXTRA + 1, "a chunk ref")
    return refs


def _locations(root: Table, refs: TableRows, plain: Mask, compressed: Mask) -> pa.StringArray:
    """Return the location of each virtual ref, in the file's order."""
    name = root.buffer.name
    if not (compressed | plain).any():
        return pa.array([], pa.string())
    locations = text_column(refs.pieces(_LOCATION), name, "a chunk's location")
    if compressed.any():
        way = root.number(_COMPRESSION, UINT8, default=_ZSTD_DICTIONARY)
        dictionary = root.octets(_DICTIONARY)
        if way != _ZSTD_DICTIONARY or dictionary is None:
            problem = "it names another compression than zstd, or has no dictionary"
            raise corrupt(name, f"a location in it is compressed, but {problem}")
        unpacked = _decompressed(refs.pieces(_COMPRESSED), dictionary, compressed, name)
        locations = pc.if_else(compressed, unpacked, locations)
    return locations.filter(pa.array(compressed | plain))


def _decompressed(frames: Pieces, dictionary: bytes, wanted: Mask, name: str) -> pa.StringArray:
    """Return the text in each `wanted` frame, and null for other frames.

    Each frame is zstd with the manifest's dictionary.

    Raises:
        CorruptFile: a frame does not decompress to at most `MAX_LOCATION` bytes of UTF-8.
    """
    texts: list[bytes | None] = [None] * len(wanted)
    rows = np.flatnonzero(wanted)
    pieces = zip(rows.tolist(), frames.starts[rows].tolist(), frames.lengths[rows].tolist(), strict=True)
    source = memoryview(frames.source)
    try:
        decompressor = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))
        for row, start, size in pieces:
            frame = source[start : start + size]
            # The decompressor allocates the size that the frame states, even if it exceeds `max_output_size`.
            if zstandard.frame_content_size(frame) > MAX_LOCATION:
                raise corrupt(name, f"the location of chunk ref {row:,} is longer than {MAX_LOCATION:,} bytes")
            texts[row] = decompressor.decompress(frame, max_output_size=MAX_LOCATION, allow_extra_data=False)
        return pa.array(texts, pa.binary()).cast(pa.string())
    except (zstandard.ZstdError, pa.ArrowInvalid) as error:
        raise corrupt(name, f"a chunk's location does not decompress to a text ({error})") from error
