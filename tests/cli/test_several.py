"""`plan` and `verify` work on several repositories in one process, also if one of them is refused."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pyspark.core.context import SparkContext
from pyspark.sql import SparkSession

from retention_assets.cli import planning, sweeping
from retention_assets.cli.group import Target, for_each
from retention_assets.errors import GuardRefused, StoreError
from tests.end_to_end.command import DAY, Answer, Project, orchard, run


@pytest.fixture
def both(spark: SparkSession, planned_orchard: tuple[Project, Answer], tmp_path: Path) -> Path:
    """Return the configuration of orchard, which has a plan, and of `meadow`, whose references are missing."""
    project = planned_orchard[0].copy(tmp_path)
    document = yaml.safe_load(project.file.read_text(encoding="utf-8"))
    (tmp_path / "grass").mkdir()
    (tmp_path / "grass" / "object").touch()
    other = {**project.settings, "storage": "grass", "namespace": "s3://meadow", "source": {"dump": "no-dump.json"}}
    document["repositories"] = {"meadow": other, **document["repositories"]}
    project.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return project.file


@pytest.mark.long
def test_a_plan_of_all_repositories_goes_on_after_a_refusal_and_fails_at_its_end(both: Path) -> None:
    answer = run("--config", both, "plan", "--all", "--as-of", DAY, "--json")
    assert answer.status != 0
    assert "no-dump.json" in answer.err
    assert [one["repository"] for one in answer.document()] == ["orchard"]
    plan_hash = answer.document()[0]["plan_hash"]
    shown = run("--config", both, "plan", "orchard", "meadow", "orchard", "--as-of", DAY)
    assert (shown.status, shown.out.count(plan_hash)) == (answer.status, 2)  # as its hash, and in the command `approve`
    assert f"approve orchard {plan_hash} --as-of {DAY}" in shown.out
    assert "may be deleted" in shown.out


@pytest.mark.long
def test_a_verification_of_all_repositories_goes_on_after_a_failure(both: Path) -> None:
    one = run("--config", both, "verify", "orchard", "--as-of", DAY, "--json")
    answer = run("--config", both, "verify", "--all", "--as-of", DAY, "--json")
    assert (one.status, answer.document().keys()) == (0, {"orchard"})
    assert [row["check"] for row in answer.document()["orchard"]] == [row["check"] for row in one.document()]
    assert answer.status != 0
    assert "no-dump.json" in answer.err
    shown = run("--config", both, "verify", "meadow", "orchard", "--as-of", DAY)
    assert (shown.status, "orchard: passed: " in shown.out) == (answer.status, True)


@pytest.mark.parametrize("command", ["plan", "verify"])
@pytest.mark.parametrize("named", [(), ("orchard", "--all")], ids=["none", "names and --all"])
def test_a_command_needs_names_or_all_repositories(command: str, named: tuple[str, ...], tmp_path: Path) -> None:
    answer = run("--config", orchard(tmp_path, str(tmp_path)).file, command, *named)
    assert (answer.status, answer.out) == (2, "")
    assert "Name one or more repositories, or choose all of them with --all." in answer.err


def targets(*names: str) -> list[Any]:
    return [SimpleNamespace(name=name) for name in names]


def test_a_person_who_ends_the_command_sees_what_was_done_and_which_repositories_were_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done, shown = list[str](), list[str]()

    def do(target: Target, _: Sequence[str]) -> None:
        if target.name == "meadow":
            raise GuardRefused("refused")
        if target.name == "grove":
            raise KeyboardInterrupt
        done.append(target.name)

    with pytest.raises(KeyboardInterrupt):
        for_each(targets("orchard", "meadow", "grove", "field"), do, lambda: shown.extend(done))
    assert shown == ["orchard"]
    assert "error: meadow: refused" in capsys.readouterr().err


def test_the_command_ends_when_java_has_ended_and_names_the_other_repositories(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = list[str]()

    def do(target: Target, _: Sequence[str]) -> None:
        begun.append(target.name)
        raise StoreError(f"{target.name}: no connection")

    with subprocess.Popen(["true"]) as java:
        pass
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=java))
    with pytest.raises(StoreError, match="orchard: no connection"):
        for_each(targets("orchard", "meadow", "grove"), do, lambda: None)
    assert begun == ["orchard"]
    assert "The command did not begin with meadow grove: run it again for them." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "verify"])
def test_if_all_repositories_are_refused_the_json_document_is_empty(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GuardRefused("refused")

    for module in (planning, sweeping):
        monkeypatch.setattr(module, "run_job", refuse)
    answer = run("--config", orchard(tmp_path, str(tmp_path)).file, command, "--all", "--json")
    assert (answer.status, answer.document()) == (1, [] if command == "plan" else {})
    assert "error: refused" in answer.err
