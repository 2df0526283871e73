"""Binds the tables of a repository to one location: its namespace and its storage URL.

The warehouse stores ledgers, the memory, and acknowledgements of lost objects under the name of the repository in
`retention.yaml`. They do not apply to another location to which the configuration gives this name: an object that was
deleted in the old location may be live in the new one.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from itertools import product
from pathlib import Path
from typing import TypedDict

from retention_assets.config.configuration import Repository, canonical_namespace
from retention_assets.config.locations import overlap
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import GuardRefused
from retention_assets.state.acknowledged import end_acknowledgements
from retention_assets.state.ledger import plans_with_ledgers
from retention_assets.state.memory import forget
from retention_assets.warehouse.metadata import Details
from retention_assets.warehouse.warehouse import Warehouse

_LOCATION = "place.json"


class _Location(TypedDict):
    namespace: str
    storage: str


def require_same_location(warehouse: Warehouse, repository: Repository) -> None:
    """Bind the tables of the repository to its location. Raise GuardRefused if a sweep bound them to another location.

    Before the first sweep, the location may be changed. Then the memory of earlier plans is removed, and
    acknowledgements of lost objects no longer count. A location that overlaps one with tables under another name is
    refused, too.
    """
    warehouse.write_layout()
    location, bound = _location(repository), warehouse.read_document(repository.name, _LOCATION, shape=_Location)
    if bound != location and bound is not None and plans_with_ledgers(warehouse, repository.name):
        raise GuardRefused(
            f"{repository.name}: its ledgers in the warehouse belong to namespace {bound.get('namespace')}, storage "
            f"{bound.get('storage')}; {repository.file} says {location['namespace']}, {location['storage']}. Nothing "
            f"was deleted. Give this repository another name in that file. If all objects were moved to the new "
            f"location, remove {warehouse.location(repository.name, _LOCATION)}."
        )
    _require_one_name(warehouse, repository, location)
    if bound == location:
        return
    if bound is not None:
        forget(warehouse, repository.name)
        end_acknowledgements(warehouse, repository.name, repository.storage, utc_now())
    warehouse.write_document(location, repository.name, _LOCATION)


def _require_one_name(warehouse: Warehouse, repository: Repository, location: Mapping[str, str]) -> None:
    """Raise GuardRefused when the warehouse has tables of an overlapping location under another name.

    Plans under one name do not use the memory of plans under the other name, and sweeps under both names can run at the
    same time. The other name may be in another configuration file, with another spelling of the same location.
    """
    for name in warehouse.directories():
        bound = None if name == repository.name else warehouse.read_document(name, _LOCATION, shape=_Location)
        locations = [bound[key] for key in location if bound.get(key)] if bound else []
        if any(overlap(one, other) for one, other in product(locations, location.values())):
            raise GuardRefused(
                f"{repository.name}: the warehouse has tables of {', '.join(locations)} under the name {name}. That "
                f"location and {location['storage']} are the same, or one is inside the other. The ledgers under "
                "that name, and what earlier plans stored there, would not be used. Nothing was planned or deleted. "
                f"Name the repository {name} again in {repository.file}, with the same spelling of the location. Or, "
                f"to start without these tables, move {warehouse.location(name)} out of the warehouse: then nothing "
                f"restores or purges what sweeps of {name} moved to quarantine, and nothing verifies its records."
            )


def require_outside(warehouse: str, repository: Repository, names: Iterable[str] = ()) -> None:
    """Raise GuardRefused if tables of the warehouse overlap a location of the repository.

    Plans would list the files of the tables as objects. `warehouse`: its path or URL. `names`: other repositories with
    tables there.
    """
    path = warehouse.removeprefix("file://")
    url = canonical_namespace(warehouse) if "://" in path else f"file://{Path(path).resolve()}"
    for name, location in product(sorted({repository.name, *names}), repository.locations()):
        if overlap(tables := f"{url}/{name}", location):
            raise GuardRefused(
                f"{repository.name}: the warehouse has its tables in {tables}, and the repository is at {location}. "
                "One of these locations is inside the other, or they are the same, so plans would list the files of "
                "the warehouse as objects. "
                f"Nothing was planned or deleted. Move the warehouse to a location outside of {location}, and set "
                f"`warehouse` in {repository.file} to it."
            )


def require_of_storage(repository: str, day: date, storage: str | None, tables: Mapping[str, Details]) -> None:
    """Refuse tables that were read from another storage URL than the configured one.

    This happens when `storage` was changed, and some tables of the day were not made again. `tables`: the details of
    each table, by its name. Tables of earlier versions may not name their storage; they are not refused.
    """
    for name, details in tables.items():
        if details.storage not in (None, storage):
            raise GuardRefused(
                f"{repository} {day}: {name} was read from {details.storage}, and the configuration names {storage}. "
                f"Nothing was deleted. Plan again: `retention plan {repository} --as-of {day}`."
            )


def is_bound_elsewhere(warehouse: Warehouse, repository: Repository) -> bool:
    """Return whether the tables of the repository belong to another location than the configured one."""
    bound = warehouse.read_document(repository.name, _LOCATION, shape=_Location)
    return bound is not None and bound != _location(repository)


def are_of_location(terms: Mapping[str, str], warehouse: Warehouse, repository: str) -> bool:
    """Return whether a plan with these `terms` was made at the location to which the repository's tables are bound."""
    bound = warehouse.read_document(repository, _LOCATION, shape=_Location)
    return bound is not None and all(terms.get(key) == value for key, value in bound.items())


def _location(repository: Repository) -> dict[str, str]:
    return {"namespace": repository.namespace, "storage": repository.storage}
