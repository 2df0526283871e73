"""Binds the ledgers and the memory of a repository to one location: its namespace and its storage URL.

The warehouse stores them under the name of the repository in `retention.yaml`. If the configuration gives this name to
another location, they do not apply to it: an object deleted in the old location may be live in the new one.
"""

from retention_assets.config.configuration import Repository
from retention_assets.errors import GuardRefused
from retention_assets.state.ledger import plans_with_ledgers
from retention_assets.state.memory import forget
from retention_assets.state.warehouse import Warehouse

_PLACE = "place.json"


def require_same_place(warehouse: Warehouse, repository: Repository) -> None:
    """Bind the tables of the repository to its location. Raise GuardRefused if they belong to another, swept location.

    Before the first sweep, the location may be changed. The memory of earlier plans is then removed.
    """
    place = {"namespace": repository.namespace, "storage": repository.storage}
    bound = warehouse.read_document(repository.name, _PLACE)
    if bound == place:
        return
    if bound is not None and plans_with_ledgers(warehouse, repository.name):
        raise GuardRefused(
            f"{repository.name}: its ledgers in the warehouse belong to namespace {bound.get('namespace')}, storage "
            f"{bound.get('storage')}; {repository.file} says {place['namespace']}, {place['storage']}. Nothing was "
            f"deleted. Give this repository another name in that file. If all its objects were moved there, remove "
            f"{warehouse.location(repository.name, _PLACE)}."
        )
    if bound is not None:
        forget(warehouse, repository.name)
    warehouse.write_document(place, repository.name, _PLACE)
