"""Measures objects per second of a sweep, and the driver's memory at 10^4 and 10^6 candidates.

The sweep is compared with a bare loop of bulk deletions on the same S3 server. The loop has as many requests at once,
and retries throttled requests at once. The sweep's time has its liveness checks, its requests and its ledger. The start
of the session, the plan, the making of batches and the record are measured separately. The plan and the live objects
are generated; the sweep is the real one. The store is in the directory for temporary files, so TMPDIR decides whether
it is on a disk or in memory, and how fast it is.

`share_of_store_limit`: the share of the loop's speed on a store with a limit, like Amazon S3: `--limit` deletions per
second, and 503 for all others. The sweep and its workers have to find this limit.

`share_of_unlimited_store`: the share on the same server without this limit. There one processor of this machine is the
limit, and listing needs it as well as deleting. So `share_of_asking_loop` is the share of the speed of a loop that also
lists the objects that it deletes, as a sweep must. Loops and sweep run in turn. The result is the median of all pairs.

Memory is the peak of the Python driver (Linux's VmHWM), in a process of its own for each size. The objects of these
plans do not exist, so each object ends as missing. Only the deletions of the store are left out.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from lake import TODAY
from limited_s3 import limited
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table
from s3 import BUCKET, S3, s3_server

from retention_assets.assets.resources import session, spark_resource
from retention_assets.config.limits import BudgetSettings, Limits
from retention_assets.core.amounts import Amount
from retention_assets.core.digest import candidates_digest
from retention_assets.core.liveness import Liveness
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.listing import Prefixes, list_objects
from retention_assets.objectstore.mutate.deletion import AT_ONCE
from retention_assets.spark.frames import sweep_workers
from retention_assets.state.plan import Heads, Plan, keep_plan, keep_planned, plan_hash, planned_objects
from retention_assets.state.records import read_records
from retention_assets.sweep.actions import Delete
from retention_assets.sweep.engine import Batch, BatchResult, Directories, RepositorySweep, SparkEngine
from retention_assets.sweep.execute import SweepRun, execute
from retention_assets.sweep.worker import TaskSpec
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.warehouse.warehouse import Warehouse

_NAME = "lake"
_PER_SLICE = 5_000  # objects in one of lakeFS's slices
_HASH = "e" * 64
_SETTINGS = {"grace": "0d"}  # settings of the plan and its approval
_WARM_UP = 2_000  # objects of a first sweep that is not counted, because a JVM's first queries are slow


class TimedEngine(SparkEngine):
    """The real engine, with the seconds of its liveness checks and its workers."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, repository: RepositorySweep, most: int) -> None:
        super().__init__(spark, warehouse, repository, most=most)
        self.checking = self.working = 0.0

    def check(self, number: int) -> Batch[DataFrame]:
        """See `Engine`."""
        started = time.perf_counter()
        batch = super().check(number)
        batch.objects.count()  # otherwise Spark would compute the join during the work
        self.checking += time.perf_counter() - started
        return batch

    def run(self, objects: Batch[DataFrame], task: TaskSpec) -> BatchResult:
        """See `Engine`."""
        started = time.perf_counter()
        done = super().run(objects, task)
        self.working += time.perf_counter() - started
        return done


class Planned(RepositorySweep):
    """See `RepositorySweep`. All objects are as planned, and the addresses `alive` are live."""

    history_changes, publishes, dump = 0, False, None

    def __init__(self, plan: Plan, candidates: DataFrame, access: StoreAccess, alive: DataFrame) -> None:
        self.plan, self.candidates, self.access, self.layout = plan, candidates, access, Directories()
        self._alive = alive

    def require_same(self) -> None:
        """See `RepositorySweep`."""

    def live_now(self) -> Liveness:
        """See `RepositorySweep`."""
        return Liveness(self._alive, self._alive, datetime.now(UTC))

    def live_after_edits(self) -> None:
        """See `RepositorySweep`."""

    def publish(self, lease: object) -> None:
        """See `RepositorySweep`."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The outcomes of one sweep, and the seconds of its checks, work, planning, rest and window."""

    outcomes: dict[str, int]
    checking: float
    working: float
    planning: float
    rest: float
    window: float  # from the liveness check to the last object, from the record

    @property
    def objects(self) -> int:
        """The number of objects of the sweep."""
        return sum(self.outcomes.values())

    @property
    def rate(self) -> float:
        """Objects per second of checks and work."""
        return self.objects / (self.checking + self.working)


def addresses(spark: SparkSession, objects: int) -> DataFrame:
    """Return this many addresses, in slices like those of lakeFS."""
    number = F.col("id")
    name = F.format_string("data/%020d/%020d", F.floor(number / _PER_SLICE).cast("long"), number)
    return spark.range(objects).select(name.alias("address"))


def keys(objects: int) -> list[str]:
    """Return the addresses of `addresses` as a list."""
    return [f"data/{number // _PER_SLICE:020d}/{number:020d}" for number in range(objects)]


