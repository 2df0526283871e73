"""Verifies a repository after sweeps: compares a new listing of the store with all references and the ledgers.

No check uses rows that an earlier run cached: snapshots and manifests are read again. Later runs use the rows of the
verification from the cache. References are read before the store is listed, so the listing must contain all files that
references keep. The checks change nothing in the store. Source: docs/safety.md, "Afterwards".
"""

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.config.timestamps import start_of_day
from retention_assets.core.amounts import counted
from retention_assets.core.guards import CheckResult
from retention_assets.errors import GuardRefused, RetentionError
from retention_assets.icechunk.formats.paths import TRANSACTIONS
from retention_assets.icechunk.rules.retention import LOST_UNREACHED
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.layout import icechunk_prefixes
from retention_assets.icechunk.sweep.reach import IcechunkSweep, current_cache, reach_of, unread_refusal
from retention_assets.icechunk.sweep.replaced import EarlierPlans, require_not_replaced
from retention_assets.icechunk.sweep.retained_set import RetainedSet, current_retained_set, held_ids
from retention_assets.objectstore.listing import list_objects
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.spark.frames import CachedFrames
from retention_assets.state.acknowledged import acknowledged_addresses, first_of, record_missing
from retention_assets.state.ledger import ABSENT
from retention_assets.sweep.sweep_run import verification_inputs
from retention_assets.sweep.verification import CHECKS_OF_SWEEPS, what_was_done

_NO_FILE_IS_YOUNG = datetime.max.replace(tzinfo=UTC)
CHECKS = ("references_resolve", "kept_exist", "logs_exist", *CHECKS_OF_SWEEPS)


def verify(sweep: IcechunkSweep) -> list[CheckResult]:
    """Return the results of all checks. The addresses of missing files are stored for `retention acknowledge`.

    Errors: of the source and the store, when something cannot be read at all.
    """
    inputs, access = verification_inputs(sweep), sweep.opened.access
    sweep = replace(sweep, day=inputs.newest_day(sweep.day))  # the holds in force on that day count
    acknowledged = acknowledged_addresses(sweep.spark, sweep.warehouse, sweep.name)
    with CachedFrames() as frames:
        state, kept = _kept_now(sweep, frames)
        ledger = frames.cache(inputs.ledger())  # before the listing: see `VerificationInputs.rows`
        listing = frames.cache(list_objects(sweep.spark, access, icechunk_prefixes(ObjectReader(access))))
        lost = acknowledged.join(listing, on="address", how="left_anti")
        exist, missing = kept_exist(kept, listing, ledger, lost)
        logs = logs_exist(kept, listing, ledger)
        if not (exist.passed and logs.passed) and (later := _changed_state(sweep, state)):
            # a sweep, or icechunk, may have removed snapshots from the history and deleted their files meanwhile
            still = frames.cache(kept.join(files_kept(sweep, later), on="address", how="left_semi"))
            exist, missing = kept_exist(still, listing, ledger, lost)
            logs = logs_exist(still, listing, ledger)
        gone = [] if exist.passed else first_of(missing)
        record_missing(sweep.warehouse, sweep.name, exist.guard, gone, sweep.clock())
        return [_references_resolve(state), exist, logs, *what_was_done(inputs, listing, ledger)]


def _kept_now(sweep: IcechunkSweep, frames: CachedFrames) -> tuple[IcechunkState, DataFrame]:
    """Return the state of the repository and the `files_kept`. If the state changed during the reading, read again."""
    state = sweep.opened.source.state()
    try:
        return state, frames.cache(files_kept(sweep, state))
    except RetentionError:
        later = _changed_state(sweep, state)  # a sweep may have deleted a snapshot before it was read
        if later is None:
            raise
    return later, frames.cache(files_kept(sweep, later))


def _changed_state(sweep: IcechunkSweep, before: IcechunkState) -> IcechunkState | None:
    """Return the current state of the repository if its snapshots or references are not those of `before`."""
    now = sweep.opened.source.state()
    return None if now.history == before.history else now


def files_kept(sweep: IcechunkSweep, state: IcechunkState) -> DataFrame:
    """Return the addresses of all files that must exist because of references and holds.

    Every snapshot and manifest is read again. The age of a file alone keeps nothing here. A file that is acknowledged
    as lost and missing cannot be read, so the files that only this file references are left out.
    """
    cache = current_cache(sweep, full=True)
    return reach_of(sweep.spark, cache, _current_set_of(sweep, state, _NO_FILE_IS_YOUNG)).required()


