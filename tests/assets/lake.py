"""A saved repository with a configuration and a warehouse of its own, planned by real Dagster runs."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from retention_assets.assets.runs import failure_of, plan_job
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.definitions import build_definitions
from retention_assets.tables import TABLES
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.clocks import GivenClock
from tests.saved_repositories import api, copy_saved_repository, policy_file

DAY = "2026-11-01"  # the day that every expected file counts from
NOW = datetime(2026, 11, 22, tzinfo=UTC)  # a day after the server wrote its dump

# Tables of external inputs and of the verification: their columns have no lineage to other tables.
NOT_COMPUTED = {
    *("policy_table", "storage_inventory", "uncommitted_objects", "commit_graph", "repository_history"),
    "deletion_proof",
}

SLICE, OBJECT = "fu2qb0hksduf3vibnmug", "db4lqvhksduf3vibnmv0"
FOREIGN = (  # foreign files of users, and names that lakeFS's own collection takes for garbage
    "README.md",
    "dummy",
    "0123456789ABCDEF0123456789ABCDEF",
    "data/report.csv",
    "data/2026/11/report.csv",
    f"data/{SLICE}/report.csv",
    f"data/{SLICE}/{OBJECT}.tmp",
    f"data/other/data/{SLICE}/{OBJECT}",
    f"exports/data/{SLICE}/{OBJECT}",
)


# the assets of a plan, in their order
PLANNING_ASSETS = (
    "policy_table",
    "current_rules",
    "storage_inventory",
    "uncommitted_objects",
    "commit_graph",
    "potential_commits",
    "active_ranges",
    "addresses",
    "deletion_candidates",
)


@dataclass(frozen=True)
class Run:
    """The result of a run, with its materializations and checks."""

    success: bool
    steps: tuple[str, ...]  # the materialized assets, in their order
    checks: Mapping[str, bool]
    numbers: Mapping[str, Mapping[str, Any]]  # metadata by asset
    errors: str
    failure: str = ""  # the message of the command, if the run failed


def require_documented_tables(run: Run) -> None:
    """Require column descriptions, column lineage and the duration in the metadata of each materialized table."""
    for table in run.numbers.keys() & TABLES.keys():
        columns = run.numbers[table]["dagster/column_schema"].columns
        names = {one.name for one in columns}
        assert names == set(TABLES[table].schema.names), f"{table}: {names}"
        assert all(one.description and one.type for one in columns), table
        assert run.numbers[table]["seconds"] > 0, table
        lineage = run.numbers[table].get("dagster/column_lineage")
        assert (lineage is None) is (table in NOT_COMPUTED), table
        if lineage is not None:
            assert lineage.deps_by_column.keys() <= names, table
            assert all(lineage.deps_by_column.values()), table


@dataclass(frozen=True)
class Lake:
    """One repository below `root`. All paths of its configuration are relative, so that it can be copied."""

    name: str
    root: Path

    @property
    def namespace(self) -> Path:
        return self.root / "namespace"

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.configuration().warehouse)

    def configuration(self) -> Configuration:
        return load_configuration(self.root / "retention.yaml")

    def configure(self, **changes: object) -> None:
        """Write the configuration, with these keys of the repository changed."""
        (staged,) = (self.namespace / "_lakefs/retention/gc/uncommitted").glob("*/uncommitted")
        entry = {
            "kind": "lakefs",
            "settle": "0s",
            "namespace": f"s3://lake/{self.name}",
            "storage": "namespace",
            "source": {"dump": "dump.json", "dump_age": "3650d"},
            "staged": str(staged.relative_to(self.namespace)),
            "policy": "policy.json",
            **changes,
        }
        document = {"warehouse": "warehouse", "repositories": {self.name: entry}}
        (self.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def plan(self, **tags: str) -> Run:
        """Run the job that plans."""
        job = build_definitions(self.configuration(), clock=GivenClock(lambda: NOW)).resolve_job_def(
            plan_job(self.name)
        )
        return self._run(job, None, tags)

    def make(self, *assets: str) -> Run:
        """Materialize only these assets, as `dagster asset materialize --select` does."""
        job = build_definitions(
            self.configuration(), clock=GivenClock(lambda: NOW)
        ).resolve_implicit_global_asset_job_def()
        return self._run(job, [dg.AssetKey([self.name, asset]) for asset in assets])

    def _run(
        self, job: dg.JobDefinition, selection: Sequence[dg.AssetKey] | None, tags: Mapping[str, str] | None = None
    ) -> Run:
        with dg.DagsterInstance.ephemeral() as instance:
            ended = job.execute_in_process(
                partition_key=DAY, instance=instance, asset_selection=selection, raise_on_error=False, tags=tags
            )
            events = ended.get_asset_materialization_events()
            made = [event.step_materialization_data.materialization for event in events]
        checks = {event.check_name: event.passed for event in ended.get_asset_check_evaluations()}
        failures = [event.step_failure_data.error for event in ended.get_step_failure_events()]
        failure = "" if ended.success else str(failure_of(ended.all_events, job.name, ended.run_id))
        return Run(
            success=ended.success,
            steps=tuple(one.asset_key.path[-1] for one in made),
            checks=checks,
            numbers={one.asset_key.path[-1]: {key: value.value for key, value in one.metadata.items()} for one in made},
            errors="\n".join(error.to_string() for error in failures if error),
            failure=failure,
        )

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the day's partition of a table."""
        return pq.read_table(self.root / "warehouse" / self.name / name / DAY, columns=columns)

    def candidates(self, *reasons: str) -> set[tuple[str, int]]:
        """Return (address, size) of the candidates with one of these reasons, by default with any."""
        rows = self.table("deletion_candidates", ["address", "size", "reason"]).to_pylist()
        return {(row["address"], row["size"]) for row in rows if not reasons or row["reason"] in reasons}

    def plan_document(self) -> dict[str, Any] | None:
        """Return the day's plan, or None if there is no current one."""
        return self.warehouse.read_document(self.name, "plans", DAY, "current.json")

    def copy(self, root: Path) -> "Lake":
        """Return a copy in another directory, which a test may change. Files keep their times."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        name_storage(root, self.root)
        return Lake(self.name, root)


def name_storage(root: Path, before: Path) -> None:
    """Let the tables in the warehouse below `root`, a copy of `before`, name the copied storage."""
    for table in ("storage_inventory", "repository_history"):
        for path in (root / "warehouse").glob(f"*/{table}/*/{METADATA}"):
            written = path.stat()
            path.write_text(path.read_text("utf-8").replace(f"file://{before}/", f"file://{root}/"), encoding="utf-8")
            os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))


def new_lake(name: str, root: Path) -> Lake:
    """Return a saved repository with the rules of its server and some foreign files, all old, without a plan."""
    lake = Lake(name, root)
    copy_saved_repository(name, lake.namespace)
    for path in FOREIGN:
        put(lake, path, b"theirs")
    (root / "dump.json").write_text(json.dumps(api(name)["refs_dump"]), encoding="utf-8")
    (root / "policy.json").write_text(policy_file(name, "gc_rules.json").read_text("utf-8"), encoding="utf-8")
    lake.configure()
    return lake


def put(lake: Lake, path: str, content: bytes, written: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
    """Write a file below the namespace with the modification time `written`."""
    file = lake.namespace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    os.utime(file, (written.timestamp(), written.timestamp()))


def needed(definitions: dg.Definitions, sensor: str) -> dict[str, Any]:
    """Return the resources of the definitions that a sensor requires."""
    keys = definitions.get_repository_def().get_sensor_def(sensor).required_resource_keys
    return {key: definitions.resources[key] for key in keys}