def swept(spark: SparkSession, directory: Path, access: StoreAccess, planned: DataFrame) -> Swept:
    """Plan the deletion of these rows of `STORAGE_INVENTORY`, and execute the plan. As many other objects are live."""
    started = time.perf_counter()
    warehouse = Warehouse(str(directory))
    plan = a_plan(warehouse, planned)
    rows = planned_objects(spark, warehouse, plan)
    alive = addresses(spark, plan.candidates.objects).select(F.concat("address", F.lit("-live")).alias("address"))
    alive.write.parquet(warehouse.location("live"))
    alive = spark.read.parquet(warehouse.location("live"))

    limits = Limits(budget=BudgetSettings(objects=plan.candidates.objects))
    repository = Planned(plan, rows, access, alive)
    engine = TimedEngine(spark, warehouse, repository, limits.sweep.round)
    sweep_run = SweepRun(
        warehouse=warehouse,
        plan=plan,
        kind="sweep",
        mode="delete",
        action=Delete(access),
        limits=limits,
        run_id="benchmark",
        clock=lambda: datetime.now(UTC),
        log=lambda _: None,
        workers=sweep_workers(spark),
        terms={"mode": "delete", **_SETTINGS},
    )
    began = time.perf_counter()
    with engine:
        result = execute(sweep_run, engine, repository)
    ended = time.perf_counter()
    busy = engine.checking + engine.working
    outcomes = {outcome: amount.objects for outcome, amount in result.outcomes.items()}
    (record,) = read_records(warehouse, _NAME)
    window = record.document["longest_window_seconds"]
    return Swept(outcomes, engine.checking, engine.working, began - started, ended - began - busy, window)


def a_plan(warehouse: Warehouse, planned: DataFrame) -> Plan:
    """Store a plan that deletes these rows of `STORAGE_INVENTORY`."""
    empty = {name: F.lit(None).cast("timestamp") for name in ("due_since", "first_committed_at", "last_committed_at")}
    lists = {name: F.array().cast("array<string>") for name in ("rule_ids", "paths", "branches")}
    rows = planned.withColumns({"reason": F.lit("expired"), **lists, **empty}).select(*DELETION_CANDIDATES.schema.names)
    row = rows.agg(F.count(F.lit(1)), F.sum("size")).first()
    assert row is not None
    amount = Amount(row[0], row[1])
    plan = Plan(
        repository=_NAME,
        day=TODAY.date(),
        plan_hash=plan_hash(_NAME, _HASH, _HASH, candidates_digest(rows.drop("etag"))),
        policy_hash=_HASH,
        policy_run="benchmark",
        references_hash=_HASH,
        candidates=amount,
        totals={"candidate": amount},
        live=amount.objects,
        collected=0,
        warnings=(),
        blocked=None,
        instance=None,
        made_at=datetime.now(UTC),
        run_id="benchmark",
        terms=_SETTINGS,
    )
    keep_planned(warehouse, plan, rows, Heads({}, {}))
    keep_plan(warehouse, plan)
    return plan


@dataclass(frozen=True, slots=True)
class Pair:
    """A sweep and two loops on one store, in objects per second, and the load of the machine before them.

    `bare`: the loop that only deletes; `listing`: the loop that also lists the objects that it deletes.
    """

    bare: float
    listing: float
    sweep: Swept
    load: float

    @property
    def share(self) -> float:
        """The sweep's speed, with its checks, as a share of the bare loop's speed."""
        return self.sweep.rate / self.bare

    @property
    def share_of_listing(self) -> float:
        """The sweep's speed as a share of the speed of the loop that lists."""
        return self.sweep.rate / self.listing


@dataclass(frozen=True, slots=True)
class Store:
    """A server that is filled directly, the server or proxy through which it is emptied, and the session of sweeps."""

    server: S3
    emptied: S3
    spark: SparkSession

    def pair(self, directory: Path, objects: int, of_loops: int) -> Pair:
        """Delete `of_loops` objects with each of the loops, and `objects` with a sweep."""
        load = os.getloadavg()[0]
        bare, listing = (self.bare(of_loops, listing=listing) for listing in (False, True))
        return Pair(bare, listing, self.sweep(directory, objects), load)

    def bare(self, objects: int, *, listing: bool) -> float:
        """Fill the bucket, empty it with a loop, and return the objects per second."""
        names = [f"bare/{name}" for name in keys(objects)]
        self.server.fill(names)
        return objects / self.emptied.bare_seconds(names, sweep_workers(self.spark), AT_ONCE, listing=listing)

    def sweep(self, directory: Path, objects: int) -> Swept:
        """Fill the bucket, and empty it with a sweep."""
        self.server.fill([f"{_NAME}/{name}" for name in keys(objects)])
        access = StoreAccess(f"s3://{BUCKET}/{_NAME}", self.emptied.options())
        planned = list_objects(self.spark, access, Prefixes(("data/",), ()))
        done = swept(self.spark, directory, access, planned)
        if done.outcomes != {"deleted": objects}:
            raise SystemExit(f"the sweep ended in {done.outcomes}")
        return done


