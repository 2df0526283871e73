"""The definitions that Dagster loads: one asset graph for each repository of the configuration file."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from retention_assets.assets.automation import repository_sensors
from retention_assets.assets.io_manager import WarehouseIOManager
from retention_assets.assets.jobs import HOUSEKEEPING, operation_job, plan_job, sweep_job, verify_job
from retention_assets.assets.lakefs import lakefs_assets
from retention_assets.assets.operations import operation_jobs
from retention_assets.assets.repository_resource import TABLES, RepositoryResource
from retention_assets.assets.resources import spark_resource
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.config.settings import SparkValue
from retention_assets.config.timestamps import Clock, utc_now
from retention_assets.demo.placing import demo_configuration

if TYPE_CHECKING:
    from dagster._core.definitions.partitions.partitioned_schedule import UnresolvedPartitionedAssetScheduleDefinition
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as AssetJob

    Job = AssetJob | dg.JobDefinition
    Schedule = dg.ScheduleDefinition | UnresolvedPartitionedAssetScheduleDefinition

REPORT, PROOF = "deletion_report", "deletion_proof"
ONE_PROCESS = dg.in_process_executor  # with other executors, every step starts a JVM of its own


def build_definitions(
    configuration: Configuration,
    *,
    clock: Clock = utc_now,
    loggers: Mapping[str, dg.LoggerDefinition] | None = None,
    resources: Mapping[str, Any] | None = None,
    executor: dg.ExecutorDefinition | None = ONE_PROCESS,
) -> dg.Definitions:
    """Return the Dagster definitions of all repositories.

    Args:
        configuration: the configuration of the repositories.
        clock: tells the time; tests pass another one.
        loggers: further loggers.
        resources: Spark and the warehouse; None: new ones (`project_resources`).
        executor: the executor of runs that are not of a job, such as "Materialize all"; None: the project's.
    """
    if resources is None:
        warehouse, shared = configuration.warehouse, configuration.shared_warehouse
        resources = project_resources(warehouse, configuration.spark, shared=shared)
    repositories = [
        RepositoryResource(configuration, repository, clock) for repository in configuration.repositories.values()
    ]
    inventory_sensors, watchers = _inventory_sensors(
        [resource for resource in repositories if _has_inventories(resource)]
    )
    parts = [_parts(resource) for resource in repositories]
    return dg.Definitions(
        assets=[asset for one in repositories for asset in _assets(one)],
        jobs=[job for part in parts for job in part.jobs],
        schedules=[schedule for part in parts for schedule in part.schedules],
        sensors=[*inventory_sensors, *(sensor for part in parts for sensor in part.sensors)],
        resources={**resources, **watchers},
        loggers=loggers,
        executor=executor,
    )


def project_resources(warehouse: str, spark: Mapping[str, SparkValue], *, shared: bool) -> dict[str, Any]:
    """Return the resources that the assets of all repositories use: Spark and the warehouse of the tables."""
    pyspark = spark_resource(spark)
    return {"pyspark": pyspark, TABLES: WarehouseIOManager(root=warehouse, pyspark=pyspark, shared=shared)}


def _assets(resource: RepositoryResource) -> list[dg.AssetsDefinition]:
    if not resource.repository.is_icechunk:
        return lakefs_assets(resource)
    from retention_assets.assets.icechunk import icechunk_assets

    return icechunk_assets(resource)


def _has_inventories(resource: RepositoryResource) -> bool:
    return not resource.repository.is_icechunk and bool(resource.repository.lakefs.inventory)


def _inventory_sensors(
    watching: Sequence[RepositoryResource],
) -> tuple[list[dg.SensorDefinition], dict[str, Any]]:
    """Return the sensors of repositories whose store delivers inventories, and the resources of these sensors."""
    if not watching:
        return [], {}
    from retention_assets.assets.sensors import inventory_resources, inventory_sensor  # importing boto3 takes a second

    resources = {key: client for one in watching for key, client in inventory_resources(one).items()}
    return [inventory_sensor(one, plan_job(one.name)) for one in watching], resources


@dataclass(frozen=True, slots=True)
class _Parts:
    """The jobs of one repository, and what starts them."""

    jobs: Sequence["Job"]
    schedules: Sequence["Schedule"]
    sensors: Sequence[dg.SensorDefinition]


def _parts(resource: RepositoryResource) -> _Parts:
    """Return the jobs, schedules and sensors of a repository. Schedules and sensors are off until somebody starts them.

    A scheduled sweep is refused if nobody approved the plan and no budget covers the plan. In mode `plan` nothing
    starts a sweep.
    """
    plan, sweep, verify = _jobs(resource.name)
    jobs: list[Job] = [plan, sweep, verify, *operation_jobs(resource)]
    settings = resource.repository.settings
    times = [(plan, settings.schedule.plan)] + ([] if settings.mode == "plan" else [(sweep, settings.schedule.sweep)])
    schedules: list[Schedule] = [
        dg.build_schedule_from_partitioned_job(job, hour_of_day=at.hour, minute_of_hour=at.minute) for job, at in times
    ]
    schedules.append(_housekeeping(resource))
    return _Parts(jobs, schedules, repository_sensors(resource, [plan], jobs))


def _housekeeping(resource: RepositoryResource) -> dg.ScheduleDefinition:
    """Return the schedule that removes old tables once a week. Whoever switches it on wants them removed."""
    at, name = resource.repository.settings.schedule.housekeeping, operation_job(HOUSEKEEPING, resource.name)
    return dg.ScheduleDefinition(
        job_name=name,
        name=f"{name}_schedule",
        cron_schedule=f"{at.minute} {at.hour} * * 0",
        run_config={"ops": {f"{HOUSEKEEPING}__{resource.name}": {"config": {"execute": True}}}},
    )


def _jobs(repository: str) -> "tuple[AssetJob, AssetJob, AssetJob]":
    """Return the jobs that plan, sweep and verify."""
    report, proof = (dg.AssetSelection.assets([repository, name]) for name in (REPORT, PROOF))
    everything = dg.AssetSelection.groups(repository)
    return (
        dg.define_asset_job(
            plan_job(repository),
            selection=everything - report - proof,
            executor_def=ONE_PROCESS,
            description=f"Plan what may be deleted from {repository}. Deletes nothing.",
        ),
        dg.define_asset_job(
            sweep_job(repository),
            selection=report,
            executor_def=ONE_PROCESS,
            tags={"retention/deletes": "true", "dagster/max_retries": "0"},
            description=f"Execute the approved plan of {repository}; in mode `plan`, report its totals.",
        ),
        dg.define_asset_job(
            verify_job(repository),
            selection=proof,
            executor_def=ONE_PROCESS,
            description=f"Read all that {repository} holds again, and verify what was done. Changes nothing.",
        ),
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions of the configuration file that RETENTION_CONFIG names; the default is the demo's."""
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    return build_definitions(load_configuration(Path(os.environ.get("RETENTION_CONFIG") or demo_configuration())))
