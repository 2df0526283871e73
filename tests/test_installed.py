"""What `pip install` gives works in an empty folder, without the checkout."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
COMMAND = "from retention_assets.cli.main import main; main()"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel and unpack it: what pip does with one that has no compiled part."""
    built = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = built.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    with ZipFile(wheel) as packed:
        packed.extractall(target)
    return target


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "DAGSTER_HOME": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_demo_lays_out_its_samples_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, "-c", COMMAND, "demo", "--prepare")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "demo" / "retention.yaml").is_file()
    assert (tmp_path / ".demo" / "orchard" / "namespace" / "_lakefs").is_dir()
    loaded = "from retention_assets.definitions import defs; print(len(defs().resolve_all_asset_specs()))"
    ended = run(installed, tmp_path, "-c", loaded)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.splitlines()[-1]) > 15  # the assets of both samples


def test_without_a_configuration_dagster_is_told_what_to_do(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, "-c", "from retention_assets.definitions import defs; defs()")
    assert ended.returncode != 0
    assert "RETENTION_CONFIG" in ended.stderr
