"""Measures time and memory of plans of the sample, and at 10^5, 10^6 and 10^7 entries, each in a process of its own.

The sample's plan is compared with an empty Spark session in a process of its own, in the same run: seconds of different
machines cannot be compared, the ratio can. A warm plan runs in a process that has planned before. All seconds are
medians of three runs, except those of 10^7 entries.

Memory is the peak of the Python driver (Linux's VmHWM). `driver_mib` adds the peak of its Java process, whose heap is
1 GB. The inventory is a Parquet file, so the objects need no files. Memory must not grow with the entries.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import yaml
from lake import NAMESPACE, TODAY, Lake, write_inventory, write_staged
from rich.console import Console
from rich.table import Table

from retention_assets.tables import CACHED_RANGES

_RUN = """
import json, sys
from pathlib import Path
from retention_assets.cli.main import cli
cli.main(args=sys.argv[1:], standalone_mode=False)
# Not getrusage: its peak begins with the parent's, which built the repository.
def status(process):
    return dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
def peak(process):
    return int(status(process)["VmHWM"].split()[0])
me = Path("/proc/self").resolve()
children = [status(one) | {"at": one} for one in Path("/proc").iterdir() if one.name.isdigit()]
java = [one["at"] for one in children if one["PPid"].strip() == me.name and one["Name"].strip() == "java"]
print(json.dumps({"peak_kib": peak(me), "java_kib": sum(peak(one) for one in java)}), file=sys.stderr)
"""
EMPTY = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[*]").getOrCreate().stop()
"""
_WARM = """
import contextlib, io, sys, time
from retention_assets.cli.main import cli
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(args=sys.argv[2:], standalone_mode=False)
    print(time.perf_counter() - began)
"""
_FLOOR = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.master("local[*]").config("spark.driver.memory", "1g").getOrCreate()
listed = spark.read.parquet(sys.argv[1]).select(F.expr("substring(key, 9)").alias("address"), "size")
entries = spark.read.parquet(*sys.argv[2:]).select("address", "key", "size")
print(listed.join(entries, "address", "left_anti").agg(F.count("size"), F.sum("size")).collect())
"""
_TOGETHER = """
import sys
from pathlib import Path
import dagster as dg
from retention_assets.assets.lakefs import LAKEFS_ASSETS
from retention_assets.config.configuration import load_configuration
from retention_assets.definitions import build_definitions
configuration = load_configuration(Path(sys.argv[1]))
job = build_definitions(configuration).resolve_implicit_global_asset_job_def()
planning = [one for one in LAKEFS_ASSETS if one.stage == "plan"]
with dg.instance_for_test() as instance:
    job.execute_in_process(
        instance=instance,
        partition_key=sys.argv[2],
        asset_selection=[one.key(name) for name in configuration.repositories for one in planning],
    )
"""
_SAMPLE = Path(__file__).parents[1] / "demo"
_DAY = "2026-11-01"  # of the sample's plan
_PLAN = ["plan", "orchard", "--as-of", _DAY, "--json"]
_MANY = 20  # copies of the sample that one Dagster run plans
_TIMES = 3  # plans, sessions and bare jobs; their median is the result
_BEFORE = 2  # plans in a process before the warm ones are timed
_WINDOW = 10  # days of objects in a commit
_LAKE = 500_000  # listed objects of the lake whose plan is compared with an empty session and with bare Spark


@dataclass(frozen=True, slots=True)
class Planned:
    """One plan: entries read, candidates found, seconds of the whole process, peaks of the driver in MiB."""

    entries: int
    candidates: int
    seconds: float
    peak_mib: float  # of Python
    java_mib: float


def planned(directory: Path, entries: int) -> Planned:
    """Build a repository of `entries` entries in its head's history and plan it."""
    return plan_of(*rolling_lake(directory, entries))


def median_plan(lake: Lake, days: int) -> Planned:
    """Plan a repository several times, each time with an empty warehouse, and return the medians."""
    plans = []
    for _ in range(_TIMES):
        empty_warehouse(lake)
        plans.append(plan_of(lake, days))
    seconds, peak, java = (median(getattr(one, name) for one in plans) for name in ("seconds", "peak_mib", "java_mib"))
    return replace(plans[0], seconds=seconds, peak_mib=peak, java_mib=java)


