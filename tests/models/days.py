"""Plans and sweeps a world day by day on disk and in one warehouse, like the assets but without Dagster."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.digest import counted_digest, digest_counted, table_digest
from retention_assets.core.guards import refusals
from retention_assets.lakefs.rules.committed import commit_graph
from retention_assets.lakefs.rules.ranges import active_ranges, addresses, canonical
from retention_assets.lakefs.rules.references import references_hash
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.rules.tables import commit_graph_rows
from retention_assets.lakefs.source.inventory_snapshot import InventoryContext, take_snapshot
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.source.staged_objects import staged_objects
from retention_assets.lakefs.sweep.liveness import LivenessQuery, commits_now
from retention_assets.lakefs.sweep.planning import PlanInputs, PlanParameters, make_plan
from retention_assets.lakefs.sweep.sweeping import report
from retention_assets.policy.table import CurrentRule
from retention_assets.state.approval import approve, approved_terms, planned_terms
from retention_assets.state.plan import Plan
from retention_assets.state.policies import current_rules_of, policy_versions, rules_in_force
from retention_assets.state.reuse import inputs_digest
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.tables import DELETION_CANDIDATES, POLICY_TABLE, STORAGE_INVENTORY, TABLES
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.table_writer import conform
from retention_assets.warehouse.warehouse import Rows, Warehouse
from tests.lakefs_repositories import NAME, BuiltRepository, Version, build_repository
from tests.ledgers import write_ledger
from tests.models.truth import Rules
from tests.models.world import World

SIZE = 10  # bytes of each object on disk
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def lay_out(world: World, directory: Path) -> BuiltRepository:
    """Write the world into `directory`. Objects that are no longer in its store are deleted there."""
    versions = [Version(name, made.at, made.objects, made.parents) for name, made in world.commits.items()]
    staged = {name: world.issued.get(name, LONG_AGO) for name in sorted(world.staged_addresses())}
    built = build_repository(directory, versions, world.branches, world.tags, staged, taken_at=world.now)
    built.store({name: stored.at for name, stored in world.store.items()}, SIZE)
    built.remove(on_disk(built) - world.store.keys())
    return built


def on_disk(built: BuiltRepository) -> set[str]:
    """Return the objects in the store, without the server's own files."""
    files = (str(path.relative_to(built.lake)) for path in built.lake.rglob("*") if path.is_file())
    return {name for name in files if not name.startswith("_lakefs/")}


_NO_RULE = {"holds": [{"id": "nothing", "prefix": "nothing-lies-here", "reason": "a policy must say something"}]}


@dataclass(frozen=True)
class Planned:
    """A current plan, the reason of each candidate, and the number of table files that the run read."""

    plan: Plan
    reasons: Mapping[str, str]
    current: tuple[CurrentRule, ...]
    files_read: int


