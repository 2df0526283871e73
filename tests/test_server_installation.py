"""The installation of the test servers: it pins versions, is quick if they exist, and never fails a test run."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_setup import Machine, program

SCRIPT = Path(__file__).parents[1] / "scripts" / "test_servers"
TOOLS = ("bash", "cat", "dirname", "mkdir", "rm", "tail")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A checkout after set-up, on a computer with neither go nor npm."""
    made = Machine(tmp_path)
    program(tmp_path / ".venv" / "bin" / "spark-submit", f'echo "spark-submit $*" >>{tmp_path}/asked')
    (tmp_path / ".venv" / "java_home").write_text("/usr/lib/jvm/java")
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts" / "test_servers")
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        program(made.path[1] / name, f'exec {found} "$@"')
    return made


def install(machine: Machine, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return machine.run("test_servers", shell="bash", scripts=tmp_path / "scripts")


def working(machine: Machine, tmp_path: Path) -> Path:
    """Add a fake go and a fake npm to the computer, and return the file in which they record their calls."""
    asked = tmp_path / "asked"
    for name in ("go", "npm"):
        program(machine.path[0] / name, f'echo "{name} $* into $GOBIN" >>{asked}; mkdir -p $GOMODCACHE/huge')
    return asked


def test_test_servers_are_installed_in_fixed_versions_into_the_checkout(machine: Machine, tmp_path: Path) -> None:
    asked = working(machine, tmp_path)
    done = install(machine, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = asked.read_text().splitlines()
    assert len(lines) == 4
    assert all("@" in line.split(" into ")[0].split()[-1] for line in lines[:3])
    assert all(line.endswith(f"into {tmp_path}/.servers/bin") for line in lines[:2])
    assert f"--prefix {tmp_path}/.servers/npm" in lines[2]
    assert "--packages org.apache.hadoop:hadoop-aws:3." in lines[3]
    assert not (tmp_path / ".servers" / "cache").exists()


def test_only_missing_or_outdated_servers_are_installed(machine: Machine, tmp_path: Path) -> None:
    asked = working(machine, tmp_path)
    install(machine, tmp_path)
    asked.unlink()
    done = install(machine, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not asked.exists()
    (tmp_path / ".servers" / "azurite.version").write_text("3.0.0\n")
    install(machine, tmp_path)
    assert "azurite" in asked.read_text()


def test_without_go_its_servers_are_reported_and_the_other_server_is_installed(
    machine: Machine, tmp_path: Path
) -> None:
    asked = working(machine, tmp_path)
    (machine.path[0] / "go").unlink()
    done = install(machine, tmp_path)
    assert done.returncode == 1
    for name in ("versitygw", "fake-gcs-server"):
        assert f"{name} is not installed: go is not on PATH. The tests that talk to it will be skipped." in done.stderr
    assert "azurite" in asked.read_text()


def test_a_failed_installation_shows_its_error_and_the_next_run_repeats_it(machine: Machine, tmp_path: Path) -> None:
    asked = working(machine, tmp_path)
    program(machine.path[0] / "npm", "echo 'npm error: no network'; exit 1")
    done = install(machine, tmp_path)
    assert done.returncode == 1
    assert "npm error: no network" in done.stderr
    assert "azurite is not installed: npm could not install it" in done.stderr
    program(machine.path[0] / "npm", f"echo npm again >>{asked}")
    assert install(machine, tmp_path).returncode == 0
    assert "npm again" in asked.read_text()
