"""What a repository of either kind keeps now: asked before the last bytes of an object go.

Source: DESIGN.md, invariants 1 and 5.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import Repository
from retention_assets.config.instants import Clock
from retention_assets.core.liveness import Liveness
from retention_assets.icechunk.source.opening import open_icechunk
from retention_assets.icechunk.sweep.proof import files_kept
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, Question
from retention_assets.lakefs.sweep.memory import read_memory
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.ledger import plans_with_ledgers, read_ledgers
from retention_assets.state.table_cache import TableCache
from retention_assets.state.warehouse import Warehouse
from retention_assets.sweep.attempt import Sweep
from retention_assets.sweep.execute import Log


def kept_now(
    spark: SparkSession,
    warehouse: Warehouse,
    repository: Repository,
    others: Sequence[Repository],
    run_id: str,
    log: Log,
    clock: Clock,
) -> DataFrame:
    """Return what must stay (column `address`), as a sweep's look tells it; of Icechunk every file is read anew.

    Of what `others` refer to, the objects count that sweeps of this repository worked on.
    Errors: GuardRefused when it is not known; of the source and the store, where something cannot be read.
    """
    elsewhere = OtherRepositories(spark, warehouse, repository, others, run_id, clock)
    elsewhere.require_known()
    kept = _kept_here(spark, warehouse, repository, run_id, log, clock)
    worked_on = read_ledgers(spark, warehouse, repository.name, plans_with_ledgers(warehouse, repository.name))
    return elsewhere.added_to(Liveness(kept, kept, clock()), worked_on).live


def _kept_here(
    spark: SparkSession, warehouse: Warehouse, repository: Repository, run_id: str, log: Log, clock: Clock
) -> DataFrame:
    log(f"{repository.name}: looking at what is live")
    day = clock().date()
    if repository.is_icechunk:
        opened = open_icechunk(repository, clock)
        return files_kept(Sweep(spark, warehouse, opened, day, run_id, log, clock), opened.source.state())
    of_lakefs = open_repository(repository, clock)
    cache = TableCache(spark, warehouse, repository.name, of_lakefs.access, run_id)
    memory = read_memory(warehouse, repository.name, repository.lakefs)
    question = Question(of_lakefs, of_lakefs.policy(), day, memory)
    liveness = LakeFSLiveness(spark, cache, question, clock)
    live = liveness.now().live.cache()
    live.count()  # after `close` it could not be read again
    liveness.close()
    return live
