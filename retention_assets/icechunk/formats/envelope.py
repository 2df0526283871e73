"""The envelope of every metadata file: a header of 39 bytes, then one zstd frame.

Source: docs/icechunk-formats.md, "Header".
"""

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from retention_assets.errors import CorruptFile, corrupt

MAGIC = "ICE🧊CHUNK".encode()
HEADER = 39  # bytes
NEWEST_SPEC = 2
MAX_DECODED = (1 << 31) - 1  # bytes; the limit of the offsets in a flatbuffer, and of icechunk's reader
WRITER = "retention_assets"  # the name of the writer in our files; icechunk writes `ic-2.3.0`

_NAME = slice(12, 36)
_ZSTD = 1
_LEVEL = 3  # icechunk's default
_PIECE = 1 << 20  # bytes decoded at a time, because a frame need not state its decoded size


class FileType(IntEnum):
    """The type of a metadata file, by its code in the header."""

    SNAPSHOT = 1
    MANIFEST = 2
    TRANSACTION_LOG = 4
    REPO = 6


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a file's header. The spec version may differ between the files of one repository."""

    written_by: str
    spec_version: int
    file_type: FileType


def unknown_to_us(name: str, what: str) -> CorruptFile:
    """Return the error for a file of a newer writer. The file is not used, because its unknown part may matter."""
    return CorruptFile(
        f"{name}: {what}. The file was not used. Nothing was deleted. Use a newer version of retention_assets."
    )


def open_file(content: bytes, expected: FileType, name: str) -> tuple[Header, bytes]:
    """Return the header and the decompressed body of the metadata file `content`; `name` is its path, for messages.

    Raises:
        CorruptFile: the file is not an icechunk file, is not of the `expected` type, has a newer spec version, is not
            compressed with zstd, is truncated or damaged, or decodes to more than `MAX_DECODED` bytes.
    """
    header = _header(content, name)
    if header.file_type is not expected:
        raise corrupt(name, f"it is a {_words(header.file_type)} file, not a {_words(expected)} file")
    if content[HEADER - 1] != _ZSTD:
        raise corrupt(name, f"its compression {content[HEADER - 1]} is not zstd, and icechunk reads only zstd")
    return header, _decompressed(content, name)


def _header(content: bytes, name: str) -> Header:
    """Return the header, which is the first 39 bytes of the file.

    Raises:
        CorruptFile: the bytes are not an icechunk header, or the spec version or file type is unknown to this version.
    """
    if len(content) < HEADER or not content.startswith(MAGIC):
        raise corrupt(name, f"its {len(content):,} bytes do not begin as an icechunk file does")
    written_by = content[_NAME].decode(errors="replace").rstrip(" \0")
    spec_version, file_type = content[36], content[37]
    if spec_version > NEWEST_SPEC:
        raise unknown_to_us(name, f"spec version {spec_version}, written by {written_by!r}; this version reads 1 and 2")
    if spec_version == 0 or file_type not in FileType:
        raise corrupt(name, f"icechunk does not write files of spec version {spec_version} and file type {file_type}")
    return Header(written_by, spec_version, FileType(file_type))


def seal(body: bytes, file_type: FileType, spec_version: int) -> bytes:
    """Return the file for the flatbuffer `body`: the header and one zstd frame, as icechunk reads them."""
    codes = bytes([spec_version, file_type, _ZSTD])
    return MAGIC + WRITER.encode().ljust(24) + codes + pa.Codec("zstd", _LEVEL).compress(body, asbytes=True)


def _words(file_type: FileType) -> str:
    return file_type.name.lower().replace("_", " ")


def _decompressed(content: bytes, name: str) -> bytes:
    pieces: list[pa.Buffer] = []
    size = 0
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(memoryview(content)[HEADER:]), "zstd")
        while piece := stream.read_buffer(_PIECE):
            pieces.append(piece)
            size += piece.size
            if size > MAX_DECODED:
                raise corrupt(name, f"it decodes to more than {MAX_DECODED:,} bytes, which icechunk itself cannot read")
    except OSError as error:
        raise corrupt(name, f"it does not decompress ({error})") from error
    if not pieces:
        raise corrupt(name, "nothing follows its header")
    return b"".join(pieces)
