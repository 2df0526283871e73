"""Finds out which other configured repositories may refer to objects, from their newest tables."""

from collections.abc import Collection
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.configuration import Configuration, Repository
from retention_assets.state.reading import read_batches, read_directory
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import ADDRESSES, CACHED_MANIFESTS

_LOCATIONS = pa.schema([("location", pa.string())])


def referring_repositories(
    configuration: Configuration, repository: str, addresses: Collection[str]
) -> dict[str, list[str]]:
    """Return for each address the other repositories that refer to an object whose name has the same last part."""
    if not addresses:
        return {}
    warehouse, found = Warehouse(configuration.warehouse), dict[str, list[str]]()
    for other in configuration.others(repository):
        parts = _last_parts(warehouse, other)
        for address in addresses:
            if address.rpartition("/")[2] in parts:
                found.setdefault(address, []).append(other.name)
    return found


def _last_parts(warehouse: Warehouse, other: Repository) -> set[str]:
    """Return the last parts of all absolute references of a repository, as written and with escapes decoded."""
    if other.is_icechunk:
        where = pc.field("location").is_valid()
        written = read_batches(warehouse, other.name, CACHED_MANIFESTS, _LOCATIONS, where, ["location"])["location"]
    else:
        days = warehouse.directories(other.name, ADDRESSES.name)
        newest = next((day for day in reversed(days) if warehouse.is_complete(other.name, ADDRESSES.name, day)), None)
        if newest is None:
            return set()
        where = pc.match_substring(pc.field("address"), "://")
        parts = other.name, ADDRESSES.name, newest
        written = read_directory(warehouse, *parts, schema=ADDRESSES.schema, where=where)["address"]
    plain = {text.split("?")[0].split("#")[0] for text in written.to_pylist()}
    return {spelled.rpartition("/")[2] for text in plain for spelled in (text, unquote(text))}
