"""What Dagster's UI shows about checks and tables: descriptions, one sentence each, and the lineage of columns.

The module does not import Dagster: the command that writes a report uses the descriptions without it.
"""

from collections.abc import Mapping

CHECKS: Mapping[str, str] = {
    "listing_complete": "Every prefix of the store that has objects is in the listing.",
    "namespaces_apart": "No configured repository lies inside another one's storage location.",
    "clock_agrees": "This machine's clock and the store's clock agree within guards.max_clock_skew.",
    "heads_present": "Every branch and every tag names a commit that was read.",
    "ranges_complete": "Every range has as many entries as its metarange says.",
    "metadata_exists": "Every snapshot that the history names has its file in the store.",
    "manifests_whole": "Every manifest has as many chunk references as its snapshots say.",
    "chunks_exist": "Every chunk that a retained snapshot references is in the store.",
    "live_listed": "Every live address is in the listing, was collected by a sweep, or is acknowledged as lost.",
    "live_not_empty": "If objects are listed, some of them are live.",
    "live_not_shrunk": "The live set shrank by guards.max_live_shrink at most since the last plan.",
    "nothing_young": "Every candidate is older than the grace period.",
    "nothing_unknown": "No candidate is unreferenced while the staged list is unknown.",
    "only_generated_names": "Every candidate has a name that the system generates.",
    "nothing_live": "No candidate is live.",
    "only_listed": "Every candidate is in the listing once, with the size and time of the plan.",
    "totals_balance": "The states of all listed objects add up to the listing, and the candidates to the plan.",
    "staged_read": "The server's list of staged objects was read.",
    "live_exist": "Every object that a commit or the staging area references is in the store.",
    "references_resolve": "Every branch and every tag names a snapshot whose history is complete.",
    "kept_exist": "Every retained snapshot, manifest and chunk is in the store.",
    "logs_exist": "No sweep deleted a retained transaction log.",
    "deleted_are_gone": "No object that a ledger lists as deleted, missing or purged is in the store.",
    "quarantine_is_whole": "Every object that a ledger lists as quarantined is in the quarantine with its size.",
    "totals_hold": "The ledger of each plan lists only objects of the plan, each at most once.",
    "records_follow": "The chain of records is unbroken, and each ledger matches its record.",
    "records_signed": "Each record is signed by a key of the configuration, if a key is configured.",
    "records_copied": "The witness has a copy of each record, if a witness is configured.",
}

_BRANCHES = "Branches whose head reaches it by any parent."
_DUE = "When it expired under the last of its rules; null while it is retained."
_RULES = "Rules under which it expired."
_SIZE = "Bytes."

