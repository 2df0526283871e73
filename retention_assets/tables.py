"""The tables that assets write and read: key columns, and the type and meaning of each column."""

import re
from dataclasses import dataclass, field

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
STRINGS = pa.list_(pa.field("element", pa.string(), nullable=False))
_TEXT, _NUMBER, _BOOL, _DATE = pa.string(), pa.int64(), pa.bool_(), pa.date32()
_TEXTS = pa.list_(pa.field("element", pa.string()))
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())  # stores each string once
NAMES = pa.list_(pa.field("element", _DICTIONARY, nullable=False))


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `STRINGS` in place of `NAMES`."""
    return pa.schema([field.with_type(STRINGS) if field.type == NAMES else field for field in schema])


def packed(schema: pa.Schema) -> pa.Schema:
    """Return the schema with `NAMES` in place of `STRINGS`: Parquet files are then read with each string once."""
    return pa.schema([field.with_type(NAMES) if field.type == STRINGS else field for field in schema])


def with_names(schema: pa.Schema, *columns: str) -> pa.Schema:
    """Return the schema with dictionary-encoded strings in these columns of lists."""
    encoded = {name: pa.list_(schema.field(name).type.value_field.with_type(_DICTIONARY)) for name in columns}
    return pa.schema([field.with_type(encoded.get(field.name, field.type)) for field in schema])


type Column = tuple[str, pa.DataType, bool, str]  # name, type, whether it may be null, meaning


@dataclass(frozen=True, slots=True)
class Table:
    """The name, key columns and columns of a table. Writers conform to the schema."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field(name, kind, nullable=nullable) for name, kind, nullable, _ in self.columns])
        object.__setattr__(self, "schema", schema)

    @property
    def meanings(self) -> dict[str, str]:
        """The meaning of each column, in one sentence."""
        return {name: meaning for name, _, _, meaning in self.columns}

    @property
    def stored(self) -> pa.Schema:
        """The schema of the table's Parquet files. All columns are nullable, as Spark writes them."""
        return pa.schema([(field.name, _TEXTS if field.type == STRINGS else field.type) for field in self.schema])


POLICY_TABLE = Table(
    "policy_table",
    key=("run_id", "rule_id", "branch"),
    columns=(
        ("run_id", _TEXT, False, "The run that read this version of the policy."),
        ("rule_id", _TEXT, False, "The rule or hold."),
        ("prefix", _TEXT, False, "The directory that the rule names, or `glob:` and its glob; empty: it names none."),
        (
            "branch",
            _TEXT,
            False,
            "The branch or glob that the rule names (Icechunk: with its kind, such as `tag v*`); empty: it names none.",
        ),
        (
            "date_to_be_deleted",
            _DATE,
            True,
            "Versions from before this day are not kept by age; null: all are kept by age.",
        ),
        ("policy_hash", _TEXT, False, "The hash of the whole policy."),
    ),
)

CURRENT_RULES = Table(
    "current_rules",
    key=("prefix", "branch"),
    columns=(
        ("prefix", _TEXT, False, "The directory that the rule covers, or `glob:` and its glob; empty: everything."),
        ("branch", _TEXT, False, "A branch name or glob; empty: all branches that the rule does not name."),
        ("date_to_be_deleted", _DATE, True, "Objects that were added before this day are due; null: never."),
        ("last_deleted", _DATE, True, "Everything that was due up to this day was deleted; null: not yet."),
    ),
)

STORAGE_INVENTORY = Table(
    "storage_inventory",
    key=("address",),
    columns=(
        ("address", _TEXT, False, "The object's canonical key, relative to the storage namespace."),
        ("size", _NUMBER, False, "Bytes."),
        ("last_modified", TIMESTAMP, False, "When the object was written, by the store's clock."),
        ("etag", _TEXT, True, "The store's ETag; null for local files, and if an inventory does not have it."),
        ("source", _TEXT, False, "Where the row comes from: listing or inventory."),
    ),
)

UNCOMMITTED_OBJECTS = Table(
    "uncommitted_objects",
    key=("address",),
    columns=(
        ("address", _TEXT, False, "The object's key, relative to the storage namespace; outside it, an absolute URI."),
        ("created_at", TIMESTAMP, True, "When the object was staged, by the server's clock."),
    ),
)

COMMIT_GRAPH = Table(
    "commit_graph",
    key=("commit_id",),
    columns=(
        ("commit_id", _TEXT, False, "The commit."),
        ("parents", STRINGS, False, "The commit's parents, in order."),
        ("main_parent", _TEXT, True, "The parent that was the branch's head before the commit; null: no parents."),
        ("created_at", TIMESTAMP, False, "When the commit was created, by the committer's clock."),
        ("metarange_id", _TEXT, False, "The commit's metarange; empty: the commit has no objects."),
        ("branches", STRINGS, False, "Branches whose head reaches the commit through any parents."),
        ("head_of", STRINGS, False, "Branches whose head is the commit."),
        ("tags", STRINGS, False, "Tags on the commit."),
        ("dangling", _BOOL, False, "Whether no branch head reaches the commit through main parents."),
    ),
)

