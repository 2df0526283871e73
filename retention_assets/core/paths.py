"""The rule for which paths a prefix covers, as Spark columns.

`policy` has the same rule in plain Python. Tests compare the two.
"""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F


def below(path: Column, prefix: str) -> Column:
    """Return whether `prefix` covers `path`: the path equals the prefix or is below it.

    A prefix is a directory: `foo/bar` covers `foo/bar/x`, not `foo/barn`. An empty prefix covers everything.
    Source: DESIGN.md, Decisions (Lifecycle).
    """
    directory = prefix.rstrip("/")
    if not directory:
        return F.lit(True)
    return (path == directory) | path.startswith(f"{directory}/")


def below_any(path: Column, prefixes: Collection[str]) -> Column:
    """Return whether any of `prefixes` covers `path`; False without prefixes."""
    return reduce(Column.__or__, (below(path, prefix) for prefix in prefixes), F.lit(False))


def spelled(location: Column) -> Column:
    """Return the location of a virtual reference with its escapes decoded, as URLs in configurations are written."""
    plain = F.regexp_replace(F.regexp_replace(location, "[?#].*", ""), r"\+", "%2B")
    return F.regexp_replace(F.coalesce(F.try_url_decode(plain), location), "^gcs://", "gs://")


END = r"\z"  # not `$`: in Java it also matches before a final line break, which a foreign name may have
