"""Finds out whether an older repo object was put in the place of the one that earlier plans read (format 2).

The history in the older object lacks the newer commits, although their files exist. Nothing else protects these files:
the ops log shows no reset. So plans are blocked for `grace`, and sweeps of older plans and purges are refused.
Meanwhile, the newer repo object can be restored.
Source: docs/icechunk.md, "An older repo object".
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime

from retention_assets.core.age import CLOCK_MARGIN
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.icechunk.formats.model import Repo, UpdateKind
from retention_assets.icechunk.rules.snapshots import datetime_of
from retention_assets.icechunk.source.ops_log import ops_log
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.tables import REPOSITORY_HISTORY
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, REPLACED, Warehouse


@dataclass(frozen=True, slots=True)
class EarlierPlans:
    """The metadata of `repository_history` of the plans of one repository.

    If a run ended while it replaced the rows of a day, the metadata of the replaced rows count.

    `read_at`: the time (UTC) at which the caller read the repo object. Plans that read it later do not count, because
    they may have read a newer object.
    """

    warehouse: Warehouse
    repository: str
    read_at: datetime

    def keep(self, day: date) -> None:
        """Keep the metadata of the last plan of `day`, while this plan replaces the rows of `day`."""
        self.warehouse.keep_metadata(self.repository, REPOSITORY_HISTORY.name, day)

    def newest_entry_of(self, day: date) -> datetime | None:
        """Return the time of the newest entry of the ops log at the last plan of `day`; None: it is not known."""
        metadata = self._metadata(day.isoformat())
        return metadata.details.logged_until if metadata else None

    def since(self, cutoff: datetime) -> Iterator[tuple[PartitionMetadata, str]]:
        """Yield the plans since `cutoff` and the newest one before it, with the day of each plan, newest plan first.

        The plan of an older day may be newer than the plan of a later day.
        """
        found = sorted(self._written_since(cutoff), key=lambda one: (one[0].taken_at, one[1]))
        for metadata, day in reversed(found):
            yield metadata, day
            if metadata.taken_at < cutoff:
                return

    def _written_since(self, cutoff: datetime) -> Iterator[tuple[PartitionMetadata, str]]:
        """Yield the plans with metadata written since `cutoff`, and earlier ones up to one that read before `cutoff`.

        Metadata are written after the repo object was read. So all plans since `cutoff` are among them.
        """
        files = self.warehouse.tree(self.repository, REPOSITORY_HISTORY.name)
        written = {
            path.split("/")[-2]: file.written_at
            for name in (REPLACED, METADATA)  # the second one counts if a day has both
            for path, file in files.items()
            if path.endswith(f"/{name}")
        }
        has_older = False
        for day in sorted(written, key=lambda day: written[day], reverse=True):
            if has_older and written[day] < cutoff - CLOCK_MARGIN:
                return
            metadata = self._metadata(day)
            if metadata is not None and metadata.taken_at <= self.read_at:
                yield metadata, day
                has_older = has_older or metadata.taken_at < cutoff

    def _metadata(self, day: str) -> PartitionMetadata | None:
        parts, name = (self.repository, REPOSITORY_HISTORY.name, day), METADATA
        try:
            if (found := self.warehouse.metadata_if_there(*parts)) is None:
                name = REPLACED
                found = self.warehouse.metadata_if_there(*parts, name)
        except TableContractError as error:
            raise TableContractError(
                f"{self.warehouse.location(*parts, name)}: this file is damaged. It has the newest entry of the "
                f"ops log that the plan of {day} read, and shows whether an older repo object was put in the place of "
                "a newer one since then. Nothing was changed or deleted. Copy the file from a backup of the warehouse. "
                "Or, if you are sure that nobody replaced the repo object since then, remove the file, and plan again."
            ) from error
        return found


def with_log(
    details: Details, reader: ObjectReader, repo: Repo, plans: EarlierPlans, day: date, cutoff: datetime
) -> Details:
    """Return the details of `repository_history` of `day`, with the time of the log's newest entry and `replaced`.

    `replaced` is the reason why `repo` cannot be a later version of a repo object that an earlier plan read; None: it
    can be one.
    The ops log of `repo` must have the entry that was the newest at each plan since `cutoff`, and at the newest plan
    before it. If a backup is missing, so that the log does not go back so far, `replaced` is None. If the object was
    replaced, the details keep the time of the newest entry at the day's last plan. Errors: CorruptFile when a backup of
    the repo object is corrupt.
    """
    newest, replaced = datetime_of(repo.latest_updates[0].updated_at, b""), _replaced(reader, repo, plans, cutoff)
    if replaced:  # another plan of this day must refuse `repo`, too
        newest = plans.newest_entry_of(day) or newest
    return replace(details, logged_until=newest, replaced=replaced)


def require_not_replaced(reader: ObjectReader, repo: Repo, plans: EarlierPlans, cutoff: datetime) -> None:
    """Refuse to delete if `repo` cannot be a later version of a repo object that a plan since `cutoff` read.

    `cutoff`: of the plan that is swept, or of now; see `with_log`.
    Errors: GuardRefused; CorruptFile when a backup of the repo object is corrupt.
    """
    if replaced := _replaced(reader, repo, plans, cutoff):
        raise GuardRefused(
            f"{plans.repository}: {replaced} Nothing was changed or deleted. After you restored the newer repo object, "
            "run the same command again."
        )


def _replaced(reader: ObjectReader, repo: Repo, plans: EarlierPlans, cutoff: datetime) -> str | None:
    found = plans.since(cutoff)
    entries = sorted({(one.details.logged_until, day) for one, day in found if one.details.logged_until})[::-1]
    log = ops_log(reader, repo)
    update = next(log)
    for entry, day in entries:
        while datetime_of(update.updated_at, b"") > entry:
            if update.kind is UpdateKind.REPO_MIGRATED:  # since that plan, an upgrade was undone, and made again
                return None
            before = next(log, None)
            if before is None:
                break
            update = before
        at = datetime_of(update.updated_at, b"")
        if at < entry or (at > entry and update.kind is UpdateKind.REPO_INITIALIZED):
            return (
                f"The ops log does not have the entry of {entry:%Y-%m-%d %H:%M:%S} UTC, which was the newest one at "
                f"the plan of {day}. So an older repo object was put in the place of the one that this plan read, or "
                "the repository was created again. Commits since then are not in the history, and their files would "
                "be deleted. If the newer repo object is the right one, restore it. If the current, older one is the "
                "right one, plan again when `grace` has passed."
            )
        if at > entry:  # a backup is missing: neither this entry nor older ones can be found
            return None
    return None
