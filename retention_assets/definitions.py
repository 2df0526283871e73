"""The definitions that Dagster loads: one asset graph for each repository of the configuration file."""

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from retention_assets.assets.automation import repository_sensors
from retention_assets.assets.declaration import Declaration
from retention_assets.assets.lakefs import LAKEFS_ASSETS
from retention_assets.assets.operations import operation_jobs
from retention_assets.assets.resources import (
    CLOCK,
    SPARK,
    TABLES,
    WAREHOUSE,
    ClockResource,
    RepositoryResource,
    WarehouseIOManager,
    WarehouseResource,
    repository_key,
    spark_resource,
)
from retention_assets.assets.runs import HOUSEKEEPING, operation_job, plan_job, report_job, sweep_job, verify_job
from retention_assets.config.configuration import Configuration, Repository, load_configuration
from retention_assets.config.settings import SparkValue
from retention_assets.demo.sample import demo_configuration

if TYPE_CHECKING:
    from dagster._core.definitions.partitions.partitioned_schedule import UnresolvedPartitionedAssetScheduleDefinition
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as AssetJob

    Job = AssetJob | dg.JobDefinition
    Schedule = dg.ScheduleDefinition | UnresolvedPartitionedAssetScheduleDefinition

ONE_PROCESS = dg.in_process_executor  # with other executors, every step starts its own JVM


def build_definitions(
    configuration: Configuration,
    *,
    names: Collection[str] | None = None,
    clock: ClockResource | None = None,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    resources: Mapping[str, Any] | None = None,
    executor: dg.ExecutorDefinition | None = ONE_PROCESS,
) -> dg.Definitions:
    """Return the Dagster definitions of the repositories.

    Args:
        configuration: the configuration of all repositories.
        names: the repositories to define; None: all.
        clock: the clock to use instead of this machine's; not used if `resources` is given.
        loggers: further loggers.
        resources: the resources that all repositories share; None: new ones (`shared_resources`).
        executor: the executor of runs without a job, such as "Materialize all"; None: the project's executor.
    """
    if resources is None:
        warehouse = WarehouseResource(root=configuration.warehouse, shared=configuration.shared_warehouse)
        resources = shared_resources(configuration.spark, warehouse, clock or ClockResource())
    repositories = [one for one in configuration.repositories.values() if names is None or one.name in names]
    inventory_sensors, inventory_clients = _inventory_sensors(
        [one for one in repositories if not one.is_icechunk and one.lakefs.inventory]
    )
    jobs, schedules, sensors = zip(*map(_automation, repositories), strict=True)
    return dg.Definitions(
        assets=[asset.definition(one) for one in repositories for asset in _declarations(one)],
        jobs=list(chain(*jobs)),
        schedules=list(chain(*schedules)),
        sensors=[*inventory_sensors, *chain(*sensors)],
        resources={**resources, **repository_resources(configuration, resources, names), **inventory_clients},
        loggers=loggers,
        executor=executor,
    )


def shared_resources(
    spark: Mapping[str, SparkValue] | None, warehouse: WarehouseResource, clock: ClockResource
) -> dict[str, Any]:
    """Return the resources that all repositories share: Spark, the clock, and the warehouse with its IO manager.

    `spark`: the settings of the session; None: the project has a resource of its own, which the IO manager uses too.
    """
    shared = {CLOCK: clock, WAREHOUSE: warehouse}
    if spark is None:
        return {**shared, TABLES: _tables_of_project(warehouse)}
    pyspark = spark_resource(spark)
    return {**shared, SPARK: pyspark, TABLES: WarehouseIOManager(tables=warehouse, pyspark=pyspark)}


def _tables_of_project(warehouse: WarehouseResource) -> dg.IOManagerDefinition:
    """Return the IO manager that reads tables in the session of the project's resource `pyspark`."""

    @dg.io_manager(required_resource_keys={SPARK})
    def tables(context: dg.InitResourceContext) -> WarehouseIOManager:
        return WarehouseIOManager(tables=warehouse, pyspark=getattr(context.resources, SPARK))

    return tables


def repository_resources(
    configuration: Configuration, shared: Mapping[str, Any], names: Collection[str] | None = None
) -> dict[str, RepositoryResource]:
    """Return the resource of each repository, which uses the warehouse and the clock of the shared resources.

    `names`: as in `build_definitions`.
    """
    tables, clock = shared[WAREHOUSE], shared[CLOCK]
    return {
        repository_key(name): RepositoryResource(name=name, configured=configuration, tables=tables, clock=clock)
        for name in configuration.repositories
        if names is None or name in names
    }


