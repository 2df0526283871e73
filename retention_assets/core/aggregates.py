"""Aggregates that both systems use."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def union_of(column: str) -> Column:
    """Return the sorted union of a column of lists over a group."""
    return F.array_sort(F.array_distinct(F.flatten(F.collect_set(column))))
