"""A repository's ledgers and memory belong to one place: its namespace and its storage.

They are kept under the name that `retention.yaml` gives the repository. When that name means another place, they say
nothing of it: an object that was deleted there may live here.
"""

from retention_assets.config.configuration import Repository
from retention_assets.errors import GuardRefused
from retention_assets.state.ledger import plans_with_ledgers
from retention_assets.state.memory import forget
from retention_assets.state.warehouse import Warehouse

_PLACE = "place.json"


def require_same_place(warehouse: Warehouse, repository: Repository) -> None:
    """Bind the repository's tables to its place, or refuse when they belong to another one that was swept.

    Before anything was swept a place may be corrected: what plans remembered of the other one is forgotten.
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
