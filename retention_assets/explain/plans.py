"""The plan that answers are from, and the rows of its tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import Repository
from retention_assets.config.durations import parse_duration
from retention_assets.errors import GuardRefused
from retention_assets.explain.answers import PlanSeen
from retention_assets.state.approval import APPROVALS
from retention_assets.state.plan import PLANNED_OBJECTS, PLANS, Plan, load_plan, made_name
from retention_assets.state.reading import one_of, read_directory, scan_directory
from retention_assets.state.warehouse import PartitionMetadata, Warehouse
from retention_assets.tables import DELETION_CANDIDATES, DUE_OBJECTS, TABLES

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A plan with the tables that it was made from."""

    warehouse: Warehouse
    repository: Repository
    plan: Plan

    def metadata(self, table: str) -> PartitionMetadata:
        """Return the metadata of a table of the plan's day. Errors: TableContractError when the table is missing."""
        return self.warehouse.metadata(self.repository.name, table, self.plan.day)

    def rows(self, table: str, where: pc.Expression | None = None, columns: Sequence[str] | None = None) -> list[Row]:
        """Return rows of a table of the plan's day, by default with all columns. Errors: as `metadata`."""
        self.warehouse.require(self.repository.name, table, self.plan.day)
        parts, schema = (self.repository.name, table, self.plan.day.isoformat()), TABLES[table].schema
        found: list[Row] = read_directory(
            self.warehouse, *parts, schema=schema, where=where, columns=columns
        ).to_pylist()
        return found

    def batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table of the plan's day in batches. Errors: as `metadata`."""
        self.warehouse.require(self.repository.name, table, self.plan.day)
        parts, schema = (self.repository.name, table, self.plan.day.isoformat()), TABLES[table].schema
        yield from scan_directory(self.warehouse, *parts, schema=schema, columns=columns)

    def due(self, addresses: Collection[str]) -> dict[str, Row]:
        """Return the rows of those of the addresses that the plan named, waiting objects included, by address."""
        name, where = self.repository.name, one_of("address", addresses)
        made = made_name(self.plan)
        if self.warehouse.is_complete(name, DUE_OBJECTS.name, made):
            found = read_directory(self.warehouse, name, DUE_OBJECTS.name, made, schema=DUE_OBJECTS.schema, where=where)
        else:  # an older plan, or one without settling time: nothing of it waits, or that is not known any more
            parts = name, PLANNED_OBJECTS, self.plan.plan_hash
            found = read_directory(self.warehouse, *parts, schema=DELETION_CANDIDATES.schema, where=where)
        return {row["address"]: row for row in found.to_pylist()}

    def duration(self, name: str) -> timedelta | None:
        """Return a duration of the settings that the plan was made under; None: it is `null` or not a setting there."""
        written = self.plan.terms.get(name)
        if written is None:
            value = getattr(self.repository.settings, name, None)
            return value if isinstance(value, timedelta) else None
        return None if written == "null" else parse_duration(written)

    def seen(self, references: str) -> PlanSeen:
        """Return the plan for an answer. `references`: the table that has its references."""
        plan, document = self.plan, approval_of(self.warehouse, self.repository.name, self.plan.plan_hash)
        by = document.get("approved_by") if document else None
        return PlanSeen(plan.day, plan.plan_hash, plan.made_at, self.metadata(references).taken_at, by)


def newest_plan(warehouse: Warehouse, repository: Repository, day: date | None) -> tuple[PlanTables, list[str]]:
    """Return the plan of `day`, or the newest plan that stands, with notes about newer days without a plan.

    Errors: GuardRefused when there is no such plan.
    """
    if day is not None:
        return PlanTables(warehouse, repository, load_plan(warehouse, repository.name, day)), []
    without = []
    for name in reversed(warehouse.directories(repository.name, PLANS)):
        try:
            plan = load_plan(warehouse, repository.name, date.fromisoformat(name))
        except GuardRefused:
            without.append(name)
            continue
        notes = [f"The plan of {one} was withdrawn or refused; this answer is from an older plan." for one in without]
        return PlanTables(warehouse, repository, plan), notes
    raise GuardRefused(
        f"{repository.name}: there is no plan that stands, so nothing can be explained. Nothing was read. Make one: "
        f"`retention plan {repository.name}`."
    )


def approval_of(warehouse: Warehouse, repository: str, plan_hash: str) -> Mapping[str, Any] | None:
    """Return the document of the plan's approval, or of its withdrawal; None: there is none."""
    return warehouse.read_document(repository, APPROVALS, f"{plan_hash}.json")