def _declarations(repository: Repository) -> Sequence[Declaration]:
    """Return the declarations of a repository's assets, in the order in which the assets run."""
    if repository.is_icechunk:
        from retention_assets.assets.icechunk import ICECHUNK_ASSETS

        return ICECHUNK_ASSETS
    return LAKEFS_ASSETS


def _inventory_sensors(
    repositories: Sequence[Repository],
) -> tuple[list[dg.SensorDefinition], dict[str, Any]]:
    """Return the sensors of repositories whose store delivers inventories, and the resources of these sensors."""
    if not repositories:
        return [], {}
    from retention_assets.assets.arrivals import inventory_resources, inventory_sensor  # importing boto3 takes a second

    resources = {key: client for one in repositories for key, client in inventory_resources(one).items()}
    return [inventory_sensor(one) for one in repositories], resources


def _automation(repository: Repository) -> "tuple[list[Job], list[Schedule], list[dg.SensorDefinition]]":
    """Return the jobs, schedules and sensors of a repository. Schedules and sensors are off until somebody starts them.

    A scheduled sweep is refused if nobody approved the plan and no budget covers the plan. In mode `plan`, no schedule
    and no sensor starts a sweep.
    """
    plan, report, sweep, verify = _jobs(repository)
    jobs: list[Job] = [plan, report, sweep, verify, *operation_jobs(repository)]
    settings = repository.settings
    times = [(plan, settings.schedule.plan)] + ([] if settings.mode == "plan" else [(sweep, settings.schedule.sweep)])
    schedules: list[Schedule] = [
        dg.build_schedule_from_partitioned_job(
            job, hour_of_day=at.hour, minute_of_hour=at.minute, description=f"Each day: {job.description}"
        )
        for job, at in times
    ]
    schedules.append(_housekeeping(repository))
    keys = [asset.key(repository.name) for asset in _declarations(repository)]
    return jobs, schedules, repository_sensors(repository, jobs, keys)


def _housekeeping(repository: Repository) -> dg.ScheduleDefinition:
    """Return the schedule that removes old tables once a week. It is off until somebody starts it."""
    at, name = repository.settings.schedule.housekeeping, operation_job(HOUSEKEEPING, repository.name)
    return dg.ScheduleDefinition(
        job_name=name,
        name=f"{name}_schedule",
        cron_schedule=f"{at.minute} {at.hour} * * 0",
        description=f"Each Sunday: remove the old tables of {repository.name} from the warehouse.",
        run_config={"ops": {f"{HOUSEKEEPING}__{repository.name}": {"config": {"execute": True}}}},
    )


def _jobs(repository: Repository) -> "tuple[AssetJob, AssetJob, AssetJob, AssetJob]":
    """Return the jobs that plan, report, sweep and verify.

    Each asset is selected by its key: the project may have assets of its own in the group of the repository.
    """
    name, assets = repository.name, _declarations(repository)
    planning, report, proof = (
        dg.AssetSelection.assets(*(asset.key(name) for asset in assets if asset.stage == stage))
        for stage in ("plan", "sweep", "verify")
    )
    return (
        dg.define_asset_job(
            plan_job(name),
            selection=planning,
            executor_def=ONE_PROCESS,
            description=f"Plan what may be deleted from {name}. Deletes no data.",
        ),
        dg.define_asset_job(
            report_job(name),
            selection=report,
            executor_def=ONE_PROCESS,
            tags={"dagster/max_retries": "0"},  # with the option `execute`, the run deletes
            description=f"Report the outcomes of the plan of {name}. Deletes nothing without the option "
            "`execute` of `deletion_report` or the run tag `retention/sweep`.",
        ),
        dg.define_asset_job(
            sweep_job(name),
            selection=report,
            executor_def=ONE_PROCESS,
            tags={"retention/deletes": "true", "dagster/max_retries": "0"},
            description=f"Execute the approved plan of {name}; in mode `plan`, report its totals.",
        ),
        dg.define_asset_job(
            verify_job(name),
            selection=proof,
            executor_def=ONE_PROCESS,
            description=f"Read everything in {name} again, and verify the sweeps. Changes no data.",
        ),
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions of the configuration file that RETENTION_CONFIG names; by default, of the demo."""
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    return build_definitions(load_configuration(Path(os.environ.get("RETENTION_CONFIG") or demo_configuration())))
