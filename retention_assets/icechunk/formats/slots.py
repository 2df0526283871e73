"""Slot numbers of the fields in the tables of the repo object. Source: Icechunk facts 2, Repo."""

from enum import IntEnum


class RepoSlot(IntEnum):
    """Fields of the root table."""

    SPEC_VERSION = 0
    TAGS = 1
    BRANCHES = 2
    DELETED_TAGS = 3
    SNAPSHOTS = 4
    STATUS = 5
    METADATA = 6
    LATEST_UPDATES = 7
    REPO_BEFORE_UPDATES = 8
    CONFIG = 9
    ENABLED_FLAGS = 10
    DISABLED_FLAGS = 11
    EXTRA = 12


class RefSlot(IntEnum):
    """Fields of a branch or tag."""

    NAME = 0
    SNAPSHOT_INDEX = 1  # into the list of snapshots


class SnapshotSlot(IntEnum):
    """Fields of a snapshot's entry."""

    ID = 0
    PARENT_OFFSET = 1  # index into the list of snapshots; -1 for a root
    FLUSHED_AT = 2
    MESSAGE = 3
    METADATA = 4
    PRUNED_ANCESTOR_TX_LOGS = 5  # absent when empty


class ItemSlot(IntEnum):
    """Fields of a metadata item."""

    NAME = 0
    VALUE = 1