def files_to_spare(sweep: IcechunkSweep) -> DataFrame:
    """Return the addresses of all files that are needed if no snapshot expires, also of files that need not exist.

    These are the files that references and holds keep, and the files that snapshots younger than the grace period need.
    In format 2, they are also the files that any snapshot in the repo object needs.
    A restored snapshot is young, and its manifests and chunks may still be in quarantine.
    Snapshots and manifests that earlier runs read are not read again, so the content of a lost file is known from such
    a run. Errors: GuardRefused if a needed file is lost that no run ever read, and as `require_not_replaced`.
    """
    state = sweep.opened.source.state()
    cutoff = state.taken_at - sweep.opened.repository.settings.grace
    if state.repo is not None:
        plans = EarlierPlans(sweep.warehouse, sweep.name, state.taken_at)
        require_not_replaced(ObjectReader(sweep.opened.access), state.repo, plans, cutoff)
    reach = reach_of(sweep.spark, current_cache(sweep), _current_set_of(sweep, state, cutoff))
    if reach.unread:
        raise GuardRefused(
            f"{sweep.name}: {unread_refusal(reach.unread)} Nothing was deleted. Restore this file, and run the same "
            f"command again. Or delete the branches and tags that need it. {LOST_UNREACHED} Then sweep a new plan, and "
            "run the same command again."
        )
    return reach.live()


def _current_set_of(sweep: IcechunkSweep, state: IcechunkState, cutoff: datetime) -> RetainedSet:
    return current_retained_set(state, cutoff, held_ids(state, sweep.opened.policy(), start_of_day(sweep.day)))


def _references_resolve(state: IcechunkState) -> CheckResult:
    """Return a passed check, because reading the state fails if the history of a branch or live tag is incomplete."""
    history = state.history
    branches, tags = counted(len(history.branches), "branch", "branches"), counted(len(history.tags), "tag")
    detail = f"{branches} and {tags}, each with its complete history"
    return CheckResult("references_resolve", True, detail)


def kept_exist(
    kept: DataFrame, listing: DataFrame, ledger: DataFrame, lost: DataFrame
) -> tuple[CheckResult, DataFrame]:
    """Check that every kept snapshot, manifest and chunk is in the store, or in `lost` (acknowledged as lost).

    The second result has the addresses that fail the check (column `address`).
    """
    required = kept.where(~F.col("address").startswith(TRANSACTIONS))
    not_lost = required.join(lost, on="address", how="left_anti")
    row = _absent(not_lost, listing, ledger)
    known = required.join(lost, on="address", how="left_semi").count()
    detail = "no kept snapshot, manifest or chunk is missing" + (
        f", except {known:,} acknowledged as lost" if known else ""
    )
    if row["absent"]:
        files = counted(row["absent"], "kept file is", "kept files are")
        detail = f"{files} not in the store, first {row['first']}; restore quarantined files"
    result = CheckResult("kept_exist", not row["absent"], detail, row["absent"])
    return result, not_lost.join(listing.select("address"), on="address", how="left_anti")


def logs_exist(kept: DataFrame, listing: DataFrame, ledger: DataFrame) -> CheckResult:
    """Check that our sweeps deleted no kept transaction log.

    Other logs may be missing: root snapshots have none, and other tools may have collected some.
    """
    row = _absent(kept.where(F.col("address").startswith(TRANSACTIONS)), listing, ledger)
    missing = counted(row["absent"], "kept log is", "kept logs are")
    detail = f"no sweep deleted a kept transaction log; {missing} missing for other reasons"
    if row["ours"]:
        logs = counted(row["ours"], "kept transaction log is", "kept transaction logs are")
        detail = f"{logs} not in the store, first {row['first_of_ours']}"
    return CheckResult("logs_exist", not row["ours"], detail, row["ours"])


def _absent(kept: DataFrame, listing: DataFrame, ledger: DataFrame):  # type: ignore[no-untyped-def]  # a Row
    absent = kept.join(listing.select("address"), on="address", how="left_anti")
    absent = absent.join(ledger.select("address", "outcome"), on="address", how="left")
    ours, named = F.col("outcome").isin(*ABSENT), F.concat_ws(", ", "address", "outcome")
    return absent.agg(
        F.count(F.lit(1)).alias("absent"),
        F.min(named).alias("first"),
        F.count_if(ours).alias("ours"),
        F.min(F.when(ours, named)).alias("first_of_ours"),
    ).collect()[0]
