"""The live objects of a repository of either kind, read before a purge deletes the last copy of an object."""

from collections.abc import Sequence
from functools import cached_property
from typing import Self

from pyspark.sql import DataFrame

from retention_assets.config.configuration import Repository
from retention_assets.core.liveness import Liveness
from retention_assets.errors import naming
from retention_assets.icechunk.source.opening import OpenIcechunk, open_icechunk
from retention_assets.icechunk.sweep.verification import files_to_spare
from retention_assets.lakefs.source.opening import OpenRepository, open_repository
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, LivenessQuery
from retention_assets.lakefs.sweep.memory import last_read_at, read_memory
from retention_assets.policy.rules import Policy
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.ledger import plans_with_ledgers, read_ledgers
from retention_assets.sweep.copies import Undo
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.warehouse.table_cache import TableCache


class LiveNow:
    """The live addresses of a repository, for a purge in a `with` block; see `LiveAddresses`.

    The first call opens the source. Later calls do not read the same files again, and use the day of the first call,
    unless the policy of a lakeFS repository was changed. Each call reads the policy, because someone may add a hold
    during a purge. References of `others` count only for objects that sweeps of this repository worked on. The end of
    the block releases the rows of the last call.
    """

    def __init__(self, undo: Undo, others: Sequence[Repository]) -> None:
        self._undo = undo
        self._others = OtherRepositories(undo.spark, undo.warehouse, undo.repository, others, undo.run_id, undo.clock)
        self._rows: DataFrame | None = None  # the rows of the last call
        self._liveness: LakeFSLiveness | None = None  # of the last call
        self._policy_hash = ""  # of the policy of `_liveness`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release_rows()
        self._others.release()
        self._release_liveness()

    def now(self) -> DataFrame:
        """See `LiveAddresses`. Errors: also the errors of the source and the store."""
        self._others.require_known()
        self._undo.log(f"{self._undo.repository.name}: checking which objects are live")
        self._release_rows()
        if self._undo.repository.is_icechunk:
            with naming(self._undo.repository.name):
                live = files_to_spare(self._sweep).cache()
        else:
            liveness = self._under_policy(self._opened.policy())
            live = liveness.now().live.cache()
            live.count()  # fills the cache: the rows cannot be read after `close`
            liveness.close()
        self._rows = live
        return self._others.extended(Liveness(live, live, self._undo.clock()), self._worked_on).live

    def _release_rows(self) -> None:
        if self._rows is not None:
            self._rows.unpersist()
            self._rows = None

    def _release_liveness(self) -> None:
        if self._liveness is not None:
            self._liveness.release()
            self._liveness = None

    @cached_property
    def _opened(self) -> OpenRepository:
        return open_repository(self._undo.repository, self._undo.clock)

    def _under_policy(self, policy: Policy) -> LakeFSLiveness:
        """Return the liveness check of the last call, or a new one if the policy was changed since."""
        if self._liveness is None or policy.policy_hash != self._policy_hash:
            self._release_liveness()
            undo = self._undo
            cache = TableCache(undo.spark, undo.warehouse, undo.repository.name, self._opened.access, undo.run_id)
            memory = read_memory(undo.warehouse, undo.repository.name, undo.repository.lakefs)
            last = memory.seen_at or last_read_at(undo.warehouse, undo.repository.name)
            query = LivenessQuery(self._opened, policy, undo.clock().date(), memory, last)
            self._policy_hash, self._liveness = policy.policy_hash, LakeFSLiveness(undo.spark, cache, query, undo.clock)
        return self._liveness

    @cached_property
    def _sweep(self) -> Sweep[OpenIcechunk]:
        undo = self._undo
        opened, day = open_icechunk(undo.repository, undo.clock), undo.clock().date()
        return Sweep(undo.spark, undo.warehouse, opened, day, undo.run_id, undo.log, undo.clock)

    @cached_property
    def _worked_on(self) -> DataFrame:
        warehouse, name = self._undo.warehouse, self._undo.repository.name
        return read_ledgers(self._undo.spark, warehouse, name, plans_with_ledgers(warehouse, name))
