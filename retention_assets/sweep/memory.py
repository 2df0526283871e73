"""What each plan leaves for the next ones: the heads and commits that it saw, and the objects that it named.

Kept below `memory/<plan>` and `due_objects/<plan>` of a repository; the newest plan counts. Source: DESIGN.md,
invariants 5 and 11.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import TableContractError
from retention_assets.history.references import References
from retention_assets.history.reflog import Memory, SeenHead, remember, with_true_ages
from retention_assets.policy.rules import Policy
from retention_assets.settings import LakeFSSettings
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.plan import Plan, made_name
from retention_assets.tables import DUE_OBJECTS, INSTANT

MEMORY = "memory"
_COMMITS, _HEADS = "commits.parquet", "heads.json"
_KNOWN = pa.schema([("commit_id", pa.string()), ("not_before", INSTANT)])
_STAY = 2  # plans whose memory stays: the newest one, and one that a run at work may still read


def read_memory(warehouse: Warehouse, repository: str, settings: LakeFSSettings) -> Memory:
    """Return what the plans so far saw; nothing when the reflog is switched off, or no plan left a memory.

    Errors: TableContractError when a part of it is not there.
    """
    return _newest(warehouse, repository) if settings.keeps_reflog else Memory()


def _newest(warehouse: Warehouse, repository: str) -> Memory:
    for name in reversed(warehouse.directories(repository, MEMORY)):
        document = warehouse.read_document(repository, MEMORY, name, _HEADS)
        if document is not None:  # written last: without it the plan was cut off
            return _memory(document, warehouse.read_rows(repository, MEMORY, name, _COMMITS))
    return Memory()


def keep_memory(warehouse: Warehouse, plan: Plan, references: References, policy: Policy) -> None:
    """Keep what the plans so far saw and what this one saw, and remove what no later plan reads.

    So it is also while the reflog is switched off: one plan without it must not forget what all before it saw. Nor may
    a plan from references that are older than those of the last plan, as of a day whose tables are made anew.
    """
    name, before = made_name(plan), _newest(warehouse, plan.repository)
    if before.seen_at is not None and references.taken_at < before.seen_at:
        return
    memory = remember(with_true_ages(references, before), before, policy)
    if warehouse.read_document(plan.repository, MEMORY, name, _HEADS) is not None:
        return
    commits = sorted(memory.not_before.items())
    columns = [[commit for commit, _ in commits], [at for _, at in commits]]
    warehouse.append_rows(pa.table(columns, schema=_KNOWN), plan.repository, MEMORY, name, _COMMITS)
    heads = [
        {"kind": head.kind, "name": head.name, "commit_id": head.commit_id, "last_seen": head.last_seen.isoformat()}
        for head in memory.heads
    ]
    seen_at = memory.seen_at.isoformat() if memory.seen_at else None
    warehouse.write_document({"seen_at": seen_at, "heads": heads}, plan.repository, MEMORY, name, _HEADS)
    for old in warehouse.directories(plan.repository, MEMORY)[:-_STAY]:
        warehouse.remove_directory(plan.repository, MEMORY, old)


def forget(warehouse: Warehouse, repository: str) -> None:
    """Remove what the plans so far saw and named."""
    for table in (MEMORY, DUE_OBJECTS.name):
        warehouse.remove_directory(repository, table)


def due_objects(spark: SparkSession, warehouse: Warehouse, repository: str) -> DataFrame:
    """Return what the newest plan named, waiting objects included; nothing when no plan left it."""
    for name in reversed(warehouse.directories(repository, DUE_OBJECTS.name)):
        if warehouse.is_complete(repository, DUE_OBJECTS.name, name):
            return _read(spark, warehouse.location(repository, DUE_OBJECTS.name, name))
    return spark.createDataFrame(DUE_OBJECTS.schema.empty_table())


def due_objects_of(spark: SparkSession, warehouse: Warehouse, plan: Plan) -> DataFrame:
    """Return what a plan named. Errors: TableContractError when that is not there any more."""
    return _read(spark, due_objects_place(warehouse, plan))


def due_objects_place(warehouse: Warehouse, plan: Plan) -> str:
    """Return where the rows are that a plan named. Errors: TableContractError when they are not there any more."""
    name = made_name(plan)
    if not warehouse.is_complete(plan.repository, DUE_OBJECTS.name, name):
        raise TableContractError(
            f"{plan.repository}: {DUE_OBJECTS.name} of the plan of {plan.day} is not there. Only the newest plans have "
            f"it. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
        )
    return warehouse.location(plan.repository, DUE_OBJECTS.name, name)


def _read(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.schema(from_arrow_schema(DUE_OBJECTS.schema)).parquet(place)


def keep_due(warehouse: Warehouse, plan: Plan, due: DataFrame) -> None:
    """Keep what a plan named, and remove what no later plan reads. `due`: rows of `DUE_OBJECTS`."""
    name, rows = made_name(plan), due.select(*DUE_OBJECTS.schema.names)
    if not warehouse.is_complete(plan.repository, DUE_OBJECTS.name, name):
        rows.write.mode("overwrite").parquet(warehouse.location(plan.repository, DUE_OBJECTS.name, name))
    for old in warehouse.directories(plan.repository, DUE_OBJECTS.name)[:-_STAY]:
        warehouse.remove_directory(plan.repository, DUE_OBJECTS.name, old)


def _memory(document: dict[str, Any], commits: pa.Table) -> Memory:
    heads = [
        SeenHead(head["kind"], head["name"], head["commit_id"], _instant(head["last_seen"]))
        for head in document["heads"]
    ]
    known = dict(zip(commits["commit_id"].to_pylist(), commits["not_before"].to_pylist(), strict=True))
    return Memory(tuple(heads), known, _instant(document["seen_at"]) if document["seen_at"] else None)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
