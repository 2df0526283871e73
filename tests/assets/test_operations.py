"""The jobs for people (approve, stop, acknowledge, …) and the sensors that start sweeps and notify, without Spark."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.run_status_sensor_definition import RunStatusSensorCursor
from dagster._core.execution.plan.objects import StepFailureData
from dagster._utils.error import SerializableErrorInfo

from retention_assets.assets.automation import WEBHOOK, send
from retention_assets.assets.declaration import checked, declared, report_result
from retention_assets.assets.runs import failure_of
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.core.amounts import Amount
from retention_assets.core.guards import CheckResult
from retention_assets.definitions import build_definitions
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError, StoreError
from retention_assets.state import acknowledged
from retention_assets.state.acknowledged import acknowledge, addresses_digest, known_addresses, record_missing
from retention_assets.state.approval import APPROVALS, Approval, planned_terms, stored_approval
from retention_assets.state.lease import take_lease
from retention_assets.state.plan import Plan, keep_plan
from retention_assets.state.records import read_records
from retention_assets.sweep.sweep_run import Report
from retention_assets.tables import DELETION_CANDIDATES, DELETION_REPORT
from retention_assets.warehouse.warehouse import Rows, Warehouse
from tests.assets.graph import REPOSITORY, snapshot
from tests.assets.lake import needed
from tests.clocks import GivenClock
from tests.frames import NOW
from tests.sweep.small_world import DAY, a_plan


@dataclass(frozen=True)
class Project:
    """A repository in mode `delete` with a plan of `DAY`, and its definitions."""

    configuration: Configuration
    plan: Plan

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.configuration.warehouse)

    @property
    def definitions(self) -> dg.Definitions:
        return build_definitions(self.configuration, clock=GivenClock(lambda: NOW))

    def run(self, operation: str, tags: dict[str, str] | None = None, **options: object) -> RetentionError | None:
        """Run the job of an operation, and return the error that ended it."""
        return self.ended(operation, tags, **options)[0]

    def ended(
        self, operation: str, tags: dict[str, str] | None = None, **options: object
    ) -> tuple[RetentionError | None, dict[str, Any]]:
        """Run the job of an operation, and return the error that ended it, and what the run shows."""
        job = self.definitions.resolve_job_def(f"orchard_{operation}")
        ended = job.execute_in_process(
            run_config={"ops": {f"{operation}__orchard": {"config": options}}}, tags=tags, raise_on_error=False
        )
        outputs = [event.step_output_data.metadata for event in ended.all_events if event.is_successful_output]
        shown = {name: value.value for metadata in outputs for name, value in metadata.items()}
        return (None if ended.success else failure_of(ended.all_events, job.name, ended.run_id)), shown


def configured(directory: Path, **changes: object) -> Configuration:
    entry = {**REPOSITORY, "mode": "delete", **changes}
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {"orchard": entry}}), encoding="utf-8")
    return load_configuration(file)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    configuration = configured(tmp_path)
    plan = replace(a_plan(), run_id=str(UUID(int=4)), terms=planned_terms(configuration.repository("orchard")))
    keep_plan(Warehouse(configuration.warehouse), plan)
    return Project(configuration, plan)


def approval_of(project: Project) -> Approval | None:
    return stored_approval(project.warehouse, "orchard", DAY, project.plan.plan_hash)


# ---- operations


def test_a_plan_is_approved_in_dagster_by_a_named_person(project: Project) -> None:
    assert project.run("approve", plan_hash=project.plan.plan_hash, by="anna") is None
    approval = approval_of(project)
    assert approval is not None
    assert approval.approved_by.startswith("anna, Dagster run ")
    assert approval.terms["mode"] == "delete"


def test_the_user_of_the_dagster_run_is_recorded_as_the_approver(project: Project) -> None:
    assert project.run("approve", {"user": "anna@example.com"}, plan_hash=project.plan.plan_hash) is None
    approval = approval_of(project)
    assert approval is not None
    assert approval.approved_by.startswith("anna@example.com, Dagster run ")


def test_an_approval_without_a_name_is_refused(project: Project) -> None:
    error = project.run("approve", plan_hash=project.plan.plan_hash, by=" ")
    assert isinstance(error, ConfigurationError)
    assert "`by` is not set. Nothing was changed. Set `by`" in str(error)
    assert project.warehouse.documents("orchard", APPROVALS) == []


def test_an_abbreviated_hash_approves_nothing(project: Project) -> None:
    error = project.run("approve", plan_hash=project.plan.plan_hash[:12], by="anna")
    assert isinstance(error, GuardRefused)
    assert "Nothing was approved" in str(error)
    assert project.warehouse.documents("orchard", APPROVALS) == []


def test_the_approved_day_is_the_one_whose_current_plan_has_the_hash(project: Project) -> None:
    later = DAY + timedelta(days=1)
    keep_plan(project.warehouse, replace(project.plan, day=later))
    keep_plan(project.warehouse, replace(project.plan, day=later, plan_hash="e" * 64, made_at=NOW))
    assert project.run("approve", plan_hash=project.plan.plan_hash, by="anna") is None
    approval = approval_of(project)
    assert approval is not None
    assert approval.day == DAY.isoformat()


def test_a_plan_that_is_current_on_no_day_is_not_approved(project: Project) -> None:
    keep_plan(project.warehouse, replace(project.plan, plan_hash="e" * 64, made_at=NOW))
    error = project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    assert f"{project.plan.plan_hash} is not the current plan of {DAY}" in str(error)
    assert project.warehouse.documents("orchard", APPROVALS) == []


def test_an_approval_is_withdrawn(project: Project) -> None:
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    assert project.run("withdraw", day=DAY.isoformat(), by="berta") is None
    assert approval_of(project) is None
    error = project.run("withdraw", day="yesterday", by="berta")
    assert "'yesterday' is not a date. Nothing was changed" in str(error)


def test_a_withdrawal_names_the_plan_and_the_days_whose_plans_are_still_approved(project: Project) -> None:
    later = DAY + timedelta(days=1)
    keep_plan(project.warehouse, replace(project.plan, day=later, plan_hash="e" * 64))
    for plan_hash in (project.plan.plan_hash, "e" * 64):
        assert project.run("approve", plan_hash=plan_hash, by="anna") is None
    error, shown = project.ended("withdraw", day=DAY.isoformat(), by="berta")
    assert error is None
    assert f" withdrew the approval of plan {project.plan.plan_hash} of orchard as of {DAY}." in shown["what"]
    assert f"The plan of {later} is still approved. To withdraw it, run the job with `day: {later}`." in shown["what"]
    _, again = project.ended("withdraw", day=DAY.isoformat(), by="berta")
    assert again["what"].startswith(f"Nobody had approved plan {project.plan.plan_hash} of orchard")


def test_sweeps_are_stopped_and_resumed(project: Project) -> None:
    assert project.run("stop", by="anna") is None
    with pytest.raises(GuardRefused, match="anna"):
        take_lease(project.warehouse, "orchard", "a-run", NOW, timedelta(minutes=30))
    assert project.run("resume", by="anna") is None
    take_lease(project.warehouse, "orchard", "a-run", NOW, timedelta(minutes=30))


def test_a_restore_without_a_selection_is_refused(project: Project) -> None:
    assert "Set `plan_hash`, `path` or `address`" in str(project.run("restore", by="anna"))


@pytest.fixture
def lossy(tmp_path: Path) -> Project:
    """Return a project whose last plan was refused, because two objects are missing from its store."""
    kept = tmp_path / "lake" / PRESENT
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"live")
    project = Project(configured(tmp_path, storage=str(tmp_path / "lake")), a_plan())
    record_missing(project.warehouse, "orchard", "live_listed", LOST, NOW)
    return project


PRESENT, LOST = "data/slice/present", ["data/slice/one", "data/slice/two"]


def test_lost_objects_are_listed_and_then_acknowledged_by_the_hash_of_the_list(lossy: Project) -> None:
    error, shown = lossy.ended("acknowledge", by="anna")
    assert error is None
    assert all(address in shown["addresses"] for address in LOST)
    assert "2 live objects are missing" in shown["what"]
    assert known_addresses(lossy.warehouse, "orchard") == set()

    digest = shown["what"].partition("digest: ")[2].partition("`")[0]
    assert lossy.run("acknowledge", by="anna", digest=digest) is None
    assert known_addresses(lossy.warehouse, "orchard") == set(LOST)
    (record,) = [one.document for one in read_records(lossy.warehouse, "orchard")]
    assert (record["kind"], record["approved_by"].partition(",")[0]) == ("acknowledge", "anna")
    assert lossy.ended("acknowledge", by="anna")[1]["what"] == "No objects to acknowledge."


def test_an_existing_object_or_the_hash_of_other_objects_is_not_acknowledged(lossy: Project) -> None:
    assert "1 of 1 object can be found in the store" in str(lossy.run("acknowledge", by="anna", addresses=[PRESENT]))
    shown = lossy.ended("acknowledge", by="anna", addresses=LOST[:1])[1]["what"]
    error = lossy.run("acknowledge", by="anna", digest=shown.partition("digest: ")[2].partition("`")[0])
    assert "is not the hash of the objects that are missing now (2)" in str(error)
    assert "`by` is not set" in str(lossy.run("acknowledge"))
    assert known_addresses(lossy.warehouse, "orchard") == set()


def test_only_objects_that_are_still_missing_are_acknowledged(lossy: Project, tmp_path: Path) -> None:
    """Somebody brought the others back."""
    (tmp_path / "lake" / LOST[0]).write_bytes(b"back")
    error, shown = lossy.ended("acknowledge", by="anna")
    assert error is None
    assert "1 live object is missing" in shown["what"]
    assert LOST[0] not in shown["addresses"]
    (tmp_path / "lake" / LOST[1]).write_bytes(b"back")
    assert lossy.ended("acknowledge", by="anna")[1]["what"] == "No objects to acknowledge."


def test_an_acknowledgement_that_ended_before_its_record_was_written_gets_its_record_from_the_next(
    lossy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> str:
        raise StoreError("the warehouse failed")

    with monkeypatch.context() as patch:
        patch.setattr(acknowledged, "write_record", ends)
        with pytest.raises(StoreError):
            acknowledge(lossy.warehouse, "orchard", LOST, "anna", NOW, "the run that ended")
    assert known_addresses(lossy.warehouse, "orchard") == set(LOST)
    for _ in range(2):
        assert lossy.ended("acknowledge", by="berta")[1]["what"] == "No objects to acknowledge."
        (record,) = [one.document for one in read_records(lossy.warehouse, "orchard")]
        assert (record["approved_by"], record["approved_at"]) == ("anna", NOW.isoformat())
        assert record["published"]["digest"] == addresses_digest(LOST)


def test_complete_directories_are_acknowledged_only_with_whole_slices(lossy: Project, tmp_path: Path) -> None:
    (tmp_path / "lake" / PRESENT).unlink()
    assert "in Dagster with `whole_slices: true`" in str(lossy.run("acknowledge", by="anna"))
    assert lossy.run("acknowledge", by="anna", whole_slices=True) is None


def test_jobs_that_need_a_person_have_no_schedule_and_every_sensor_is_stopped(project: Project) -> None:
    found = snapshot(project.definitions)
    names = ("approve", "withdraw", "stop", "resume", "acknowledge", "quarantined", "restore", "purge")
    operations = {f"orchard_{name}" for name in names}
    assert operations <= found["jobs"].keys()
    assert not operations & {job for job, _, _ in found["schedules"].values()}
    sensors = project.definitions.get_repository_def().sensor_defs
    assert {sensor.name for sensor in sensors} == {"orchard_approved", "orchard_waiting", "orchard_failed"}
    assert {sensor.default_status for sensor in sensors} == {dg.DefaultSensorStatus.STOPPED}
    assert not operations & {sensor.job_name for sensor in sensors if sensor.has_jobs}


def test_the_jobs_that_approve_can_be_disabled(tmp_path: Path) -> None:
    left_out = snapshot(build_definitions(configured(tmp_path, approval={"in_dagster": False})))["jobs"]
    assert not {"orchard_approve", "orchard_acknowledge", "orchard_purge"} & left_out.keys()
    assert {"orchard_quarantined", "orchard_withdraw", "orchard_stop", "orchard_restore"} <= left_out.keys()


def test_the_page_names_every_job_schedule_and_sensor(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "dagster-ui.md").read_text("utf-8")
    inventory = {"url": "s3://inventories/lake/daily", "format": "Parquet"}
    found = snapshot(build_definitions(configured(tmp_path, inventory=inventory)))
    assert set(re.findall(r"`(orchard_\w+)`", page)) == {*found["jobs"], *found["schedules"], *found["sensors"]}


# ---- the sensor that sweeps approved plans


def requests(project: Project) -> list[dg.RunRequest]:
    repository = project.definitions.get_repository_def()
    sensor, resources = repository.get_sensor_def("orchard_approved"), needed(project.definitions, "orchard_approved")
    with (
        dg.instance_for_test() as instance,
        dg.build_sensor_context(instance, repository_def=repository, resources=resources) as context,
    ):
        return list(sensor.evaluate_tick(context).run_requests or [])


def test_an_approved_plan_is_swept_once_for_each_approval(project: Project) -> None:
    assert requests(project) == []
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    (request,) = requests(project)
    assert request.partition_key == DAY.isoformat()
    assert request.run_key == f"{project.plan.plan_hash}:{NOW.isoformat()}"
    assert request.run_config["ops"] == {"orchard__deletion_report": {"config": {"plan_hash": project.plan.plan_hash}}}
    assert requests(project)[0].run_key == request.run_key  # Dagster starts one run for each key


def test_the_request_of_the_sensor_fits_the_sweep_job(project: Project) -> None:
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    job = project.definitions.resolve_job_def("orchard_sweep")
    assert dg.validate_run_config(job, requests(project)[0].run_config)


@pytest.mark.parametrize(
    "why", ["withdrawn", "made again", "lapsed", "of the future", "blocked", "other mode", "other grace"]
)
def test_a_plan_that_no_sweep_may_execute_is_not_swept(tmp_path: Path, project: Project, why: str) -> None:
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    if why == "withdrawn":
        project.run("withdraw", day=DAY.isoformat(), by="anna")
    elif why == "made again":
        keep_plan(project.warehouse, replace(project.plan, plan_hash="e" * 64))
    elif why == "blocked":
        keep_plan(project.warehouse, replace(project.plan, blocked="the staged list is unknown."))
    elif why == "other mode":
        project = replace(project, configuration=configured(tmp_path, mode="quarantine", quarantine={"url": "attic"}))
    elif why == "other grace":
        project = replace(project, configuration=configured(tmp_path, grace="3d"))
    else:
        made_at = NOW - timedelta(days=8) if why == "lapsed" else NOW + timedelta(hours=1)
        keep_plan(project.warehouse, replace(project.plan, made_at=made_at))
    assert requests(project) == []


@pytest.mark.parametrize("changes", [{"unknown": 1}, {"made_at": "yesterday"}, {"totals": 3}])
def test_a_plan_that_cannot_be_read_does_not_stop_sweeps_of_other_days(
    project: Project, changes: Mapping[str, object]
) -> None:
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    before = replace(project.plan, day=DAY - timedelta(days=1)).document()
    project.warehouse.write_document({**before, **changes}, "orchard", "plans", before["day"], "current.json")
    project.warehouse.write_document(before, "orchard", "plans", "of somebody", "current.json")
    assert [request.partition_key for request in requests(project)] == [DAY.isoformat()]


# ---- messages


class FakeWebhook(HTTPServer):
    """A webhook that keeps what it receives. It answers with each status of `answers`, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.messages: list[dict[str, Any]] = []
        self.answers: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret-token"


