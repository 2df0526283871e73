"""Objects per second of a sweep, beside the store's own limit, and the driver's memory at 10^4 and 10^6 candidates.

The limit is that of a bare loop of bulk deletions over as many objects on the same S3 server, with as many requests
under way at once. Loop and sweep take turns, and the median of their pairs counts. What is held against the loop is
all of the sweep's looks, its questions to the store, deletions and lines of the ledger (`share_of_store_limit`).
Beside it stands a bare loop that lists what it deletes, as a sweep must (`share_of_asking_loop`). The start of the
session, the plan, the cutting into rounds and the record are told apart. What was planned and what is live are made
up; the rest is the sweep as it is. The store lies in the directory for temporary files: TMPDIR chooses between a disk
and memory, and so its speed.

That server's limit is one processor, which listing takes up as much as deleting does. The same is therefore measured
where deletions are limited as Amazon S3 limits them (`share_of_limited_store`, `--limit` deletions per second).

Memory is the peak of the Python driver (Linux's VmHWM), in a process of its own for each size. The names of those
plans do not exist, so that each of them ends as missing and nothing but the store's own part is left out.
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
from retention_assets.limits import BudgetSettings, Limits
from retention_assets.stores.access import StoreAccess
from retention_assets.stores.deletion_work import AT_ONCE
from retention_assets.stores.listing import Prefixes, list_objects
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.deeds import Delete
from retention_assets.sweep.engine import Done, Round, width
from retention_assets.sweep.execute import Charge, carry_out
from retention_assets.sweep.liveness import Liveness
from retention_assets.sweep.plan import Amount, Heads, Plan, keep_plan, keep_planned, plan_hash, planned_objects
from retention_assets.sweep.records import read_records
from retention_assets.sweep.spark import Setting, SparkEngine
from retention_assets.sweep.work import Orders
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.transforms.digest import candidates_digest

_NAME = "lake"
_PER_SLICE = 5_000  # objects that were written to one of lakeFS's slices
_HASH = "e" * 64
_WARM_UP = 2_000  # objects of a pair that does not count: a JVM's first queries are slow


class TimedEngine(SparkEngine):
    """The engine as it is, with the seconds that its looks and its workers take."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.looking = self.working = 0.0

    def look(self, number: int) -> Round[DataFrame]:
        """See `Engine`."""
        started = time.perf_counter()
        looked = super().look(number)
        looked.objects.count()  # else Spark would join as late as it works
        self.looking += time.perf_counter() - started
        return looked

    def run(self, objects: Round[DataFrame], orders: Orders) -> Done:
        """See `Engine`."""
        started = time.perf_counter()
        done = super().run(objects, orders)
        self.working += time.perf_counter() - started
        return done


@dataclass(frozen=True, slots=True)
class Swept:
    """One sweep: what its objects ended as, the seconds of its looks, work, planning and all the rest, its window."""

    outcomes: dict[str, int]
    looking: float
    working: float
    planning: float
    rest: float
    window: float  # from the look to the last object, as the record says

    @property
    def seconds(self) -> float:
        """Of looks and work."""
        return self.looking + self.working


def addresses(spark: SparkSession, objects: int) -> DataFrame:
    """Return as many addresses as asked for, in slices as lakeFS makes them."""
    number = F.col("id")
    name = F.format_string("data/%020d/%020d", F.floor(number / _PER_SLICE).cast("long"), number)
    return spark.range(objects).select(name.alias("address"))


def keys(objects: int) -> list[str]:
    """Return the same addresses."""
    return [f"data/{number // _PER_SLICE:020d}/{number:020d}" for number in range(objects)]


