"""Reads metadata values: MessagePack in files of spec version 1, FlexBuffers in version 2. Source: Icechunk facts 2."""

from collections.abc import Mapping

import msgpack

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.flexbuffer import Json, read_flexbuffer, write_flexbuffer


def read_value(content: bytes, spec_version: int, name: str) -> Json:
    """Return one metadata value of a file of `spec_version`; `name` is its source, for messages.

    Raises:
        CorruptFile: the value is truncated, damaged, or not a JSON value.
    """
    return _read_message(content, name) if spec_version == 1 else read_flexbuffer(content, name)


def upgraded_metadata(metadata: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return metadata of a file of spec version 1 in the form of spec version 2; `name` is the file's path.

    Raises:
        CorruptFile: a value is truncated or damaged, or FlexBuffers cannot store it.
    """
    upgraded = {}
    for key, value in metadata.items():
        where = f"{name}, metadata {key!r}"
        try:
            upgraded[key] = write_flexbuffer(_read_message(value, where))
        except ValueError as error:
            raise corrupt(where, f"it cannot be upgraded ({error})") from error
    return upgraded


def _read_message(content: bytes, name: str) -> Json:
    try:
        value: Json = msgpack.unpackb(content, use_list=True, raw=False, strict_map_key=True)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise corrupt(name, f"it is not a value in MessagePack ({error})") from error
    return value
