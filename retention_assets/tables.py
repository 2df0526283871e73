"""The tables that assets write and read: one Arrow schema each, with key columns, units and clocks."""

from dataclasses import dataclass

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
_TEXTS = pa.list_(pa.field("element", pa.string()))
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())  # stores each string once
NAMES = pa.list_(pa.field("element", _DICTIONARY, nullable=False))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `STRINGS` in place of `NAMES`."""
    return pa.schema([field.with_type(STRINGS) if field.type == NAMES else field for field in schema])


def with_names(schema: pa.Schema, *columns: str) -> pa.Schema:
    """Return the schema with dictionary-encoded strings in these columns of lists."""
    encoded = {name: pa.list_(schema.field(name).type.value_field.with_type(_DICTIONARY)) for name in columns}
    return pa.schema([field.with_type(encoded.get(field.name, field.type)) for field in schema])


@dataclass(frozen=True, slots=True)
class Table:
    """The name, key columns and schema of a table. Writers must conform to the schema."""

    name: str
    key: tuple[str, ...]
    schema: pa.Schema

    @property
    def stored(self) -> pa.Schema:
        """The schema of the table's Parquet files. All columns are nullable, because Spark writes them so."""
        return pa.schema([(field.name, _TEXTS if field.type == STRINGS else field.type) for field in self.schema])


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
        ("last_deleted", pa.date32(), True),  # only runs that deleted everything that was due count; null = no run did
    ),
)

STORAGE_INVENTORY = Table(
    "storage_inventory",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # canonical, relative to the storage namespace
        ("size", pa.int64(), False),  # bytes
        ("last_modified", TIMESTAMP, False),  # the store's clock
        ("etag", pa.string(), True),
        ("source", pa.string(), False),  # listing or inventory
    ),
)

UNCOMMITTED_OBJECTS = Table(
    "uncommitted_objects",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # relative to the storage namespace
        ("created_at", TIMESTAMP, True),  # the server's clock
    ),
)

COMMIT_GRAPH = Table(
    "commit_graph",
    key=("commit_id",),
    schema=_schema(
        ("commit_id", pa.string(), False),
        ("parents", STRINGS, False),
        ("main_parent", pa.string(), True),
        ("created_at", TIMESTAMP, False),  # the committer's clock
        ("metarange_id", pa.string(), False),  # empty: the commit has no objects
        ("branches", STRINGS, False),  # branches whose head reaches the commit through any parents
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
        ("created_at", TIMESTAMP, False),
        ("metarange_id", pa.string(), False),
        ("active", pa.bool_(), False),  # retained by committed retention
        ("potential", pa.bool_(), False),  # may contain objects that came due since the last complete run
        ("protected", pa.bool_(), False),  # kept by a tag or a hold
        ("due_since", TIMESTAMP, True),  # when it expired on the last branch; null while active
        ("rule_id", pa.string(), True),  # the rule under which it expired last
        ("is_head", pa.bool_(), False),  # it is the head of a branch
        ("left_branches", STRINGS, False),  # branches whose head reached it in an earlier plan and is gone now
    ),
)

ACTIVE_RANGES = Table(
    "active_ranges",
    key=("range_id",),
    schema=_schema(
        ("range_id", pa.string(), False),
        ("branches", STRINGS, False),
        ("first_added_at", TIMESTAMP, False),  # creation time of the oldest of all commits that contain the range
        ("active", pa.bool_(), False),
        ("potential", pa.bool_(), False),
        ("protected", pa.bool_(), False),
        ("due_since", TIMESTAMP, True),
        ("rule_ids", STRINGS, False),
        ("last_held_at", TIMESTAMP, False),  # creation time of the newest commit that contains it
        ("at_head", pa.bool_(), False),  # the head of a branch contains it
        ("left_branches", STRINGS, False),  # see potential_commits
    ),
)

ADDRESSES = Table(
    "addresses",
    key=("address", "key", "etag"),  # almost always one row per pair: a pair's entries rarely have other checksums
    schema=_schema(
        ("address", pa.string(), False),  # relative to the namespace; an absolute URI if outside it
        ("key", pa.string(), False),  # the path in the repository
        ("size", pa.int64(), False),  # bytes, from the entry
        ("branches", STRINGS, False),
        ("added_at", TIMESTAMP, False),
        ("last_modified", TIMESTAMP, True),  # from the entry
        ("active", pa.bool_(), False),
        ("range_id", pa.string(), False),  # one of the ranges that contain the pair
        ("protected", pa.bool_(), False),
        ("due_since", TIMESTAMP, True),
        ("rule_ids", STRINGS, False),
        ("last_held_at", TIMESTAMP, False),
        ("at_head", pa.bool_(), False),  # the head of a branch contains the pair
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
        ("flushed_at", TIMESTAMP, True),  # the writer's clock; null unless `listed`
        ("stored_at", TIMESTAMP, True),  # the store's clock; null: its file was not in the store's listing
        ("listed", pa.bool_(), False),  # in the history; false: only its file exists
        ("message", pa.string(), True),  # null in format 1
        ("branches", STRINGS, False),  # branches that reach it
        ("tip_of", STRINGS, False),  # branches whose tip it is
        ("tags", STRINGS, False),
        ("pruned_logs", STRINGS, False),  # transaction logs of ancestors that are no longer in the history
    ),
)

