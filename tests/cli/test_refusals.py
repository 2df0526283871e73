"""What commands refuse before a run begins, or tell when it has ended: with what was not done, and the remedy."""

from dataclasses import replace
from pathlib import Path

import pytest

from retention_assets.cli import sweeping
from retention_assets.core.amounts import Amount
from retention_assets.state.plan import keep_plan
from retention_assets.state.records import write_record
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import DAY, Place, orchard, orchard_on_disk, run
from tests.explain.test_status import a_plan, a_record
from tests.repositories import listing

LISTED = sorted(entry.address for entry in listing("orchard") if entry.address.startswith("data/"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A configuration; nothing is in its storage."""
    (tmp_path / "lake").mkdir()
    return orchard(tmp_path, "lake")


def refused(status: int, place: Place, command: str, *arguments: str | Path) -> str:
    """Run a command that must be refused, and return its message."""
    answer = run("--config", place.file, command, place.name, *arguments)
    assert answer.status == status, answer
    assert answer.out == ""
    return answer.err


# ---- what is acknowledged as lost


def acknowledgements(place: Place) -> Path:
    return place.warehouse / place.name / "acknowledged"


def test_an_object_that_is_in_the_store_is_not_acknowledged_as_lost(tmp_path: Path) -> None:
    place = orchard_on_disk(tmp_path)
    told = refused(1, place, "acknowledge", "data/lost/1", LISTED[0])
    assert f"orchard: 1 of 2 objects are in the store, {LISTED[0]} first. Nothing was acknowledged" in told
    assert "Plan again: `retention plan orchard`" in told
    assert not acknowledgements(place).exists()


def test_a_directory_that_is_lost_as_a_whole_is_acknowledged_only_by_its_own_flag(place: Place) -> None:
    told = refused(1, place, "acknowledge", "data/a/1", "data/a/2", "data/b/1")
    assert "orchard: 1 directories are missing completely, data/a/ first with 2 of the addresses" in told
    assert "Nothing was acknowledged. Check that `storage`" in told
    assert "--whole-slices" in told
    assert not acknowledgements(place).exists()


@pytest.mark.parametrize("address", ["s3://lake/orchard/data/x", "/data/x", "data/../x", "_lakefs/x"])
def test_what_is_no_address_of_an_object_is_not_acknowledged(place: Place, address: str) -> None:
    told = refused(2, place, "acknowledge", address)
    assert f"{address}: is not the address of an object of orchard. Nothing was acknowledged" in told
    assert "`retention show orchard addresses`" in told


def test_a_list_of_lost_objects_that_cannot_be_read_is_named(place: Place, tmp_path: Path) -> None:
    told = refused(2, place, "acknowledge", "--file", tmp_path / "lost.txt")
    assert "lost.txt: cannot be read (FileNotFoundError). Nothing was written" in told


# ---- sweeps, reports, restores


def test_in_mode_plan_nothing_is_swept(place: Place) -> None:
    told = refused(2, place, "sweep", "--as-of", DAY)
    assert "repositories.orchard.mode is `plan`, which allows no sweep. Nothing was deleted" in told
    assert "Set `mode: quarantine`" in told


@pytest.mark.parametrize(
    ("objects", "rest"), [(5, "the other objects of the plan are done"), (7, "2 more were not tried")]
)
def test_a_sweep_of_which_objects_failed_ends_with_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, objects: int, rest: str
) -> None:
    place.write(mode="delete")
    warehouse, plan = Warehouse(str(place.warehouse)), replace(a_plan(), candidates=Amount(objects, 10 * objects))
    keep_plan(warehouse, plan)
    write_record(warehouse, a_record(deleted=3, failed=2))
    monkeypatch.setattr(sweeping, "run_job", lambda *_: None)  # the run has ended
    answer = place.run("sweep")
    assert answer.status == 3
    reasons = "The reasons: `retention show orchard"
    assert f"orchard {DAY}: 2 objects could not be deleted or moved; {rest}. {reasons}" in answer.err
    assert f"Then try again: `retention sweep orchard --as-of {DAY}`" in answer.err


def test_a_plan_that_no_sweep_ended_has_no_report(place: Place) -> None:
    keep_plan(Warehouse(str(place.warehouse)), a_plan())
    told = refused(3, place, "report", "--as-of", DAY)
    assert f"orchard: no sweep of {DAY} has ended, so there is no report" in told
    assert f"Sweep with: `retention sweep orchard --as-of {DAY}`" in told


def test_a_restore_of_nothing_is_refused(place: Place) -> None:
    told = refused(2, place, "restore")
    assert "name the objects with --plan HASH, --path PATH or --address NAME. Nothing was changed" in told