class _Handler(BaseHTTPRequestHandler):
    server: FakeWebhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            self.server.messages.append(json.loads(body))
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWebhook]:
    server = FakeWebhook()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv(WEBHOOK, server.url)
    yield server
    server.shutdown()
    server.server_close()


def run_plan_sensor(project: Project) -> object:
    """Run the sensor for a run that made the plan."""
    definitions = project.definitions
    job = definitions.resolve_job_def("orchard_plan")
    with dg.DagsterInstance.ephemeral() as instance:
        tags = {"dagster/partition": DAY.isoformat()}
        run = instance.create_run_for_job(
            job, run_id=project.plan.run_id, tags=tags, status=dg.DagsterRunStatus.SUCCESS
        )
        event = dg.DagsterEvent("PIPELINE_SUCCESS", job_name=job.name)
        sensor = definitions.get_repository_def().get_sensor_def("orchard_waiting")
        resources = needed(definitions, "orchard_waiting")
        with dg.build_run_status_sensor_context(
            "orchard_waiting", event, instance, run, resources=resources
        ) as context:
            return sensor(context)


@pytest.mark.parametrize("in_dagster", [True, False])
def test_the_message_about_a_waiting_plan_has_its_hash_its_amounts_and_the_ways_to_approve_it(
    tmp_path: Path, project: Project, webhook: FakeWebhook, *, in_dagster: bool
) -> None:
    run_plan_sensor(replace(project, configuration=configured(tmp_path, approval={"in_dagster": in_dagster})))
    (message,) = webhook.messages
    amount = project.plan.candidates
    assert message["kind"] == "waiting"
    assert (message["plan_hash"], message["objects"], message["bytes"]) == (
        project.plan.plan_hash,
        amount.objects,
        amount.bytes,
    )
    assert f"retention approve orchard {project.plan.plan_hash} --as-of {DAY}" in message["text"]
    assert ("the job orchard_approve in Dagster" in message["text"]) is in_dagster


