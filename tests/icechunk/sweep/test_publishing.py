"""A plan's edits on real repositories: made once, on what is there by then, and never more than was planned."""

from dataclasses import replace
from datetime import datetime, timedelta

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused, StoreError
from retention_assets.icechunk.administration.upgrade import upgrade
from retention_assets.icechunk.edits import format_1
from retention_assets.icechunk.edits.format_1 import ReferenceFiles
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.paths import write_reference
from retention_assets.icechunk.rules.expiration import Expiration
from retention_assets.icechunk.rules.snapshots import History, ReferenceChange, reachable
from retention_assets.policy.snapshots import Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules.graphs import deletion
from tests.icechunk.sweep.repositories import (
    AS_OF,
    BRANCHES,
    DAYS,
    POLICY,
    TREE,
    Place,
    expiration,
    histories,
    now,
    tree,
    values,
)
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import FORMATS, INITIAL, INITIAL_SNAPSHOT, Commit, Format, build_history
from tests.models.policies import everything_older

LEFT = {"branch main": ["f", "e", "-"], "branch dev": ["y", "-"], "tag v2": ["f", "e", "-"]}
both_formats = pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])


@both_formats
def test_planned_edits_are_published_and_icechunk_still_reads_and_commits(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    before = values(place.open())
    plan = place.plan()
    published = place.publish(plan)
    assert published.conflicts == 0
    assert published.references_removed == ("refs/branch.old", "refs/tag.v1")
    repository = place.open()
    assert histories(repository) == LEFT
    assert values(repository) == {name: before[name] for name in LEFT}
    commit_to(repository)
    assert histories(place.open())["branch main"] == ["number 11", *LEFT["branch main"]]


@both_formats
def test_the_same_files_are_there_as_after_icechunks_own_expiration(tmp_path, spec_version: Format):
    """In format 2 the objects themselves are compared elsewhere; here the histories, the files and what is released."""
    ours = tree(tmp_path / "ours", spec_version)
    theirs = ours.copy(tmp_path / "theirs")
    plan = ours.plan()
    ours.publish(plan)
    theirs.open().expire_snapshots(AS_OF, delete_expired_branches=True, delete_expired_tags=True)
    assert histories(ours.open()) == histories(theirs.open())
    assert ours.files().keys() - ours.files("overwritten").keys() == (
        theirs.files().keys() - (theirs.files("overwritten").keys() if spec_version == 2 else set())
    )
    for place in (ours, theirs):
        history = place.state().history
        assert not {decode_id(one) for one in plan.released} & reachable(history, history.tips())


def test_an_expiration_of_format_1_that_releases_nothing_rewrites_nothing(tmp_path):
    """What has expired is a tag's: icechunk takes it out of the branch's history, and it stays all the same."""
    commits = [Commit("a", None, DAYS[0]), Commit("b", "a", DAYS[5])]
    place = Place(tmp_path / "r", build_history(tmp_path / "r", 1, commits, {"main": "b"}, {"v1": "a"}))
    theirs = place.copy(tmp_path / "theirs")
    before, policy = place.files(), everything_older()
    plan = place.plan(policy)
    assert plan.released == ()
    place.publish(plan, policy)
    assert place.files() == before
    theirs.open().expire_snapshots(AS_OF)
    assert histories(place.open()) == {"branch main": ["b", "a", "-"], "tag v1": ["a", "-"]}
    assert histories(theirs.open()) == {"branch main": ["b", "-"], "tag v1": ["a", "-"]}


@both_formats
def test_publishing_again_changes_nothing(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    first = place.publish(plan)
    before = place.files()
    again = place.publish(plan)
    assert (again.written, again.references_removed, again.etag) == ((), (), first.etag)
    assert place.files() == before


@both_formats
def test_a_completed_publication_is_not_repeated_although_a_new_commit_would_release_more(
    tmp_path, spec_version: Format
):
    """Two newest are kept: each commit pushes one out. That is the next plan's."""
    place = tree(tmp_path / "r", spec_version)
    policy = SnapshotPolicy(default=Keep("two", timedelta(0), last=2))
    plan = place.plan(policy, DAYS[7])
    place.publish(plan, policy)
    commit_to(place.open())
    before = place.files()
    assert place.publish(plan, policy).references_removed == ()
    assert place.files() == before


@both_formats
def test_commits_after_the_plan_stay(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    repository = place.open()
    new = commit_to(repository)
    repository.create_tag("v3", new)
    repository.create_branch("side", place.ids["e"])
    place.publish(plan)
    found = histories(place.open())
    assert found["branch main"] == found["tag v3"] == ["number 11", "f", "e", "-"]
    assert found["branch side"] == ["e", "-"]


@both_formats
def test_a_branch_that_moved_on_is_not_deleted(tmp_path, spec_version: Format):
    """Its old tip is passed over; but the new one stands on it and may use its files, so all is refused."""
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    new = commit_to(place.open(), "old")
    before = place.files()
    with pytest.raises(GuardRefused, match=f"new snapshot {new} is based on {place.ids['z']}, which the plan removes"):
        place.publish(plan)
    assert place.files() == before


@both_formats
@pytest.mark.parametrize("how", ["reset", "created_again", "another_name"])
def test_a_branch_that_moved_to_a_snapshot_to_release_is_not_deleted_and_the_plan_is_refused(
    tmp_path, spec_version: Format, how: str
):
    """The plan deletes the branch `old` on z, and releases x and c."""
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    for name in ("x", "c"):
        changed = place.copy(tmp_path / name)
        repository = changed.open()
        if how == "reset":
            repository.reset_branch("old", place.ids[name])
        elif how == "created_again":
            repository.delete_branch("old")
            repository.create_branch("old", place.ids[name])
        else:
            repository.create_branch("rescue", place.ids[name])
        before = changed.files()
        with pytest.raises(GuardRefused, match=f"reachable from a branch or tag again, {place.ids[name]} first"):
            changed.publish(plan)
        assert changed.files() == before


@both_formats
def test_a_branch_that_moved_to_a_snapshot_that_stays_is_not_deleted(tmp_path, spec_version: Format):
    """Its new tip has expired, and stays because a tag names it."""
    place = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("keep", "tag", "v1", None),))
    plan = place.plan(policy)
    assert plan.deleted_branches == ("old",)
    repository = place.open()
    repository.reset_branch("old", place.ids["b"])
    published = place.publish(plan, policy)
    assert (published.references_removed, published.left) == ((), 1)
    assert place.open().lookup_branch("old") == place.ids["b"]


def test_a_branch_that_moved_to_a_snapshot_to_drop_is_not_deleted_and_the_plan_is_refused(tmp_path):
    """While nothing reaches e, the default keeps it for ever. As the tip of `old`, it has expired."""
    place = unreached(tmp_path / "r")
    rule = SnapshotRule("old", "branch", "old", timedelta(0))
    policy = SnapshotPolicy((rule,), Keep("default", None), (), delete_expired_branches=True)
    plan = place.plan(policy, DAYS[7], dropped=[place.ids["e"]])
    assert plan.deleted_branches == ("old",)
    place.open().reset_branch("old", place.ids["e"])
    before = place.files()
    with pytest.raises(GuardRefused, match=rf"reachable from a branch or tag again, {place.ids['e']} first"):
        place.publish(plan, policy)
    assert place.files() == before


def test_a_tag_file_that_was_replaced_is_not_deleted_and_the_plan_is_refused(tmp_path):
    """icechunk never moves a tag. In format 1, anybody who can write the store can."""
    place = tree(tmp_path / "r", 1)
    plan = place.plan()
    assert "v1" in plan.deleted_tags
    (place.directory / "refs/tag.v1/ref.json").write_bytes(write_reference(decode_id(place.ids["c"])))
    before = place.files()
    with pytest.raises(GuardRefused, match=f"reachable from a branch or tag again, {place.ids['c']} first"):
        place.publish(plan)
    assert place.files() == before
    planned_tip = ReferenceChange("tag", "v1", decode_id(place.ids["b"]), None)
    assert not ReferenceFiles(place.access).apply(planned_tip)
    assert place.files() == before


def test_a_branch_created_again_after_a_sweep_removed_it_is_not_deleted_by_the_next(tmp_path):
    """In format 1 the files of its snapshots still exist after the publication."""
    place = tree(tmp_path / "r", 1)
    plan = place.plan()
    place.publish(plan)
    place.open().create_branch("old", place.ids["z"])
    left = frozenset(one for one in plan.deleted if one.name != "old")  # see `edits_left`
    with pytest.raises(GuardRefused, match=f"reachable from a branch or tag again, {place.ids['z']} first"):
        place.publish(replace(plan, deleted=left))
    assert "old" in place.open().list_branches()


@both_formats
def test_fewer_edits_than_planned_are_fine(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    repository = place.open()
    repository.delete_tag("v1")
    repository.delete_branch("old")
    assert place.publish(plan).references_removed == ()
    assert histories(place.open()) == LEFT


@both_formats
@pytest.mark.parametrize("name", ["a", "c", "x"])
def test_a_tag_on_a_snapshot_to_release_refuses_the_plan(tmp_path, spec_version: Format, name: str):
    place = tree(tmp_path / "r", spec_version)
    policy = everything_older(delete_expired_branches=True)
    plan = place.plan(policy)
    place.open().create_tag("late", place.ids[name])
    before = place.files()
    with pytest.raises(GuardRefused, match=f"reachable from a branch or tag again, {place.ids[name]} first"):
        place.publish(plan, policy)
    assert place.files() == before


@both_formats
def test_a_snapshot_tagged_after_the_publication_refuses_the_next_attempt(tmp_path, spec_version: Format):
    """In format 2 nobody can tag it: the repo object does not know it any more."""
    place = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("late", "tag", "late", None),))
    plan = place.plan(policy)
    place.publish(plan, policy)
    if spec_version == 2:
        with pytest.raises(ic.IcechunkError, match="snapshot"):
            place.open().create_tag("late", place.ids["a"])
        return
    place.open().create_tag("late", place.ids["a"])
    with pytest.raises(GuardRefused, match=f"reachable from a branch or tag again, {place.ids['a']} first"):
        place.publish(plan, policy)


