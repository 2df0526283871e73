"""`retention report` shows what was done on a day under each plan of the day."""

from dataclasses import replace
from pathlib import Path

import pytest

from retention_assets.core.amounts import Amount
from retention_assets.state.ledger import LEDGERS
from retention_assets.state.plan import Plan, keep_plan, withdraw_plan
from retention_assets.state.records import write_record
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import Project, orchard
from tests.explain.test_status import DAY, HASH, a_plan, a_record

AGAIN = "b" * 64


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose plan was swept. It has no objects."""
    (tmp_path / "lake").mkdir()
    project = orchard(tmp_path, "lake")
    project.write(mode="delete")
    keep_plan(warehouse_of(project), a_plan())
    write_record(warehouse_of(project), a_record(deleted=3, failed=2))
    return project


def warehouse_of(project: Project) -> Warehouse:
    return Warehouse(str(project.warehouse))


def plan_again(project: Project) -> Plan:
    first = a_plan()
    made = replace(first, plan_hash=AGAIN, made_at=first.made_at.replace(hour=5), candidates=Amount(7, 70))
    keep_plan(warehouse_of(project), made)
    return made


def test_a_sweep_stays_in_the_report_after_the_day_is_planned_again(project: Project) -> None:
    plan_again(project)
    shown = project.run("report")
    assert shown.status == 0, shown.err
    assert f"orchard {DAY}, plan {HASH}" in shown.out
    assert "│ deleted     │       3 │" in shown.out
    assert f"The current plan of {DAY}, {AGAIN}, was not swept. Sweep with:" in shown.out
    document = project.run("report", "--json").document()
    assert (document["plan_hash"], document["outcomes"]["deleted"]["objects"]) == (HASH, 3)
    assert document["earlier_plans"] == []


def test_a_sweep_stays_in_the_report_after_a_guard_refuses_the_next_plan_of_the_day(project: Project) -> None:
    withdraw_plan(warehouse_of(project), "orchard", DAY)
    shown = project.run("report")
    assert shown.status == 0, shown.err
    assert f"orchard {DAY}, plan {HASH}" in shown.out
    assert f"There is no current plan of {DAY}: it was withdrawn or refused." in shown.out


def test_the_report_has_each_swept_plan_of_the_day_and_the_newest_one_last(project: Project) -> None:
    plan_again(project)
    write_record(warehouse_of(project), replace(a_record(deleted=7), plan_hash=AGAIN, fence=2))
    shown = project.run("report").out
    assert 0 < shown.index(f"plan {HASH}") < shown.index("│ deleted     │       3 │") < shown.index(f"plan {AGAIN}")
    assert "│ deleted     │       7 │" in shown
    document = project.run("report", "--json").document()
    assert (document["plan_hash"], document["outcomes"]["deleted"]["objects"]) == (AGAIN, 7)
    (earlier,) = document["earlier_plans"]
    assert (earlier["plan_hash"], earlier["outcomes"]["deleted"]["objects"]) == (HASH, 3)


def test_the_report_of_a_plan_does_not_need_the_other_plans_of_the_day(project: Project) -> None:
    other = "2" * 64
    warehouse_of(project).write_text("", "orchard", LEDGERS, str(DAY), other, "00000001-run", "rows")
    warehouse_of(project).write_text("", "orchard", LEDGERS, str(DAY), "@eaDir", "file")
    shown = project.run("report")
    assert shown.status == 0, shown.err
    assert f"plan {HASH}" in shown.out
    assert "Not shown: orchard: no plan was found whose hash begins with" in " ".join(shown.out.split())
    (problem,) = project.run("report", "--json").document()["unread_plans"]
    assert other[:8] in problem


def test_an_interrupted_sweep_of_an_earlier_plan_is_in_the_report(project: Project) -> None:
    plan_again(project)
    warehouse_of(project).write_text("", "orchard", LEDGERS, str(DAY), HASH, "00000002-killed", "rows")
    shown = project.run("report").out
    assert "A later run has not ended" in shown
