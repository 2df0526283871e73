"""The benchmark of the reader of ranges runs with the package as it is now. It compares the rows of both readers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "ranges.py"


@pytest.mark.long
def test_the_benchmark_of_ranges_reads_the_same_rows_with_both_readers() -> None:
    command = [sys.executable, str(BENCHMARK), "--json", "--entries", "50000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ratio_to_plain"] > 0
