"""The sensors that sweep approved plans, and that send messages about waiting plans, refusals and failures.

All of them are off until someone switches them on.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING

import dagster as dg

from retention_assets.assets.failures import failure_of
from retention_assets.assets.jobs import operation_job, sweep_job
from retention_assets.assets.messages import Message, send
from retention_assets.assets.workbench import Workbench
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.state.approval import Approval, is_recent, person_approval, waits_for_person
from retention_assets.state.plan import PLANS, Plan, load_plan

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

_EVERY = 60  # seconds between two ticks
_DAYS = 7  # the newest planned days that are searched for approved plans
_PARTITION = "dagster/partition"

Jobs = Sequence["dg.JobDefinition | UnresolvedAssetJobDefinition"]


def approved_sensor(bench: Workbench) -> dg.SensorDefinition:
    """Return the sensor that starts the sweep job for each plan that a person approved, once for each approval."""

    @dg.sensor(
        name=f"{bench.name}_approved",
        job_name=sweep_job(bench.name),
        minimum_interval_seconds=_EVERY,
        description=f"Sweeps {bench.name} when a person approved a plan of its newest {_DAYS} planned days.",
    )
    def sensor() -> dg.SensorResult | dg.SkipReason:
        requests = [
            dg.RunRequest(
                run_key=f"{plan.plan_hash}:{approval.approved_at}",
                partition_key=plan.day.isoformat(),
                run_config=dg.RunConfig({f"{bench.name}__deletion_report": {"config": {"plan_hash": plan.plan_hash}}}),
                tags={"retention/approved_by": _as_tag(approval.approved_by)},
            )
            for plan, approval in _approved(bench)
        ]
        return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("no approved plan")

    return sensor


def _approved(bench: Workbench) -> Iterator[tuple[Plan, Approval]]:
    """Yield the plans that a person approved and that are not too old, with their approvals."""
    for day in sorted(bench.warehouse.directories(bench.name, PLANS))[-_DAYS:]:
        # The day has no plan, its approval is damaged, or another version wrote it: a sweep would be refused too.
        with suppress(GuardRefused, TableContractError):
            plan = load_plan(bench.warehouse, bench.name, date.fromisoformat(day))
            approval = person_approval(bench.warehouse, plan)
            if approval and is_recent(plan.made_at, bench.repository.settings.approval.life, bench.clock()):
                yield plan, approval


def waiting_sensor(bench: Workbench, plans: Jobs) -> dg.SensorDefinition:
    """Return the sensor that sends a message when a plan was made that a person must approve."""

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{bench.name}_waiting",
        monitored_jobs=plans,
        minimum_interval_seconds=_EVERY,
        description=f"Sends a message when a plan of {bench.name} waits for approval.",
    )
    def sensor(context: dg.RunStatusSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        plan = load_plan(bench.warehouse, bench.name, date.fromisoformat(run.tags[_PARTITION]))
        if plan.run_id != run.run_id:
            return dg.SkipReason(f"another run made the plan of {plan.day} again")
        if not _waits(bench, plan):
            return dg.SkipReason(f"the plan of {plan.day} waits for nobody")
        send(waiting_message(plan))
        return None

    return sensor


def _waits(bench: Workbench, plan: Plan) -> bool:
    settings, beside = bench.repository.settings, 0
    if settings.mode == "plan":
        return False
    if bench.repository.is_icechunk:
        from retention_assets.icechunk.edits.stored import planned_edits  # most projects have no Icechunk repository
        from retention_assets.icechunk.sweep.sweeping import changes_beside

        beside = changes_beside(planned_edits(bench.warehouse, plan))
    return waits_for_person(bench.warehouse, plan, settings.approval, settings.budget, bench.clock(), beside=beside)


def waiting_message(plan: Plan) -> Message:
    """Return the message about a plan that waits for approval."""
    amount, job = plan.candidates, operation_job("approve", plan.repository)
    text = (
        f"{plan.repository} {plan.day}: a plan waits for approval. It would delete {amount.objects:,} objects, "
        f"{amount.bytes:,} bytes.\nApprove it: `retention approve {plan.repository} {plan.plan_hash} --as-of "
        f"{plan.day}`, or the job {job} in Dagster."
    )
    return {
        "text": text,
        "kind": "waiting",
        "repository": plan.repository,
        "day": plan.day.isoformat(),
        "plan_hash": plan.plan_hash,
        "objects": amount.objects,
        "bytes": amount.bytes,
    }


def failure_sensor(bench: Workbench, jobs: Jobs) -> dg.SensorDefinition:
    """Return the sensor that sends a message when a run of the repository was refused or failed."""

    @dg.run_failure_sensor(
        name=f"{bench.name}_failed",
        monitored_jobs=jobs,
        minimum_interval_seconds=_EVERY,
        description=f"Sends a message when a run of {bench.name} was refused or failed.",
    )
    def sensor(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        events = [entry.dagster_event for entry in context.instance.all_logs(run.run_id) if entry.dagster_event]
        error = failure_of(events, run.job_name, run.run_id)
        send(
            {
                "text": f"{bench.name} {run.tags.get(_PARTITION, '')}: {error}\nRun {run.run_id}",
                "kind": "refused" if isinstance(error, GuardRefused) else "failed",
                "repository": bench.name,
                "day": run.tags.get(_PARTITION, ""),
                "job": run.job_name,
                "run_id": run.run_id,
            }
        )

    return sensor


def repository_sensors(bench: Workbench, plan: Jobs, every: Jobs) -> list[dg.SensorDefinition]:
    """Return the sensors of a repository. One that never deletes anything has no sensor that sweeps."""
    sweeping = [] if bench.repository.settings.mode == "plan" else [approved_sensor(bench)]
    return [*sweeping, waiting_sensor(bench, plan), failure_sensor(bench, every)]


def _as_tag(text: str) -> str:
    """Return the text as the value of a tag."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:63]
