"""What the assets of one repository share: configuration, warehouse, clock, and the decorator that declares them."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import Column, DataFrame

import retention_assets
from retention_assets.assets.descriptions import CHECKS
from retention_assets.assets.lineage import column_lineage
from retention_assets.assets.options import ReadOptions, SweepOptions
from retention_assets.assets.partitions import daily
from retention_assets.assets.resources import SparkResource, session
from retention_assets.config.configuration import Configuration, Repository
from retention_assets.config.timestamps import Clock, utc_now
from retention_assets.core.guards import CheckResult, refusals
from retention_assets.core.other_references import OtherReferences
from retention_assets.core.sessions import naming_lack_of_memory
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.source.opening import OpenIcechunk, open_icechunk
from retention_assets.icechunk.sweep.guards import Referenced
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.objectstore.access import open_store
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.acknowledged import acknowledged_addresses, note_missing
from retention_assets.state.plan import PLANNED_OBJECTS, POLICY_HASH, Planned
from retention_assets.state.table_cache import TableCache
from retention_assets.state.table_writer import write_rows
from retention_assets.state.warehouse import CHECK_RESULTS, METADATA, REFUSED, Rows, Warehouse, Written
from retention_assets.tables import DELETION_CANDIDATES, STORAGE_INVENTORY

ROWS = dg.PythonObjectDagsterType(Rows, name="Rows")
TABLES = "retention_tables"  # the key of the IO manager: a project's own `io_manager` stays its own
Made = dg.MaterializeResult[Rows]  # what an asset returns
Observed = Mapping[str, Any]  # values of aggregates by name


@dataclass(frozen=True, slots=True)
class RepositoryResource:
    """One repository of a configuration. Stores and sources are opened only when a run needs them."""

    configuration: Configuration
    repository: Repository
    clock: Clock = utc_now

    @property
    def name(self) -> str:
        """The repository's name: its key prefix, group and directory in the warehouse."""
        return self.repository.name

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse, with the tables of all repositories."""
        return Warehouse(self.configuration.warehouse)

    def open(self) -> OpenRepository:
        """Open the repository's store and source."""
        return open_repository(self.repository, self.clock)

    def open_icechunk(self) -> OpenIcechunk:
        """Open the store of an Icechunk repository."""
        return open_icechunk(self.repository, self.clock)

    def cache(
        self,
        context: dg.AssetExecutionContext,
        pyspark: LazyPySparkResource,
        options: ReadOptions,
        lost: DataFrame | None = None,
    ) -> TableCache:
        """Return the cache of table files that earlier runs read. `lost`: see `TableCache`."""
        full = options.reads_all(context.run)
        access = open_store(self.repository)
        return TableCache(session(pyspark), self.warehouse, self.name, access, context.run_id, full=full, lost=lost)

    def write(self, table: str, day: date, rows: Rows, observe: Sequence[Column] = ()) -> tuple[Rows, Observed]:
        """Write rows to their partition now, and return them as they are read back.

        Until then Spark may read their source again for each use, and find something else each time.

        `observe`: aggregates, with names. Their values are returned too: Spark computes them while it writes.
        """
        shared = self.configuration.shared_warehouse
        written = write_rows(rows.frame, self.warehouse, self.name, table, day, shared=shared, observe=observe)
        frame = self.warehouse.frame(rows.frame.sparkSession, self.name, table, day.isoformat())
        return replace(rows, data=frame, written=written), written.observed

    def write_planned(self, day: date, planned: Planned, taken_at: datetime) -> Rows:
        """Return the rows of `deletion_candidates`. The candidates of a plan are copied from where the plan has them.

        If a guard refused, no rows are written yet.
        """
        if planned.plan is None:
            return Rows(planned.candidates, taken_at)
        table, amount = DELETION_CANDIDATES.name, planned.plan.candidates
        self.warehouse.copy_table(
            (self.name, PLANNED_OBJECTS, planned.plan.plan_hash), (self.name, table, day.isoformat())
        )
        self.warehouse.require_rows(self.name, table, day, amount.objects)
        return Rows(planned.candidates, taken_at, written=Written(amount.objects, amount.bytes))

    def policy(self, day: date) -> Policy:
        """Return the policy of the day's `policy_table`. Errors: GuardRefused if the policy changed since."""
        policy = self.open().policy()
        self._require_policy(day, policy.policy_hash)
        return policy

    def memory(self) -> Memory:
        """Return the heads and commits that earlier plans of a lakeFS repository saw."""
        return read_memory(self.warehouse, self.name, self.repository.lakefs)

    def snapshot_policy(self, day: date) -> SnapshotPolicy:
        """Return the policy of an Icechunk repository's `policy_table`. Errors: as in `policy`."""
        policy = self.open_icechunk().policy()
        self._require_policy(day, policy.policy_hash)
        return policy

    def _require_policy(self, day: date, policy_hash: str) -> None:
        noted = self.warehouse.metadata(self.name, "policy_table", day).notes[POLICY_HASH]
        if policy_hash != noted:
            raise GuardRefused(
                f"{self.name} {day}: the policy changed since policy_table was made. Nothing was deleted. "
                f"Plan again: `retention plan {self.name} --as-of {day}`."
            )

    def places(self) -> dict[str, tuple[str, ...]]:
        """Return the namespace and the storage URL of each configured repository."""
        return {name: (other.namespace, other.storage) for name, other in self.configuration.repositories.items()}

    def lost(self, pyspark: LazyPySparkResource, inventory: Rows) -> DataFrame:
        """Return the addresses that are acknowledged as lost and not listed (column `address`)."""
        acknowledged = acknowledged_addresses(session(pyspark), self.warehouse, self.name)
        return acknowledged.join(inventory.frame, on="address", how="left_anti")

    def note_missing(self, referenced: Referenced) -> None:
        """Record the missing files because of which a guard refuses."""
        if referenced.missing:
            guard = referenced.check_result.guard
            note_missing(self.warehouse, self.name, guard, referenced.missing, self.clock())

    def other_references(self, context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> OtherReferences:
        """Return the references of other repositories for a plan."""
        return self.elsewhere(context, pyspark).for_plan()

    def elsewhere(self, context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> OtherRepositories:
        """Return the reader of the other repositories' references."""
        spark, others = session(pyspark), self.configuration.others(self.name)
        return OtherRepositories(spark, self.warehouse, self.repository, others, context.run_id, self.clock)

    def with_options(self, options: SweepOptions) -> "RepositoryResource":
        """Return the same for a run with these options."""
        configuration = options.applied_to(self.configuration, self.name)
        return replace(self, configuration=configuration, repository=configuration.repository(self.name))

    def asset(
        self,
        name: str,
        *,
        after: Sequence[str] = (),
        reads: Sequence[str] = (),
        checks: Sequence[str] = (),
        stage: Literal["plan", "sweep", "verify"] = "plan",
        has_rows: bool = True,
    ) -> Callable[[Callable[..., Made]], dg.AssetsDefinition]:
        """Return the decorator for a daily asset of this repository. Its checks are blocking.

        `after`: the assets that run before it; `reads`: the assets whose rows it reads; `checks`: the guards it runs;
        `has_rows`: whether it returns rows for the warehouse, or writes to the warehouse itself.
        """
        key = dg.AssetKey([self.name, name])
        system = "icechunk" if self.repository.is_icechunk else "lakefs"
        declared = dg.asset(
            key=key,
            group_name=self.name,
            partitions_def=daily,
            ins={other: dg.AssetIn([self.name, other], dagster_type=ROWS) for other in reads},
            deps=[dg.AssetKey([self.name, other]) for other in after],
            check_specs=[_check_spec(guard, key) for guard in checks],
            dagster_type=ROWS if has_rows else None,
            io_manager_key=TABLES if has_rows else None,
            code_version=code_version(),
            owners=self.repository.settings.owners,
            tags={
                "retention/system": system,
                "retention/stage": stage,
                "retention/deletes": str(stage == "sweep").lower(),
            },
            kinds={"pyspark", "parquet", system} if has_rows else {system},
            metadata={"namespace": self.repository.namespace},
            freshness_policy=self._freshness() if name == DELETION_CANDIDATES.name else None,
        )
        lineage = column_lineage(system, self.name, name)
        return lambda make: declared(self._with_start(make, lineage) if has_rows else make)

    def _freshness(self) -> dg.FreshnessPolicy | None:
        within = self.repository.settings.schedule.plan_within
        return dg.FreshnessPolicy.time_window(fail_window=within) if within else None

    def _with_start(
        self, make: Callable[..., Made], lineage: Mapping[str, dg.TableColumnLineage]
    ) -> Callable[..., Made]:
        """Return `make` with Spark's settings for the repository's size, and its result with the column lineage.

        The rows note when the asset began.
        """
        del make.__annotations__["return"]  # an asset with checks has several outputs: Dagster would expect a tuple

        @wraps(make)
        def timed(*arguments: object, **inputs: object) -> Made:
            began = time.monotonic()
            with naming_lack_of_memory():
                if isinstance(spark := inputs.get("pyspark"), SparkResource):
                    spark.fit_to(self._objects_listed())
                made = make(*arguments, **inputs)
            return made._replace(value=replace(made.value, began=began), metadata={**(made.metadata or {}), **lineage})

        return timed

    def _objects_listed(self) -> int:
        """Return the number of objects in the newest complete listing; 0 if there is none."""
        place = self.name, STORAGE_INVENTORY.name
        metadata = (
            self.warehouse.read_document(*place, day, METADATA) for day in self.warehouse.directories(*place)[::-1]
        )
        return next((one["rows"] for one in metadata if one), 0)


def _check_spec(guard: str, asset: dg.AssetKey) -> dg.AssetCheckSpec:
    """Return the spec of a guard. Its results belong to a partition, as its asset's rows do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # Dagster 1.13 previews `partitions_def` of checks
        return dg.AssetCheckSpec(guard, asset=asset, blocking=True, description=CHECKS[guard], partitions_def=daily)


def checked(
    rows: Rows,
    check_results: Iterable[CheckResult] = (),
    numbers: Mapping[str, dg.MetadataValue | float | str] | None = None,
    version: str | None = None,
) -> Made:
    """Return the asset's rows with its check results, numbers that Dagster plots, and the version of the data.

    Dagster writes the rows even if a guard refuses. The note `REFUSED` tells later steps not to use these rows.
    """
    check_results = list(check_results)
    refused = ", ".join(check_result.guard for check_result in refusals(check_results))
    notes = {name: value for name, value in rows.notes.items() if name != CHECK_RESULTS}  # those of another table
    if check_results:
        notes[CHECK_RESULTS] = json.dumps([asdict(check_result) for check_result in check_results])
    return dg.MaterializeResult(
        value=replace(rows, notes={**notes, REFUSED: refused} if refused else notes),
        check_results=[
            dg.AssetCheckResult(
                check_name=check_result.guard,
                passed=check_result.passed,
                description=check_result.message,
                metadata=_plotted(check_result),
            )
            for check_result in check_results
        ],
        metadata=numbers or {},
        data_version=dg.DataVersion(version) if version else None,
    )


def _plotted(check_result: CheckResult) -> Mapping[str, float]:
    """Return the numbers of a check that Dagster plots. A check that only passes or fails has the value 0 or 1."""
    value = float(not check_result.passed) if check_result.value is None else float(check_result.value)
    return {"value": value} | ({} if check_result.limit is None else {"limit": float(check_result.limit)})


@cache
def code_version() -> str:
    """Return a digest of the modules that decide what a table has.

    A constant that people change by hand would be forgotten. A digest of all these modules also changes with a comment,
    which only shows an asset as outdated until its next run.
    """
    package = Path(retention_assets.__file__).parent
    rooms = (package / room for room in ("core", "policy", "inventory", "lakefs", "icechunk"))
    files = [*(file for room in rooms for file in room.rglob("*.py")), package / "tables.py"]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
