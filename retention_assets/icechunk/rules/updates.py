"""How every edit of the repo object ends: an entry of the ops log, and a name for the object as it was before.

Source: Icechunk facts 2, Writing a `repo` object; 3, Timestamp invariants.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from retention_assets.core.corruption import corrupt
from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.flexbuffer import read_flexbuffer
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, Update
from retention_assets.icechunk.rules.snapshots import micros_of

UPDATES_PER_FILE = 1000  # icechunk's default
_SETTING = "num_updates_per_repo_info_file"


@dataclass(frozen=True, slots=True)
class Stamp:
    """When an edit is made, and where the object before it goes."""

    at: datetime  # aware, UTC; the clock of who edits
    backup: str  # name below `overwritten/` of the copy of the object as it was


def with_update(edited: Repo, update: Update, stamp: Stamp) -> Repo:
    """Return `edited` with `update` on top of its ops log; `edited` still has the log from before.

    The entry that was on top now names the backup. A log that has grown to `updates_per_file` entries is cut before
    the next one that names a backup, which then leads to the older entries; entries without a backup, which an upgrade
    makes, are never cut off: nothing else would know them.
    Errors: GuardRefused when the last update is not before `stamp.at`: every later writer would fail on it. As
    `updates_per_file`.
    """
    top, *older = edited.latest_updates
    now = micros_of(stamp.at)
    if top.updated_at >= now:
        raise GuardRefused(
            f"the last update of the repository is dated {top.updated_at - now} µs after {stamp.at}, the time here. "
            f"Nothing was changed or deleted. Compare the clocks, and try again when that time has passed."
        )
    updates = [replace(update, updated_at=now, backup_path=None), replace(top, backup_path=stamp.backup), *older]
    most = updates_per_file(edited)
    for place, one in enumerate(updates):
        if place >= most and one.backup_path is not None:
            return replace(edited, latest_updates=tuple(updates[:place]), repo_before_updates=one.backup_path)
    return replace(edited, latest_updates=tuple(updates))


def updates_per_file(repo: Repo) -> int:
    """Return how many entries of its log a repo object holds, by its configuration, or by default.

    Errors: CorruptFile for a configuration that cannot be read, or with a number that icechunk does not know.
    """
    configuration = {} if repo.config is None else read_flexbuffer(repo.config, "the configuration in the repo object")
    if not isinstance(configuration, dict):
        raise corrupt("the configuration in the repo object", "it is no mapping")
    most = configuration.get(_SETTING)
    if most is None:
        return UPDATES_PER_FILE
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= 0xFFFF:
        raise corrupt("the configuration in the repo object", f"its {_SETTING} is {most!r}")
    return most


def require_online(repo: Repo) -> None:
    """Refuse to edit a repository that is not online. Errors: GuardRefused with the status and its reason."""
    status: RepoStatus = repo.status
    if status.availability is not Availability.ONLINE:
        word = status.availability.name.lower().replace("_", "-")
        reason = status.limited_availability_reason or "none given"
        raise GuardRefused(
            f"the repository is {word} (reason: {reason}). Nothing was changed or deleted. Set its status to online "
            f"when its owner agrees."
        )
