"""`make setup` finds Python and Java by itself, or says what is missing and how to get it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
TOOLS = ("awk", "cat", "cksum", "cp", "dirname", "grep", "mkdir", "rm", "sh", "tail", "tee")


def program(path: Path, body: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def python(path: Path, version: str, state: str = "ready") -> Path:
    """Write a fake Python that prints the version that the search asks for."""
    return program(path, f'[ "$1" = -c ] && echo "{version}|{state}|{path}"')


def shim(path: Path) -> Path:
    """Write the shim of pyenv for a version that is not active."""
    return program(path, 'echo "pyenv: command not found" >&2; exit 127')


def java(home: Path, version: str) -> Path:
    """Write a fake Java of this version that Spark can start, and return its home."""
    settings = f"    java.home = {home}\n    java.specification.version = {version}"
    program(home / "bin" / "java", f'[ "$1" = --add-modules=jdk.incubator.vector ] && echo "{settings}" >&2')
    return home


class Machine:
    """A computer with an empty PATH, home and system folders."""

    def __init__(self, root: Path) -> None:
        self.path = [root / "bin1", root / "bin2"]
        self.home = root / "home"
        self.system = root / "system"
        self.environment: dict[str, str] = {}

    def run(self, script: str, shell: str = "sh", scripts: Path = SCRIPTS) -> subprocess.CompletedProcess[str]:
        """Run one of the scripts here."""
        interpreter = shutil.which(shell)
        assert interpreter
        environment = {
            "PATH": os.pathsep.join(map(str, self.path)),
            "HOME": str(self.home),
            "SEARCH_ROOT": str(self.system),
            **self.environment,
        }
        return subprocess.run(
            [interpreter, str(scripts / script)], env=environment, capture_output=True, text=True, timeout=200
        )

    def finds(self, script: str) -> str:
        """Run a search that must succeed, and return what it printed."""
        done = self.run(script)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    def refusal(self, script: str) -> str:
        """Run a search that must fail, and return its message."""
        done = self.run(script)
        assert done.returncode != 0
        assert done.stdout == ""
        return done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_python_3_12_is_preferred_to_newer_ones_and_to_the_default(machine: Machine) -> None:
    python(machine.path[0] / "python3", "3.11")
    python(machine.path[0] / "python3.13", "3.13")
    python(machine.path[0] / "python3.14", "3.14")
    wanted = python(machine.path[1] / "python3.12", "3.12")
    assert machine.finds("find_python") == str(wanted)


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
@pytest.mark.parametrize("name", ["python3", "python"])
def test_a_default_python_that_is_new_enough_is_used(machine: Machine, version: str, name: str) -> None:
    wanted = python(machine.path[1] / name, version)
    assert machine.finds("find_python") == str(wanted)


@pytest.mark.parametrize(
    "place",
    [
        "home/.pyenv/versions/3.13.0/bin/python3",
        "home/.local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3",
        "home/.asdf/installs/python/3.13.2/bin/python3",
        "system/usr/bin/python3.13",
        "system/opt/homebrew/bin/python3.13",
    ],
)
def test_a_python_that_is_not_on_the_path_is_found_behind_a_broken_shim(
    machine: Machine, tmp_path: Path, place: str
) -> None:
    shim(machine.path[0] / "python3.12")
    shim(machine.path[0] / "python3.13")
    python(machine.path[0] / "python3", "3.11")
    wanted = python(tmp_path / place, "3.13")
    assert machine.finds("find_python") == str(wanted)


def test_pythons_of_pyenv_are_found_in_pyenv_root(machine: Machine, tmp_path: Path) -> None:
    wanted = python(tmp_path / "my pyenv" / "versions" / "3.12.1" / "bin" / "python3", "3.12")
    machine.environment["PYENV_ROOT"] = str(tmp_path / "my pyenv")
    assert machine.finds("find_python") == str(wanted)


def test_pythons_of_uv_are_found(machine: Machine, tmp_path: Path) -> None:
    wanted = python(tmp_path / "elsewhere" / "python3.14", "3.14")
    program(machine.path[0] / "uv", f'[ "$1 $2 $5" = "python find 3.14" ] && echo "{wanted}"')
    assert machine.finds("find_python") == str(wanted)


def test_the_interpreter_of_a_virtual_environment_is_returned_and_not_the_environment(
    machine: Machine, tmp_path: Path
) -> None:
    behind = tmp_path / "real" / "python3.12"
    program(machine.path[0] / "python3.12", f'echo "3.12|ready|{behind}"')
    assert machine.finds("find_python") == str(behind)


def test_the_error_for_a_missing_python_lists_what_was_found_and_how_to_install_one(machine: Machine) -> None:
    old = python(machine.path[0] / "python3", "3.11")
    broken = shim(machine.path[0] / "python3.12")
    bare = python(machine.path[1] / "python3.13", "3.13", state="lacks venv")
    message = machine.refusal("find_python")
    assert "Python 3.12, 3.13 or 3.14 is missing" in message
    assert f"{old}: Python 3.11\n" in message
    assert f"{broken}: does not run\n" in message
    assert f"{bare}: Python 3.13 without venv (Debian: apt install python3.13-venv)\n" in message
    for way in ("apt install", "brew install", "pyenv install", "uv python install", "make setup PYTHON="):
        assert way in message
    assert len(message.splitlines()) <= 24, "one screen"


def test_if_the_variable_python_is_set_only_that_interpreter_is_tried(machine: Machine, tmp_path: Path) -> None:
    python(machine.path[0] / "python3.12", "3.12")
    named = python(tmp_path / "mine" / "python", "3.13")
    machine.environment["PYTHON"] = str(named)
    assert machine.finds("find_python") == str(named)
    python(named, "3.10")
    assert f"{named}: Python 3.10" in machine.refusal("find_python")


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_wins_when_it_is_17_or_21(machine: Machine, tmp_path: Path, version: str) -> None:
    java(tmp_path / "other", "17")
    machine.path.append(tmp_path / "other" / "bin")
    machine.environment["JAVA_HOME"] = str(java(tmp_path / "mine", version))
    assert machine.finds("find_java") == str(tmp_path / "mine")


def test_java_25_is_skipped_even_in_java_home_and_first_on_the_path(machine: Machine, tmp_path: Path) -> None:
    new = java(tmp_path / "jdk-25", "25")
    machine.environment["JAVA_HOME"] = str(new)
    machine.path = [new / "bin", java(tmp_path / "jdk-21", "21") / "bin"]
    assert machine.finds("find_java") == str(tmp_path / "jdk-21")


def test_java_home_is_the_home_that_java_reports_and_not_the_folder_of_a_link(machine: Machine, tmp_path: Path) -> None:
    home = java(tmp_path / "jdk-17", "17")
    machine.path[0].mkdir()
    (machine.path[0] / "java").symlink_to(home / "bin" / "java")
    assert machine.finds("find_java") == str(home)


@pytest.mark.parametrize(
    "place",
    [
        "system/usr/lib/jvm/java-17-openjdk-amd64",
        "system/opt/homebrew/opt/openjdk@17",
        "system/Library/Java/JavaVirtualMachines/temurin-17.jdk/Contents/Home",
        "home/.sdkman/candidates/java/17.0.15-tem",
    ],
)
def test_a_java_that_is_not_on_the_path_is_found_beside_a_newer_one(
    machine: Machine, tmp_path: Path, place: str
) -> None:
    java(tmp_path / "system/usr/lib/jvm/a-java-25", "25")
    home = java(tmp_path / place, "17")
    assert machine.finds("find_java") == str(home)


def test_the_java_that_macos_reports_is_used(machine: Machine, tmp_path: Path) -> None:
    home = java(tmp_path / "jdk-21", "21")
    program(machine.system / "usr/libexec/java_home", f'[ "$2 $3" = "-v 21" ] && echo "{home}"')
    assert machine.finds("find_java") == str(home)


def test_the_error_for_an_unusable_java_lists_what_was_found_and_how_to_install_one(
    machine: Machine, tmp_path: Path
) -> None:
    new = java(tmp_path / "jdk-25", "25")
    machine.environment["JAVA_HOME"] = str(new)
    stripped = program(machine.path[0] / "java", "echo 'Module jdk.incubator.vector not found' >&2; exit 1")
    message = machine.refusal("find_java")
    assert "Java 17 or 21 is missing" in message
    assert f"{new}/bin/java: Java 25\n" in message
    assert f"{stripped}: does not run with --add-modules=jdk.incubator.vector\n" in message
    for way in ("apt install", "brew install", "sdk install", "make setup JAVA_HOME="):
        assert way in message
    assert len(message.splitlines()) <= 24, "one screen"


def test_the_error_on_a_machine_without_any_java_mentions_no_unusable_java(machine: Machine) -> None:
    message = machine.refusal("find_java")
    assert message.startswith("Java 17 or 21 is missing")
    assert "of no use" not in message


# An interpreter that makes environments with itself in them, and notes each call of pip in pip.calls.
SELF_COPYING_PYTHON = """
case "$1 $2" in
    "-m venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && echo "#!$PWD/.venv/bin/python" >.venv/bin/pip ;;
    "-m pip") echo "$@" >>pip.calls; [ ! -e offline ] || { echo "no route to the index"; exit 1; } ;;
    "-c "*) echo "3.12|ready|$0" ;;
    "-V "*) echo "Python 3.12.1" ;;
