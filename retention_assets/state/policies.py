"""Stores policies in the warehouse: the rules that each run read, and the plans that were completed under them.

The rows are on the driver: their number depends on rules and runs, not on objects. The policy of each plan is stored by
its hash, so that a plan can be explained after the policy has changed.
"""

from datetime import date
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.policy.table import CurrentRule, current_rules, policy_rows, snapshot_policy_rows
from retention_assets.tables import CURRENT_RULES, POLICY_TABLE
from retention_assets.warehouse.metadata import needed
from retention_assets.warehouse.reading import read_directory, read_files
from retention_assets.warehouse.warehouse import SUCCESS, Rows, Warehouse, has_rows

_COMPLETED = "completed"  # has one document for each completed plan
POLICIES = "policies"  # has one document for each policy


class _Completed(TypedDict):
    """The key of a document in `_COMPLETED` that is read."""

    policy_run: str


def policy_versions(
    warehouse: Warehouse, repository: str, day: date, policy: Policy | SnapshotPolicy, run_id: str
) -> pa.Table:
    """Return the day's rows of `policy_table`: the rows of earlier runs, and the rows of this run, from `policy`.

    If the run has rows already, the rows from `policy` replace them.
    """
    rows = policy_rows(policy, day, run_id) if isinstance(policy, Policy) else snapshot_policy_rows(policy, day, run_id)
    if warehouse.is_complete(repository, POLICY_TABLE.name, day.isoformat()):
        before = read_directory(warehouse, repository, POLICY_TABLE.name, day.isoformat(), schema=POLICY_TABLE.schema)
        earlier = before.filter(pc.not_equal(before["run_id"], run_id))
        rows = pa.concat_tables([earlier.cast(POLICY_TABLE.schema), rows])
    return rows


def rules_in_force(warehouse: Warehouse, repository: str, policy_table: Rows) -> pa.Table:
    """Return the rows of `current_rules`: the lifecycle rules of the current run, with the history of all days."""
    files = [path.rpartition("/") for path in warehouse.tree(repository, POLICY_TABLE.name)]
    complete = {day for day, _, name in files if name == SUCCESS}
    stored = ["/".join((day, name)) for day, _, name in files if day in complete and has_rows(name)]
    history = read_files(warehouse, stored, pa.schema([pa.field(one.name, one.type) for one in POLICY_TABLE.schema]))
    newest = needed(policy_table.details.policy_run, POLICY_TABLE.name, "policy_run")
    return current_rules(history, newest, completed_runs(warehouse, repository))


def current_rules_of(table: pa.Table) -> list[CurrentRule]:
    """Return the rows of `current_rules` as `CurrentRule` objects."""
    return [CurrentRule(**row) for row in table.select(CURRENT_RULES.schema.names).to_pylist()]


def record_completed(warehouse: Warehouse, repository: str, day: date, plan_hash: str, policy_run: str) -> None:
    """Record that a plan was completed under the rules of the run `policy_run`."""
    document = {"policy_run": policy_run, "plan_hash": plan_hash, "day": day.isoformat()}
    warehouse.write_document(document, repository, _COMPLETED, f"{day}-{plan_hash[:16]}.json")


def completed_runs(warehouse: Warehouse, repository: str) -> frozenset[str]:
    """Return the runs under whose rules a plan was completed."""
    documents = warehouse.read_documents(repository, _COMPLETED, shape=_Completed)
    return frozenset(document["policy_run"] for document in documents)


def keep_policy(warehouse: Warehouse, repository: str, policy: Policy | SnapshotPolicy) -> None:
    """Store the policy of a plan."""
    document = TypeAdapter(type(policy)).dump_python(policy, mode="json", by_alias=True)
    warehouse.write_document(document, repository, POLICIES, f"{policy.policy_hash}.json")


def kept_policy[P: (Policy, SnapshotPolicy)](
    warehouse: Warehouse, repository: str, policy_hash: str, kind: type[P]
) -> P | None:
    """Return the policy with this hash; None if an earlier version did not store it, or if it was changed."""
    document = warehouse.read_document(repository, POLICIES, f"{policy_hash}.json")
    try:
        policy = None if document is None else TypeAdapter(kind).validate_python(document)
    except ValidationError:
        policy = None
    return policy if policy is not None and policy.policy_hash == policy_hash else None
