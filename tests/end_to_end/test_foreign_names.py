"""A foreign file at the top of a namespace whose name is an MD5, like the names of old lakeFS versions."""

import os
from pathlib import Path

import pytest

from tests.end_to_end.command import Project, orchard_on_disk

MD5 = "d41d8cd98f00b204e9800998ecf8427e"
LONG_AGO = 1_600_000_000


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = orchard_on_disk(tmp_path_factory.mktemp("names"))
    file = theirs(project)
    file.write_bytes(b"theirs")
    os.utime(file, (LONG_AGO, LONG_AGO))
    project.write(mode="delete", approval={"life": "3650d"})
    return project


def theirs(project: Project) -> Path:
    return project.directory / "lake" / MD5


def planned(project: Project) -> set[str]:
    return {str(row["address"]) for row in project.rows("deletion_candidates")}


@pytest.mark.slow
def test_a_legacy_name_of_a_kind_that_no_entry_has_is_foreign(project: Project) -> None:
    project.plan()
    assert len(planned(project)) > 10
    assert MD5 not in planned(project)


@pytest.mark.slow
def test_a_sweep_refuses_a_plan_with_a_legacy_name_of_a_kind_that_no_entry_has(project: Project) -> None:
    project.write(legacy_names=True)
    plan_hash = project.plan()
    assert MD5 in planned(project)
    assert project.run("approve", plan_hash).status == 0
    project.write(legacy_names=None)
    project.adopt()  # otherwise the changed setting would be the reason of the refusal
    answer = project.run("sweep")
    assert answer.status == 1
    assert f"the plan names {MD5}. No entry of the repository has a name of this kind" in answer.err
    assert "Nothing was deleted" in answer.err
    assert theirs(project).read_bytes() == b"theirs"


@pytest.mark.slow
def test_with_legacy_names_a_file_with_a_legacy_name_is_deleted(project: Project) -> None:
    project.write(legacy_names=True)
    project.adopt()
    assert project.run("sweep").status == 0
    assert not theirs(project).exists()