esac
"""


class Project(Machine):
    """A checkout on such a computer, with a few basic tools."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.root = root / "a project"
        shutil.copytree(SCRIPTS, self.root / "scripts")
        (self.root / "requirements.lock").write_text("one==1 \\\n    --hash=sha256:00\n", encoding="utf-8")
        (self.root / "pyproject.toml").touch()
        self.path[1].mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"{tool} is needed by set-up"
            (self.path[1] / tool).symlink_to(found)

    def set_up(self) -> subprocess.CompletedProcess[str]:
        """Run set-up."""
        return self.run("setup", shell="bash", scripts=self.root / "scripts")

    def pip_calls(self) -> list[str]:
        """Return the calls of pip in all runs."""
        calls = self.root / "pip.calls"
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def ready(project: Project) -> Project:
    """A checkout on a computer that has Python and Java."""
    program(project.path[0] / "python3.12", SELF_COPYING_PYTHON)
    project.environment["JAVA_HOME"] = str(java(project.home / "jdk-17", "17"))
    return project


def test_missing_python_and_java_are_reported_together_and_nothing_is_set_up(project: Project) -> None:
    done = project.set_up()
    assert done.returncode != 0
    assert "Python 3.12, 3.13 or 3.14 is missing" in done.stderr
    assert "Java 17 or 21 is missing" in done.stderr
    assert "Nothing was set up" in done.stderr
    assert len(done.stderr.splitlines()) <= 24, "one screen"
    assert not (project.root / ".venv").exists()