@pytest.mark.parametrize("why", ["other mode", "lapsed", "withdrawn"])
def test_a_plan_whose_approval_is_no_longer_valid_is_reported_again(
    tmp_path: Path, project: Project, webhook: FakeWebhook, why: str
) -> None:
    project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    if why == "other mode":
        project = replace(project, configuration=configured(tmp_path, mode="quarantine", quarantine={"url": "attic"}))
    elif why == "withdrawn":
        project.run("withdraw", day=DAY.isoformat(), by="anna")
    else:  # the same plan is made again after its approval expired
        document = project.warehouse.read_document("orchard", APPROVALS, f"{project.plan.plan_hash}.json")
        old = {**(document or {}), "approved_at": (NOW - timedelta(days=8)).isoformat()}
        project.warehouse.write_document(old, "orchard", APPROVALS, f"{project.plan.plan_hash}.json")
    run_plan_sensor(project)
    (message,) = webhook.messages
    assert (message["kind"], message["plan_hash"]) == ("waiting", project.plan.plan_hash)


@pytest.mark.parametrize("why", ["approved", "within the budget", "nothing to delete", "mode plan", "made again"])
def test_no_message_is_sent_about_a_plan_that_waits_for_nobody(
    tmp_path: Path, project: Project, webhook: FakeWebhook, why: str
) -> None:
    if why == "approved":
        project.run("approve", plan_hash=project.plan.plan_hash, by="anna")
    elif why == "within the budget":
        project = replace(project, configuration=configured(tmp_path, budget={"objects": 10**6}))
    elif why == "nothing to delete":
        keep_plan(project.warehouse, replace(project.plan, candidates=Amount()))
    elif why == "mode plan":
        project = replace(project, configuration=configured(tmp_path, mode="plan"))
    else:
        keep_plan(project.warehouse, replace(project.plan, run_id="another run"))
    assert isinstance(run_plan_sensor(project), dg.SkipReason)
    assert webhook.messages == []


