"""Completes an edit of the repo object: checks whether it is allowed, adds an entry to the ops log, names the backup.

Source: docs/icechunk-formats.md, "Edits of the repo object" and "Feature flags".
"""

from dataclasses import dataclass, replace
from datetime import datetime

from retention_assets.errors import CorruptFile, GuardRefused
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, Update
from retention_assets.icechunk.formats.values import read_flexbuffer
from retention_assets.icechunk.rules.snapshots import TO_THE_MICROSECOND, datetime_of, micros_of

CREATE_TAG, DELETE_TAG = 4, 5  # ids of feature flags; all are on unless turned off
UPDATES_PER_FILE = 1000  # icechunk's default
_SETTING = "num_updates_per_repo_info_file"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of an edit, and the name of the backup of the previous repo object."""

    at: datetime  # aware, UTC; by the clock of the machine that edits
    backup: str  # name below `overwritten/` of the copy of the previous object


def with_update(edited: Repo, update: Update, stamp: Stamp) -> Repo:
    """Return `edited` with `update` as the newest entry of its ops log, which the edit has not changed yet.

    The entry that was the newest until now gets the name of the backup. A log of more than `updates_per_file` entries
    is cut before the next entry that names a backup, because this backup contains the entries that are cut off. Entries
    without a backup, which an upgrade makes, are never cut off.
    Errors: GuardRefused when the last update is not before `stamp.at`, because every later writer would fail on such a
    log; CorruptFile as `updates_per_file`.
    """
    top, *older = edited.latest_updates
    now = micros_of(stamp.at)
    if top.updated_at >= now:
        dated = datetime_of(top.updated_at, b"")
        raise GuardRefused(
            f"the last update of the repository is dated {dated:{TO_THE_MICROSECOND}} UTC, but it is only "
            f"{stamp.at:{TO_THE_MICROSECOND}} UTC on this machine. Nothing was changed or deleted. Compare the clocks, "
            f"and try again after {dated:{TO_THE_MICROSECOND}} UTC."
        )
    updates = [replace(update, updated_at=now, backup_path=None), replace(top, backup_path=stamp.backup), *older]
    most = updates_per_file(edited)
    for index, one in enumerate(updates):
        if index >= most and one.backup_path is not None:
            return replace(edited, latest_updates=tuple(updates[:index]), repo_before_updates=one.backup_path)
    return replace(edited, latest_updates=tuple(updates))


def updates_per_file(repo: Repo) -> int:
    """Return the number of ops log entries that a repo object stores: the configured number, or the default.

    Errors: CorruptFile when the configuration cannot be read, or its number is not one that icechunk accepts.
    """
    configuration = {} if repo.config is None else read_flexbuffer(repo.config, "the configuration in the repo object")
    if not isinstance(configuration, dict):
        raise _wrong_configuration("is not a mapping")
    most = configuration.get(_SETTING)
    if most is None:
        return UPDATES_PER_FILE
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= 0xFFFF:
        raise _wrong_configuration(f"has {_SETTING}: {most!r}, which is not a whole number from 0 to 65,535")
    return most


def _wrong_configuration(what: str) -> CorruptFile:
    return CorruptFile(
        f"the configuration of the repository in `repo` {what}. Nothing was changed or deleted. Correct it with "
        "icechunk (`Repository.save_config`), then run the same command again."
    )


def require_online(repo: Repo, undone: str = "was changed or deleted") -> None:
    """Raise GuardRefused, with the status and its reason, if the repository is not online.

    `undone`: completes the message "Nothing ...".
    """
    status: RepoStatus = repo.status
    if status.availability is not Availability.ONLINE:
        reason = status.limited_availability_reason or "none given"
        raise GuardRefused(
            f"the repository is {status.availability.word} (reason: {reason}). Nothing {undone}. When its owner "
            "agrees, set it to online: `retention icechunk REPO status online`."
        )


def is_enabled(repo: Repo, flag: int) -> bool:
    """Return whether a flag is on; a flag that was never set is on."""
    if flag in (repo.enabled_feature_flags or ()):
        return True
    return flag not in (repo.disabled_feature_flags or ())
