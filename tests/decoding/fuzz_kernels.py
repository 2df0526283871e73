"""Fuzzes every reader that runs compiled code with damaged and crafted files, with the bounds checks of numba.

Run it with `NUMBA_BOUNDSCHECK=1` and a fresh `NUMBA_CACHE_DIR`: numba's cache does not tell checked code from
unchecked code. `test_fuzz_kernels.py` does both.

    python -m tests.decoding.fuzz_kernels ROUNDS SEED

A round ends in a value or in CorruptFile. Anything else ends the program with the seed of the round.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np

from retention_assets.decoding import kernels
from retention_assets.errors import CorruptFile
from retention_assets.icechunk.formats.manifests import read_manifest_chunks
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.lakefs.formats import sstable
from retention_assets.lakefs.formats.ranges import read_metarange, read_range
from retention_assets.lakefs.formats.references import read_branches, read_commits, read_tags
from tests.icechunk_repositories import FORMATS, HEADER, build_varied, decoded, encoded
from tests.lakefs.formats.tables import SSTable, assembled, data_block, raw_block, read_table, real, record
from tests.lakefs_tables import TRAILER, graveler_value, uvarint

TABLES = ("range.sst", "ok1.sst", "metarange.sst", "56569996.sst")
READERS: tuple[Callable[[bytes, str], Any], ...] = (
    read_table, read_range, read_metarange, read_commits, read_branches, read_tags,
)  # fmt: skip
ICECHUNK: dict[str, tuple[Callable[[bytes, str], Any], ...]] = {
    "manifests": (read_manifest_chunks,),
    "snapshots": (read_snapshot,),
}
LENGTHS = (0, 0, 0, 1, 2, 7, 8, 9, 15, 16, 63, 64, 127, 128, 1_000, 5_000)
EXTREMES = (0, 1, 127, 128, 1 << 14, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
MOST = 40_000  # bytes of a file that is damaged again and again

type Round = tuple[tuple[Callable[[bytes, str], Any], ...], bytes]


class AnyChecksum(int):
    """A checksum that equals every other one, so that readers also read damaged data."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class NoChecksums:
    """Replaces the checksum library."""

    @staticmethod
    def value(_content: bytes) -> AnyChecksum:
        return AnyChecksum()


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Change bytes, replace pieces by other pieces, or insert large numbers."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(changed) + 1)
        end = min(len(changed), start + chance.choice(LENGTHS))
        match chance.randrange(5):
            case 0 if start < len(changed):
                changed[start] ^= chance.randint(1, 255)
            case 1:
                changed[start:end] = bytes(end - start)
            case 2:
                changed[start:start] = changed[start:end]
            case 3:
                changed[start:end] = uvarint(chance.choice(EXTREMES))
            case _:
                changed[start:end] = b""
    return bytes(changed)


def crafted_block(chance: random.Random) -> tuple[bytes, int]:
    """Return a block with consistent lengths and keys of any length, and its number of records."""
    content, previous = b"", 0
    count = chance.randint(1, 40)
    for _ in range(count):
        shared = chance.randint(0, min(previous, chance.choice(LENGTHS)))
        suffix = chance.randbytes(chance.choice(LENGTHS)) + (TRAILER if chance.random() < 0.7 else b"")
        value = chance.choice([b"", graveler_value(b"i", b"d"), chance.randbytes(9)])
        content += record(shared, suffix, value)
        previous = shared + len(suffix)
    return raw_block(content), count


def ascending_block(chance: random.Random, message: bytes) -> bytes:
    """Return a block of ascending keys. Its values are parts of the damaged `message`."""
    keys = sorted({chance.randbytes(chance.choice(LENGTHS)) for _ in range(4)})
    return assembled(
        [data_block((key, graveler_value(b"i" * 32, damaged(message, chance))) for key in keys)],
        count=len(keys),
        properties={"type": chance.choice([b"ranges", b"metaranges"])},
    )


