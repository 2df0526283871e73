"""Reads documents in YAML or JSON, names the wrong keys of a document, and makes values plain for JSON."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from retention_assets.errors import ConfigurationError

_KINDS = "write `kind: lakefs` or `kind: icechunk`"
_MAPPING = "must be a mapping: write its keys below it, indented"
_REASONS = {  # by pydantic's type of the problem; other problems have pydantic's message
    "extra_forbidden": "unknown key",
    "missing": "is missing",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_type": "must be a text: put it in quotes",
    "bool_type": "must be `true` or `false`",
    "union_tag_invalid": _KINDS,
    "union_tag_not_found": _KINDS,
}

_NUMBERS = (("int",), ("float",), ("bool",))  # pydantic adds the type to the path of a value with several types
_OF_KEY = "[key]"  # pydantic's path ends with this if the problem is the key itself, not its value
_NO_VALUE = "has no value: write one, or remove it"
_NOT_TEXT = "a key is a number, truth value, date or null in YAML: write it in quotes"
_HINTS = {  # by a part of YAML's own message
    "expected <block end>": "the line is indented more or less than its neighbours",
    "mapping values are not allowed": "the line is indented more than its neighbours, or has a second `: `",
    r"'\t'": "indent with spaces, not with tabs",
    "scanning an alias": "put a text that begins with `*` in quotes",
    "found undefined alias": "put a text that begins with `*` in quotes",
    "cannot start any token": "put a text that begins with this character in quotes",
}

_OCTAL = re.compile(r"[-+]?0[0-9_]+")

KeyPath = tuple[int | str, ...]


def load_document(text: str) -> object:
    """Return the content of a document.

    Errors: ConfigurationError if a key is duplicated; ValueError if the text cannot be read as YAML or JSON, or has an
    octal number or an impossible date. Their messages have one line, which does not name the document.
    """
    try:
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text, object_pairs_hook=_object)
            except json.JSONDecodeError:
                pass  # YAML's flow style also begins with `{`
        return yaml.load(text, Loader=_UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a number with thousands of digits
        raise ValueError(" ".join(_problem(error).split())) from error


def _problem(error: Exception) -> str:
    """Return line, column, YAML's message and a hint, without the text of the line, which may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark, text = error.problem_mark, ": ".join(part for part in (error.context, error.problem) if part)
    hint = next((f": {hint}" for part, hint in _HINTS.items() if part in text), "")
    return f"line {mark.line + 1}, column {mark.column + 1}{hint} ({text})"


class _UniqueKeys(yaml.SafeLoader):
    """A safe YAML loader that rejects duplicated keys, octal numbers such as `030`, and dates such as `2027-02-30`.

    It checks each mapping as it is written, before merges (`<<`) add keys. A key may override a merged key.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        _require_unique([key.value for key in keys], f"the mapping that begins at line {node.start_mark.line + 1}")
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if _OCTAL.fullmatch(node.value):
            problem = f"{node.value} is an octal number in YAML: write it without the 0 at the beginning"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return super().construct_yaml_int(node)

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> date | datetime:
        try:
            return super().construct_yaml_timestamp(node)
        except ValueError as error:
            problem = f"{node.value} is not a date or a time: {error}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _UniqueKeys.construct_yaml_int)
_UniqueKeys.add_constructor("tag:yaml.org,2002:timestamp", _UniqueKeys.construct_yaml_timestamp)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_unique([key for key, _ in pairs], "one object")
    return dict(pairs)


def _require_unique(keys: Sequence[str], where: str) -> None:
    for key, number in Counter(keys).items():
        if number > 1:
            raise ConfigurationError(f"the key {key!r} is duplicated in {where}")


def plain(value: Any) -> Any:
    """Return a value for JSON: dataclasses as objects, dates as ISO 8601, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


def wrong_keys(
    error: ValidationError,
    in_file: Callable[[KeyPath, str], KeyPath] = lambda path, _: path,
    model: type[BaseModel] | None = None,
) -> list[str]:
    """Return `key: reason` for each wrong key of a document.

    `in_file` returns the key path in the document for pydantic's path and pydantic's type of the problem. With
    `model`, the model of the document, the reason for an unknown key suggests the known key with the closest spelling.
    """
    found = []
    for problem in error.errors(include_url=False):
        parts = in_file(problem["loc"], problem["type"])
        reason = _REASONS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        reason = reason.replace("Input should be ", "must be ")
        if problem["input"] is None and problem["type"].endswith("_type") and reason != _MAPPING:
            reason = _NO_VALUE
            parts = parts[:-1] if parts[-1:] in _NUMBERS else parts
        if parts[-1:] == (_OF_KEY,) and problem["type"] == "string_type":
            parts, reason = parts[:-2], _NOT_TEXT  # without the key, as Python spells it, and `[key]`
        if model and problem["type"] == "extra_forbidden":
            known = _known_keys(model, problem["loc"])
            reason += "".join(f" (did you mean `{one}`?)" for one in get_close_matches(str(parts[-1]), known, 1))
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
        found.append(f"{key or 'the document'}: {reason}")
    # A value that may be a text or a mapping has two problems if it is null.
    without = {f"{one.removesuffix(_NO_VALUE)}{_MAPPING}" for one in found if one.endswith(_NO_VALUE)}
    return [one for one in dict.fromkeys(found) if one not in without]


def problem_in(document: object, shape: Any) -> str | None:
    """Return the first wrong key of a JSON document of the warehouse, with the reason; None: it has this shape.

    `shape`: a `TypedDict`, a dataclass, or a type such as `dict[str, str]`. Texts do not count as numbers.
    """
    try:
        _adapter(shape).validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        return wrong_keys(error)[0]
    return None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Return the keys that are allowed beside the key at `path` (pydantic's path) in a document of this model."""
    models = {model}
    for part in path[:-1]:
        fields = [one.model_fields[part] for one in models if part in one.model_fields]
        if fields:
            models = {inner for field in fields for inner in _models_in(field.annotation)}
        else:  # an index, the name of an entry, or the kind of a repository
            of_kind = {
                one for one in models if part in get_args(getattr(one.model_fields.get("kind"), "annotation", None))
            }
            models = of_kind or models
    return sorted({name for one in models for name in one.model_fields})


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type, such as the values of a dictionary or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
