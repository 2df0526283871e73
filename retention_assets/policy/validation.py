"""Loads a policy document from YAML or JSON, and validates it strictly. One error line lists every wrong key."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from retention_assets.config.documents import load_document, wrong_keys
from retention_assets.errors import ConfigurationError

STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)  # no unknown keys, no text where a number belongs


def checked[F: BaseModel](form: type[F], mapping: Mapping[str, Any], source: str) -> F:
    """Return `mapping` as the model `form`. Errors: ConfigurationError with `source` and every wrong key."""
    try:
        return form.model_validate(mapping)
    except ValidationError as error:
        problems = "; ".join([*wrong_keys(error, model=form), *_misplaced(form, mapping)])
        raise ConfigurationError(f"{source}: {problems}. Nothing was deleted. Correct {source}.") from None


def _misplaced(form: type[BaseModel], mapping: Mapping[str, Any]) -> Iterator[str]:
    """Yield a hint for unknown keys that a section of the form has: they are indented too little."""
    for name, field in form.model_fields.items():
        parts = [part for part in (field.annotation, *get_args(field.annotation)) if isinstance(part, type)]
        known = {key for part in parts if issubclass(part, BaseModel) for key in part.model_fields}
        if keys := sorted(known & mapping.keys() - form.model_fields.keys()):
            yield f"{', '.join(keys)} must be indented below `{name}:`"


def mapping_of(text: str, source: str) -> dict[str, Any]:
    """Return the mapping that `text` contains. `source`: the name of the text in messages.

    Errors: ConfigurationError if the text cannot be read, is empty, is not a mapping, or has a duplicated key.
    """
    try:
        loaded = load_document(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}: {error}. Nothing was deleted. Keep one of them.") from None
    except ValueError as error:
        raise ConfigurationError(
            f"{source}: cannot be read as YAML or JSON: {error}. Nothing was deleted. Correct the document."
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
