"""`make image` uses the first container builder that works, or names the missing program."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.test_setup import Machine, program

ROOT = Path(__file__).parents[1]
BUILT = '[ "$1" = info ] || echo "$0 $*"'


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    program(made.path[0] / "dirname", 'exec /usr/bin/dirname "$@"')
    return made


def test_an_image_is_built_with_the_first_builder_that_works(machine: Machine) -> None:
    program(machine.path[0] / "podman", "exit 125")
    docker = program(machine.path[1] / "docker", BUILT)
    built = machine.run("image", "bash")
    assert built.returncode == 0, built.stderr
    assert built.stdout == f"{docker} build --file Containerfile --tag retention-assets .\n"
    podman = program(machine.path[0] / "podman", BUILT)
    assert machine.run("image", "bash").stdout.startswith(f"{podman} build")


def test_without_a_working_builder_the_error_lists_the_problem_of_each_builder(machine: Machine) -> None:
    program(machine.path[0] / "docker", 'echo "a warning"; echo "Cannot connect to the Docker daemon" >&2; exit 1')
    refused = machine.run("image", "bash")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.splitlines() == [
        "error: no program that builds containers works on this machine. No image was made.",
        "  podman: is not on PATH",
        "  docker: does not work: Cannot connect to the Docker daemon",
        "Install one of them, or start it, and run: make image",
    ]


def test_every_phony_target_of_the_makefile_has_a_rule() -> None:
    """`make` does nothing for a phony target without a rule, and exits with status 0."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert "image" in phony.split()
    assert set(phony.split()) - set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) == set()


def test_the_image_records_runs_in_a_folder_that_its_user_owns() -> None:
    """The folder of the configuration, where the runs would be recorded otherwise, is mounted read-only."""
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    user, home = lines.index("USER retention"), lines.index("WORKDIR /home/retention")
    made = lines.index("RUN mkdir dagster")
    assert user < home < made
    assert "ENV DAGSTER_HOME=/home/retention/dagster" in lines[made:]


def test_the_dockerignore_file_allows_the_files_of_the_image_and_no_containerignore_exists() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert {"retention_assets", "pyproject.toml", "requirements.lock", project["project"]["readme"]} <= allowed
    assert all((ROOT / name).exists() for name in allowed)
    assert not (ROOT / ".containerignore").exists()  # podman would read it instead
