"""Explains why an object, commit or file of a repository is kept or gone."""

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

from retention_assets.config.configuration import Configuration, Repository
from retention_assets.errors import ConfigurationError
from retention_assets.explain.explanations import Explanation, ObjectExplanation
from retention_assets.explain.plans import PlanTables, newest_plan
from retention_assets.explain.removals import removals
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.warehouse import Warehouse

_FOLDERS = {"snapshot": ("snapshots/", "transactions/"), "manifest": ("manifests/",), "chunk": ("chunks/",)}


def explain(configuration: Configuration, name: str, asked: str, day: date | None = None) -> Explanation:
    """Return why `asked` is kept or gone: a path, address, commit, snapshot, manifest or chunk of a repository.

    `day`: the day of the plan to use; None: the newest plan that no guard refused.
    Errors: ConfigurationError when no table has this name; GuardRefused when there is no plan; TableContractError when
    a table of the plan is missing.
    """
    repository = configuration.repository(name)
    tables, notes = newest_plan(Warehouse(configuration.warehouse), repository, day)
    explain_name = _of_icechunk if repository.is_icechunk else _of_lakefs
    return explain_name(configuration, tables, relative(repository, asked), notes)


def explain_objects(configuration: Configuration, name: str, addresses: Collection[str]) -> list[ObjectExplanation]:
    """Return the explanations of many objects from the newest plan. Each table is read once."""
    tables, _ = newest_plan(Warehouse(configuration.warehouse), configuration.repository(name), None)
    return _with_removals(tables, explainer_of(configuration, tables).objects(addresses))


def relative(repository: Repository, asked: str) -> str:
    """Return the address without the URL of the repository's namespace or storage, if it begins with one of them."""
    spelled = asked.replace("s3a://", "s3://", 1)
    for location in (repository.namespace, repository.storage, repository.storage.removeprefix("file://")):
        if spelled.startswith(f"{location}/"):
            return spelled[len(location) + 1 :]
    return asked


def explainer_of(
    configuration: Configuration,
    tables: PlanTables,
    policy: Policy | SnapshotPolicy | None = None,
    *,
    settles: bool = True,
) -> Any:
    """Return the explainer for the kind of the repository. `policy`, `settles`: see `LakeFSExplainer`."""
    if tables.repository.is_icechunk:  # these imports take a part of a second each, and only one is needed
        from retention_assets.explain.icechunk import IcechunkExplainer

        assert not isinstance(policy, Policy)
        return IcechunkExplainer(tables, configuration, policy, settles)
    from retention_assets.explain.lakefs import LakeFSExplainer

    assert not isinstance(policy, SnapshotPolicy)
    return LakeFSExplainer(tables, configuration, policy, settles)


def _of_lakefs(configuration: Configuration, tables: PlanTables, asked: str, notes: list[str]) -> Explanation:
    explainer = explainer_of(configuration, tables)
    if commit := explainer.commit(asked):
        plan = tables.used_plan("commit_graph")
        return Explanation(tables.repository.name, asked, "commit", plan, (), tuple(notes), commit)
    addresses = [] if explainer.may_be_address(asked) else explainer.addresses_at(asked)
    kind = "path" if addresses else "address"
    objects = _with_removals(tables, explainer.objects(addresses or [asked]))
    if addresses:
        notes.append("This output does not include an object that is staged at this path and not committed.")
    _require_known(tables, asked, objects)
    plan = tables.used_plan("commit_graph")
    return Explanation(tables.repository.name, asked, kind, plan, tuple(objects), tuple(notes))


def _of_icechunk(configuration: Configuration, tables: PlanTables, asked: str, notes: list[str]) -> Explanation:
    explainer, name = explainer_of(configuration, tables), tables.repository.name
    plan = tables.used_plan("repository_history")
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
    return Explanation(name, asked, kind, plan, tuple(objects), tuple(notes), snapshot=snapshot)


def _is_known(objects: Sequence[ObjectExplanation]) -> bool:
    return any(one.listed or one.removal or one.kept_by or one.entries for one in objects)


def _require_known(tables: PlanTables, asked: str, objects: Sequence[ObjectExplanation]) -> None:
    if not _is_known(objects):
        plan = tables.plan
        raise ConfigurationError(
            f"{plan.repository}: {asked!r} was not found. Neither a ledger nor the plan of {plan.day}, made at "
            f"{plan.made_at:%Y-%m-%d %H:%M} UTC, has a path, address, commit, snapshot, manifest or chunk of this "
            f"name. If it is newer than the plan, plan again: `retention plan {plan.repository}`."
        )


def _with_removals(tables: PlanTables, objects: Sequence[ObjectExplanation]) -> list[ObjectExplanation]:
    """Return the explanations with the removals of objects that are not listed, or that the plan lists as due."""
    asked = [one.address for one in objects if not one.listed or one.reason is not None]
    found = removals(tables.warehouse, tables.repository, asked) if asked else {}
    return [one.with_removal(found.get(one.address), tables.plan.made_at) for one in objects]
