"""Sweeps lakeFS repositories: prepares what `execute` and the verification need."""

from collections.abc import Mapping
from dataclasses import replace

from retention_assets.config.durations import format_duration
from retention_assets.lakefs.source.opening import OpenRepository
from retention_assets.lakefs.sweep.guards import require_own_names
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, LivenessQuery
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.lakefs.sweep.results import rule_statistics, write_statistics
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import ledger_of_plan, report_of
from retention_assets.state.plan import Plan, load_plan, planned_heads
from retention_assets.state.table_cache import TableCache
from retention_assets.sweep.execute import execute
from retention_assets.sweep.spark import Setting, SparkEngine
from retention_assets.sweep.sweep_run import (
    Report,
    Sweep,
    planned_as_approved,
    require_clock,
    sweep_run_of,
    warn_of_versions,
)


def report(sweep: Sweep[OpenRepository], *, execute: bool = True) -> Report:
    """Return the report of the day's plan. With `execute`, sweep the plan first, unless the mode is `plan`."""
    mode = sweep.opened.repository.settings.mode
    plan = load_plan(sweep.warehouse, sweep.name, sweep.day)
    if execute and mode != "plan":
        sweep_plan(sweep, plan, mode)
    ledger = ledger_of_plan(sweep.spark, sweep.warehouse, sweep.name, sweep.day, plan.plan_hash)
    return Report(plan, mode, report_of(ledger))


def sweep_plan(sweep: Sweep[OpenRepository], plan: Plan, mode: str) -> None:
    """Execute the plan. Errors: GuardRefused before anything is deleted or moved; later errors: see `execute`."""
    started = sweep.clock()
    planned = planned_as_approved(sweep, plan, sweep.opened.policy().policy_hash)
    require_clock(sweep)
    query = liveness_query(sweep)
    cache = TableCache(sweep.spark, sweep.warehouse, sweep.name, sweep.opened.access, sweep.attempt)
    liveness = LakeFSLiveness(sweep.spark, cache, query, sweep.clock)
    others = sweep.others
    setting = Setting(
        sweep.spark,
        sweep.warehouse,
        plan,
        planned,
        sweep.opened.access,
        lambda: others.added_to(liveness.now(), planned),
        sweep.limits.sweep.round,
    )
    engine = SparkEngine(setting, keeps_missing=mode == "quarantine")
    heads = planned_heads(sweep.warehouse, plan)

    def check() -> None:
        others.require_known()
        liveness.require_same(plan, heads)
        if not sweep.opened.repository.lakefs.legacy_names:
            require_own_names(plan, planned, liveness.entries)

    run = replace(sweep_run_of(sweep, plan, mode), dump=dump_of(sweep))
    try:
        with engine:
            sweep_result = execute(run, engine, check)
    finally:
        liveness.release()
    warn_of_versions(sweep, mode, sweep_result)
    if sweep.opened.repository.lakefs.write_results:
        ledger = engine.ledger().where(f"outcome != '{Outcome.ATTEMPTED}'")
        statistics = rule_statistics(planned, ledger, sweep.attempt, plan.plan_hash, started)
        write_statistics(sweep.opened.access, sweep.day, statistics)


def dump_of(sweep: Sweep[OpenRepository]) -> Mapping[str, str] | None:
    """Return the time of the dump and its maximum age, for the record; None when a server gives the references."""
    oldest = sweep.opened.repository.lakefs.source.oldest_dump
    if oldest is None:
        return None
    taken_at = sweep.opened.source.references().taken_at
    return {"taken_at": taken_at.isoformat(), "dump_age": format_duration(oldest)}


def liveness_query(sweep: Sweep[OpenRepository]) -> LivenessQuery:
    """Return the query of the repository's liveness checks. The verification uses the same query."""
    memory = read_memory(sweep.warehouse, sweep.name, sweep.opened.repository.lakefs)
    return LivenessQuery(sweep.opened, sweep.opened.policy(), sweep.day, memory)
