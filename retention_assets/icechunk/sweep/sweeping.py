"""Sweeps an Icechunk repository: applies the plan's edits to the history, then removes the files, phase by phase.

Source: DESIGN.md, invariants 4 and 5.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.source.opening import OpenIcechunk
from retention_assets.icechunk.sweep.applied_edits import (
    begin_publication,
    keep_publication,
    removed_references,
    unexplained,
    without_those_there,
)
from retention_assets.icechunk.sweep.edits import planned_edits
from retention_assets.icechunk.sweep.layout import IcechunkLayout, characters
from retention_assets.icechunk.sweep.liveness import IcechunkLiveness, IcechunkLivenessQuery
from retention_assets.icechunk.sweep.publishing import publish
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.acknowledged import acknowledged_addresses
from retention_assets.state.lease import Lease
from retention_assets.state.ledger import ledger_of_plan, report_of
from retention_assets.state.plan import Plan, load_plan, planned_heads
from retention_assets.state.table_cache import TableCache
from retention_assets.sweep.execute import SweepResult, execute
from retention_assets.sweep.spark import Setting, SparkEngine
from retention_assets.sweep.sweep_run import (
    Report,
    Sweep,
    planned_as_approved,
    require_clock,
    sweep_run_of,
    warn_of_versions,
)

IcechunkSweep = Sweep[OpenIcechunk]


def report(sweep: IcechunkSweep, *, execute: bool = True) -> Report:
    """Return the report of the day's plan, with the removed references.

    With `execute`, the plan is swept first, unless the repository's mode is `plan`.
    """
    mode = sweep.opened.repository.settings.mode
    plan = load_plan(sweep.warehouse, sweep.name, sweep.day)
    if execute and mode != "plan":
        sweep_plan(sweep, plan, mode)
    objects = report_of(ledger_of_plan(sweep.spark, sweep.warehouse, sweep.name, sweep.day, plan.plan_hash))
    references = sweep.spark.createDataFrame(removed_references(sweep.warehouse, plan))
    return Report(plan, mode, objects.unionByName(references))


def sweep_plan(sweep: IcechunkSweep, plan: Plan, mode: str) -> None:
    """Apply the plan's edits, then delete or quarantine its files.

    Errors: GuardRefused before anything is touched; later errors as `execute`.
    """
    policy = sweep.opened.policy()
    candidates = planned_as_approved(sweep, plan, policy.policy_hash)
    edits = planned_edits(sweep.warehouse, plan)
    require_clock(sweep)
    lost = acknowledged_addresses(sweep.spark, sweep.warehouse, sweep.name)
    cache = TableCache(sweep.spark, sweep.warehouse, sweep.name, sweep.opened.access, sweep.attempt, lost=lost)
    query = IcechunkLivenessQuery(sweep.name, sweep.opened.source, policy, edits)
    liveness = IcechunkLiveness(sweep.spark, cache, query, sweep.clock)
    engine = _engine(sweep, plan, candidates, liveness, keeps_missing=mode == "quarantine")
    heads = planned_heads(sweep.warehouse, plan)
    run = sweep_run_of(
        sweep, plan, mode, beside=changes_beside(edits), publish=partial(_publish, sweep, plan, edits, policy)
    )

    def check() -> None:
        sweep.others.require_known()
        liveness.require_same(plan, heads)

    try:
        with engine:
            sweep_result = execute(run, engine, check)
    finally:
        liveness.release()
    _tell_of_phases(sweep, plan, sweep_result)
    warn_of_versions(sweep, mode, sweep_result)


def _engine(
    sweep: IcechunkSweep, plan: Plan, candidates: DataFrame, liveness: IcechunkLiveness, *, keeps_missing: bool
) -> SparkEngine:
    most, others = sweep.limits.sweep.round, sweep.others
    listed = sum(amount.objects for amount in plan.totals.values())
    setting = Setting(
        sweep.spark,
        sweep.warehouse,
        plan,
        candidates,
        sweep.opened.access,
        lambda: others.added_to(liveness.now(), candidates),
        most,
        layout=IcechunkLayout(characters(listed, most)),
        project=lambda: others.added_to(liveness.projected(), candidates),
    )
    return SparkEngine(setting, keeps_missing=keeps_missing)


def changes_beside(edits: PlannedEdits) -> int:
    """Return the number of snapshots and references that the plan removes; a budget counts them beside objects."""
    snapshots = {*edits.released, *edits.dropped}
    return len(snapshots) + len(edits.deleted_branches) + len(edits.deleted_tags)


def _publish(
    sweep: IcechunkSweep, plan: Plan, edits: PlannedEdits, policy: SnapshotPolicy, lease: Lease
) -> Mapping[str, Any]:
    """Apply the plan's edits to the history and record them, before any object is deleted."""
    ObjectWriter(sweep.opened.access).require_conditions()
    begin_publication(sweep.warehouse, plan, edits, lease, sweep.clock())
    published = publish(sweep.opened.access, edits, policy, sweep.clock, sweep.log)
    sweep.log(
        f"{sweep.name} {sweep.day}: published: {len(edits.released):,} snapshots released, "
        f"{len(published.references_removed):,} references removed now, {published.conflicts:,} conflicts"
    )
    if published.left:
        sweep.log(
            f"{sweep.name} {sweep.day}: since the plan, the policy lets go of {published.left:,} more snapshots and "
            "references. They stay until a plan that names them is approved."
        )
    gone = unexplained(sweep.warehouse, plan, edits, published)
    if gone:
        gone = without_those_there(gone, sweep.opened.source.state().history)
    return keep_publication(sweep.warehouse, plan, published, gone, lease, sweep.clock())


def _tell_of_phases(sweep: IcechunkSweep, plan: Plan, sweep_result: SweepResult) -> None:
    left = plan.candidates.objects - sum(amount.objects for amount in sweep_result.outcomes.values())
    if left and Outcome.FAILED in sweep_result.outcomes:
        failed = sweep_result.outcomes[Outcome.FAILED].objects
        sweep.log(
            f"{sweep.name} {sweep.day}: {failed:,} objects failed, so the {left:,} that they name or may name were not "
            f"tried. Try again: `retention sweep {sweep.name} --as-of {sweep.day}`."
        )
