"""Classifies each listed object of an Icechunk repository as foreign, kept, young or a candidate, with the reason.

Source: docs/icechunk.md, "What is deleted"; docs/icechunk-formats.md, "Paths".
"""

from dataclasses import replace
from datetime import timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.age import AgeCutoff
from retention_assets.core.paths import END
from retention_assets.core.states import CANDIDATE, EXPIRED, FOREIGN, HELD, KEPT, UNREFERENCED, WAITING, YOUNG
from retention_assets.icechunk.formats.paths import (
    BACKUP,
    CHUNKS,
    CONFIG,
    FILE,
    MANIFESTS,
    OVERWRITTEN,
    REFERENCES,
    REPO,
    SNAPSHOTS,
    TRANSACTIONS,
    YEAR_3000,
)
from retention_assets.icechunk.rules.reach import held_by

_FILE = f"^{FILE}{END}"
_BACKUP = f"^{OVERWRITTEN}{BACKUP}{END}"
_TEXTS = "array<string>"
_HELD = ("address", "live", "expired", "rule_ids", "branches", "due_since", "first_held_at", "last_held_at")


def is_generated(address: Column) -> Column:
    """Return whether Icechunk generates addresses like this for deletable files. Other files are never candidates."""
    return F.when(address.startswith(OVERWRITTEN), address.rlike(_BACKUP)).otherwise(address.rlike(_FILE))


def holding_of(manifests: DataFrame, chunks: DataFrame, snapshots_and_logs: DataFrame, leaving: DataFrame) -> DataFrame:
    """Return one row per address: whether it is live, and if not, the rules and branches of its expiry.

    `snapshots_and_logs` has the `address` of each snapshot and transaction log that stays. `leaving` has the snapshots
    to delete, with the columns that `manifests_of` takes.
    """
    nothing = F.array().cast(_TEXTS)
    stay = snapshots_and_logs.select(
        "address",
        F.lit(True).alias("live"),
        F.lit(False).alias("expired"),
        nothing.alias("rule_ids"),
        nothing.alias("branches"),
        *(F.lit(None).cast("timestamp").alias(name) for name in _HELD[5:]),
    )
    directories = F.explode(F.array(F.lit(SNAPSHOTS), F.lit(TRANSACTIONS)))
    go = (
        leaving.withColumn("directory", directories)
        .withColumn("address", F.concat("directory", "snapshot_id"))
        .withColumns({"first_held_at": F.col("flushed_at"), "last_held_at": F.col("flushed_at")})
    )
    of_chunks = F.col("address").startswith(CHUNKS)  # all these rows are in `chunks`, one for each address
    frames = (manifests, chunks.where(~of_chunks), stay, go)
    few = held_by(reduce(DataFrame.unionByName, (frame.select(*_HELD) for frame in frames)))
    return chunks.where(of_chunks).select(*_HELD).unionByName(few.select(*_HELD))


def classified(
    inventory: DataFrame, holding: DataFrame, age_cutoff: AgeCutoff, collect_overwritten: timedelta | None
) -> DataFrame:
    """Return every listed object with its `state`, the `reason` for its deletion, and the columns of `holding`.

    A backup below `overwritten/` may be deleted when the time in its name and its modification time are both more than
    `collect_overwritten` before the cutoff, from which the grace period is already subtracted. None keeps all backups.
    The repo object, references and configuration are always kept.
    """
    address, live = F.col("address"), F.coalesce(F.col("live"), F.lit(False))
    own = address.isin(REPO, CONFIG) | address.startswith(REFERENCES)
    state = (
        F.when(own, KEPT)
        .when(~is_generated(address), FOREIGN)
        .when(live | (address.startswith(OVERWRITTEN) & ~_backup_due(age_cutoff, collect_overwritten)), KEPT)
        .when(~age_cutoff.is_older(F.col("last_modified")), YOUNG)
        .otherwise(CANDIDATE)
    )
    reason = F.when(F.coalesce(F.col("expired"), F.lit(False)), EXPIRED).otherwise(UNREFERENCED)
    return inventory.join(holding, on="address", how="left").withColumn("reason", reason).withColumn("state", state)


def unchanged_until(age_cutoff: AgeCutoff, collect_overwritten: timedelta | None) -> Column:
    """Return until when (µs since 1970) a file is young or a backup is kept; null: age does not change its state."""
    young = F.when(F.col("state") == YOUNG, age_cutoff.young_until(F.col("reason")))
    if collect_overwritten is None:
        return young
    is_kept_backup = (F.col("state") == KEPT) & F.col("address").startswith(OVERWRITTEN)
    longest = F.lit(max(age_cutoff.grace, collect_overwritten) // timedelta(microseconds=1))
    return young.when(is_kept_backup, F.unix_micros(F.greatest("last_modified", _backup_made())) + longest)


def hold_content(objects: DataFrame) -> DataFrame:
    """Return the objects. Candidate manifests and chunks become `held`, because lost files may reference them."""
    is_held = is_content(F.col("address")) & (F.col("state") == CANDIDATE)
    return objects.withColumn("state", F.when(is_held, HELD).otherwise(F.col("state")))


def is_content(address: Column) -> Column:
    """Return whether the address is of a manifest or chunk. Such a file is live only if another file references it."""
    return address.startswith(MANIFESTS) | address.startswith(CHUNKS)


def due(classified_objects: DataFrame) -> DataFrame:
    """Return the candidates and the waiting objects, with the columns of candidates added."""
    none = F.array().cast(_TEXTS)
    return classified_objects.where(F.col("state").isin(CANDIDATE, WAITING)).withColumns(
        {
            "rule_ids": F.coalesce("rule_ids", none),
            "branches": F.coalesce("branches", none),
            "paths": none,
            "first_committed_at": F.col("first_held_at"),
            "last_committed_at": F.col("last_held_at"),
        }
    )


def _backup_due(age_cutoff: AgeCutoff, collect_overwritten: timedelta | None) -> Column:
    if collect_overwritten is None:
        return F.lit(False)
    aged = replace(age_cutoff, grace=max(age_cutoff.grace, collect_overwritten), token_life=timedelta(0))
    return aged.is_older(F.col("last_modified")) & aged.is_older(_backup_made())


def _backup_made() -> Column:
    """Return the time in the name of a backup; null for other names."""
    left = F.nullif(F.regexp_extract("address", _BACKUP, 1), F.lit("")).cast("long")
    return F.timestamp_millis(F.lit(YEAR_3000) - left)
