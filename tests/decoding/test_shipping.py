"""The readers on a Spark worker that has the package only as a zip, with and without a cache for compiled code."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import retention_assets
from tests.lakefs.formats.tables import BENCH_ID
from tests.saved_repositories import TABLES

PACKAGE = Path(retention_assets.__file__).parent

READ = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from retention_assets.decoding import kernels
from retention_assets.lakefs.formats.ranges import read_range
from retention_assets.lakefs.formats.sstable import open_table
assert ".zip" in kernels.__file__, kernels.__file__
content = Path(sys.argv[2]).read_bytes()
hits = sum(kernels.gather.stats.cache_hits.values()) if hasattr(kernels.gather.stats, "cache_hits") else 0
print(read_range(content, "x").num_rows, open_table(content, "x").content_id, hits)
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a zip, as Spark ships it to executors."""
    target = tmp_path_factory.mktemp("shipped") / "retention_assets.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in PACKAGE.rglob("*.py"):
            archive.write(file, file.relative_to(PACKAGE.parent))
    return target


def read_there(shipped: Path, environment: dict[str, str]) -> tuple[int, str, int]:
    """Read in a new process. Return (rows, content id, kernels taken from the cache)."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_", "PYTHON"))}
    run = subprocess.run(
        [sys.executable, "-I", "-c", READ, str(shipped), str(TABLES / "56569996.sst")],
        env={**clean, **environment},
        cwd=shipped.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows, content_id, hits = run.stdout.split()
    return int(rows), content_id, int(hits)


@pytest.mark.slow
def test_workers_of_another_application_use_the_code_that_the_first_one_compiled(shipped: Path, tmp_path: Path) -> None:
    assert read_there(shipped, {"HOME": str(tmp_path)}) == (13_868, BENCH_ID, 0)
    (tmp_path / "another").mkdir()
    again = shutil.copy(shipped, tmp_path / "another")  # Spark puts the zip elsewhere for each application
    assert read_there(Path(again), {"HOME": str(tmp_path)}) == (13_868, BENCH_ID, 1)
    compiled = list(tmp_path.rglob("*.nbc"))
    assert compiled
    for file in compiled:
        file.write_bytes(b"damaged")
    assert read_there(shipped, {"HOME": str(tmp_path)}) == (13_868, BENCH_ID, 0)


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"HOME": "/dev/null"}, id="no_home"),
        pytest.param({"HOME": "/dev/null", "NUMBA_CACHE_DIR": "/dev/null/cache"}, id="a_cache_that_cannot_be_written"),
    ],
)
@pytest.mark.slow
def test_a_worker_that_cannot_store_compiled_code_still_reads(shipped: Path, environment: dict[str, str]) -> None:
    assert read_there(shipped, environment) == (13_868, BENCH_ID, 0)
