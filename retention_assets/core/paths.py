"""Which paths a prefix covers, as Spark sees it. The pure rule is `policy`'s; both are tested against each other."""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def below(path: Column, prefix: str) -> Column:
    """Return whether `prefix` covers `path`: the path that equals it and everything below it.

    A prefix is a directory: `foo/bar` covers `foo/bar/x`, not `foo/barn`; an empty one covers everything.
    Source: DESIGN.md, Decisions (Lifecycle).
    """
    directory = prefix.rstrip("/")
    if not directory:
        return F.lit(True)
    return (path == directory) | path.startswith(f"{directory}/")


def below_any(path: Column, prefixes: Collection[str]) -> Column:
    """Return whether any of `prefixes` covers `path`; none covers nothing."""
    return reduce(Column.__or__, (below(path, prefix) for prefix in prefixes), F.lit(False))


def spelled(location: Column) -> Column:
    """Return the location of a virtual reference as configurations spell places, its escapes taken back."""
    plain = F.regexp_replace(F.regexp_replace(location, "[?#].*", ""), r"\+", "%2B")
    return F.regexp_replace(F.coalesce(F.try_url_decode(plain), location), "^gcs://", "gs://")


END = r"\z"  # not `$`, which in Java also stands before a line end: a foreign name may have one
