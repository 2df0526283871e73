"""Recognizes names that old versions of lakeFS generated.

Other systems use such names too, for example files named by their MD5. So an object with an old name counts as the
repository's own only if lakeFS itself gave an entry of the repository a name of the same kind. Source:
docs/lakefs-formats.md, "Object names".
"""

from collections.abc import Collection, Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import END
from retention_assets.core.states import CANDIDATE, FOREIGN, MAY_BE_STAGED, UNREFERENCED
from retention_assets.lakefs.names.columns import is_generated
from retention_assets.lakefs.names.generated import FULL, LEGACY_KINDS

_PATTERNS = {kind: f"^{pattern}{END}" for kind, pattern in LEGACY_KINDS.items()}
_MEANINGS = {"root": "32 hexadecimal digits directly in the namespace", "linked": "data/<repository>-<branch>:<uuid>/…"}
KINDS = frozenset(_PATTERNS)


def kinds_in_use(entries: DataFrame) -> frozenset[str]:
    """Return the kinds of old names that lakeFS itself gave to objects of the entries.

    An entry with a full address does not count. Servers stored the names that they generated as relative addresses. A
    client can stage any file of the namespace by its full address, also a file of another system. Until version 1.70,
    servers stored such an address as relative, too. So the caller also requires a commit from before `NEW_NAMES`.

    `entries`: (address, address_type) of all commits, as in the ranges.
    """
    row = entries.where(F.col("address_type") != FULL).agg(*kinds_counted()).collect()[0]
    return kinds_of(row.asDict())


def kinds_counted() -> list[Column]:
    """Return aggregates of the column `address`, from which `kinds_of` computes the kinds of old names."""
    return [F.bool_or(F.col("address").rlike(pattern)).alias(kind) for kind, pattern in _PATTERNS.items()]


def kinds_of(counted: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of old names in the aggregates. `counted`: the values of `kinds_counted`, by name."""
    return frozenset(kind for kind in KINDS if counted[kind])


def kinds_warning(kinds: Collection[str]) -> str | None:
    """Return the warning of a plan for which these kinds of old names are in use; None if there are none."""
    if not kinds:
        return None
    named = " or ".join(_MEANINGS[kind] for kind in sorted(kinds))
    return (
        f"A commit has an entry with a name of old lakeFS versions ({named}). So every object with such a name counts "
        "as an object of this repository, and can be deleted if it is in no commit and not staged. If another system "
        "writes files with such names into the namespace, move its files out of the namespace before a sweep, except "
        "those that an entry names. If no other system does this, set `legacy_names: true`: this ends the warning."
    )


def is_own_name(address: Column, legacy: Collection[str]) -> Column:
    """Return whether lakeFS generated the name. Of the old kinds of names, only those in `legacy` count."""
    return is_generated(address) & ~_is_old(address, KINDS.difference(legacy))


def with_foreign_names(objects: DataFrame, legacy: Collection[str]) -> DataFrame:
    """Return the classified objects with the state `foreign` for old names whose kind is not in `legacy`."""
    foreign = _is_old(F.col("address"), KINDS.difference(legacy))
    return objects.withColumn("state", F.when(foreign, FOREIGN).otherwise(F.col("state")))


def keep_old_names(objects: DataFrame) -> DataFrame:
    """Return the classified objects with the state `may_be_staged` for unreferenced candidates with old names.

    Source: docs/uncommitted.md, "Objects that were staged in 2021 or before".
    """
    is_kept = (F.col("state") == CANDIDATE) & (F.col("reason") == UNREFERENCED) & _is_old(F.col("address"), KINDS)
    return objects.withColumn("state", F.when(is_kept, MAY_BE_STAGED).otherwise(F.col("state")))


def _is_old(address: Column, kinds: Collection[str]) -> Column:
    return reduce(Column.__or__, (address.rlike(_PATTERNS[kind]) for kind in sorted(kinds)), F.lit(False))
