"""Matches paths with prefixes and globs, and branches and tags with names and globs.

In a path, `*` and `?` do not match `/`. In a name they do: to a user, `*` means every branch or tag.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from unicodedata import normalize
from urllib.parse import unquote

UNREADABLE = "\ufffd"  # stands for a byte of a path that is not UTF-8; the byte's two hexadecimal digits follow
WILDCARDS = frozenset("*?")
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|[^*?]+")
# In a path, `**/` stands for no directory only where the name of a directory begins: `raw**/x` does not match `rawx`.
_TOKENS_OF_PATHS = re.compile(r"(?:\A|(?<=/))\*\*/|\*\*|\*|\?|[^*?]+")
_WILD = {
    "**/": r"(?:[\s\S]*/)?",  # any directories, or none
    "**": r"[\s\S]*",
    "*": r"[^/]*",
    "?": r"[^/]",
}
_WILD_IN_NAMES = {**_WILD, "*": r"[\s\S]*", "?": r"[\s\S]"}


def is_glob(pattern: str) -> bool:
    """Return whether `pattern` has a wildcard: `*`, `**` or `?`. No other character is special."""
    return not WILDCARDS.isdisjoint(pattern)


def glob_regex(glob: str) -> str:
    r"""Return the regular expression that matches the same texts as `glob`, for both Python and Java (Spark).

    `*` and `?` do not match `/`; `**` matches any text. With this narrow meaning, less is deleted. The end is written
    as a lookahead, because `$`, `\Z` and `\z` differ between the two languages.
    """
    return _regex(glob, _WILD, _TOKENS_OF_PATHS)


def _regex(glob: str, wild: Mapping[str, str], tokens: re.Pattern[str]) -> str:
    parts = (wild.get(token) or re.escape(token) for token in tokens.findall(glob))
    return rf"\A{''.join(parts)}(?![\s\S])"


@lru_cache(maxsize=4096)
def _compiled(glob: str, *, across_slashes: bool = False) -> re.Pattern[str]:
    return re.compile(_regex(glob, _WILD_IN_NAMES, _TOKENS) if across_slashes else glob_regex(glob))


def glob_matches(glob: str, text: str) -> bool:
    """Return whether `glob` matches the whole `text`, a path."""
    return _compiled(glob).match(text) is not None


def matches_name(pattern: str, name: str) -> bool:
    """Return whether `pattern` (a name or a glob) matches the `name` of a branch or tag, also if the name has a `/`."""
    return _compiled(pattern, across_slashes=True).match(name) is not None if is_glob(pattern) else pattern == name


def rules_naming[Rule](rules: Iterable[tuple[str, Rule]], name: str) -> tuple[list[Rule], bool]:
    """Return the rules that apply to a branch or tag, and whether the default applies too. `rules`: (pattern, rule).

    Rules with the exact name win over globs. The default applies if no rule does. The default also applies if all rules
    that apply are globs that match only because their `*` or `?` matches `/`. Then these rules can only lengthen the
    period of the default: earlier versions did not apply them, and nobody approved what they would delete. Rules that
    match only another spelling of the name can only lengthen it, too: see `matches_other_spelling`.
    """
    every = list(rules)
    named = [(pattern, rule) for pattern, rule in every if matches_name(pattern, name)]
    exact = [rule for pattern, rule in named if not is_glob(pattern)]
    otherwise = [rule for pattern, rule in every if matches_other_spelling(pattern, name)]
    chosen = exact or [rule for _, rule in named]
    return chosen + otherwise, not exact and not any(glob_matches(glob, name) for glob, _ in named)


def matches_other_spelling(pattern: str, name: str) -> bool:
    """Return whether `pattern` matches the `name` of a branch or tag only in another spelling.

    Two names that look the same can differ in Unicode (see `unicode_forms`). In format 1, some stores of Icechunk
    percent-encode letters that are not ASCII.
    """
    if name.isascii() and "%" not in name:
        return False
    composed, names = normalize("NFC", pattern), {normalize("NFC", one) for one in (name, unquote(name))}
    return not matches_name(pattern, name) and any(matches_name(composed, one) for one in names)


def prefix_covers(prefix: str, path: str) -> bool:
    """Return whether `path` is `prefix` or is below the directory `prefix`. The empty prefix covers everything.

    Both `foo/bar` and `foo/bar/` cover `foo/bar` and `foo/bar/x`, but not `foo/barn`. Source: docs/lifecycle.md.
    """
    directory = canonical_prefix(prefix)
    return not directory or path == directory or path.startswith(f"{directory}/")


def is_unreadable(path: str) -> bool:
    """Return whether a path is not UTF-8. No lifecycle rule covers such a path, and every hold on a prefix does.

    A valid path that contains U+FFFD counts as not UTF-8 too.
    """
    return UNREADABLE in path


def unicode_forms(prefix: str) -> list[str]:
    """Return the spellings of a prefix in Unicode, sorted: as it is written, composed (NFC), and decomposed (NFD).

    They look the same. lakeFS stores paths as clients write them, and macOS, for example, decomposes names of files.
    """
    return sorted({prefix, normalize("NFC", prefix), normalize("NFD", prefix)})


def canonical_prefix(prefix: str) -> str:
    """Return `prefix` without trailing slashes."""
    return prefix.rstrip("/")
