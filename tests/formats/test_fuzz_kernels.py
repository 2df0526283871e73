"""Damaged and crafted files never make compiled code read or write outside its arrays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzz(rounds: int, seed: int, cache: Path) -> tuple[int, int]:
    """Return how many reads ended in a value, and how many in CorruptFile."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.fuzz_kernels", str(rounds), str(seed)],
        cwd=ROOT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    values, _, refused, _ = done.stdout.replace(",", "").split()
    return int(values), int(refused)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_file_makes_compiled_code_leave_its_arrays(seed: int, tmp_path: Path) -> None:
    values, refused = fuzz(12_000, seed, tmp_path)
    assert values > 100
    assert refused > 10_000
