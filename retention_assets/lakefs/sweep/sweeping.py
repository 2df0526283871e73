"""Sweeps lakeFS repositories: executes the day's plan, with the liveness checks of lakeFS."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from retention_assets.config.durations import format_duration
from retention_assets.core.amounts import Amount
from retention_assets.core.liveness import Liveness
from retention_assets.lakefs.source.opening import OpenRepository
from retention_assets.lakefs.sweep.guards import require_no_old_names, require_own_names
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, LivenessQuery
from retention_assets.lakefs.sweep.memory import last_read_at, read_memory
from retention_assets.lakefs.sweep.results import rule_statistics, write_statistics
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.rules import Policy
from retention_assets.state.lease import Lease
from retention_assets.state.plan import Plan
from retention_assets.sweep.engine import Directories, RepositorySweep
from retention_assets.sweep.sweep_run import Report, Sweep, planned_as_approved, require_unchanged, swept
from retention_assets.warehouse.table_cache import TableCache


def report(sweep: Sweep[OpenRepository], *, execute: bool = True, plan_hash: str = "") -> Report:
    """Return the report of the day's plan. With `execute`, sweep the plan first, unless the mode is `plan`.

    Errors: GuardRefused if `plan_hash` is not empty and the plan has another hash.
    """
    return swept(sweep, LakeFSRepositorySweep, execute=execute, plan_hash=plan_hash)


class LakeFSRepositorySweep(RepositorySweep):
    """The sweep of a plan of a lakeFS repository; see `RepositorySweep`. It does not change the history."""

    history_changes = 0
    publishes = False

    def __init__(self, sweep: Sweep[OpenRepository], plan: Plan) -> None:
        """Errors: GuardRefused if the plan, its policy or its location is not as approved, or if clocks differ."""
        self._sweep, self.plan = sweep, plan
        self._started = sweep.clock()
        policy = sweep.opened.policy()  # liveness checks use the same policy that is compared with the plan
        self.candidates, self._heads = planned_as_approved(sweep, plan, policy.policy_hash)
        self.access, self.layout = sweep.opened.access, Directories()
        self.dump = dump_of(sweep)
        cache = TableCache(sweep.spark, sweep.warehouse, sweep.name, self.access, sweep.run_id)
        self._liveness = LakeFSLiveness(sweep.spark, cache, liveness_query(sweep, policy), sweep.clock)

    def require_same(self) -> None:
        """See `RepositorySweep`. Also refuses objects with old names that may be staged, or of another system."""
        self._sweep.others.require_known()
        references, settings = self._liveness.require_same(self.plan, self._heads), self._sweep.opened.repository.lakefs
        if references.hides_old_objects(of_dump=settings.source.dump is not None):
            require_no_old_names(self.plan, self.candidates)
        if not settings.legacy_names:
            require_own_names(self.plan, self.candidates, references, self._liveness.entries)

    def live_now(self) -> Liveness:
        """See `RepositorySweep`. Refuses a policy or settings that were changed during the sweep."""
        require_unchanged(self.plan, self._sweep.opened)
        return self._liveness.now()

    def live_after_edits(self) -> None:
        """See `RepositorySweep`."""

    def publish(self, lease: Lease) -> None:
        """See `RepositorySweep`."""

    def finish(self, outcomes: Mapping[str, Amount], ledger: DataFrame) -> None:
        """See `RepositorySweep`. Writes statistics if `write_results` is set."""
        sweep = self._sweep
        if sweep.opened.repository.lakefs.write_results:
            ended = ledger.where(f"outcome != '{Outcome.ATTEMPTED}'")
            statistics = rule_statistics(self.candidates, ended, sweep.run_id, self.plan.plan_hash, self._started)
            write_statistics(self.access, sweep.day, statistics)

    def release(self) -> None:
        """See `RepositorySweep`."""
        self._liveness.release()


def dump_of(sweep: Sweep[OpenRepository]) -> Mapping[str, str] | None:
    """Return the time of the dump and its maximum age, for the record; None when a server gives the references."""
    oldest = sweep.opened.repository.lakefs.source.oldest_dump
    if oldest is None:
        return None
    taken_at = sweep.opened.source.references().taken_at
    return {"taken_at": taken_at.isoformat(), "dump_age": format_duration(oldest)}


def liveness_query(sweep: Sweep[OpenRepository], policy: Policy) -> LivenessQuery:
    """Return the query of the repository's liveness checks. The verification uses the same query."""
    memory = read_memory(sweep.warehouse, sweep.name, sweep.opened.repository.lakefs)
    last = memory.seen_at or last_read_at(sweep.warehouse, sweep.name)
    return LivenessQuery(sweep.opened, policy, sweep.day, memory, last)
