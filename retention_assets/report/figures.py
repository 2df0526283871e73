"""The figures of a report: numbers from the tables of one plan, without Spark and HTML.

Small documents (plans, metadata, records) are read completely, tables with a row for each object or path in batches.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from retention_assets.config.configuration import Configuration
from retention_assets.config.documents import plain
from retention_assets.core.amounts import Amount, sum_of
from retention_assets.errors import RetentionError
from retention_assets.explain.plans import PlanTables, newest_plan
from retention_assets.explain.simulation import Forecast, forecast_of
from retention_assets.explain.status import RepositoryStatus, status_of
from retention_assets.report.groups import PlanGroups, groups_of
from retention_assets.report.history import Node, history_of
from retention_assets.state.ledger import results_of
from retention_assets.state.plan import PLANS, Plan, load_plan
from retention_assets.state.records import amounts_in, newest_of_day
from retention_assets.tables import TABLES
from retention_assets.warehouse.warehouse import Warehouse

FORECAST_DAYS = 60
MOST_FORECAST = 250_000  # objects; with more, the forecast would take over a minute
_PLANS = 60  # days in the plot over time
_AT_ONCE = 16  # plans read at the same time


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Objects by outcome, from the newest record of a plan. See `ledger.results_of`."""

    ended: datetime
    mode: str
    amounts: Mapping[str, Amount]
    ended_early: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All numbers of a report. Sizes are in bytes, as the store listed them. Times are in UTC."""

    plan: Plan
    status: RepositoryStatus  # as of the plan's day, without newer plans
    is_newest: bool  # whether no newer day has a valid plan
    over_time: Sequence[Plan]  # the valid plans, oldest first; this plan is the last
    groups: PlanGroups
    guards: Sequence[Mapping[str, Any]]  # `table` and the fields of `CheckResult`
    history: Sequence[Node]
    forecast: Forecast | None  # None: too many objects are listed
    outcomes: Outcomes | None  # None: no sweep of the plan has ended
    other_outcomes: Mapping[str, Outcomes]  # of other plans of the day that were swept, by their hashes

    def document(self) -> dict[str, Any]:
        """Return all figures for JSON."""
        document: dict[str, Any] = plain(
            {
                "repository": self.plan.repository,
                "system": self.status.kind,
                "plan": self.plan.document(),
                "status": self.status.document(),
                "is_newest": self.is_newest,
                "over_time": [
                    {"day": one.day, "plan_hash": one.plan_hash, "totals": dict(one.totals)} for one in self.over_time
                ],
                "groups": self.groups.by_kind(),
                "guards": list(self.guards),
                "forecast": self.forecast and self.forecast.document(),
                "history": list(self.history),
                "outcomes": self.outcomes,
                "other_outcomes": dict(self.other_outcomes),
            }
        )
        return document


def figures_of(
    configuration: Configuration, name: str, day: date | None, now: datetime, most_forecast: int = MOST_FORECAST
) -> Figures:
    """Return the figures of the plan of `day`, or of the newest valid plan.

    Args:
        configuration: the configuration of the repository.
        name: the name of the repository.
        day: the day of the plan; None: the newest valid plan.
        now: UTC.
        most_forecast: the most listed objects for a forecast. A forecast takes about 0.2 ms for each listed object.

    Errors: GuardRefused when there is no such plan; TableContractError when a table of the plan is missing.
    """
    warehouse, repository = Warehouse(configuration.warehouse), configuration.repository(name)
    tables, _ = newest_plan(warehouse, repository, day)
    plan = tables.plan
    days = [one for one in warehouse.directories(name, PLANS) if one <= plan.day.isoformat()]
    listed = sum_of(plan.totals.values()).objects
    newer = newest_plan(warehouse, repository, None)[0].plan
    outcomes = _outcomes_of_day(warehouse, plan)
    return Figures(
        plan=plan,
        status=status_of(warehouse, repository, now, plan.day),
        is_newest=newer.day == plan.day,
        over_time=_plans(warehouse, name, days[-_PLANS:]),
        groups=groups_of(tables),
        guards=list(_guards(tables)),
        history=history_of(tables),
        forecast=forecast_of(configuration, tables, FORECAST_DAYS) if listed <= most_forecast else None,
        outcomes=outcomes.pop(plan.plan_hash, None),
        other_outcomes=outcomes,
    )


def _plans(warehouse: Warehouse, name: str, days: Sequence[str]) -> list[Plan]:
    def plan_of(day: str) -> Plan | None:
        with suppress(RetentionError):  # the plan was withdrawn or refused, or another version made it
            return load_plan(warehouse, name, date.fromisoformat(day))
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [plan for plan in pool.map(plan_of, days) if plan]


def _guards(tables: PlanTables) -> Iterator[Mapping[str, Any]]:
    """Yield the results of the guards of each table of the plan, in the order in which a plan makes the tables."""
    for table in TABLES:
        if metadata := tables.warehouse.metadata_if_there(tables.plan.repository, table, tables.plan.day.isoformat()):
            for one in metadata.details.check_results or ():
                yield {"table": table, **asdict(one)}


def _outcomes_of_day(warehouse: Warehouse, plan: Plan) -> dict[str, Outcomes]:
    """Return the outcomes of each swept plan of the day by its hash, the plan with the last run first."""
    return {
        plan_hash: Outcomes(
            datetime.fromisoformat(record["ended"]),
            record["mode"],
            results_of(Amount(record["planned_objects"], record["planned_bytes"]), amounts_in(record)),
            record.get("ended_early"),
        )
        for plan_hash, record in newest_of_day(warehouse, plan.repository, plan.day.isoformat()).items()
    }
