"""The content of the `repo` object of format 2, and of snapshot files of both formats.

Ids are the 12 raw bytes. Times are microseconds since 1970 (UTC), as the file stores them, by the writers' clocks.
Source: docs/icechunk-formats.md, "Repo object" and "Snapshots".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

MAIN = "main"  # the branch that every repository has


class Availability(IntEnum):
    """Whether users may read and write a repository."""

    ONLINE = 0
    READ_ONLY = 1
    OFFLINE = 2  # defined by the format, but icechunk 2.3 treats it as online

    @property
    def word(self) -> str:
        """The word for users, for example `read-only`."""
        return self.name.lower().replace("_", "-")


class UpdateKind(IntEnum):
    """The kind of an entry of the ops log, by its code in the file. The comments name the fields that are set."""

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
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # FlexBuffers; see `values.read_flexbuffer`
    pruned_ancestor_tx_logs: tuple[bytes, ...] = ()  # logs of ancestors removed from the history, oldest first


@dataclass(frozen=True, slots=True)
class RepoStatus:
    """Whether a repository may be written to, since when, and for what reason."""

    availability: Availability
    set_at: int
    limited_availability_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """One entry of the ops log. From `name` on, only the fields of `kind` are set. The others are None."""

    kind: UpdateKind
    updated_at: int
    backup_path: str | None = None  # name below `overwritten/` of the repo object as it was after this update
    name: str | None = None  # of the branch or tag
    previous_snapshot_id: bytes | None = None
    new_snapshot_id: bytes | None = None
    from_version: int | None = None
    to_version: int | None = None
    flag_id: int | None = None
    flag_value: bool | None = None  # None: the flag was reset to its default
    status: RepoStatus | None = None


@dataclass(frozen=True, slots=True)
class Repo:
    """The repo object: references, snapshots and the latest entries of the ops log."""

    branches: Mapping[str, bytes]  # snapshot id by name; `main` is always there
    snapshots: Mapping[bytes, SnapshotInfo]  # by id
    status: RepoStatus
    latest_updates: tuple[Update, ...]  # newest first, never empty
    tags: Mapping[str, bytes] = field(default_factory=dict)
    deleted_tags: frozenset[str] = frozenset()  # names that can never be used again
    metadata: Mapping[str, bytes] = field(default_factory=dict)  # FlexBuffers
    repo_before_updates: str | None = None  # backup with the entries older than `latest_updates`
    config: bytes | None = None  # FlexBuffers; None: the default configuration
    enabled_feature_flags: frozenset[int] | None = None  # None: never set, which is not the same as an empty set
    disabled_feature_flags: frozenset[int] | None = None
    extra: bytes | None = None
    spec_version: int = 2


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest as a snapshot lists it."""

    id: bytes
    size_bytes: int  # of the whole file; icechunk fetches this many bytes
    num_chunk_refs: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a snapshot file, without its nodes."""

    id: bytes
    parent_id: bytes | None  # only files of spec version 1 store it; None for a root and in spec version 2
    flushed_at: int
    message: str
    metadata: Mapping[str, bytes]  # MessagePack in spec version 1, FlexBuffers in 2
    manifests: tuple[ManifestFile, ...]  # sorted by id; a manifest may be listed twice
    spec_version: int  # of this file; files of one repository may differ