@both_formats
def test_an_expired_snapshot_that_the_plan_does_not_name_stays(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    whole = place.plan()
    stays, *approved = whole.released
    before = values(place.open())
    published = place.publish(replace(whole, released=tuple(approved)))
    assert published.left == 1
    history = place.state().history
    assert decode_id(stays) in history.snapshots
    assert not {decode_id(one) for one in approved} & reachable(history, history.tips())
    after = values(place.open())
    assert after == {name: before[name] for name in after}
    commit_to(place.open())


@both_formats
@pytest.mark.parametrize("lacks", ["tag", "branch"])
def test_a_reference_that_must_stay_on_a_snapshot_to_release_refuses_the_plan(
    tmp_path, spec_version: Format, lacks: str
):
    place = tree(tmp_path / "r", spec_version)
    plan = place.plan()
    short = replace(plan, deleted=frozenset(one for one in plan.deleted if one.kind != lacks))
    before = place.files()
    with pytest.raises(GuardRefused, match=r"the plan removes are reachable from a branch or tag again.*Plan again"):
        place.publish(short)
    assert place.files() == before


@both_formats
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_commit_after_the_plan_does_not_expire_more_snapshots_than_approved(
    tmp_path, spec_version: Format, commits: int
):
    """The two newest stay. Each commit pushes one more out, which is the next plan's."""
    place = Place(tmp_path / "r", build_history(tmp_path / "r", spec_version, TREE[:6], {"main": "f"}, {}))
    policy = SnapshotPolicy(default=Keep("two", timedelta(0), last=2))
    plan = place.plan(policy, DAYS[7])
    assert set(plan.released) == {place.ids[name] for name in "abcd"}
    for _ in range(commits):
        commit_to(place.open())
    before = values(place.open())
    published = place.publish(plan, policy)
    assert published.left == min(commits, 2)  # a commit that is younger than the policy's day does not go
    found = histories(place.open())["branch main"]
    assert found[-3:] == ["f", "e", "-"]  # as the plan leaves it, below the new commits
    assert len(found) == 3 + commits
    assert values(place.open()) == before
    next_plan = place.plan(policy, now())
    assert place.ids["e"] in next_plan.released
    assert place.publish(next_plan, policy).left == 0
    assert len(histories(place.open())["branch main"]) == 3


def test_a_rule_for_every_tag_or_branch_keeps_those_with_a_slash_in_their_names(tmp_path):
    """Format 1 allows no such names."""
    place = tree(tmp_path / "r", 2)
    repository = place.open()
    repository.create_tag("release/1.0", place.ids["b"])
    repository.create_branch("release/1.x", place.ids["c"])
    forever = (SnapshotRule("tags", "tag", "*", None), SnapshotRule("branches", "branch", "release*", None))
    policy = replace(POLICY, rules=forever)
    plan = place.plan(policy)
    assert (plan.deleted_tags, plan.deleted_branches) == ((), ("old",))
    place.publish(plan, policy)
    assert {name: len(history) for name, history in histories(place.open()).items() if "/" in name} == {
        "branch release/1.x": len("cba-"),
        "tag release/1.0": len("ba-"),
    }


@both_formats
def test_a_tag_deleted_after_the_plan_does_not_release_more_snapshots_than_approved(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("keep", "tag", "v1", None),))
    plan = place.plan(policy)
    assert place.ids["b"] not in plan.released
    place.open().delete_tag("v1")
    published = place.publish(plan, policy)
    assert published.left == len({"a", "b"})
    history = place.state().history
    assert {decode_id(place.ids[name]) for name in "ab"} <= reachable(history, history.tips())
    assert not {decode_id(one) for one in plan.released} & reachable(history, history.tips())


