"""Stores the heads and commits that each plan found, for later plans."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any, NotRequired, TypedDict

import pyarrow as pa

from retention_assets.config.settings import LakeFSSettings
from retention_assets.errors import TableContractError
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead, merged, remember, with_older_heads, with_true_ages
from retention_assets.policy.rules import Policy
from retention_assets.state.binding import are_of_location
from retention_assets.state.memory import LONGEST_WRITE, MEMORY, NEWEST_MEMORY, PLANS_STORED, NewestMemory
from retention_assets.state.plan import Plan, last_terms, made_at_name, made_name
from retention_assets.tables import TIMESTAMP
from retention_assets.warehouse.warehouse import Warehouse

_COMMITS, _HEADS = "commits.parquet", "heads.json"
_KNOWN = pa.schema([("commit_id", pa.string()), ("not_before", TIMESTAMP)])


class _Head(TypedDict):
    kind: str
    name: str
    commit_id: str
    last_seen: datetime


class _Document(TypedDict):
    """The keys of the document `_HEADS`."""

    seen_at: datetime | None
    heads: list[_Head]
    includes: NotRequired[list[str]]


def read_memory(warehouse: Warehouse, repository: str, settings: LakeFSSettings) -> Memory:
    """Return the memory of earlier plans. It is empty if the reflog is switched off, or before the first plan.

    Errors: TableContractError when the memory or a part of it is missing: the commits of a deleted branch would expire
    too early.
    """
    if not settings.keeps_reflog:
        return Memory()
    stored = _stored(warehouse, repository)
    missing = [MEMORY, stored.lost, _HEADS] if stored.lost else []
    if stored.memory is None and are_of_location(last_terms(warehouse, repository), warehouse, repository):
        missing = [MEMORY]
    if missing:
        raise TableContractError(
            f"{warehouse.location(repository, *missing)}: is missing, but earlier plans wrote it. The commits of "
            "deleted branches would expire too early. Nothing was deleted. Copy it from a backup of the warehouse. Or, "
            "to go on without what these plans found, plan once with `reflog: false`."
        )
    return stored.memory or Memory()


def last_read_at(warehouse: Warehouse, repository: str) -> datetime | None:
    """Return the time of the newest references that a plan has read, also while the reflog is switched off.

    None before the first plan.
    """
    stored = _stored(warehouse, repository).memory
    return stored.seen_at if stored else None


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored memories of a repository."""

    memory: Memory | None  # what all of them found; None: there is none
    names: list[str]  # of all complete memories
    lost: str | None  # the name of the memory that was stored last, if it is missing


def _stored(warehouse: Warehouse, repository: str) -> _Stored:
    """Return the stored memories.

    The newest memory includes those before it. Memories of plans that ran at the same time do not include each other.
    """
    # First: another plan may store one meanwhile.
    last = warehouse.read_document(repository, MEMORY, NEWEST_MEMORY, shape=NewestMemory)
    stored = {}
    for name in warehouse.directories(repository, MEMORY):
        document = warehouse.read_document(repository, MEMORY, name, _HEADS, shape=_Document)
        if document is not None:  # written last: if it is missing, the plan was interrupted, or is still running
            stored[name] = document
    included: set[str] = set()
    for name, document in stored.items():  # without `includes`, an earlier version wrote it: it includes all before it
        included.update(document.get("includes", [one for one in stored if one < name]))
    memories = [
        _memory(document, warehouse.read_rows(repository, MEMORY, name, _COMMITS))
        for name, document in stored.items()
        if name not in included
    ]
    lost = last["name"] if last and _is_lost(last, stored, included) else None
    return _Stored(reduce(merged, memories) if memories else None, sorted(stored), lost)


def _is_lost(last: Mapping[str, Any], stored: Mapping[str, Mapping[str, Any]], included: Collection[str]) -> bool:
    """Return whether the memory that was stored last is missing, and no other memory includes it.

    `last` may not be the newest memory: earlier versions did not write `NEWEST_MEMORY`, and neither does an interrupted
    plan.
    """
    if last["name"] in stored or last["name"] in included:
        return False
    times = (_timestamp(document["seen_at"]) for document in stored.values() if document["seen_at"])
    return not any(at > _timestamp(last["seen_at"]) for at in times)


def keep_memory(warehouse: Warehouse, plan: Plan, references: References, policy: Policy) -> None:
    """Store what earlier plans and this plan found, and remove old memories that the new one includes.

    The memory is stored even while the reflog is switched off. Otherwise one plan without the reflog would lose what
    all earlier plans found. If the references are older than those of another plan, only heads that no other plan
    found are added. This happens when plans run at the same time, or when a plan is made again from the
    stored tables of an earlier day.
    """
    name, stored = made_name(plan), _stored(warehouse, plan.repository)
    included, before = stored.names, stored.memory or Memory()
    if name in included:
        return
    if before.seen_at is not None and references.taken_at < before.seen_at:
        memory = with_older_heads(references, before, policy)
        if memory == before:
            return
    else:
        memory = remember(with_true_ages(references, before), before, policy)
    commits = sorted(memory.not_before.items())
    columns = [[commit for commit, _ in commits], [at for _, at in commits]]
    warehouse.append_rows(pa.table(columns, schema=_KNOWN), plan.repository, MEMORY, name, _COMMITS)
    heads = [
        {"kind": head.kind, "name": head.name, "commit_id": head.commit_id, "last_seen": head.last_seen.isoformat()}
        for head in memory.heads
    ]
    seen_at = memory.seen_at.isoformat() if memory.seen_at else None
    document = {"seen_at": seen_at, "heads": heads, "includes": included}
    warehouse.write_document(document, plan.repository, MEMORY, name, _HEADS)
    warehouse.write_document({"name": name, "seen_at": seen_at}, plan.repository, MEMORY, NEWEST_MEMORY)
    for old in warehouse.directories(plan.repository, MEMORY)[:-PLANS_STORED]:
        is_complete = warehouse.file(plan.repository, MEMORY, old, _HEADS) is not None
        is_interrupted = not is_complete and old < made_at_name(plan.made_at - LONGEST_WRITE)
        if old in included or is_interrupted:  # the others are from plans that run at the same time
            warehouse.remove_directory(plan.repository, MEMORY, old)


def _memory(document: dict[str, Any], commits: pa.Table) -> Memory:
    heads = [
        SeenHead(head["kind"], head["name"], head["commit_id"], _timestamp(head["last_seen"]))
        for head in document["heads"]
    ]
    known = dict(zip(commits["commit_id"].to_pylist(), commits["not_before"].to_pylist(), strict=True))
    return Memory(tuple(heads), known, _timestamp(document["seen_at"]) if document["seen_at"] else None)


def _timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
