"""The summary of a plan: amounts by reason, top prefix and branch, and objects that only a duplicate keeps."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.text import Text

from retention_assets.assets.partitions import as_of
from retention_assets.cli.rendering import AS_IT_IS, human_bytes, print_amounts
from retention_assets.config.configuration import Configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.core.frames import collect_together
from retention_assets.core.sessions import started
from retention_assets.core.states import CANDIDATE, WAITING
from retention_assets.core.summary import (
    BRANCH,
    PREFIX,
    REASON,
    TOTAL,
    directory,
    largest_groups,
    top_prefix,
)
from retention_assets.icechunk.edits.stored import planned_edits
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.lakefs.rules.duplicates import kept_by_duplicates
from retention_assets.lakefs.rules.lifecycle import with_lifecycle
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.state.memory import due_objects_of
from retention_assets.state.plan import Plan, load_plan
from retention_assets.state.reading import read_directory
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import ADDRESSES, COMMIT_GRAPH, DELETION_CANDIDATES

_FEW = 3  # how many examples are shown
_MOST = 12  # rows of a summary: as many as a person reads at a glance
_GROUPED = ("address", "size", "reason", "paths", "branches")  # the columns from which groups are made
Amounts = list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An address that is due at one path and kept by another path."""

    address: str
    let_go: str
    kept_by: str


@dataclass(frozen=True, slots=True)
class Groups:
    """The largest groups of objects, with objects and bytes. An object counts for each of its branches."""

    reasons: Amounts
    prefixes: Amounts
    branches: Amounts

    def document(self) -> dict[str, Any]:
        """Return the groups for JSON."""
        named = {"by_reason": self.reasons, "by_top_prefix": self.prefixes, "by_branch": self.branches}
        return {
            title: [{"name": name, "objects": objects, "bytes": size} for name, objects, size in rows]
            for title, rows in named.items()
        }

    def show(self, screen: Console, title: str) -> None:
        """Print a table for each kind of group."""
        print_amounts(screen, f"{title} by reason", "reason", self.reasons)
        print_amounts(screen, f"{title} by top prefix", "prefix", self.prefixes)
        print_amounts(screen, f"{title} by branch (an object counts for each branch)", "branch", self.branches)


_NONE = Groups([], [], [])