def empty_warehouse(lake: Lake) -> None:
    """Remove the warehouse of a repository, and the inventory that `configure` writes."""
    for made in ("warehouse", "inventory"):
        shutil.rmtree(lake.directory / made, ignore_errors=True)


def rolling_lake(directory: Path, entries: int) -> tuple[Lake, int]:
    """Build a repository of `entries` entries in its head's history. Return it with the number of its days."""
    days = _WINDOW  # of commits; objects of the days before the first commit exist too
    lake = Lake(directory / f"lake-{entries}", entries // (2 * _WINDOW), _WINDOW, raggedness=20_000)
    lake.directory.mkdir()
    lake.grow(days + 1)
    return lake, days + 1


def plan_of(lake: Lake, days: int) -> Planned:
    """Plan a repository whose objects are those of `days` days."""
    configure(lake, days, {"spark.driver.memory": "1g"})
    return run_plan(lake)


def configure(lake: Lake, days: int, spark: Mapping[str, object]) -> None:
    """Write the inventory of a repository, and its configuration with settings of Spark."""
    staged = write_staged(lake)
    inventory = write_inventory(lake, days)
    (lake.directory / "policy.json").write_text('{"default_retention_days": 7, "branches": []}', encoding="utf-8")
    repository = {
        "kind": "lakefs",
        "settle": "0s",
        "namespace": NAMESPACE,
        "storage": "namespace",
        "source": {"dump": "dump.json"},
        "staged": staged,
        "policy": ["policy.json"],
        "inventory": {"url": str(inventory), "format": "Parquet"},
    }
    document = {
        "warehouse": "warehouse",
        "shared_warehouse": True,
        "spark": dict(spark),
        "repositories": {"rolling": repository},
    }
    (lake.directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def run_plan(lake: Lake) -> Planned:
    """Plan a configured repository in a process of its own."""
    command = [sys.executable, "-c", _RUN, "--config", str(lake.directory / "retention.yaml")]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "plan", "rolling", "--as-of", f"{TODAY:%Y-%m-%d}", "--json"],
        capture_output=True,
        text=True,
        cwd=lake.directory,
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(done.stderr)
    plan = json.loads(done.stdout)
    listed = sum(amount["objects"] for amount in plan["totals"].values())
    peaks = json.loads(done.stderr.strip().splitlines()[-1])
    return Planned(listed, plan["candidates"]["objects"], seconds, peaks["peak_kib"] / 1024, peaks["java_kib"] / 1024)


@dataclass(frozen=True, slots=True)
class Small:
    """Seconds of an empty Spark session, of the sample's plan, and of a warm plan of it: each a median."""

    empty: float
    plan: float
    warm: float


def small(directory: Path) -> Small:
    """Time plans of the sample, each with an empty warehouse, in turn with empty Spark sessions."""
    empty, plans = [], []
    for number in range(_TIMES):
        empty.append(seconds_of([sys.executable, "-c", EMPTY]))
        sample = _place_sample(directory / f"sample-{number}")
        command = [sys.executable, "-c", "from retention_assets.cli.main import main; main()"]
        plans.append(seconds_of([*command, "--config", str(sample / "retention.yaml"), *_PLAN]))
    sample = _place_sample(directory / "sample-warm")
    command = [sys.executable, "-c", _WARM, str(_BEFORE + _TIMES), "--config", str(sample / "retention.yaml"), *_PLAN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory)
    warm = [float(line) for line in done.stdout.split()][_BEFORE:]
    return Small(median(empty), median(plans), median(warm))


def many_ratio(directory: Path) -> float:
    """Return how many times as long a Dagster run for many copies of the sample takes as a run for one."""
    one, many = (median(_together(directory, number) for _ in range(_TIMES)) for number in (1, _MANY))
    return many / one


def _together(directory: Path, number: int) -> float:
    """Return the seconds of a process that plans `number` copies of the sample in one run, in a new warehouse."""
    shutil.rmtree(directory / "together", ignore_errors=True)
    sample = _place_sample(directory / "together")
    file = sample / "retention.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    orchard = document["repositories"]["orchard"]
    names = [f"orchard_{one}" for one in range(number)]
    for name in names:
        shutil.copytree(sample / orchard["storage"], sample / name)
    document["repositories"] = {name: {**orchard, "storage": name, "namespace": f"s3://lake/{name}"} for name in names}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return seconds_of([sys.executable, "-c", _TOGETHER, str(file), _DAY])


def _place_sample(target: Path) -> Path:
    """Copy the sample to `target`, and return the directory of its configuration."""
    from retention_assets.demo.sample import place_sample

    configured = target / "demo"
    shutil.copytree(_SAMPLE, configured)
    place_sample(configured / "orchard", target / ".demo" / "orchard" / "namespace")
    return configured


def seconds_of(command: Sequence[str]) -> float:
    """Return the seconds of a process that must succeed. It uses the Java that a plan uses."""
    environment, recorded = dict(os.environ), Path(sys.prefix) / "java_home"
    if recorded.is_file():
        environment["JAVA_HOME"] = recorded.read_text(encoding="utf-8").strip()
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - began


def floor_seconds(lake: Path) -> float:
    """Return the seconds in which bare Spark reads listing and entries of a planned lake and joins them once."""
    entries = sorted(str(one) for one in (lake / "warehouse" / "rolling" / CACHED_RANGES).iterdir())
    return seconds_of([sys.executable, "-c", _FLOOR, str(lake / "inventory/lake/daily/data.parquet"), *entries])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--entries", type=int, nargs=2, default=[100_000, 1_000_000], help="the two sizes")
    parser.add_argument("--sample", action="store_true", help="only the sample's plan")
    parser.add_argument("--many", action="store_true", help="only many copies of the sample in one run, and one copy")
    parser.add_argument("--ten-million", action="store_true", help="only the sample's plan, and one of 10^7 entries")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if arguments.many:
            print(json.dumps({"repositories": _MANY, "many_ratio": round(many_ratio(Path(directory)), 2)}))
            return
        sample = small(Path(directory))
        figures = {
            "empty_seconds": round(sample.empty, 1),
            "sample_seconds": round(sample.plan, 1),
            "small_ratio": round(sample.plan / sample.empty, 2),
            "warm_seconds": round(sample.warm, 1),
        }
        if arguments.ten_million:
            most = planned(Path(directory), 10_000_000)
            figures["seconds_per_million_at_10m"] = round(most.seconds / most.entries * 1e6, 1)
            figures["driver_mib_at_10m"] = round(most.peak_mib + most.java_mib)
        if arguments.sample or arguments.ten_million:
            print(json.dumps(figures))
            return
        less, large = (median_plan(*rolling_lake(Path(directory), entries)) for entries in arguments.entries)
        of_lake, days = rolling_lake(Path(directory), _LAKE)
        lake = median_plan(of_lake, days)
        floor = median(floor_seconds(of_lake.directory) for _ in range(_TIMES))
    figures |= {
        "lake_seconds": round(lake.seconds, 1),
        "lake_ratio": round(lake.seconds / sample.empty, 2),
        "lake_floor_ratio": round(lake.seconds / floor, 2),
        "plan_seconds": round(large.seconds, 1),
        "plan_seconds_small": round(less.seconds, 1),
        "seconds_per_million_at_1m": round(large.seconds / large.entries * 1e6, 1),
        "peak_mib": round(large.peak_mib),
        "driver_mib": round(large.peak_mib + large.java_mib),
        "memory_growth": round(large.peak_mib / less.peak_mib, 3),
        "time_growth": round(large.seconds / less.seconds, 2),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table(title="retention plan, Spark's start included")
    for column in ("objects", "candidates", "seconds", "peak of the Python driver"):
        table.add_column(column, justify="right")
    for one in (less, large):
        table.add_row(f"{one.entries:,}", f"{one.candidates:,}", f"{one.seconds:.1f}", f"{one.peak_mib:,.0f} MiB")
    Console().print(table)
    print(f"memory_growth {figures['memory_growth']} (at most 1.5)")
    print(f"lake_ratio {figures['lake_ratio']} (at most 4), lake_floor_ratio {figures['lake_floor_ratio']}")
    print(f"small_ratio {figures['small_ratio']} (at most 1.8), warm_seconds {figures['warm_seconds']} (at most 3)")


if __name__ == "__main__":
    main()