# A column whose meaning differs by table has the table's name before it.
_COLUMNS: Mapping[str, str] = {
    "run_id": "The run that read this version of the policy.",
    "rule_id": "The rule.",
    "prefix": "The directory that the rule covers; empty: everything.",
    "branch": "A branch name or glob; empty: all branches.",
    "date_to_be_deleted": "Objects that were added before this day are due; null: never.",
    "policy_hash": "The hash of the whole policy.",
    "last_deleted": "Everything that was due under the rule up to this day has been deleted; null: not yet.",
    "address": "The object's key, relative to the storage namespace; outside it, an absolute URI.",
    "size": _SIZE,
    "last_modified": "When the object was written, by the store's clock.",
    "addresses.last_modified": "When the object was written, as the entry says.",
    "etag": "The store's ETag; null for local files, whose ETag does not depend on the content.",
    "addresses.etag": "The entry's checksum; empty when it has none.",
    "source": "How the object is known: listing or inventory.",
    "created_at": "When the commit was created, by the committer's clock.",
    "uncommitted_objects.created_at": "When the object was staged, by the server's clock.",
    "commit_id": "The commit.",
    "parents": "The commit's parents, in order.",
    "main_parent": "The parent whose line the commit continues.",
    "metarange_id": "The commit's metarange; empty: the commit has no objects.",
    "branches": _BRANCHES,
    "head_of": "Branches whose head is the commit.",
    "tags": "Tags on it.",
    "dangling": "Whether no branch and no tag reaches the commit.",
    "active": "Whether committed retention keeps it.",
    "potential": "Whether it may contain objects that became due since the last complete run.",
    "protected": "Whether a tag or a hold keeps it.",
    "due_since": _DUE,
    "is_head": "Whether the commit is the head of a branch.",
    "left_branches": "Branches whose head reached it in an earlier plan, if that head is gone now.",
    "range_id": "The range; of an address, one of the ranges that contain it.",
    "first_added_at": "When the oldest commit that contains the range was created.",
    "rule_ids": _RULES,
    "last_held_at": "When the newest commit or snapshot that contains it was created.",
    "at_head": "Whether the head of a branch contains it.",
    "key": "The path in the repository.",
    "added_at": "When the oldest commit with this path and address was created.",
    "snapshot_id": "The snapshot.",
    "parent_id": "The snapshot's parent; null: a root.",
    "flushed_at": "When the snapshot was written, by the writer's clock; null: it is not in the history.",
    "stored_at": "When the snapshot's file was written, by the store's clock; null: it is not in the listing.",
    "listed": "Whether the snapshot is in the history; false: only its file is there.",
    "message": "The commit message.",
    "tip_of": "Branches whose tip is the snapshot.",
    "pruned_logs": "Transaction logs of ancestors that are no longer in the history.",
    "decision": "kept; released (expired by the policy); dropped (unreachable and old).",
    "stays": "Whether its file and everything that it references stay.",
    "reference": "The branch or tag to whose history the rule applies.",
    "reason": "Why the object may be deleted: expired, lifecycle or unreferenced.",
    "expired_snapshots.reason": "Why the snapshot is kept or deleted.",
    "new_parent_id": "The snapshot's parent after the edit; null: it keeps its parent.",
    "deleted_references": "Expired branches and tags on the snapshot. A sweep deletes them.",
    "manifest_id": "The manifest.",
    "chunk_refs": "Chunk references of all kinds in the manifest, as snapshots say.",
    "snapshots": "How many snapshots list the manifest.",
    "live": "Whether a retained snapshot references it.",
    "expired": "Whether only expired snapshots reference it.",
    "first_held_at": "When the oldest snapshot that references it was written; null: unknown.",
    "chunk_id": "The chunk; null: a virtual reference into this repository.",
    "certain": "false: only virtual references name it, and they may mean another location.",
    "paths": "Paths in the repository under which the object was committed.",
    "first_committed_at": "When the oldest commit that contains the object was created.",
    "last_committed_at": "When the newest commit that contains the object was created.",
    "outcome": "deleted, missing, failed, skipped, quarantined, restored or purged.",
    "detail": "Why, where the outcome is not `deleted`.",
    "at": "When the sweep recorded the outcome, by this machine's clock.",
    "check": "The check.",
    "passed": "Whether the check passed.",
    "saw": "What the check found.",
}


def column_description(table: str, column: str) -> str | None:
    """Return the description of a column; None if the column is unknown."""
    return _COLUMNS.get(f"{table}.{column}", _COLUMNS.get(column))


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
_OF_SNAPSHOTS = {
    "rule_ids": "repository_history.tip_of repository_history.tags repository_history.parent_id",
    "branches": "repository_history.branches",
    "due_since": "repository_history.flushed_at",
    "first_held_at": "repository_history.flushed_at",
    "last_held_at": "repository_history.flushed_at",
}
_RETENTION = (
    "repository_history.tip_of repository_history.tags repository_history.parent_id repository_history.flushed_at"
)
_ICECHUNK: Mapping[str, Mapping[str, str]] = {
    "expired_snapshots": {
        "snapshot_id": "repository_history.=",
        "decision": f"{_RETENTION} repository_history.stored_at",
        "stays": f"{_RETENTION} repository_history.stored_at",
        "rule_id": "repository_history.tip_of repository_history.tags",
        "reference": "repository_history.tip_of repository_history.tags",
        "due_since": "repository_history.flushed_at",
        "reason": f"{_RETENTION} repository_history.stored_at",
        "new_parent_id": "repository_history.parent_id",
        "deleted_references": "repository_history.tip_of repository_history.tags",
    },
    "reachable_manifests": {
        "manifest_id": "repository_history.snapshot_id",
        "address": "repository_history.snapshot_id",
        "size": "repository_history.snapshot_id",
        "chunk_refs": "repository_history.snapshot_id",
        "snapshots": "repository_history.snapshot_id",
        "live": _RETENTION,
        "expired": _RETENTION,
        **_OF_SNAPSHOTS,
    },
    "reachable_chunks": dict.fromkeys(("address", "chunk_id", "certain"), "reachable_manifests.manifest_id")
    | dict.fromkeys(("live", "expired", *_OF_SNAPSHOTS), "reachable_manifests.="),
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


def column_sources(system: str, table: str) -> dict[str, list[tuple[str, str]]]:
    """Return the (table, column) pairs from which each column of a table is computed; empty if none are known."""
    columns = _BY_SYSTEM[system].get(table, {})
    return {name: [_source(one, name) for one in sources.split()] for name, sources in columns.items()}


def _source(written: str, column: str) -> tuple[str, str]:
    table, _, name = written.partition(".")
    return table, column if name == _SAME else name
