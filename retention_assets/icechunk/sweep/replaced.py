"""Finds out whether an older repo object was put in the place of the one that earlier plans read (format 2).

Then the history lacks the commits since then, although their files exist. Nothing else protects these files: the ops
log shows no reset. So plans are blocked for `grace`, and the newer repo object can still be restored.
Source: docs/icechunk.md, "What is deleted".
"""

from collections.abc import Iterator
from datetime import datetime

from retention_assets.icechunk.formats.model import Repo, UpdateKind
from retention_assets.icechunk.rules.snapshots import datetime_of
from retention_assets.icechunk.source.ops_log import ops_log
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.tables import REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse


def last_update(repo: Repo) -> datetime:
    """Return the time (UTC) of the newest entry of the ops log, by the clock of its writer."""
    return datetime_of(repo.latest_updates[0].updated_at, b"")


def replaced_since(
    reader: ObjectReader, repo: Repo, read_at: datetime, warehouse: Warehouse, repository: str, cutoff: datetime
) -> str | None:
    """Return why `repo` cannot be a later version of a repo object that an earlier plan read; None if it can.

    The plans since `cutoff` are compared, and the newest one before it. The ops log of `repo` must have the entry that
    was the newest one of the plan. If the log does not go back so far, because a backup is missing, nothing is known.
    `read_at`: when `repo` was read (UTC). Errors: CorruptFile when a backup of the repo object is corrupt.
    """
    read_before = _read_before(read_at, warehouse, repository, cutoff)
    entries = sorted({(one.details.logged_until, day) for one, day in read_before if one.details.logged_until})[::-1]
    log = ops_log(reader, repo)
    update = next(log)
    for entry, day in entries:
        while datetime_of(update.updated_at, b"") > entry:
            before = next(log, None)
            if before is None:
                break
            update = before
        at = datetime_of(update.updated_at, b"")
        if at < entry or (at > entry and update.kind is UpdateKind.REPO_INITIALIZED):
            return (
                f"the ops log does not have the entry of {entry:%Y-%m-%d %H:%M:%S} UTC, which was the newest one at "
                f"the plan of {day}. So an older repo object was put in the place of the one that this plan read, or "
                "the repository was created again. Commits since then are not in the history, and their files would be "
                "deleted. If the newer repo object is right, restore it. If the older one is, plan again after `grace`."
            )
        if at > entry:  # a backup is missing: neither this entry nor older ones can be found
            return None
    return None


def _read_before(
    read_at: datetime, warehouse: Warehouse, repository: str, cutoff: datetime
) -> Iterator[tuple[PartitionMetadata, str]]:
    """Yield the metadata of `repository_history` of the plans to compare, with the day of each plan."""
    table = REPOSITORY_HISTORY.name
    for day in reversed(warehouse.directories(repository, table)):
        document = warehouse.read_document(repository, table, day, METADATA)
        metadata = None if document is None else PartitionMetadata.of_document(document)
        if metadata is None or metadata.taken_at > read_at:  # a plan that runs at the same time read a newer one
            continue
        yield metadata, day
        if metadata.taken_at < cutoff:
            return
