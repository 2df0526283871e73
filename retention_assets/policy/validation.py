"""Validates policy documents strictly. One error line names every wrong key."""

from collections.abc import Mapping, Sequence
from typing import Any

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
    words = {"extra_forbidden": "unknown key", "missing": "is missing"}
    message = words.get(found["type"]) or found["msg"].removeprefix("Value error, ")
    key = ""
    for part in path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}"
    return f"{key.lstrip('.') or 'the document'}: {message}"
