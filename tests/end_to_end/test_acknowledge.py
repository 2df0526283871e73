"""Live objects that were lost: plans are refused until a person acknowledges the losses."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.state.acknowledged import MISSING
from retention_assets.state.approval import person
from retention_assets.state.records import seal_of
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import Project, orchard_on_disk, run
from tests.lakefs_repositories import NAME, Version, build_repository
from tests.lakefs_repositories import address as issued_address

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark", "forgetful")]


@pytest.fixture(scope="module")
def planned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, list[str]]:
    """Return a planned project, and live addresses of one slice."""
    project = orchard_on_disk(tmp_path_factory.mktemp("lost"))
    project.plan()
    return project, live(project)


def live(project: Project) -> list[str]:
    """Return the live addresses of the slice that has the most."""
    rows = [row["address"] for row in project.rows("addresses") if row["active"] and "://" not in row["address"]]
    by_slice = defaultdict(list)
    for address in sorted(set(rows)):
        by_slice[address.rpartition("/")[0]].append(address)
    assert len(max(by_slice.values(), key=len)) > 4
    return max(by_slice.values(), key=len)


def acknowledge(project: Project, *arguments: str | Path):  # type: ignore[no-untyped-def]
    return run("--config", project.file, "acknowledge", project.name, *arguments)


def lose(project: Project, *addresses: str) -> None:
    for address in addresses:
        (project.directory / "lake" / address).unlink()


def test_objects_missing_in_a_refused_plan_are_acknowledged_and_counted(
    planned: tuple[Project, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    project, (first, second, *_) = planned
    present = acknowledge(project, first)
    assert present.status == 1
    assert "1 of 1 object can be found in the store" in present.err
    lose(project, first, second)
    refused = project.run("plan")
    assert refused.status == 1
    assert "2 live addresses" in refused.err
    assert "No directory is missing completely" in refused.err
    assert "retention acknowledge" in refused.err

    asked = acknowledge(project)  # no answer is no consent
    assert asked.status == 130
    assert first in asked.out
    assert second in asked.out
    assert not (project.warehouse / project.name / "acknowledged").exists()

    done = acknowledge(project, "--yes")
    assert done.status == 0, done.err
    (record,) = (project.warehouse / project.name / "records").glob("*.json")
    document = json.loads(record.read_text(encoding="utf-8"))
    assert (document["kind"], document["published"]["addresses"]) == ("acknowledge", 2)
    written = pq.read_table(project.warehouse / project.name / document["published"]["file"])
    assert sorted(written["address"].to_pylist()) == sorted([first, second])
    assert set(written["acknowledged_by"].to_pylist()) == {document["approved_by"]} == {person()}
    assert {at.isoformat() for at in written["at"].to_pylist()} == {document["approved_at"]}
    again = project.run("plan", "--json")
    assert again.status == 0, again.err
    assert again.document()["lost"] == 2
    assert "nothing to acknowledge" in acknowledge(project).out
    verified = project.run("verify")
    assert verified.status == 0, verified.err
    assert "; 2 acknowledged as lost" in verified.out


def test_another_missing_object_refuses_the_plan_and_a_restored_object_is_live_again(tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    project.plan()
    first, third, *_ = live(project)
    saved = (project.directory / "lake" / first).read_bytes()
    lose(project, first)
    assert acknowledge(project, first, "--json").document()["addresses"] == [first]

    lose(project, third)
    refused = project.run("plan")
    assert refused.status == 1
    assert f"1 live address, {third}, is" in refused.err
    listed = project.directory / "lost.txt"
    listed.write_text(f"{third}\n", encoding="utf-8")
    assert acknowledge(project, "--file", listed).status == 0
    shown = project.run("plan")
    assert shown.status == 0, shown.err
    assert "lost: needed and missing, as acknowledged" in shown.out

    file = project.directory / "lake" / first  # after its restore it is live, and a new loss if it is deleted again
    file.write_bytes(saved)
    assert project.run("plan", "--json").document()["lost"] == 1
    lose(project, first)
    refused = project.run("plan")
    assert refused.status == 1
    assert f"1 live address, {first}, is" in refused.err
    file.write_bytes(saved)
    assert "The objects that were missing are in the store now." in acknowledge(project).out
    assert project.run("plan").status == 0
    assert "No missing objects are known." in acknowledge(project).out


@pytest.mark.slow
def test_the_acknowledgement_of_a_complete_slice_needs_whole_slices(tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    project.plan()
    slice_of = live(project)[0].rpartition("/")[0]
    for file in (project.directory / "lake" / slice_of).iterdir():
        file.unlink()
    refused = project.run("plan")
    assert refused.status == 1
    assert f"1 directory that is missing completely, {slice_of}/" in refused.err
    without = acknowledge(project, "--yes")
    assert without.status == 1
    assert "--whole-slices" in without.err
    assert acknowledge(project, "--yes", "--whole-slices").status == 0
    assert project.run("plan").status == 0


def test_an_acknowledgement_is_signed_and_copied_like_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, witness = orchard_on_disk(tmp_path), tmp_path / "witness"
    monkeypatch.setenv("RECORDS_KEY", "0123456789abcdef" * 2)
    protected = {"signing_key": {"env": "RECORDS_KEY"}, "witness": str(witness)}
    settings = yaml.safe_load(project.file.read_text(encoding="utf-8"))
    project.file.write_text(yaml.safe_dump({**settings, "records": protected}), encoding="utf-8")
    lost = {"guard": "live_listed", "addresses": ["data/lost"]}
    Warehouse(str(project.warehouse)).write_document(lost, project.name, MISSING)
    witness.write_text("no directory")
    assert acknowledge(project, "data/lost").status == 3
    assert [one.name for one in (project.warehouse / project.name).iterdir()] == [MISSING]
    witness.unlink()
    done = acknowledge(project, "data/lost")
    assert done.status == 0, done.err
    (record,) = (project.warehouse / project.name / "records").iterdir()
    (copy,) = (witness / project.name).iterdir()
    document = json.loads(record.read_text(encoding="utf-8"))
    assert seal_of(load_configuration(project.file).repository(project.name)).verifies(document)
    assert json.loads(copy.read_text(encoding="utf-8")) == document


@pytest.mark.parametrize("name", ["data", "data/a-name-that-nobody-knows"])
def test_a_directory_or_an_unknown_name_cannot_be_acknowledged(planned: tuple[Project, list[str]], name: str) -> None:
    project, _ = planned
    refused = acknowledge(project, name)
    assert refused.status == 2
    said = " ".join(refused.err.split())
    assert f"{name} is not the address of a known object (1 of 1 address)" in said
    assert "Nothing was acknowledged. Plan first" in said


def test_objects_that_a_sweep_deleted_before_a_branch_was_created_at_their_commit_are_acknowledged_after_verify(
    tmp_path: Path,
) -> None:
    """A plan counts these objects as deleted by the sweep, so no plan is refused and stores their addresses."""
    now = datetime.now(UTC).replace(microsecond=0)
    old = now - timedelta(days=20)
    kept, deleted = issued_address(old), issued_address(old, 1)
    versions = [
        Version("first", old, {"a": deleted}),
        Version("second", now - timedelta(days=10), {"a": kept}, ("first",)),
    ]

    def build(**branches: str):  # type: ignore[no-untyped-def]
        return build_repository(tmp_path, versions, {"main": "second", **branches}, taken_at=datetime.now(UTC))

    def retention(command: str, *arguments: str):  # type: ignore[no-untyped-def]
        return run("--config", tmp_path / "retention.yaml", command, NAME, *arguments)

    world = build()
    world.store({kept: old, deleted: old})
    world.configure({"default_retention_days": 7, "branches": []}, mode="delete", grace="1d")
    plan_hash = retention("plan", "--json").document()["plan_hash"]
    assert retention("approve", plan_hash).status == retention("sweep").status == 0
    assert not (world.lake / deleted).exists()
    assert "nothing to acknowledge" in retention("acknowledge").out

    build(again="first")
    verified = retention("verify")
    assert verified.status == 1
    assert f"first {deleted}, deleted, expired" in verified.err
    assert "`retention acknowledge`" in verified.err
    assert "delete that branch or tag" in verified.err
    assert retention("plan").status == 0
    assert retention("acknowledge", "--yes", "--json").document()["addresses"] == [deleted]
    assert retention("verify").status == 0
