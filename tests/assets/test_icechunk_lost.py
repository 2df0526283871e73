"""An Icechunk repository that lost needed files: plans are refused until a person acknowledges the losses."""

from pathlib import Path

import pytest

from tests.end_to_end.command import Answer, Json, run
from tests.icechunk_projects import IcechunkProject, ago, array_of, icechunk_project
from tests.icechunk_repositories import INITIAL, Commit, open_repository

pytestmark = pytest.mark.usefixtures("spark", "forgetful")

COMMITS = (Commit("a", None, ago(100)), Commit("gone", "a", ago(90)), Commit("b", "a", ago(5)))


def acknowledge(field: IcechunkProject, *arguments: str) -> Answer:
    return run("--config", field.project.file, "acknowledge", field.project.name, *arguments)


def plan(field: IcechunkProject) -> Json:
    answer = field.project.run("plan", "--json")
    assert answer.status == 0, answer.err
    document: Json = answer.document()
    return document


def candidates(field: IcechunkProject) -> set[str]:
    return {row["address"] for row in field.project.rows("deletion_candidates")}


def live(field: IcechunkProject, table: str) -> str:
    return min(row["address"] for row in field.project.rows(table) if row["live"])


def require_refused_and_acknowledge(field: IcechunkProject, address: str) -> None:
    refused = field.project.run("plan")
    assert refused.status == 1
    assert address in refused.err
    assert "retention acknowledge" in refused.err
    done = acknowledge(field, "--yes")
    assert done.status == 0, done.err
    assert address in done.out


@pytest.mark.slow
def test_acknowledged_losses_are_counted_and_another_missing_file_refuses_the_plan(tmp_path: Path) -> None:
    field = icechunk_project(tmp_path, 2, COMMITS, {"main": "b"}, {})
    repository = field.directory
    plan(field)
    going = candidates(field)
    assert {name.partition("/")[0] for name in going} >= {"chunks", "manifests"}

    chunk = live(field, "reachable_chunks")
    (repository / chunk).unlink()
    require_refused_and_acknowledge(field, chunk)
    assert plan(field)["lost"] == 1
    assert candidates(field) == going
    verified = field.project.run("verify")
    assert verified.status == 0, verified.err
    assert "is missing, except 1 acknowledged as lost" in verified.out

    manifest = live(field, "reachable_manifests")
    (repository / manifest).unlink()
    require_refused_and_acknowledge(field, manifest)
    assert plan(field)["lost"] == 2
    assert candidates(field) == going  # an earlier plan read the manifest

    answer = field.project.run("plan", "--json", "--full")  # as if no plan had ever read it
    assert answer.status == 0, answer.err
    assert "no manifest and no chunk is deleted" in " ".join(answer.document()["warnings"])
    left = {name for name in going if not name.startswith(("chunks/", "manifests/"))}
    assert candidates(field) == left
    assert field.project.run("verify").status == 0


@pytest.mark.slow
def test_a_lost_root_that_an_earlier_plan_read_does_not_change_the_candidates(tmp_path: Path) -> None:
    """The root references no manifest, so the cache has no row of the root."""
    field = icechunk_project(tmp_path, 2, COMMITS, {"main": "b"}, {})
    plan(field)
    going = candidates(field)
    (field.directory / "snapshots" / INITIAL).unlink()
    require_refused_and_acknowledge(field, f"snapshots/{INITIAL}")
    document = plan(field)
    assert (document["lost"], document["warnings"]) == (1, [])
    assert candidates(field) == going


@pytest.mark.slow
def test_a_missing_snapshot_that_no_run_has_read_can_be_acknowledged(tmp_path: Path) -> None:
    commits = (*COMMITS, Commit("s", "b", ago(4)))
    field = icechunk_project(tmp_path, 2, commits, {"main": "b", "side": "s"}, {})
    snapshot = f"snapshots/{field.ids['s']}"
    (field.directory / snapshot).unlink()
    require_refused_and_acknowledge(field, snapshot)
    document = plan(field)
    assert document["lost"] == 1
    (warning,) = document["warnings"]
    assert warning.startswith("1 snapshot or manifest is needed but lost, and no run ever read")
    assert "a lost snapshot that no branch or tag needs stays for ever" in warning
    assert not [name for name in candidates(field) if name.startswith(("chunks/", "manifests/"))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manifests", "snapshots"])
def test_a_sweep_keeps_what_a_lost_file_references_that_came_back_after_the_plan(tmp_path: Path, kind: str) -> None:
    """No run has read the file, and in format 1 a branch can be made on its snapshot again."""
    commits = (*COMMITS, Commit("s", "b", ago(4)))
    field = icechunk_project(tmp_path, 1, commits, {"main": "b", "side": "s"}, {}, approval={"max_revived": 1.0})
    snapshot = field.ids["s"]
    before, values = open_repository(field.directory), array_of(field.directory, snapshot)
    own, of_main = ({one.id for one in before.list_manifest_files(field.ids[name])} for name in "sb")
    lost = f"snapshots/{snapshot}" if kind == "snapshots" else f"manifests/{min(own - of_main)}"
    (field.directory / lost).rename(tmp_path / "backup")
    assert field.project.run("plan").status
    assert acknowledge(field, lost, "--yes").status == 0
    assert run("--config", field.project.file, "icechunk", "field", "branch", "delete", "side").status == 0
    field.project.run("approve", str(plan(field)["plan_hash"]))
    (tmp_path / "backup").rename(field.directory / lost)
    made = run("--config", field.project.file, "icechunk", "field", "branch", "create", "side", snapshot)
    assert made.status == 0, made.err
    swept = field.project.run("sweep")
    assert swept.status == 0, swept.err
    assert array_of(field.directory, snapshot).tolist() == values.tolist()
    assert field.project.run("verify").status == 0
