"""Compares a daily run with a first run: the bytes that they read, and the seconds that they take.

Each day adds a directory with 1 % of the objects, and removes the oldest directory. The bytes are those of ranges and
metaranges that executors fetched, without the dump of the references, which a server writes again for each run. The
seconds are those of plans in one warm process, without the seconds of the same kind of plan of a few objects.
"""

import argparse
import contextlib
import io
import json
import logging
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import median

from growth import growth
from lake import TODAY, Lake
from plan import configure
from rich.console import Console
from rich.table import Table

from retention_assets.assets.resources import session, spark_resource
from retention_assets.cli.main import cli
from retention_assets.lakefs.rules.committed import commit_graph
from retention_assets.lakefs.source.dump import DumpSource
from retention_assets.lakefs.source.ranges import metaranges, ranges
from retention_assets.objectstore.access import StoreAccess
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.warehouse import Warehouse

_DAYS = 5  # daily runs that are averaged: single days differ, because ranges end at different keys
_WINDOW = 100  # days of objects in a commit, so that a day changes 1 %
_COMMITS = 10  # of a repository that is planned for the first time
_TIMES = 3  # plans of each kind; their median is the result


def bytes_read(spark, lake: Lake, warehouse: Path, run_id: str) -> int:
    """Return the bytes of ranges and metaranges that a run with the caches in `warehouse` fetches."""
    access = StoreAccess(f"file://{lake.namespace}")
    dump = json.loads((lake.directory / "dump.json").read_text(encoding="utf-8"))
    references = DumpSource(access, dump, None).references()
    cache = TableCache(spark, Warehouse(str(warehouse)), "rolling", access, run_id)
    commits = [(node.commit.metarange_id,) for node in commit_graph(references)]
    of_commits, first = cache.rows(spark.createDataFrame(commits, "metarange_id string"), metaranges())
    _, second = cache.rows(of_commits, ranges())
    return first.bytes + second.bytes


def measure(spark, directory: Path, history: int, per_day: int, window: int) -> tuple[int, int]:
    """Return the bytes of a full run after `history` days, and of a daily run on average of the days after."""
    lake = Lake(directory / f"lake-{history}", per_day, window, raggedness=max(per_day // 2, 2))
    lake.directory.mkdir()
    lake.grow(history)
    warehouse = directory / f"warehouse-{history}"
    full = bytes_read(spark, lake, warehouse, "full")
    daily = []
    for day in range(1, _DAYS + 1):
        lake.grow(history + day)
        daily.append(bytes_read(spark, lake, warehouse, f"day-{day}"))
    return full, sum(daily) // _DAYS


def shares_of_first(directory: Path, listed: int) -> dict[str, float]:
    """Return the seconds of a first plan, and the shares of it that a plan takes without changes and with 1 % changed.

    The seconds of the same kind of plan of a few objects are subtracted from each. The other days are those after the
    first plan.
    """
    few, other, lake = (
        _lake(directory / name, size) for name, size in (("few", 0), ("other", listed), ("all", listed))
    )
    _seconds(few, 0)
    fixed, fixed_unchanged = _medians(few)
    _seconds(other, 0)  # Java compiles what a plan of this size needs
    first = _seconds(lake, 0) - fixed
    changed, unchanged = _medians(lake)
    return {
        "fixed_seconds": round(fixed, 1),
        "fixed_seconds_unchanged": round(fixed_unchanged, 1),
        "first_seconds": round(first + fixed, 1),
        "unchanged_seconds": round(unchanged, 1),
        "share_of_first_unchanged": round((unchanged - fixed_unchanged) / first, 3),
        "share_of_first_at_1_percent": round((changed - fixed) / first, 3),
    }


def _medians(lake: Lake) -> tuple[float, float]:
    """Return the seconds of plans after a day with 1 % changed, and of plans after days without changes."""
    unchanged = median(_seconds(lake, day) for day in range(1, 1 + _TIMES))
    changed = []
    for day in range(_TIMES):
        _grow(lake, _COMMITS + 1 + day)
        changed.append(_seconds(lake, 1 + _TIMES + day))
    return median(changed), unchanged


def _lake(directory: Path, listed: int) -> Lake:
    """Return a new repository with its configuration. Its inventory lists about `listed` objects."""
    per_day = max(1, listed // (_WINDOW + _COMMITS))
    lake = Lake(directory, per_day, _WINDOW, raggedness=max(2, per_day * 2))
    directory.mkdir()
    _grow(lake, _COMMITS)
    return lake


def _grow(lake: Lake, days: int) -> None:
    lake.grow(days)
    shutil.rmtree(lake.directory / "inventory", ignore_errors=True)
    configure(lake, days, {})


def _seconds(lake: Lake, day: int) -> float:
    """Return the seconds of a plan in this process. `day` counts from the day of the first plan."""
    as_of = f"{TODAY + timedelta(days=day):%Y-%m-%d}"
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        file = str(lake.directory / "retention.yaml")
        cli.main(args=["--config", file, "plan", "rolling", "--as-of", as_of, "--json"], standalone_mode=False)
    return time.perf_counter() - began


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--objects", type=int, default=50_000, help="objects of a commit")
    parser.add_argument("--history", type=int, default=8, help="days before; ten times as many in the second case")
    parser.add_argument(
        "--days", type=int, default=0, help="also compare plans with this many days of history, such as 1000"
    )
    parser.add_argument("--listed", type=int, default=500_000, help="listed objects of the plans that are timed")
    parser.add_argument("--plans", type=int, default=3, help="plans of each kind whose median is compared")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    spark = session(spark_resource({}))
    with tempfile.TemporaryDirectory() as directory:
        runs = {
            days: measure(spark, Path(directory), days, arguments.objects // _WINDOW, _WINDOW)
            for days in (arguments.history, 10 * arguments.history)
        }
        shares = shares_of_first(Path(directory), arguments.listed)
    (full, daily), (_, daily_later) = runs.values()
    figures = {
        "objects": arguments.objects,
        "full_bytes": full,
        "daily_bytes": daily,
        "reading_share": round(daily / full, 4),
        "growth_at_10x": round(daily_later / daily, 3),
        **shares,
    }
    if arguments.days:
        figures |= growth(arguments.days, arguments.plans)
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table(title=f"{arguments.objects:,} objects, 1 % of them new")
    for column in ("days of history", "full run reads", "daily run reads", "share"):
        table.add_column(column, justify="right")
    for days, (whole, part) in runs.items():
        table.add_row(f"{days}", f"{whole:,} B", f"{part:,} B", f"{part / whole:.2%}")
    Console().print(table)
    print(json.dumps({name: value for name, value in figures.items() if "days" in name}) if arguments.days else "")
    print(", ".join(f"{name} {value}" for name, value in shares.items()))
    print(f"reading_share {daily / full:.2%} (at most 5 %), growth_at_10x {daily_later / daily:.3f} (at most 1.3)")


if __name__ == "__main__":
    main()
