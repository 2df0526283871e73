"""Converts the stored configuration from format 1, a YAML file, to format 2, FlexBuffers in the repo object.

Both store the same mapping. A variant with a value is `!name value` in YAML, and a mapping with one name in
FlexBuffers. Source: Icechunk facts 1, Layout.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from retention_assets.core.corruption import corrupt
from retention_assets.icechunk.formats.flexbuffer import write_flexbuffer


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also reads variants, as mappings with one name."""


def _variant(loader: yaml.SafeLoader, name: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        return {name: loader.construct_mapping(node, deep=True)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    plain = yaml.ScalarNode(loader.resolve(yaml.ScalarNode, node.value, (True, False)), node.value)
    return {name: loader.construct_object(plain)}


_Loader.add_multi_constructor("!", _variant)


def upgraded_configuration(content: bytes, name: str) -> bytes:
    """Return the configuration file `content` as format 2 stores it; `name` is its path.

    Raises:
        CorruptFile: the file is not a configuration, or has a value that FlexBuffers cannot store.
    """
    with _understood(name):
        return write_flexbuffer(_mapping(content, name))


def _mapping(content: bytes, name: str) -> dict[str, Any]:
    found = yaml.load(content.decode(), Loader=_Loader)
    if not isinstance(found, dict):
        raise corrupt(name, "it is no mapping")
    return found


@contextmanager
def _understood(name: str) -> Iterator[None]:
    try:
        yield
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise corrupt(name, f"it is no configuration ({' '.join(str(error).split())})") from error
