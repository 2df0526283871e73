"""The installed package works in an empty folder, without the checkout."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.saved_repositories import copy_saved_repository

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from the source archive, as `python -m build` does, and install it into a folder."""
    built = tmp_path_factory.mktemp("built")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(built)]
    subprocess.run([*hatchling, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True, timeout=120)
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed_sources:
        packed_sources.extractall(built, filter="data")
    sources = built / archive.name.removesuffix(".tar.gz")
    subprocess.run([*hatchling, "-t", "wheel"], cwd=sources, check=True, capture_output=True, timeout=120)
    (wheel,) = built.glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=120)
    return target


def blocks_of_page() -> list[str]:
    """Return the code blocks of "Add it to a Dagster project", without their indentation."""
    page = (ROOT / "docs" / "dagster-project.md").read_text(encoding="utf-8")
    return [dedent(block) for block in re.findall(r"^ *```\w+\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)]


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "DAGSTER_HOME": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_console_script_of_the_wheel_names_its_version(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, console_script(installed), "--version")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert (ended.stdout, ended.stderr) == (f"retention {version}\n", "")


def console_script(installed: Path) -> str:
    return str(installed / "bin" / "retention")


@pytest.mark.slow
def test_the_demo_creates_its_samples_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    ended = run(installed, tmp_path, console_script(installed), "demo", "--prepare")
    assert ended.returncode == 0, ended.stderr
    ended = run(installed, tmp_path, console_script(installed), "lint")
    assert ended.returncode == 0, ended.stderr
    assert "orchard: no issues found" in ended.stdout
    assert "field: no issues found" in ended.stdout
    assert (tmp_path / "demo" / "retention.yaml").is_file()
    assert (tmp_path / ".demo" / "orchard" / "namespace" / "_lakefs").is_dir()
    loaded = "from retention_assets.definitions import defs; print(len(defs().resolve_all_asset_specs()))"
    ended = run(installed, tmp_path, "-c", loaded)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.splitlines()[-1]) > 15  # the assets of both samples


LIST_ASSETS = """
from lake.definitions import defs
keys = sorted(key.to_user_string() for key in defs().resolve_asset_graph().get_all_asset_keys())
print("assets", *keys)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Write the project as the page shows it, with assets and an IO manager of its own."""
    toml, definitions, repository, policy = blocks_of_page()[:4]
    files = {
        "pyproject.toml": toml,
        "lake/__init__.py": "",
        "lake/definitions.py": definitions,
        "lake/defs/__init__.py": "",
        "lake/defs/orchard/defs.yaml": repository,
        "lake/defs/orchard/policy.json": policy,
        "lake/defs/own.py": OWN,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


OWN = """
import dagster as dg


@dg.asset
def own() -> int:
    return 1


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(assets=[own], resources={"io_manager": dg.mem_io_manager}, executor=dg.in_process_executor)
"""


@pytest.mark.long
def test_ten_lines_of_yaml_add_a_repository_to_a_dagster_project(installed: Path, project: Path) -> None:
    assert len((project / "lake/defs/orchard/defs.yaml").read_text("utf-8").splitlines()) <= 10
    ended = run(installed, project, "-c", LIST_ASSETS)
    assert ended.returncode == 0, ended.stderr
    (listed,) = [line for line in ended.stdout.splitlines() if line.startswith("assets ")]
    assert {"own", "orchard/deletion_candidates", "orchard/deletion_proof"} <= set(listed.split())
    assert sorted(path.name for path in project.iterdir()) == ["lake", "pyproject.toml"]


@pytest.mark.slow
def test_the_commands_of_the_page_succeed(installed: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported, *commands = blocks_of_page()[4].splitlines()
    monkeypatch.setenv(exported.removeprefix("export ").split("=")[0], SECRET_KEY)
    file = project / "lake/defs/orchard/defs.yaml"
    with serving(saved("orchard")) as server:
        copy_saved_repository("orchard", project / "namespace")
        here = {
            "https://lakefs.example.com": server.url,
            "AKIAEXAMPLE": ACCESS_KEY,
            "s3a://tables/retention": project / "warehouse",
            "lake/orchard\n": f"lake/orchard\n      storage: {project / 'namespace'}\n",
        }
        text = file.read_text("utf-8")
        for shown, used in here.items():
            text = text.replace(shown, str(used))
        file.write_text(text, encoding="utf-8")
        for line in commands:
            program, *arguments = line.split()
            start = ["-m", "dagster"] if program == "dagster" else [console_script(installed)]
            ended = run(installed, project, *start, *arguments)
            assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "orchard: 0 errors" in ended.stdout
