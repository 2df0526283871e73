"""Damage to every kind of file, outside and inside its compression: readers return a value or raise CorruptFile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.manifests import ManifestChunks, read_manifest_chunks
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.snapshots import read_snapshot
from tests.icechunk_repositories import FORMATS, HEADER, build_varied, decoded, encoded

EXTREMES = (0, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class File:
    """A real file and its reader. It has a label instead of its path, since the path would give the expected id."""

    label: str
    content: bytes
    read: Callable[[bytes, str], Any]

    def try_reading(self, content: bytes) -> None:
        """Read damaged content. A result must be complete, and an error must be CorruptFile with the location."""
        try:
            value = self.read(content, self.label)
        except CorruptFile as error:
            assert str(error).startswith(f"{self.label}: ")
            return
        if isinstance(value, ManifestChunks):
            value.chunk_ids.validate(full=True)
            value.locations.validate(full=True)

    def with_body(self, body: bytes) -> bytes:
        return self.content[:HEADER] + encoded(body)


def rewritten(content: bytes, name: str) -> bytes:
    """Write the value again. Return its content, or the reason why it cannot be written."""
    return write_repo(read_repo(content, name))


READERS: dict[str, Callable[[bytes, str], Any]] = {
    "snapshots": read_snapshot,
    "manifests": read_manifest_chunks,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    """Two files of each kind of each format, small and large, and repo objects."""
    found: list[File] = []
    for spec_version in FORMATS:
        directory = tmp_path_factory.mktemp("icechunk") / "damaged"
        build_varied(directory, spec_version)
        for folder, reader in READERS.items():
            by_size = sorted((directory / folder).iterdir(), key=lambda path: path.stat().st_size)
            found += [File(f"{folder}-{spec_version}", path.read_bytes(), reader) for path in (by_size[0], by_size[-1])]
    found.append(File("repo", (directory / "repo").read_bytes(), rewritten))
    return found


SEEDS = st.integers(0, 2**32)


@given(seed=SEEDS, data=st.data())
def test_changed_bytes_of_a_file_give_a_value_or_our_error(files: list[File], seed: int, data: st.DataObject) -> None:
    file = files[seed % len(files)]
    file.try_reading(damaged(file.content, data))


@given(seed=SEEDS, data=st.data())
def test_changed_bytes_before_compression_give_a_value_or_our_error(
    files: list[File], seed: int, data: st.DataObject
) -> None:
    file = files[seed % len(files)]
    file.try_reading(file.with_body(damaged(decoded(file.content), data)))


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """Flip bytes, or replace a piece by another one."""
    last = len(content) - 1
    # the vtables and offsets that lead everywhere are at the beginning and at the end
    anywhere = st.integers(0, last) | st.integers(0, min(last, 200)) | st.integers(max(0, last - 200), last)
    if data.draw(st.booleans()):
        changed = bytearray(content)
        for position in data.draw(st.lists(anywhere, min_size=1, max_size=4)):
            changed[position] ^= data.draw(st.integers(1, 255))
        return bytes(changed)
    start, end = data.draw(anywhere), data.draw(anywhere)
    return content[:start] + data.draw(st.binary(max_size=16)) + content[end:]


def test_a_file_that_is_truncated_anywhere_is_refused(files: list[File]) -> None:
    for file in files:
        step = max(1, len(file.content) // 200)
        for length in range(0, len(file.content), step):
            with pytest.raises(CorruptFile):
                file.read(file.content[:length], file.label)


def test_a_truncated_flatbuffer_gives_a_value_or_our_error(files: list[File]) -> None:
    for file in files:
        body = decoded(file.content)
        for length in range(0, len(body), max(1, len(body) // 60)):
            file.try_reading(file.with_body(body[:length]))


def extremes(body: bytes) -> Iterator[bytes]:
    """The body with each of its first and last numbers replaced by extreme ones."""
    places = [*range(0, min(len(body) - 4, 100), 4), *range(max(0, len(body) // 4 * 4 - 100), len(body) - 4, 4)]
    for place in places:
        for number in EXTREMES:
            yield body[:place] + number.to_bytes(4, "little") + body[place + 4 :]


def test_extreme_numbers_give_a_value_or_our_error(files: list[File]) -> None:
    for file in files:
        if len(file.content) < 3000:
            for body in extremes(decoded(file.content)):
                file.try_reading(file.with_body(body))


@pytest.mark.parametrize("content", [b"", b"Ichk", bytes(64), b"\xff" * 64, b"\x08\0\0\0Ichk"], ids=repr)
def test_bytes_that_are_no_flatbuffer_are_refused(files: list[File], content: bytes) -> None:
    for file in files:
        with pytest.raises(CorruptFile):
            file.read(file.with_body(content), file.label)


def test_the_files_that_these_tests_damage_are_read_when_they_are_intact(files: list[File]) -> None:
    assert {file.label for file in files} == {
        *(f"{folder}-{spec_version}" for folder in READERS for spec_version in FORMATS),
        "repo",
    }
    for file in files:
        file.read(file.content, file.label)
