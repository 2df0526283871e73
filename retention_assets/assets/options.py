"""The options of runs that a person sets in Dagster's launchpad. Secrets are never options: Dagster shows options."""

import dagster as dg
from pydantic import Field

from retention_assets.assets.jobs import SWEEP, sweep_job
from retention_assets.config.configuration import Configuration
from retention_assets.config.durations import parse_span

FULL = "retention/full"  # a run with this tag ("true") reuses no files that earlier runs read
USER = "user"  # the tag of a run that names the person who started it, where Dagster knows them
_TRUE = "true"


class ReadOptions(dg.Config):
    """The options of an asset that reads tables of the repository."""

    full: bool = Field(default=False, description="Read every table file again, whatever earlier runs read.")

    def reads_all(self, run: dg.DagsterRun) -> bool:
        """Return whether the run reuses no files that earlier runs read."""
        return self.full or run.tags.get(FULL) == _TRUE


class SweepOptions(dg.Config):
    """The options of the asset that deletes."""

    execute: bool = Field(default=False, description="Execute the approved plan. The sweep job always does.")
    plan_hash: str = Field(default="", description="Only report or execute the plan with this hash. Empty: any plan.")
    dump_age: str = Field(default="", description="Sweep from a dump that is up to so old, such as 12h.")

    def may_sweep(self, run: dg.DagsterRun, repository: str) -> bool:
        """Return whether the run was started to sweep: by the sweep job, its schedule, an option or the tag `SWEEP`."""
        return self.execute or run.job_name == sweep_job(repository) or run.tags.get(SWEEP) == _TRUE

    def applied_to(self, configuration: Configuration, repository: str) -> Configuration:
        """Return the configuration with the `dump_age` of this run. Errors: ConfigurationError."""
        return configuration.with_dump_age(repository, parse_span(self.dump_age)) if self.dump_age else configuration