def rounds(chance: random.Random, bodies: dict[str, list[tuple[bytes, bytes]]]) -> Iterator[Round]:
    """Yield readers and their input without end."""
    tables = [real(name) for name in TABLES]
    small = [table for table in tables if len(table) < MOST]
    read: list[SSTable] = [read_table(table, "real") for table in small]
    messages = [value.as_py() for table in read for value in table.values[:20]]
    stored = []  # real records in blocks that nothing compresses, so that damage reaches them
    for table in read:
        count = min(len(table.keys), 60)
        columns = (table.keys[:count], table.identities[:count], table.values[:count])
        records = zip(*(column.to_pylist() for column in columns), strict=True)
        stored.append((data_block((key, graveler_value(name, value)) for key, name, value in records), count))
    while True:
        yield READERS, damaged(chance.choice(small), chance)
        payload, count = chance.choice(stored)
        yield READERS, assembled([damaged(payload, chance)], count=max(0, count + chance.choice([0, 0, 0, -1, 1])))
        payload, count = crafted_block(chance)
        yield READERS, assembled([payload], count=count)
        yield READERS, assembled([damaged(payload, chance)], count=count)
        yield READERS, ascending_block(chance, chance.choice(messages))
        kind = chance.choice(list(bodies))
        header, body = chance.choice(bodies[kind])
        yield ICECHUNK[kind], header + encoded(damaged(body, chance))


def icechunk_bodies() -> dict[str, list[tuple[bytes, bytes]]]:
    """Return header and decompressed body of real files of each kind and format."""
    found: dict[str, list[tuple[bytes, bytes]]] = {kind: [] for kind in ICECHUNK}
    for spec_version in FORMATS:
        with tempfile.TemporaryDirectory() as directory:
            build_varied(Path(directory) / "repository", spec_version)
            for kind in ICECHUNK:
                files = Path(directory, "repository", kind).iterdir()
                contents = sorted((path.read_bytes() for path in files), key=len)
                chosen = [content for content in (contents[0], contents[-1]) if len(content) < MOST]
                found[kind] += [(content[:HEADER], decoded(content)) for content in chosen]
    return found


def require_checks() -> None:
    """Exit unless compiled code checks its bounds."""
    starts = np.array([0, 0, 0], np.int64)
    try:  # fewer lengths than starts: the kernel itself relies on their being as many
        kernels.inspect_blocks(np.zeros(9, np.uint8), 9, starts, starts[:1], np.zeros((3, 3), np.int64))
    except IndexError:
        return
    sys.exit(f"compiled code does not check its bounds: NUMBA_BOUNDSCHECK is {numba.config.BOUNDSCHECK}")


def run_kernels() -> set[str]:
    """Return a set that gets the name of each kernel that runs from now on. Kernels run uncompiled."""
    found: set[str] = set()

    def called(frame: Any, event: str, _value: Any) -> None:
        if event == "call" and frame.f_code.co_filename == kernels.__file__:
            found.add(frame.f_code.co_name)

    sys.setprofile(called)
    return found


def main() -> None:
    """Run so many rounds, and print how many ended in a value and how many in CorruptFile.

    With `NUMBA_DISABLE_JIT=1`, print instead the names of the kernels that ran.
    """
    most, seed = int(sys.argv[1]), int(sys.argv[2])
    interpreted = bool(numba.config.DISABLE_JIT)
    if not interpreted:
        require_checks()
    bodies = icechunk_bodies()
    chance = random.Random(seed)
    supply = rounds(chance, bodies)
    values = refused = 0
    ran = run_kernels() if interpreted else set()
    for number in range(most):
        readers, content = next(supply)
        sstable.google_crc32c = NoChecksums  # type: ignore[assignment]  # only of the readers: the writer needs its own
        for reader in readers:
            try:
                reader(content, "x")
                values += 1
            except CorruptFile:
                refused += 1
            except Exception as error:
                sys.exit(f"seed {seed}, round {number}, {reader.__name__}: {type(error).__name__}: {error}")
    print(" ".join(sorted(ran)) if interpreted else f"{values} values, {refused} refused")  # noqa: T201


if __name__ == "__main__":
    main()
