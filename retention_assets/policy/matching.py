"""Which paths a prefix or a glob covers, and which branches a name or a glob names."""

import re
from functools import lru_cache

WILDCARDS = frozenset("*?")
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
_WILD = {
    "**/": r"(?:[\s\S]*/)?",  # any directories, or none
    "**": r"[\s\S]*",
    "*": r"[^/]*",
    "?": r"[^/]",
}


def is_glob(pattern: str) -> bool:
    """Tell whether `pattern` has a wildcard (`*`, `**` or `?`; nothing else is special)."""
    return not WILDCARDS.isdisjoint(pattern)


def glob_regex(glob: str) -> str:
    r"""Return a regular expression for the whole of what `glob` names, the same for Python and for Java (Spark).

    `*` and `?` stay within one directory, `**` crosses them: the narrow reading deletes less. The end is written as a
    lookahead because `$`, `\Z` and `\z` differ between the two languages.
    """
    parts = (_WILD.get(token) or re.escape(token) for token in _TOKENS.findall(glob))
    return rf"\A{''.join(parts)}(?![\s\S])"


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(glob_regex(glob))


def glob_matches(glob: str, text: str) -> bool:
    """Tell whether `glob` names the whole of `text` (a path or a branch)."""
    return _compiled(glob).match(text) is not None


def names_branch(pattern: str, branch: str) -> bool:
    """Tell whether `pattern`, a name or a glob, names `branch`."""
    return glob_matches(pattern, branch) if is_glob(pattern) else pattern == branch


def prefix_covers(prefix: str, path: str) -> bool:
    """Tell whether `path` is `prefix` or below it as a directory; the empty prefix covers everything.

    `foo/bar` covers `foo/bar` and `foo/bar/x`, not `foo/barn`; so does `foo/bar/`. Source: DESIGN.md, Lifecycle.
    """
    directory = canonical_prefix(prefix)
    return not directory or path == directory or path.startswith(f"{directory}/")


def canonical_prefix(prefix: str) -> str:
    """Return `prefix` without a slash at its end."""
    return prefix.rstrip("/")