@dataclass(frozen=True, slots=True)
class Summary:
    """The candidates of a plan, and the objects that wait until they have settled."""

    candidates: Groups
    waiting: Groups | None  # None: nothing waits
    duplicates: tuple[Duplicate, ...]
    edits: PlannedEdits | None = None  # of an Icechunk repository

    def document(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        amounts = self.candidates.document()
        if self.waiting:
            amounts["waiting"] = self.waiting.document()
        edits = {} if self.edits is None else {"edits": self.edits.document()}
        return {**amounts, "kept_by_duplicates": [asdict(duplicate) for duplicate in self.duplicates], **edits}

    def show(self, screen: Console, plan: Plan) -> None:
        """Print the summary with the plan's totals."""
        totals: list[tuple[str, int, int | None]] = [
            (state, amount.objects, amount.bytes) for state, amount in plan.totals.items()
        ]
        if plan.lost:
            totals.append(("lost: live, acknowledged, not listed", plan.lost, None))
        print_amounts(screen, f"{plan.repository} as of {plan.day}: everything listed", "state", totals)
        if plan.candidates.objects or not self.waiting:
            self.candidates.show(screen, "candidates")
        if self.waiting:
            self.waiting.show(screen, "waiting")
            screen.print(_waits(plan), **AS_IT_IS)
        if self.duplicates:
            screen.print(Text("kept only because another path has the same object", style="bold"))
        for one in self.duplicates:
            screen.print(f"  {one.let_go} lets go of {one.address},\n  {one.kept_by} keeps it", **AS_IT_IS)
        if self.edits:
            _show_edits(screen, plan, self.edits)


def summary_of(configuration: Configuration, repository: str, day: date) -> Summary:
    """Return the summary of the day's candidates, computed by Spark."""
    spark = started(configuration.spark)
    candidates = Warehouse(configuration.warehouse).rows(spark, repository, DELETION_CANDIDATES.name, day).frame
    is_icechunk = configuration.repository(repository).is_icechunk
    warehouse = Warehouse(configuration.warehouse)
    plan = load_plan(warehouse, repository, day)
    parts = [candidates.select(*_GROUPED, F.lit(CANDIDATE).alias("part"))]
    if plan.first_wait_ends:
        named = due_objects_of(spark, warehouse, plan).join(candidates.select("address"), "address", "left_anti")
        parts.append(named.select(*_GROUPED, F.lit(WAITING).alias("part")))
    place = directory() if is_icechunk else top_prefix()  # the array path of a chunk is unknown
    largest = largest_groups(reduce(DataFrame.unionByName, parts), "part", F.col("reason"), place, _MOST)
    asked = {"groups": largest}
    if not is_icechunk:
        asked["duplicates"] = _duplicates(spark, configuration, repository, day)
    rows = collect_together(asked)
    found = _groups(rows["groups"])
    waiting = found.get(WAITING, _NONE) if plan.first_wait_ends else None
    if is_icechunk:
        return Summary(found.get(CANDIDATE, _NONE), waiting, (), planned_edits(warehouse, plan))
    duplicates = (
        Duplicate(row["address"], ", ".join(row["let_go"][:_FEW]), ", ".join(row["kept_by"][:_FEW]))
        for row in sorted(rows["duplicates"], key=lambda row: (-row["size"], row["address"]))
    )
    return Summary(found.get(CANDIDATE, _NONE), waiting, tuple(duplicates))


def _groups(rows: Iterable[Mapping[str, Any]]) -> dict[str, Groups]:
    """Return the groups of each part (candidates, waiting objects)."""
    found: dict[str, dict[str, Amounts]] = {}
    for row in sorted(rows, key=lambda row: (-row["bytes"], row["name"])):
        amounts = found.setdefault(row["part"], {REASON: [], PREFIX: [], BRANCH: [], TOTAL: []})
        amounts[row["by"]].append((row["name"], row["objects"], row["bytes"]))
    return {part: Groups(by[REASON], by[PREFIX], by[BRANCH]) for part, by in found.items()}


def _waits(plan: Plan) -> str:
    """Return three sentences: how many objects wait, until when, and why."""
    amount = plan.totals[WAITING]
    first, last = (f"{at:%Y-%m-%d %H:%M} UTC" for at in (plan.first_wait_ends, plan.last_wait_ends) if at)
    until = first if first == last else f"{first} to {last}"
    return (
        f"{amount.objects:,} objects ({human_bytes(amount.bytes)}) wait until {until}: no plan named them long enough "
        "ago (`settle`). A sweep of this plan does not touch them. A plan that reads the repository after that may "
        "delete them."
    )


def _show_edits(screen: Console, plan: Plan, edits: PlannedEdits) -> None:
    """Print the snapshots, branches and tags that a sweep removes before it deletes files."""
    screen.print(Text("unlinked first, which cannot be undone", style="bold"))
    told = f"{len(edits.released):,} snapshots that the policy releases, {len(edits.dropped):,} that nothing reaches"
    screen.print(f"  {told}: retention show {plan.repository} expired_snapshots --as-of {plan.day}", **AS_IT_IS)
    for kind, names in (("branch", edits.deleted_branches), ("tag", edits.deleted_tags)):
        for name in names[:_MOST]:
            screen.print(f"  the {kind} {name}", **AS_IT_IS)
        if len(names) > _MOST:
            screen.print(f"  and {len(names) - _MOST:,} more of that kind", **AS_IT_IS)


def _duplicates(spark: SparkSession, configuration: Configuration, repository: str, day: date) -> DataFrame:
    """Return a few of the addresses that only a duplicate keeps."""
    warehouse = Warehouse(configuration.warehouse)
    policy = open_repository(configuration.repository(repository), utc_now).policy()
    place = repository, COMMIT_GRAPH.name, day.isoformat()
    graph = read_directory(warehouse, *place, schema=COMMIT_GRAPH.schema, columns=["head_of"])
    heads = graph["head_of"].combine_chunks().flatten()
    pairs = warehouse.rows(spark, repository, ADDRESSES.name, day).frame
    kept = kept_by_duplicates(with_lifecycle(pairs, policy.lifecycle, heads.to_pylist(), as_of(day)))
    return kept.orderBy(F.col("size").desc(), "address").limit(_FEW)
