"""The resources of the assets: the Spark session, the clock, the warehouse with its IO manager, and each repository.

Dagster shows and stores the configuration of a resource. So a secret stays the name of an environment variable until it
is used: when the Spark session starts, or when the store or source of a repository is opened.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import wraps
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from retention_assets.assets.runs import ReadOptions, SweepOptions, day_of
from retention_assets.config.configuration import Configuration, Repository
from retention_assets.config.settings import SparkValue
from retention_assets.config.timestamps import utc_now
from retention_assets.core.guards import CheckResult
from retention_assets.errors import GuardRefused, naming
from retention_assets.icechunk.source.opening import OpenIcechunk, open_icechunk
from retention_assets.icechunk.sweep.guards import Referenced
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.objectstore.access import open_store
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.spark.failures import explaining
from retention_assets.spark.frames import is_one_process
from retention_assets.spark.sessions import SparkSettings, fit_to, prepared, spark_settings
from retention_assets.state.acknowledged import acknowledged_addresses, known_addresses, record_missing
from retention_assets.state.binding import require_outside, require_same_location
from retention_assets.state.ledger import quarantined_by
from retention_assets.state.plan import PLANNED_OBJECTS, Planned
from retention_assets.state.reuse import reused_rows
from retention_assets.sweep.sweep_run import AnyRepository, Sweep
from retention_assets.tables import DELETION_CANDIDATES, SHOWN
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.table_writer import write_rows
from retention_assets.warehouse.warehouse import Rows, Warehouse, Written

# The keys of the resources. A project's own resources have other keys, such as `warehouse` and `io_manager`.
SPARK, CLOCK, WAREHOUSE, TABLES = "pyspark", "retention_clock", "retention_warehouse", "retention_tables"
Observed = Mapping[str, Any]  # the value of each aggregate, by its name


class SparkResource(LazyPySparkResource):
    """The Spark session and its configuration. `secrets` maps keys with secret values to environment variables."""

    secrets: dict[str, str] = Field(default_factory=dict)
    suits_few: bool = False  # whether `fit_to` may adapt the session's settings to few objects

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = SparkSettings(self.spark_config, self.secrets, self.suits_few).start()

    def fit_to(self, objects: int) -> None:
        """Set the session's SQL settings for a repository of this many listed objects.

        The session is not changed if it runs on a cluster, for example because the project started it, or if the
        configuration has these settings.
        """
        if self.suits_few and is_one_process(spark := session(self)):
            fit_to(objects, spark)


def spark_resource(settings: Mapping[str, SparkValue]) -> SparkResource:
    """Return the lazy Spark resource for `spark:` of the configuration. Use one per process: the session is global."""
    wanted = spark_settings(settings)
    return SparkResource(spark_config=dict(wanted.plain), secrets=dict(wanted.secrets), suits_few=wanted.suits_few)


def session(resource: LazyPySparkResource) -> SparkSession:
    """Return the session. Errors: as `prepared`."""
    return prepared(lambda: resource.spark_session)


class ClockResource(dg.ConfigurableResource):
    """The time of runs and sensors: this machine's clock. Tests replace the resource."""

    def now(self) -> datetime:
        """Return the time as an aware datetime (UTC)."""
        return utc_now()


class WarehouseResource(dg.ConfigurableResource):
    """Where the tables of all repositories are. The warehouse is opened only when a run needs it."""

    root: str = Field(description="`warehouse` of the configuration: an absolute local path, or a URL.")
    shared: bool = Field(default=False, description="`shared_warehouse`: all machines see the local path.")

    def open(self) -> Warehouse:
        """Return the warehouse. Errors: TableContractError if a version with another layout wrote it."""
        return Warehouse(self.root)