def test_setup_installs_the_lock_file_then_the_project_and_stores_java_home(ready: Project) -> None:
    done = ready.set_up()
    assert (done.returncode, done.stderr) == (0, "")
    packages, itself = ready.pip_calls()
    assert "--no-deps --require-hashes" in packages
    assert packages.endswith("-r requirements.lock")
    assert "--no-deps --no-build-isolation" in itself
    assert itself.endswith("-e .")
    noted = (ready.root / ".venv" / "java_home").read_text(encoding="utf-8").strip()
    assert noted == ready.environment["JAVA_HOME"]


def test_a_second_setup_installs_nothing_and_prints_nothing(ready: Project) -> None:
    ready.set_up()
    before = ready.pip_calls()
    done = ready.set_up()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert ready.pip_calls() == before


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_a_changed_lock_or_project_file_causes_another_installation(ready: Project, changed: str) -> None:
    ready.set_up()
    with (ready.root / changed).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    ready.set_up()
    assert len(ready.pip_calls()) == 4


def test_a_changed_java_home_is_stored_without_another_installation(ready: Project) -> None:
    ready.set_up()
    ready.environment["JAVA_HOME"] = str(java(ready.home / "jdk-21", "21"))
    ready.set_up()
    assert (ready.root / ".venv" / "java_home").read_text(encoding="utf-8").strip() == ready.environment["JAVA_HOME"]
    assert len(ready.pip_calls()) == 2


def test_an_environment_with_a_missing_python_is_created_again(ready: Project) -> None:
    ready.set_up()
    shim(ready.root / ".venv" / "bin" / "python")
    assert ready.set_up().returncode == 0
    assert len(ready.pip_calls()) == 4


def test_an_environment_that_was_moved_is_created_again(ready: Project) -> None:
    ready.set_up()
    ready.root = ready.root.rename(ready.root.with_name("moved"))
    assert ready.set_up().returncode == 0
    assert len(ready.pip_calls()) == 4


def test_a_failed_installation_is_reported_and_the_next_setup_repeats_it(ready: Project) -> None:
    (ready.root / "offline").touch()
    failed = ready.set_up()
    assert failed.returncode != 0
    assert "no route to the index" in failed.stderr
    assert "Installing the packages failed" in failed.stderr
    assert "Ready" not in failed.stdout
    (ready.root / "offline").unlink()
    done = ready.set_up()
    assert done.returncode == 0
    assert "Ready" in done.stdout
