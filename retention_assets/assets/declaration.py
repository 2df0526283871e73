"""Declares assets: a function per asset, from which `definition` makes the asset of each repository."""

import hashlib
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import pyarrow as pa

import retention_assets
from retention_assets.assets.catalog import CHECKS, NONE_FAILED, column_sources
from retention_assets.assets.resources import TABLES, RepositoryResource, SparkResource, for_repository, repository_key
from retention_assets.assets.runs import daily
from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult, refusals
from retention_assets.spark.failures import explaining
from retention_assets.sweep.sweep_run import Report, objects_failed
from retention_assets.sweep.verification import by_check
from retention_assets.tables import DELETION_CANDIDATES, DELETION_PROOF, STORAGE_INVENTORY
from retention_assets.warehouse.metadata import Details
from retention_assets.warehouse.warehouse import Rows

ROWS = dg.PythonObjectDagsterType(Rows, name="Rows")
Made = dg.MaterializeResult[Rows]  # what an asset returns


@dataclass(frozen=True, slots=True)
class Declaration:
    """A daily asset that every repository of a system has. Its checks are blocking.

    The function `make` has the name of the asset. Its parameters are the asset's inputs: `resource` is the repository,
    and each parameter of the type `Rows` is the table with the name of the parameter.
    """

    make: Callable[..., dg.MaterializeResult[Any]]
    after: Sequence[str]  # assets that must run before this asset, and whose rows it does not read
    checks: Sequence[str]  # names of the checks, as in `CHECKS`
    stage: Literal["plan", "sweep", "verify"]
    has_rows: bool  # True: the IO manager writes the rows that the asset returns. False: the asset writes its output

    def key(self, repository: str) -> dg.AssetKey:
        """Return the key of the asset of the repository with this name."""
        return dg.AssetKey([repository, self.make.__name__])

    def definition(self, repository: Repository) -> dg.AssetsDefinition:
        """Return the asset of a repository."""
        name, system = self.make.__name__, "icechunk" if repository.is_icechunk else "lakefs"
        key = self.key(repository.name)
        parameters = inspect.signature(self.make).parameters.values()
        reads = [one.name for one in parameters if one.annotation is Rows]
        as_asset = dg.asset(
            key=key,
            group_name=repository.name,
            partitions_def=daily,
            ins={other: dg.AssetIn([repository.name, other], dagster_type=ROWS) for other in reads},
            deps=[dg.AssetKey([repository.name, other]) for other in self.after],
            check_specs=[_check_spec(guard, key) for guard in self.checks],
            dagster_type=ROWS if self.has_rows else None,
            io_manager_key=TABLES if self.has_rows else None,
            code_version=code_version(),
            owners=repository.settings.owners,
            tags={
                "retention/system": system,
                "retention/stage": self.stage,
                "retention/deletes": str(self.stage == "sweep").lower(),
            },
            kinds={"pyspark", "parquet", system} if self.has_rows else {system},
            metadata={"namespace": repository.namespace},
            freshness_policy=_freshness(repository) if name == DELETION_CANDIDATES.name else None,
        )
        make = for_repository(self.make, repository.name)
        return as_asset(_instrumented(make, repository, system) if self.has_rows else make)


def declared(
    *,
    after: Sequence[str] = (),
    checks: Sequence[str] = (),
    stage: Literal["plan", "sweep", "verify"] = "plan",
    has_rows: bool = True,
) -> Callable[[Callable[..., dg.MaterializeResult[Any]]], Declaration]:
    """Return the decorator that declares an asset. The arguments are those of `Declaration`."""
    return lambda make: Declaration(make, after, checks, stage, has_rows)


def _freshness(repository: Repository) -> dg.FreshnessPolicy | None:
    within = repository.settings.schedule.plan_within
    return dg.FreshnessPolicy.time_window(fail_window=within) if within else None


def _instrumented(make: Callable[..., Made], repository: Repository, system: str) -> Callable[..., Made]:
    """Return a function that calls `make` with Spark settings that fit the size of the repository.

    The function adds the column lineage to the result of `make`, and the time at which the asset started.
    """
    key, lineage = repository_key(repository.name), column_lineage(system, repository.name, make.__name__)

    @wraps(make)
    def timed(*arguments: object, **inputs: object) -> Made:
        began = time.monotonic()
        with explaining():
            spark, resource = inputs.get("pyspark"), inputs.get(key)
            if isinstance(spark, SparkResource) and isinstance(resource, RepositoryResource):
                spark.fit_to(resource.warehouse.newest_rows(repository.name, STORAGE_INVENTORY.name))
            made = make(*arguments, **inputs)
        made_from = [one for one in inputs.values() if isinstance(one, Rows)]
        value = replace(made.value, began=began, made_from=made_from)
        return made._replace(value=value, metadata={**(made.metadata or {}), **lineage})

    # No return type: an asset with checks has several outputs, so Dagster would expect a tuple.
    vars(timed)["__signature__"] = inspect.signature(make).replace(return_annotation=inspect.Signature.empty)
    timed.__annotations__ = {name: kind for name, kind in make.__annotations__.items() if name != "return"}
    return timed