class RepositoryResource(dg.ConfigurableResource):
    """One repository of a configuration. Its store and source are opened only when a run needs them."""

    name: str = Field(description="The repository's name: its key prefix, group and directory in the warehouse.")
    configured: dg.ResourceDependency[Configuration]
    tables: dg.ResourceDependency[WarehouseResource]
    clock: dg.ResourceDependency[ClockResource]

    @property
    def configuration(self) -> Configuration:
        """The configuration of all repositories, with the warehouse of the resource `tables`."""
        return replace(self.configured, warehouse=self.tables.root, shared_warehouse=self.tables.shared)

    @property
    def repository(self) -> Repository:
        """The configuration of this repository."""
        return self.configured.repository(self.name)

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, with the tables of all repositories."""
        return self.tables.open()

    def open(self) -> OpenRepository:
        """Open the store and source of a lakeFS repository. Errors: ConfigurationError."""
        return open_repository(self.repository, self.clock.now)

    def open_icechunk(self) -> OpenIcechunk:
        """Open the store of an Icechunk repository. Errors: ConfigurationError."""
        return open_icechunk(self.repository, self.clock.now)

    def cache(
        self,
        context: dg.AssetExecutionContext,
        pyspark: LazyPySparkResource,
        options: ReadOptions | None,
        lost: DataFrame | None = None,
        missing: DataFrame | None = None,
    ) -> TableCache:
        """Return the cache with the rows of metaranges and ranges, or of snapshots and manifests.

        `options`: None uses the cache, even in a run with the tag `FULL`. `lost`: see `TableCache`. `missing`: other
        files that do not exist, by address; they are not fetched either.
        """
        full = options is not None and options.reads_all(context.run)
        access = open_store(self.repository)
        if not self.knows_lost():
            lost = None  # nothing is acknowledged as lost
        if missing is not None:
            lost = missing if lost is None else lost.unionByName(missing).distinct()
        return TableCache(session(pyspark), self.warehouse, self.name, access, context.run_id, full=full, lost=lost)

    def write(
        self, table: str, day: date, rows: Rows, observe: Sequence[Column] = (), inputs: str | None = None
    ) -> tuple[Rows, Observed]:
        """Write rows to their partition now. Return the rows as they are read back, and the values of `observe`.

        Spark would compute unwritten rows again at each use, and could find different rows in the source each time.

        `observe`: named aggregates, which Spark computes while it writes. `inputs`: the digest of everything from which
        the rows were made, if a later run may reuse them.
        """
        shared = self.tables.shared
        written = write_rows(rows.frame, self.warehouse, self.name, table, day, shared=shared, observe=observe)
        frame = self.warehouse.frame(rows.frame.sparkSession, self.name, table, day.isoformat())
        self.warehouse.require_files(written.files, self.name, table, day)  # another run may have replaced them
        # The details may be a copy of those of another table.
        details = replace(rows.details, digest=None, inputs=inputs, computed_at=self.clock.now())
        return replace(rows, data=frame, written=written, details=details), written.observed

    def reused(
        self,
        context: dg.AssetExecutionContext,
        pyspark: LazyPySparkResource,
        options: ReadOptions,
        table: str,
        inputs: str | None,
    ) -> Rows | None:
        """Return the rows that an earlier run made from the same inputs, in the day's partition; None: make them.

        `inputs`: the digest of the inputs; None: not all inputs are known.
        """
        if options.reads_all(context.run):
            return None
        spark, day, now = session(pyspark), day_of(context), self.clock.now()
        return reused_rows(spark, self.warehouse, self.name, table, day, inputs, now)

    def write_planned(self, context: dg.AssetExecutionContext, planned: Planned, taken_at: datetime) -> Rows:
        """Return the rows of `deletion_candidates`. The candidates are copied from the directory of the plan.

        If a guard refused, there is no plan to copy from, and the IO manager writes the rows.
        """
        if planned.plan is None:
            return Rows(planned.candidates, taken_at)
        if planned.same:
            context.log.info(
                f"Nothing has changed since the plan of {planned.same.made_at:%Y-%m-%d %H:%M} UTC, so the objects were "
                "not classified again. The option `full` classifies them."
            )
        day = day_of(context)
        table, amount = DELETION_CANDIDATES.name, planned.plan.candidates
        files = self.warehouse.copy_table(
            (self.name, PLANNED_OBJECTS, planned.plan.plan_hash), (self.name, table, day.isoformat())
        )
        self.warehouse.require_rows(self.name, table, day, amount.objects)
        return Rows(planned.candidates, taken_at, written=Written(amount.objects, amount.bytes, files=files))

    def current_policy(self) -> Policy | SnapshotPolicy:
        """Return the policy of the repository, as its files or its server have it now. Errors: ConfigurationError."""
        return (self.open_icechunk() if self.repository.is_icechunk else self.open()).policy()

    def policy(self, day: date) -> Policy:
        """Return the policy of the day's `policy_table`. Errors: GuardRefused if the policy has changed since then."""
        return self._unchanged(self.open().policy(), day)

    def memory(self) -> Memory:
        """Return the heads and commits that earlier plans of a lakeFS repository recorded."""
        return read_memory(self.warehouse, self.name, self.repository.lakefs)

    def snapshot_policy(self, day: date) -> SnapshotPolicy:
        """Return the policy of an Icechunk repository's `policy_table`. Errors: as in `policy`."""
        return self._unchanged(self.open_icechunk().policy(), day)

    def _unchanged[AnyPolicy: (Policy, SnapshotPolicy)](self, policy: AnyPolicy, day: date) -> AnyPolicy:
        if policy.policy_hash != self.warehouse.metadata(self.name, "policy_table", day).details.policy_hash:
            raise GuardRefused(
                f"{self.name} {day}: the policy has changed since policy_table was made. Nothing was deleted. "
                f"Plan again: `retention plan {self.name} --as-of {day}`."
            )
        return policy

    def require_location(self) -> None:
        """Refuse to plan if the warehouse is inside the repository, or the tables belong to another location.

        Errors: as `require_outside` and `require_same_location`.
        """
        require_outside(self.warehouse.root, self.repository, self.configuration.repositories)
        require_same_location(self.warehouse, self.repository)

    def lost(self, pyspark: LazyPySparkResource, inventory: Rows) -> DataFrame:
        """Return the addresses that are acknowledged as lost and not listed (column `address`)."""
        acknowledged = acknowledged_addresses(session(pyspark), self.warehouse, self.name)
        return acknowledged.join(inventory.frame, on="address", how="left_anti")

    def record_missing(self, pyspark: LazyPySparkResource, referenced: Referenced) -> CheckResult:
        """Record the missing files for which a guard refuses the plan, and return the guard's check result.

        If some of the files are in quarantine, the result names the command that brings them back.
        """
        found = referenced.check_result
        if referenced.missing or found.passed:
            record_missing(self.warehouse, self.name, found.guard, referenced.missing, self.clock.now())
        if not referenced.missing:
            return found
        plans = quarantined_by(session(pyspark), self.warehouse, self.name, referenced.missing)
        commands = " and ".join(f"`retention restore {self.name} --plan {one}`" for one in plans)
        moved = (
            f". Sweeps moved some of these objects to quarantine. Bring back all objects of these sweeps: {commands}"
        )
        return replace(found, detail=found.detail + moved) if plans else found

    def knows_lost(self) -> bool:
        """Return whether a person acknowledged any object of the repository as lost."""
        return bool(known_addresses(self.warehouse, self.name))

    def passed_again(self, reused: Rows) -> tuple[CheckResult, ...]:
        """Return the check results of reused rows, all of which passed, and record that no file is missing."""
        check_results = reused.details.check_results or ()
        for one in check_results:
            record_missing(self.warehouse, self.name, one.guard, [], self.clock.now())
        return check_results

    def elsewhere(self, context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> OtherRepositories:
        """Return the reader of the other repositories' references."""
        spark, others = session(pyspark), self.configuration.others(self.name)
        return OtherRepositories(spark, self.warehouse, self.repository, others, context.run_id, self.clock.now)

    def sweep[Kind: AnyRepository](
        self, context: dg.AssetExecutionContext, pyspark: LazyPySparkResource, opened: Kind
    ) -> Sweep[Kind]:
        """Return the context of a sweep or a verification of the partition."""
        spark, others, log = session(pyspark), self.elsewhere(context, pyspark), context.log.info
        return Sweep(spark, self.warehouse, opened, day_of(context), context.run_id, log, self.clock.now, others)

    def with_options(self, options: SweepOptions) -> "RepositoryResource":
        """Return this resource with the options of a run."""
        configured = options.applied_to(self.configured, self.name)
        return RepositoryResource(name=self.name, configured=configured, tables=self.tables, clock=self.clock)


def repository_key(repository: str) -> str:
    """Return the key of a repository's resource."""
    return f"retention_repository_{repository}"


def for_repository[R](function: Callable[..., R], repository: str) -> Callable[..., R]:
    """Return `function` with its parameter `resource` renamed to the key of the repository's resource.

    Dagster finds resources by the names of parameters, and each repository has its own resource.
    """
    key, signature = repository_key(repository), inspect.signature(function)
    parameters = [one.replace(name=key) if one.name == "resource" else one for one in signature.parameters.values()]

    @wraps(function)
    def of_repository(*arguments: object, **keywords: object) -> R:
        if key in keywords:
            keywords["resource"] = keywords.pop(key)
        context = next((one for one in arguments if isinstance(one, dg.AssetExecutionContext)), None)
        day = context.partition_key if context is not None and context.has_partition_key else "DAY"
        with naming(repository, day):
            return function(*arguments, **keywords)

    vars(of_repository)["__signature__"] = signature.replace(parameters=parameters)
    of_repository.__annotations__ = {one.name: one.annotation for one in parameters} | {
        "return": signature.return_annotation
    }
    return of_repository


class WarehouseIOManager(dg.ConfigurableIOManager):
    """Writes an asset's partition as Parquet, and reads it. Errors: TableContractError that names what is missing."""

    tables: dg.ResourceDependency[WarehouseResource]
    pyspark: dg.ResourceDependency[LazyPySparkResource]

    @explaining()
    def handle_output(self, context: dg.OutputContext, obj: Rows) -> None:
        """Overwrite the partition, then write its metadata. Without metadata, a partition is incomplete.

        It stays incomplete if another run replaced these rows, or rows from which they were made.
        """
        repository, name = context.asset_key.path
        day = day_of(context)
        warehouse = self.tables.open()
        written = obj.written or write_rows(obj.data, warehouse, repository, name, day, shared=self.tables.shared)
        for one in obj.made_from:
            one.require_unchanged()
        warehouse.require_files(written.files, repository, name, day)
        content = warehouse.content_digest(repository, name, day.isoformat()) if obj.details.inputs else None
        made = PartitionMetadata(
            obj.taken_at, written.rows, context.run_id, obj.details, written.files, written.size, content
        )
        warehouse.write_metadata(repository, name, day, made)
        metadata = _metadata(obj, f"{repository}.{name}", warehouse.partition(repository, name, day), written)
        if obj.began is not None:  # Spark computes most rows only when they are written, so the time includes writing
            metadata["seconds"] = dg.MetadataValue.float(round(time.monotonic() - obj.began, 3))
        context.add_output_metadata(metadata)

    @explaining()
    def load_input(self, context: dg.InputContext) -> Rows:
        """Return the rows of the partition that a step reads."""
        repository, name = context.asset_key.path
        return self.tables.open().rows(session(self.pyspark), repository, name, day_of(context))


def _metadata(obj: Rows, table: str, target: str, written: Written) -> dict[str, dg.MetadataValue]:
    schema = from_arrow_schema(obj.data.schema) if isinstance(obj.data, pa.Table) else obj.data.schema
    metadata: dict[str, dg.MetadataValue] = {
        "dagster/row_count": dg.MetadataValue.int(written.rows),
        "dagster/partition_row_count": dg.MetadataValue.int(written.rows),
        "dagster/column_schema": dg.MetadataValue.table_schema(_column_schema(schema, table)),
        "dagster/table_name": dg.MetadataValue.text(table),
        "dagster/uri": dg.MetadataValue.text(target),
        "taken_at": dg.MetadataValue.timestamp(obj.taken_at),
    }
    if "size" in schema.names:
        metadata["bytes"] = dg.MetadataValue.int(written.size)
    return metadata


def _column_schema(schema: StructType, table: str) -> dg.TableSchema:
    meanings = SHOWN[table.rpartition(".")[2]].meanings
    return dg.TableSchema(
        [dg.TableColumn(field.name, field.dataType.simpleString(), meanings.get(field.name)) for field in schema.fields]
    )