def run_failure_sensor(
    project: Project, job: dg.JobDefinition, config: dict[str, Any] | None = None, **tags: str
) -> str:
    """Run a job that fails, then the sensor, and return the run's id."""
    with dg.DagsterInstance.ephemeral() as instance:
        ended = job.execute_in_process(run_config=config, tags=tags, instance=instance, raise_on_error=False)
        (failure,) = [event for event in ended.all_events if event.event_type_value == "PIPELINE_FAILURE"]
        sensor = project.definitions.get_repository_def().get_sensor_def("orchard_failed")
        context = dg.build_run_status_sensor_context("orchard_failed", failure, instance, ended.dagster_run)
        sensor(context.for_run_failure())
    return ended.run_id


def test_the_message_about_a_failed_run_has_the_error_of_the_command_line(
    project: Project, webhook: FakeWebhook
) -> None:
    config = {"plan_hash": "f" * 64, "by": "anna"}
    job = project.definitions.resolve_job_def("orchard_approve")
    run_id = run_failure_sensor(project, job, {"ops": {"approve__orchard": {"config": config}}})
    (message,) = webhook.messages
    assert message["kind"] == "refused"
    assert message["job"] == "orchard_approve"
    assert "no plan was found whose hash begins with" in message["text"]
    assert run_id in message["text"]


