import pyarrow as pa
import pytest

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats import envelope
from retention_assets.icechunk.formats.envelope import HEADER, MAGIC, FileType, open_file, seal
from tests.icechunk.formats.conftest import Varied

BODY = b"a flatbuffer " * 1000


def changed(content: bytes, position: int, value: bytes) -> bytes:
    return content[:position] + value + content[position + len(value) :]


FILE = seal(BODY, FileType.SNAPSHOT, spec_version=2)


def test_a_sealed_file_can_be_opened() -> None:
    header, body = open_file(FILE, FileType.SNAPSHOT, "x")
    assert body == BODY
    assert (header.spec_version, header.file_type, header.written_by) == (2, FileType.SNAPSHOT, "retention_assets")


@pytest.mark.parametrize(
    ("folder", "file_type"),
    [
        ("snapshots", FileType.SNAPSHOT),
        ("manifests", FileType.MANIFEST),
        ("transactions", FileType.TRANSACTION_LOG),
    ],
)
def test_the_header_of_a_real_file_has_its_type_and_version(varied: Varied, folder: str, file_type: FileType) -> None:
    for name, content in varied.files(folder).items():
        header, _ = open_file(content, file_type, name)
        assert (header.spec_version, header.file_type) == (varied.spec_version, file_type)
        assert header.written_by.startswith("ic-2.")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        pytest.param(b"", "do not begin as an icechunk file does", id="empty"),
        pytest.param(FILE[: HEADER - 1], "do not begin as an icechunk file does", id="half_a_header"),
        pytest.param(changed(FILE, 0, b"J"), "do not begin as an icechunk file does", id="another_magic"),
        pytest.param(changed(FILE, 36, b"\0"), "spec version 0", id="version_zero"),
        pytest.param(changed(FILE, 37, b"\x03"), "file type 3", id="a_file_type_that_icechunk_does_not_write"),
        pytest.param(changed(FILE, 37, b"\x02"), "it is a manifest file, not a snapshot file", id="another_type"),
        pytest.param(changed(FILE, 38, b"\0"), "compression 0 is not zstd", id="not_compressed"),
        pytest.param(FILE[:HEADER], "nothing follows its header", id="no_body"),
        pytest.param(FILE[:-1], "does not decompress", id="cut"),
        pytest.param(FILE + b"more", "does not decompress", id="more_bytes_after_it"),
        pytest.param(changed(FILE, HEADER, b"\0\0"), "does not decompress", id="not_zstd"),
    ],
)
def test_a_truncated_or_damaged_file_is_refused(content: bytes, what: str) -> None:
    with pytest.raises(CorruptFile, match=what) as caught:
        open_file(content, FileType.SNAPSHOT, "x")
    assert str(caught.value).startswith("x: ")


def test_a_newer_spec_version_is_refused_by_name() -> None:
    newer = changed(changed(FILE, 36, b"\x03"), 12, b"ic-9.0.0".ljust(24))
    with pytest.raises(
        CorruptFile, match=r"x: spec version 3, written by 'ic-9.0.0'; this version reads 1 and 2\."
    ) as caught:
        open_file(newer, FileType.SNAPSHOT, "x")
    assert "Use a newer version of retention_assets." in str(caught.value)


@pytest.mark.parametrize("promised", [None, len(BODY)], ids=["of_unknown_size", "of_known_size"])
def test_a_zstd_frame_without_a_content_size_is_read(promised: int | None) -> None:
    if promised is None:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(BODY)
        frame = sink.getvalue().to_pybytes()
    else:
        frame = pa.compress(BODY, "zstd", asbytes=True)
    assert open_file(FILE[:HEADER] + frame, FileType.SNAPSHOT, "x")[1] == BODY


def test_a_small_file_that_decodes_to_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MAX_DECODED", 1 << 20)
    bomb = seal(bytes(4 << 20), FileType.SNAPSHOT, spec_version=2)
    assert len(bomb) < 1000
    with pytest.raises(CorruptFile, match="decodes to more than 1,048,576 bytes"):
        open_file(bomb, FileType.SNAPSHOT, "x")


def test_the_magic_is_what_icechunk_writes() -> None:
    assert MAGIC.hex() == "494345f09fa78a4348554e4b"
