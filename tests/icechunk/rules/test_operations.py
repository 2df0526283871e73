"""Edits of the repo object that icechunk's API does not offer, so they cannot be compared with icechunk."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, Update, UpdateKind
from retention_assets.icechunk.rules.operations import set_status
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.edits import create_branch, create_tag, delete_branch, delete_tag, reset_branch
from tests.icechunk.rules.graphs import history, snapshot_id
from tests.icechunk.rules.icechunk_files import repo_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = Stamp(NOW, "repo.before")
REPO = repo_of(history({"root": (None, 0), "a": ("root", 1), "b": ("a", 2)}, {"main": "b", "dev": "a"}, {"v1": "a"}))


def test_the_status_offline_is_refused():
    with pytest.raises(GuardRefused, match=r"reads the status offline as online.*Nothing was changed or deleted"):
        set_status(REPO, Availability.OFFLINE, None, STAMP)


def test_a_text_that_is_not_utf_8_is_refused():
    for edit in (create_branch, create_tag):
        with pytest.raises(
            GuardRefused, match=r"'trial\\udcff' is not UTF-8\. Nothing was changed.*Choose another name"
        ):
            edit(REPO, "trial\udcff", snapshot_id("a"), STAMP)
    with pytest.raises(GuardRefused, match="Choose another reason"):
        set_status(REPO, Availability.READ_ONLY, "\udcff", STAMP)


@pytest.mark.parametrize("availability", [Availability.READ_ONLY, Availability.OFFLINE])
@pytest.mark.parametrize(
    ("edit", "arguments"),
    [
        pytest.param(create_branch, ("new", snapshot_id("a")), id="create_branch"),
        pytest.param(delete_branch, ("dev",), id="delete_branch"),
        pytest.param(reset_branch, ("dev", snapshot_id("b")), id="reset_branch"),
        pytest.param(create_tag, ("v2", snapshot_id("a")), id="create_tag"),
        pytest.param(delete_tag, ("v1",), id="delete_tag"),
    ],
)
def test_nothing_but_its_status_changes_in_a_repository_that_is_not_online(edit, arguments, availability):
    closed = replace(REPO, status=RepoStatus(availability, 0, "moving"))
    with pytest.raises(GuardRefused, match="reason: moving"):
        edit(closed, *arguments, STAMP)
    edit(REPO, *arguments, STAMP)
    opened = set_status(closed, Availability.ONLINE, None, STAMP)
    assert opened.status == RepoStatus(Availability.ONLINE, micros_of(NOW))


def test_an_edit_does_not_change_its_input():
    before = repo_of(history({"root": (None, 0), "a": ("root", 1)}, {"main": "a", "dev": "a"}, {"v1": "a"}))
    kept = repo_of(history({"root": (None, 0), "a": ("root", 1)}, {"main": "a", "dev": "a"}, {"v1": "a"}))
    for edit, arguments in ((delete_branch, ("dev",)), (delete_tag, ("v1",))):
        assert edit(before, *arguments, STAMP) != kept
        assert before == kept


def test_the_feature_flags_of_a_repository_that_never_set_any_are_on():
    assert REPO.enabled_feature_flags is None
    after: Repo = create_tag(REPO, "v2", snapshot_id("b"), STAMP)
    assert after.latest_updates[0] == Update(UpdateKind.TAG_CREATED, micros_of(NOW), name="v2")
