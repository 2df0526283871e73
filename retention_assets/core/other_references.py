"""References of other repositories by full address, and the objects of this repository that they keep.

A reference and an object match if the last parts of their names are equal. The last part of the name of every object
that may be deleted is an id that is unique among all repositories. The rest of the name is not compared: one location
has several spellings, and a reference can have the name of a virtual chunk container instead of the location.
Source: docs/safety.md, "Other repositories".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import decoded_location
from retention_assets.core.states import CANDIDATE, HELD

_LAST = "last_part"
# Matches the last part of every name that lakeFS or Icechunk generates for files that may be deleted.
_MAY_BE_GENERATED = r"^([A-Za-z0-9_-]{20,32}(,[A-Za-z0-9_-]{43})?|(repo|config\.yaml)\.\d{14}\.[A-Z0-9]{20})\z"


@dataclass(frozen=True, slots=True)
class OtherReferences:
    """The references of other repositories, and warnings about them."""

    parts: DataFrame | None = None  # see `last_parts`; None: there are no references
    warnings: tuple[str, ...] = ()
    checks: tuple[Callable[[], None], ...] = ()  # check the tables with `parts`; see `require_unchanged`

    def require_unchanged(self) -> None:
        """Require that no other run replaced the tables from which `parts` was read. Errors: those of `checks`."""
        for check in self.checks:
            check()

    def keep(self, objects: DataFrame) -> DataFrame:
        """Return the classified objects. A candidate that another repository may refer to becomes `held`."""
        if self.parts is None:
            return objects
        parts = self.parts.withColumn("is_referenced", F.lit(True))
        marked = _with_last_part(objects).join(parts, on=_LAST, how="left")
        stays = F.col("is_referenced").isNotNull() & (F.col("state") == CANDIDATE)
        state = F.when(stays, HELD).otherwise(F.col("state"))
        return marked.withColumn("state", state).drop(_LAST, "is_referenced")


NO_OTHERS = OtherReferences()


def last_parts(references: Sequence[DataFrame]) -> DataFrame | None:
    """Return the distinct last parts of all references (column `address`: absolute URIs).

    Each last part is returned as it is written, and with its escapes decoded. Parts that lakeFS or Icechunk cannot have
    generated as names are left out. If `references` is empty, the result is None.
    """
    if not references:
        return None
    every = reduce(DataFrame.unionByName, (frame.select("address") for frame in references))
    written = F.explode(F.array("address", decoded_location(F.col("address")))).alias("address")
    parts = every.select(written).select(F.substring_index("address", "/", -1).alias(_LAST))
    return parts.where(F.col(_LAST).rlike(_MAY_BE_GENERATED)).distinct()


def referenced(objects: DataFrame, parts: DataFrame) -> DataFrame:
    """Return the rows of `objects` (column `address`) that another repository may refer to."""
    return _with_last_part(objects).join(parts, on=_LAST, how="left_semi").drop(_LAST)


def _with_last_part(objects: DataFrame) -> DataFrame:
    return objects.withColumn(_LAST, F.substring_index("address", "/", -1))
