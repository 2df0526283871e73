"""What the `repo` object of format 2 says, and what a snapshot file of either format says. Source: Icechunk facts 2.

Ids are the 12 raw bytes; instants are microseconds since 1970 (UTC) as the file counts them, on the writers' clocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

MAIN = "main"  # the branch that every repository has


class Availability(IntEnum):
    """What a repository lets its users do."""

    ONLINE = 0
    READ_ONLY = 1
    OFFLINE = 2  # declared, but icechunk 2.3 reads it as online


class UpdateKind(IntEnum):
    """What an entry of the ops log says was done, by the file's own code."""

    REPO_INITIALIZED = 1
    REPO_MIGRATED = 2  # from_version, to_version
    CONFIG_CHANGED = 3
    METADATA_CHANGED = 4
    TAG_CREATED = 5  # name
    TAG_DELETED = 6  # name, previous_snapshot_id
    BRANCH_CREATED = 7  # name
    BRANCH_DELETED = 8  # name, previous_snapshot_id
    BRANCH_RESET = 9  # name, previous_snapshot_id
    NEW_COMMIT = 10  # name, new_snapshot_id
    COMMIT_AMENDED = 11  # name, previous_snapshot_id, new_snapshot_id
    NEW_DETACHED_SNAPSHOT = 12  # new_snapshot_id
    GC_RAN = 13
    EXPIRATION_RAN = 14
    FEATURE_FLAG_CHANGED = 15  # flag_id, flag_value
    REPO_STATUS_CHANGED = 16  # status


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot as the repo object lists it."""

    id: bytes
    parent_id: bytes | None  # None: a root
    flushed_at: int
    message: str
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # FlexBuffers; see `metadata.read_flexbuffer`
    pruned_ancestor_tx_logs: tuple[bytes, ...] = ()  # transaction logs of ancestors that history lost, oldest first


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """Whether a repository may be written to, since when and why."""

    availability: Availability
    set_at: int
    limited_availability_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One entry of the ops log; beside `kind` stand the fields that belong to it, the others are None."""

    kind: UpdateKind
    updated_at: int
    backup_path: str | None = None  # name below `overwritten/` of the repo object as this update left it
    name: str | None = None  # of the branch or tag
    previous_snapshot_id: bytes | None = None
    new_snapshot_id: bytes | None = None
    from_version: int | None = None
    to_version: int | None = None
    flag_id: int | None = None
    flag_value: bool | None = None  # None: the flag went back to its default
    status: RepoStatus | None = None


@dataclass(frozen=True, slots=True)
class Repo:
    """The repo object: references, snapshots and the latest of the ops log."""

    branches: Mapping[str, bytes]  # snapshot id by name; `main` is always there
    snapshots: Mapping[bytes, SnapshotInfo]  # by id
    status: RepoStatus
    latest_updates: tuple[Update, ...]  # newest first, never empty
    tags: Mapping[str, bytes] = field(default_factory=dict)
    deleted_tags: frozenset[str] = frozenset()  # names that can never be used again
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # FlexBuffers
    repo_before_updates: str | None = None  # backup with the updates before `latest_updates`
    config: bytes | None = None  # FlexBuffers; None: the default configuration
    enabled_feature_flags: frozenset[int] | None = None  # None: never set, which the file tells from empty
    disabled_feature_flags: frozenset[int] | None = None
    extra: bytes | None = None
    spec_version: int = 2


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest as a snapshot lists it."""

    id: bytes
    size_bytes: int  # of the whole file; icechunk fetches so many
    num_chunk_refs: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot file says of itself."""

    id: bytes
    parent_id: bytes | None  # only files of spec version 1 name it; None also for their root
    flushed_at: int
    message: str
    metadata: Mapping[str, bytes]  # MessagePack in spec version 1, FlexBuffers in 2
    manifests: tuple[ManifestFile, ...]  # sorted by id; the same one may come twice
    spec_version: int  # of this file; a repository may mix them