POTENTIAL_COMMITS = Table(
    "potential_commits",
    key=("commit_id",),
    columns=(
        ("commit_id", _TEXT, False, "The commit."),
        ("branches", STRINGS, False, "Branches whose head reaches the commit through any parents."),
        ("created_at", TIMESTAMP, False, "When the commit was created, by the committer's clock."),
        ("metarange_id", _TEXT, False, "The commit's metarange; empty: the commit has no objects."),
        ("active", _BOOL, False, "Whether committed retention keeps the commit."),
        ("potential", _BOOL, False, "Whether its objects may have come due since current_rules.last_deleted."),
        ("protected", _BOOL, False, "Whether a tag or a hold keeps the commit."),
        ("due_since", TIMESTAMP, True, "When the commit expired under the last of its rules; null while it is active."),
        ("rule_id", _TEXT, True, "The rule under which the commit expired last."),
        ("is_head", _BOOL, False, "Whether the commit is the head of a branch."),
        ("left_branches", STRINGS, False, "Branches that reached the commit from an earlier head, which is gone now."),
    ),
)

ACTIVE_RANGES = Table(
    "active_ranges",
    key=("range_id",),
    columns=(
        ("range_id", _TEXT, False, "The range."),
        ("branches", STRINGS, False, "Branches of the commits that contain the range."),
        ("first_added_at", TIMESTAMP, False, "When the oldest commit that contains the range was created."),
        ("active", _BOOL, False, "Whether an active commit contains the range."),
        ("potential", _BOOL, False, "Whether its objects may have come due since current_rules.last_deleted."),
        ("protected", _BOOL, False, "Whether a tag or a hold keeps a commit with the range."),
        ("due_since", TIMESTAMP, True, "When the last commit with the range expired; null while the range is active."),
        ("rule_ids", STRINGS, False, "Rules under which the commits with the range expired."),
        ("last_held_at", TIMESTAMP, False, "When the newest commit that contains the range was created."),
        ("at_head", _BOOL, False, "Whether the head of a branch contains the range."),
        (
            "left_branches",
            STRINGS,
            False,
            "Branches that reached a commit with the range from an earlier head, which is gone.",
        ),
    ),
)

ADDRESSES = Table(
    "addresses",
    key=("address", "key", "etag", "size"),  # the entries of a pair rarely have different checksums or sizes
    columns=(
        ("address", _TEXT, False, "The object's key, relative to the storage namespace; outside it, an absolute URI."),
        ("key", _TEXT, False, "The path in the repository."),
        ("size", _NUMBER, False, "Bytes, as the entry says."),
        ("branches", STRINGS, False, "Branches of the commits that contain the path with this address."),
        ("added_at", TIMESTAMP, False, "When the oldest commit with this path and address was created."),
        ("last_modified", TIMESTAMP, True, "When the object was written, as the entry says."),
        ("active", _BOOL, False, "Whether an active commit contains the path with this address."),
        ("range_id", _TEXT, False, "One of the ranges that contain the path with this address."),
        ("protected", _BOOL, False, "Whether a tag or a hold keeps a commit that contains the path with this address."),
        ("due_since", TIMESTAMP, True, "When the last commit with this path and address expired; null while active."),
        ("rule_ids", STRINGS, False, "Rules under which the commits with this path and address expired."),
        ("last_held_at", TIMESTAMP, False, "When the newest commit with this path and address was created."),
        ("at_head", _BOOL, False, "Whether the head of a branch contains the path with this address."),
        (
            "left_branches",
            STRINGS,
            False,
            "Branches that reached a commit with this path and address from an earlier head, which is gone now.",
        ),
        (
            "etag",
            _TEXT,
            False,
            "The entry's checksum; empty: the entry has none. A path and address with several checksums or sizes has a "
            "row for each, with its own branches and times.",
        ),
    ),
)

