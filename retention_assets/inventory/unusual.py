"""Finds storage keys that are not valid paths. They are classified as foreign and are never deleted."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from retention_assets.core.paths import END
from retention_assets.state.warehouse import Rows


def is_unusual(address: Column) -> Column:
    """Return whether a name has an empty, `.` or `..` segment, ends with a slash, or has a control character."""
    return address.rlike(rf"(^|/)\.{{0,2}}(/|{END})|[\x00-\x1f\x7f]")


UNUSUAL = "unusual_names"  # key of a note in an inventory's notes


def unusual_names(listed: DataFrame) -> dict[str, str]:
    """Return a note with the number of keys that are not paths and the first of them; {} when there are none."""
    unusual = F.when(is_unusual(F.col("address")), F.col("address"))
    row = listed.agg(F.count(unusual).alias("number"), F.min(unusual).alias("first")).first()
    assert row is not None
    if not row["number"]:
        return {}
    return {UNUSUAL: f"{row['number']:,} keys, {row['first']!r} first, have a name that is no path"}


def name_warnings(inventory: Rows) -> list[str]:
    """Return a warning about keys that are not paths; an empty list when there are none."""
    told = inventory.notes.get(UNUSUAL)
    return [f"In the store {told}. They count as foreign and stay."] if told else []
