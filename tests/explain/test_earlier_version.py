"""`explain` and `status` read a warehouse of an earlier version, which has no policy next to its plans."""

from pathlib import Path

import pytest

from tests.end_to_end.command import DAY, Project, run
from tests.end_to_end.test_earlier_version import PLANNED, project_of_earlier_version
from tests.saved_repositories import expected


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Orchard with the warehouse of an earlier version after a sweep. Tests must not change it."""
    return project_of_earlier_version(tmp_path_factory.mktemp("earlier"))


def test_explain_names_the_plan_of_every_object_that_the_earlier_version_moved(saved: Project) -> None:
    for row in sorted(expected("orchard", "retention.csv"), key=lambda row: row.address)[:3]:
        answer = run("--config", saved.file, "explain", "orchard", row.address, "--json")
        assert answer.status == 0, answer.err
        one = answer.document()["objects"][0]
        assert one["state"] == "gone"
        assert (one["removal"]["outcome"], one["removal"]["plan_hash"]) == ("quarantined", PLANNED)


def test_a_kept_path_is_explained_by_the_policy_files(saved: Project) -> None:
    answer = run("--config", saved.file, "explain", "orchard", "README.md", "--json")
    assert answer.status == 0, answer.err
    assert {one["state"] for one in answer.document()["objects"]} <= {"kept", "gone", "candidate"}


def test_policy_files_that_were_changed_after_the_plan_are_refused_with_the_remedy(
    saved: Project, tmp_path: Path
) -> None:
    rules = saved.directory / "gc_rules.json"
    before = rules.read_text(encoding="utf-8")
    rules.write_text('{"default_retention_days": 3, "branches": []}', encoding="utf-8")
    try:
        answer = run("--config", saved.file, "explain", "orchard", "README.md")
    finally:
        rules.write_text(before, encoding="utf-8")
    assert answer.status != 0
    assert f"retention plan orchard --as-of {DAY}" in answer.err


def test_the_status_has_the_plan_the_sweep_and_the_quarantine(saved: Project) -> None:
    document = run("--config", saved.file, "status", "--json").document()[0]
    assert document["plan"]["plan_hash"] == PLANNED
    assert document["sweep"]["outcomes"]["quarantined"]["objects"] == 59
    assert [(held["plan_hash"], held["objects"]) for held in document["quarantine"]] == [(PLANNED, 59)]