def swept(spark: SparkSession, directory: Path, access: StoreAccess, planned: DataFrame) -> Swept:
    """Plan the removal of these objects, rows of `STORAGE_INVENTORY`, and carry it out; as many others are live."""
    started = time.perf_counter()
    warehouse = Warehouse(str(directory))
    plan = a_plan(warehouse, planned)
    rows = planned_objects(spark, warehouse, plan)
    alive = addresses(spark, plan.candidates.objects).select(F.concat("address", F.lit("-live")).alias("address"))
    alive.write.parquet(warehouse.location("live"))
    alive = spark.read.parquet(warehouse.location("live"))

    def look() -> Liveness:
        return Liveness(alive, alive, datetime.now(UTC))

    limits = Limits(budget=BudgetSettings(objects=plan.candidates.objects))
    engine = TimedEngine(Setting(spark, warehouse, plan, rows, access, look, limits.sweep.round))
    charge = Charge(
        warehouse=warehouse,
        plan=plan,
        kind="sweep",
        mode="delete",
        deed=lambda rate: Delete(access, rate),
        limits=limits,
        run_id="benchmark",
        clock=lambda: datetime.now(UTC),
        log=lambda _: None,
        workers=width(spark),
    )
    began = time.perf_counter()
    carried = carry_out(charge, engine, lambda: None)
    ended = time.perf_counter()
    busy = engine.looking + engine.working
    outcomes = {outcome: amount.objects for outcome, amount in carried.outcomes.items()}
    (record,) = read_records(warehouse, _NAME)
    window = record.document["longest_window_seconds"]
    return Swept(outcomes, engine.looking, engine.working, began - started, ended - began - busy, window)


def a_plan(warehouse: Warehouse, planned: DataFrame) -> Plan:
    """Keep a plan of these objects, rows of `STORAGE_INVENTORY`."""
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
    )
    keep_planned(warehouse, plan.repository, plan.plan_hash, rows, Heads({}, {}))
    keep_plan(warehouse, plan)
    return plan


@dataclass(frozen=True, slots=True)
class Pair:
    """Two bare loops and a sweep over as many objects, and the load of the machine before.

    `bare`: seconds of the loop that only deletes; `asking`: of the loop that lists what it deletes.
    """

    bare: float
    asking: float
    sweep: Swept
    load: float

    @property
    def share(self) -> float:
        """What the sweep reaches of the loop's speed, its looks included."""
        return self.bare / self.sweep.seconds

    @property
    def share_of_asking(self) -> float:
        """The same of the loop that lists what it deletes."""
        return self.asking / self.sweep.seconds


