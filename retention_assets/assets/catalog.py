"""What Dagster's UI shows about checks and tables: the meaning of each check, and the lineage of columns.

This module does not import Dagster, because the command `report` uses the descriptions and does not need Dagster.
"""

from collections.abc import Mapping

from retention_assets.tables import TABLES

NONE_FAILED = "none_failed"  # the check of a sweep
CHECKS: Mapping[str, str] = {
    "listing_complete": "Every prefix of the store that has objects is in the listing.",
    "namespaces_apart": "No other repository, configured or on the lakeFS server, has a location that overlaps.",
    "clock_agrees": "This machine's clock and the store's clock agree within guards.max_clock_skew.",
    "heads_present": "Every branch and every tag names a commit that was read.",
    "ranges_complete": "Every range has as many entries as its metarange says.",
    "metadata_exists": "Every snapshot and manifest that must stay is in the store, or is acknowledged as lost.",
    "manifests_whole": "Every live manifest has as many chunk references as its snapshots say.",
    "chunks_exist": "Every chunk that must stay is in the store, or is acknowledged as lost.",
    "live_listed": "Every live address is in the listing, was deleted by a sweep, is acknowledged as lost, or is "
    "younger than `grace`.",
    "live_not_empty": "If objects are listed, some of them are live.",
    "live_not_shrunk": "Since the last plan, the number of live addresses fell by at most guards.max_live_shrink.",
    "nothing_young": "Every candidate is older than `grace`. In lakeFS, an unreferenced candidate is also older than "
    "`token_life`.",
    "nothing_unknown": "If the list of staged objects is unknown, every candidate is an object of a commit.",
    "only_generated_names": "Every candidate has a name that lakeFS or Icechunk generates.",
    "nothing_live": "No candidate is live.",
    "only_listed": "Every candidate is in the listing exactly once, with the size and time of the plan.",
    "totals_balance": "The totals of all states add up to the listing. The state `candidate` and the plan have the "
    "same total.",
    NONE_FAILED: "If the run executed the plan, no object of the plan has the outcome `failed`.",
    "staged_read": "The server's list of staged objects was read.",
    "live_exist": "Every object of an active or protected commit, and every staged object, is in the store, was "
    "deleted by a lifecycle rule, or is acknowledged as lost.",
    "references_resolve": "Every branch and every tag names a snapshot whose history is complete.",
    "kept_exist": "Every retained snapshot, manifest and chunk is in the store, or is acknowledged as lost.",
    "logs_exist": "No sweep deleted a retained transaction log.",
    "deleted_are_gone": "No object that a ledger lists as deleted, missing, quarantined or purged is in the listing, "
    "unless it was written again.",
    "quarantine_is_whole": "Every quarantined object has a copy of its size. No purged object has a copy.",
    "totals_hold": "The stored objects of each plan match its hash. Its ledger lists only these objects.",
    "records_follow": "The chain of records is unbroken, and each ledger matches its record.",
    "records_signed": "Each record is signed by a key of the configuration, if a key is configured.",
    "records_copied": "The witness has a copy of each record and of no other record, if a witness is configured.",
}