def column_lineage(system: str, repository: str, table: str) -> dict[str, dg.TableColumnLineage]:
    """Return the metadata from which Dagster draws the lineage of a table's columns."""
    deps = {
        column: [dg.TableColumnDep(dg.AssetKey([repository, source]), name) for source, name in sources]
        for column, sources in column_sources(system, table).items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)} if deps else {}


def _check_spec(guard: str, asset: dg.AssetKey) -> dg.AssetCheckSpec:
    """Return the spec of a check. Its results have the same partitions as its asset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # in Dagster 1.13, `partitions_def` of checks is a preview
        return dg.AssetCheckSpec(guard, asset=asset, blocking=True, description=CHECKS[guard], partitions_def=daily)


def checked(
    rows: Rows,
    check_results: Iterable[CheckResult] = (),
    numbers: Mapping[str, dg.MetadataValue | float | str] | None = None,
    version: str | None = None,
) -> Made:
    """Return the asset's rows with its check results, numbers that Dagster plots, and the version of the data.

    Dagster writes the rows even if a guard refuses. Then `refused` in the details of the rows names the guard, and
    later steps do not use the rows.
    """
    check_results = tuple(check_results)
    refused = ", ".join(check_result.guard for check_result in refusals(check_results))
    # The details may be copied from another table, so the check results of that table are replaced.
    details = replace(rows.details, refused=refused or rows.details.refused, check_results=check_results or None)
    return dg.MaterializeResult(
        value=replace(rows, details=details),
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


def report_result(report: Report, taken_at: datetime) -> Made:
    """Return the ledger of a plan, with the numbers of the report and the check that no object failed.

    The rows of a report can be read even if this check fails, so their details do not have its result.
    """
    numbers = report.numbers()
    rows = Rows(report.ledger, taken_at, Details(plan_hash=report.plan.plan_hash))
    return checked(rows, numbers=numbers)._replace(check_results=[_none_failed(report, numbers)])


def _none_failed(report: Report, numbers: Mapping[str, float | str]) -> dg.AssetCheckResult:
    """Return the result of the check `none_failed`. It fails only in a run that executed the plan."""
    executed, left = report.failed is not None, int(numbers["unattempted_objects"])
    failed = int(numbers["failed_objects"]) if report.failed is None else report.failed
    passed = not (failed and executed)
    detail = counted(failed, "object") + (" failed" if executed else " failed in earlier runs")
    return dg.AssetCheckResult(
        check_name=NONE_FAILED,
        passed=passed,
        description=detail if passed else str(objects_failed(report.plan, failed, left)),
        metadata=_plotted(CheckResult(NONE_FAILED, passed, detail, failed, 0 if executed else None)),
    )


def verification_result(check_results: Sequence[CheckResult], checks: Sequence[str], began: datetime) -> Made:
    """Return the table of the check results of a verification, and one result for each of `checks`."""
    rows = [{"check": one.guard, "passed": one.passed, "saw": one.detail} for one in check_results]
    table = pa.Table.from_pylist(rows, schema=DELETION_PROOF.schema)
    return checked(Rows(table, began), by_check(check_results, checks))


def _plotted(check_result: CheckResult) -> Mapping[str, float]:
    """Return the numbers of a check that Dagster plots. A check without a number has 0 if it passed, 1 if it failed."""
    value = float(not check_result.passed) if check_result.value is None else float(check_result.value)
    return {"value": value} | ({} if check_result.limit is None else {"limit": float(check_result.limit)})


@cache
def code_version() -> str:
    """Return a digest of the modules that decide what a table contains.

    People would forget to change a version by hand. The digest changes even if only a comment changes. Dagster then
    shows the assets as outdated until their next run.
    """
    package = Path(retention_assets.__file__).parent
    shared = ("assets", "config", "core", "spark", "policy", "decoding", "inventory", "objectstore", "repositories")
    names = (*shared, "state", "warehouse", "lakefs", "icechunk", "sweep")
    files = [*(file for name in names for file in (package / name).rglob("*.py")), package / "tables.py"]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
