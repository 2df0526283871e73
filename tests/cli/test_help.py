"""Every command shows examples that parse, and gives its facts as JSON; colors end where NO_COLOR says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from retention_assets.cli.outputs import OUTPUTS
from tests.end_to_end.command import orchard, run
from tests.test_docs import commands_in, parse, reference

COMMANDS = dict(reference.commands())
# They print a script, or what the summary of `plan` has; or only that what was asked for is done.
WITHOUT_JSON = {"retention completion", "retention demo"} | {
    f"retention icechunk {kind} {action}"
    for kind, actions in (("branch", ("create", "delete", "reset")), ("tag", ("create", "delete")))
    for action in actions
}


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


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - WITHOUT_JSON))
def test_a_command_gives_its_facts_as_json(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert options & {"--json", "--format"}
    assert ("--json" in options) is (name.removeprefix("retention ") in OUTPUTS)


def test_no_color_ends_colors_also_on_a_terminal(tmp_path: Path) -> None:
    place = orchard(tmp_path, str(tmp_path))
    command = ["from retention_assets.cli.main import main; main()", "--config", str(place.file), "status"]
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"}

    def shown(**variables: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", *command],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    color = re.compile(r"\x1b\[[\d;]*(3|4|9)\dm")
    assert color.search(shown())
    assert not color.search(shown(NO_COLOR="1"))


def test_stopping_and_resuming_as_json_say_who_stopped_what(tmp_path: Path) -> None:
    place = orchard(tmp_path, str(tmp_path))
    stopped = run("--config", place.file, "stop", "orchard", "--json").document()
    assert stopped["repository"] == "orchard"
    assert stopped["stopped_by"]
    assert stopped["was_sweeping"] is None
    assert run("--config", place.file, "resume", "orchard", "--json").document()["stopped_by"] is None
    assert run("--config", place.file, "status", "--json").document()[0]["plan"] is None
