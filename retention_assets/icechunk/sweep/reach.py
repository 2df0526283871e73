"""Finds the files that retained snapshots reach, for plans, sweeps and verifications.

Executors read the files that are not in the cache yet.
Source: docs/icechunk.md, "What is deleted"; docs/icechunk-formats.md, "Garbage collection".
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.paths import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from retention_assets.icechunk.rules.reach import chunks_of, manifests_of
from retention_assets.icechunk.source.opening import OpenIcechunk
from retention_assets.icechunk.source.tables import manifest_chunks, snapshot_manifests
from retention_assets.icechunk.sweep.retained_set import RetainedSet
from retention_assets.spark.frames import from_arrow
from retention_assets.state.acknowledged import lost_addresses
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.tables import STRINGS, TIMESTAMP
from retention_assets.warehouse.table_cache import TableCache

IcechunkSweep = Sweep[OpenIcechunk]
_SNAPSHOTS = pa.schema(
    [
        ("snapshot_id", pa.string()),
        ("live", pa.bool_()),
        ("expired", pa.bool_()),
        ("rule_ids", STRINGS),
        ("branches", STRINGS),
        ("due_since", TIMESTAMP),
        ("flushed_at", TIMESTAMP),
    ]
)
_ADDRESSES = pa.schema([("address", pa.string())])


@dataclass(frozen=True, slots=True)
class Reach:
    """The files that stay: `reachable_manifests`, `reachable_chunks`, and the snapshots and transaction logs.

    `snapshots_and_logs` has the column `address`. `unread` has the addresses of lost snapshots and manifests that no
    run has read. The manifests and chunks that only these files reference are unknown, so they are not in the tables.
    """

    manifests: DataFrame
    chunks: DataFrame
    snapshots_and_logs: DataFrame
    unread: tuple[str, ...]

    def required(self) -> DataFrame:
        """Return `address` of every file that must stay and exist, one row each; only `certain` chunks must exist."""
        return live_addresses(self.manifests, self.chunks.where("certain"), self.snapshots_and_logs)

    def live(self) -> DataFrame:
        """Return `address` of every file that must stay, one row each."""
        return live_addresses(self.manifests, self.chunks, self.snapshots_and_logs)


def reach_of(spark: SparkSession, cache: TableCache, retained: RetainedSet) -> Reach:
    """Return the files that the set `retained` reaches. Executors fetch files that no earlier run has read.

    Errors: errors of the files and the store, also for a missing snapshot or manifest that is not among the lost files
    of `cache`.
    """
    snapshots = snapshots_of(retained, ())
    of_snapshots, snapshots_read = cache.rows(snapshots, snapshot_manifests())
    manifests = manifests_of(from_arrow(spark, snapshots), of_snapshots)
    of_manifests, manifests_read = cache.rows(manifests, manifest_chunks())
    unread = *(SNAPSHOTS + one for one in snapshots_read.unread), *(MANIFESTS + one for one in manifests_read.unread)
    chunks = chunks_of(manifests, of_manifests, cache.url)
    return Reach(manifests, chunks, snapshots_and_logs(spark, retained), unread)


def current_cache(sweep: IcechunkSweep, *, full: bool = False) -> TableCache:
    """Return the cache for one liveness check. `full`: see `TableCache`.

    Each check needs a new cache, because the lost files of a cache are those that are missing when it is made.
    """
    access = sweep.opened.access
    lost = lost_addresses(sweep.spark, sweep.warehouse, sweep.name, access)
    return TableCache(sweep.spark, sweep.warehouse, sweep.name, access, sweep.run_id, full=full, lost=lost)


def unread_refusal(unread: Sequence[str]) -> str:
    """Return why manifests and chunks may not be deleted. `unread`: see `Reach`; at least one file."""
    more = f" ({len(unread):,} such files)" if len(unread) > 1 else ""
    return (
        f"{unread[0]} is needed but lost, and no run ever read it{more}, so the files that it references are unknown."
    )


def live_addresses(manifests: DataFrame, chunks: DataFrame, stay: DataFrame) -> DataFrame:
    """Return `address` of every file that must stay, one row each. `stay`: the result of `snapshots_and_logs`."""
    live_manifests, live_chunks = (frame.where("live").select("address") for frame in (manifests, chunks))
    of_chunks = F.col("address").startswith(CHUNKS)  # all these rows are in `live_chunks`, without duplicates
    few = stay.unionByName(live_manifests).unionByName(live_chunks.where(~of_chunks)).distinct()
    return live_chunks.where(of_chunks).unionByName(few)


def snapshots_of(retained: RetainedSet, leaving: Iterable[bytes]) -> pa.Table:
    """Return one row per snapshot that stays or is `leaving`. Its manifests and chunks inherit the other columns."""
    rows = [
        *_snapshot_rows(retained, sorted(retained.snapshots), live=True),
        *_snapshot_rows(retained, sorted(leaving), live=False),
    ]
    return pa.Table.from_pylist(rows, schema=_SNAPSHOTS)


def snapshots_and_logs(spark: SparkSession, retained: RetainedSet) -> DataFrame:
    """Return `address` of the snapshots and transaction logs that stay."""
    names = [SNAPSHOTS + encode_id(one) for one in retained.snapshots]
    names += [TRANSACTIONS + encode_id(one) for one in retained.transaction_logs]
    return from_arrow(spark, pa.table([sorted(names)], schema=_ADDRESSES))


def _snapshot_rows(retained: RetainedSet, ids: Iterable[bytes], *, live: bool) -> Iterator[Mapping[str, object]]:
    for snapshot_id in ids:
        decision = retained.expiration and retained.expiration.selection.decisions.get(snapshot_id)
        reference = (decision.reference or "") if decision else ""
        known = retained.before.snapshots.get(snapshot_id)
        yield {
            "snapshot_id": encode_id(snapshot_id),
            "live": live,
            "expired": not live,
            "rule_ids": [decision.rule_id] if decision and decision.rule_id and not live else [],
            "branches": [reference.removeprefix("branch ")] if reference.startswith("branch ") and not live else [],
            "due_since": decision.due_since if decision and not live else None,
            "flushed_at": known.flushed_at if known else None,
        }
