"""Explains why an object, commit or file of a repository is kept or gone.

The explanation of a removed object has its ledger row, approval and record.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any

from retention_assets.config.configuration import Configuration, Repository, canonical_scheme
from retention_assets.core.amounts import counted
from retention_assets.errors import ConfigurationError, RetentionError
from retention_assets.explain.explanations import Explanation, ObjectExplanation, Removal
from retention_assets.explain.plans import PlanTables, Row, newest_plan
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.acknowledged import known_addresses
from retention_assets.state.approval import stored_approval
from retention_assets.state.ledger import FINISHED, LEDGERS, plans_with_ledgers
from retention_assets.state.plan import PLANNED_OBJECTS, find_plan
from retention_assets.state.records import newest_first
from retention_assets.tables import DELETION_CANDIDATES, LEDGER
from retention_assets.warehouse.reading import one_of, read_directory, read_files
from retention_assets.warehouse.warehouse import Warehouse

_FOLDERS = {"snapshot": ("snapshots/", "transactions/"), "manifest": ("manifests/",), "chunk": ("chunks/",)}
_LAKEFS = "lakefs://"
_COMMIT = re.compile(r"[0-9a-f]{64}")
_MANY = 10_000  # the most paths of a folder that are counted
_REMOVED = (Outcome.DELETED, Outcome.QUARANTINED, Outcome.PURGED)


def explain(configuration: Configuration, name: str, asked: str, day: date | None = None) -> Explanation:
    """Return why `asked` is kept or gone: a path, address, commit, snapshot, manifest or chunk of a repository.

    `day`: the day of the plan to use; None: the newest plan that was neither withdrawn nor refused.
    Errors: ConfigurationError when no table has this name, or it is not UTF-8; GuardRefused when there is no plan;
    TableContractError when a table of the plan is missing, or another version wrote the plan.
    """
    try:
        asked.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{name}: {asked!r} is not UTF-8. Nothing was explained. Ask for the address of the object: `retention "
            f"show {name} addresses`."
        ) from error
    repository = configuration.repository(name)
    asked, of_uri = (asked, []) if repository.is_icechunk else _name_in(repository, asked)
    tables, notes = newest_plan(Warehouse(configuration.warehouse), repository, day)
    if tables.plan.blocked:
        notes.append(f"The plan must not be executed: {tables.plan.blocked}")
    explain_name = _of_icechunk if repository.is_icechunk else _of_lakefs
    return explain_name(configuration, tables, _relative(repository, asked), [*notes, *of_uri])


def _relative(repository: Repository, asked: str) -> str:
    """Return `asked` without the URL of the repository's namespace or storage, if it begins with one of them."""
    spelled = canonical_scheme(asked)
    for location in (repository.namespace, repository.storage, repository.storage.removeprefix("file://")):
        if spelled.startswith(f"{location}/"):
            return spelled[len(location) + 1 :]
    return asked


def _name_in(repository: Repository, asked: str) -> tuple[str, list[str]]:
    """Return the path of a URI `lakefs://REPOSITORY/REF/PATH`, or the commit of `lakefs://REPOSITORY/COMMIT`.

    The second value has a note about the ref. Other names are returned unchanged. Errors: ConfigurationError for the
    URI of another repository, and for a URI without a path.
    """
    if not asked.startswith(_LAKEFS):
        return asked, []
    on_server, _, rest = asked.removeprefix(_LAKEFS).partition("/")
    ref, _, path = rest.partition("/")
    api = repository.lakefs.source.api
    if api is not None and on_server != (api.repository or repository.name):
        raise ConfigurationError(
            f"{repository.name}: {asked!r} is in the server's repository {on_server}, but the configuration of "
            f"{repository.name} names the server's repository {api.repository or repository.name}. Nothing was "
            f"explained. Name the repository that is configured for {on_server}, or a path of {repository.name}."
        )
    if not path and not _COMMIT.fullmatch(ref):
        raise ConfigurationError(
            f"{repository.name}: {asked!r} has no path. Nothing was explained. Write lakefs://REPOSITORY/REF/PATH, a "
            f"path of {repository.name}, an address or a commit."
        )
    notes = [f"The explanation has all versions of {path} in the plan, not only the version of {ref}."] if path else []
    return path or ref, notes


