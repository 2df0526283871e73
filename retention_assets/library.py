"""The library for notebooks and scripts: plan, explain and compare. Nothing here approves or deletes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Console

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import ConfigurationError
from retention_assets.explain.explanations import Explanation
from retention_assets.explain.status import RepositoryStatus, statuses
from retention_assets.state.plan import Plan, find_plan, load_plan
from retention_assets.tables import DELETION_CANDIDATES
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # imported only when needed: status and explain need neither Spark nor Dagster
    from pyspark.sql import DataFrame, SparkSession

    from retention_assets.lakefs.sweep.diff import Difference, Outlook

_PLANNING = Lock()  # one plan at a time: plans change settings of the Spark session, which all threads share


def load(file: str | Path | None = None) -> "Lake":
    """Return the repositories of a `retention.yaml`, or of a `defs.yaml` of a Dagster project.

    `file`: default is the value of the environment variable RETENTION_CONFIG, or else `./retention.yaml`.
    Errors: ConfigurationError with a line for each problem: file, key and reason.
    """
    return Lake(load_configuration(Path(file or os.environ.get("RETENTION_CONFIG") or "retention.yaml")))


@dataclass(frozen=True, slots=True)
class Lake:
    """All repositories of one configuration."""

    configuration: Configuration = field(repr=False)

    @property
    def names(self) -> Sequence[str]:
        """The names of the repositories."""
        return tuple(self.configuration.repositories)

    def __getitem__(self, name: str) -> "LakeRepository":
        """Return the repository with this name. Errors: ConfigurationError that lists the known names."""
        return LakeRepository(self.configuration.repository(name).name, self.configuration)

    def status(self, *names: str) -> list[RepositoryStatus]:
        """Return the status of these repositories (default: all) from the warehouse. `.document()` of each is JSON."""
        return statuses(self.configuration, names or self.names, utc_now())


@dataclass(frozen=True, slots=True)
class LakeRepository:
    """One repository. All methods raise the errors of `retention_assets.errors`.

    Days are dates in UTC. Each `day` can also be a `datetime`, which stands for its day.
    """

    name: str
    configuration: Configuration = field(repr=False)

    def plan(self, day: date | None = None, *, full: bool = False, progress: bool = True) -> Plan:
        """Plan what may be deleted, and return the plan. Deletes no data.

        The method uses the existing Spark session. If there is none, it starts one with the configuration's settings.
        If several threads of a process plan, their plans run one after another.

        Args:
            day: the day of the plan (UTC); default: today. The policy applies as of the start of this day.
            full: do not use the cache: read all metaranges and ranges (Icechunk: snapshots and manifests) again.
            progress: show progress and logs on standard error.

        Errors: GuardRefused with each guard that refused and its remedy; errors of the sources and the store.
        """
        from retention_assets.assets.runs import FULL, plan_job
        from retention_assets.cli.runs import run_job

        day = _day(day) or utc_now().date()
        console = Console(stderr=True, quiet=not progress)
        with _PLANNING:
            run_job(self.configuration, self.name, plan_job(self.name), day, console, {FULL: "true"} if full else None)
            return load_plan(self._warehouse, self.name, day)

    def newest_plan(self, day: date | None = None) -> Plan:
        """Return the plan of a day; default: the newest valid plan. Errors: GuardRefused if there is no such plan."""
        from retention_assets.explain.plans import newest_plan

        return newest_plan(self._warehouse, self.configuration.repository(self.name), _day(day))[0].plan

    def candidates(self, day: date | None = None) -> pa.Table:
        """Return the objects that a plan may delete, with reasons: the rows of `deletion_candidates`.

        `day`: as `newest_plan`. `table("due_objects")` also has the objects that are due and still wait.
        """
        return self.table(DELETION_CANDIDATES.name, self.newest_plan(day).day)

    def candidates_frame(self, day: date | None = None, spark: "SparkSession | None" = None) -> "DataFrame":
        """Return the objects that a plan may delete as a Spark DataFrame, for plans that do not fit into memory.

        `spark`: default is the existing session, or else a new session with the configuration's settings.
        Errors: as `newest_plan`; GuardRefused if the stored rows are not those of the plan.
        """
        from retention_assets.state.plan import planned_objects

        return planned_objects(spark or self._session(), self._warehouse, self.newest_plan(day))

    def table(self, name: str, day: date | None = None) -> pa.Table:
        """Return a table of a day, sorted by key; `day`: default is the day of the newest plan.

        Errors: ConfigurationError for an unknown name; TableContractError if the table was not made.
        """
        from retention_assets.cli.rendering import open_table, require_table

        require_table(self.configuration.repository(self.name), name)
        return open_table(self._warehouse, self.name, name, _day(day) or self.newest_plan().day)

    def explain(self, asked: str, day: date | None = None) -> Explanation:
        """Return why an object, commit or file is kept and until when, or why it is gone. Reads only the warehouse.

        `asked`: a path, address or commit; for Icechunk a snapshot, manifest or chunk. `day`: as `newest_plan`.
        `.document()` of the result is JSON.
        """
        from retention_assets.explain.explaining import explain

        return explain(self.configuration, self.name, asked, _day(day))

    def diff(self, first: str, second: str, spark: "SparkSession | None" = None) -> "Difference":
        """Return the difference between two plans, given by their hashes or by the beginnings of their hashes.

        `rows` of the result is a Spark DataFrame with the objects that only one of the plans has, or that they have for
        different reasons or rules. `changes` has the amounts. `release()` removes the objects from Spark's cache.
        """
        from retention_assets.lakefs.sweep.diff import compare_plans

        plans = [find_plan(self._warehouse, self.name, start) for start in (first, second)]
        have_paths = not self.configuration.repository(self.name).is_icechunk
        return compare_plans(spark or self._session(), self._warehouse, *plans, have_paths=have_paths)

    def outlook(self, policy: str | Path | Sequence[str | Path], day: date | None = None) -> "Outlook":
        """Return what another policy would change in a plan of lakeFS. `policy`: its file or files.

        `day`: as `newest_plan`. `check_results` of the result shows whether a guard would refuse the plan.
        Errors: as `newest_plan`; ConfigurationError if a policy file is invalid, or for an Icechunk repository.
        """
        from retention_assets.cli.comparing import outlook_of

        day = self.newest_plan(day).day
        files = [policy] if isinstance(policy, str | Path) else policy
        return outlook_of(self.configuration, self.name, day, [Path(file) for file in files])[0]

    @property
    def _warehouse(self) -> Warehouse:
        return Warehouse(self.configuration.warehouse)

    def _session(self) -> "SparkSession":
        from retention_assets.spark.sessions import started

        return started(self.configuration.spark)


def _day(given: object) -> date | None:
    """Return the day that a caller gave, in UTC. Errors: ConfigurationError if it is neither a date nor a datetime."""
    if isinstance(given, datetime):  # a pandas Timestamp, too
        return (given.astimezone(UTC) if given.tzinfo else given).date()
    if given is None or isinstance(given, date):
        return given
    raise ConfigurationError(
        f"{given!r} is not a day. Nothing was read or deleted. Give a date, such as `datetime.date(2026, 11, 1)`."
    )
