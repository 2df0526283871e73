"""An Icechunk repository made by icechunk, with a configuration and a warehouse of its own, run by Dagster jobs."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import yaml

from retention_assets.assets.runs import plan_job
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.definitions import build_definitions
from retention_assets.warehouse.warehouse import Warehouse
from tests.assets.lake import Run, name_storage
from tests.icechunk_repositories import Commit, Format, build_history, open_repository, set_stored_at

NAME = "field"
DAY = datetime.now(UTC).date()  # icechunk writes the current time into its files
AS_OF = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
LONG_AGO = AS_OF - timedelta(days=40)
POLICY = {"snapshots": {"default": {"keep_newer": "10d"}, "tags": [{"tag": "v*", "keep_newer": "forever"}]}}


def at(days_ago: float) -> datetime:
    """Return the time so many days before the planned day."""
    return AS_OF - timedelta(days=days_ago)


# root <- a <- b <- c <- d <- e (main);  b <- x (old, a branch);  c <- lost (no reference);  v1 -> a
COMMITS = (
    Commit("a", None, at(30)),
    Commit("b", "a", at(25)),
    Commit("c", "b", at(20)),
    Commit("d", "c", at(5)),
    Commit("e", "d", at(2)),
    Commit("x", "b", at(22)),
    Commit("lost", "c", at(19)),
)


@dataclass(frozen=True)
class IcechunkLake:
    """One repository below `root`; everything in its configuration is relative."""

    root: Path

    @property
    def directory(self) -> Path:
        return self.root / "repository"

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.configuration().warehouse)

    def configuration(self) -> Configuration:
        return load_configuration(self.root / "retention.yaml")

    def configure(
        self, policy: Mapping[str, Any] = POLICY, others: Mapping[str, Any] | None = None, **keys: Any
    ) -> None:
        """Write the policy and the configuration, with these keys of the repository."""
        (self.root / "policy.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")
        entry = {"kind": "icechunk", "storage": "repository", "policy": "policy.yaml", **keys}
        document = {"warehouse": "warehouse", "repositories": {NAME: entry, **(others or {})}}
        (self.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def run(self, job_name: str, *, tags: Mapping[str, str] | None = None) -> Run:
        """Run a job of the configuration for the day."""
        job = build_definitions(self.configuration()).resolve_job_def(job_name)
        return _run(job, tags, None)

    def plan(self, **tags: str) -> Run:
        """Run the job that plans."""
        return self.run(plan_job(NAME), tags=tags)

    def make(self, *assets: str) -> Run:
        """Materialize only these assets."""
        job = build_definitions(self.configuration()).resolve_implicit_global_asset_job_def()
        return _run(job, None, [dg.AssetKey([NAME, asset]) for asset in assets])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of the day's partition of a table."""
        return pq.read_table(self.root / "warehouse" / NAME / table / DAY.isoformat()).to_pylist()

    def candidates(self) -> dict[str, str]:
        """Return the reason of each candidate by its address."""
        return {row["address"]: row["reason"] for row in self.rows("deletion_candidates")}

    def plan_document(self) -> dict[str, Any] | None:
        """Return the day's plan, or None if there is no current one."""
        return self.warehouse.read_document(NAME, "plans", DAY.isoformat(), "current.json")

    def copy(self, root: Path) -> "IcechunkLake":
        """Return a copy of the repository and its warehouse in another directory. Files keep their times."""
        for name in ("repository", "warehouse", "policy.yaml", "retention.yaml"):
            source = self.root / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, root / name)
        name_storage(root, self.root)
        return IcechunkLake(root)

    def files(self) -> set[str]:
        """Return the names of all files of the repository."""
        return files_of(self.directory)


def new_icechunk_lake(
    root: Path,
    spec_version: Format,
    commits: Sequence[Commit],
    branches: Mapping[str, str | None],
    tags: Mapping[str, str | None] | None = None,
) -> tuple[IcechunkLake, dict[str, str]]:
    """Return a repository with this history and old files, and the ids of its snapshots by commit name."""
    lake = IcechunkLake(root)
    ids = build_history(lake.directory, spec_version, commits, branches, tags)
    set_stored_at(lake.directory, LONG_AGO)
    lake.configure()
    return lake, ids


def collected_by_icechunk(
    directory: Path, copy: Path, older_than: datetime, cutoff: datetime, **flags: bool
) -> set[str]:
    """Return the names of the files that icechunk's own expiration and garbage collection delete from a copy."""
    shutil.copytree(directory, copy)
    repository = open_repository(copy)
    repository.expire_snapshots(older_than)
    open_repository(copy).garbage_collect(cutoff)
    return files_of(directory) - files_of(copy)


def files_of(directory: Path) -> set[str]:
    """Return the names of all files below a directory."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def _run(job: dg.JobDefinition, tags: Mapping[str, str] | None, selection: Sequence[dg.AssetKey] | None) -> Run:
    with dg.DagsterInstance.ephemeral() as instance:
        ended = job.execute_in_process(
            partition_key=DAY.isoformat(), instance=instance, asset_selection=selection, tags=tags, raise_on_error=False
        )
        made = [event.step_materialization_data.materialization for event in ended.get_asset_materialization_events()]
    failures = [event.step_failure_data.error for event in ended.get_step_failure_events()]
    return Run(
        success=ended.success,
        steps=tuple(one.asset_key.path[-1] for one in made),
        checks={event.check_name: event.passed for event in ended.get_asset_check_evaluations()},
        numbers={one.asset_key.path[-1]: {key: value.value for key, value in one.metadata.items()} for one in made},
        errors="\n".join(error.to_string() for error in failures if error),
    )