def explainer_of(
    configuration: Configuration,
    tables: PlanTables,
    policy: Policy | SnapshotPolicy | None = None,
    *,
    settles: bool = True,
) -> Any:
    """Return the explainer for the kind of the repository. `policy`, `settles`: see `Explainer`."""
    if tables.repository.is_icechunk:  # both imports are slow, and only one is needed
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
    addresses = explainer.addresses_at(asked)
    kind = "path" if addresses else "address"
    objects = with_removals(tables, explainer.objects(addresses or [asked]))
    if addresses:
        notes.append("An object that is staged at this path and not committed is not included.")
    if not _is_known(objects) and (below := explainer.paths_below(asked, _MANY)):
        paths = counted(len(below), "path") if len(below) <= _MANY else f"more than {_MANY:,} paths"
        raise ConfigurationError(
            f"{tables.repository.name}: {asked!r} is a folder with {paths}. Nothing was explained. Name one of the "
            f"paths, such as {below[0]!r}."
        )
    _require_known(tables, asked, objects)
    plan = tables.used_plan("commit_graph")
    return Explanation(tables.repository.name, asked, kind, plan, tuple(objects), tuple(notes))


def _of_icechunk(configuration: Configuration, tables: PlanTables, asked: str, notes: list[str]) -> Explanation:
    explainer, name = explainer_of(configuration, tables), tables.repository.name
    plan = tables.used_plan("repository_history")
    kind = next((kind for kind, folders in _FOLDERS.items() if asked.startswith(folders)), "address")
    objects = with_removals(tables, explainer.objects([asked]))
    if not _is_known(objects):
        for of_folders, folders in _FOLDERS.items():
            objects = with_removals(tables, explainer.objects([f"{folder}{asked}" for folder in folders]))
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
            f"{plan.repository}: {asked!r} was not found, so nothing was explained. Neither a ledger nor the plan of "
            f"{plan.day}, made at {plan.made_at:%Y-%m-%d %H:%M} UTC, has a path, address, commit, snapshot, manifest "
            f"or chunk of exactly this name (branches and tags are not explained). If {asked!r} is staged and in no "
            f"commit, ask for its address. If it is newer than the plan, plan again: `retention plan "
            f"{plan.repository}`."
        )


def with_removals(tables: PlanTables, objects: Sequence[ObjectExplanation]) -> list[ObjectExplanation]:
    """Return the explanations with the removals of objects that are not listed, or that the plan lists as due.

    In explanations of missing objects that something refers to, `acknowledged` is set, too.
    """
    asked = [one.address for one in objects if not one.listed or one.reason is not None]
    found = removals(tables.warehouse, tables.repository, asked) if asked else {}
    explained = [one.with_removal(found.get(one.address), tables.plan.made_at) for one in objects]
    if not any(one.is_needed_and_missing for one in explained):
        return explained
    lost = known_addresses(tables.warehouse, tables.repository.name)
    return [replace(one, acknowledged=one.is_needed_and_missing and one.address in lost) for one in explained]


def removals(warehouse: Warehouse, repository: Repository, addresses: Collection[str]) -> dict[str, Removal]:
    """Return the removal of each address, from the ledgers of all plans. Addresses without a row are omitted.

    The newest sweep decides, whatever the day of its plan. Only the ledgers of plans that list one of the addresses
    are read.
    """
    planned: dict[str, dict[str, Row]] = {}  # by hash
    rows: dict[str, list[Row]] = {}
    for day, plan_hash in reversed(plans_with_ledgers(warehouse, repository.name)):
        planned[plan_hash] = _planned(warehouse, repository.name, plan_hash, set(addresses))
        if not planned[plan_hash]:
            continue
        found = _ledger_rows(warehouse, repository.name, day, plan_hash, planned[plan_hash].keys())
        for address, of_address in found.items():
            rows.setdefault(address, []).extend({**row, "day": day, "plan_hash": plan_hash} for row in of_address)
    deciding = {address: row for address, of_address in rows.items() if (row := deciding_row(of_address))}
    return {
        address: _removal(warehouse, repository, row, planned[row["plan_hash"]][address])
        for address, row in deciding.items()
    }


