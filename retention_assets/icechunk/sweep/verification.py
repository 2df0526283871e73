"""Proof after the fact: what references keep is read again, the store listed again, and held against the ledgers.

Nothing is taken from a cache. References are read before the listing, so what they keep must be in it. Each check says
what it saw; none changes anything. Source: DESIGN.md, invariants 1, 7 and 9.
"""

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.guards import CheckResult
from retention_assets.icechunk.formats.paths import TRANSACTIONS
from retention_assets.icechunk.rules.snapshots import require_whole
from retention_assets.icechunk.source.places import icechunk_prefixes
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.reach import reach_of
from retention_assets.icechunk.sweep.retained_set import held_ids, standing
from retention_assets.icechunk.sweep.sweeping import IcechunkSweep
from retention_assets.objectstore.listing import list_objects
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.state.acknowledged import acknowledged_addresses
from retention_assets.state.ledger import ABSENT
from retention_assets.state.table_cache import TableCache
from retention_assets.sweep.sweep_run import verification_inputs
from retention_assets.sweep.verification import what_was_done

CHECKS = (
    "references_resolve",
    "kept_exist",
    "logs_exist",
    "deleted_are_gone",
    "quarantine_is_whole",
    "totals_hold",
    "records_follow",
    "records_signed",
    "records_copied",
)


def verify(sweep: IcechunkSweep) -> list[CheckResult]:
    """Return what every check saw. Errors: of the source and the store, where something cannot be read at all."""
    inputs, access = verification_inputs(sweep), sweep.opened.access
    state = sweep.opened.source.state()
    require_whole(state.history)
    acknowledged = acknowledged_addresses(sweep.spark, sweep.warehouse, sweep.name)
    kept = files_kept(sweep, state, acknowledged).cache()
    listing = list_objects(sweep.spark, access, icechunk_prefixes(ObjectReader(access))).cache()
    lost = acknowledged.join(listing, on="address", how="left_anti")
    ledger = inputs.ledger().cache()
    check_results = [
        _references_resolve(state),
        kept_exist(kept, listing, ledger, lost),
        logs_exist(kept, listing, ledger),
        *what_was_done(inputs, listing, ledger),
    ]
    for frame in (kept, listing, ledger):
        frame.unpersist()
    return check_results


def files_kept(sweep: IcechunkSweep, state: IcechunkState, lost: DataFrame | None = None) -> DataFrame:
    """Return the addresses of everything that references and holds keep, whatever its age; every file is read anew.

    `lost`: addresses of files that are not read, so what only they name is left out; None: every file must be there.
    """
    held = held_ids(state, sweep.opened.policy(), datetime(sweep.day.year, sweep.day.month, sweep.day.day, tzinfo=UTC))
    stand = standing(state, datetime.max.replace(tzinfo=UTC), held)
    cache = TableCache(
        sweep.spark, sweep.warehouse, sweep.name, sweep.opened.access, sweep.attempt, full=True, lost=lost
    )
    return reach_of(sweep.spark, cache, stand).required()


def _references_resolve(state: IcechunkState) -> CheckResult:
    """Every branch and every live tag names a snapshot whose history is whole; reading the state would fail else."""
    history = state.history
    detail = f"{len(history.branches):,} branches and {len(history.tags):,} tags, each with its whole history"
    return CheckResult("references_resolve", True, detail)


def kept_exist(kept: DataFrame, listing: DataFrame, ledger: DataFrame, lost: DataFrame) -> CheckResult:
    """Every snapshot, manifest and chunk that is kept is in the store, or is acknowledged as lost (`lost`)."""
    required = kept.where(~F.col("address").startswith(TRANSACTIONS))
    row = _absent(required.join(lost, on="address", how="left_anti"), listing, ledger)
    known = required.join(lost, on="address", how="left_semi").count()
    detail = "every kept snapshot, manifest and chunk exists" + (
        f"; {known:,} are lost, as acknowledged" if known else ""
    )
    if row["lost"]:
        detail = f"{row['lost']:,} kept files are not in the store, first {row['first']}; from quarantine, restore them"
    return CheckResult("kept_exist", not row["lost"], detail)


def logs_exist(kept: DataFrame, listing: DataFrame, ledger: DataFrame) -> CheckResult:
    """No transaction log that is kept was taken by us. Others may lack: of roots, and of what other tools collected."""
    row = _absent(kept.where(F.col("address").startswith(TRANSACTIONS)), listing, ledger)
    detail = f"every kept transaction log exists, but for {row['lost']:,} that no sweep took"
    if row["ours"]:
        detail = f"{row['ours']:,} kept transaction logs are not in the store, first {row['first_of_ours']}"
    return CheckResult("logs_exist", not row["ours"], detail)


def _absent(kept: DataFrame, listing: DataFrame, ledger: DataFrame):  # type: ignore[no-untyped-def]  # a Row
    told = ledger.select("address", "outcome")
    absent = kept.join(listing.select("address"), on="address", how="left_anti").join(told, on="address", how="left")
    ours, named = F.col("outcome").isin(*ABSENT), F.concat_ws(", ", "address", "outcome")
    row = absent.agg(
        F.count(F.lit(1)).alias("lost"),
        F.min(named).alias("first"),
        F.count_if(ours).alias("ours"),
        F.min(F.when(ours, named)).alias("first_of_ours"),
    ).first()
    assert row is not None
    return row