@dataclass(frozen=True, slots=True)
class Pairs:
    """The store's name, the seconds of the session's start, and the measured pairs.

    `limited`: the pair on the store with a limit of deletions.
    """

    store: str
    session: float
    unlimited: Sequence[Pair]
    limited: Pair


def pairs(objects: int, number: int, limit: float, of_limited: int) -> Pairs:
    """Measure `number` pairs, and one pair of a larger sweep with `limit` deletions per second."""
    started = time.perf_counter()
    spark = session(spark_resource({}))
    spark.range(1).count()
    seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name)) as server, limited(server, limit) as proxy:
        directory, without, within = Path(name), Store(server, server, spark), Store(server, proxy, spark)
        without.sweep(directory / "warm-up", min(objects, _WARM_UP))
        made = [without.pair(directory / f"warehouse-{one}", objects, objects) for one in range(number)]
        slow = within.pair(directory / "warehouse-limited", of_limited, min(objects, of_limited))
    spark.stop()
    return Pairs(server.name, seconds, made, slow)


def peak_of_missing(candidates: int) -> float:
    """Sweep objects that do not exist, and return the peak of this process in MiB."""
    spark = session(spark_resource({}))
    planned = addresses(spark, candidates).select(
        "address",
        F.lit(10).cast("long").alias("size"),
        F.lit(TODAY).alias("last_modified"),
        F.lit("0" * 32).alias("etag"),
    )
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / _NAME / "_lakefs").mkdir(parents=True)  # a sweep refuses an empty directory
        access = StoreAccess(f"file://{directory}/{_NAME}")
        done = swept(spark, Path(directory) / "warehouse", access, planned)
    if done.outcomes != {"missing": candidates}:
        raise SystemExit(f"the sweep ended in {done.outcomes}")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def peak_in_its_own_process(candidates: int) -> float:
    """Return the peak in MiB of a driver that sweeps this many candidates."""
    command = [sys.executable, __file__, "--peak-of", str(candidates)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def shown(title: str, made: Sequence[Pair]) -> Table:
    """Return the pairs as a table for people."""
    table = Table(title=f"{title}: {made[0].sweep.objects:,} objects, in objects per second")
    for column in (
        "bare loop",
        "sweep",
        "share",
        "listing loop",
        "share",
        "planning",
        "rest of the sweep",
        "window",
        "load before",
    ):
        table.add_column(column, justify="right")
    for one in made:
        table.add_row(
            f"{one.bare:,.0f}",
            f"{one.sweep.rate:,.0f}",
            f"{one.share:.0%}",
            f"{one.listing:,.0f}",
            f"{one.share_of_listing:.0%}",
            f"{one.sweep.planning:.1f} s",
            f"{one.sweep.rest:.1f} s",
            f"{one.sweep.window:.1f} s",
            f"{one.load:.1f}",
        )
    return table


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--objects", type=int, default=60_000, help="objects of one sweep")
    parser.add_argument("--of-limited", type=int, default=300_000, help="objects of the sweep of the limited store")
    parser.add_argument("--pairs", type=int, default=3, help="number of pairs of loops and sweep")
    parser.add_argument("--limit", type=float, default=3_500.0, help="deletions per second of the limited store")
    parser.add_argument(
        "--candidates", type=int, nargs=2, default=[10_000, 1_000_000], help="two sizes whose memory is compared"
    )
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.peak_of:
        print(peak_of_missing(arguments.peak_of))
        return
    small, large = (peak_in_its_own_process(candidates) for candidates in arguments.candidates)
    measured = pairs(arguments.objects, arguments.pairs, arguments.limit, arguments.of_limited)
    made, slow = measured.unlimited, measured.limited
    figures = {
        "store": measured.store,
        "limit_per_second": round(slow.bare),
        "objects_per_second": round(slow.sweep.rate),
        "share_of_store_limit": round(slow.share, 3),
        "unlimited_per_second": round(median(one.bare for one in made)),
        "unlimited_objects_per_second": round(median(one.sweep.rate for one in made)),
        "share_of_unlimited_store": round(median(one.share for one in made), 3),
        "share_of_asking_loop": round(median(one.share_of_listing for one in made), 3),
        "session_seconds": round(measured.session, 1),
        "planning_seconds": round(median(one.sweep.planning for one in made), 1),
        "rest_seconds": round(median(one.sweep.rest for one in made), 1),
        "longest_window_seconds": round(max(one.sweep.window for one in [*made, slow]), 1),
        "load": round(median(one.load for one in made), 1),
        "peak_mib": round(large),
        "memory_growth": round(large / small, 3),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    Console().print(shown(f"{measured.store}, {arguments.limit:,.0f} deletions a second", [slow]))
    print(f"share_of_store_limit {slow.share:.0%} (at least 90 %)")
    Console().print(shown(f"{measured.store} without a limit of its own", made))
    print(f"share_of_unlimited_store {figures['share_of_unlimited_store']:.0%}")
    print(f"driver's peak {small:,.0f} and {large:,.0f} MiB, memory_growth {figures['memory_growth']} (about 1)")


if __name__ == "__main__":
    main()
