"""Output of commands: tables, CSV, JSON, findings, help, and the run in Dagster's instance."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import click
import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget, get_origins_from_toml
from dagster_graphql.schema import create_schema

from retention_assets.cli.group import log_line, say, warn
from retention_assets.cli.main import cli
from retention_assets.cli.rendering import print_rows
from retention_assets.tables import TABLES
from tests.end_to_end.command import DAY, MADE_BY_A_PLAN, Answer, Json, Project, orchard_on_disk, run
from tests.saved_repositories import expected, listing

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def project(planned_orchard: tuple[Project, Answer]) -> Project:
    return planned_orchard[0]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A screen of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    yield 80


def test_plan_as_json_is_one_document_with_plan_and_summary(planned_orchard: tuple[Project, Answer]) -> None:
    document = planned_orchard[1].document()
    assert document["repository"] == "orchard"
    assert document["day"] == DAY
    assert len(document["plan_hash"]) == 64
    by_reason = {row["name"]: row["objects"] for row in document["summary"]["by_reason"]}
    committed = [row for row in expected("orchard", "retention.csv") if row.kind == "committed"]
    assert by_reason["expired"] == len(committed)
    assert sum(by_reason.values()) == document["candidates"]["objects"]


def test_the_totals_of_a_plan_equal_the_listed_objects(planned_orchard: tuple[Project, Answer]) -> None:
    totals = planned_orchard[1].document()["totals"].values()
    data = [entry for entry in listing("orchard") if not entry.address.startswith("_lakefs/")]
    assert sum(amount["objects"] for amount in totals) == len(data)
    assert sum(amount["bytes"] for amount in totals) == sum(entry.size for entry in data)


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_csv_output_has_only_the_table(project: Project, table: str) -> None:
    answer = project.run("show", table, "--format", "csv")
    header, *rows = csv.reader(StringIO(answer.out))
    names = TABLES[table].schema.names
    assert answer.status == 0
    assert answer.err == ""
    assert sorted(header) == sorted(names)
    assert header[0] == ("address" if "address" in names else names[0])
    assert {len(row) for row in rows} <= {len(names)}
    assert len(rows) == len(project.rows(table))


def test_lists_are_joined_by_semicolons_in_csv_and_stay_lists_in_json(project: Project) -> None:
    rows = {row["commit_id"]: row for row in project.rows("commit_graph")}
    table = csv.DictReader(StringIO(project.run("show", "commit_graph", "--format", "csv").out))
    merges = [row for row in table if len(rows[row["commit_id"]]["parents"]) > 1]
    assert merges
    for row in merges:
        assert row["parents"].split(";") == rows[row["commit_id"]]["parents"]


def test_timestamps_in_json_have_a_time_zone(project: Project) -> None:
    for row in project.rows("storage_inventory"):
        assert datetime.fromisoformat(row["last_modified"]).utcoffset() is not None


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_limit_bounds_the_number_of_rows(project: Project, form: str) -> None:
    answer = project.run("show", "addresses", "--format", form, "--limit", "3")
    amount = len(json.loads(answer.out)) if form == "json" else len(answer.out.splitlines()) - 1
    assert amount == 3


def test_a_screen_shows_twenty_rows_and_how_to_get_the_rest(project: Project) -> None:
    answer = project.run("show", "addresses")
    assert sum(line.startswith("data/") for line in answer.out.splitlines()) == 20
    assert "more rows" in answer.err
    assert "--limit" in answer.err


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_a_screen_shows_full_ids_no_time_zones_and_no_line_that_is_too_long(
    project: Project, screen: int, table: str
) -> None:
    shown = project.run("show", table).out
    rows = project.rows(table)
    ids = {str(value) for row in rows for value in row.values() if isinstance(value, str) and len(value) == 64}
    beginnings = {long_id for long_id in ids if long_id[:12] in shown}
    assert all(long_id in shown for long_id in beginnings)
    assert beginnings >= {str(row["commit_id"]) for row in rows[:20] if "commit_id" in row}
    assert "+00:00" not in shown
    assert [line for line in shown.splitlines() if len(line) > screen and not line.startswith("data/")] == []


def test_a_table_that_fits_the_screen_is_drawn_as_a_table(project: Project, screen: int) -> None:
    assert "┃ address" in project.run("show", "uncommitted_objects").out


def test_a_table_that_does_not_fit_becomes_a_block_for_each_row(project: Project, screen: int) -> None:
    shown = project.run("show", "deletion_candidates", "--limit", "1").out.splitlines()
    assert shown[1].startswith("data/")
    assert shown[2].startswith("  size ")
    assert all(line.startswith("  ") for line in shown[2:])


def test_a_plan_of_the_command_line_is_a_run_of_the_dagster_instance(
    project: Project, planned_orchard: tuple[Project, Answer]
) -> None:
    run_id = planned_orchard[1].document()["run_id"]
    with dg.DagsterInstance.get() as instance:
        recorded = instance.get_run_by_id(run_id)
        assert recorded is not None
        assert recorded.is_success
        assert recorded.tags["dagster/partition"] == DAY
        for table in MADE_BY_A_PLAN:
            key = dg.AssetKey(["orchard", table])
            assert DAY in instance.get_materialized_partitions(key)


def test_the_dagster_timeline_shows_the_run_at_the_job_of_the_code_location(
    planned_orchard: tuple[Project, Answer],
) -> None:
    origin = "jobName repositoryOrigin {repositoryLocationName repositoryName}"
    query = f"query($id: String!) {{runsOrError(filter: {{runIds: [$id]}}) {{... on Runs {{results {{{origin}}}}}}}}}"
    with dg.DagsterInstance.get() as instance, WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as dagster:
        context, asked = dagster.create_request_context(), {"id": planned_orchard[1].document()["run_id"]}
        answer = create_schema().execute(query, variable_values=asked, context_value=context)
    assert answer.errors is None
    (served,) = get_origins_from_toml("pyproject.toml")
    names = {"repositoryLocationName": served.location_name, "repositoryName": "__repository__"}
    assert answer.data["runsOrError"]["results"] == [{"jobName": "orchard_plan", "repositoryOrigin": names}]


def write_policy(directory: Path, text: str) -> Project:
    project = orchard_on_disk(directory)
    (directory / "gc_rules.json").write_text(text, encoding="utf-8")
    return project


def test_lint_has_no_findings_about_the_rules_of_the_server_itself(project: Project) -> None:
    answer = run("--config", project.file, "lint")
    assert (answer.status, answer.err) == (0, "")
    assert re.findall(r"orchard: (\w+: \w+):", answer.out) == ["warning: reflog"]  # it is off with `settle: 0s`


def test_lint_warns_of_an_unknown_branch_and_of_other_rules_on_the_server(tmp_path: Path) -> None:
    project = write_policy(
        tmp_path, "retention: {default: 30d, branches: [{branch: main, keep: 10d}, {branch: dve, keep: 14d}]}"
    )
    answer = run("--config", project.file, "lint", "orchard")
    assert answer.status == 0, answer.err
    assert "warning" in answer.out
    assert "there is no branch 'dve'" in answer.out
    assert "branch 'main' is kept 10d by the policy and 45d by the server's rules" in answer.out


def test_lint_exits_with_2_on_an_error_also_with_json(tmp_path: Path) -> None:
    project = write_policy(tmp_path, "holds: [{id: audit, tag: no-such-tag, reason: the audit}]")
    answer, as_json = run("--config", project.file, "lint"), run("--config", project.file, "lint", "--json")
    assert answer.status == as_json.status == 2
    assert "orchard: error: audit: " in answer.out
    assert {finding["rule_id"] for finding in as_json.document()["orchard"] if finding["severity"] == "error"} == {
        "audit"
    }


@pytest.mark.parametrize("prints", [say, warn, log_line])
def test_a_name_that_contains_the_code_of_an_emoji_is_printed_unchanged(
    prints: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    prints("restore --address run:100:x.csv")
    assert "".join(capsys.readouterr()) == "restore --address run:100:x.csv\n"


def test_text_in_a_finding_that_resembles_markup_is_printed_unchanged(tmp_path: Path) -> None:
    rules = "{id: one, prefix: 'a[red]', keep: 10d}, {id: two, prefix: 'a[red]/b', keep: 5d}"
    project = write_policy(tmp_path, f"lifecycle: [{rules}]")
    assert "a[red]" in run("--config", project.file, "lint").out


def on_latin_1(*arguments: str | Path) -> str:
    """Return what `retention` prints where standard output has no other characters than Latin-1."""
    ended = subprocess.run(
        [sys.executable, "-c", "from retention_assets.cli.main import main; main()", *map(str, arguments)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.decode("latin-1")


def test_status_has_digits_in_place_of_bars_where_the_terminal_has_no_bars(project: Project) -> None:
    (line,) = [one for one in run("--config", project.file, "status").out.splitlines() if "█" in one]
    printed = on_latin_1("--config", project.file, "status").replace("|", " ")
    assert line.replace("█", "8").split() in [one.split() for one in printed.splitlines()]


@pytest.mark.long
def test_names_that_the_terminal_cannot_print_are_escaped_and_json_stays_valid(tmp_path: Path) -> None:
    rules = "{id: größe-💯, prefix: a, keep: 10d}, {id: two, prefix: a/b, keep: 5d}"
    project = write_policy(tmp_path, f"lifecycle: [{rules}]")
    assert "größe-\\U0001f4af" in on_latin_1("--config", project.file, "lint")
    findings = json.loads(on_latin_1("--config", project.file, "lint", "--json"))["orchard"]
    assert any("größe-💯" in json.dumps(one, ensure_ascii=False) for one in findings)


def test_rows_as_json_are_valid_where_the_terminal_cannot_print_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(printed, "ascii", errors="backslashreplace", write_through=True))
    print_rows("orchard.addresses", [{"address": "größe-💯"}], ["address"], "json", None)
    assert json.loads(printed.getvalue()) == [{"address": "größe-💯"}]


@pytest.mark.parametrize("command", [None, *sorted(cli.commands)])
def test_every_command_has_a_help_text(command: str | None) -> None:
    result = CliRunner().invoke(cli, [command, "--help"] if command else ["--help"], prog_name="retention")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: retention")
    assert "..." not in result.output.replace("[REPOSITORIES]...", "").replace("[ARGS]...", "").replace(
        "[ADDRESS]...", ""
    )


@pytest.mark.long
def test_the_demo_works_from_a_clean_copy(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for name in ("retention_assets", "demo"):
        shutil.copytree(root / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", ".dagster"))
    for name in ("dagster.yaml", "Makefile"):
        shutil.copyfile(root / name, tmp_path / name)
    without_home = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    called = "import sys; sys.argv[0] = '.venv/bin/retention'; from retention_assets.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", called, "demo"],
        cwd=tmp_path,
        env={**without_home, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    readme = (root / "README.md").read_text(encoding="utf-8").splitlines()
    for line in ended.stdout.splitlines():
        assert line.startswith("  field ") or line.rstrip() in readme  # icechunk makes other bytes each time
    counts = [
        re.findall(r"(\d+), ", line) for line in [*readme, *ended.stdout.splitlines()] if line.startswith("  field ")
    ]
    assert counts[0] == counts[1]
    assert (tmp_path / ".demo" / "warehouse" / "orchard" / "deletion_candidates" / "2026-11-01").is_dir()
    assert len(ended.stderr.splitlines()) <= 2, ended.stderr  # Java itself has a line to say


def test_approve_and_withdraw_with_json_name_the_plan_and_the_person(
    planned_orchard: tuple[Project, Answer], tmp_path: Path
) -> None:
    project, answer = planned_orchard
    copy, plan = project.copy(tmp_path / "copy", mode="quarantine"), answer.document()
    assert "  reflog: null (it is off)\n" in copy.run("approve", plan["plan_hash"]).out
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


def change_document(file: Path, change: Callable[[Json], Json]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text("utf-8")))), encoding="utf-8")


def other_references(tables: Path) -> None:
    change_document(
        tables / "commit_graph" / DAY / "_facts.json",
        lambda metadata: {**metadata, "notes": {**metadata["notes"], "references_hash": "f" * 64}},
    )


def other_objects(tables: Path) -> None:
    def one_less(plan: Json) -> Json:
        kept = {**plan["totals"]["kept"], "objects": plan["totals"]["kept"]["objects"] - 1}
        return {**plan, "totals": {**plan["totals"], "kept": kept}}

    change_document(tables / "plans" / DAY / "current.json", one_less)


@pytest.mark.parametrize(
    ("damage", "status", "names", "undone"),
    [
        pytest.param(
            other_references, 1, "commit_graph has other references", "Nothing was compared", id="references_read_again"
        ),
        pytest.param(
            other_objects, 1, "storage_inventory has other objects", "Nothing was compared", id="objects_listed_again"
        ),
        pytest.param(
            lambda tables: (tables / "uncommitted_objects" / DAY / "_SUCCESS").unlink(),
            3,
            "uncommitted_objects of 2026-11-01 is missing",
            "Nothing was deleted",
            id="an_incomplete_table",
        ),
    ],
)
def test_a_policy_is_not_compared_with_tables_that_do_not_belong_to_the_plan(
    project: Project, tmp_path: Path, damage: Callable[[Path], object], status: int, names: str, undone: str
) -> None:
    shutil.copytree(project.directory, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lake"))
    copy = Project(tmp_path, project.settings)
    damage(copy.warehouse / "orchard")
    answer = copy.run("diff", "--policy", tmp_path / "gc_rules.json")
    message = " ".join(answer.err.split())
    assert (answer.status, answer.out) == (status, "")
    assert all(one in message for one in (names, undone, "retention plan orchard --as-of 2026-11-01")), message


def test_the_commands_in_results_and_warnings_name_the_given_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(cli, obj=Path("own.yaml")):
        say("Plan again: `retention plan orchard`.")
        warn("Acknowledge: `retention acknowledge orchard`.")
    printed = capsys.readouterr()
    assert printed.out == "Plan again: `retention --config own.yaml plan orchard`.\n"
    assert printed.err == "Acknowledge: `retention --config own.yaml acknowledge orchard`.\n"
