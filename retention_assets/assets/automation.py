"""The sensors that sweep approved plans, and that send messages about waiting plans, refusals and failures.

All sensors are off until someone switches them on. Messages go to a webhook. The webhook's address is a secret, so it
comes from the environment.
"""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import dagster as dg
import urllib3

from retention_assets.assets.resources import RepositoryResource, for_repository
from retention_assets.assets.runs import daily, failure_of, operation_job, sweep_job
from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import HistoryChanges, human_removal
from retention_assets.errors import ConfigurationError, GuardRefused, StoreError, TableContractError
from retention_assets.explain.plans import approval_of, history_changes_of
from retention_assets.state.approval import APPROVED, Approval
from retention_assets.state.plan import PLANS, Plan, load_plan

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

WEBHOOK = "RETENTION_WEBHOOK"  # the environment variable with the address
_TIMEOUT = urllib3.Timeout(connect=3.0, read=10.0)  # seconds
_RETRIES = urllib3.Retry(
    total=3, redirect=False, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504), allowed_methods={"POST"},
    raise_on_status=False, respect_retry_after_header=False,
)  # fmt: skip

Message = Mapping[str, str | int | dict[str, int]]


def send(message: Message) -> None:
    """Post the message as JSON to the webhook. Chat programs show the value of `text`.

    Errors: ConfigurationError if no address is set; StoreError if the message was not accepted. The texts of
    these errors do not contain the address.
    """
    address = os.environ.get(WEBHOOK, "")
    if not address.startswith(("https://", "http://")):
        raise ConfigurationError(
            f"{WEBHOOK} is {'not the URL of a webhook' if address else 'not set'}. No message was sent. Set the "
            "variable in the environment of Dagster's code location, or switch this sensor off."
        )
    try:
        response = _client(address).request(
            "POST", address, body=json.dumps(message).encode(), headers={"Content-Type": "application/json"},
            retries=_RETRIES, timeout=_TIMEOUT,
        )  # fmt: skip
        problem = "" if response.status < 300 else f"the response has status {response.status}"
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        problem = f"the connection failed ({type(getattr(error, 'reason', None) or error).__name__})"
    if problem:  # raised outside of `except`, so that no traceback shows the address
        raise StoreError(
            f"The webhook in {WEBHOOK} did not accept a message: {problem}. The message was not delivered. Check the "
            f"address. Message: {message['text']}"
        )


def _client(address: str) -> urllib3.PoolManager:
    scheme, host = urlsplit(address)[:2]  # urllib3 does not read the proxy settings of the environment
    proxy = "" if proxy_bypass(host) else getproxies().get(scheme, "")
    return urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()


_EVERY = 60  # seconds between two ticks
_EVERY_FEW_RUNS = 30  # seconds between two ticks of a sensor to which Dagster passes at most 5 runs per tick
_DAYS = 7  # how many of the newest planned days are searched for approved plans
_PARTITION = "dagster/partition"

Jobs = Sequence["dg.JobDefinition | UnresolvedAssetJobDefinition"]


def approved_sensor(repository: Repository) -> dg.SensorDefinition:
    """Return the sensor that starts the sweep job for each plan that a person approved, once for each approval."""
    sensor = dg.sensor(
        name=f"{repository.name}_approved",
        job_name=sweep_job(repository.name),
        minimum_interval_seconds=_EVERY,
        description=f"Sweeps {repository.name} when a person approved a plan of its {_DAYS} newest planned days.",
    )
    return sensor(for_repository(_request_sweeps, repository.name))


def _request_sweeps(
    context: dg.SensorEvaluationContext, resource: RepositoryResource
) -> dg.SensorResult | dg.SkipReason:
    requests = [
        dg.RunRequest(
            run_key=f"{plan.plan_hash}:{approval.approved_at}",
            partition_key=plan.day.isoformat(),
            run_config=dg.RunConfig({f"{resource.name}__deletion_report": {"config": {"plan_hash": plan.plan_hash}}}),
            tags={"retention/approved_by": _as_tag(approval.approved_by)},
        )
        for plan, approval in _approved(resource)
    ]
    return dg.SensorResult(run_requests=requests) if requests else dg.SkipReason("no approved plan")


def _approved(resource: RepositoryResource) -> Iterator[tuple[Plan, Approval]]:
    """Yield the plans that a person approved and that a sweep may execute now, with their approvals."""
    names = (name for name in resource.warehouse.directories(resource.name, PLANS) if daily.has_partition_key(name))
    for day in list(names)[-_DAYS:]:
        # A day is skipped if it has no plan, if the plan's edits are corrupt, or if another version wrote the plan. A
        # sweep of such a plan would be refused too.
        with suppress(GuardRefused, TableContractError):
            plan = load_plan(resource.warehouse, resource.name, date.fromisoformat(day))
            state = approval_of(resource.warehouse, resource.repository, plan, resource.clock.now())
            if state.name == APPROVED and state.approval and not (state.refusal or plan.blocked):
                yield plan, state.approval