REPOSITORY_HISTORY = Table(
    "repository_history",
    key=("snapshot_id",),
    columns=(
        ("snapshot_id", _TEXT, False, "The snapshot."),
        ("parent_id", _TEXT, True, "The snapshot's parent; null: a root."),
        ("flushed_at", TIMESTAMP, True, "When the snapshot was written, by the writer's clock; null: not in history."),
        ("stored_at", TIMESTAMP, True, "When its file was written, by the store's clock; null: it is not listed."),
        ("listed", _BOOL, False, "Whether the snapshot is in the history; false: only its file is there."),
        ("message", _TEXT, True, "The commit message; null in format 1."),
        ("branches", STRINGS, False, "Branches that reach the snapshot."),
        ("tip_of", STRINGS, False, "Branches whose tip is the snapshot."),
        ("tags", STRINGS, False, "Tags on the snapshot."),
        ("pruned_logs", STRINGS, False, "Transaction logs of ancestors that are no longer in the history."),
        ("left_at", TIMESTAMP, True, "The latest known time at which a branch or tag left the snapshot; null: none."),
    ),
)

EXPIRED_SNAPSHOTS = Table(
    "expired_snapshots",
    key=("snapshot_id",),
    columns=(
        ("snapshot_id", _TEXT, False, "The snapshot."),
        ("decision", _TEXT, False, "kept; released (expired by the policy); dropped (unreachable and old)."),
        ("stays", _BOOL, False, "Whether the snapshot's file and everything that it references stay."),
        ("rule_id", _TEXT, True, "The rule under which the snapshot expired last, or that keeps it."),
        ("reference", _TEXT, True, "The branch or tag to whose history the rule applies."),
        ("due_since", TIMESTAMP, True, "When its rules stop keeping the snapshot; null: never, or not by time alone."),
        ("reason", _TEXT, False, "Why the snapshot is kept or deleted."),
        ("new_parent_id", _TEXT, True, "The parent that a sweep gives the snapshot; null: the parent stays the same."),
        ("deleted_references", STRINGS, False, "Expired branches and tags on the snapshot. A sweep deletes them."),
    ),
)

_FROM_SNAPSHOTS: tuple[Column, ...] = (
    ("live", _BOOL, False, "Whether a retained snapshot references it."),
    ("expired", _BOOL, False, "Whether a released snapshot references it, and no retained one."),
    ("rule_ids", STRINGS, False, "Rules that released the snapshots that reference it; empty while it is live."),
    ("branches", STRINGS, False, "Branches of the released snapshots that reference it; empty while it is live."),
    ("due_since", TIMESTAMP, True, "When the last snapshot that references it expired; null while it is live."),
    ("first_held_at", TIMESTAMP, True, "When the oldest snapshot that references it was written; null: unknown."),
    ("last_held_at", TIMESTAMP, True, "When the newest snapshot that references it was written; null: unknown."),
)

REACHABLE_MANIFESTS = Table(
    "reachable_manifests",
    key=("manifest_id",),
    columns=(
        ("manifest_id", _TEXT, False, "The manifest."),
        ("address", _TEXT, False, "The key of its file, relative to the repository."),
        ("size", _NUMBER, False, "Bytes, as snapshots say."),
        ("chunk_refs", _NUMBER, False, "Chunk references of all kinds in the manifest, as snapshots say."),
        ("snapshots", _NUMBER, False, "How many snapshots list the manifest."),
        *_FROM_SNAPSHOTS,
    ),
)

REACHABLE_CHUNKS = Table(
    "reachable_chunks",
    key=("address",),
    columns=(
        ("address", _TEXT, False, "The key of its file, relative to the repository."),
        ("chunk_id", _TEXT, True, "The chunk; null: another object, which a virtual reference names."),
        ("certain", _BOOL, False, "Whether a reference certainly names this object; false: it may name another."),
        *_FROM_SNAPSHOTS,
    ),
)

DELETION_CANDIDATES = Table(
    "deletion_candidates",
    key=("address",),
    columns=(
        ("address", _TEXT, False, "The object's key, relative to the storage namespace."),
        ("size", _NUMBER, False, "Bytes, as listed."),
        ("last_modified", TIMESTAMP, False, "When the object was written, by the store's clock."),
        ("etag", _TEXT, True, "The store's ETag; null for local files, and if an inventory does not have it."),
        ("reason", _TEXT, False, "Why the object may be deleted: expired, lifecycle or unreferenced."),
        ("rule_ids", STRINGS, False, "Rules under which the object expired."),
        ("paths", STRINGS, False, "Paths in the repository under which the object was committed."),
        ("branches", STRINGS, False, "Branches of the commits or snapshots that contained the object."),
        ("due_since", TIMESTAMP, True, "When the object expired under the last of its rules."),
        ("first_committed_at", TIMESTAMP, True, "When the oldest commit or snapshot with it was created."),
        ("last_committed_at", TIMESTAMP, True, "When the newest commit or snapshot with it was created."),
    ),
)

SAME_OBJECT = ("address", "size", "last_modified")  # rows of two plans with equal values are of the same object

