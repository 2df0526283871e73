"""A file of somebody else that is named by its MD5 lies at the top of a namespace."""

import os
from pathlib import Path

import pytest

from tests.end_to_end.command import Place, orchard_on_disk

MD5 = "d41d8cd98f00b204e9800998ecf8427e"
LONG_AGO = 1_600_000_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = orchard_on_disk(tmp_path_factory.mktemp("names"))
    file = theirs(place)
    file.write_bytes(b"theirs")
    os.utime(file, (LONG_AGO, LONG_AGO))
    place.write(mode="delete", approval={"life": "3650d"})
    return place


def theirs(place: Place) -> Path:
    return place.directory / "lake" / MD5


def planned(place: Place) -> set[str]:
    return {str(row["address"]) for row in place.rows("deletion_candidates")}


@pytest.mark.slow
def test_a_name_of_old_that_no_entry_has_is_foreign(place: Place) -> None:
    place.plan()
    assert len(planned(place)) > 10
    assert MD5 not in planned(place)


@pytest.mark.slow
def test_a_sweep_refuses_a_plan_that_names_such_a_file(place: Place) -> None:
    place.write(legacy_names=True)
    plan_hash = place.plan()
    assert MD5 in planned(place)
    assert place.run("approve", plan_hash).status == 0
    place.write(legacy_names=None)
    place.adopt()  # else the changed setting alone refuses it
    answer = place.run("sweep")
    assert answer.status == 1
    assert f"the plan names {MD5}. No entry of the repository has a name of this kind" in answer.err
    assert "Nothing was deleted" in answer.err
    assert theirs(place).read_bytes() == b"theirs"


@pytest.mark.slow
def test_with_legacy_names_such_a_file_goes(place: Place) -> None:
    place.write(legacy_names=True)
    place.adopt()
    assert place.run("sweep").status == 0
    assert not theirs(place).exists()
