"""Reads documents in YAML or JSON, and names the wrong keys of a document."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from pydantic import ValidationError

from retention_assets.errors import ConfigurationError

_KINDS = "write `kind: lakefs` or `kind: icechunk`"
_REASONS = {  # by pydantic's type of the problem; other problems have pydantic's message
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "union_tag_invalid": _KINDS,
    "union_tag_not_found": _KINDS,
}

_OF_KEY = "[key]"  # the end of pydantic's path of a problem of a key
_NOT_TEXT = "a key is a number, truth value, date or null in YAML: write it in quotes"

KeyPath = tuple[int | str, ...]


def load_document(text: str) -> object:
    """Return the content of a document.

    Errors: ConfigurationError if a key is duplicated; ValueError if the text is neither YAML nor JSON. Their messages
    have one line, which does not name the document.
    """
    try:
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text, object_pairs_hook=_object)
            except json.JSONDecodeError:
                pass  # YAML's flow style also begins with `{`
        return yaml.load(text, Loader=_UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2027-02-30
        raise ValueError(" ".join(str(error).split())) from error


class _UniqueKeys(yaml.SafeLoader):
    """A safe YAML loader that rejects duplicated keys.

    It checks a mapping as it is written. Merges (`<<`) add keys later, also to mappings that others refer to.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _require_unique([key.value for key in keys], f"the mapping that begins at line {node.start_mark.line + 1}")
        return node


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_unique([key for key, _ in pairs], "one object")
    return dict(pairs)


def _require_unique(keys: Sequence[str], where: str) -> None:
    for key, number in Counter(keys).items():
        if number > 1:
            raise ConfigurationError(f"the key {key!r} is duplicated in {where}")


def wrong_keys(error: ValidationError, in_file: Callable[[KeyPath, str], KeyPath] = lambda path, _: path) -> list[str]:
    """Return `key: reason` for each wrong key of a document.

    `in_file` returns the key path in the document for pydantic's path and pydantic's type of the problem.
    """
    found = []
    for problem in error.errors(include_input=False, include_url=False):
        parts = in_file(problem["loc"], problem["type"])
        reason = _REASONS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        if parts[-1:] == (_OF_KEY,) and problem["type"] == "string_type":
            parts, reason = parts[:-2], _NOT_TEXT  # the part before it is the key, spelled as Python does
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
        found.append(f"{key or 'the document'}: {reason}")
    return list(dict.fromkeys(found))
