"""Rules about paths and locations, as Spark columns: which paths a prefix covers, and how locations are decoded.

`policy` has the rule for prefixes in plain Python too. Tests compare the two.
"""

from collections.abc import Collection
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F

from retention_assets.policy.matching import UNREADABLE, unicode_forms


def below(path: Column, prefix: str) -> Column:
    """Return whether `prefix` covers `path`: the path equals the prefix or is below it.

    A prefix is a directory: `foo/bar` covers `foo/bar/x`, not `foo/barn`. An empty prefix covers everything.
    Source: docs/lifecycle.md.
    """
    directory = prefix.rstrip("/")
    if not directory:
        return F.lit(True)
    return (path == directory) | path.startswith(f"{directory}/")


def below_any(path: Column, prefixes: Collection[str]) -> Column:
    """Return whether any of `prefixes` covers `path`; False without prefixes."""
    return reduce(Column.__or__, (below(path, prefix) for prefix in prefixes), F.lit(False))


def covered_by_hold(path: Column, prefixes: Collection[str]) -> Column:
    """Return whether a hold on any of `prefixes` covers `path`, or may cover it because the path is not UTF-8.

    A hold covers paths below all `unicode_forms` of its prefix.
    """
    spelled = [spelling for prefix in prefixes for spelling in unicode_forms(prefix)]
    return below_any(path, spelled) | is_unreadable(path) if prefixes else F.lit(False)


def is_unreadable(path: Column) -> Column:
    """Return whether a path is not UTF-8. See `policy.matching.is_unreadable`."""
    return path.contains(UNREADABLE)


def decoded_location(location: Column) -> Column:
    """Return the location of a virtual reference in the form of URLs in a configuration.

    Percent-escapes are decoded, the query and the fragment are removed, and `gcs://` becomes `gs://`.
    """
    plain = F.regexp_replace(F.regexp_replace(location, "[?#].*", ""), r"\+", "%2B")
    return F.regexp_replace(F.coalesce(F.try_url_decode(plain), location), "^gcs://", "gs://")


END = r"\z"  # the end of a name in a pattern. Java's `$` also matches before a line break at the end of a name
