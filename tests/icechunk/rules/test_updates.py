from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from retention_assets.errors import CorruptFile, GuardRefused
from retention_assets.icechunk.formats.model import Repo, Update, UpdateKind
from retention_assets.icechunk.formats.values import write_flexbuffer
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import Stamp, updates_per_file, with_update
from tests.icechunk.rules.graphs import history
from tests.icechunk.rules.icechunk_files import repo_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY = repo_of(history({"root": (None, 0)}, {"main": "root"}))
GC = Update(UpdateKind.GC_RAN, 0)


def configured(most: object) -> Repo:
    return replace(EMPTY, config=write_flexbuffer({"num_updates_per_repo_info_file": most}))


def logged(repo: Repo, times: int) -> Repo:
    for number in range(times):
        repo = with_update(repo, GC, Stamp(NOW + timedelta(seconds=number), f"backup-{number}"))
    return repo


def test_the_previous_log_entry_names_the_backup_and_the_new_entry_names_none():
    after = logged(EMPTY, 2)
    assert [(one.kind, one.backup_path) for one in after.latest_updates] == [
        (UpdateKind.GC_RAN, None),
        (UpdateKind.GC_RAN, "backup-1"),
        (UpdateKind.REPO_INITIALIZED, "backup-0"),
    ]
    assert after.latest_updates[0].updated_at == micros_of(NOW + timedelta(seconds=1))
    assert after.repo_before_updates is None


def test_a_long_log_continues_in_the_backup_of_the_first_removed_entry():
    after = logged(configured(3), 5)
    assert [one.backup_path for one in after.latest_updates] == [None, "backup-4", "backup-3"]
    assert after.repo_before_updates == "backup-2"


def test_a_log_that_is_not_full_keeps_its_link_to_older_entries():
    after = logged(replace(configured(9), repo_before_updates="older"), 2)
    assert after.repo_before_updates == "older"


def test_log_entries_without_a_backup_are_never_removed():
    made_up = tuple(Update(UpdateKind.NEW_COMMIT, number, name="main") for number in range(5, 0, -1))
    after = logged(replace(configured(2), latest_updates=made_up), 1)
    assert [one.backup_path for one in after.latest_updates] == [None, "backup-0", None, None, None, None]
    again = with_update(after, GC, Stamp(NOW + timedelta(days=1), "later"))
    assert [one.backup_path for one in again.latest_updates] == [None, "later"]
    assert again.repo_before_updates == "backup-0"


@pytest.mark.parametrize("ahead", [0, 1, 3_600_000_000])
def test_an_update_that_is_not_after_the_last_one_is_refused(ahead):
    repo = replace(EMPTY, latest_updates=(replace(GC, updated_at=micros_of(NOW) + ahead),))
    dated, now = (f"{at:%Y-%m-%d %H:%M:%S.%f} UTC" for at in (NOW + timedelta(microseconds=ahead), NOW))
    message = f"is dated {dated}, but it is only {now} on this machine. Nothing was changed or deleted"
    with pytest.raises(GuardRefused, match=message):
        with_update(repo, GC, Stamp(NOW, "backup"))


def test_an_update_one_microsecond_after_the_last_one_is_accepted():
    repo = replace(EMPTY, latest_updates=(replace(GC, updated_at=micros_of(NOW) - 1),))
    assert with_update(repo, GC, Stamp(NOW, "backup")).latest_updates[0].updated_at == micros_of(NOW)


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (None, 1000),
        ({}, 1000),
        ({"num_updates_per_repo_info_file": None}, 1000),
        ({"num_updates_per_repo_info_file": 7}, 7),
    ],
)
def test_the_configuration_of_a_repository_sets_the_length_of_its_log(config, most):
    assert updates_per_file(replace(EMPTY, config=config if config is None else write_flexbuffer(config))) == most


@pytest.mark.parametrize("strange", [-1, 70_000, "7", True, 2.5], ids=str)
def test_an_invalid_length_of_the_log_is_refused(strange):
    with pytest.raises(CorruptFile, match="num_updates_per_repo_info_file"):
        with_update(configured(strange), GC, Stamp(NOW, "backup"))


def test_a_configuration_that_is_no_mapping_is_refused():
    with pytest.raises(CorruptFile, match="the configuration of the repository in `repo` is not a mapping"):
        updates_per_file(replace(EMPTY, config=write_flexbuffer([1])))
