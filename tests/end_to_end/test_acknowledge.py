"""Live objects that were lost long ago: a person acknowledges them, and plans go on."""

import json
from collections import defaultdict
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.state.approval import person
from retention_assets.state.records import seal_of
from tests.end_to_end.command import Place, orchard_on_disk, run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "forgetful")]


@pytest.fixture(scope="module")
def planned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, list[str]]:
    """Return a planned place, and live addresses of one slice."""
    place = orchard_on_disk(tmp_path_factory.mktemp("lost"))
    place.plan()
    return place, live(place)


def live(place: Place) -> list[str]:
    """Return the live addresses of the slice that has the most."""
    rows = [row["address"] for row in place.rows("addresses") if row["active"] and "://" not in row["address"]]
    by_slice = defaultdict(list)
    for address in sorted(set(rows)):
        by_slice[address.rpartition("/")[0]].append(address)
    assert len(max(by_slice.values(), key=len)) > 4
    return max(by_slice.values(), key=len)


def acknowledge(place: Place, *arguments: str | Path):  # type: ignore[no-untyped-def]
    return run("--config", place.file, "acknowledge", place.name, *arguments)


def lose(place: Place, *addresses: str) -> None:
    for address in addresses:
        (place.directory / "lake" / address).unlink()


def test_what_a_refused_plan_missed_is_acknowledged_and_counted(
    planned: tuple[Place, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    place, (first, second, *_) = planned
    present = acknowledge(place, first)
    assert present.status == 1
    assert "1 of 1 objects are in the store" in present.err
    lose(place, first, second)
    refused = place.run("plan")
    assert refused.status == 1
    assert "2 live addresses" in refused.err
    assert "no directory is missing completely" in refused.err
    assert "retention acknowledge" in refused.err

    asked = acknowledge(place)  # no answer is no consent
    assert asked.status == 1
    assert first in asked.out
    assert second in asked.out
    assert not (place.warehouse / place.name / "acknowledged").exists()

    done = acknowledge(place, "--yes")
    assert done.status == 0, done.err
    (record,) = (place.warehouse / place.name / "records").glob("*.json")
    document = json.loads(record.read_text(encoding="utf-8"))
    assert (document["kind"], document["published"]["addresses"]) == ("acknowledge", 2)
    written = pq.read_table(place.warehouse / place.name / document["published"]["file"])
    assert sorted(written["address"].to_pylist()) == sorted([first, second])
    assert set(written["acknowledged_by"].to_pylist()) == {document["approved_by"]} == {person()}
    assert {at.isoformat() for at in written["at"].to_pylist()} == {document["approved_at"]}
    again = place.run("plan", "--json")
    assert again.status == 0, again.err
    assert again.document()["lost"] == 2
    assert "nothing to acknowledge" in acknowledge(place).out
    verified = place.run("verify")
    assert verified.status == 0, verified.err
    assert "2 are lost, as acknowledged" in verified.out


def test_a_new_hole_refuses_and_a_restored_object_is_live_again(tmp_path: Path) -> None:
    place = orchard_on_disk(tmp_path)
    place.plan()
    first, third, *_ = live(place)
    saved = (place.directory / "lake" / first).read_bytes()
    lose(place, first)
    assert acknowledge(place, first, "--json").document()["addresses"] == [first]

    lose(place, third)
    refused = place.run("plan")
    assert refused.status == 1
    assert f"1 live addresses, {third} first" in refused.err
    listed = place.directory / "lost.txt"
    listed.write_text(f"{third}\n", encoding="utf-8")
    assert acknowledge(place, "--file", listed).status == 0
    shown = place.run("plan")
    assert shown.status == 0, shown.err
    assert "lost: needed and missing, as acknowledged" in shown.out

    file = place.directory / "lake" / first  # it is restored: it is live like others, and a new hole when it goes again
    file.write_bytes(saved)
    assert place.run("plan", "--json").document()["lost"] == 1
    lose(place, first)
    refused = place.run("plan")
    assert refused.status == 1
    assert f"1 live addresses, {first} first" in refused.err


@pytest.mark.slow
def test_a_whole_slice_needs_its_flag(tmp_path: Path) -> None:
    place = orchard_on_disk(tmp_path)
    place.plan()
    slice_of = live(place)[0].rpartition("/")[0]
    for file in (place.directory / "lake" / slice_of).iterdir():
        file.unlink()
    refused = place.run("plan")
    assert refused.status == 1
    assert f"directories that are missing completely, {slice_of}/ first" in refused.err
    without = acknowledge(place, "--yes")
    assert without.status == 1
    assert "--whole-slices" in without.err
    assert acknowledge(place, "--yes", "--whole-slices").status == 0
    assert place.run("plan").status == 0


def test_an_acknowledgement_is_signed_and_copied_like_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, witness = orchard_on_disk(tmp_path), tmp_path / "witness"
    monkeypatch.setenv("RECORDS_KEY", "0123456789abcdef" * 2)
    protected = {"signing_key": {"env": "RECORDS_KEY"}, "witness": str(witness)}
    settings = yaml.safe_load(place.file.read_text(encoding="utf-8"))
    place.file.write_text(yaml.safe_dump({**settings, "records": protected}), encoding="utf-8")
    witness.write_text("no directory")
    assert acknowledge(place, "data/lost").status == 3
    assert not (place.warehouse / place.name).exists()
    witness.unlink()
    done = acknowledge(place, "data/lost")
    assert done.status == 0, done.err
    (record,) = (place.warehouse / place.name / "records").iterdir()
    (copy,) = (witness / place.name).iterdir()
    document = json.loads(record.read_text(encoding="utf-8"))
    assert seal_of(load_configuration(place.file).repository(place.name)).verifies(document)
    assert json.loads(copy.read_text(encoding="utf-8")) == document
