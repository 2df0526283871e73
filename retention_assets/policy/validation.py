"""Loads a policy document from YAML or JSON, and validates it strictly. One error line lists every wrong key."""

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from retention_assets.errors import ConfigurationError

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)  # no unknown keys, no text where a number belongs


def checked[F: BaseModel](form: type[F], mapping: Mapping[str, Any], source: str) -> F:
    """Return `mapping` as the model `form`. Errors: ConfigurationError with `source` and every wrong key."""
    try:
        return form.model_validate(mapping)
    except ValidationError as error:
        problems = "; ".join(dict.fromkeys(_problem(found["loc"], found) for found in error.errors()))
        raise ConfigurationError(f"{source}: {problems}. Nothing was deleted. Correct the document.") from None


def _problem(path: Sequence[int | str], found: Mapping[str, Any]) -> str:
    own_messages = {"extra_forbidden": "unknown key", "missing": "is missing"}
    message = own_messages.get(found["type"]) or found["msg"].removeprefix("Value error, ")
    key = ""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{key.lstrip('.') or 'the document'}: {message}"


class _UniqueKeys(yaml.SafeLoader):
    """A safe YAML loader that rejects duplicated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if repeated := _first_repeated(keys):
            line = node.start_mark.line + 1
            raise ConfigurationError(f"the key {repeated!r} is duplicated in the mapping that begins at line {line}")
        return super().construct_mapping(node, deep=deep)


def mapping_of(text: str, source: str) -> dict[str, Any]:
    """Return the mapping at the top of `text`. `source` names the text in errors.

    Errors: ConfigurationError if the text is neither YAML nor JSON, is empty, is no mapping, or has a duplicated key.
    """
    try:
        loaded = _loaded(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}. Nothing was deleted. Keep one of them.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2027-02-30
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"{source}: neither YAML nor JSON: {reason}. Nothing was deleted. Correct the document."
        ) from error
    if loaded in (None, {}, [], ""):
        raise ConfigurationError(
            f"{source}: the document is empty. Nothing was deleted. Write a rule, or remove the document from the list "
            "of policies."
        )
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
        raise ConfigurationError(
            f"{source}: a policy is a mapping with text as keys. Nothing was deleted. Begin the document with a key "
            "such as `retention:`."
        )
    return loaded


def _loaded(text: str) -> object:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_unique)
        except json.JSONDecodeError:
            pass  # YAML's flow style also begins with `{`; text that is neither fails below
    return yaml.load(text, Loader=_UniqueKeys)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if repeated := _first_repeated([key for key, _ in pairs]):
        raise ConfigurationError(f"the key {repeated!r} is duplicated in one object")
    return dict(pairs)


def _first_repeated(keys: list[str]) -> str | None:
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None
