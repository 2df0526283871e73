"""Damaged and crafted files never make compiled code read or write outside its arrays."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def fuzz(rounds: int, seed: int, **environment: str) -> str:
    """Return what the program prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.decoding.fuzz_kernels", str(rounds), str(seed)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:] + done.stdout[-2_000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_file_makes_compiled_code_read_or_write_outside_its_arrays(seed: int, tmp_path: Path) -> None:
    output = fuzz(12_000, seed, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    values, _, refused, _ = output.split()
    assert int(values) > 100
    assert int(refused) > 10_000


@pytest.mark.slow
def test_the_fuzz_test_calls_every_kernel() -> None:
    source = ast.parse((ROOT / "retention_assets" / "decoding" / "kernels.py").read_text(encoding="utf-8"))
    compiled = ("kernel(", "register_jitable")
    kernels = {
        one.name
        for one in source.body
        if isinstance(one, ast.FunctionDef)
        and any(ast.unparse(decorator).startswith(compiled) for decorator in one.decorator_list)
    }
    assert len(kernels) > 10
    assert kernels <= set(fuzz(120, 1, NUMBA_DISABLE_JIT="1").split())
