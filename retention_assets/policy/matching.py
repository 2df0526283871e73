"""Matches paths with prefixes and globs, and branches with names and globs."""

import re
from functools import lru_cache

UNREADABLE = "\ufffd"  # where the bytes of a path are not UTF-8; two hexadecimal digits for each such byte follow it
WILDCARDS = frozenset("*?")
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_WILD = {
    "**/": r"(?:[\s\S]*/)?",  # any directories, or none
    "**": r"[\s\S]*",
    "*": r"[^/]*",
    "?": r"[^/]",
}


def is_glob(pattern: str) -> bool:
    """Return whether `pattern` has a wildcard: `*`, `**` or `?`. No other character is special."""
    return not WILDCARDS.isdisjoint(pattern)


def glob_regex(glob: str) -> str:
    r"""Return the regular expression that matches the same texts as `glob`, for both Python and Java (Spark).

    `*` and `?` do not match `/`; `**` matches any text. This narrow meaning deletes less. The end is written as a
    lookahead because `$`, `\Z` and `\z` differ between the two languages.
    """
    parts = (_WILD.get(token) or re.escape(token) for token in _TOKENS.findall(glob))
    return rf"\A{''.join(parts)}(?![\s\S])"


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(glob_regex(glob))


def glob_matches(glob: str, text: str) -> bool:
    """Return whether `glob` matches the whole `text` (a path or a branch)."""
    return _compiled(glob).match(text) is not None


def matches_name(pattern: str, name: str) -> bool:
    """Return whether `pattern` (a name or a glob) matches the `name` of a branch or tag."""
    return glob_matches(pattern, name) if is_glob(pattern) else pattern == name


def prefix_covers(prefix: str, path: str) -> bool:
    """Return whether `path` is `prefix` or is below the directory `prefix`. The empty prefix covers everything.

    Both `foo/bar` and `foo/bar/` cover `foo/bar` and `foo/bar/x`, but not `foo/barn`. Source: DESIGN.md, Lifecycle.
    """
    directory = canonical_prefix(prefix)
    return not directory or path == directory or path.startswith(f"{directory}/")


def is_unreadable(path: str) -> bool:
    """Return whether a path is not UTF-8. No lifecycle rule covers such a path, and every hold on a prefix does.

    A path that was made with U+FFFD in it counts as not UTF-8, too.
    """
    return UNREADABLE in path


def canonical_prefix(prefix: str) -> str:
    """Return `prefix` without trailing slashes."""
    return prefix.rstrip("/")
