"""The jobs that a person starts in Dagster: approve, withdraw, stop, restore and others.

The jobs call the same functions as the commands `approve`, `withdraw`, `stop`, `resume`, `acknowledge`, `quarantined`,
`restore`, `purge` and `housekeeping`. The job for `housekeeping` also has a schedule.
"""

from collections.abc import Callable, Mapping
from datetime import date

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from retention_assets.assets.reporting import address_list, quarantine_table
from retention_assets.assets.resources import RepositoryResource, for_repository, session
from retention_assets.assets.runs import USER, operation_job
from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import Amount, counted, human_amount, human_removal, plot_numbers, sum_of
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.explain.plans import history_changes_of
from retention_assets.repositories.housekeeping import Leftover, leftovers, remove_leftovers
from retention_assets.repositories.live_now import LiveNow
from retention_assets.state.acknowledged import (
    acknowledge,
    addresses_digest,
    complete_records,
    known_addresses,
    missing_addresses,
    require_lost,
    still_lost,
)
from retention_assets.state.approval import (
    NO_BUDGET,
    approve,
    approved_plans_of_other_days,
    approved_terms,
    has_approval,
    withdraw_approval,
)
from retention_assets.state.lease import ending_of_stop, resume_sweeps, stop_sweeps
from retention_assets.state.plan import current_day_of, find_plan, last_plan_of, require_plan
from retention_assets.state.records import seal_of
from retention_assets.sweep.copies import Undo
from retention_assets.sweep.undo import Selection, due_for_purge, purge, restore


class PersonOptions(dg.Config):
    """Who acts."""

    by: str = Field(default="", description="Your name, for the records. Empty: the run's tag `user`.")

    def person(self, run: dg.DagsterRun) -> str:
        """Return the person and the run, for the records. Errors: ConfigurationError if no person is given."""
        name = self.by.strip() or run.tags.get(USER, "")
        if not name:
            raise ConfigurationError(
                f"{run.job_name}: `by` is not set. Nothing was changed. Set `by` in the launchpad to your name, or "
                f"start the run with the tag `{USER}`."
            )
        return f"{name}, Dagster run {run.run_id}"


class ApproveOptions(PersonOptions):
    """Which plan is approved, and by whom."""

    plan_hash: str = Field(description="The complete hash of the plan: `plan_hash` of deletion_candidates.")


class DayOptions(PersonOptions):
    """The day of the plan, and who acts."""

    day: str = Field(description="The day of the plan: YYYY-MM-DD.")


class RestoreOptions(PersonOptions):
    """Which objects are restored. At least one of the fields is needed."""

    plan_hash: str = Field(
        default="",
        description="The objects that sweeps of the plan with this hash moved. The beginning of the hash is enough.",
    )
    path: str = Field(default="", description="The objects at this path of the repository, or below it.")
    address: str = Field(default="", description="One object, by its address.")


class PurgeOptions(PersonOptions):
    """What a purge deletes."""

    digest: str = Field(default="", description="The hash that a run without `digest` logs. Empty: show what is due.")
    versions: bool = Field(
        default=False, description="Purge the versions that the bucket keeps of deleted objects, not the quarantine."
    )


class AcknowledgeOptions(PersonOptions):
    """Which live objects are acknowledged as lost."""

    addresses: list[str] = Field(
        default=[],
        description="The lost objects. Empty: those that the last refused plan or failed verification did not find.",
    )
    digest: str = Field(default="", description="The hash that a run without `digest` logs. Empty: show the objects.")
    whole_slices: bool = Field(default=False, description="Accept directories in which no object is left.")


class HousekeepingOptions(dg.Config):
    """Whether housekeeping removes old tables."""

    execute: bool = Field(default=False, description="Remove the old tables. False: only log them.")


def operation_jobs(repository: Repository) -> list[dg.JobDefinition]:
    """Return the jobs of one repository."""
    operations: list[Callable[..., None]] = [_withdraw, _stop, _resume, _quarantined, _restore, _housekeeping]
    if repository.settings.approval.in_dagster:
        operations += [_approve, _acknowledge, _purge]
    return [_job(repository, operation) for operation in operations]


def _job(repository: Repository, function: Callable[..., None]) -> dg.JobDefinition:
    """Return the job of one operation. Dagster does not retry it. The operation must have another name than the job."""
    name = function.__name__.removeprefix("_")
    tags = {"retention/deletes": "true"} if function is _purge else {}
    operation = dg.op(name=f"{name}__{repository.name}", tags=tags)(for_repository(function, repository.name))

    @dg.job(
        name=operation_job(name, repository.name),
        description=operation.description,
        executor_def=dg.in_process_executor,
        tags={"dagster/max_retries": "0", **tags},
    )
    def job() -> None:
        operation()

    return job


