"""Every command has examples that parse and JSON output with a schema, and respects NO_COLOR."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import click
import pytest

from retention_assets.state.approval import APPROVER
from scripts.output_schemas import OUTPUTS
from tests.doc_pages import ROOT, commands_in, parse
from tests.end_to_end.command import orchard, run
from tests.test_docs import reference

COMMANDS = dict(reference.commands())
WITHOUT_JSON = {"retention completion", "retention demo"}  # a script, and a table of what `plan --json` has


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_has_examples_that_parse(name: str) -> None:
    text = click.Context(COMMANDS[name], info_name=name, terminal_width=110).get_help()
    shown = re.split(r"\n *Examples:\n", text)[1].split("\n\n")[0]
    lines = [re.sub(r'^eval "\$\((.*)\)"$', r"\1", line.strip()).partition(" > ")[0] for line in shown.splitlines()]
    examples = [command for line in lines for command in commands_in(line)]
    assert len(examples) == len(lines)  # each example stays on a line of its own
    words = name.split()[1:]
    for arguments in examples:
        assert [word for word in arguments if word in words][: len(words)] == words
        parse(arguments)


WITH_A_PERSON = ["approve", "withdraw", "stop", "restore", "purge", "acknowledge"]
WITH_A_PERSON += [f"icechunk {kind} {verb}" for kind in ("branch", "tag") for verb in ("create", "delete")]
WITH_A_PERSON += ["icechunk branch reset", "icechunk status", "icechunk upgrade"]


@pytest.mark.parametrize("name", WITH_A_PERSON)
def test_the_help_of_a_command_that_records_a_person_names_the_variable_with_the_name(name: str) -> None:
    assert APPROVER in click.Context(COMMANDS[f"retention {name}"], terminal_width=110).get_help()


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_every_command_has_a_json_option_and_a_schema_of_its_output(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert "--json" in options
    assert name.removeprefix("retention ") in OUTPUTS


@cache
def asked_for_json() -> list[tuple[bool, set[str]]]:
    """Return the words of each call and list in the tests that has `--json`, and whether it is about Icechunk.

    `run` checks the output of these commands against their schemas.
    """
    asked = []
    for file in (ROOT / "tests").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if '"--json"' in text else ():
            parts = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            words = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
            if isinstance(node, ast.Call):
                words.add(ast.unparse(node.func).rpartition(".")[2])
            if "--json" in words:
                asked.append((file.name == "test_icechunk.py", words))
    return asked


@pytest.mark.parametrize("command", sorted(OUTPUTS))
def test_a_test_compares_the_json_output_of_each_command_with_its_schema(command: str) -> None:
    of_icechunk, wanted = command.startswith("icechunk "), set(command.removeprefix("icechunk ").split())
    assert any(wanted <= words for about_icechunk, words in asked_for_json() if about_icechunk is of_icechunk)


def test_show_refuses_json_with_another_format(tmp_path: Path) -> None:
    file = orchard(tmp_path, str(tmp_path)).file
    refused = run("--config", file, "show", "orchard", "addresses", "--json", "--format", "csv")
    assert (refused.status, refused.out) == (2, "")
    assert "--json and --format csv: choose one." in refused.err


def test_no_color_disables_colors_also_on_a_terminal(tmp_path: Path) -> None:
    place = orchard(tmp_path, str(tmp_path))
    command = ["from retention_assets.cli.main import main; main()", "--config", str(place.file), "status"]
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}

    def started(**variables: str) -> subprocess.Popen[str]:
        called = [sys.executable, "-c", *command]
        return subprocess.Popen(called, env={**environment, **variables}, stdout=subprocess.PIPE, text=True)

    color = re.compile(r"\x1b\[[\d;]*(3|4|9)\dm")
    with started() as colored, started(NO_COLOR="1") as plain:  # at the same time
        assert color.search(colored.communicate(timeout=200)[0])
        assert not color.search(plain.communicate(timeout=200)[0])
    assert (colored.returncode, plain.returncode) == (0, 0)


def test_stop_and_resume_with_json_show_the_repository_and_who_stopped_it(tmp_path: Path) -> None:
    place = orchard(tmp_path, str(tmp_path))
    stopped = run("--config", place.file, "stop", "orchard", "--json").document()
    assert stopped["repository"] == "orchard"
    assert stopped["stopped_by"]
    assert stopped["was_sweeping"] is None
    assert run("--config", place.file, "resume", "orchard", "--json").document()["stopped_by"] is None
    assert run("--config", place.file, "status", "--json").document()[0]["plan"] is None


@pytest.mark.parametrize(
    "command", [("icechunk", "nowhere", "branch", "create"), ("stop",)], ids=["of_a_group_with_a_repository", "plain"]
)
def test_help_reads_no_configuration(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RETENTION_CONFIG", str(tmp_path / "missing.yaml"))
    shown = run(*command, "--help")
    assert shown.status == 0, shown.err
    assert "Usage: retention" in shown.out


@pytest.mark.parametrize("command", ["stop", "approve", "explain", "purge", "access"])
def test_an_unknown_repository_is_named_and_the_exit_status_is_2(command: str, tmp_path: Path) -> None:
    more = [] if command in ("stop", "purge", "access") else ["something"]
    answer = run("--config", orchard(tmp_path, "lake").file, command, "nowhere", *more)
    assert answer.status == 2
    assert "there is no repository 'nowhere'. Nothing was read or deleted. Name one of: orchard." in answer.err


def test_a_link_to_a_missing_configuration_does_not_select_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)
    (tmp_path / "retention.yaml").symlink_to("gone/retention.yaml")
    answer = run("status")
    assert answer.status == 2
    assert f"{tmp_path}/retention.yaml: there is no such file." in answer.err