EXPIRED_SNAPSHOTS = Table(
    "expired_snapshots",
    key=("snapshot_id",),
    schema=_schema(
        ("snapshot_id", pa.string(), False),
        ("decision", pa.string(), False),  # kept, released (expired by the policy) or dropped (unreachable and old)
        ("stays", pa.bool_(), False),  # its file and everything that it references stay
        ("rule_id", pa.string(), True),  # the rule under which it expired last, or that keeps it
        ("reference", pa.string(), True),  # the branch or tag to whose history that rule applies
        ("due_since", TIMESTAMP, True),
        ("reason", pa.string(), False),
        ("new_parent_id", pa.string(), True),  # null: it keeps its parent
        ("deleted_references", STRINGS, False),  # expired branches and tags on it, which a sweep deletes
    ),
)

_FROM_SNAPSHOTS = (
    ("live", pa.bool_(), False),  # referenced by a retained snapshot
    ("expired", pa.bool_(), False),  # referenced by released snapshots only
    ("rule_ids", STRINGS, False),  # rules that released those snapshots; empty while live
    ("branches", STRINGS, False),  # branches of those snapshots; empty while live
    ("due_since", TIMESTAMP, True),  # null while live
    ("first_held_at", TIMESTAMP, True),  # when the oldest snapshot that references it was flushed, if known
    ("last_held_at", TIMESTAMP, True),  # likewise, for the newest snapshot
)

REACHABLE_MANIFESTS = Table(
    "reachable_manifests",
    key=("manifest_id",),
    schema=_schema(
        ("manifest_id", pa.string(), False),
        ("address", pa.string(), False),
        ("size", pa.int64(), False),  # bytes, as recorded in snapshots
        ("chunk_refs", pa.int64(), False),  # chunk references of all kinds, as recorded in snapshots
        ("snapshots", pa.int64(), False),  # how many snapshots list it
        *_FROM_SNAPSHOTS,
    ),
)

REACHABLE_CHUNKS = Table(
    "reachable_chunks",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),
        ("chunk_id", pa.string(), True),  # null: a virtual reference into this repository, not to a chunk
        ("certain", pa.bool_(), False),  # false: only virtual references name it; they may mean another location
        *_FROM_SNAPSHOTS,
    ),
)

DELETION_CANDIDATES = Table(
    "deletion_candidates",
    key=("address",),
    schema=_schema(
        ("address", pa.string(), False),  # relative to the storage namespace
        ("size", pa.int64(), False),  # bytes, as listed
        ("last_modified", TIMESTAMP, False),  # the store's clock
        ("etag", pa.string(), True),
        ("reason", pa.string(), False),  # expired, lifecycle or unreferenced
        ("rule_ids", STRINGS, False),
        ("paths", STRINGS, False),
        ("branches", STRINGS, False),
        ("due_since", TIMESTAMP, True),
        ("first_committed_at", TIMESTAMP, True),  # creation time of the oldest commit that contains it
        ("last_committed_at", TIMESTAMP, True),  # creation time of the newest commit that contains it
    ),
)

DUE_OBJECTS = Table(
    "due_objects",
    key=("address",),
    schema=pa.schema(
        [
            *DELETION_CANDIDATES.schema,
            pa.field("found_at", TIMESTAMP, nullable=False),  # every plan since this time has listed it
            pa.field("waits_until", TIMESTAMP, nullable=True),  # a plan made later may delete it; null: a candidate now
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
        ("at", TIMESTAMP, False),  # this machine's clock
    ),
)

REFERENCE_ADDRESSES = "refs/"  # report rows with this address prefix are Icechunk branches and tags, not objects

DELETION_PROOF = Table(
    "deletion_proof",
    key=("check",),
    schema=_schema(
        ("check", pa.string(), False),
        ("passed", pa.bool_(), False),
        ("saw", pa.string(), False),
    ),
)

# The ledger has the columns of the report and the fencing token of the sweep. Fencing tokens increase, so the row with
# the greatest token is the newest one of an address.
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

# The names under which `TableCache` stores the rows of table files. A suffix such as `.v2` means that columns changed.
CACHED_METARANGES, CACHED_RANGES = "metarange_ranges", "range_entries.v2"
CACHED_SNAPSHOTS, CACHED_MANIFESTS = "snapshot_manifests", "manifest_chunks.v2"

# The tables that `retention show` prints: those of the assets, and one of the plan.
SHOWN = {**TABLES, DUE_OBJECTS.name: DUE_OBJECTS}
