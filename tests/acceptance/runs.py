"""The steps of the planning assets without Dagster, so that many policies are planned in seconds instead of minutes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import Repository
from retention_assets.core.age import AgeCutoff
from retention_assets.core.settle import candidates
from retention_assets.core.states import UNREFERENCED
from retention_assets.lakefs.names.columns import issued_at
from retention_assets.lakefs.rules.candidates import classified, commits_by_address, due, with_names
from retention_assets.lakefs.rules.lifecycle import with_lifecycle
from retention_assets.lakefs.rules.ranges import active_ranges, addresses, canonical
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.source.inventory_snapshot import InventoryContext, InventorySnapshot, take_snapshot
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.lakefs.source.staged_objects import staged_objects
from retention_assets.lakefs.sweep.liveness import LivenessQuery, commits_now
from retention_assets.policy.rules import Policy
from retention_assets.spark.frames import as_frame
from retention_assets.tables import STORAGE_INVENTORY
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.table_writer import conform
from retention_assets.warehouse.warehouse import Warehouse
from tests import ledgers

Found = tuple[str, int, str]  # address, bytes, reason


@dataclass(frozen=True, slots=True)
class Run:
    """One planning run of a repository for a day. `now`: the time of this machine's clock."""

    spark: SparkSession
    repository: Repository
    warehouse: Warehouse
    day: date
    now: datetime
    run_id: str = "a-run"

    def open(self) -> OpenRepository:
        """Open the repository."""
        return open_repository(self.repository, lambda: self.now)

    def snapshot(self) -> InventorySnapshot:
        """Return the inventory snapshot of the store."""
        return take_snapshot(InventoryContext(self.spark, self.open(), self.warehouse, self.day, lambda: self.now))

    def keep(self, snapshot: InventorySnapshot) -> DataFrame:
        """Write an inventory snapshot to the warehouse as the IO manager does; return it as read from there."""
        name, table = self.repository.name, STORAGE_INVENTORY.name
        target = self.warehouse.partition(name, table, self.day)
        conform(snapshot.frame, STORAGE_INVENTORY).write.mode("overwrite").parquet(target)
        count = ds.dataset(target).count_rows()
        self.warehouse.write_metadata(
            name, table, self.day, PartitionMetadata(snapshot.taken_at, count, self.run_id, snapshot.details)
        )
        return self.spark.read.parquet(target)

    def addresses(self, policy: Policy, references: References, *, full: bool = False) -> DataFrame:
        """Return the (path, address) pairs under the policy's retention rules; `full` uses no cache."""
        opened = self.open()
        name, access = self.repository.name, opened.access
        cache = TableCache(self.spark, self.warehouse, name, access, self.run_id, full=full)
        rows = commits_now(LivenessQuery(opened, policy, self.day, Memory()), references, rules=())
        commits = self.spark.createDataFrame(rows)
        of_commits, _ = cache.rows(commits.where("metarange_id != ''"), metaranges())
        held = active_ranges(commits, of_commits)
        entries, _ = cache.rows(held, ranges())
        return addresses(held, canonical(entries, opened.namespace_urls))

    def staged(self) -> tuple[DataFrame, bool, datetime]:
        """Return the staged addresses, whether they are known, and their time."""
        opened = self.open()
        staged = opened.source.staged()
        frame = as_frame(self.spark, staged_objects(self.spark, opened.access, staged, opened.namespace_urls))
        return frame, staged is not None, staged.taken_at if staged else self.now

    def found(self, snapshot: InventorySnapshot) -> set[Found]:
        """Return the candidates now, by the complete policy and the given inventory snapshot."""
        references, policy = self.open().source.references(), self.open().policy()
        pairs = self.addresses(policy, references)
        return self.found_among(snapshot, pairs, policy, references.branches, references.taken_at)

    def found_among(
        self,
        snapshot: InventorySnapshot,
        pairs: DataFrame,
        policy: Policy,
        branches: Mapping[str, str],
        references_at: datetime,
    ) -> set[Found]:
        """Return the candidates for these (path, address) pairs."""
        staged, known, staged_at = self.staged()
        oldest = min([snapshot.taken_at, references_at] + ([staged_at] if known else []))
        settings = self.repository.settings
        age_cutoff = AgeCutoff(oldest, settings.grace, settings.token_life, issued=issued_at)
        as_of = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)
        pairs_with_rules = with_lifecycle(pairs, policy.lifecycle, branches, as_of)
        commits = commits_by_address(pairs_with_rules, ())
        objects = classified(snapshot.frame, commits, staged, age_cutoff, staged_known=known)
        return found_in(candidates(with_names(due(objects), pairs_with_rules)))


def found_in(chosen: DataFrame) -> set[Found]:
    """Return the candidates of a frame. Fails if one is duplicated."""
    rows = [
        (row["address"], row["size"], row["reason"]) for row in chosen.select("address", "size", "reason").collect()
    ]
    assert len(rows) == len(set(rows))
    return set(rows)


def kinds(found: set[Found]) -> set[Found]:
    """Return candidates with the kind of the expected files instead of the reason."""
    return {(name, size, "uncommitted" if why == UNREFERENCED else "committed") for name, size, why in found}


def objects_in(inventory: DataFrame) -> set[tuple[str, int, datetime]]:
    """Return the objects of an inventory. Fails if one is duplicated."""
    return _rows_of(inventory.select("address", "size", "last_modified"))


def _rows_of(frame: DataFrame) -> set[Any]:
    table = frame.toArrow()
    rows = list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    assert len({row[0] for row in rows}) == len(rows)
    return set(rows)


def write_ledger(run: Run, outcomes: Mapping[str, str], at: datetime) -> None:
    """Write a ledger of a sweep at this time with these outcomes by address."""
    fence = int(at.timestamp())
    ledgers.write_ledger(run.warehouse, run.repository.name, at.date(), f"{fence:064x}", outcomes, at, fence=fence)
