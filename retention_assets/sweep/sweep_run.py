"""The inputs and steps of one sweep of a day's plan that repositories of lakeFS and Icechunk have in common."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.config.configuration import Repository, is_on_this_machine, load_configuration
from retention_assets.config.limits import Limits
from retention_assets.config.timestamps import Clock
from retention_assets.core.amounts import Amount, counted, plot_numbers, sum_of
from retention_assets.core.liveness import NoOtherRepositories, OtherRepositories
from retention_assets.errors import ConfigurationError, GuardRefused, ObjectsFailed
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.objectstore.s3 import require_copyable
from retention_assets.objectstore.versions import keeps_versions
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.spark.frames import master_of, sweep_workers
from retention_assets.state.approval import approved_terms
from retention_assets.state.binding import require_outside, require_same_location
from retention_assets.state.clocks import require_clock
from retention_assets.state.lease import MARGIN, require_seen_by_all, witnessed_record
from retention_assets.state.ledger import (
    FREED,
    OUTCOMES,
    amounts_of,
    ledger_of_plan,
    report_of,
    results_of,
    swept_plans,
)
from retention_assets.state.plan import (
    Heads,
    Plan,
    load_plan,
    planned_heads,
    planned_objects,
    require_not_blocked,
    require_plan,
    require_same_policy,
)
from retention_assets.state.quarantine import marker_of, prepare_directory, quarantine_of_plan
from retention_assets.state.records import read_records, seal_of
from retention_assets.sweep.actions import Delete, Quarantine
from retention_assets.sweep.engine import RepositorySweep, SparkEngine, require_opened_by_workers
from retention_assets.sweep.execute import Log, SweepResult, SweepRun, execute
from retention_assets.sweep.verification import VerificationInputs
from retention_assets.sweep.worker import Action
from retention_assets.tables import REFERENCE_ADDRESSES
from retention_assets.warehouse.warehouse import Warehouse

_VERSION_WARNINGS = {  # by mode, and by whether the bucket keeps versions; None: unknown
    ("delete", True): (
        "The bucket keeps versions: the deleted objects remain as old versions, which still cost storage. "
        "`retention purge {name} --versions` shows these versions, and prints the command that removes them."
    ),
    ("quarantine", True): (
        "The bucket keeps versions: the moved objects remain as old versions, so their storage is paid for twice. "
        "After the copies are purged, `retention purge {name} --versions` shows these versions, and prints the command "
        "that removes them."
    ),
    ("delete", None): (
        "It is unknown whether the bucket keeps versions of the deleted objects (s3:GetBucketVersioning is not "
        "allowed, or the request failed). If it does, `retention purge {name} --versions` shows these versions, and "
        "prints the command that removes them."
    ),
}


class AnyRepository(Protocol):
    """An open lakeFS or Icechunk repository."""

    @property
    def repository(self) -> Repository:
        """The configuration of the repository."""
        ...

    @property
    def access(self) -> StoreAccess:
        """URL and options of the object store of the repository."""
        ...

    def policy(self) -> Policy | SnapshotPolicy:
        """Return the current policy of the repository."""
        ...


@dataclass(frozen=True, slots=True)
class Sweep[Kind: AnyRepository]:
    """The inputs of a sweep of one day's plan: an open repository, Spark, the warehouse, log and clock."""

    spark: SparkSession
    warehouse: Warehouse
    opened: Kind
    day: date
    run_id: str
    log: Log
    clock: Clock
    others: OtherRepositories = field(default_factory=NoOtherRepositories)  # references of other repositories

    @property
    def name(self) -> str:
        """The name of the repository."""
        return self.opened.repository.name

    @property
    def limits(self) -> Limits:
        """The settings of the repository that limit a sweep."""
        return self.opened.repository.settings


@dataclass(frozen=True, slots=True)
class Report:
    """A plan and the current rows of its ledger. There are no rows if no sweep has worked on the plan."""

    plan: Plan
    mode: str
    ledger: DataFrame
    failed: int | None  # objects that this run could not delete or move; None: it did not execute the plan

    def numbers(self) -> dict[str, float | str]:
        """Return the numbers that Dagster plots: the plan's totals, its candidates by outcome, and the freed amount.

        An outcome without objects has the number 0, so that plots have no gaps.
        """
        objects = self.ledger.where(~F.col("address").startswith(REFERENCE_ADDRESSES))
        outcomes = {str(outcome): Amount() for outcome in OUTCOMES} | amounts_of(objects)
        planned, freed = self.plan.candidates, sum_of(outcomes[outcome] for outcome in FREED)
        amounts = {"planned": planned, "freed": freed, **results_of(planned, outcomes)}
        return {"mode": self.mode, "plan_hash": self.plan.plan_hash, **plot_numbers(amounts)}


