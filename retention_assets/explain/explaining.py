"""Explains why an object, commit or file of a repository is kept or gone."""

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

from retention_assets.config.configuration import Configuration, Repository
from retention_assets.errors import ConfigurationError
from retention_assets.explain.answers import Answer, ObjectAnswer
from retention_assets.explain.plans import PlanTables, newest_plan
from retention_assets.explain.removals import removals
from retention_assets.warehouse.warehouse import Warehouse

_FOLDERS = {"snapshot": ("snapshots/", "transactions/"), "manifest": ("manifests/",), "chunk": ("chunks/",)}


def explain(configuration: Configuration, name: str, asked: str, day: date | None = None) -> Answer:
    """Return why `asked` is kept or gone: a path, address, commit, snapshot, manifest or chunk of a repository.

    `day`: the day of the plan to use; None: the newest plan that no guard refused.
    Errors: ConfigurationError when nothing of this name is known; GuardRefused without a plan; TableContractError when
    a table of the plan is missing.
    """
    repository = configuration.repository(name)
    tables, notes = newest_plan(Warehouse(configuration.warehouse), repository, day)
    answer = _of_icechunk if repository.is_icechunk else _of_lakefs
    return answer(configuration, tables, relative(repository, asked), notes)


def explain_objects(configuration: Configuration, name: str, addresses: Collection[str]) -> list[ObjectAnswer]:
    """Return the explanations of many objects from the newest plan. Each table is read once."""
    tables, _ = newest_plan(Warehouse(configuration.warehouse), configuration.repository(name), None)
    return _with_removals(tables, _explainer(configuration, tables).objects(addresses))


def relative(repository: Repository, asked: str) -> str:
    """Return the address without the URL of the repository's namespace or storage, if it begins with one of them."""
    spelled = asked.replace("s3a://", "s3://", 1)
    for location in (repository.namespace, repository.storage, repository.storage.removeprefix("file://")):
        if spelled.startswith(f"{location}/"):
            return spelled[len(location) + 1 :]
    return asked


def _explainer(configuration: Configuration, tables: PlanTables) -> Any:
    if tables.repository.is_icechunk:  # these imports take a part of a second each, and only one is needed
        from retention_assets.explain.icechunk import IcechunkExplainer

        return IcechunkExplainer(tables, configuration)
    from retention_assets.explain.lakefs import LakeFSExplainer

    return LakeFSExplainer(tables, configuration)


def _of_lakefs(configuration: Configuration, tables: PlanTables, asked: str, notes: list[str]) -> Answer:
    explainer = _explainer(configuration, tables)
    if commit := explainer.commit(asked):
        return Answer(tables.repository.name, asked, "commit", tables.seen("commit_graph"), (), tuple(notes), commit)
    addresses = [] if explainer.may_be_address(asked) else explainer.addresses_at(asked)
    kind = "path" if addresses else "address"
    objects = _with_removals(tables, explainer.objects(addresses or [asked]))
    if addresses:
        notes.append("This output does not include an object that is staged at this path and not committed.")
    _require_known(tables, asked, objects)
    return Answer(tables.repository.name, asked, kind, tables.seen("commit_graph"), tuple(objects), tuple(notes))


def _of_icechunk(configuration: Configuration, tables: PlanTables, asked: str, notes: list[str]) -> Answer:
    explainer, name = _explainer(configuration, tables), tables.repository.name
    seen = tables.seen("repository_history")
    kind = next((kind for kind, folders in _FOLDERS.items() if asked.startswith(folders)), "address")
    objects = _with_removals(tables, explainer.objects([asked]))
    if not _is_known(objects):
        for of_folders, folders in _FOLDERS.items():
            objects = _with_removals(tables, explainer.objects([f"{folder}{asked}" for folder in folders]))
            if objects := [one for one in objects if _is_known([one])]:
                kind = of_folders
                break
    snapshot = explainer.snapshot(asked.rpartition("/")[2]) if kind == "snapshot" else None
    if snapshot is None:
        _require_known(tables, asked, objects)
    return Answer(name, asked, kind, seen, tuple(objects), tuple(notes), snapshot=snapshot)


def _is_known(objects: Sequence[ObjectAnswer]) -> bool:
    return any(one.listed or one.removal or one.kept_by or one.entries for one in objects)


def _require_known(tables: PlanTables, asked: str, objects: Sequence[ObjectAnswer]) -> None:
    if not _is_known(objects):
        plan = tables.plan
        raise ConfigurationError(
            f"{plan.repository}: {asked!r} is no path, address, commit, snapshot, manifest or chunk that the plan of "
            f"{plan.day} (made at {plan.made_at:%Y-%m-%d %H:%M} UTC) or a ledger has. If it is newer than that plan, "
            f"plan again: `retention plan {plan.repository}`."
        )


def _with_removals(tables: PlanTables, objects: Sequence[ObjectAnswer]) -> list[ObjectAnswer]:
    """Return the explanations with the removals of objects that are not listed, or that the plan named."""
    asked = [one.address for one in objects if not one.listed or one.reason is not None]
    found = removals(tables.warehouse, tables.repository, asked) if asked else {}
    return [one.after(found.get(one.address), tables.plan.made_at) for one in objects]
