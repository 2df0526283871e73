"""Seconds of `retention explain` on a repository of 10^6 entries, each in a process of its own.

The benchmark writes the tables directly into a warehouse, as a plan writes them. For comparison, another process reads
the same tables completely. `explain` reads only the rows and columns that it needs.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from rich.console import Console
from rich.table import Table

from retention_assets.core.amounts import Amount
from retention_assets.policy.rules import CommittedRetention, Policy
from retention_assets.state.plan import Heads, Plan, keep_plan
from retention_assets.state.policies import keep_policy
from retention_assets.tables import (
    ADDRESSES,
    CACHED_METARANGES,
    CACHED_RANGES,
    COMMIT_GRAPH,
    DELETION_CANDIDATES,
    LEDGER,
    STORAGE_INVENTORY,
    UNCOMMITTED_OBJECTS,
)
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse

NAME = "lake"
NOW = datetime(2026, 11, 1, 4, tzinfo=UTC)
ADDED = NOW - timedelta(days=90)
IN_RANGE, COMMITS, SWEPT = 1000, 200, 100_000  # entries of a range; commits; objects that an earlier sweep deleted
_LEDGER_FILES = 200
_WHOLE = """
import sys, pyarrow.dataset as ds
for directory in sys.argv[1:]:
    ds.dataset(directory, format="parquet").to_table()