def pair(spark: SparkSession, server: S3, door: S3, directory: Path, objects: int) -> Pair:
    """Fill the bucket as often as it is emptied through `door`: by each of the bare loops, and by a sweep."""
    names = keys(objects)
    load = os.getloadavg()[0]
    bare = [f"bare/{name}" for name in names]
    seconds = []
    for asking in (False, True):
        server.fill(bare)
        seconds.append(door.bare_seconds(bare, width(spark), AT_ONCE, asking=asking))
    server.fill([f"{_NAME}/{name}" for name in names])
    access = StoreAccess(f"s3://{BUCKET}/{_NAME}", door.options())
    done = swept(spark, directory, access, list_objects(spark, access, Prefixes(("data/",), ())))
    if done.outcomes != {"deleted": objects}:
        raise SystemExit(f"the sweep ended in {done.outcomes}")
    return Pair(*seconds, done, load)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The store's name, the seconds that the session took to start, and what came of its pairs.

    `limited`: of those where the store deletes no faster than it was told to.
    """

    store: str
    session: float
    unlimited: Sequence[Pair]
    limited: Sequence[Pair]


def pairs(objects: int, number: int, limit: float) -> Pairs:
    """Measure so many pairs, and one with deletions limited to so many a second."""
    started = time.perf_counter()
    spark = session(spark_resource({}))
    spark.range(1).count()
    seconds = time.perf_counter() - started
    with tempfile.TemporaryDirectory() as name, s3_server(Path(name)) as server, limited(server, limit) as door:
        directory = Path(name)
        pair(spark, server, server, directory / "warm-up", objects=min(objects, _WARM_UP))
        made = [pair(spark, server, server, directory / f"warehouse-{one}", objects) for one in range(number)]
        slow = [pair(spark, server, door, directory / "warehouse-limited", objects)]
    spark.stop()
    return Pairs(server.name, seconds, made, slow)


def peak_of_missing(candidates: int) -> float:
    """Sweep as many names that do not exist, and return this process's peak in MiB."""
    spark = session(spark_resource({}))
    planned = addresses(spark, candidates).select(
        "address",
        F.lit(10).cast("long").alias("size"),
        F.lit(TODAY).alias("last_modified"),
        F.lit("0" * 32).alias("etag"),
    )
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / _NAME).mkdir()
        access = StoreAccess(f"file://{directory}/{_NAME}")
        done = swept(spark, Path(directory) / "warehouse", access, planned)
    if done.outcomes != {"missing": candidates}:
        raise SystemExit(f"the sweep ended in {done.outcomes}")
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def peak_in_its_own_process(candidates: int) -> float:
    """Return the peak of a driver that sweeps so many candidates, in MiB."""
    command = [sys.executable, __file__, "--peak-of", str(candidates)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def shown(title: str, made: Sequence[Pair], objects: int) -> Table:
    """Return the pairs as people read them."""
    table = Table(title=f"{title}: {objects:,} objects, in objects per second")
    for column in (
        "bare loop",
        "sweep",
        "share",
        "asking loop",
        "share",
        "planning",
        "rest of the sweep",
        "window",
        "load before",
    ):
        table.add_column(column, justify="right")
    for one in made:
        table.add_row(
            f"{objects / one.bare:,.0f}",
            f"{objects / one.sweep.seconds:,.0f}",
            f"{one.share:.0%}",
            f"{objects / one.asking:,.0f}",
            f"{one.share_of_asking:.0%}",
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
    parser.add_argument("--pairs", type=int, default=3, help="loops and sweeps that take turns")
    parser.add_argument("--limit", type=float, default=3_500.0, help="deletions per second of the limited store")
    parser.add_argument("--candidates", type=int, nargs=2, default=[10_000, 1_000_000], help="whose memory is compared")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    if arguments.peak_of:
        print(peak_of_missing(arguments.peak_of))
        return
    small, large = (peak_in_its_own_process(candidates) for candidates in arguments.candidates)
    measured = pairs(arguments.objects, arguments.pairs, arguments.limit)
    made = measured.unlimited
    figures = {
        "store": measured.store,
        "limit_per_second": round(median(arguments.objects / one.bare for one in made)),
        "objects_per_second": round(median(arguments.objects / one.sweep.seconds for one in made)),
        "share_of_store_limit": round(median(one.share for one in made), 3),
        "share_of_asking_loop": round(median(one.share_of_asking for one in made), 3),
        "share_of_limited_store": round(median(one.share for one in measured.limited), 3),
        "limited_store_per_second": round(median(arguments.objects / one.bare for one in measured.limited)),
        "session_seconds": round(measured.session, 1),
        "planning_seconds": round(median(one.sweep.planning for one in made), 1),
        "rest_seconds": round(median(one.sweep.rest for one in made), 1),
        "longest_window_seconds": round(max(one.sweep.window for one in made), 1),
        "load": round(median(one.load for one in made), 1),
        "peak_mib": round(large),
        "memory_growth": round(large / small, 3),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    Console().print(shown(measured.store, made, arguments.objects))
    print(f"share_of_store_limit {figures['share_of_store_limit']:.0%} (at least 90 %)")
    Console().print(shown(f"{arguments.limit:,.0f} deletions/s", measured.limited, arguments.objects))
    print(f"share_of_limited_store {figures['share_of_limited_store']:.0%} (at least 90 %)")
    print(f"driver's peak {small:,.0f} and {large:,.0f} MiB, memory_growth {figures['memory_growth']} (about 1)")


if __name__ == "__main__":
    main()