@dataclass(frozen=True)
class Day:
    """One day of one repository, in a warehouse that may have tables of earlier days."""

    spark: SparkSession
    built: BuiltRepository
    warehouse: Warehouse
    world: World
    rules: Rules
    listing: str = "clean"
    settle: timedelta = timedelta(0)

    @property
    def date(self) -> date:
        return self.world.now.date()

    @property
    def as_of(self) -> datetime:
        return datetime(self.date.year, self.date.month, self.date.day, tzinfo=UTC)

    @property
    def run_id(self) -> str:
        return f"run-{self.world.now:%Y%m%dT%H%M}"

    def open(self) -> OpenRepository:
        document = self.rules.document()
        settings: dict[str, Any] = {
            "tags": self.rules.tags,
            "grace": _text(self.rules.grace),
            "token_life": _text(self.rules.token_life),
            "listing": self.listing,
            "guards": {"max_live_shrink": 1.0},
            "approval": {"max_revived": 1.0},  # single objects are skipped, whatever their share
            "mode": "delete",
        }
        policy = document if any(document.values()) else _NO_RULE
        return open_repository(self.built.repository(policy, **settings), lambda: self.world.now)

    def plan(self, *, full: bool = False) -> Planned:
        """Plan, and store the plan for a sweep. Fails if a guard refuses. `full`: as of `make_plan`."""
        opened = self.open()
        current = self._rules_in_force(opened)
        inputs, files_read = self._plan_inputs(opened)
        parameters = PlanParameters(
            repository=NAME,
            day=self.date,
            policy=opened.policy(),
            policy_run=self.run_id,
            settings=opened.repository.lakefs.model_copy(update={"settle": self.settle}),
            now=self.world.now,
            run_id=self.run_id,
            access=opened.access,
            memory=Memory(),
            terms=planned_terms(opened.repository),
        )
        planned = make_plan(self.spark, self.warehouse, parameters, inputs, full=full)
        assert refusals(planned.check_results) == []
        assert planned.plan
        kept = self._keep(DELETION_CANDIDATES.name, Rows(planned.candidates, inputs.oldest)).frame
        reasons = {row["address"]: row["reason"] for row in kept.select("address", "reason").collect()}
        return Planned(planned.plan, reasons, current, files_read)

    def approve(self, plan: Plan) -> None:
        terms, life = approved_terms(self.open().repository), timedelta(days=7)
        approve(self.warehouse, NAME, self.date, plan.plan_hash, "a-person", self.world.now, life, terms)

    def sweep(self, attempt: str = "a-sweep") -> Mapping[str, str]:
        """Execute the day's approved plan; return the outcome of each candidate."""
        sweep = Sweep(
            self.spark, self.warehouse, self.open(), self.date, attempt, lambda line: None, lambda: self.world.now
        )
        rows = report(sweep).ledger.select("address", "outcome").collect()
        return {row["address"]: row["outcome"] for row in rows}

    def fail_half_way(self, plan: Plan, deleted: Collection[str], failed: Collection[str]) -> None:
        """Write the ledger of a sweep whose store refused some of the deletions."""
        self.built.remove(deleted)
        outcomes = {**dict.fromkeys(deleted, "deleted"), **dict.fromkeys(failed, "failed")}
        write_ledger(self.warehouse, NAME, self.date, plan.plan_hash, outcomes, self.world.now, size=SIZE)

    def _rules_in_force(self, opened: OpenRepository) -> tuple[CurrentRule, ...]:
        versions = policy_versions(self.warehouse, NAME, self.date, opened.policy(), self.run_id)
        table = self._keep(POLICY_TABLE.name, Rows(versions, self.world.now, Details(policy_run=self.run_id)))
        return tuple(current_rules_of(rules_in_force(self.warehouse, NAME, table)))

    def _plan_inputs(self, opened: OpenRepository) -> tuple[PlanInputs, int]:
        context = InventoryContext(self.spark, opened, self.warehouse, self.date, lambda: self.world.now)
        snapshot = take_snapshot(context)
        details = replace(snapshot.details, digest=digest_of(snapshot.frame))
        inventory = self._keep(STORAGE_INVENTORY.name, Rows(snapshot.frame, snapshot.taken_at, details))
        staged = opened.source.staged()
        assert staged
        listed = staged_objects(self.spark, opened.access, staged, opened.namespace_urls)
        assert isinstance(listed, pa.Table)
        references = opened.source.references()
        graph = self.spark.createDataFrame(commit_graph_rows(commit_graph(references)))
        query = LivenessQuery(opened, opened.policy(), self.date, Memory())
        of_references = commits_now(query, references, ())
        made_from = inputs_digest(commits=table_digest(of_references, "commit_id"), urls=opened.namespace_urls)
        commits = self.spark.createDataFrame(of_references)
        cache = TableCache(self.spark, self.warehouse, NAME, opened.access, self.run_id)
        of_commits, metaranges_read = cache.rows(commits.where("metarange_id != ''"), metaranges())
        held = active_ranges(commits, of_commits)
        entries, ranges_read = cache.rows(held, ranges())
        inputs = PlanInputs(
            inventory,
            Rows(listed, staged.taken_at, Details(known=True, digest=table_digest(listed, "address"))),
            Rows(graph, references.taken_at, Details(references_hash=references_hash(references))),
            Rows(
                addresses(held, canonical(entries, opened.namespace_urls)).cache(),
                references.taken_at,
                Details(inputs=made_from),
            ),
        )
        return inputs, metaranges_read.files + ranges_read.files

    def _keep(self, table: str, rows: Rows) -> Rows:
        """Write a partition as the IO manager does, and return it as it was written."""
        frame: DataFrame = conform(rows.frame, TABLES[table])
        target = self.warehouse.partition(NAME, table, self.date)
        frame.write.mode("overwrite").parquet(target)
        count = ds.dataset(target).count_rows()
        files = self.warehouse.files_digest(NAME, table, self.date.isoformat())
        metadata = PartitionMetadata(rows.taken_at, count, self.run_id, rows.details, files)
        self.warehouse.write_metadata(NAME, table, self.date, metadata)
        return self.warehouse.rows(self.spark, NAME, table, self.date)


def digest_of(frame: DataFrame) -> str:
    """Return the digest of the rows of a table, as the assets count it while they write the table."""
    counts = frame.agg(F.count(F.lit(1)).alias("rows"), *digest_counted(frame)).collect()[0]
    return counted_digest(counts.asDict())


def later(day: Day, world: World) -> Day:
    """Return the day with a later state of its world, which is written to disk."""
    return replace(day, built=lay_out(world, day.built.directory), world=world)


def _text(duration: timedelta) -> str:
    return f"{duration // timedelta(seconds=1)}s"