def test_the_message_about_a_refused_plan_has_the_guard_and_its_detail(project: Project, webhook: FakeWebhook) -> None:
    @declared(checks=["live_listed", "nothing_live"], has_rows=False)
    def deletion_candidates() -> dg.MaterializeResult:
        missing = CheckResult("live_listed", passed=False, detail="2 live addresses are not in the listing")
        nothing = CheckResult("nothing_live", passed=True, detail="none is live")
        made = checked(Rows(DELETION_CANDIDATES.schema.empty_table(), NOW), [missing, nothing])
        return dg.MaterializeResult(check_results=made.check_results)

    refused = deletion_candidates.definition(project.configuration.repository("orchard"))
    job = dg.Definitions([refused], jobs=[dg.define_asset_job("orchard_plan")]).resolve_job_def("orchard_plan")
    run_failure_sensor(project, job, **{"dagster/partition": DAY.isoformat()})
    (message,) = webhook.messages
    assert (message["kind"], message["day"]) == ("refused", DAY.isoformat())
    assert "a guard refused. Nothing was deleted, and there is no plan." in message["text"]
    assert "live_listed: 2 live addresses are not in the listing" in message["text"]
    assert "nothing_live" not in message["text"]


@dataclass(frozen=True, slots=True)
class TwoFailed(Report):
    """The report of a plan two of whose objects failed, without Spark."""

    def numbers(self) -> dict[str, float | str]:
        return {"failed_objects": 2, "unattempted_objects": 1}


