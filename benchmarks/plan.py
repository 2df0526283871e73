"""Time and memory of a plan at 10^5 and 10^6 entries: the command as it is, in a process of its own each.

Memory is the peak of the Python driver (Linux's VmHWM); the driver's JVM has a fixed heap of 1 GB. The storage picture
is a Parquet inventory, so that no million files need to be made. Memory must not follow the entries.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml
from lake import NAMESPACE, TODAY, Lake, write_inventory, write_staged
from rich.console import Console
from rich.table import Table

_RUN = """
import json, sys
from pathlib import Path
from retention_assets.cli.group import cli
cli.main(args=sys.argv[1:], standalone_mode=False)
# Not getrusage: its peak begins with the parent's, which built the repository.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"peak_kib": int(status["VmHWM"].split()[0])}), file=sys.stderr)
"""
_WINDOW = 10  # days that a commit holds


@dataclass(frozen=True, slots=True)
class Planned:
    """One plan: entries read, candidates found, seconds of the whole process, peak of the Python driver in MiB."""

    entries: int
    candidates: int
    seconds: float
    peak_mib: float


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
    peak = json.loads(done.stderr.strip().splitlines()[-1])["peak_kib"] / 1024
    return Planned(listed, plan["candidates"]["objects"], seconds, peak)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--entries", type=int, nargs=2, default=[100_000, 1_000_000], help="the two sizes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        small, large = (planned(Path(directory), entries) for entries in arguments.entries)
    figures = {
        "plan_seconds": round(large.seconds, 1),
        "plan_seconds_small": round(small.seconds, 1),
        "peak_mib": round(large.peak_mib),
        "memory_growth": round(large.peak_mib / small.peak_mib, 3),
        "time_growth": round(large.seconds / small.seconds, 2),
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table(title="retention plan, Spark's start included")
    for column in ("objects", "candidates", "seconds", "peak of the Python driver"):
        table.add_column(column, justify="right")
    for one in (small, large):
        table.add_row(f"{one.entries:,}", f"{one.candidates:,}", f"{one.seconds:.1f}", f"{one.peak_mib:,.0f} MiB")
    Console().print(table)
    print(f"memory_growth {figures['memory_growth']} (at most 1.5)")


if __name__ == "__main__":
    main()
