"""`explain` for a removed object shows the plan, rule, approval and record of its removal, and where its copy is."""

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.config.configuration import load_configuration
from retention_assets.explain.explaining import deciding_row, removals
from retention_assets.explain.explanations import ObjectExplanation, Removal
from retention_assets.objectstore.outcomes import OF_COPY, ObjectResult, Outcome
from retention_assets.state.acknowledged import write_acknowledgement
from retention_assets.state.ledger import LedgerLocation
from retention_assets.state.plan import keep_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import Answer, Json, Project, orchard, run
from tests.sweep.small_world import a_plan

pytestmark = pytest.mark.long

NOW = datetime(2026, 11, 2, tzinfo=UTC)
APPROVER = "bill@example.org"
_WATCHED = ("pyspark", "dagster")


@pytest.fixture(scope="module")
def swept(planned_orchard: tuple[Project, Answer], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Orchard after a sweep that moved its candidates to quarantine. Tests must not change it."""
    planned, answer = planned_orchard
    project = planned.copy(tmp_path_factory.mktemp("swept"), mode="quarantine")
    plan_hash = answer.document()["plan_hash"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETENTION_APPROVER", APPROVER)
        assert project.run("approve", plan_hash).status == 0
        answer = project.run("sweep")
    assert answer.status == 0, answer.err
    return project


def explained(project: Project, asked: str) -> Json:
    answer = run("--config", project.file, "explain", "orchard", asked, "--json")
    assert answer.status == 0, answer.err
    document: Json = answer.document()
    return document


def test_without_a_valid_plan_nothing_is_explained(tmp_path: Path) -> None:
    answer = run("--config", orchard(tmp_path, "lake").file, "explain", "orchard", "data/a")
    assert answer.status == 1
    message = " ".join(answer.err.split())
    assert "orchard: there is no valid plan. Nothing was read" in message
    assert "Plan with: `retention plan orchard`" in message


def an_expired(project: Project) -> Json:
    return next(row for row in project.rows("deletion_candidates") if row["reason"] == "expired")


def test_a_quarantined_object_is_explained_with_its_plan_rule_approval_record_and_copy(swept: Project) -> None:
    row = an_expired(swept)
    document = explained(swept, row["address"])
    one = document["objects"][0]
    removal = one["removal"]
    assert one["state"] == "gone"
    assert removal["outcome"] == "quarantined"
    assert removal["plan_hash"] == document["plan"]["plan_hash"]
    assert removal["rule_ids"] == row["rule_ids"]
    assert removal["paths"] == row["paths"]
    assert removal["approved_by"] == APPROVER
    assert (swept.warehouse / "orchard" / "records" / removal["record"]).is_file()
    assert Path(removal["copy"].removeprefix("file://")).is_file()
    assert datetime.fromisoformat(removal["purge_after"]) - datetime.fromisoformat(removal["at"]) == timedelta(days=30)


def test_the_explanation_names_the_approver_and_the_restore_command(swept: Project) -> None:
    text = run("--config", swept.file, "explain", "orchard", an_expired(swept)["address"]).out
    assert "is gone" in text
    assert f"approved by {APPROVER}" in text
    assert "restore orchard --address" in text


def test_an_interrupted_purge_is_not_said_to_be_approved_by_who_approved_the_sweep(
    swept: Project, tmp_path: Path
) -> None:
    project, row = swept.copy(tmp_path), an_expired(swept)
    plan = explained(project, row["address"])["plan"]
    day, plan_hash = date.fromisoformat(plan["day"]), plan["plan_hash"]
    ledger = LedgerLocation(str(project.warehouse), "orchard", day, plan_hash, 99, "a-purge-1")
    objects = pa.table({"address": [row["address"]], "size": [row["size"]]})
    ledger.append(ledger.rows(objects, [ObjectResult(Outcome.PURGED)], NOW), "00000-00000-0-00000", "done")
    text = run("--config", project.file, "explain", "orchard", row["address"]).out
    assert "purged at" in text
    assert f"approved by {APPROVER} at" not in text


def test_the_path_of_a_removed_object_is_explained(swept: Project) -> None:
    row = an_expired(swept)
    document = explained(swept, row["paths"][0])
    assert document["kind"] == "path"
    assert "gone" in {one["state"] for one in document["objects"] if one["address"] == row["address"]}


def test_a_removed_object_that_a_version_needs_again_is_explained_with_its_keeper(
    swept: Project, tmp_path: Path
) -> None:
    """A hold protects a commit again after the sweep removed its objects. A person acknowledged one of them as lost."""
    project = swept.copy(tmp_path)
    removed = [row["address"] for row in swept.rows("deletion_candidates") if row["reason"] == "expired"]
    warehouse = Warehouse(load_configuration(project.file).warehouse)
    write_acknowledgement(warehouse, "orchard", removed, "lost", APPROVER, NOW)
    (tmp_path / "holds.yaml").write_text("holds: [{id: audit, prefix: '', reason: an audit}]\n", encoding="utf-8")
    project.write(policy=["gc_rules.json", "holds.yaml"])
    project.plan()

    text = run("--config", project.file, "explain", "orchard", removed[0]).out
    assert f"{removed[0]}" in text
    assert "is gone" in text
    assert re.search(r"needed at \S+ because the hold audit on prefix", text)
    needed = "A version needs it, and the store does not have it."
    assert f"{needed} A person acknowledged it as lost, so plans and `verify` accept this." in text
    assert "restore orchard --address" in text

    shutil.rmtree(project.warehouse / "orchard" / "acknowledged")
    text = run("--config", project.file, "explain", "orchard", removed[0]).out
    assert f"{needed} List such objects: retention --config {project.file} verify orchard" in text


def test_explain_simulate_and_report_import_neither_spark_nor_dagster(swept: Project, tmp_path: Path) -> None:
    script = (
        "import json, sys\n"
        "from retention_assets.cli.main import cli\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    cli.main(arguments, standalone_mode=False)\n"
        f"    found = [name for name in {_WATCHED!r} if name in sys.modules]\n"
        "    assert not found, (arguments, found)\n"
    )
    reading = ["--config", str(swept.file)]
    commands = [
        [*reading, "explain", "orchard", an_expired(swept)["address"], "--json"],
        [*reading, "simulate", "orchard", "--json"],
        [*reading, "report", "orchard", "--html", str(tmp_path / "page.html")],
    ]
    asked = [sys.executable, "-c", script, json.dumps(commands)]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert all(shown in ended.stdout for shown in ('"gone"', '"proposed"', "report of 2026-11-01"))


def test_the_report_page_has_the_same_outcomes_as_the_ledger_and_the_terminal(swept: Project, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("--config", swept.file, "report", "orchard", "--html", page).status == 0
    text = page.read_text(encoding="utf-8")
    figures = json.loads(text.split('id="figures">')[1].split("</script>")[0])
    rows = swept.rows("deletion_report")
    size = sum(row["size"] for row in rows)
    assert {row["outcome"] for row in rows} == {"quarantined"}
    assert figures["outcomes"]["amounts"] == {
        "quarantined": {"objects": len(rows), "bytes": size},
        "unattempted": {"objects": 0, "bytes": 0},
    }
    assert f'data-objects="{len(rows)}" data-bytes="{size}"' in text.split("Outcomes of the plan")[1]
    assert f"│ quarantined │      {len(rows)} │" in swept.run("report").out
    assert [one["objects"] for one in figures["status"]["quarantine"]] == [len(rows)]
    assert f"by {APPROVER}" in text


def row(outcome: str, fence: int, hours: int = 0) -> dict[str, Any]:
    detail = OF_COPY if outcome == "purged" else None
    at = NOW + timedelta(hours=hours)
    return {"outcome": outcome, "fence": fence, "at": at, "address": "data/a", "detail": detail}


@pytest.mark.parametrize(
    ("rows", "outcome", "fence"),
    [
        pytest.param([row("attempted", 1), row("deleted", 1)], "deleted", 1, id="an attempt with a result"),
        pytest.param([row("attempted", 1)], "attempted", 1, id="an attempt without a result"),
        pytest.param([row("quarantined", 1), row("restored", 2)], "restored", 2, id="the newest sweep counts"),
        pytest.param([row("quarantined", 1), row("failed", 2)], "quarantined", 1, id="a failure changes nothing"),
        pytest.param([row("skipped", 1), row("failed", 2)], "failed", 2, id="nothing was done"),
        pytest.param(
            [row("attempted", 1), row("attempted", 1), row("missing", 1)], "missing", 1, id="results before attempts"
        ),
        pytest.param([row("quarantined", 1), row("missing", 2)], "quarantined", 1, id="another plan finds it missing"),
        pytest.param(
            [row("quarantined", 1), row("purged", 2), row("missing", 3)], "purged", 2, id="missing after a purge"
        ),
        pytest.param([row("restored", 1), row("missing", 2)], "missing", 2, id="missing after a restore"),
        pytest.param([row("attempted", 1), row("missing", 2)], "missing", 2, id="missing after an open attempt"),
        pytest.param(
            [row("restored", 1), row("purged", 2), row("missing", 3)], "missing", 3, id="missing after a copy purge"
        ),
        pytest.param(
            [row("quarantined", 1), row("restored", 2), row("purged", 3)], "restored", 2, id="another copy is purged"
        ),
    ],
)
def test_the_newest_row_that_shows_whether_an_object_is_gone_decides(
    rows: list[dict[str, Any]], outcome: str, fence: int
) -> None:
    found = deciding_row(rows)
    assert found is not None
    assert (found["outcome"], found["fence"]) == (outcome, fence)


def test_if_two_days_have_one_plan_hash_the_copy_is_in_the_folder_of_the_swept_day(tmp_path: Path) -> None:
    project, hash_of_both = orchard(tmp_path, "lake"), "a" * 64
    project.write(mode="quarantine")
    configuration = load_configuration(project.file)
    warehouse, swept_day = Warehouse(configuration.warehouse), date(2026, 11, 1)
    for day in (swept_day, date(2026, 11, 2)):
        keep_plan(warehouse, a_plan(day=day, plan_hash=hash_of_both))
    ledger = LedgerLocation(warehouse.root, "orchard", swept_day, hash_of_both, 1, "a-run")
    objects = pa.table({"address": ["data/a"], "size": [1]})
    ledger.append(ledger.rows(objects, [ObjectResult(Outcome.QUARANTINED)], NOW), "00000-00000-0-00000", "done")
    removed = removals(warehouse, configuration.repository("orchard"), ["data/a"])["data/a"]
    assert removed.copy is not None
    assert removed.copy.endswith(f"lake.quarantine/2026-11-01/{hash_of_both[:16]}/objects/data/a")


def test_the_newest_sweep_decides_even_if_its_plan_is_of_an_older_day(tmp_path: Path) -> None:
    configuration = load_configuration(orchard(tmp_path, "lake").file)
    warehouse, objects = Warehouse(configuration.warehouse), pa.table({"address": ["data/a"], "size": [1]})
    for day, plan_hash, fence, outcome in ((1, "b" * 64, 8, Outcome.DELETED), (2, "a" * 64, 4, Outcome.RESTORED)):
        keep_plan(warehouse, a_plan(day=date(2026, 11, day), plan_hash=plan_hash))
        ledger = LedgerLocation(warehouse.root, "orchard", date(2026, 11, day), plan_hash, fence, "a-run")
        ledger.append(ledger.rows(objects, [ObjectResult(outcome)], NOW), "00000-00000-0-00000", "done")
    removed = removals(warehouse, configuration.repository("orchard"), ["data/a"])["data/a"]
    assert (removed.outcome, removed.fence, removed.plan_hash) == (Outcome.DELETED, 8, "b" * 64)


@pytest.mark.parametrize(
    ("outcome", "listed", "state"),
    [
        pytest.param("deleted", True, "gone", id="deleted after the plan"),
        pytest.param("attempted", True, "candidate", id="an interrupted sweep, whose result is unknown"),
        pytest.param("attempted", False, "gone", id="an interrupted sweep, after which a plan did not list the object"),
        pytest.param("restored", True, "restored", id="restored after a plan that listed the object"),
        pytest.param("restored", False, "restored", id="restored after a plan that did not list the object"),
    ],
)
def test_a_newer_row_than_the_plan_shows_whether_the_object_is_gone(outcome: str, listed: bool, state: str) -> None:
    removal = Removal(outcome, NOW, None, "a" * 64, NOW.date(), 1, None, (), (), None, None, None, None, None)
    before = ObjectExplanation("data/a", "candidate" if listed else "absent", listed=listed)
    assert before.with_removal(removal, NOW - timedelta(hours=1)).state == state
    if outcome == "restored":
        assert before.with_removal(removal, NOW + timedelta(hours=1)).state == before.state


def test_without_ledger_rows_there_is_no_deciding_row() -> None:
    assert deciding_row([]) is None


@pytest.mark.parametrize("command", ["quarantined", "report"])
def test_the_full_hash_of_a_plan_is_printed_on_one_line(
    swept: Project, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan_hash = explained(swept, an_expired(swept)["address"])["plan"]["plan_hash"]
    day = ["--as-of", "2026-11-01"] if command == "report" else []
    answer = run("--config", swept.file, command, "orchard", *day)
    assert answer.status == 0, answer.err
    assert any(plan_hash in line for line in answer.out.splitlines())