def failed_check(plan: Plan, *, executed: bool) -> Any:
    """Return the check result of a report with two failed objects."""
    failed = 2 if executed else None
    report = TwoFailed(plan, "delete", DELETION_REPORT.schema.empty_table(), failed)  # type: ignore[arg-type]
    (check_result,) = report_result(report, NOW).check_results or ()
    return check_result


@pytest.mark.parametrize("executed", [True, False])
def test_failed_objects_fail_the_run_that_swept_and_no_run_that_only_reports(
    project: Project, *, executed: bool
) -> None:
    found = failed_check(project.plan, executed=executed)
    assert found.passed is not executed
    assert found.metadata["value"].value == 2


def test_the_message_about_a_sweep_with_failed_objects_has_the_error_of_the_command_line(
    project: Project, webhook: FakeWebhook
) -> None:
    @declared(checks=["none_failed"], has_rows=False)
    def deletion_report() -> dg.MaterializeResult:
        return dg.MaterializeResult(check_results=[failed_check(project.plan, executed=True)])

    failing = deletion_report.definition(project.configuration.repository("orchard"))
    job = dg.Definitions([failing], jobs=[dg.define_asset_job("orchard_sweep")]).resolve_job_def("orchard_sweep")
    run_failure_sensor(project, job, **{"dagster/partition": DAY.isoformat()})
    (message,) = webhook.messages
    assert (message["kind"], message["day"]) == ("failed", DAY.isoformat())
    assert f"orchard {DAY}: 2 objects could not be deleted or moved; 1 more was not tried" in message["text"]
    assert "Nothing was deleted" not in message["text"]


AGAIN = "Nothing was deleted. Run it again."
ALL = "__ASSET_JOB"  # the job of "Materialize all", of the launchpad of assets, and of backfills


def run_tick(project: Project, sensor: str, job: dg.JobDefinition, run_id: str, **steps: bool) -> None:
    """Record a run of `job` with these steps and whether each of them succeeded. Then run the next tick of a sensor."""
    repository = project.definitions.get_repository_def()
    with dg.instance_for_test() as instance:
        tags = {"dagster/partition": DAY.isoformat()}
        before = RunStatusSensorCursor(record_id=0, record_timestamp="2026-11-01T00:00:00+00:00")
        run = instance.create_run_for_job(job, run_id=run_id, tags=tags)
        for step, succeeded in steps.items():
            if not succeeded:
                error = SerializableErrorInfo(f"StoreError: {step} failed. {AGAIN}\n", [], "StoreError")
                data = StepFailureData(error, None)
                event = dg.DagsterEvent("STEP_FAILURE", job.name, step_key=step, event_specific_data=data)
                instance.report_dagster_event(event, run.run_id)
        kind = "PIPELINE_SUCCESS" if all(steps.values()) else "PIPELINE_FAILURE"
        instance.report_dagster_event(dg.DagsterEvent(kind, job.name), run.run_id)
        with dg.build_sensor_context(
            instance, cursor=before.to_json(), repository_def=repository, resources=needed(project.definitions, sensor)
        ) as context:
            repository.get_sensor_def(sensor).evaluate_tick(context)


