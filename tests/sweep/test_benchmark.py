"""The benchmark of sweeps runs with the package as it is now."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sweep.py"


@pytest.mark.slow
def test_the_benchmark_of_sweeps_executes_a_plan_and_prints_the_peak_of_its_process() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--peak-of", "100"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
