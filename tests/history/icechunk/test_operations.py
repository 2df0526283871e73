"""What the comparison with icechunk cannot show: edits that its API does not let anybody ask for."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.rules.operations import (
    amend,
    commit,
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    reset_branch,
    set_status,
)
from retention_assets.icechunk.rules.snapshots import micros_of
from retention_assets.icechunk.rules.updates import Stamp
from tests.history.icechunk.graphs import at, history, snapshot_id
from tests.history.icechunk.real import repo_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = Stamp(NOW, "repo.before")
REPO = repo_of(history({"root": (None, 0), "a": ("root", 1), "b": ("a", 2)}, {"main": "b", "dev": "a"}, {"v1": "a"}))


def new(parent: str | None, hours: float = 9, name: str = "new") -> SnapshotInfo:
    return SnapshotInfo(snapshot_id(name), None if parent is None else snapshot_id(parent), micros_of(at(hours)), "new")


@pytest.mark.parametrize(
    ("edit", "arguments", "complaint"),
    [
        pytest.param(commit, ("gone", new("b")), "there is no branch 'gone'", id="commit_on_no_branch"),
        pytest.param(commit, ("main", new("a")), "the branch 'main' is on .*, not on", id="commit_behind_the_tip"),
        pytest.param(commit, ("main", new(None)), "is on .*, not on no snapshot", id="commit_of_a_root"),
        pytest.param(commit, ("main", new("b", name="a")), "there is a snapshot .* already", id="commit_of_known_id"),
        pytest.param(commit, ("main", new("b", 2)), "is dated 0 µs before", id="commit_at_the_parents_time"),
        pytest.param(amend, ("main", new("a")), "the branch 'main' is on .*, not on", id="amend_behind_the_tip"),
        pytest.param(amend, ("main", new("b", 1.5)), "is dated 1800000000 µs before", id="amend_in_the_past"),
        pytest.param(amend, ("main", new("b", name="a")), "there is a snapshot .* already", id="amend_of_known_id"),
        pytest.param(set_status, (Availability.OFFLINE, None), "reads the status offline as online", id="offline"),
    ],
)
def test_what_cannot_be_is_refused(edit, arguments, complaint):
    with pytest.raises(GuardRefused, match=f"{complaint}.*Nothing was changed or deleted"):
        edit(REPO, *arguments, STAMP)


@pytest.mark.parametrize("availability", [Availability.READ_ONLY, Availability.OFFLINE])
@pytest.mark.parametrize(
    ("edit", "arguments"),
    [
        pytest.param(create_branch, ("new", snapshot_id("a")), id="create_branch"),
        pytest.param(delete_branch, ("dev",), id="delete_branch"),
        pytest.param(reset_branch, ("dev", snapshot_id("b")), id="reset_branch"),
        pytest.param(create_tag, ("v2", snapshot_id("a")), id="create_tag"),
        pytest.param(delete_tag, ("v1",), id="delete_tag"),
        pytest.param(commit, ("main", new("b")), id="commit"),
        pytest.param(amend, ("main", new("b")), id="amend"),
    ],
)
def test_nothing_but_its_status_changes_in_a_repository_that_is_not_online(edit, arguments, availability):
    closed = replace(REPO, status=RepoStatus(availability, 0, "moving"))
    with pytest.raises(GuardRefused, match="reason: moving"):
        edit(closed, *arguments, STAMP)
    edit(REPO, *arguments, STAMP)
    opened = set_status(closed, Availability.ONLINE, None, STAMP)
    assert opened.status == RepoStatus(Availability.ONLINE, micros_of(NOW))


def test_other_references_stay_on_what_was_amended():
    shared = replace(REPO, branches={**REPO.branches, "dev": snapshot_id("b")}, tags={"v1": snapshot_id("b")})
    after = amend(shared, "main", new("b"), STAMP)
    assert after.branches == {"main": snapshot_id("new"), "dev": snapshot_id("b")}
    assert after.tags == {"v1": snapshot_id("b")}
    assert after.snapshots[snapshot_id("new")].parent_id == snapshot_id("a")
    assert snapshot_id("b") in after.snapshots


def test_an_edit_leaves_the_object_it_was_made_from_alone():
    before = repo_of(history({"root": (None, 0), "a": ("root", 1)}, {"main": "a", "dev": "a"}, {"v1": "a"}))
    kept = repo_of(history({"root": (None, 0), "a": ("root", 1)}, {"main": "a", "dev": "a"}, {"v1": "a"}))
    for edit, arguments in ((delete_branch, ("dev",)), (delete_tag, ("v1",)), (commit, ("main", new("a")))):
        assert edit(before, *arguments, STAMP) != kept
        assert before == kept


def test_the_feature_flags_of_a_repository_that_never_set_any_are_on():
    assert REPO.enabled_feature_flags is None
    after: Repo = create_tag(REPO, "v2", snapshot_id("b"), STAMP)
    assert after.latest_updates[0] == Update(UpdateKind.TAG_CREATED, micros_of(NOW), name="v2")
