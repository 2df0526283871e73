"""Rules about paths and locations, as Spark columns: which paths a prefix covers, and how locations are decoded.

`policy.matching` has the rule for prefixes in plain Python. Tests compare the two.
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


STRAY_PERCENT = "%(?![0-9A-Fa-f]{2})"  # a `%` that begins no escape, as a pattern of Java and of Python
_SIGNS = ("//", "/.", "/?", "/#", "%2E", "%2e", "%2F", "%2f")  # one of these is inside a path that `may_be_unresolved`


def decoded_location(location: Column) -> Column:
    """Return the location of a virtual reference, spelled as a configuration spells URLs.

    Percent-escapes are decoded, the query and the fragment are removed, the path is `resolved`, and `gcs://` becomes
    `gs://`.
    """
    plain = F.regexp_replace(F.regexp_replace(location, "[?#].*", ""), r"\+", "%2B")
    decoded = F.regexp_replace(F.coalesce(F.try_url_decode(plain), location), "^gcs://", "gs://")
    scheme = F.regexp_extract(decoded, "^[^/]*:///?", 0)
    path = resolved(F.substr(decoded, F.length(scheme) + 1))
    return F.when(may_be_unresolved(location), F.concat(scheme, path)).otherwise(decoded)


def is_unresolved(path: Column) -> Column:
    """Return whether a path has an empty, `.` or `..` part, or a slash at the end. Some stores resolve such paths.

    Few paths pass the first tests, which take much less time than the regular expression.
    """
    inside = path.contains("//") | path.contains("/.")
    may_be = inside | path.startswith("/") | path.startswith(".") | path.endswith("/") | (path == "")
    return may_be & path.rlike(rf"(^|/)\.{{0,2}}(/|{END})")


def may_be_unresolved(uri: Column) -> Column:
    """Return whether the path of a URI or a relative path may be unresolved, perhaps after percent-escapes are decoded.

    Few paths are unresolved. This test takes less time than a regular expression, and much less than resolving a path.
    """
    named = F.replace(uri, F.lit("://"))
    signs = reduce(Column.__or__, (F.contains(named, F.lit(sign)) for sign in _SIGNS))
    return signs | named.startswith("/") | named.startswith(".") | named.endswith("/")


def resolved(path: Column) -> Column:
    """Return a relative path as a file system resolves it: without empty and `.` parts, and with `..` followed.

    At most `_NESTED` `..` parts in a row are followed. The others stay in the path.
    """
    parts = F.regexp_replace(F.concat(F.lit("/"), path), rf"(/\.?)+(?=/|{END})", "")
    return F.substr(F.regexp_replace(F.regexp_replace(parts, _LEFT, ""), rf"^(/\.\.)+(?=/|{END})", ""), F.lit(2))


def _left_again(nested: int) -> str:
    """Return the pattern of a directory that a `..` part leaves, with up to `nested` such directories inside it."""
    inside = f"(?:{_left_again(nested - 1)})*+" if nested else ""
    return rf"/(?!\.\.(?:/|{END}))[^/]++{inside}/\.\.(?=/|{END})"


END = r"\z"  # the end of a text in a pattern; Java's `$` also matches before a line break at the end
_NESTED = 16  # directories of a path that `..` parts in a row can leave
_LEFT = _left_again(_NESTED - 1)