def objects_failed(plan: Plan, failed: int, left: int) -> ObjectsFailed:
    """Return the error of a sweep in which objects failed. `left`: the number of objects that were not tried."""
    name, day = plan.repository, plan.day
    rest = f"{counted(left, 'more was', 'more were')} not tried" if left else "the other objects of the plan are done"
    return ObjectsFailed(
        f"{name} {day}: {counted(failed, 'object')} could not be deleted or moved; {rest}. The reasons: "
        f"`retention show {name} deletion_report --as-of {day} --format csv`. "
        f"Then try again: `retention sweep {name} --as-of {day}`."
    )


def sweep_plan(sweep: Sweep[AnyRepository], mode: str, repository: RepositorySweep) -> int:
    """Execute the plan, and return the number of objects that could not be deleted or moved.

    Errors: GuardRefused before anything is deleted or moved; later errors: see `execute`.
    """
    settings = sweep.limits.sweep
    try:
        run = sweep_run_of(sweep, repository, mode)
        with SparkEngine(
            sweep.spark,
            sweep.warehouse,
            repository,
            most=settings.round,
            others=sweep.others,
            keeps_missing=mode == "quarantine",
        ) as engine:
            sweep_result = execute(run, engine, repository)
            warn_of_versions(sweep, mode, sweep_result)
            repository.finish(sweep_result.outcomes, engine.ledger())
            return engine.failed_in_sweeps() if Outcome.FAILED in sweep_result.outcomes else 0
    finally:
        repository.release()
        sweep.others.release()


def sweep_run_of(sweep: Sweep[AnyRepository], repository: RepositorySweep, mode: str) -> SweepRun:
    """Return the `SweepRun` of the plan, with the settings of the repository.

    Errors: GuardRefused when other machines would not see the lease of the sweep.
    """
    single_machine = sweep.limits.sweep.single_machine
    require_seen_by_all(sweep.warehouse, sweep.name, sweep.opened.access, single_machine=single_machine)
    action, workers = action_of(sweep, repository.plan, mode), sweep_workers(sweep.spark)
    return SweepRun(
        warehouse=sweep.warehouse,
        plan=repository.plan,
        kind="sweep",
        mode=mode,
        action=action,
        limits=sweep.limits,
        run_id=sweep.run_id,
        clock=sweep.clock,
        log=sweep.log,
        workers=workers,
        dump=repository.dump,
        terms=approved_terms(sweep.opened.repository),
        seal=seal_of(sweep.opened.repository),
        ready=partial(_make_ready, sweep, action, workers),
    )


def _make_ready(sweep: Sweep[AnyRepository], action: Action, workers: int) -> None:
    """Make a local quarantine ready, and require that all workers see it. Errors: StoreError."""
    if isinstance(action, Quarantine) and action.marker:
        prepare_directory(sweep.warehouse, sweep.name, action.location.access, action.marker)
        if not is_on_this_machine(master_of(sweep.spark)):
            require_opened_by_workers(sweep.spark, action, workers)


def action_of(sweep: Sweep[AnyRepository], plan: Plan, mode: str) -> Action:
    """Return the action of a mode: quarantine or delete.

    Errors: GuardRefused if each executor would move objects of a bucket to a disk of its own machine, where `restore`
    does not find them. A local repository with a local quarantine is not refused, because all machines may see both
    directories: a worker ends the sweep if it does not see the marker of the quarantine, or if the directory of the
    repository does not exist or is empty on its machine (`Preconditions.classified`). ConfigurationError if the options
    of a store do not allow copies.
    """
    access = sweep.opened.access
    if mode != "quarantine":
        return Delete(access)
    location, master = quarantine_of_plan(sweep.opened.repository, plan), master_of(sweep.spark)
    if location.access.is_local and not access.is_local and not is_on_this_machine(master):
        raise GuardRefused(
            f"{sweep.name} {sweep.day}: the quarantine {location.access.url} is a directory, and the executors of "
            f"{master} run on other machines: each would move objects to its own disk, where `restore` does not find "
            "them. Nothing was moved. Set quarantine.url to a location in an object store."
        )
    require_copyable(access, location.access)  # before the history of an Icechunk repository is edited
    return Quarantine(access, location, marker_of(sweep.warehouse, sweep.name, location.access))


