"""Decompresses the locations of virtual chunks in a manifest: one zstd frame each, with the manifest's dictionary."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from retention_assets.core.columns import Pieces
from retention_assets.core.corruption import corrupt

MAX_LOCATION = 1024  # bytes; icechunk decompresses no longer location


def decompressed_locations(
    frames: Pieces, dictionary: bytes, wanted: npt.NDArray[np.bool_], name: str
) -> pa.StringArray:
    """Return the text in each `wanted` frame, and null for other frames; `name` is the manifest's path, for messages.

    Raises:
        CorruptFile: a frame does not decompress to at most `MAX_LOCATION` bytes of UTF-8.
    """
    texts: list[bytes | None] = [None] * len(wanted)
    rows = np.flatnonzero(wanted)
    spans = zip(rows.tolist(), frames.starts[rows].tolist(), frames.lengths[rows].tolist(), strict=True)
    source = memoryview(frames.source)
    try:
        decompressor = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(dictionary))
        for row, start, size in spans:
            frame = source[start : start + size]
            # the decompressor allocates the size that the frame states, even above `max_output_size`
            if zstandard.frame_content_size(frame) > MAX_LOCATION:
                raise corrupt(name, f"the location of chunk ref {row:,} is too long to be true")
            texts[row] = decompressor.decompress(frame, max_output_size=MAX_LOCATION, allow_extra_data=False)
        return pa.array(texts, pa.binary()).cast(pa.string())
    except (zstandard.ZstdError, pa.ArrowInvalid) as error:
        raise corrupt(name, f"a chunk's location does not decompress to a text ({error})") from error
