"""Finds storage keys that are not valid paths. They are classified as foreign and are never deleted."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.core.amounts import counted
from retention_assets.core.paths import is_unresolved
from retention_assets.warehouse.warehouse import Rows


def is_unusual(address: Column) -> Column:
    """Return whether a key has an empty, `.` or `..` segment, ends with a slash, or has a control character."""
    return is_unresolved(address) | address.rlike(r"[\x00-\x1f\x7f]")


_NUMBER, _FIRST = "unusual_keys", "first_unusual_key"


def unusual_counts() -> list[Column]:
    """Return the aggregates of listed objects that `unusual_names` needs."""
    unusual = F.when(is_unusual(F.col("address")), F.col("address"))
    return [F.count(unusual).alias(_NUMBER), F.min(unusual).alias(_FIRST)]


def unusual_names(counts: Mapping[str, Any]) -> str | None:
    """Return a text with the number of keys that are not valid paths, and the first one; None when there are none.

    `counts`: the values of `unusual_counts`, by name.
    """
    if not counts[_NUMBER]:
        return None
    keys = counted(counts[_NUMBER], "key is not a valid path", "keys are not valid paths")
    return f"{keys} (first: {counts[_FIRST]!r})"


def name_warnings(inventory: Rows) -> list[str]:
    """Return a warning about keys that are not valid paths; an empty list when there are none."""
    names = inventory.details.unusual_names
    return [f"In the store, {names}. They are classified as foreign and are never deleted."] if names else []
