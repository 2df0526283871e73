"""The last screen of `retention demo`: the samples, and the next commands."""

import os
import re
import shutil
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from rich.console import Console

from retention_assets.cli import planning
from retention_assets.cli.group import program
from retention_assets.cli.planning import show_closing
from retention_assets.core.amounts import Amount
from retention_assets.demo import sample
from retention_assets.demo.sample import demo_configuration
from retention_assets.state.plan import Plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import orchard, run
from tests.explain.test_status import a_plan
from tests.test_docs import ROOT

LINES, COLUMNS = 24, 80
FIELD = replace(a_plan(objects=83), repository="field")


def closing(*plans: Plan) -> list[str]:
    console = Console(file=StringIO(), width=COLUMNS)
    with patch.object(sys, "argv", [".venv/bin/retention"]), patch.dict(os.environ, PATH=""):
        show_closing(console, Warehouse(str(ROOT / ".demo" / "warehouse")), plans, "make dev", program())
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().splitlines()


def test_the_last_screen_of_the_demo_names_the_report_the_ui_and_the_next_command() -> None:
    shown = closing(a_plan(objects=0, size=0, waiting=12345), FIELD)
    assert len(shown) < LINES  # the shell's prompt takes the last line
    assert [line for line in shown if len(line.rstrip()) > COLUMNS] == []
    text = "\n".join(shown)
    for repository in ("orchard", "field"):
        assert re.search(rf"Report, {repository}: +\S+/{repository}/plans/2026-11-01/report.html", text)
    assert re.search(r"^UI: +make dev$", text, re.MULTILINE)
    assert re.search(r"^Your own: .* init$", text, re.MULTILINE)


def test_a_row_of_the_last_table_divides_the_listed_objects_into_three_parts() -> None:
    plan = replace(
        a_plan(),
        totals={"kept": Amount(5, 50), "young": Amount(2, 20), "waiting": Amount(3, 30), "candidate": Amount(1, 10)},
    )
    row = next(line for line in closing(plan) if line.lstrip().startswith("orchard"))
    assert [cell.strip() for cell in re.split(r" {2,}", row.strip())] == [
        "orchard",
        "11, 110 B",
        "7, 70 B",
        "3, 30 B",
        "1, 10 B",
    ]


def test_without_waiting_objects_the_last_screen_does_not_mention_settle() -> None:
    assert not any("settle" in line for line in closing(FIELD))
    assert any("settle" in line for line in closing(a_plan(waiting=1)))


def test_the_readme_shows_what_the_demo_prints() -> None:
    """The figures are those of the samples: the test of the demo in `test_output` compares them with a plan."""
    orchard = {"kept": Amount(147, 7_720), "waiting": Amount(48, 3_210)}
    field = {"kept": Amount(168, 273_650), "candidate": Amount(73, 141_550)}
    shown = [line.rstrip() for line in closing(replace(a_plan(), totals=orchard), replace(FIELD, totals=field))]
    assert "\n".join(shown) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("other", ["retention.yaml", "RETENTION_CONFIG", "--config", None])
def test_the_commands_of_the_last_screen_read_the_configuration_of_the_demo(
    other: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three ways names a configuration that is not the demo's."""
    file = tmp_path / ("retention.yaml" if other == "retention.yaml" else "own.yaml")
    file.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)
    if other == "RETENTION_CONFIG":
        monkeypatch.setenv("RETENTION_CONFIG", str(file))
    monkeypatch.setattr(planning, "_prepare", lambda *_: True)
    monkeypatch.setattr(planning, "make_plan", lambda _, name, *__: (a_plan(), SimpleNamespace(ui="make dev")))
    monkeypatch.setattr(planning, "screen", Console(width=500))
    answer = run(*(["--config", file] if other == "--config" else []), "demo")
    assert answer.status == 0, answer.err
    titles = dict(line.split(":", 1) for line in answer.out.splitlines() if ": " in line)
    for title, command in (("Objects", "show orchard"), ("Why it stays", "explain orchard")):
        is_named = f"--config {demo_configuration()} {command}" in titles[title]
        assert is_named is (other in ("retention.yaml", "RETENTION_CONFIG"))
        assert str(file) not in titles[title]
        assert f" {command} " in titles[title]
    own = f"--config {file} init" if other == "--config" else " init"
    assert titles["Your own"].endswith(own)


@pytest.mark.parametrize("command", [("lint",), ("lint", "orchard"), ("access", "orchard")])
@pytest.mark.parametrize("given", [False, True], ids=["by default", "with --config"])
def test_before_the_demo_is_in_place_an_error_names_the_command_that_puts_it_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], given: bool
) -> None:
    """The samples of the demo are in `.demo` beside its folder, which a checkout does not have at first."""
    monkeypatch.chdir(tmp_path)
    samples = demo_configuration().parent
    shutil.copytree(samples, tmp_path / "demo")
    monkeypatch.setattr(sample, "_CHECKOUT", tmp_path / "demo")
    answer = run(*(("--config", "demo/retention.yaml") if given else ()), *command)
    assert answer.status != 0
    text = " ".join((answer.out + answer.printed_err).split())
    assert f"{tmp_path}/.demo/orchard/namespace: there is no such directory." in text
    command_of_demo = f"`retention {'--config demo/retention.yaml ' if given else ''}demo`"
    assert f"This is the demo, which is not in place yet: put it in place with {command_of_demo}." in text


def test_without_the_file_of_the_demo_the_error_names_the_command_that_puts_it_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sample, "_CHECKOUT", tmp_path / "no_checkout")
    answer = run("status")
    assert answer.status == 2
    assert f"{tmp_path}/demo/retention.yaml: there is no such file." in answer.err
    assert "put it in place with `retention demo`" in answer.err


def test_a_missing_storage_of_another_configuration_is_not_of_the_demo(tmp_path: Path) -> None:
    answer = run("--config", orchard(tmp_path, "lake").file, "lint", "orchard")
    assert "there is no such directory" in answer.err
    assert "demo" not in answer.err
