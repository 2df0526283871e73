"""Every command works with a warehouse and a quarantine of an earlier version.

`tests/data/warehouses` has the warehouse of version 0.1 (22 November 2026) after a plan, its approval and its sweep.
"""

import os
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.end_to_end.command import DAY, Project, orchard_on_disk, run, sample

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark", "forgetful")]

SAVED = Path(__file__).parents[1] / "data" / "warehouses" / "orchard_in_quarantine.tar.xz"
OLD = "2026-01-31"
PLANNED = "e84d886a8689b696b78beba19cbc63a6f08b9a1bc6e81c04959d9909f1d0f902"


def project_of_earlier_version(directory: Path) -> Project:
    """Return orchard with the warehouse and the quarantine that the earlier version left after its sweep."""
    project = orchard_on_disk(directory)
    valid = {"life": "36500d"}  # the saved plan gets older each day
    project.write(mode="quarantine", quarantine={"url": "attic", "keep": "36500d"}, approval=valid)
    with tarfile.open(SAVED) as archive:
        archive.extractall(directory, filter="data")
    project.adopt()
    return project


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Orchard after a sweep of the earlier version, with 59 objects in quarantine."""
    project = project_of_earlier_version(tmp_path_factory.mktemp("earlier"))
    for address in quarantined(project):
        (project.directory / "lake" / address).unlink()
    return project


def add_old_day(project: Project) -> list[str]:
    """Add tables of an old day to the warehouse, and return their names."""
    tables = [file.parent.parent for file in (project.warehouse / project.name).glob(f"*/{DAY}/_facts.json")]
    names = [table.name for table in tables if table.name != "policy_table"]
    for name in names:
        folder = project.warehouse / project.name / name / OLD
        shutil.copytree(folder.with_name(DAY), folder)
        for file in folder.iterdir():
            os.utime(file, (0, 0))
    return names


def quarantined(project: Project) -> set[str]:
    folder = project.directory / "attic" / DAY / PLANNED[:16] / "objects"
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_an_earlier_version_s_warehouse_is_verified_restored_swept_and_planned_again(swept: Project) -> None:
    verified = swept.run("verify")
    assert verified.status == 0, verified.out + verified.err
    assert "59 planned = 59 quarantined" in verified.out
    assert {row["outcome"] for row in swept.rows("deletion_report")} == {"quarantined"}
    addresses = quarantined(swept)
    assert len(addresses) == 59

    had = add_old_day(swept)
    kept = run("--config", swept.file, "housekeeping", swept.name, "--execute")
    assert kept.status == 0, kept.out + kept.err
    assert not [table for table in had if (swept.warehouse / swept.name / table / OLD).exists()]
    assert all((swept.warehouse / swept.name / table / DAY).is_dir() for table in had)

    first = min(addresses)
    explained = run("--config", swept.file, "explain", swept.name, first)
    assert explained.status == 0, explained.out + explained.err
    assert run("--config", swept.file, "status").status == 0
    restored = run("--config", swept.file, "restore", swept.name, "--address", first)
    assert restored.status == 0, restored.out + restored.err
    assert (swept.directory / "lake" / first).read_bytes() == sample(first)

    approved = swept.run("approve", PLANNED)
    assert approved.status == 0, approved.out + approved.err
    again = swept.run("sweep")
    assert again.status == 0, again.out + again.err
    assert (swept.directory / "lake" / first).is_file()  # it is young now

    planned = swept.run("plan", "--json")
    assert planned.status == 0, planned.err
    assert planned.document()["candidates"]["objects"] == 0
    assert swept.run("verify").status == 0


def test_the_plan_of_the_sample_equals_the_plan_of_the_earlier_version(tmp_path: Path) -> None:
    assert orchard_on_disk(tmp_path).plan() == PLANNED