DUE_OBJECTS = Table(
    "due_objects",
    key=("address",),
    columns=(
        *DELETION_CANDIDATES.columns,
        ("found_at", TIMESTAMP, False, "Every plan since this time has listed the object as due."),
        ("waits_until", TIMESTAMP, True, "When the object has waited for `settle`. Candidates have this time too."),
    ),
)

DELETION_REPORT = Table(
    "deletion_report",
    key=("address",),
    columns=(
        (
            "address",
            _TEXT,
            False,
            "The object's key, relative to the storage namespace; of an Icechunk reference, such as `refs/tag.v1`.",
        ),
        ("size", _NUMBER, False, "Bytes; 0 for a branch or tag."),
        ("outcome", _TEXT, False, "deleted, missing, failed, skipped, quarantined, restored or purged."),
        ("detail", _TEXT, True, "The reason for the outcome, or the URL of the copy in quarantine; null: none."),
        ("at", TIMESTAMP, False, "When the outcome was recorded, by the clock of the machine that recorded it."),
    ),
)

REFERENCE_ADDRESSES = "refs/"  # report rows with this address prefix are Icechunk branches and tags, not objects

DELETION_PROOF = Table(
    "deletion_proof",
    key=("check",),
    columns=(
        ("check", _TEXT, False, "The check."),
        ("passed", _BOOL, False, "Whether the check passed."),
        ("saw", _TEXT, False, "What the check found."),
    ),
)

# The ledger has the columns of the report and the fencing token of the sweep. Fencing tokens increase, so the row with
# the greatest token is the newest row of an address.
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

# The names under which `TableCache` stores the rows of table files. A suffix such as `.v2` shows that columns changed.
CACHED_METARANGES, CACHED_RANGES = "metarange_ranges", "range_entries.v2"
CACHED_SNAPSHOTS, CACHED_MANIFESTS = "snapshot_manifests", "manifest_chunks.v2"

# The tables that `retention show` prints: the tables of the assets, and `due_objects`, which each plan stores.
SHOWN = {**TABLES, DUE_OBJECTS.name: DUE_OBJECTS}
_OF_LAKEFS = {
    table.name
    for table in (CURRENT_RULES, UNCOMMITTED_OBJECTS, COMMIT_GRAPH, POTENTIAL_COMMITS, ACTIVE_RANGES, ADDRESSES)
}
_OF_ICECHUNK = {table.name for table in (REPOSITORY_HISTORY, EXPIRED_SNAPSHOTS, REACHABLE_MANIFESTS, REACHABLE_CHUNKS)}


def shown_tables(*, is_icechunk: bool) -> list[str]:
    """Return the sorted names of the tables that repositories of a kind have."""
    return sorted(SHOWN.keys() - (_OF_LAKEFS if is_icechunk else _OF_ICECHUNK))


def maker_of(repository: str, table: str, day: object) -> str:
    """Return the command that makes a partition, in backticks, with what else the command does."""
    command = {DELETION_REPORT.name: "sweep", DELETION_PROOF.name: "verify"}.get(table, "plan")
    also = " (this deletes or moves the objects of the plan that are left)" if table == DELETION_REPORT.name else ""
    return f"`retention {command} {repository} --as-of {day}`{also}"


_BACKUP = "Copy the file from a backup of the warehouse"
OF_LEDGER = (
    f"{_BACKUP}. If there is none, move the file out of the ledger: its results then count as unknown, and `retention "
    "verify` fails. Then run the same command again."
)
_REMEDIES = (  # for a damaged file, by the end of its path
    (r"/(surplus_)?ledger/[^/]+/[^/]+/[^/]+/[^/]+$", OF_LEDGER),
    (r"/planned_objects/[^/]+/[^/]+$", f"{_BACKUP}, or plan the day of this plan again."),
    (
        rf"/{DUE_OBJECTS.name}/[^/]+/[^/]+$",
        f"{_BACKUP}. If there is none, remove its directory: the settling time of all objects then begins again.",
    ),
    (
        r"/\d{8,}-[^/]+/[^/]+$",  # a batch of a cache
        "Remove the directory of this file, which is only a cache, and run the same command again. If a person "
        "acknowledged files as lost, copy the file from a backup of the warehouse instead: only the cache has their "
        "content.",
    ),
)
_OF_DAY = re.compile(r"([^/]+)/([^/]+)/(\d{4}-\d\d-\d\d)/[^/]+$")  # a file of a partition


def remedy_of_damaged(file: str) -> str:
    """Return the remedy for a damaged file with rows. `file`: its path or URL, with the directory of the repository."""
    if found := _OF_DAY.search(file):
        return f"Make the table again: {maker_of(found[1], found[2], found[3])}."
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, file)), f"{_BACKUP}.")