def test_a_plan_of_another_format_is_refused(tmp_path):
    place = tree(tmp_path / "r", 1)
    plan = place.plan()
    upgrade(place.access, now, dry_run=False)
    before = place.files()
    with pytest.raises(GuardRefused, match=r"no longer has format 1.*Plan again"):
        place.publish(plan)
    assert place.files() == before


@both_formats
def test_nothing_is_published_once_the_caller_may_not_write_any_more(tmp_path, spec_version: Format):
    place = tree(tmp_path / "r", spec_version)
    plan, before = place.plan(), place.files()

    def lease_lost() -> None:
        raise GuardRefused("the lease is lost")

    with pytest.raises(GuardRefused, match="the lease is lost"):
        publish(place.access, plan, POLICY, now, print, lease_lost)
    assert place.files() == before


def test_an_upgrade_while_the_edits_begin_is_refused(tmp_path):
    place = tree(tmp_path / "r", 1)
    plan = place.plan()

    def upgraded_meanwhile() -> datetime:
        upgrade(place.access, now, dry_run=False)
        return now()

    refused = rf"{place.directory}: the repository now has format 2\. Nothing more was changed\. Plan again"
    with pytest.raises(GuardRefused, match=refused):
        publish(place.access, plan, POLICY, upgraded_meanwhile, print)
    assert histories(place.open()).keys() == {"branch main", "branch dev", "branch old", "tag v1", "tag v2"}


