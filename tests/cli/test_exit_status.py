"""The exit status of a command that a person, or the end of its reader, ended. 1 says that a guard refused."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest

from retention_assets.cli import inspecting, planning, sweeping
from retention_assets.demo.sample import demo_configuration
from tests.end_to_end.command import orchard, run

_COMMAND = "from retention_assets.cli.main import main; main()"


@pytest.mark.parametrize(("ending", "said"), [(KeyboardInterrupt, "Interrupted."), (click.Abort, "Aborted!")])
def test_a_command_that_the_user_ended_has_status_130(
    ending: type[BaseException], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise ending

    monkeypatch.setattr(inspecting, "statuses", ended)
    answer = run("--config", demo_configuration(), "status")
    assert (answer.status, answer.err.strip()) == (130, said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("plan", "Interrupted. Nothing was deleted."),
        (
            "sweep",
            "Interrupted. What was done until now is in the ledger. To do the rest, run the same command again.",
        ),
    ],
)
def test_after_ctrl_c_a_command_says_what_was_done(
    command: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(planning, "run_job", ended)
    monkeypatch.setattr(sweeping, "load_plan", ended)
    file = tmp_path / "retention.yaml"
    file.write_text("warehouse: here\nrepositories: {field: {kind: icechunk, storage: f, policy: p, mode: delete}}\n")
    answer = run("--config", file, command, "field")
    assert (answer.status, answer.err.strip()) == (130, said)


def without_reader(*arguments: str | Path) -> tuple[int, str]:
    """Return the status and the errors of a command whose standard output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _COMMAND, *map(str, arguments)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=200,
            check=False,
        )
    finally:
        os.close(writer)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["--help"]], ids=["printed by rich", "printed by click", "help"]
)
def test_a_command_whose_output_nobody_reads_has_the_status_of_a_broken_pipe(command: list[str]) -> None:
    assert without_reader("--config", demo_configuration(), *command) == (141, "")


@pytest.mark.parametrize("command", ["status", "--help"])
def test_a_full_disk_of_the_output_is_named(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-c", _COMMAND, "--config", str(demo_configuration()), command]
        ended = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    assert ended.returncode == 3
    assert "could not be written: [Errno 28]" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_full_disk_of_another_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/lake/a")

    monkeypatch.setattr(inspecting, "statuses", full)
    answer = run("--config", demo_configuration(), "status")
    assert answer.status == 3
    assert "[Errno 28] No space left on device: '/lake/a'. Free space, or write elsewhere, then run" in answer.err


def test_a_command_without_a_configuration_says_that_it_uses_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)
    note = f"note: this is the demo, {demo_configuration()}, because there is no --config"
    assert note in run("status").err
    assert "note:" not in run("--config", demo_configuration(), "status").err
    (tmp_path / "retention.yaml").write_bytes(demo_configuration().read_bytes())
    assert "note:" not in run("status").err


def test_a_command_without_standard_output_keeps_its_status() -> None:
    command = f'"{sys.executable}" -c "{_COMMAND}" --version >&-'
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("lost", [BrokenPipeError(errno.EPIPE, "Broken pipe"), EOFError()], ids=["sent", "received"])
def test_a_lost_connection_is_not_taken_for_a_user_or_reader_that_ended(
    monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    def ended(*_: object) -> None:
        raise lost

    monkeypatch.setattr(inspecting, "statuses", ended)
    answer = run("--config", demo_configuration(), "status")
    assert answer.status == 3
    assert type(lost).__name__ in answer.err


def test_rows_that_are_still_buffered_at_the_end_have_the_status_of_a_broken_pipe(tmp_path: Path) -> None:
    file = orchard(tmp_path, "lake").file
    script = tmp_path / "show.py"
    script.write_text(
        "import pyarrow as pa\n"
        "from retention_assets.cli import planning\n"
        "planning.open_table = lambda *_: pa.table({'address': ['data/a']})\n"
        f"{_COMMAND}\n",
        encoding="utf-8",
    )
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, script, "--config", file, "show", "orchard", "addresses", "--format", "csv"]
    with os.fdopen(writer, "wb") as nobody:
        ended = subprocess.run(command, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=200, check=False)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_command_that_is_done_or_refused_keeps_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = orchard(tmp_path, "lake").file
    assert run("--config", file, "explain", "orchard", "a").status == 1
    assert run("--config", file, "show", "orchard", "no_such_table").status == 2
    monkeypatch.setattr(planning, "open_table", lambda *_: pa.table({"address": ["data/a"]}))
    assert run("--config", file, "show", "orchard", "addresses", "--format", "csv").status == 0