def deciding_row(rows: Collection[Row]) -> Row | None:
    """Return the newest of the rows of an address that shows whether the object is gone, else the newest of all rows.

    Rows with a finished outcome show this. Attempts without a result count, too: the object may be gone. The purge of a
    copy is ignored after the object was restored. For Spark, `ledger.newest_conclusive` has the same rule, with one
    difference: here, the outcome `missing` is ignored if an earlier row shows that the object was deleted or moved. The
    earlier row shows where the object is.
    """
    attempts = Counter(row["fence"] for row in rows if row["outcome"] == Outcome.ATTEMPTED)
    results = Counter(row["fence"] for row in rows if row["outcome"] != Outcome.ATTEMPTED)
    deciding = [
        row
        for row in rows
        if row["outcome"] in FINISHED
        or (row["outcome"] == Outcome.ATTEMPTED and attempts[row["fence"]] > results[row["fence"]])
    ]
    found: Row | None = None
    order = sorted(deciding or rows, key=lambda row: (row["fence"], row["outcome"] != Outcome.ATTEMPTED, row["at"]))
    for row in order:
        before, is_copy = found and found["outcome"], (row["detail"] or "").startswith(OF_COPY)
        is_known = row["outcome"] == Outcome.MISSING and before in _REMOVED
        is_of_copy = row["outcome"] == Outcome.PURGED and is_copy and before == Outcome.RESTORED
        if not (is_known or is_of_copy):
            found = row
    return found


def _planned(warehouse: Warehouse, repository: str, plan_hash: str, addresses: Collection[str]) -> dict[str, Row]:
    if not warehouse.is_complete(repository, PLANNED_OBJECTS, plan_hash):
        return {address: {} for address in addresses}
    rows = read_directory(
        warehouse,
        repository,
        PLANNED_OBJECTS,
        plan_hash,
        schema=DELETION_CANDIDATES.schema,
        where=one_of("address", addresses),
    )
    return {row["address"]: row for row in rows.to_pylist()}


def _ledger_rows(
    warehouse: Warehouse, repository: str, day: str, plan_hash: str, addresses: Collection[str]
) -> dict[str, list[Row]]:
    ledger = repository, LEDGERS, day, plan_hash
    files = [
        "/".join((*ledger, sweep, name))
        for sweep in warehouse.directories(*ledger)
        for name in warehouse.files(*ledger, sweep)
        if name.endswith(".parquet")
    ]
    rows: dict[str, list[Row]] = {}
    for row in read_files(warehouse, files, LEDGER, one_of("address", addresses)).to_pylist():
        rows.setdefault(row["address"], []).append(row)
    return rows


def _removal(warehouse: Warehouse, repository: Repository, row: Row, planned: Row) -> Removal:
    """Return the removal. `row`: a ledger row, with the day and hash of its plan. `planned`: its row in the plan."""
    day, plan_hash = date.fromisoformat(row["day"]), row["plan_hash"]
    name, record = _record_of(warehouse, repository.name, plan_hash, row["fence"])
    approval = stored_approval(warehouse, repository.name, day, plan_hash)  # an interrupted run has no record
    by_purge = row["outcome"] == Outcome.PURGED  # without a record, it is unknown who approved the purge
    approved = record or (asdict(approval) if approval and not by_purge else {})
    is_copy = row["outcome"] == Outcome.QUARANTINED
    return Removal(
        outcome=row["outcome"],
        at=row["at"],
        detail=row["detail"],
        plan_hash=plan_hash,
        day=day,
        fence=row["fence"],
        reason=planned.get("reason"),
        rule_ids=tuple(planned.get("rule_ids") or ()),
        paths=tuple(planned.get("paths") or ()),
        due_since=planned.get("due_since"),
        approved_by=approved.get("approved_by"),
        approved_at=approved.get("approved_at"),
        record=name,
        run_id=record.get("run_id"),
        copy=_copy_of(warehouse, repository, plan_hash, day, row["address"]) if is_copy else None,
        purge_after=row["at"] + repository.settings.quarantine.keep if is_copy else None,
    )


def _record_of(
    warehouse: Warehouse, repository: str, plan_hash: str, fence: int
) -> tuple[str | None, Mapping[str, Any]]:
    for name, document in newest_first(warehouse, repository):
        if (document["plan_hash"], document["fence"]) == (plan_hash, fence):
            return name, document
    return None, {}


def _copy_of(warehouse: Warehouse, repository: Repository, plan_hash: str, day: date, address: str) -> str | None:
    from retention_assets.state.quarantine import quarantine_of_plan  # this import takes a quarter of a second

    try:
        quarantine = quarantine_of_plan(repository, find_plan(warehouse, repository.name, plan_hash, day))
    except RetentionError:  # the configured quarantine changed, or a variable is not set: then the URL is unknown
        return None
    return quarantine.describe(address)