"""
_EXPLAIN = "from retention_assets.cli.main import main; main()"


def address(number: int) -> str:
    """Return an address like those of lakeFS. Addresses of consecutive numbers are not in order."""
    digits = hashlib.sha256(str(number).encode()).hexdigest()
    return f"data/{digits[:20]}/{digits[20:40]}"


def path(number: int) -> str:
    """Return the path of an entry."""
    return f"tables/events/part-{number:09d}.parquet"


class Made:
    """A warehouse with the tables of one plan."""

    def __init__(self, directory: Path, entries: int) -> None:
        self.file = directory / "retention.yaml"
        self.entries = entries
        repository = {
            "kind": "lakefs",
            "namespace": "s3://lake/main",
            "storage": "objects",
            "source": {"dump": "dump.json"},
            "policy": ["policy.json"],
            "mode": "quarantine",
        }
        self.file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {NAME: repository}}))
        self.root = directory / "warehouse"
        self.warehouse = Warehouse(str(self.root))
        self.addresses = [address(number) for number in range(entries)]
        self._write_tables()
        self._write_cache()
        self._write_plan()
        self._write_ledger()

    @property
    def tables(self) -> list[str]:
        """The directories that `explain` reads."""
        names = [STORAGE_INVENTORY.name, ADDRESSES.name, COMMIT_GRAPH.name, CACHED_RANGES, CACHED_METARANGES]
        return [str(self.root / NAME / name) for name in [*names, "planned_objects", "ledger"]]

    def _write(self, rows: pa.Table, *parts: str) -> None:
        directory = self.root.joinpath(NAME, *parts)
        directory.mkdir(parents=True)
        half = -(-rows.num_rows // 2)
        for number in range(2):  # as two tasks of Spark write them
            pq.write_table(rows.slice(number * half, half), directory / f"part-{number}.parquet")
        (directory / "_SUCCESS").touch()

    def _write_tables(self) -> None:
        many = self.entries
        empty = pa.array([[]] * many, ADDRESSES.schema.field("rule_ids").type)
        main = pa.array([["main"]] * many, empty.type)
        times, yes, no = pa.repeat(ADDED, many), pa.repeat(True, many), pa.repeat(False, many)
        inventory = [
            self.addresses,
            pa.repeat(1000, many),
            times,
            pa.nulls(many, pa.string()),
            pa.repeat("listing", many),
        ]
        pairs = [
            *(self.addresses, [path(number) for number in range(many)], pa.repeat(1000, many), main, times, times, yes),
            *([f"range-{number // IN_RANGE}" for number in range(many)], no, pa.nulls(many, times.type)),
            *(empty, times, yes, empty, pa.repeat("", many)),
        ]
        commits = [f"{number:064x}" for number in range(COMMITS)]
        graph = [
            {
                "commit_id": commit,
                "parents": [commits[number - 1]] if number else [],
                "main_parent": commits[number - 1] if number else None,
                "created_at": ADDED + timedelta(hours=10 * number),
                "metarange_id": f"metarange-{number}",
                "branches": ["main"],
                "head_of": ["main"] if number == COMMITS - 1 else [],
                "tags": [],
                "dangling": False,
            }
            for number, commit in enumerate(commits)
        ]
        for table, rows in (
            (STORAGE_INVENTORY, self._cast(inventory, STORAGE_INVENTORY.schema)),
            (ADDRESSES, self._cast(pairs, ADDRESSES.schema)),
            (COMMIT_GRAPH, pa.Table.from_pylist(graph, COMMIT_GRAPH.schema)),
            (UNCOMMITTED_OBJECTS, UNCOMMITTED_OBJECTS.schema.empty_table()),
        ):
            self._write(rows, table.name, NOW.date().isoformat())
            metadata = PartitionMetadata(NOW, rows.num_rows, "a-run", Details(known=True))
            self.warehouse.write_metadata(NAME, table.name, NOW.date(), metadata)

    @staticmethod
    def _cast(columns: list[object], schema: pa.Schema) -> pa.Table:
        arrays = [pa.array(one) if isinstance(one, list) else one for one in columns]
        return pa.table([one.cast(field.type) for one, field in zip(arrays, schema, strict=True)], schema=schema)

    def _write_cache(self) -> None:
        batch, many = "00000001-a-run", self.entries
        ranges = [f"range-{number // IN_RANGE}" for number in range(many)]
        entries = {
            "range_id": ranges,
            "key": [path(number) for number in range(many)],
            "address": self.addresses,
            "address_type": pa.repeat(1, many).cast(pa.int8()),
        }
        each = -(-many // IN_RANGE)
        of_commits = [(f"metarange-{commit}", f"range-{one}") for commit in range(COMMITS) for one in range(each)]
        metarange_rows = {"metarange_id": [one for one, _ in of_commits], "range_id": [one for _, one in of_commits]}
        for kind, rows in ((CACHED_RANGES, entries), (CACHED_METARANGES, metarange_rows)):
            self._write(pa.table(rows), kind, batch)
            self._write(pa.table({"id": ["one"]}), f"{kind}_ids", batch)

    def _write_plan(self) -> None:
        policy = Policy(CommittedRetention((), timedelta(days=30), True), (), ())
        keep_policy(self.warehouse, NAME, policy)
        none = Amount(0, 0)
        plan = Plan(
            repository=NAME,
            day=NOW.date(),
            plan_hash=hashlib.sha256(b"plan").hexdigest(),
            policy_hash=policy.policy_hash,
            policy_run="a-run",
            references_hash="",
            candidates=none,
            totals={"kept": Amount(self.entries, 1000 * self.entries)},
            live=self.entries,
            collected=0,
            warnings=(),
            blocked=None,
            instance=None,
            made_at=NOW,
            run_id="a-run",
        )
        keep_plan(self.warehouse, plan)
        self.warehouse.write_document(asdict(Heads({}, {})), NAME, "planned_heads", f"{plan.plan_hash}.json")
        self._write(DELETION_CANDIDATES.schema.empty_table(), "planned_objects", plan.plan_hash)

    def _write_ledger(self) -> None:
        """Write the plan and the ledger of a sweep that removed objects a week before."""
        swept, names = hashlib.sha256(b"swept").hexdigest(), [address(-number) for number in range(1, SWEPT + 1)]
        planned = {
            "address": names,
            "size": pa.repeat(1000, SWEPT),
            "reason": pa.repeat("expired", SWEPT),
            "rule_ids": [["retention:default"]] * SWEPT,
        }
        self._write(pa.table(planned), "planned_objects", swept)
        directory = (
            self.root / NAME / "ledger" / (NOW.date() - timedelta(days=7)).isoformat() / swept / "00000001-a-sweep"
        )
        directory.mkdir(parents=True)
        each = SWEPT // _LEDGER_FILES
        for number in range(_LEDGER_FILES):
            some = names[number * each : (number + 1) * each]
            columns = [some, pa.repeat(1000, each), pa.repeat("deleted", each), pa.nulls(each, pa.string())]
            rows = self._cast([*columns, pa.repeat(NOW, each), pa.repeat(1, each)], LEDGER)
            pq.write_table(rows, directory / f"{number}-{each}-done.parquet")


def seconds(*command: str) -> float:
    """Return the seconds of the fastest of three processes that run this code."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", *command], check=True, stdout=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    return min(took)


def main() -> None:
    """Print one row for each kind of name that `explain` takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    entries = parser.parse_args().entries
    table = Table(title=f"retention explain, {entries:,} entries")
    for column in ("explained", "seconds", "complete tables, seconds", "ratio"):
        table.add_column(column)
    with tempfile.TemporaryDirectory() as directory:
        made = Made(Path(directory), entries)
        whole = seconds(_WHOLE, *made.tables)
        for kind, asked in (
            ("an address", made.addresses[entries // 3]),
            ("a path", path(entries // 2)),
            ("a commit", f"{COMMITS // 2:064x}"),
            ("a removed object", address(-SWEPT // 2)),
        ):
            took = seconds(_EXPLAIN, "--config", str(made.file), "explain", NAME, asked)
            table.add_row(kind, f"{took:.2f}", f"{whole:.2f}", f"{whole / took:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