# For each table: its main input, and the columns that are not copied from the main input's column of the same name.
# Tables whose rows come from outside the asset graph are not listed.
type _Sources = Mapping[str, tuple[str, Mapping[str, str]]]
_LAKEFS: _Sources = {
    "current_rules": ("policy_table", {"last_deleted": "policy_table.date_to_be_deleted"}),
    "potential_commits": (
        "commit_graph",
        {
            "active": "commit_graph.created_at commit_graph.main_parent commit_graph.parents commit_graph.head_of",
            "potential": "commit_graph.created_at commit_graph.branches current_rules.branch "
            "current_rules.date_to_be_deleted current_rules.last_deleted",
            "protected": "commit_graph.tags commit_graph.commit_id",
            "due_since": "commit_graph.created_at commit_graph.main_parent commit_graph.head_of",
            "rule_id": "commit_graph.main_parent commit_graph.head_of",
            "is_head": "commit_graph.head_of",
            "left_branches": "commit_graph.parents",
        },
    ),
    "active_ranges": (
        "potential_commits",
        {
            "range_id": "potential_commits.metarange_id",
            "first_added_at": "potential_commits.created_at",
            "due_since": "potential_commits.due_since potential_commits.active",
            "rule_ids": "potential_commits.rule_id",
            "last_held_at": "potential_commits.created_at",
            "at_head": "potential_commits.is_head",
        },
    ),
    "addresses": (
        "active_ranges",
        {
            **dict.fromkeys(("address", "key", "size", "last_modified", "etag"), "active_ranges.range_id"),
            "added_at": "active_ranges.first_added_at",
            "due_since": "active_ranges.due_since active_ranges.active",
        },
    ),
    "deletion_candidates": (
        "storage_inventory",
        {
            "reason": "addresses.active addresses.added_at addresses.key uncommitted_objects.address",
            "rule_ids": "addresses.rule_ids addresses.added_at addresses.key",
            "paths": "addresses.key",
            "branches": "addresses.branches",
            "due_since": "addresses.due_since addresses.added_at",
            "first_committed_at": "addresses.added_at",
            "last_committed_at": "addresses.last_held_at",
        },
    ),
}
_REFERENCES = "repository_history.tip_of repository_history.tags"
_RETENTION = f"{_REFERENCES} repository_history.parent_id repository_history.flushed_at"
_ICECHUNK: _Sources = {
    "expired_snapshots": (
        "repository_history",
        {
            **dict.fromkeys(("decision", "stays", "reason"), f"{_RETENTION} repository_history.stored_at"),
            **dict.fromkeys(("rule_id", "reference", "deleted_references"), _REFERENCES),
            "due_since": "repository_history.flushed_at",
            "new_parent_id": "repository_history.parent_id",
        },
    ),
    "reachable_manifests": (
        "repository_history",
        {
            **dict.fromkeys(
                ("manifest_id", "address", "size", "chunk_refs", "snapshots"), "repository_history.snapshot_id"
            ),
            **dict.fromkeys(("live", "expired"), _RETENTION),
            "rule_ids": f"{_REFERENCES} repository_history.parent_id",
            **dict.fromkeys(("due_since", "first_held_at", "last_held_at"), "repository_history.flushed_at"),
        },
    ),
    "reachable_chunks": (
        "reachable_manifests",
        dict.fromkeys(("address", "chunk_id", "certain"), "reachable_manifests.manifest_id"),
    ),
    "deletion_candidates": (
        "storage_inventory",
        {
            "reason": "reachable_manifests.expired reachable_chunks.expired",
            "rule_ids": "reachable_manifests.rule_ids reachable_chunks.rule_ids",
            "branches": "reachable_manifests.branches reachable_chunks.branches",
            "due_since": "reachable_manifests.due_since reachable_chunks.due_since",
            "first_committed_at": "reachable_manifests.first_held_at reachable_chunks.first_held_at",
            "last_committed_at": "reachable_manifests.last_held_at reachable_chunks.last_held_at",
        },
    ),
}
_REPORT: _Sources = {"deletion_report": ("deletion_candidates", {})}
_BY_SYSTEM = {"lakefs": {**_LAKEFS, **_REPORT}, "icechunk": {**_ICECHUNK, **_REPORT}}


def column_sources(system: str, table: str) -> dict[str, list[tuple[str, str]]]:
    """Return the (table, column) pairs from which each column of a table is computed; empty if none are known."""
    if table not in _BY_SYSTEM[system]:
        return {}
    main, others = _BY_SYSTEM[system][table]
    same = {name: f"{main}.{name}" for name in TABLES[table].schema.names if name in TABLES[main].schema.names}
    found: dict[str, list[tuple[str, str]]] = {}
    for column, sources in {**same, **others}.items():
        found[column] = [(source, name) for source, _, name in (one.partition(".") for one in sources.split())]
    return found
