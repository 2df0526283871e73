"""Reads the tables of a reference dump (commits, branches, tags), and the garbage-collection rules.

Source: docs/lakefs-formats.md, "Dumps" and "Rules".
"""

from collections.abc import Iterator

from google.protobuf.message import DecodeError, Message

from retention_assets.decoding.columns import binary_column
from retention_assets.errors import corrupt
from retention_assets.lakefs.formats.identity import commit_id
from retention_assets.lakefs.formats.lakefs_pb2 import BranchData, CommitData, GarbageCollectionRules, TagData
from retention_assets.lakefs.formats.sstable import open_table, require_entity
from retention_assets.policy.rules import ServerRules


def read_commits(content: bytes, name: str) -> list[CommitData]:
    """Return the commits in one range of a dump, in order of their ids.

    Raises:
        CorruptFile: as `open_table`; or the table does not contain commits, the id of a commit does not match its
            content, or the fraction of a second in its creation time is impossible.
    """
    return [_commit(record, name) for record in _records(content, name, "commit")]


def _commit(record: tuple[bytes, bytes, bytes], name: str) -> CommitData:
    """Return one commit. The key and the identity of its record must equal the id of its content."""
    key, identity, content = record
    commit = _parse(CommitData, content, name)
    hashed = commit_id(
        committer=commit.committer,
        message=commit.message,
        metarange_id=commit.meta_range_id,
        created_seconds=commit.creation_date.seconds,
        metadata=commit.metadata,
        parents=commit.parents,
    )
    if {commit.id.encode(), identity, hashed.encode()} != {key}:
        raise corrupt(name, f"the commit {key!r} has the id {commit.id!r} and the content of {hashed!r}")
    if not 0 <= commit.creation_date.nanos < 1_000_000_000:
        raise corrupt(name, f"the commit {key!r} has an impossible creation time")
    return commit


def read_branches(content: bytes, name: str) -> list[BranchData]:
    """Return the branches (hidden ones too) in one range of a dump, in order of their names.

    Raises:
        CorruptFile: as `open_table`; or the table does not contain branches, or a record does not match its key.
    """
    return _heads(BranchData, content, name, "branch")


def read_tags(content: bytes, name: str) -> list[TagData]:
    """Return the tags in one range of a dump, in order of their names.

    Raises:
        CorruptFile: as `open_table`; or the table does not contain tags, or a record does not match its key.
    """
    return _heads(TagData, content, name, "tag")


def read_gc_rules(content: bytes, name: str) -> ServerRules | None:
    """Return the rules in `config.json`, which is protobuf; None if no rules are set.

    A deleted document is empty. A document with the default 0 and no branches is empty too, and the server reads it as
    "no rules". So an empty document gives None, and all commits are kept. Source: docs/lakefs-formats.md,
    "Rules".

    Raises:
        CorruptFile: the document cannot be parsed.
    """
    if not content:
        return None
    rules = _parse(GarbageCollectionRules, content, name)
    return ServerRules(rules.default_retention_days, dict(rules.branch_retention_days))


def _parse[M: Message](record: type[M], content: bytes, name: str) -> M:
    """Return the message in `content`. Errors: CorruptFile that names the file `name` when it cannot be parsed."""
    try:
        return record.FromString(content)
    except DecodeError as error:
        raise corrupt(name, f"it is not a valid {record.DESCRIPTOR.name} message ({error})") from error


def _records(content: bytes, name: str, entity: str) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Return (key, identity, data) of each record. A dump has few records, so Python objects are fast enough."""
    table = open_table(content, name)
    require_entity(table.properties, entity, name)
    columns = (table.keys, binary_column(table.identities, name), binary_column(table.values, name))
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _heads[H: (BranchData, TagData)](record: type[H], content: bytes, name: str, entity: str) -> list[H]:
    found = []
    for key, identity, content_of_record in _records(content, name, entity):
        head = _parse(record, content_of_record, name)
        if (head.id.encode(), head.commit_id.encode()) != (key, identity):
            raise corrupt(
                name, f"the {entity} {key!r} at {identity!r} has the content {head.id!r} at {head.commit_id!r}"
            )
        found.append(head)
    return found
