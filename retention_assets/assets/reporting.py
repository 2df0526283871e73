"""The assets that both systems have, and the tables, lists and links that Dagster's pages show."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import dagster as dg

from retention_assets.assets.catalog import CHECKS
from retention_assets.assets.declaration import Made, checked, declared
from retention_assets.assets.resources import RepositoryResource
from retention_assets.assets.runs import day_of
from retention_assets.core.amounts import Amount, human_amount, human_bytes, plot_numbers
from retention_assets.core.states import CANDIDATE, STATES
from retention_assets.report.figures import figures_of
from retention_assets.report.page import page_of, page_of_plan
from retention_assets.state.memory import require_no_future_plan
from retention_assets.state.plan import Plan, Planned, planned_directory, withdraw_plan
from retention_assets.state.policies import policy_versions
from retention_assets.sweep.copies import PlanCopies
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.warehouse.metadata import Details
from retention_assets.warehouse.reading import first_rows
from retention_assets.warehouse.warehouse import Rows, Warehouse

_MOST_CANDIDATES = 10
_MOST_ADDRESSES = 20
_SHOWN = ("address", "size", "reason", "paths", "rule_ids", "due_since")


def plan_metadata(warehouse: Warehouse, planned: Planned) -> Mapping[str, dg.MetadataValue | float | str]:
    """Return the metadata of a plan: its numbers, its totals as a table, and some of its candidates."""
    shown: dict[str, dg.MetadataValue] = {}
    if planned.plan is not None:
        shown["totals"] = plan_totals(planned.plan)
        if planned.plan.candidates.objects:
            shown["candidates"] = _some_candidates(warehouse, planned.plan)
    numbers = planned.numbers()
    return {"plan_hash": numbers["plan_hash"], **shown, **numbers}


def plan_totals(plan: Plan) -> dg.MetadataValue:
    """Return the totals of a plan by state as a Markdown table, then its warnings as a list."""
    rows = [
        f"| {'**candidate**' if state == CANDIDATE else state} | {one.objects:,} | {human_bytes(one.bytes)} |"
        for state in STATES
        if (one := plan.totals.get(state))
    ]
    lines = ["| state | objects | size |", "|---|---:|---:|", *rows, "", *(f"- {one}" for one in plan.warnings)]
    return dg.MetadataValue.md("\n".join(lines).strip())


def _some_candidates(warehouse: Warehouse, plan: Plan) -> dg.MetadataValue:
    planned = planned_directory(warehouse, plan)
    found = first_rows(warehouse, *planned, schema=DELETION_CANDIDATES.schema, columns=_SHOWN, most=_MOST_CANDIDATES)
    records = [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in found]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(name) for name in _SHOWN]))


def _cell(value: object) -> str | int:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return value if isinstance(value, int | str) else ""


def quarantine_table(
    plans: Sequence[PlanCopies], unknown: Sequence[tuple[str, Amount]] = (), amount: str = "moved"
) -> dg.MetadataValue:
    """Return the contents of a quarantine by plan, then the folders that no ledger lists.

    `amount`: the head of the column with the amounts of objects that were moved or deleted.
    """
    names = [amount, "surplus copies"]
    amounts = [[one.moved, one.surplus] for one in plans]
    if any(one.missing.objects for one in plans):
        names.insert(1, "of these, without a copy")
        amounts = [[one.moved, one.missing, one.surplus] for one in plans]
    rows = [
        " | ".join([f"| {one.plan.day} {one.plan.plan_hash}", *map(human_amount, of_plan)]) + " |"
        for one, of_plan in zip(plans, amounts, strict=True)
    ]
    others = [f"- {folder}: {human_amount(amount)}. No ledger lists them." for folder, amount in unknown]
    head = [" | ".join(["| plan", *names]) + " |", "|---|" + "---:|" * len(names)]
    return dg.MetadataValue.md("\n".join([*head, *rows, "", *others]).strip())


def address_list(addresses: Sequence[str]) -> dg.MetadataValue:
    """Return the first 20 addresses as a Markdown list, and the number of the others."""
    more = len(addresses) - _MOST_ADDRESSES
    lines = [f"- `{one}`" for one in addresses[:_MOST_ADDRESSES]]
    return dg.MetadataValue.md("\n".join([*lines, *([f"- and {more:,} more"] if more > 0 else [])]))


@declared()
def policy_table(context: dg.AssetExecutionContext, resource: RepositoryResource) -> Made:
    """Every version of the policy that a run of this day read, by `policy_hash` and run."""
    resource.require_location()
    require_no_future_plan(resource.warehouse, resource.name, resource.clock.now())
    withdraw_plan(resource.warehouse, resource.name, day_of(context))  # this run replaces the plan's inputs
    day, policy = day_of(context), resource.current_policy()
    rows = policy_versions(resource.warehouse, resource.name, day, policy, context.run_id)
    details = Details(policy_hash=policy.policy_hash, policy_run=context.run_id)
    return checked(Rows(rows, resource.clock.now(), details), numbers=details.texts())


# Listed objects. With more, the forecast would delay the plan. `retention report` has a higher limit, and `retention
# simulate` has none.
_MOST_FORECAST = 1_000


@declared(after=["deletion_candidates"], has_rows=False)
def retention_report(context: dg.AssetExecutionContext, resource: RepositoryResource) -> dg.MaterializeResult:
    """A page with all figures of the plan: `report.html` beside the plan. The page needs no network."""
    began, day, warehouse = time.monotonic(), day_of(context), resource.warehouse
    figures = figures_of(resource.configuration, resource.name, day, resource.clock.now(), _MOST_FORECAST)
    location = warehouse.write_text(page_of(figures, CHECKS), *page_of_plan(figures.plan))
    url = Path(location.removeprefix("file://")).as_uri() if warehouse.is_local else location
    return dg.MaterializeResult(
        metadata={
            "report": dg.MetadataValue.url(url),
            "totals": plan_totals(figures.plan),
            "plan_hash": figures.plan.plan_hash,
            "seconds": round(time.monotonic() - began, 3),
            **plot_numbers({"candidate": figures.plan.candidates}),
        }
    )
