"""Names that old versions of lakeFS generated: the repository's own only where its entries have such names.

Other systems use such names too: a file that is called by its MD5, say. Source: lakeFS facts 1.1.
"""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import END
from retention_assets.core.states import FOREIGN
from retention_assets.lakefs.rules.names import LINKED_OF_OLD, ROOT_OF_OLD, is_generated

_PATTERNS = {"root": f"^{ROOT_OF_OLD}{END}", "linked": f"^{LINKED_OF_OLD}{END}"}
KINDS = frozenset(_PATTERNS)


def kinds_in_use(addresses: DataFrame) -> frozenset[str]:
    """Return the kinds of old names that at least one row of `addresses` (column `address`) has."""
    used = [F.bool_or(F.col("address").rlike(pattern)).alias(kind) for kind, pattern in _PATTERNS.items()]
    row = addresses.agg(*used).first()
    assert row is not None
    return frozenset(kind for kind in KINDS if row[kind])


def is_own_name(address: Column, legacy: Collection[str]) -> Column:
    """Return whether lakeFS generates such names; of the old kinds, only those in `legacy` count."""
    return is_generated(address) & ~_is_old(address, KINDS.difference(legacy))


def with_foreign_names(objects: DataFrame, legacy: Collection[str]) -> DataFrame:
    """Return the classified objects; those that have an old kind of name which is not in `legacy` are foreign."""
    foreign = _is_old(F.col("address"), KINDS.difference(legacy))
    return objects.withColumn("state", F.when(foreign, FOREIGN).otherwise(F.col("state")))


def _is_old(address: Column, kinds: Collection[str]) -> Column:
    return reduce(Column.__or__, (address.rlike(_PATTERNS[kind]) for kind in sorted(kinds)), F.lit(False))
