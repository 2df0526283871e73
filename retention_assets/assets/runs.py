"""The inputs of a run (the name of its job, its day, its options and its tags), and the error of a failed run.

There is one partition per day (UTC). A run applies the policy as of the start of its day. A person sets options in
Dagster's launchpad. Secrets are never options, because Dagster shows options.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

import dagster as dg
from pydantic import Field

from retention_assets import errors
from retention_assets.assets.catalog import NONE_FAILED
from retention_assets.config.configuration import Configuration
from retention_assets.config.durations import LONGEST, parse_positive_duration
from retention_assets.config.timestamps import FIRST_DAY, require_day
from retention_assets.errors import ConfigurationError, GuardRefused, ObjectsFailed, RetentionError, error_named_in
from retention_assets.spark.failures import first_line, is_of_missing_files
from retention_assets.tables import DELETION_PROOF

SWEEP = "retention/sweep"  # a run of any job with this tag ("true") may sweep

HOUSEKEEPING = "housekeeping"  # the operation that removes old tables of the warehouse


def plan_job(repository: str) -> str:
    """Return the name of the job that plans: all assets except `deletion_report` and `deletion_proof`."""
    return f"{repository}_plan"


def sweep_job(repository: str) -> str:
    """Return the name of the job that executes a plan, or reports its totals in `plan` mode."""
    return f"{repository}_sweep"


def report_job(repository: str) -> str:
    """Return the name of the job that reports the outcomes of a plan.

    "Materialize" on the page of `deletion_report` starts the first of the asset's jobs, sorted by name. This is usually
    Dagster's own job, `__ASSET_JOB`. But the jobs of a repository whose name begins with a digit or a capital letter
    sort before that job. So the name of this job must sort before the name of the sweep job.
    """
    return f"{repository}_report"


def verify_job(repository: str) -> str:
    """Return the name of the job that compares the store with the references and the ledgers."""
    return f"{repository}_verify"


def operation_job(operation: str, repository: str) -> str:
    """Return the name of the job of an operation, such as approve or restore: see `operations`."""
    return f"{repository}_{operation}"


# Without `end_offset`, the partition of a day would exist only when the day is over.
daily = dg.DailyPartitionsDefinition(start_date=FIRST_DAY.isoformat(), timezone="UTC", end_offset=1)


def day_of(context: dg.AssetExecutionContext | dg.InputContext | dg.OutputContext) -> date:
    """Return the day of the partition that runs.

    Errors: ConfigurationError as `require_day`, and if the run has no partition, or several.

    Dagster does not check the day in the tag `dagster/partition`, which a person or a request can set.
    """
    try:
        day = context.partition_key
    except dg.DagsterInvariantViolationError as error:
        raise ConfigurationError(
            f"This run has no day, or several: {error} Nothing was changed or deleted. Choose one partition for a run."
        ) from error
    return require_day(day, "partition")


FULL = "retention/full"  # a run with this tag ("true") reuses nothing that earlier runs read or computed
USER = "user"  # the tag with the person who started the run, if Dagster knows the person
_RETRY = "dagster/retry_number"  # the tag of a run that Dagster starts by itself after one that failed
_TRUE = "true"


class ReadOptions(dg.Config):
    """The options of an asset that reuses what earlier runs read or computed."""

    full: bool = Field(default=False, description="Reuse nothing: read all files and compute all rows again.")

    def reads_all(self, run: dg.DagsterRun) -> bool:
        """Return whether the run reads all files again, also files that are in the cache, and computes all rows."""
        return self.full or run.tags.get(FULL) == _TRUE


class SweepOptions(dg.Config):
    """The options of the asset that deletes."""

    execute: bool = Field(default=False, description="Execute the approved plan. The sweep job always does.")
    plan_hash: str = Field(default="", description="Only report or execute the plan with this hash. Empty: any plan.")
    dump_age: str = Field(default="", description="The maximum age of the dump that the sweep uses, such as 12h.")

    def may_sweep(self, run: dg.DagsterRun, repository: str) -> bool:
        """Return whether the run was started to sweep: by the sweep job, its schedule, an option or the tag `SWEEP`.

        Errors: GuardRefused if Dagster started the run to retry another one: nobody decided to sweep again.
        """
        sweeps = self.execute or run.job_name == sweep_job(repository) or run.tags.get(SWEEP) == _TRUE
        if sweeps and _RETRY in run.tags:
            raise GuardRefused(
                f"{repository}: Dagster started this run to retry another one, and a sweep is never retried by itself. "
                f"Nothing was deleted. Start it again on purpose: `retention sweep {repository}`."
            )
        return sweeps

    def applied_to(self, configuration: Configuration, repository: str) -> Configuration:
        """Return the configuration with the `dump_age` of this run. Errors: ConfigurationError."""
        if not self.dump_age:
            return configuration
        try:
            dump_age = parse_positive_duration(self.dump_age, LONGEST)
        except ConfigurationError as error:
            raise ConfigurationError(f"dump_age: {error}. Nothing was deleted. Correct the option.") from None
        return configuration.with_dump_age(repository, dump_age)


_OWN_ERRORS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RetentionError)
}


def was_interrupted(events: Sequence[dg.DagsterEvent]) -> bool:
    """Return whether a person or the system ended the run during a step, for example with Ctrl-C."""
    errors_of_steps = [event.step_failure_data.error for event in events if event.is_step_failure]
    return any(error and error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for error in errors_of_steps)


def failure_of(events: Sequence[dg.DagsterEvent], job: str, run_id: str) -> RetentionError:
    """Return the error that ended a run.

    This is ObjectsFailed if a sweep ended with failed objects, else GuardRefused with all failed checks, else the error
    of the failed step.
    """
    checks = [event for event in events if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    refused = [check for check in (event.asset_check_evaluation_data for event in checks) if not check.passed]
    for check in refused:
        if check.check_name == NONE_FAILED:
            return ObjectsFailed(check.description)
    if refused:
        lines = "\n  ".join(f"{check.check_name}: {check.description}" for check in refused)
        if any(check.asset_key.path[-1] == DELETION_PROOF.name for check in refused):
            return GuardRefused(f"{job}: the verification failed. Nothing was changed by the verification.\n  {lines}")
        return GuardRefused(f"{job}: a guard refused. Nothing was deleted, and there is no plan.\n  {lines}")
    for event in events:
        if event.is_step_failure:
            return _own_error(event.step_failure_data.error, event.step_key or job, run_id)
    if any(event.event_type == dg.DagsterEventType.STEP_START for event in events):
        return RetentionError(
            f"{job}: the run {run_id} ended during a step, without an error. Its process may have been killed. Open "
            "the run in the Dagster UI, and start it again."
        )
    return RetentionError(
        f"{job}: the run {run_id} failed before any step. Nothing was done. See the reason in the Dagster UI, then "
        "start the run again."
    )


def _own_error(error: Any, step: str, run_id: str) -> RetentionError:
    chain = []
    while error is not None:
        chain.append(error)
        error = error.cause
    for link in reversed(chain):
        if found := error_named_in(link.message):
            return found
        if link.cls_name in _OWN_ERRORS:
            return _OWN_ERRORS[link.cls_name](link.message.partition(": ")[2].strip() or link.message.strip())
    first = first_line(chain[-1].message).rstrip(".") if chain else "no reason was recorded"
    meanwhile = (
        " Another run may have written or removed the same tables meanwhile, such as a second plan of the day. Wait "
        "until it ends, and run the same command again."
        if any(is_of_missing_files(link.message) for link in chain)
        else ""
    )
    return RetentionError(
        f"{step.rpartition('__')[2]}: {first}. Nothing more was done.{meanwhile} The Dagster UI has the details: run "
        f"{run_id}."
    )