def _approve(context: dg.OpExecutionContext, resource: RepositoryResource, config: ApproveOptions) -> None:
    """Approve the plan with this hash under the current settings. Then a sweep may execute it."""
    by, warehouse = config.person(context.run), resource.warehouse
    plan_hash = config.plan_hash.strip().lower()
    day = current_day_of(warehouse, resource.name, plan_hash) or find_plan(warehouse, resource.name, plan_hash).day
    life, terms = resource.repository.settings.approval.life, approved_terms(resource.repository)
    asked = require_plan(warehouse, resource.name, day, plan_hash, undone="approved")
    changes = history_changes_of(warehouse, resource.repository, asked)  # raises before the approval is written
    plan = approve(warehouse, resource.name, day, plan_hash, by, resource.clock.now(), life, terms)
    until = f"{plan.made_at + life:%Y-%m-%d %H:%M} UTC"
    removes = human_removal(plan.candidates, changes)
    text = f"{by} approved {plan.plan_hash} of {day} until {until}: {removes}. Settings: {terms}"
    _report(context, text, {"planned": plan.candidates})


def _withdraw(context: dg.OpExecutionContext, resource: RepositoryResource, config: DayOptions) -> None:
    """Withdraw the approvals of the day's plans. A running sweep continues.

    Until a person approves a plan of the repository again, a budget approves none.
    """
    by, day, now = config.person(context.run), _day(config.day), resource.clock.now()
    warehouse, name, life = resource.warehouse, resource.name, resource.repository.settings.approval.life
    was_approved = has_approval(warehouse, last_plan_of(warehouse, name, day))
    plan = withdraw_approval(warehouse, name, day, by, now)
    which = f"plan {plan.plan_hash} of {name} as of {day}"
    message = f"{by} withdrew the approval of {which}."
    if not was_approved:
        message = f"Nobody had approved {which}."
    message += f" {NO_BUDGET}"
    for other in approved_plans_of_other_days(warehouse, name, day, life, now):
        message += f" The plan of {other.day} is still approved. To withdraw it, run the job with `day: {other.day}`."
    _report(context, message, {"planned": plan.candidates})


def _stop(context: dg.OpExecutionContext, resource: RepositoryResource, config: PersonOptions) -> None:
    """Stop the running sweep, restore or purge within seconds.

    Until the job `resume`, sweeps, restores, purges, housekeeping and changes with `retention icechunk` are refused.
    """
    stopped = stop_sweeps(resource.warehouse, resource.name, config.person(context.run), resource.clock.now())
    again = operation_job("resume", resource.name)
    context.log.info(
        f"{ending_of_stop(stopped)} Sweeps, restores, purges, housekeeping and changes with `retention icechunk` of "
        f"{resource.name} are refused. To allow them again, run the job {again}."
    )


def _resume(context: dg.OpExecutionContext, resource: RepositoryResource, config: PersonOptions) -> None:
    """Allow sweeps, restores, purges, housekeeping and changes with `retention icechunk` again."""
    by = config.person(context.run)
    resume_sweeps(resource.warehouse, resource.name, resource.clock.now())
    context.log.info(f"{by} allowed sweeps of {resource.name} again. If `stop` ended a run, start that run again.")


def _housekeeping(context: dg.OpExecutionContext, resource: RepositoryResource, config: HousekeepingOptions) -> None:
    """Log which old tables the warehouse no longer needs. With `execute: true`, remove them."""
    keep, log = resource.configuration.warehouse_keep, context.log.info
    warehouse, repository, clock, found = resource.warehouse, resource.repository, resource.clock, list[Leftover]()
    try:
        if config.execute:
            remove_leftovers(warehouse, repository, keep, context.run_id, log, clock.now, found)
        else:
            found = leftovers(warehouse, repository, keep, clock.now())
    finally:  # an error does not hide what was removed before it
        for leftover in found:
            log(f"{leftover.path}: {leftover.reason}")
    done = "Removed" if config.execute else "With `execute: true`, the job would remove"
    files = Amount(sum(one.files for one in found), sum(one.bytes for one in found))
    _report(context, f"{done} {counted(len(found), 'entry', 'entries')} of the warehouse.", {"files": files})