def swept[Kind: AnyRepository](
    sweep: Sweep[Kind], of_plan: Callable[[Sweep[Kind], Plan], RepositorySweep], *, execute: bool, plan_hash: str
) -> Report:
    """Return the report of the day's plan. With `execute`, sweep the plan first, unless the mode is `plan`.

    `of_plan`: the class of the system's sweep. `plan_hash`: the hash that the plan must have; empty: any hash.
    Errors: GuardRefused if the day has no plan, or one with another hash; as `of_plan` and `sweep_plan`.
    """
    mode, of_day = sweep.opened.repository.settings.mode, (sweep.warehouse, sweep.name, sweep.day)
    plan = require_plan(*of_day, plan_hash, undone="deleted") if plan_hash else load_plan(*of_day)
    failed = sweep_plan(sweep, mode, of_plan(sweep, plan)) if execute and mode != "plan" else None
    ledger = ledger_of_plan(sweep.spark, sweep.warehouse, sweep.name, sweep.day, plan.plan_hash)
    return Report(plan, mode, report_of(ledger), failed)


def planned_as_approved(sweep: Sweep[AnyRepository], plan: Plan, policy_hash: str) -> tuple[DataFrame, Heads]:
    """Return the candidates of the plan, and the heads of branches and tags at planning.

    The candidates, the policy and the storage location must be as approved, the warehouse must be outside of the
    storage, and the clocks of this machine and of the store must agree. Errors: GuardRefused when one of them differs,
    or when the plan is blocked.
    """
    require_outside(sweep.warehouse.root, sweep.opened.repository)
    require_same_location(sweep.warehouse, sweep.opened.repository)
    require_not_blocked(plan)
    require_same_policy(plan, policy_hash)
    candidates = planned_objects(sweep.spark, sweep.warehouse, plan)
    require_clock(sweep.opened.repository, sweep.opened.access, sweep.clock)
    return candidates, planned_heads(sweep.warehouse, plan)


def require_unchanged(plan: Plan, opened: AnyRepository) -> None:
    """Raise GuardRefused if the settings or the policy were changed during the sweep, for example by a new hold."""
    require_same_settings(plan, opened.repository)
    require_same_policy(plan, opened.policy().policy_hash, "more was deleted")


def require_same_settings(plan: Plan, used: Repository) -> None:
    """Raise GuardRefused if the configuration file has another mode, other settings of a plan, or other policy files.

    A file without the repository is refused, too. A sweep uses the configuration of its start (`used`). Without this
    check, the sweep would continue after someone set `mode: plan`, or added a policy file with a hold. A file that
    cannot be read is ignored, because someone may be writing it.
    """
    with suppress(ConfigurationError):
        now = load_configuration(used.file).repositories.get(used.name)
        if now is None or (approved_terms(now), now.settings.policy) != (approved_terms(used), used.settings.policy):
            raise GuardRefused(
                f"{plan.repository} {plan.day}: the settings of the repository in {used.file} were changed during the "
                f"sweep, or since the Dagster code location was loaded. Nothing more was deleted. The ledger has what "
                f"was done. To continue with these settings, reload the code location if there is one, and sweep "
                f"again: `retention sweep {plan.repository} --as-of {plan.day}`."
            )


def warn_of_versions(sweep: Sweep[AnyRepository], mode: str, sweep_result: SweepResult) -> None:
    """Log a warning if the bucket keeps versions of deleted or moved objects.

    After a deletion, also log a warning if the versioning status of the bucket cannot be read.
    """
    if not sweep_result.outcomes or not sweep.opened.access.is_s3:
        return
    warning = _VERSION_WARNINGS.get((mode, keeps_versions(sweep.opened.access)))
    if warning:
        sweep.log(warning.format(name=sweep.name))


def verification_inputs(sweep: Sweep[AnyRepository]) -> VerificationInputs:
    """Return the inputs of `retention verify`, which checks every plan that has a ledger."""
    name, warehouse, repository = sweep.name, sweep.warehouse, sweep.opened.repository
    newest = witnessed_record(warehouse, name)  # read before the records: another run may write one meanwhile
    records, seal, plans = list(read_records(warehouse, name)), seal_of(repository), swept_plans(warehouse, name)
    now, window = sweep.clock(), repository.settings.sweep.window
    idle_since = now - window - MARGIN
    inputs = VerificationInputs(sweep.spark, warehouse, name, plans, records, (), newest, now.date(), seal, idle_since)
    modes = {repository.settings.mode, *(kept.document["mode"] for kept in records)}
    if "quarantine" in modes or not inputs.rows().where(F.col("outcome") == Outcome.QUARANTINED).isEmpty():
        return replace(inputs, locations=[quarantine_of_plan(repository, plan) for plan in plans])
    return inputs
