"""Progress lines of commands: step, share done and time left. They appear on a terminal and never in a pipe."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import dagster as dg
import pytest
from rich.console import Console

from retention_assets.cli.group import Steps, Work, shown
from retention_assets.cli.runs import progress_logger, seconds_of_steps
from tests.end_to_end.command import orchard_on_disk, run

STEPS = {"orchard__inventory", "orchard__graph", "orchard__candidates"}


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(("on_terminal", "seen"), [(True, True), (False, False)], ids=["terminal", "pipe"])
def test_progress_is_shown_only_on_a_terminal(on_terminal: bool, seen: bool) -> None:
    console = Console(file=StringIO(), force_terminal=on_terminal, width=80)
    with shown(Work("orchard: comparing two plans"), console):
        pass
    assert isinstance(console.file, StringIO)
    assert ("orchard: comparing two plans" in console.file.getvalue()) is seen
    assert seen or console.file.getvalue() == ""


def test_the_time_left_follows_from_the_rate_of_the_counted_parts(clock: Clock) -> None:
    work = Work("looking for the objects", 100, clock)
    assert str(work.__rich__()) == "looking for the objects, 0 of 100"
    clock.now = 10
    work.count(25)
    assert str(work.__rich__()) == "looking for the objects, 25 of 100, about 30 s left"


def test_the_time_left_of_a_run_is_the_earlier_duration_of_its_remaining_steps(clock: Clock) -> None:
    steps = Steps("plan", {"orchard__inventory": 5, "orchard__graph": 20, "orchard__candidates": 7}, clock)
    steps.expect(STEPS)
    assert str(steps.__rich__()) == "plan: starting"
    steps.begin("orchard__inventory")
    steps.begin("orchard__graph")
    clock.now = 8
    assert str(steps.__rich__()) == "plan: graph, step 2 of 3, about 19 s left"
    clock.now = 100  # longer than the last time: only the steps to come count
    assert str(steps.__rich__()) == "plan: graph, step 2 of 3, about 7 s left"


@pytest.mark.parametrize("seconds", [{}, {"orchard__inventory": 5.0}], ids=["first_run", "a_new_step"])
def test_no_time_left_is_shown_if_the_duration_of_a_step_is_unknown(seconds: dict[str, float], clock: Clock) -> None:
    steps = Steps("plan", seconds, clock)
    steps.expect(STEPS)
    steps.begin("orchard__inventory")
    assert str(steps.__rich__()) == "plan: inventory, step 1 of 3"


def test_a_run_shows_its_steps_and_stores_the_duration_of_each_step() -> None:
    @dg.op
    def orchard__first() -> int:
        return 1

    @dg.op
    def orchard__second(context: dg.OpExecutionContext, one: int) -> None:
        context.log.info("a line of the log about [red]/run:100:x.csv")
        lines.append(str(steps.__rich__()))

    console, steps, lines = Console(file=StringIO()), Steps("plan", {}), []

    @dg.job(logger_defs={"progress": progress_logger(steps, console)})
    def orchard_plan() -> None:
        orchard__second(orchard__first())

    with dg.DagsterInstance.ephemeral() as instance:
        assert seconds_of_steps(instance, "orchard_plan") == {}
        orchard_plan.execute_in_process(instance=instance, run_config={"loggers": {"progress": {"config": {}}}})
        found = seconds_of_steps(instance, "orchard_plan")
    assert lines == ["plan: second, step 2 of 2"]
    assert found.keys() == {"orchard__first", "orchard__second"}
    assert min(found.values()) > 0
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue() == "a line of the log about [red]/run:100:x.csv\n"


def lint_of(file: Path, stderr: int) -> None:
    command = "from retention_assets.cli.main import main; main()"
    subprocess.run(
        [sys.executable, "-c", command, "--config", str(file), "lint"],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"},
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        timeout=200,
        check=True,
    )


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_a_command_shows_its_progress_on_a_terminal_and_writes_nothing_into_a_pipe(
    tmp_path: Path, terminal: tuple[int, int]
) -> None:
    project = orchard_on_disk(tmp_path)
    ours, theirs = terminal
    lint_of(project.file, theirs)
    os.close(theirs)
    assert b"checking policies, " in os.read(ours, 100_000)
    assert run("--config", project.file, "lint").err == ""
