"""The tables between the assets: one Arrow schema each, with key, units and clock."""

from dataclasses import dataclass

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))


@dataclass(frozen=True, slots=True)
class Table:
    """A table's name, its key columns and its schema; writers must conform to it."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema


def _schema(*columns: tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable in columns])


POLICY_TABLE = Table(
    "policy_table",
    key=("run_id", "rule_id", "branch"),
    schema=_schema(
        ("run_id", pa.string(), False),
        ("rule_id", pa.string(), False),
        ("prefix", pa.string(), False),
        ("branch", pa.string(), False),  # a name or glob; empty = all branches
        ("date_to_be_deleted", pa.date32(), True),  # null = never
        ("policy_hash", pa.string(), False),
    ),
)

CURRENT_RULES = Table(
    "current_rules",
    key=("prefix", "branch"),
    schema=_schema(
        ("prefix", pa.string(), False),
        ("branch", pa.string(), False),  # empty = all branches
        ("date_to_be_deleted", pa.date32(), True),  # null = never
        ("last_deleted", pa.date32(), True),  # only from runs that really deleted everything; null = none did
    ),
)

STORAGE_INVENTORY = Table(
    "storage_inventory",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # canonical, relative to the storage namespace
        ("size", pa.int64(), False),  # bytes
        ("last_modified", INSTANT, False),  # the store's clock
        ("etag", pa.string(), True),
        ("source", pa.string(), False),  # listing or inventory
    ),
)

UNCOMMITTED_OBJECTS = Table(
    "uncommitted_objects",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # relative to the storage namespace
        ("created_at", INSTANT, True),  # the server's clock
    ),
)

COMMIT_GRAPH = Table(
    "commit_graph",
    key=("commit_id",),
    schema=_schema(
        ("commit_id", pa.string(), False),
        ("parents", STRINGS, False),
        ("main_parent", pa.string(), True),
        ("created_at", INSTANT, False),  # the committer's clock
        ("metarange_id", pa.string(), False),  # empty: the commit holds nothing
        ("branches", STRINGS, False),  # whose head reaches the commit by any parent
        ("head_of", STRINGS, False),
        ("tags", STRINGS, False),
        ("dangling", pa.bool_(), False),
    ),
)

POTENTIAL_COMMITS = Table(
    "potential_commits",
    key=("commit_id",),
    schema=_schema(
        ("commit_id", pa.string(), False),
        ("branches", STRINGS, False),
        ("created_at", INSTANT, False),
        ("metarange_id", pa.string(), False),
        ("active", pa.bool_(), False),  # kept by committed retention
        ("potential", pa.bool_(), False),  # may hold what came due since the last run
        ("protected", pa.bool_(), False),  # kept by a tag or a hold
        ("due_since", INSTANT, True),  # when the last branch let go of it; null while active
        ("rule_id", pa.string(), True),  # the rule that let go last
        ("is_head", pa.bool_(), False),  # a branch names it
        ("left_branches", STRINGS, False),  # branches that reached it when an earlier plan saw them, and are gone
    ),
)

ACTIVE_RANGES = Table(
    "active_ranges",
    key=("range_id",),
    schema=_schema(
        ("range_id", pa.string(), False),
        ("branches", STRINGS, False),
        ("first_added_at", INSTANT, False),  # creation of the oldest commit of all that holds the range
        ("active", pa.bool_(), False),
        ("potential", pa.bool_(), False),
        ("protected", pa.bool_(), False),
        ("due_since", INSTANT, True),
        ("rule_ids", STRINGS, False),
        ("last_held_at", INSTANT, False),  # creation of the newest commit that holds it
        ("at_head", pa.bool_(), False),  # the head of a branch holds it
        ("left_branches", STRINGS, False),  # see potential_commits
    ),
)

ADDRESSES = Table(
    "addresses",
    key=("address", "key"),
    schema=_schema(
        ("address", pa.string(), False),  # relative to the namespace, or an absolute URI outside it
        ("key", pa.string(), False),  # the path in the repository
        ("size", pa.int64(), False),  # bytes, as the entry says
        ("branches", STRINGS, False),
        ("added_at", INSTANT, False),
        ("last_modified", INSTANT, True),  # as the entry says
        ("active", pa.bool_(), False),
        ("range_id", pa.string(), False),  # one of the ranges that hold the pair
        ("protected", pa.bool_(), False),
        ("due_since", INSTANT, True),
        ("rule_ids", STRINGS, False),
        ("last_held_at", INSTANT, False),
        ("at_head", pa.bool_(), False),  # the head of a branch holds the pair
        ("left_branches", STRINGS, False),  # see potential_commits
        ("etag", pa.string(), False),  # the entry's checksum; empty when it has none
    ),
)

REPOSITORY_HISTORY = Table(
    "repository_history",
    key=("snapshot_id",),
    schema=_schema(
        ("snapshot_id", pa.string(), False),
        ("parent_id", pa.string(), True),  # null: a root
        ("flushed_at", INSTANT, True),  # the writer's clock; null unless `listed`
        ("stored_at", INSTANT, True),  # the store's clock; null: its file was not in the store's listing
        ("listed", pa.bool_(), False),  # in the history; false: only its file is there
        ("message", pa.string(), True),  # format 2
        ("branches", STRINGS, False),  # that reach it
        ("tip_of", STRINGS, False),  # branches
        ("tags", STRINGS, False),
        ("pruned_logs", STRINGS, False),  # transaction logs of ancestors that history lost
    ),
)

EXPIRED_SNAPSHOTS = Table(
    "expired_snapshots",
    key=("snapshot_id",),
    schema=_schema(
        ("snapshot_id", pa.string(), False),
        ("decision", pa.string(), False),  # kept, released (by the policy) or dropped (nothing reaches it, and old)
        ("stays", pa.bool_(), False),  # its file and all that it references
        ("rule_id", pa.string(), True),  # that let go last, or that keeps it
        ("reference", pa.string(), True),  # the branch or tag whose history that rule spoke of
        ("due_since", INSTANT, True),
        ("reason", pa.string(), False),
        ("new_parent_id", pa.string(), True),  # null: it keeps its parent
        ("deleted_references", STRINGS, False),  # branches and tags on it that expired and go
    ),
)

_HELD_BY_SNAPSHOTS = (
    ("live", pa.bool_(), False),  # held by a snapshot that stays
    ("expired", pa.bool_(), False),  # held by released snapshots only
    ("rule_ids", STRINGS, False),  # of those, as the next ones; empty and null while it is live
    ("branches", STRINGS, False),
    ("due_since", INSTANT, True),
    ("first_held_at", INSTANT, True),  # flushing of the oldest snapshot that holds it, where it is known
    ("last_held_at", INSTANT, True),
)

REACHABLE_MANIFESTS = Table(
    "reachable_manifests",
    key=("manifest_id",),
    schema=_schema(
        ("manifest_id", pa.string(), False),
        ("address", pa.string(), False),
        ("size", pa.int64(), False),  # bytes, as snapshots say
        ("chunk_refs", pa.int64(), False),  # of all kinds, as snapshots say
        ("snapshots", pa.int64(), False),  # that list it
        *_HELD_BY_SNAPSHOTS,
    ),
)

REACHABLE_CHUNKS = Table(
    "reachable_chunks",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),
        ("chunk_id", pa.string(), True),  # null: a virtual reference into this repository, not to a chunk
        ("certain", pa.bool_(), False),  # false: only virtual references name it, which may mean another place
        *_HELD_BY_SNAPSHOTS,
    ),
)

DELETION_CANDIDATES = Table(
    "deletion_candidates",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # relative to the storage namespace
        ("size", pa.int64(), False),  # bytes, as listed
        ("last_modified", INSTANT, False),  # the store's clock
        ("etag", pa.string(), True),
        ("reason", pa.string(), False),  # expired, lifecycle or unreferenced
        ("rule_ids", STRINGS, False),
        ("paths", STRINGS, False),
        ("branches", STRINGS, False),
        ("due_since", INSTANT, True),
        ("first_committed_at", INSTANT, True),  # creation of the oldest commit that holds it
        ("last_committed_at", INSTANT, True),  # creation of the newest commit that holds it
    ),
)

DUE_OBJECTS = Table(
    "due_objects",
    key=("address",),
    schema=pa.schema(
        [
            *DELETION_CANDIDATES.schema,
            pa.field("found_at", INSTANT, nullable=False),  # since when every plan named it
            pa.field("waits_until", INSTANT, nullable=True),  # a plan made later lets it go; null: a candidate now
        ]
    ),
)

DELETION_REPORT = Table(
    "deletion_report",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),
        ("size", pa.int64(), False),  # bytes
        ("outcome", pa.string(), False),  # deleted, missing, failed, skipped, quarantined, restored, purged
        ("detail", pa.string(), True),
        ("at", INSTANT, False),  # this machine's clock
    ),
)

REFERENCE_ADDRESSES = "refs/"  # how rows of the report begin that are of Icechunk's branches and tags, not of objects

DELETION_PROOF = Table(
    "deletion_proof",
    key=("check",),
    schema=_schema(
        ("check", pa.string(), False),
        ("passed", pa.bool_(), False),
        ("saw", pa.string(), False),
    ),
)

# What the ledger keeps, beside the columns of the report: by which sweep. Fences grow; the latest word on an address is
# that of the greatest one.
LEDGER = pa.schema([*DELETION_REPORT.schema, pa.field("fence", pa.int64(), nullable=False)])

TABLES = {
    table.name: table
    for table in (
        POLICY_TABLE,
        CURRENT_RULES,
        STORAGE_INVENTORY,
        UNCOMMITTED_OBJECTS,
        COMMIT_GRAPH,
        POTENTIAL_COMMITS,
        ACTIVE_RANGES,
        ADDRESSES,
        REPOSITORY_HISTORY,
        EXPIRED_SNAPSHOTS,
        REACHABLE_MANIFESTS,
        REACHABLE_CHUNKS,
        DELETION_CANDIDATES,
        DELETION_REPORT,
        DELETION_PROOF,
    )
}

# What `retention show` knows: the tables of the assets, and one of the plan.
SHOWN = {**TABLES, DUE_OBJECTS.name: DUE_OBJECTS}