def _acknowledge(context: dg.OpExecutionContext, resource: RepositoryResource, config: AcknowledgeOptions) -> None:
    """Show live objects that are missing. With `digest` set to the hash that the job logs, accept their loss."""
    by, warehouse = config.person(context.run), resource.warehouse
    now, seal = resource.clock.now(), seal_of(resource.repository)
    complete_records(warehouse, resource.name, now, context.run_id, seal)
    given = config.addresses or missing_addresses(warehouse, resource.name)
    wanted = sorted(set(given) - known_addresses(warehouse, resource.name))
    if config.addresses:
        require_lost(warehouse, resource.repository, wanted, whole_slices=config.whole_slices)
    else:
        wanted = still_lost(resource.repository, wanted, whole_slices=config.whole_slices)
    digest = addresses_digest(wanted)
    if config.digest and config.digest.strip() != digest:
        raise GuardRefused(
            f"{resource.name}: {config.digest.strip()} is not the hash of the objects that are missing now "
            f"({len(wanted):,}). Nothing was acknowledged. Run the job without `digest`, and check the objects again."
        )
    objects_are = counted(len(wanted), "live object is", "live objects are")
    if not wanted:
        message = "No objects to acknowledge."
    elif config.digest:
        acknowledge(warehouse, resource.name, wanted, by, now, context.run_id, seal)
        message = f"{by} acknowledged that {objects_are} lost. Plan again."
    else:
        message = f"{objects_are} missing. To accept the loss, run the job again with `digest: {digest}`."
    _report(context, message, shown={"addresses": address_list(wanted)})


def _quarantined(context: dg.OpExecutionContext, resource: RepositoryResource, pyspark: LazyPySparkResource) -> None:
    """Show the objects in quarantine by plan, compared with the ledgers. Changes nothing."""
    undo = _undo(resource, context, "", pyspark)
    with undo.frames:
        copies = undo.copies()
        plans, unknown = copies.by_plan(), copies.unknown()
    held, missing = sum_of(one.held for one in plans), sum_of(one.missing for one in plans)
    message = f"In quarantine: {human_amount(held)}."
    if missing.objects:
        message += f" Moved there, and without a copy: {human_amount(missing)}."
    table = quarantine_table(plans, unknown)
    _report(context, message, {"quarantined": held, "without_copy": missing}, {"plans": table})


def _restore(
    context: dg.OpExecutionContext, resource: RepositoryResource, config: RestoreOptions, pyspark: LazyPySparkResource
) -> None:
    """Move objects from quarantine back to their addresses. Objects that exist there are not overwritten."""
    selection = Selection(config.plan_hash or None, config.path or None, config.address or None)
    if selection == Selection():
        raise ConfigurationError(
            f"{resource.name}: nothing is selected. Nothing was changed. Set `plan_hash`, `path` or `address`."
        )
    undone = restore(_undo(resource, context, config.person(context.run), pyspark), selection)
    _report(context, "The metadata shows the totals of the plans' ledgers.", undone.ledgers)
    undone.require_complete(resource.name, "restored")


def _purge(
    context: dg.OpExecutionContext, resource: RepositoryResource, config: PurgeOptions, pyspark: LazyPySparkResource
) -> None:
    """Show by plan how much may be purged. With `digest` set to the hash that the job logs, delete it for good."""
    undo = _undo(resource, context, config.person(context.run), pyspark)
    if not config.digest:
        with undo.frames:
            due = due_for_purge(undo, versions=config.versions)
            table = quarantine_table(due.rows, amount="deleted" if config.versions else "due")
        message = " ".join(f"{resource.name}: {one}" for one in due.sentences())
        if due.has_any:
            options = f"`digest: {due.digest}`{' and `versions: true`' if config.versions else ''}"
            message += f" To delete them, run the job again with {options}. {due.unknown_versions()}"
        _report(context, message.strip(), {"due": due.amount, "surplus": due.surplus}, {"plans": table})
        return
    with LiveNow(undo, resource.configuration.others(resource.name)) as live:
        undone = purge(undo, config.digest, live, versions=config.versions)
    _report(context, "The metadata shows the totals of the plans' ledgers.", undone.ledgers)
    undone.require_complete(resource.name, "purged")


def _undo(resource: RepositoryResource, context: dg.OpExecutionContext, by: str, pyspark: LazyPySparkResource) -> Undo:
    return Undo(
        session(pyspark),
        resource.warehouse,
        resource.repository,
        context.run_id,
        by,
        context.log.info,
        resource.clock.now,
    )


def _report(
    context: dg.OpExecutionContext,
    message: str,
    amounts: Mapping[str, Amount] | None = None,
    shown: Mapping[str, dg.MetadataValue] | None = None,
) -> None:
    """Log the message, and attach it to the run with the amounts and the metadata in `shown`."""
    context.log.info(message)
    context.add_output_metadata({"what": message, **(shown or {}), **plot_numbers(amounts or {})})


def _day(written: str) -> date:
    try:
        return date.fromisoformat(written.strip())
    except ValueError as error:
        raise ConfigurationError(f"day: {written!r} is not a date. Nothing was changed. Write YYYY-MM-DD.") from error
