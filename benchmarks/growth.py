"""Compares a plan with one day of history and with many: ledgers, plans, policy tables and batches of the caches.

The sample repository is planned in processes of their own, with a warehouse of one day and with the same warehouse
after `--days` days. The earlier days are generated: each has a plan, a ledger of 20 objects, the policy, and a batch of
each cache, like the batches of versions that did not merge them. The next plan merges the batches.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from retention_assets.demo.sample import demo_configuration, place_sample
from retention_assets.state.ledger import LedgerLocation
from retention_assets.tables import CACHED_METARANGES, CACHED_RANGES, LEDGER

_DAY = date(2026, 11, 1)
_NAME = "orchard"
_SWEPT = 20  # objects of a day's ledger
_MOST_SECONDS = 900


def placed(directory: Path) -> Path:
    """Copy the sample with a configuration of its own, and return the configuration file."""
    demo = demo_configuration().parent
    place_sample(demo / _NAME, directory / "namespace")
    settings = yaml.safe_load((demo / "retention.yaml").read_text(encoding="utf-8"))["repositories"][_NAME]
    settings |= {"storage": "namespace", "settle": "0s"}
    for name in (*settings["policy"], settings["source"]["dump"]):
        shutil.copy(demo / name, directory / name)
    file = directory / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {_NAME: settings}}), encoding="utf-8")
    return file


def seconds_of_plan(file: Path) -> float:
    """Return the seconds of `retention plan` in a process of its own."""
    command = [sys.executable, "-c", "from retention_assets.cli.main import main; main()", "--config", str(file)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "plan", _NAME, "--as-of", f"{_DAY}"],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - started


def add_days(warehouse: Path, days: int) -> None:
    """Add the tables of earlier days to a warehouse with one day, so that it has `days` days."""
    tables = warehouse / _NAME
    plan = tables / "plans" / f"{_DAY}" / "current.json"
    document = json.loads(plan.read_text(encoding="utf-8"))
    for number in range(1, days):
        day = _DAY - timedelta(days=number)
        made = f"{number:064x}"
        of_day = json.dumps({**document, "day": f"{day}", "plan_hash": made})
        folder = tables / "plans" / f"{day}"
        folder.mkdir(parents=True)
        for name in ("current.json", f"{day:%Y%m%d}T030000000000-{made[:12]}.json"):
            (folder / name).write_text(of_day, encoding="utf-8")
        completed = {"policy_run": f"run-{number}", "plan_hash": made, "day": f"{day}"}
        (tables / "completed").mkdir(exist_ok=True)
        (tables / "completed" / f"{day}-{made[:16]}.json").write_text(json.dumps(completed), encoding="utf-8")
        shutil.copytree(tables / "policy_table" / f"{_DAY}", tables / "policy_table" / f"{day}")
        _write_ledger(str(warehouse), day, made, number)
        for kind in (CACHED_METARANGES, CACHED_RANGES):
            _write_batch(tables, kind, number)


def _write_ledger(warehouse: str, day: date, plan: str, number: int) -> None:
    at = datetime(day.year, day.month, day.day, 6, tzinfo=UTC)
    for kind, outcome in (("attempted", "attempted"), ("done", "deleted")):
        rows = [
            {
                "address": f"data/{number}/{one}",
                "size": 10,
                "outcome": outcome,
                "detail": None,
                "at": at,
                "fence": number,
            }
            for one in range(_SWEPT)
        ]
        location = LedgerLocation(warehouse, _NAME, day, plan, number, "a-run")
        location.append(pa.Table.from_pylist(rows, schema=LEDGER), "chunk", kind)


def _write_batch(tables: Path, kind: str, number: int) -> None:
    """Write a batch as Spark does: two files of rows, one of ids, and no manifest."""
    name = f"{number + 1:08d}-day"
    first = min(one for one in (tables / kind).iterdir() if one.name != name)
    rows = pq.read_table(first, partitioning=None).slice(0, 20)
    rows = rows.set_column(0, rows.schema.field(0), pa.array([f"{number:064x}"] * len(rows)))
    position = rows.column_names.index("batch")
    rows = rows.set_column(position, "batch", pa.array([name] * len(rows)))
    ids = pa.table({rows.column_names[0]: [f"{number:064x}"], "batch": [name], "rows": [len(rows)]})
    for folder, parts in ((tables / kind / name, (rows[:10], rows[10:])), (tables / f"{kind}_ids" / name, (ids,))):
        folder.mkdir(parents=True)
        for part, table in enumerate(parts):
            pq.write_table(table, folder / f"part-{part:05d}.snappy.parquet")
        (folder / "_SUCCESS").touch()


def growth(days: int, runs: int) -> dict[str, float]:
    """Return the seconds of plans with one day and with many days, and their ratio."""
    with tempfile.TemporaryDirectory() as directory:
        files = [placed(Path(directory, name)) for name in ("one", "many") if not Path(directory, name).mkdir()]
        for file in files:
            seconds_of_plan(file)  # fills the caches
        add_days(files[1].parent / "warehouse", days)
        merging = seconds_of_plan(files[1])
        one, many = zip(*([seconds_of_plan(file) for file in files] for _ in range(runs)), strict=True)
    return _figures(days, merging, one, many)


def _figures(days: int, merging: float, one: Sequence[float], many: Sequence[float]) -> dict[str, float]:
    return {
        f"growth_at_{days}_days": round(statistics.median(many) / statistics.median(one), 3),
        "seconds_with_one_day": round(statistics.median(one), 1),
        f"seconds_with_{days}_days": round(statistics.median(many), 1),
        "seconds_of_the_first_plan_after": round(merging, 1),
    }


def main() -> None:
    """Print the figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=3, help="plans of each warehouse; medians are compared")
    arguments = parser.parse_args()
    print(json.dumps(growth(arguments.days, arguments.runs)))


if __name__ == "__main__":
    main()
