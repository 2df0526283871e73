"""`retention lint`: findings about settings and other repositories."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from retention_assets.config.timestamps import utc_now
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.sweep.memory import keep_memory
from retention_assets.policy.rules import CommittedRetention, Policy
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.approved import source
from tests.end_to_end.command import environment, orchard_on_disk, run
from tests.frames import OLD
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import SECRET_KEY, serving
from tests.sweep.small_world import a_plan


@pytest.mark.parametrize(("grace", "warned"), [("1h", True), ("24h", False), ("3d", False)])
def test_lint_warns_of_a_grace_period_below_that_of_the_server(tmp_path: Path, grace: str, warned: bool) -> None:
    project = orchard_on_disk(tmp_path)
    with serving(saved("orchard")) as server, environment(LAKEFS_SECRET=SECRET_KEY):
        project.write(source=source(server), staged=None, grace=grace)
        answer = run("--config", project.file, "lint", "orchard")
    assert answer.status == 0, answer.err
    output = " ".join(answer.out.split())
    assert ("grace is 1h, the server's own grace period is " in output) is warned


def test_lint_names_heads_that_only_the_reflog_keeps_and_warns_if_the_reflog_is_off(tmp_path: Path) -> None:
    project, world = orchard_on_disk(tmp_path), saved("orchard")
    head = world.branches["main"]
    known = References({head: Commit(head, (), OLD, "")}, {"main": head, "gone": head}, {}, utc_now())
    policy = Policy(CommittedRetention((), timedelta(days=30), has_default=True), (), ())
    keep_memory(Warehouse(str(project.warehouse)), a_plan(made_at=utc_now()), known, policy)

    def output(**settings: object) -> str:
        with serving(saved("orchard")) as server, environment(LAKEFS_SECRET=SECRET_KEY):
            project.write(source=source(server), staged=None, **settings)
            answer = run("--config", project.file, "lint", "orchard")
        assert answer.status == 0, answer.err
        return " ".join(answer.out.split())

    assert f"branch gone no longer names {head}. The reflog keeps its commits until" in output(settle="24h")
    off = output(settle="24h", reflog=False)
    assert "the reflog is off" in off
    assert "branch gone" not in off


LAYOUTS = {
    "another repository has its storage": ({"meadow": "lake"}, "warehouse", {}, "namespaces_apart", "overlaps with"),
    "the warehouse is inside": ({}, "lake/tables", {}, "warehouse", "plans would list the files of the warehouse"),
    "the quarantine is inside": (
        {},
        "warehouse",
        {"mode": "quarantine", "quarantine": {"url": "lake/q"}},
        "quarantine",
        "quarantine.url: file://{here}/lake/q is not outside of file://{here}/lake",
    ),
    "the parent of the quarantine is missing": (
        {},
        "warehouse",
        {"mode": "quarantine", "quarantine": {"url": "no/q"}},
        "quarantine",
        "the directory cannot be created: there is no directory {here}/no. Nothing was moved.",
    ),
}


@pytest.mark.parametrize(("others", "tables", "settings", "key", "told"), LAYOUTS.values(), ids=LAYOUTS)
def test_lint_and_access_report_locations_that_plans_or_sweeps_refuse(
    tmp_path: Path, others: dict[str, str], tables: str, settings: dict[str, Any], key: str, told: str
) -> None:
    project = orchard_on_disk(tmp_path)
    project.tables = tables
    project.write(**settings)
    document = yaml.safe_load(project.file.read_text(encoding="utf-8"))
    for name, storage in others.items():
        entry = {**project.settings, "namespace": f"s3://lake/{name}", "storage": storage}
        document["repositories"][name] = entry
    project.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    told = told.format(here=tmp_path.resolve())
    linted = run("--config", project.file, "lint", "orchard")
    assert linted.status == 2
    assert f"orchard: error: {key}: " in linted.out
    assert told in linted.out
    tested = run("--config", project.file, "access", "orchard", "--json")
    failed = [one for one in tested.document()["checks"] if one["state"] == "failed"]
    assert [told in one["detail"] for one in failed] == [True]
    assert tested.status == (0 if key == "quarantine" else 3)