def test_the_edits_of_format_1_give_up_after_too_many_conflicts(tmp_path, monkeypatch: pytest.MonkeyPatch):
    place = tree(tmp_path / "r", 1)
    whole = expiration(place.state())
    monkeypatch.setattr(format_1, "TRIES", 3)
    waits: list[float] = []

    def while_another_commits(history: History) -> Expiration:
        commit_to(place.open(), "old")
        return replace(whole, edits=(deletion(history, "branch old"),))

    said = r"other writers were quicker 3 times\. .*No file was deleted\. Run again"
    with pytest.raises(StoreError, match=rf"{place.directory}: {said}"):
        format_1.apply_edits_v1(place.access, while_another_commits, now, print, sleep=waits.append)
    assert len(waits) == 3
    assert "old" in place.open().list_branches()


def unreached(directory) -> Place:
    """A format 2 repository whose branch was reset: nothing reaches e and f, and g stands on f."""
    commits = [*TREE, Commit("g", "f", DAYS[6])]
    return Place(directory, build_history(directory, 2, commits, {**BRANCHES, "main": "d"}, {"v1": "b"}))


def test_dropped_snapshots_are_removed_and_their_children_get_an_ancestor(tmp_path):
    place = unreached(tmp_path / "r")
    dropped = [place.ids["e"], place.ids["f"]]
    plan = replace(place.plan(as_of=DAYS[0]), dropped=tuple(sorted(dropped)))
    published = place.publish(plan, POLICY)
    assert len(published.written) == 1
    repo = place.state().repo
    assert repo is not None
    assert not {decode_id(one) for one in dropped} & repo.snapshots.keys()
    assert encode_id(repo.snapshots[decode_id(place.ids["g"])].parent_id or b"") == place.ids["d"]
    assert place.publish(plan).written == ()
    commit_to(place.open())


def test_expiration_and_collection_are_two_entries_of_the_log_with_a_backup_each(tmp_path):
    place = unreached(tmp_path / "r")
    plan = place.plan(dropped=[place.ids["f"]])
    published = place.publish(plan)
    assert all((place.directory / address).is_file() for address in published.written)
    log = list(place.open().ops_log())
    assert [type(entry.kind).__name__ for entry in log[:2]] == ["GCRan", "ExpirationRan"]
    assert [f"overwritten/{entry.backup_path}" for entry in log[1:3]] == list(published.written)[::-1]


def test_a_read_only_repository_is_not_changed(tmp_path):
    place = tree(tmp_path / "r", 2)
    plan = place.plan()
    place.open().set_status(ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving"))
    before = place.files()
    with pytest.raises(GuardRefused, match="read-only \\(reason: moving\\)"):
        place.publish(plan)
    assert place.files() == before


def test_the_root_is_never_released(tmp_path):
    for spec_version in FORMATS:
        place = tree(tmp_path / f"r{spec_version}", spec_version)
        assert INITIAL not in place.plan(as_of=now()).released
        place.publish(place.plan(as_of=now()))
        assert INITIAL_SNAPSHOT in place.state().history.snapshots
