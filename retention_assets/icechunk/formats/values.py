"""Reads and writes the JSON values that a repository stores: metadata and the configuration.

Format 2 stores them as FlexBuffers. Format 1 stores metadata as MessagePack and the configuration as a YAML file, and
an upgrade converts both. Source: docs/icechunk-formats.md, "Flatbuffers".

The library for FlexBuffers is used only for writing. Its reader does not check the bytes: for a damaged file it returns
other bytes of the file, raises any exception, or never ends. The reader in this module checks every step.
"""

import math
import struct
from collections.abc import Mapping
from typing import Any

import msgpack
import yaml
from flatbuffers.flexbuffers import Builder

from retention_assets.errors import corrupt

type Json = bool | int | float | str | list[Json] | dict[str, Json] | None

MAX_DEPTH = 100  # levels of nested values; icechunk's own JSON reader allows 128

_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING, _INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(11)
_TYPED, _FIXED, _BOOL, _BOOLS = 11, 16, 26, 36
_WIDTHS = (1, 2, 4, 8)  # bytes
_DIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_FLOATS = {4: "<f", 8: "<d"}


def write_flexbuffer(value: Json) -> bytes:
    """Return `value` as FlexBuffers.

    Raises:
        ValueError: `value` is not a JSON value, is nested deeper than `MAX_DEPTH`, or has a name with a zero byte,
            which FlexBuffers cannot store.
    """
    builder = Builder()
    try:
        _add(builder, value, MAX_DEPTH)
    except RuntimeError as error:  # for an error in a mapping, the library raises this; our ValueError is its context
        raise ValueError(str(error.__context__ or error)) from None
    return bytes(builder.Finish())


def read_flexbuffer(content: bytes, name: str) -> Json:
    """Return the JSON value in `content`; `name` is its source, for messages.

    Raises:
        CorruptFile: the value is truncated, damaged, nested deeper than `MAX_DEPTH`, or of a type that is not in JSON.
    """
    return _Reader(content, name).root()


