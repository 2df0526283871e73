"""Time and memory of plans: of the sample, and at 10^5 and 10^6 entries. The command as it is, in its own processes.

The sample's plan is compared with an empty Spark session in a process of its own, in the same run: seconds of different
machines cannot be compared, the ratio can. A warm plan is one more in a process that has planned before.

Memory is the peak of the Python driver (Linux's VmHWM); `driver_mib` adds that of its Java process, whose heap is 1 GB.
The inventory is a Parquet file, so that no million files need to be made. Memory must not follow the entries.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml
from lake import NAMESPACE, TODAY, Lake, write_inventory, write_staged
from rich.console import Console
from rich.table import Table

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
_EMPTY = """
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
_SAMPLE = Path(__file__).parents[1] / "demo"
_PLAN = ["plan", "orchard", "--as-of", "2026-11-01", "--json"]
_TIMES = 3  # of which the median counts
_BEFORE = 2  # plans in a process before the warm ones are timed
_WINDOW = 10  # days that a commit holds


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
    days = _WINDOW  # of the commits; the objects of the days before the first one are there as well
    lake = Lake(directory / f"lake-{entries}", entries // (2 * _WINDOW), _WINDOW, raggedness=20_000)
    lake.directory.mkdir()
    lake.grow(days + 1)
    staged = write_staged(lake)
    inventory = write_inventory(lake, days + 1)
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
        "spark": {"spark.driver.memory": "1g"},
        "repositories": {"rolling": repository},
    }
    (lake.directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
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
    """Time the sample's plan, each time into an empty warehouse, between empty Spark sessions."""
    empty, plans = [], []
    for number in range(_TIMES):
        empty.append(_seconds([sys.executable, "-c", _EMPTY]))
        sample = _place_sample(directory / f"sample-{number}")
        command = [sys.executable, "-c", "from retention_assets.cli.main import main; main()"]
        plans.append(_seconds([*command, "--config", str(sample / "retention.yaml"), *_PLAN]))
    sample = _place_sample(directory / "sample-warm")
    command = [sys.executable, "-c", _WARM, str(_BEFORE + _TIMES), "--config", str(sample / "retention.yaml"), *_PLAN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory)
    warm = [float(line) for line in done.stdout.split()][_BEFORE:]
    return Small(median(empty), median(plans), median(warm))


def _place_sample(target: Path) -> Path:
    """Return a directory with the sample's configuration; its paths lead to `target`."""
    from retention_assets.demo.sample import place_sample

    configured = target / "demo"
    shutil.copytree(_SAMPLE, configured)
    place_sample(configured / "orchard", target / ".demo" / "orchard" / "namespace")
    return configured


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - began


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--entries", type=int, nargs=2, default=[100_000, 1_000_000], help="the two sizes")
    parser.add_argument("--sample", action="store_true", help="only the sample's plan")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        sample = small(Path(directory))
        figures = {
            "empty_seconds": round(sample.empty, 1),
            "sample_seconds": round(sample.plan, 1),
            "small_ratio": round(sample.plan / sample.empty, 2),
            "warm_seconds": round(sample.warm, 1),
        }
        if arguments.sample:
            print(json.dumps(figures))
            return
        less, large = (planned(Path(directory), entries) for entries in arguments.entries)
    figures |= {
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
    print(f"small_ratio {figures['small_ratio']} (at most 1.8), warm_seconds {figures['warm_seconds']} (at most 3)")


if __name__ == "__main__":
    main()
