"""What a person and a program get to see: tables, CSV, JSON, findings, help, and the run in Dagster's records."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli.main import cli
from retention_assets.tables import TABLES
from tests.end_to_end.command import DAY, MADE_BY_A_PLAN, Answer, Place, orchard_on_disk, run
from tests.repositories import expected, listing

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Answer]:
    """A place with the answer to `plan`. Not to be changed."""
    place = orchard_on_disk(tmp_path_factory.mktemp("planned"))
    answer = place.run("plan", "--json")
    assert answer.status == 0, answer.err
    return place, answer


@pytest.fixture(scope="module")
def place(planned: tuple[Place, Answer]) -> Place:
    return planned[0]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A screen of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    yield 100


def test_plan_as_json_is_one_document_with_plan_and_summary(planned: tuple[Place, Answer]) -> None:
    document = planned[1].document()
    assert document["repository"] == "orchard"
    assert document["day"] == DAY
    assert len(document["plan_hash"]) == 64
    by_reason = {row["name"]: row["objects"] for row in document["summary"]["by_reason"]}
    committed = [row for row in expected("orchard", "retention.csv") if row.kind == "committed"]
    assert by_reason["expired"] == len(committed)
    assert sum(by_reason.values()) == document["candidates"]["objects"]


def test_the_totals_of_a_plan_are_what_is_listed(planned: tuple[Place, Answer]) -> None:
    totals = planned[1].document()["totals"].values()
    data = [entry for entry in listing("orchard") if not entry.address.startswith("_lakefs/")]
    assert sum(amount["objects"] for amount in totals) == len(data)
    assert sum(amount["bytes"] for amount in totals) == sum(entry.size for entry in data)


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_csv_is_the_table_and_nothing_else(place: Place, table: str) -> None:
    answer = place.run("show", table, "--format", "csv")
    header, *rows = csv.reader(StringIO(answer.out))
    names = TABLES[table].schema.names
    assert answer.status == 0
    assert answer.err == ""
    assert sorted(header) == sorted(names)
    assert header[0] == ("address" if "address" in names else names[0])
    assert {len(row) for row in rows} <= {len(names)}
    assert len(rows) == len(place.rows(table))


def test_lists_are_joined_by_semicolons_in_csv_and_whole_in_json(place: Place) -> None:
    rows = {row["commit_id"]: row for row in place.rows("commit_graph")}
    table = csv.DictReader(StringIO(place.run("show", "commit_graph", "--format", "csv").out))
    merges = [row for row in table if len(rows[row["commit_id"]]["parents"]) > 1]
    assert merges
    for row in merges:
        assert row["parents"].split(";") == rows[row["commit_id"]]["parents"]


def test_instants_are_whole_in_csv_and_json(place: Place) -> None:
    for row in place.rows("storage_inventory"):
        assert datetime.fromisoformat(row["last_modified"]).utcoffset() is not None


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_limit_limits(place: Place, form: str) -> None:
    answer = place.run("show", "addresses", "--format", form, "--limit", "3")
    amount = len(json.loads(answer.out)) if form == "json" else len(answer.out.splitlines()) - 1
    assert amount == 3


def test_a_screen_shows_twenty_rows_and_how_to_get_the_rest(place: Place) -> None:
    answer = place.run("show", "addresses")
    assert sum(line.startswith("data/") for line in answer.out.splitlines()) == 20
    assert "more rows" in answer.err
    assert "--limit" in answer.err


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_a_screen_shows_no_long_id_and_no_seconds_and_no_line_too_long(place: Place, screen: int, table: str) -> None:
    shown = place.run("show", table).out
    rows = place.rows(table)
    ids = {str(value) for row in rows for value in row.values() if isinstance(value, str) and len(value) == 64}
    assert not any(long_id in shown for long_id in ids)
    assert all(long_id[:12] in shown for long_id in {str(row["commit_id"]) for row in rows[:3] if "commit_id" in row})
    assert "+00:00" not in shown
    assert [line for line in shown.splitlines() if len(line) > screen and not line.startswith("data/")] == []


def test_a_table_that_fits_the_screen_is_drawn_as_one(place: Place, screen: int) -> None:
    assert "┃ address" in place.run("show", "uncommitted_objects").out


def test_a_table_that_does_not_fit_becomes_a_block_for_each_row(place: Place, screen: int) -> None:
    shown = place.run("show", "deletion_candidates", "--limit", "1").out.splitlines()
    assert shown[1].startswith("data/")
    assert shown[2].startswith("    size ")
    assert all(line.startswith("    ") for line in shown[2:])


def test_the_run_is_where_dagster_looks_for_it(place: Place, planned: tuple[Place, Answer]) -> None:
    run_id = planned[1].document()["run_id"]
    with dg.DagsterInstance.get() as instance:
        recorded = instance.get_run_by_id(run_id)
        assert recorded is not None
        assert recorded.is_success
        assert recorded.tags["dagster/partition"] == DAY
        for table in MADE_BY_A_PLAN:
            key = dg.AssetKey(["orchard", table])
            assert DAY in instance.get_materialized_partitions(key)


def write_policy(directory: Path, text: str) -> Place:
    place = orchard_on_disk(directory)
    (directory / "gc_rules.json").write_text(text, encoding="utf-8")
    return place


def test_lint_has_nothing_to_say_of_the_servers_own_rules(place: Place) -> None:
    answer = run("--config", place.file, "lint")
    assert (answer.status, answer.err) == (0, "")
    assert "no issues found" in answer.out


def test_lint_warns_of_an_unknown_branch_and_of_other_rules_on_the_server(tmp_path: Path) -> None:
    place = write_policy(
        tmp_path, "retention: {default: 30d, branches: [{branch: main, keep: 10d}, {branch: dve, keep: 14d}]}"
    )
    answer = run("--config", place.file, "lint", "orchard")
    assert answer.status == 0, answer.err
    assert "warning" in answer.out
    assert "there is no branch 'dve'" in answer.out
    assert "branch 'main' is kept 10d here and 45d by the server's rules" in answer.out


def test_lint_ends_in_2_on_an_error_and_json_tells_the_same(tmp_path: Path) -> None:
    place = write_policy(tmp_path, "holds: [{id: audit, tag: no-such-tag, reason: the audit}]")
    answer, as_json = run("--config", place.file, "lint"), run("--config", place.file, "lint", "--json")
    assert answer.status == as_json.status == 2
    assert "orchard: error: audit: " in answer.out
    assert {finding["rule_id"] for finding in as_json.document()["orchard"] if finding["severity"] == "error"} == {
        "audit"
    }


def test_what_looks_like_markup_in_a_finding_is_printed_as_it_is(tmp_path: Path) -> None:
    rules = "{id: one, prefix: 'a[red]', keep: 10d}, {id: two, prefix: 'a[red]/b', keep: 5d}"
    place = write_policy(tmp_path, f"lifecycle: [{rules}]")
    assert "a[red]" in run("--config", place.file, "lint").out


@pytest.mark.parametrize("command", [None, *sorted(cli.commands)])
def test_every_command_explains_itself(command: str | None) -> None:
    result = CliRunner().invoke(cli, [command, "--help"] if command else ["--help"], prog_name="retention")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: retention")
    assert "..." not in result.output.replace("[REPOSITORIES]...", "").replace("[ARGS]...", "").replace(
        "[ADDRESS]...", ""
    )


@pytest.mark.slow
def test_the_demo_works_from_a_clean_copy(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for name in ("retention_assets", "demo"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".dagster"))
    without_home = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    ended = subprocess.run(
        [sys.executable, "-c", "from retention_assets.cli.main import main; main()", "demo"],
        cwd=tmp_path,
        env={**without_home, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "nothing to approve yet; plan again after " in ended.stdout  # a first plan: everything has to settle
    assert "objects (3.1 KiB) wait until " in ended.stdout
    assert f" show orchard due_objects --as-of {DAY}" in ended.stdout
    assert (tmp_path / ".demo" / "warehouse" / "orchard" / "deletion_candidates" / "2026-11-01").is_dir()
    assert len(ended.stderr.splitlines()) <= 2, ended.stderr  # Java itself has a line to say


def test_approving_and_withdrawing_as_json_name_the_plan_and_the_person(
    planned: tuple[Place, Answer], tmp_path: Path
) -> None:
    shutil.copytree(planned[0].directory, tmp_path / "copy")
    copy = Place(tmp_path / "copy", {**planned[0].settings})
    copy.write(mode="quarantine")
    copy.adopt()
    plan = planned[1].document()
    approved = copy.run("approve", plan["plan_hash"], "--json").document()
    assert approved["plan_hash"] == plan["plan_hash"]
    assert {name: approved[name] for name in ("objects", "bytes")} == plan["candidates"]
    assert approved["settings"]["mode"] == "quarantine"
    (status,) = run("--config", copy.file, "status", "--json").document()
    assert status["plan"]["plan_hash"] == plan["plan_hash"]
    assert status["approved_by"] == approved["approved_by"]
    address = copy.rows("deletion_candidates")[0]["address"]
    assert copy.run("explain", address, "--json").document()["objects"][0]["state"] == "candidate"
    assert copy.run("withdraw", "--json").document()["withdrawn_by"] == approved["approved_by"]
