"""Checks the output of commands with `--json` against the schemas of the docs."""

from typing import Any

from scripts.output_schemas import OUTPUTS


def checked(command: str, document: Any) -> Any:
    """Return the document that a command printed. Fails if it does not match the schema, or has other keys."""
    if (output := OUTPUTS.get(command)) is None:
        return document
    read = output.dump_python(output.validate_python(document, strict=False), mode="json")
    unknown = _unknown(document, read, command)
    assert not unknown
    return document


def _unknown(document: Any, read: Any, place: str) -> list[str]:
    """Return the paths of keys in a document that its schema does not have."""
    if isinstance(document, dict) and isinstance(read, dict):
        pairs = [(name, document[name], read.get(name)) for name in document]
        found = [f"{place}.{name}" for name in document.keys() - read.keys()]
    elif isinstance(document, list):
        pairs, found = [(str(number), one, read[number]) for number, one in enumerate(document)], []
    else:
        return []
    return found + [one for name, inner, seen in pairs for one in _unknown(inner, seen, f"{place}.{name}")]
