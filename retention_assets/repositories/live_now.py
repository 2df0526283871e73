"""The live objects of a repository of either kind, read before a purge deletes the last copy of an object."""

from collections.abc import Sequence
from functools import cached_property
from typing import Self

from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import Clock
from retention_assets.core.liveness import Liveness
from retention_assets.icechunk.source.opening import OpenIcechunk, open_icechunk
from retention_assets.icechunk.sweep.verification import files_to_spare
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, LivenessQuery
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.ledger import plans_with_ledgers, read_ledgers
from retention_assets.sweep.execute import Log
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.warehouse import Warehouse


class LiveNow:
    """The live addresses of a repository, for the time of a `with` block; see `LiveAddresses`.

    The first call opens the source; later calls do not read the same files again. All calls use the policy and the day
    of the first call. References of `others` count only for objects that sweeps of this repository worked on. The end
    of the block releases the rows of the last call.
    """

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        repository: Repository,
        others: Sequence[Repository],
        run_id: str,
        log: Log,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._repository = repository
        self._elsewhere = OtherRepositories(spark, warehouse, repository, others, run_id, clock)
        self._run_id = run_id
        self._log = log
        self._clock = clock
        self._rows: DataFrame | None = None  # the rows of the last call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release_rows()
        self._elsewhere.release()
        if "_liveness" in self.__dict__:  # a call opened it
            self._liveness.release()

    def now(self) -> DataFrame:
        """See `LiveAddresses`. Errors: also those of the source and the store."""
        self._elsewhere.require_known()
        self._log(f"{self._repository.name}: checking which objects are live")
        self._release_rows()
        if self._repository.is_icechunk:
            kept = files_to_spare(self._sweep).cache()
        else:
            kept = self._liveness.now().live.cache()
            kept.count()  # fills the cache: the rows cannot be read after `close`
            self._liveness.close()
        self._rows = kept
        return self._elsewhere.extended(Liveness(kept, kept, self._clock()), self._worked_on).live

    def _release_rows(self) -> None:
        if self._rows is not None:
            self._rows.unpersist()
            self._rows = None

    @cached_property
    def _liveness(self) -> LakeFSLiveness:
        opened = open_repository(self._repository, self._clock)
        cache = TableCache(self._spark, self._warehouse, self._repository.name, opened.access, self._run_id)
        memory = read_memory(self._warehouse, self._repository.name, self._repository.lakefs)
        query = LivenessQuery(opened, opened.policy(), self._clock().date(), memory)
        return LakeFSLiveness(self._spark, cache, query, self._clock)

    @cached_property
    def _sweep(self) -> Sweep[OpenIcechunk]:
        opened = open_icechunk(self._repository, self._clock)
        day = self._clock().date()
        return Sweep(self._spark, self._warehouse, opened, day, self._run_id, self._log, self._clock)

    @cached_property
    def _worked_on(self) -> DataFrame:
        name = self._repository.name
        return read_ledgers(self._spark, self._warehouse, name, plans_with_ledgers(self._warehouse, name))