@pytest.mark.parametrize("job", ["orchard_plan", ALL])
def test_a_waiting_plan_is_reported_whatever_job_made_it(project: Project, webhook: FakeWebhook, job: str) -> None:
    definition = project.definitions.get_repository_def().get_job(job)
    run_tick(project, "orchard_waiting", definition, project.plan.run_id)
    assert [message["plan_hash"] for message in webhook.messages] == [project.plan.plan_hash]


def test_a_run_that_made_no_plan_is_not_reported_as_waiting(project: Project, webhook: FakeWebhook) -> None:
    definition = project.definitions.get_repository_def().get_job(ALL)
    run_tick(project, "orchard_waiting", definition, str(UUID(int=5)))
    assert webhook.messages == []


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        pytest.param({"orchard__addresses": False}, [f"orchard__addresses failed. {AGAIN}"], id="own_asset"),
        pytest.param({"other__addresses": False}, [], id="asset_of_another_repository"),
        pytest.param({"orchard__load_fruit": False}, [], id="asset_of_the_project_with_the_same_key_prefix"),
        pytest.param(
            {"other__addresses": False, "orchard__addresses": False}, [f"orchard__addresses failed. {AGAIN}"], id="both"
        ),
    ],
)
def test_a_failure_is_reported_whatever_job_ran(
    project: Project, webhook: FakeWebhook, steps: dict[str, bool], told: list[str]
) -> None:
    definition = project.definitions.get_repository_def().get_job(ALL)
    run_tick(project, "orchard_failed", definition, str(UUID(int=5)), **steps)
    assert [message["text"].partition(": ")[2].partition("\n")[0] for message in webhook.messages] == told


def test_a_failed_verification_is_reported_as_a_verification_whatever_job_ran(
    project: Project, webhook: FakeWebhook
) -> None:
    @declared(checks=["nothing_live"], has_rows=False)
    def deletion_proof() -> dg.MaterializeResult:
        failed = CheckResult("nothing_live", passed=False, detail="one address is live")
        made = checked(Rows(DELETION_CANDIDATES.schema.empty_table(), NOW), [failed])
        return dg.MaterializeResult(check_results=made.check_results)

    failing = deletion_proof.definition(project.configuration.repository("orchard"))
    job = dg.Definitions([failing]).resolve_implicit_global_asset_job_def()
    run_failure_sensor(project, job, **{"dagster/partition": DAY.isoformat()})
    (message,) = webhook.messages
    assert "the verification failed. Nothing was changed by the verification." in message["text"]


def test_a_message_is_sent_again_after_an_error_of_the_server(webhook: FakeWebhook) -> None:
    webhook.answers = [503, 429]
    send({"text": "a plan waits"})
    assert webhook.messages == [{"text": "a plan waits"}]


def test_a_message_that_is_not_accepted_is_an_error_without_the_address(webhook: FakeWebhook) -> None:
    webhook.answers = [403]
    with pytest.raises(
        StoreError, match=r"did not accept a message: the response has status 403. The message was not delivered. Check"
    ) as refused:
        send({"text": "a plan waits"})
    webhook.shutdown()
    webhook.server_close()
    with pytest.raises(StoreError, match=r"the connection failed \(NewConnectionError\)") as unreachable:
        send({"text": "a plan waits"})
    for error in (refused, unreachable):
        assert "secret-token" not in str(error.getrepr(chain=True))


@pytest.mark.parametrize(("address", "problem"), [("", "is not set"), ("hooks.example.com", "is not the URL")])
def test_the_error_for_a_webhook_without_an_address_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, address: str, problem: str
) -> None:
    monkeypatch.setenv(WEBHOOK, address)
    with pytest.raises(ConfigurationError, match=f"RETENTION_WEBHOOK {problem}.* No message was sent"):
        send({"text": "a plan waits"})
