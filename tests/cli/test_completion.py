"""The scripts that complete commands in a shell, and the completions that they ask for."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.end_to_end.command import run

_COMMAND = "from retention_assets.cli.main import main; main()"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(shell: str) -> None:
    answer = run("completion", shell)
    assert answer.status == 0, answer.err
    assert f"_RETENTION_COMPLETE={shell}_complete" in answer.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_accepts_its_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = run("completion", shell).out
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_command_is_completed() -> None:
    asked = {"_RETENTION_COMPLETE": "bash_complete", "COMP_WORDS": "retention expl", "COMP_CWORD": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["plain,explain"]