def waiting_sensor(repository: Repository) -> dg.SensorDefinition:
    """Return the sensor that sends a message when a new plan needs a person's approval.

    Runs of any job can make a plan, so the sensor monitors all jobs of the code location. It monitors only runs that
    succeeded, because a sensor of Dagster gets runs of only one status.
    """
    sensor = dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=f"{repository.name}_waiting",
        minimum_interval_seconds=_EVERY_FEW_RUNS,
        description=f"Sends a message when a successful run of any job made a plan of {repository.name} that waits for "
        "approval.",
    )
    return sensor(for_repository(_send_if_plan_waits, repository.name))


def _send_if_plan_waits(context: dg.RunStatusSensorContext, resource: RepositoryResource) -> dg.SkipReason | None:
    run, repository = context.dagster_run, resource.repository
    try:  # a run without a partition, or with partitions of another project, made no plan
        plan = load_plan(resource.warehouse, resource.name, date.fromisoformat(run.tags.get(_PARTITION, "")))
    except (ValueError, GuardRefused, TableContractError):
        return dg.SkipReason(f"{resource.name} has no plan of this run's day")
    if plan.run_id != run.run_id:
        return dg.SkipReason(f"this run did not make the current plan of {plan.day}")
    is_swept = repository.settings.mode != "plan"
    if not is_swept or not approval_of(resource.warehouse, repository, plan, resource.clock.now()).waits_for_person:
        return dg.SkipReason(f"the plan of {plan.day} does not wait for approval")
    changes = history_changes_of(resource.warehouse, repository, plan)
    send(waiting_message(plan, changes, in_dagster=repository.settings.approval.in_dagster))
    return None


def waiting_message(plan: Plan, changes: HistoryChanges, *, in_dagster: bool) -> Message:
    """Return the message about a plan that waits for approval.

    `changes`: what the plan removes from the history. `in_dagster`: whether a job can approve the plan.
    """
    amount, job = plan.candidates, operation_job("approve", plan.repository)
    or_job = f", or the job {job} in Dagster" if in_dagster else ""
    text = (
        f"{plan.repository} {plan.day}: a plan waits for approval. A sweep would remove "
        f"{human_removal(amount, changes)}.\n"
        f"Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`{or_job}."
    )
    return {
        "text": text,
        "kind": "waiting",
        "repository": plan.repository,
        "day": plan.day.isoformat(),
        "plan_hash": plan.plan_hash,
        "objects": amount.objects,
        "bytes": amount.bytes,
        "removed_from_history": asdict(changes),
    }


def failure_sensor(repository: Repository, jobs: Jobs, assets: Collection[dg.AssetKey]) -> dg.SensorDefinition:
    """Return the sensor that sends a message when a run of the repository was refused or failed.

    `jobs`, `assets`: all jobs and assets of the repository. A run of another job, such as "Materialize all", counts if
    an asset of the repository failed. It also counts if it had assets of the repository and failed without a failed
    asset.
    """
    names = {job.name for job in jobs}

    @dg.run_failure_sensor(
        name=f"{repository.name}_failed",
        minimum_interval_seconds=_EVERY,
        description=f"Sends a message when a run of a job of {repository.name}, or of another job with its assets, was "
        "refused or failed.",
    )
    def sensor(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        run = context.dagster_run
        events = [entry.dagster_event for entry in context.instance.all_logs(run.run_id) if entry.dagster_event]
        if run.job_name not in names:
            others_failed = any(event.is_step_failure for event in events)
            events = [event for event in events if _is_of(event, assets)]
            if not events or (others_failed and not any(event.is_step_failure for event in events)):
                return dg.SkipReason(f"no asset of {repository.name} failed in the run {run.run_id}")
        error = failure_of(events, run.job_name, run.run_id)
        send(
            {
                "text": f"{repository.name} {run.tags.get(_PARTITION, '')}: {error}\nRun {run.run_id}",
                "kind": "refused" if isinstance(error, GuardRefused) else "failed",
                "repository": repository.name,
                "day": run.tags.get(_PARTITION, ""),
                "job": run.job_name,
                "run_id": run.run_id,
            }
        )
        return None

    return sensor


def _is_of(event: dg.DagsterEvent, assets: Collection[dg.AssetKey]) -> bool:
    """Return whether the event is of one of the assets. Dagster names a step by the key of its asset."""
    return event.asset_key in assets or event.step_key in {asset.to_python_identifier() for asset in assets}


def repository_sensors(
    repository: Repository, jobs: Jobs, assets: Collection[dg.AssetKey]
) -> list[dg.SensorDefinition]:
    """Return the sensors of a repository with these jobs and assets. In mode `plan` there is no sensor that sweeps."""
    sweeping = [] if repository.settings.mode == "plan" else [approved_sensor(repository)]
    return [*sweeping, waiting_sensor(repository), failure_sensor(repository, jobs, assets)]


def _as_tag(text: str) -> str:
    """Return the text as the value of a Dagster tag: at most 63 letters, digits, `-`, `_` and `.`."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in text)[:63]
