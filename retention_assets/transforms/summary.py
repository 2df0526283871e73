"""What a person wants to know of the candidates first: by reason, by top prefix, by branch."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

NO_BRANCH = "(no branch)"
NO_PATH = "(no path)"


def by_reason(candidates: DataFrame) -> DataFrame:
    """Return (name, objects, bytes) per reason."""
    return _amounts(candidates, F.col("reason"))


def by_top_prefix(candidates: DataFrame) -> DataFrame:
    """Return (name, objects, bytes) per first directory of the first path; a file at the top is its own."""
    return _amounts(candidates, top_prefix())


def by_directory(candidates: DataFrame) -> DataFrame:
    """Return (name, objects, bytes) per first directory of the address, for systems without paths."""
    return _amounts(candidates, directory())


def top_prefix() -> Column:
    """Return the first directory of a candidate's first path."""
    first = F.try_element_at("paths", F.lit(1))
    top = F.when(first.contains("/"), F.concat(F.substring_index(first, "/", 1), F.lit("/"))).otherwise(first)
    return F.coalesce(top, F.lit(NO_PATH))


def directory() -> Column:
    """Return the first directory of a candidate's address."""
    return F.concat(F.substring_index("address", "/", 1), F.lit("/"))


def by_branch(candidates: DataFrame) -> DataFrame:
    """Return (name, objects, bytes) per branch; an object that several branches hold counts for each."""
    exploded = candidates.select("size", F.explode_outer("branches").alias("branch"))
    return _amounts(exploded, F.coalesce(F.col("branch"), F.lit(NO_BRANCH)))


def _amounts(frame: DataFrame, name: Column) -> DataFrame:
    return (
        frame.groupBy(name.alias("name"))
        .agg(F.count(F.lit(1)).alias("objects"), F.sum("size").alias("bytes"))
        .orderBy(F.col("bytes").desc(), F.col("name"))
    )
