"""Computes the ids that lakeFS derives from content: SHA-256 over a tagged encoding.

Source: docs/lakefs-formats.md, "Ids".
"""

import hashlib
from collections.abc import Mapping, Sequence

LATE_PROPERTIES = frozenset({"min_key", "max_key", "count", "estimated_size_bytes"})  # added after the id is computed


def integer(value: int) -> bytes:
    """Return the encoding of a number."""
    return b"\x02\x08" + value.to_bytes(8, "big", signed=True)


def string(value: bytes) -> bytes:
    """Return the encoding of a string. The string is preceded by its length."""
    return b"\x01" + integer(len(value)) + value


def string_map(pairs: Mapping[str, bytes]) -> bytes:
    """Return the encoding of a map of strings, sorted by key. Each string is preceded by its length."""
    ordered = sorted((key.encode(), value) for key, value in pairs.items())
    return b"\x04" + integer(len(ordered)) + b"".join(string(key) + string(value) for key, value in ordered)


def hashed_properties(properties: Mapping[str, bytes]) -> bytes:
    """Return the encoded properties that are hashed into the content id of a table, after its records.

    These are the properties that were known before the table was closed.
    """
    return string_map(
        {
            key: value
            for key, value in properties.items()
            if key not in LATE_PROPERTIES and not key.startswith(("rocksdb.", "pebble."))
        }
    )


def commit_id(
    *,
    committer: str,
    message: str,
    metarange_id: str,
    created_seconds: int,
    metadata: Mapping[str, str],
    parents: Sequence[str],
) -> str:
    """Return the id of a commit. `created_seconds`: unix time; fractions of a second are not part of the id."""
    encoded_parents = b"".join(string(parent.encode()) for parent in parents)
    lineage = hashlib.sha256(b"\x03" + integer(len(parents)) + encoded_parents).digest()
    return hashlib.sha256(
        b"".join(
            [
                *(string(text.encode()) for text in ("commit:v1", committer, message, metarange_id)),
                integer(created_seconds),
                string_map({key: value.encode() for key, value in metadata.items()}),
                b"\x05\x00" + integer(len(lineage)) + lineage,  # the lineage as bytes
            ]
        )
    ).hexdigest()
