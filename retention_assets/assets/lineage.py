"""From which columns of other tables each column is computed, as Dagster's UI draws it."""

from collections.abc import Iterator, Mapping

import dagster as dg

_SAME = "="  # the column has the same name there

# Column: the columns that it is computed from. Tables that come from outside the asset graph are not here.
_LAKEFS: Mapping[str, Mapping[str, str]] = {
    "current_rules": {
        "prefix": "policy_table.=",
        "branch": "policy_table.=",
        "date_to_be_deleted": "policy_table.=",
        "last_deleted": "policy_table.date_to_be_deleted",
    },
    "potential_commits": {
        "commit_id": "commit_graph.=",
        "branches": "commit_graph.=",
        "created_at": "commit_graph.=",
        "metarange_id": "commit_graph.=",
        "active": "commit_graph.created_at commit_graph.main_parent commit_graph.parents commit_graph.head_of",
        "potential": "commit_graph.created_at commit_graph.branches current_rules.branch "
        "current_rules.date_to_be_deleted current_rules.last_deleted",
        "protected": "commit_graph.tags commit_graph.commit_id",
        "due_since": "commit_graph.created_at commit_graph.main_parent commit_graph.head_of",
        "rule_id": "commit_graph.main_parent commit_graph.head_of",
        "is_head": "commit_graph.head_of",
        "left_branches": "commit_graph.parents",
    },
    "active_ranges": {
        "range_id": "potential_commits.metarange_id",
        "branches": "potential_commits.=",
        "first_added_at": "potential_commits.created_at",
        "active": "potential_commits.=",
        "potential": "potential_commits.=",
        "protected": "potential_commits.=",
        "due_since": "potential_commits.= potential_commits.active",
        "left_branches": "potential_commits.=",
        "rule_ids": "potential_commits.rule_id",
        "last_held_at": "potential_commits.created_at",
        "at_head": "potential_commits.is_head",
    },
    "addresses": {
        "address": "active_ranges.range_id",
        "key": "active_ranges.range_id",
        "size": "active_ranges.range_id",
        "last_modified": "active_ranges.range_id",
        "etag": "active_ranges.range_id",
        "range_id": "active_ranges.=",
        "branches": "active_ranges.=",
        "added_at": "active_ranges.first_added_at",
        "active": "active_ranges.=",
        "protected": "active_ranges.=",
        "due_since": "active_ranges.= active_ranges.active",
        "rule_ids": "active_ranges.=",
        "last_held_at": "active_ranges.=",
        "at_head": "active_ranges.=",
        "left_branches": "active_ranges.=",
    },
    "deletion_candidates": {
        "address": "storage_inventory.=",
        "size": "storage_inventory.=",
        "last_modified": "storage_inventory.=",
        "etag": "storage_inventory.=",
        "reason": "addresses.active addresses.added_at addresses.key uncommitted_objects.address",
        "rule_ids": "addresses.= addresses.added_at addresses.key",
        "paths": "addresses.key",
        "branches": "addresses.=",
        "due_since": "addresses.= addresses.added_at",
        "first_committed_at": "addresses.added_at",
        "last_committed_at": "addresses.last_held_at",
    },
}
_HELD = {
    "rule_ids": "repository_history.tip_of repository_history.tags repository_history.parent_id",
    "branches": "repository_history.branches",
    "due_since": "repository_history.flushed_at",
    "first_held_at": "repository_history.flushed_at",
    "last_held_at": "repository_history.flushed_at",
}
_KEPT = "repository_history.tip_of repository_history.tags repository_history.parent_id repository_history.flushed_at"
_ICECHUNK: Mapping[str, Mapping[str, str]] = {
    "expired_snapshots": {
        "snapshot_id": "repository_history.=",
        "decision": f"{_KEPT} repository_history.stored_at",
        "stays": f"{_KEPT} repository_history.stored_at",
        "rule_id": "repository_history.tip_of repository_history.tags",
        "reference": "repository_history.tip_of repository_history.tags",
        "due_since": "repository_history.flushed_at",
        "reason": f"{_KEPT} repository_history.stored_at",
        "new_parent_id": "repository_history.parent_id",
        "deleted_references": "repository_history.tip_of repository_history.tags",
    },
    "reachable_manifests": {
        "manifest_id": "repository_history.snapshot_id",
        "address": "repository_history.snapshot_id",
        "size": "repository_history.snapshot_id",
        "chunk_refs": "repository_history.snapshot_id",
        "snapshots": "repository_history.snapshot_id",
        "live": _KEPT,
        "expired": _KEPT,
        **_HELD,
    },
    "reachable_chunks": dict.fromkeys(("address", "chunk_id", "certain"), "reachable_manifests.manifest_id")
    | dict.fromkeys(("live", "expired", *_HELD), "reachable_manifests.="),
    "deletion_candidates": {
        "address": "storage_inventory.=",
        "size": "storage_inventory.=",
        "last_modified": "storage_inventory.=",
        "etag": "storage_inventory.=",
        "reason": "reachable_manifests.expired reachable_chunks.expired",
        "rule_ids": "reachable_manifests.= reachable_chunks.=",
        "branches": "reachable_manifests.= reachable_chunks.=",
        "due_since": "reachable_manifests.= reachable_chunks.=",
        "first_committed_at": "reachable_manifests.first_held_at reachable_chunks.first_held_at",
        "last_committed_at": "reachable_manifests.last_held_at reachable_chunks.last_held_at",
    },
}
_REPORT = {"deletion_report": {"address": "deletion_candidates.=", "size": "deletion_candidates.="}}
_BY_SYSTEM = {"lakefs": {**_LAKEFS, **_REPORT}, "icechunk": {**_ICECHUNK, **_REPORT}}


def column_lineage(system: str, repository: str, table: str) -> dict[str, dg.TableColumnLineage]:
    """Return the metadata that tells Dagster from which columns a table's columns are computed; empty: from none."""
    columns = _BY_SYSTEM[system].get(table)
    if columns is None:
        return {}
    deps = {name: list(_deps(repository, name, sources)) for name, sources in columns.items()}
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)}


def _deps(repository: str, column: str, sources: str) -> Iterator[dg.TableColumnDep]:
    for source in sources.split():
        table, _, name = source.partition(".")
        yield dg.TableColumnDep(dg.AssetKey([repository, table]), column if name == _SAME else name)