def upgraded_metadata(metadata: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """Return metadata of a file of spec version 1 in the form of spec version 2; `name` is the file's path.

    Raises:
        CorruptFile: a value is truncated or damaged, or FlexBuffers cannot store it.
    """
    upgraded = {}
    for key, value in metadata.items():
        where = f"{name}, metadata {key!r}"
        try:
            plain = msgpack.unpackb(value, use_list=True, raw=False, strict_map_key=True)
        except (ValueError, msgpack.UnpackException, RecursionError) as error:
            raise corrupt(where, f"it is not a value in MessagePack ({error})") from error
        try:
            upgraded[key] = write_flexbuffer(plain)
        except ValueError as error:
            raise corrupt(where, f"it cannot be upgraded ({error})") from error
    return upgraded


def upgraded_configuration(content: bytes, name: str) -> bytes:
    """Return the configuration file `content` as format 2 stores it; `name` is its path.

    Both formats store the same mapping. A variant with a value is `!name value` in YAML, and a mapping with the key
    `name` in FlexBuffers.

    Raises:
        CorruptFile: the file is not a configuration, or has a value that FlexBuffers cannot store.
    """
    try:
        found = yaml.load(content.decode(), Loader=_Loader)
        if isinstance(found, dict):
            return write_flexbuffer(found)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise corrupt(name, f"it is not a configuration ({' '.join(str(error).split())})") from error
    raise corrupt(name, "it is not a mapping")


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that reads a variant as a mapping with one key."""


def _variant(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        return {name: loader.construct_mapping(node, deep=True)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    plain = yaml.ScalarNode(loader.resolve(yaml.ScalarNode, node.value, (True, False)), node.value)
    return {name: loader.construct_object(plain)}


_Loader.add_multi_constructor("!", _variant)


def _add(builder: Builder, value: object, depth: int) -> None:
    match value:
        case _ if not depth:
            raise ValueError(f"a value is nested deeper than {MAX_DEPTH} levels")
        case None:
            builder.Null()
        case bool():
            builder.Bool(value)
        case int() if -(1 << 63) <= value < 1 << 64:
            (builder.Int if value < 1 << 63 else builder.UInt)(value)
        case float() if math.isfinite(value):
            builder.Float(value, byte_width=8)  # without a width the library fails on large numbers
        case str():
            builder.String(value)
        case list():
            with builder.Vector():
                for item in value:
                    _add(builder, item, depth - 1)
        case dict():
            with builder.Map():
                for key, item in value.items():
                    if not isinstance(key, str) or "\0" in key:
                        raise ValueError(f"{key!r} cannot be a name")
                    builder.Key(key.encode())  # as str, the library accepts only ASCII
                    _add(builder, item, depth - 1)
        case _:
            raise ValueError(f"{type(value).__name__} {value!r} is not a JSON value")


class _Reader:
    def __init__(self, content: bytes, name: str) -> None:
        self.content = content
        self.name = name
        self.values_left = len(content)  # a value takes at least one byte; more values than bytes would use bytes twice

    def root(self) -> Json:
        size = len(self.content)
        if size < 3 or (width := self.content[-1]) not in _WIDTHS:
            raise self.corrupt()
        return self.value(size - 2 - width, width, self.content[-2], MAX_DEPTH)

    def corrupt(self) -> Exception:
        return corrupt(self.name, "it is not a value in FlexBuffers (cut, damaged, or not JSON)")

    def piece(self, position: int, size: int) -> bytes:
        if not 0 <= position <= len(self.content) - size:
            raise self.corrupt()
        return self.content[position : position + size]

    def unsigned(self, position: int, width: int) -> int:
        return int.from_bytes(self.piece(position, width), "little")

    def target(self, position: int, width: int) -> int:
        """Return the position that the offset at `position` points to; offsets count backwards."""
        return position - self.unsigned(position, width)

    def value(self, position: int, width: int, packed: int, depth: int) -> Json:
        """Return the value whose bytes, or the offset to them, are at `position`."""
        self.values_left -= 1
        if self.values_left < 0 or not depth:
            raise self.corrupt()
        kind, own_width = packed >> 2, _WIDTHS[packed & 3]
        if kind in (_NULL, _INT, _UINT, _FLOAT, _BOOL):
            return self.scalar(position, width, kind)
        target = self.target(position, width)
        if kind in _DIRECT:
            return self.scalar(target, own_width, _DIRECT[kind])
        if kind == _KEY:
            return self.key(target)
        size = self.unsigned(target - own_width, own_width) if not _FIXED <= kind <= _FIXED + 8 else 0
        if kind == _STRING:
            return self.text(self.piece(target, size))
        if kind == _MAP:
            return self.mapping(target, own_width, size, depth)
        if kind == _VECTOR:
            return self.vector(target, own_width, size, depth)
        return self.typed(target, own_width, kind, size, depth)

    def scalar(self, position: int, width: int, kind: int) -> Json:
        piece = self.piece(position, width)
        if kind == _NULL:
            return None
        if kind == _BOOL:
            return any(piece)
        if kind != _FLOAT:
            return int.from_bytes(piece, "little", signed=kind == _INT)
        if width not in _FLOATS:
            raise self.corrupt()
        number: float = struct.unpack(_FLOATS[width], piece)[0]
        return number

    def key(self, target: int) -> str:
        end = self.content.find(b"\0", max(target, 0))
        if not 0 <= target <= end:
            raise self.corrupt()
        return self.text(self.content[target:end])

    def text(self, encoded: bytes) -> str:
        try:
            return encoded.decode()
        except UnicodeDecodeError as error:
            raise self.corrupt() from error

    def vector(self, target: int, width: int, size: int, depth: int) -> list[Json]:
        kinds = self.piece(target + size * width, size)
        return [self.value(target + n * width, width, kind, depth - 1) for n, kind in enumerate(kinds)]

    def mapping(self, target: int, width: int, size: int, depth: int) -> dict[str, Json]:
        keys = self.target(target - 3 * width, width)
        key_width = self.unsigned(target - 2 * width, width)
        if key_width not in _WIDTHS:
            raise self.corrupt()
        values = self.vector(target, width, size, depth)
        names = [self.key(self.target(keys + n * key_width, key_width)) for n in range(size)]
        return dict(zip(names, values, strict=True))

    def typed(self, target: int, width: int, kind: int, size: int, depth: int) -> list[Json]:
        """Return a vector whose items are all of one kind; vectors of 2 to 4 numbers may omit their length."""
        if kind == _BOOLS:
            item = _BOOL
        elif _TYPED <= kind < _TYPED + 4:
            item = _INT + kind - _TYPED
        elif _FIXED <= kind < _FIXED + 9:
            item, size = _INT + (kind - _FIXED) % 3, 2 + (kind - _FIXED) // 3
        else:
            raise self.corrupt()
        self.piece(target, size * width)
        packed = item << 2 | _WIDTHS.index(width)
        return [self.value(target + n * width, width, packed, depth - 1) for n in range(size)]
