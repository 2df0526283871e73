"""What the page of a plan shows in Dagster's UI: its totals as a table, and some of its candidates."""

from collections.abc import Mapping
from datetime import datetime

import dagster as dg

from retention_assets.core.amounts import human_bytes
from retention_assets.core.states import CANDIDATE, STATES
from retention_assets.state.plan import Plan, Planned
from retention_assets.state.reading import first_rows
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import DELETION_CANDIDATES

_MOST = 10  # candidates
_SHOWN = ("address", "size", "reason", "paths", "rule_ids", "due_since")


def plan_metadata(warehouse: Warehouse, planned: Planned) -> Mapping[str, dg.MetadataValue | float | str]:
    """Return the metadata of a plan: its numbers, its totals as a table and, if it has any, some of its candidates."""
    shown: dict[str, dg.MetadataValue] = {}
    if planned.plan is not None:
        shown["totals"] = _totals(planned.plan)
        if planned.plan.candidates.objects:
            shown["candidates"] = _some_candidates(warehouse, planned.plan)
    numbers = planned.numbers()
    return {"plan_hash": numbers["plan_hash"], **shown, **numbers}


def _totals(plan: Plan) -> dg.MetadataValue:
    """Return the totals of a plan by state, then its warnings."""
    rows = [
        f"| {'**candidate**' if state == CANDIDATE else state} | {one.objects:,} | {human_bytes(one.bytes)} |"
        for state in STATES
        if (one := plan.totals.get(state))
    ]
    lines = ["| state | objects | size |", "|---|---:|---:|", *rows, "", *(f"- {one}" for one in plan.warnings)]
    return dg.MetadataValue.md("\n".join(lines).strip())


def _some_candidates(warehouse: Warehouse, plan: Plan) -> dg.MetadataValue:
    place = plan.repository, DELETION_CANDIDATES.name, plan.day.isoformat()
    found = first_rows(warehouse, *place, schema=DELETION_CANDIDATES.schema, columns=_SHOWN, most=_MOST)
    records = [dg.TableRecord({name: _cell(value) for name, value in row.items()}) for row in found]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn(name) for name in _SHOWN]))


def _cell(value: object) -> str | int:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return value if isinstance(value, int | str) else ""
