"""Shell completion: the scripts, and the completions that they request."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.command import orchard, run

_COMMAND = "from retention_assets.cli.main import main; main()"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(shell: str) -> None:
    answer = run("completion", shell)
    assert answer.status == 0, answer.err
    assert f"_RETENTION_COMPLETE={shell}_complete" in answer.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_accepts_its_completion_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = run("completion", shell).out
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


OF_EACH_SHELL = pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=pytest.mark.slow), pytest.param("fish", marks=pytest.mark.slow)]
)


def completions(shell: str, *words: str) -> list[str]:
    """Return the completions of the last of `words` by click's protocol, without a shell."""
    asked = {"_RETENTION_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(("retention", *words))}
    cursor = words[-1] if shell == "fish" else str(len(words))  # fish names the word, others its number
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND],
        env={**os.environ, **asked, "COMP_CWORD": cursor},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    if shell == "zsh":  # kind, value and help, a line each
        return lines[1::3]
    return [line.split("\t")[0].removeprefix("plain,") for line in lines if line]


@OF_EACH_SHELL
def test_the_name_of_a_command_is_completed(shell: str) -> None:
    assert completions(shell, "expl") == ["explain"]


@OF_EACH_SHELL
def test_names_of_repositories_and_tables_are_completed(shell: str, tmp_path: Path) -> None:
    file = orchard(tmp_path, str(tmp_path)).file
    assert completions(shell, "--config", str(file), "plan", "or") == ["orchard"]
    assert completions(shell, "--config", str(file), "show", "orchard", "due_o") == ["due_objects"]


def test_with_an_unreadable_configuration_nothing_is_completed(tmp_path: Path) -> None:
    assert completions("bash", "--config", str(tmp_path / "none.yaml"), "plan", "or") == []
