"""A lakeFS repository's plans carried out, brought back, and purged: what `execute` needs, put together."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession

from retention_assets.errors import GuardRefused
from retention_assets.limits import Limits
from retention_assets.stores.clock import store_time
from retention_assets.stores.ranges import TableCache
from retention_assets.stores.repositories import OpenRepository
from retention_assets.stores.versions import keeps_versions
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.deeds import Delete, Quarantine
from retention_assets.sweep.engine import width
from retention_assets.sweep.execute import Charge, Clock, Log, carry_out
from retention_assets.sweep.guards import clock_agrees
from retention_assets.sweep.lease import witnessed_record
from retention_assets.sweep.ledger import ATTEMPTED, ledger_of_plan, plans_with_ledgers, report_of
from retention_assets.sweep.liveness import LakeFSLiveness, Question
from retention_assets.sweep.plan import Plan, find_plan, load_plan, planned_heads, planned_objects
from retention_assets.sweep.proof import Evidence
from retention_assets.sweep.quarantine import place_of_plan
from retention_assets.sweep.records import read_records
from retention_assets.sweep.results import rule_statistics, write_statistics
from retention_assets.sweep.spark import Setting, SparkEngine, amounts_of
from retention_assets.sweep.work import Deed

_VERSIONS = (
    "The bucket keeps versions: what is deleted becomes a version that is still there and still paid for. To remove "
    "the versions of what this sweep deleted: `retention purge {name} --versions`."
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One attempt at the plan of one day."""

    spark: SparkSession
    warehouse: Warehouse
    opened: OpenRepository
    day: date
    attempt: str  # the run's id
    log: Log
    clock: Clock

    @property
    def name(self) -> str:
        """The repository's name."""
        return self.opened.repository.name

    @property
    def limits(self) -> Limits:
        """What the repository's owner allows."""
        return self.opened.repository.settings


@dataclass(frozen=True, slots=True)
class Report:
    """The ledger of a plan so far. In `plan` mode it has no rows: nothing was tried."""

    plan: Plan
    mode: str
    ledger: DataFrame

    def numbers(self) -> dict[str, float | str]:
        """Return what Dagster plots of the report: the plan's totals, and what became of its candidates."""
        return {
            "mode": self.mode,
            "plan_hash": self.plan.plan_hash,
            "planned_objects": self.plan.candidates.objects,
            "planned_bytes": self.plan.candidates.bytes,
            **{f"{name}_objects": amount.objects for name, amount in amounts_of(self.ledger).items()},
        }


def report(sweep: Sweep) -> Report:
    """Return the report of the day's plan; carry the plan out first, unless the mode is `plan`."""
    mode = sweep.opened.repository.settings.mode
    plan = load_plan(sweep.warehouse, sweep.name, sweep.day)
    if mode != "plan":
        sweep_plan(sweep, plan, mode)
    ledger = ledger_of_plan(sweep.spark, sweep.warehouse, sweep.name, sweep.day, plan.plan_hash)
    return Report(plan, mode, report_of(ledger))


def sweep_plan(sweep: Sweep, plan: Plan, mode: str) -> None:
    """Carry the plan out. Errors: GuardRefused before anything is touched; see `carry_out` for what comes later."""
    started = sweep.clock()
    planned = _planned(sweep, plan)
    _require_clock(sweep)
    charge = Charge(
        warehouse=sweep.warehouse,
        plan=plan,
        kind="sweep",
        mode=mode,
        deed=deed_of(sweep, plan, mode),
        limits=sweep.limits,
        run_id=sweep.attempt,
        clock=sweep.clock,
        log=sweep.log,
        workers=width(sweep.spark),
    )
    question = Question(sweep.opened, sweep.opened.policy(), sweep.day)
    cache = TableCache(sweep.spark, sweep.warehouse, sweep.name, sweep.opened.access, sweep.attempt)
    liveness = LakeFSLiveness(sweep.spark, cache, question, sweep.clock)
    setting = Setting(
        sweep.spark,
        sweep.warehouse,
        plan,
        planned,
        sweep.opened.access,
        liveness.now,
        sweep.limits.sweep.round,
    )
    engine = SparkEngine(setting, keeps_missing=mode == "quarantine")
    heads = planned_heads(sweep.warehouse, plan)
    carried = carry_out(charge, engine, lambda: liveness.require_same(plan, heads))
    if mode == "delete" and carried.outcomes and keeps_versions(sweep.opened.access):
        sweep.log(_VERSIONS.format(name=sweep.name))
    if sweep.opened.repository.settings.write_results:
        ledger = engine.ledger().where(f"outcome != '{ATTEMPTED}'")
        statistics = rule_statistics(planned, ledger, sweep.attempt, plan.plan_hash, started)
        write_statistics(sweep.opened.access, sweep.day, statistics)


def deed_of(sweep: Sweep, plan: Plan, mode: str) -> Callable[[float | None], Deed]:
    """Return what a mode does to objects, for a worker's share of the rate."""
    access = sweep.opened.access
    if mode == "quarantine":
        place = place_of_plan(sweep.opened.repository, plan)
        return lambda rate: Quarantine(access, place, rate)
    return lambda rate: Delete(access, rate)


def evidence_of(sweep: Sweep) -> Evidence:
    """Return what a proof of the repository looks at: of every plan that was tried."""
    name, warehouse, opened = sweep.name, sweep.warehouse, sweep.opened
    tried = [
        find_plan(warehouse, name, plan_hash, date.fromisoformat(day))
        for day, plan_hash in plans_with_ledgers(warehouse, name)
    ]
    records = list(read_records(warehouse, name))
    moved = {kept.document["plan_hash"] for kept in records if "quarantined" in kept.document["outcomes"]}
    places = [(plan, place_of_plan(opened.repository, plan)) for plan in tried if plan.plan_hash in moved]
    question = Question(opened, opened.policy(), sweep.day)
    return Evidence(sweep.spark, warehouse, question, tried, records, places, witnessed_record(warehouse, name))


def _planned(sweep: Sweep, plan: Plan) -> DataFrame:
    """Return the plan's candidates, if they and the policy are what was approved."""
    if plan.blocked:
        raise GuardRefused(f"{plan.repository} {plan.day}: {plan.blocked} Nothing was deleted.")
    if sweep.opened.policy().policy_hash != plan.policy_hash:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the policy is not the plan's any more. Nothing was deleted. "
            f"Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
        )
    return planned_objects(sweep.spark, sweep.warehouse, plan)


def _require_clock(sweep: Sweep) -> None:
    """Refuse when this machine's clock and the store's differ by more than is allowed."""
    most = sweep.limits.guards.max_clock_skew
    if most is None:
        return
    before: datetime = sweep.clock()
    verdict = clock_agrees(before, store_time(sweep.opened.access, sweep.clock), sweep.clock(), most)
    if not verdict.passed:
        raise GuardRefused(f"{sweep.name} {sweep.day}: {verdict.guard}: {verdict.saw}. Nothing was deleted.")
