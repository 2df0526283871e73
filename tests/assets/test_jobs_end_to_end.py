"""Plan, approve, sweep, verify and restore by Dagster's jobs, as in the UI."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from retention_assets.assets.runs import failure_of
from retention_assets.core.amounts import human_bytes
from retention_assets.definitions import build_definitions
from retention_assets.errors import StoreError
from tests.assets.lake import DAY, NOW, Lake, needed, new_lake
from tests.clocks import GivenClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Ui:
    """Runs jobs of one lake, with one Dagster instance."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.definitions = build_definitions(lake.configuration(), clock=GivenClock(lambda: NOW))

    def run(self, job: str, config: Mapping[str, Any] | None = None, *, day: str | None = DAY, **choice: Any):
        return self.definitions.resolve_job_def(job).execute_in_process(
            partition_key=day, run_config=config, instance=self.instance, raise_on_error=False, **choice
        )

    def numbers(self, ended: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
        made = {event.asset_key.path[-1]: event.materialization for event in ended.get_asset_materialization_events()}
        return {name: value.value for name, value in made[asset].metadata.items()}

    def requested(self) -> dg.RunRequest:
        """Return the run requests of the sensor of approved plans."""
        repository = self.definitions.get_repository_def()
        sensor = repository.get_sensor_def("orchard_approved")
        resources = needed(self.definitions, "orchard_approved")
        with dg.build_sensor_context(self.instance, repository_def=repository, resources=resources) as context:
            (request,) = sensor.evaluate_tick(context).run_requests
        return request


@pytest.fixture(scope="module")
def ui(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    lake = new_lake("orchard", tmp_path_factory.mktemp("ui"))
    lake.configure(mode="quarantine", quarantine={"url": str(lake.root / "quarantine")})
    with dg.DagsterInstance.ephemeral() as instance:
        yield Ui(lake, instance)


@pytest.fixture(scope="module")
def planned(ui: Ui) -> dict[str, Any]:
    """Plan, let anna approve, and return the figures of the plan."""
    ended = ui.run("orchard_plan")
    assert ended.success
    numbers = ui.numbers(ended, "deletion_candidates")
    options = {"plan_hash": numbers["plan_hash"], "by": "anna"}
    assert ui.run("orchard_approve", {"ops": {"approve__orchard": {"config": options}}}, day=None).success
    return numbers


def test_a_plan_has_numbers_of_all_states_and_its_duration(planned: dict[str, Any]) -> None:
    assert planned["candidate_objects"] > 0
    assert planned["kept_bytes"] > 0
    assert planned["waiting_objects"] == planned["waiting_bytes"] == 0
    assert planned["seconds"] > 0


def test_the_page_of_a_plan_shows_its_totals_and_some_candidates(ui: Ui, planned: dict[str, Any]) -> None:
    size = human_bytes(planned["candidate_bytes"])
    assert f"| **candidate** | {planned['candidate_objects']} | {size} |" in planned["totals"]
    shown = [record.data for record in planned["candidates"].records]
    assert len(shown) == min(planned["candidate_objects"], 10)
    files = {str(path.relative_to(ui.lake.namespace)): path.stat().st_size for path in files_of(ui.lake)}
    assert {one["address"]: one["size"] for one in shown}.items() <= files.items()
    assert {one["reason"] for one in shown} <= {"expired", "lifecycle", "unreferenced"}


def test_an_approved_plan_is_swept_verified_and_undone_in_dagster(ui: Ui, planned: dict[str, Any]) -> None:
    before = files_of(ui.lake)
    request = ui.requested()
    assert request.partition_key == DAY
    swept = ui.run("orchard_sweep", request.run_config)
    assert swept.success
    figures, count = ui.numbers(swept, "deletion_report"), planned["candidate_objects"]
    assert (figures["quarantined_objects"], figures["unattempted_objects"]) == (count, 0)
    assert (figures["freed_objects"], figures["failed_objects"], figures["deleted_bytes"]) == (0, 0, 0)
    assert figures["quarantined_bytes"] == figures["planned_bytes"] == planned["candidate_bytes"]
    assert figures["dagster/column_lineage"].deps_by_column.keys() == {"address", "size"}
    assert len(files_of(ui.lake) & before) == len(before) - count

    verified = ui.run("orchard_verify")
    assert verified.success
    checks = {one.check_name: one for one in verified.get_asset_check_evaluations()}
    assert checks["live_exist"].metadata["value"].value == 0
    assert {one.partition for one in checks.values()} == {DAY}

    options = {"plan_hash": planned["plan_hash"], "by": "anna"}
    assert ui.run("orchard_restore", {"ops": {"restore__orchard": {"config": options}}}, day=None).success
    assert files_of(ui.lake) == before


def files_of(lake: Lake) -> set[Path]:
    return {path for path in lake.namespace.rglob("*") if path.is_file()}


def test_a_run_with_failed_objects_fails_and_keeps_its_rows_and_the_next_sweep_tries_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake("orchard", tmp_path)
    lake.configure(mode="quarantine", quarantine={"url": str(tmp_path / "quarantine")}, budget={"objects": 10**6})
    with dg.DagsterInstance.ephemeral() as instance:
        ui = Ui(lake, instance)
        assert ui.run("orchard_plan").success
        address = min(lake.table("deletion_candidates", ["address"])["address"].to_pylist())
        plan = lake.warehouse.read_document("orchard", "plans", DAY, "current.json")["plan_hash"]
        at_target = tmp_path / "quarantine" / DAY / plan[:16] / "objects" / address
        at_target.parent.mkdir(parents=True)
        at_target.write_bytes(b"another object")

        swept = ui.run("orchard_sweep")
        assert not swept.success
        error = failure_of(swept.all_events, "orchard_sweep", swept.run_id)
        assert isinstance(error, StoreError)
        assert f"orchard {DAY}: 1 object could not be deleted or moved; the other objects" in str(error)
        assert ui.numbers(swept, "deletion_report")["failed_objects"] == 1
        rows = lake.warehouse.rows(spark, "orchard", "deletion_report", date.fromisoformat(DAY)).frame.collect()
        assert [row["address"] for row in rows if row["outcome"] == "failed"] == [address]

        reported = ui.run("orchard_report")
        assert reported.success, "a run that only reports does not fail"
        assert ui.numbers(reported, "deletion_report")["failed_objects"] == 1

        at_target.unlink()
        again = ui.run("orchard_sweep")
        assert again.success
        assert ui.numbers(again, "deletion_report")["failed_objects"] == 0


def test_a_sweep_of_another_plan_than_the_named_one_is_refused(ui: Ui, planned: dict[str, Any]) -> None:
    config = {"ops": {"orchard__deletion_report": {"config": {"plan_hash": "f" * 64, "execute": True}}}}
    ended = ui.run("orchard_sweep", config)
    assert not ended.success
    assert "is not the current plan of 2026-11-01" in str(failure_of(ended.all_events, "orchard_sweep", ended.run_id))


def test_a_full_run_reads_the_tables_again(ui: Ui, planned: dict[str, Any]) -> None:
    for full in (True, False):
        config = {"ops": {"orchard__addresses": {"config": {"full": full}}}}
        ended = ui.run("orchard_plan", config, asset_selection=[dg.AssetKey(["orchard", "addresses"])])
        assert ended.success
        assert (ui.numbers(ended, "addresses")["ranges_read"] > 0) is full


def test_a_full_run_that_is_retried_from_its_failed_step_reads_the_ranges_again(
    ui: Ui, planned: dict[str, Any]
) -> None:
    """The metaranges were read by the first attempt, which was another run."""
    addresses, tags = dg.AssetKey(["orchard", "addresses"]), {"retention/full": "true"}
    ended = ui.run("orchard_plan", asset_selection=[addresses], tags=tags)
    assert ended.success, failure_of(ended.all_events, "orchard_plan", ended.run_id)
    assert ui.numbers(ended, "addresses")["ranges_read"] > 0
