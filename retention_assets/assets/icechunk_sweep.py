"""The report and the verification of an Icechunk repository's sweep. Source: DESIGN.md, The way data flows."""

import dagster as dg
import pyarrow as pa
from dagster_pyspark import LazyPySparkResource

from retention_assets.assets.options import SweepOptions
from retention_assets.assets.partitions import day_of
from retention_assets.assets.repository_resource import Made, RepositoryResource, checked
from retention_assets.assets.resources import session
from retention_assets.icechunk.sweep import verification as proof
from retention_assets.icechunk.sweep.sweeping import IcechunkSweep, report
from retention_assets.state.warehouse import Rows
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.sweep.verification import by_check
from retention_assets.tables import DELETION_PROOF


def deletion_report(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the results of the sweep."""

    @resource.asset("deletion_report", after=["deletion_candidates"], stage="sweep")
    def asset(context: dg.AssetExecutionContext, config: SweepOptions, pyspark: LazyPySparkResource) -> Made:
        """What became of each candidate and of each reference that was to go; no rows while the mode is `plan`.

        Only a run that was started to sweep executes the plan first: "Materialize all" deletes nothing.
        """
        sweep = _sweep(resource.with_options(config), context, pyspark)
        reported = report(sweep, execute=config.may_sweep(context.run, resource.name), plan_hash=config.plan_hash)
        notes = {"plan_hash": reported.plan.plan_hash}
        return checked(Rows(reported.ledger, resource.clock(), notes), numbers=reported.numbers())

    return asset


def deletion_proof(resource: RepositoryResource) -> dg.AssetsDefinition:
    """Return the asset of the verification."""

    @resource.asset("deletion_proof", after=["deletion_report"], checks=proof.CHECKS, stage="verify")
    def asset(context: dg.AssetExecutionContext, pyspark: LazyPySparkResource) -> Made:
        """What exists, held against what is referenced and against every ledger: all read again, nothing cached."""
        began, check_results = resource.clock(), proof.verify(_sweep(resource, context, pyspark))
        rows = [{"check": one.guard, "passed": one.passed, "saw": one.detail} for one in check_results]
        table = pa.Table.from_pylist(rows, schema=DELETION_PROOF.schema)
        return checked(Rows(table, began), by_check(check_results, proof.CHECKS))

    return asset


def _sweep(
    resource: RepositoryResource, context: dg.AssetExecutionContext, pyspark: LazyPySparkResource
) -> IcechunkSweep:
    opened, day = resource.open_icechunk(), day_of(context)
    log, others = context.log.info, resource.elsewhere(context, pyspark)
    return Sweep(session(pyspark), resource.warehouse, opened, day, context.run_id, log, resource.clock, others)
