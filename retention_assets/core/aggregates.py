"""Spark aggregates that both lakeFS and Icechunk use."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def union_of(column: str) -> Column:
    """Return the aggregate that unites the lists of a column, sorted and without duplicates."""
    return F.array_sort(F.array_distinct(F.flatten(F.collect_set(column))))
