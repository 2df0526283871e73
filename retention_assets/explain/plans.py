"""Reads the plan for an explanation: its tables, its policy, and the references of other repositories."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import Configuration, Repository
from retention_assets.config.durations import parse_duration
from retention_assets.core.amounts import HistoryChanges
from retention_assets.errors import ConfigurationError, GuardRefused, TableContractError
from retention_assets.explain.explanations import UsedPlan
from retention_assets.lakefs.names.generated import not_certainly_inside, resolved_path
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.approval import ApprovalState, approval_state, approved_terms, stored_approval
from retention_assets.state.plan import PLANNED_OBJECTS, PLANS, Plan, load_plan, made_name, planned_directory
from retention_assets.state.policies import kept_policy
from retention_assets.tables import (
    ADDRESSES,
    CACHED_MANIFESTS,
    DELETION_CANDIDATES,
    DUE_OBJECTS,
    TABLES,
    UNCOMMITTED_OBJECTS,
)
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.reading import one_of, read_batches, read_directory, scan_directory
from retention_assets.warehouse.warehouse import Warehouse

Row = Mapping[str, Any]
_LOCATIONS = pa.schema([("location", pa.string())])


@dataclass(frozen=True, slots=True)
class PlanTables:
    """A plan with the tables that it was made from."""

    warehouse: Warehouse
    repository: Repository
    plan: Plan

    def metadata(self, table: str) -> PartitionMetadata:
        """Return the metadata of a table of the plan's day. Errors: TableContractError when the table is missing."""
        return self.warehouse.metadata(self.repository.name, table, self.plan.day)

    def table(self, table: str, where: pc.Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of a table of the plan's day, by default with all columns. Errors: as `metadata`."""
        parts, schema = self._directory(table), TABLES[table].schema
        return read_directory(self.warehouse, *parts, schema=schema, where=where, columns=columns)

    def rows(self, table: str, where: pc.Expression | None = None, columns: Sequence[str] | None = None) -> list[Row]:
        """Return the rows of `table` as dictionaries."""
        found: list[Row] = self.table(table, where, columns).to_pylist()
        return found

    def batches(
        self, table: str, columns: Sequence[str], where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of a table of the plan's day in batches. Errors: as `metadata`."""
        parts, schema = self._directory(table), TABLES[table].schema
        yield from scan_directory(self.warehouse, *parts, schema=schema, columns=columns, where=where)

    def cached(self, kind: str, schema: pa.Schema, where: pc.Expression) -> list[Row]:
        """Return rows of a table cache of the repository as dictionaries. See `read_batches`."""
        rows: list[Row] = read_batches(self.warehouse, self.repository.name, kind, schema, where).to_pylist()
        return rows

    def _directory(self, table: str) -> tuple[str, str, str]:
        if table == DELETION_CANDIDATES.name:  # the table of the day may be of another plan
            return planned_directory(self.warehouse, self.plan)
        self.warehouse.require(self.repository.name, table, self.plan.day)
        return self.repository.name, table, self.plan.day.isoformat()

    def due(self, addresses: Collection[str]) -> dict[str, Row]:
        """Return the plan's row of each address that is a candidate or waits. Other addresses are omitted."""
        name, where = self.repository.name, one_of("address", addresses)
        made = made_name(self.plan)
        if self.warehouse.is_complete(name, DUE_OBJECTS.name, made):
            found = read_directory(self.warehouse, name, DUE_OBJECTS.name, made, schema=DUE_OBJECTS.schema, where=where)
        else:  # only the newest plans keep their due objects, so the waiting objects of an older plan are unknown
            parts = name, PLANNED_OBJECTS, self.plan.plan_hash
            found = read_directory(self.warehouse, *parts, schema=DELETION_CANDIDATES.schema, where=where)
        return {row["address"]: row for row in found.to_pylist()}

    def duration(self, name: str) -> timedelta | None:
        """Return a duration of the plan's settings; None: the setting is `null` or does not exist for this kind."""
        written = self.plan.terms.get(name)
        if written is None:
            value = getattr(self.repository.settings, name, None)
            return value if isinstance(value, timedelta) else None
        return None if written == "null" else parse_duration(written)

    def used_plan(self, references: str) -> UsedPlan:
        """Return the plan as an explanation shows it. `references`: the name of the table with its references."""
        plan = self.plan
        approval = stored_approval(self.warehouse, self.repository.name, plan.day, plan.plan_hash)
        by = approval.approved_by if approval else None
        return UsedPlan(plan.day, plan.plan_hash, plan.made_at, self.metadata(references).taken_at, by)


def newest_plan(warehouse: Warehouse, repository: Repository, day: date | None) -> tuple[PlanTables, list[str]]:
    """Return the plan of `day`, or the newest valid plan, with notes about newer days without a plan.

    Errors: GuardRefused when there is no such plan; TableContractError when another version wrote the plan.
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
        notes = [f"The plan of {one} was withdrawn or refused, so an older plan is used." for one in without]
        return PlanTables(warehouse, repository, plan), notes
    why = f": the plan of {without[0]} was withdrawn or refused" if without else ""
    raise GuardRefused(
        f"{repository.name}: there is no valid plan{why}. Nothing was read. Plan with: `retention plan "
        f"{repository.name}`."
    )


def approval_of(warehouse: Warehouse, repository: Repository, plan: Plan, now: datetime) -> ApprovalState:
    """Return the state of the approval of the plan under the current settings of its repository.

    Errors: ConfigurationError when the configured quarantine is not possible; GuardRefused when the edits of an
    Icechunk plan are missing or were changed.
    """
    changes = history_changes_of(warehouse, repository, plan).total
    terms = approved_terms(repository)
    return approval_state(warehouse, plan, repository.settings, now, terms=terms, history_changes=changes)


def history_changes_of(warehouse: Warehouse, repository: Repository, plan: Plan) -> HistoryChanges:
    """Return what the plan removes from the history of an Icechunk repository; nothing for a lakeFS repository.

    Errors: GuardRefused when the edits of an Icechunk plan are missing or were changed.
    """
    if not repository.is_icechunk:
        return HistoryChanges()
    from retention_assets.icechunk.edits.stored import planned_edits  # few need this import

    return planned_edits(warehouse, plan).history_changes()


def policy_of_plan[P: (Policy, SnapshotPolicy)](
    tables: PlanTables, kind: type[P], of_files: Callable[[Repository], P]
) -> P:
    """Return the policy of the plan. `of_files`: returns the policy of the policy files.

    Errors: TableContractError when the policy is not stored, and the policy files have another one or cannot be read.
    """
    plan = tables.plan
    policy = kept_policy(tables.warehouse, plan.repository, plan.policy_hash, kind)
    if policy is None:  # an earlier version of this project made the plan, or the stored policy was changed
        try:
            now = of_files(tables.repository)
            policy = now if now.policy_hash == plan.policy_hash else None
        except ConfigurationError:
            policy = None
    if policy is None:
        raise TableContractError(
            f"{plan.repository}: the policy of the plan of {plan.day} is not stored, and the policy files have another "
            f"policy or cannot be read. Nothing was changed. {plan.again}"
        )
    return policy


def referring_repositories(
    configuration: Configuration, repository: str, addresses: Collection[str]
) -> dict[str, list[str]]:
    """Return the names of the other repositories that may refer to each address. Other addresses are omitted.

    A repository may refer to an address if one of its references to objects that may be outside the repository has the
    same last part.
    """
    if not addresses:
        return {}
    warehouse, found = Warehouse(configuration.warehouse), dict[str, list[str]]()
    for other in configuration.others(repository):
        parts = _parts_of(warehouse, other)
        for address in addresses:
            if address.rpartition("/")[2] in parts:
                found.setdefault(address, []).append(other.name)
    return found


def _parts_of(warehouse: Warehouse, other: Repository) -> set[str]:
    """Return the `last_parts` of the references of a repository to objects that may be outside the repository."""
    if other.is_icechunk:
        where = pc.field("location").is_valid()
        rows = read_batches(warehouse, other.name, CACHED_MANIFESTS, _LOCATIONS, where)
        written = rows["location"].to_pylist()
    else:
        days = warehouse.directories(other.name, ADDRESSES.name)
        newest = next((day for day in reversed(days) if warehouse.is_complete(other.name, ADDRESSES.name, day)), None)
        if newest is None:
            return set()
        written = [
            address
            for table in (ADDRESSES, UNCOMMITTED_OBJECTS)
            if warehouse.is_complete(other.name, table.name, newest)
            for address in read_directory(
                warehouse, other.name, table.name, newest, schema=table.schema, where=not_certainly_inside()
            )["address"].to_pylist()
        ]
    return {part for location in written for part in last_parts(location)}


def last_parts(location: str) -> set[str]:
    """Return the last part of a location: as it is written, and after escapes are decoded and the path is resolved."""
    text = location.split("?")[0].split("#")[0]
    return {one.rpartition("/")[2] for one in (text, resolved_path(unquote(text)))}
