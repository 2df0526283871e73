"""Publishing a plan's edits on real repositories: once, on their current state, and never more than planned."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused, StoreError
from retention_assets.icechunk.administration.upgrade import upgrade
from retention_assets.icechunk.edits import format_1
from retention_assets.icechunk.edits.format_1 import ReferenceFiles, _Rewriter
from retention_assets.icechunk.edits.publishing import publish
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.paths import write_reference
from retention_assets.icechunk.rules.expiration import Expiration
from retention_assets.icechunk.rules.snapshots import History, ReferenceChange, reachable
from retention_assets.icechunk.sweep.retained_set import edits_of, retained_set_of
from retention_assets.policy.snapshots import Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules.graphs import deletion
from tests.icechunk.sweep.repositories import (
    AS_OF,
    BRANCHES,
    DAYS,
    POLICY,
    TREE,
    IcechunkRepository,
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
    repository = tree(tmp_path / "r", spec_version)
    before = values(repository.open())
    plan = repository.plan()
    published = repository.publish(plan)
    assert published.conflicts == 0
    assert published.released == len(plan.released) > 0
    assert published.references_removed == ("refs/branch.old", "refs/tag.v1")
    opened = repository.open()
    assert histories(opened) == LEFT
    assert values(opened) == {name: before[name] for name in LEFT}
    commit_to(opened)
    assert histories(repository.open())["branch main"] == ["number 11", *LEFT["branch main"]]


@both_formats
def test_a_publication_leaves_the_same_files_as_an_expiration_by_icechunk(tmp_path, spec_version: Format):
    """Histories, files and released snapshots are compared. Other tests compare the repo objects of format 2."""
    ours = tree(tmp_path / "ours", spec_version)
    theirs = ours.copy(tmp_path / "theirs")
    plan = ours.plan()
    ours.publish(plan)
    theirs.open().expire_snapshots(AS_OF, delete_expired_branches=True, delete_expired_tags=True)
    assert histories(ours.open()) == histories(theirs.open())
    assert ours.files().keys() - ours.files("overwritten").keys() == (
        theirs.files().keys() - (theirs.files("overwritten").keys() if spec_version == 2 else set())
    )
    for repository in (ours, theirs):
        history = repository.state().history
        assert not {decode_id(one) for one in plan.released} & reachable(history, history.tips())


@both_formats
def test_a_publication_gives_the_planned_parents_if_sessions_may_be_open_on_a_snapshot(tmp_path, spec_version: Format):
    """The tag v1 keeps the snapshot b. A branch has left b within the grace period, so b is also held at planning."""
    repository = tree(tmp_path / "r", spec_version)
    cutoff = now() + timedelta(days=1)
    b, policy = decode_id(repository.ids["b"]), everything_older()
    state = replace(repository.state(), left={b: cutoff})
    retained = retained_set_of(state, policy, AS_OF, cutoff)
    assert retained.expiration is not None
    assert retained.expiration.reparented[decode_id(repository.ids["e"])] == b
    repository.publish(edits_of(state, retained, AS_OF, cutoff), policy)
    parents = {one.snapshot_id: one.parent_id for one in repository.state().history.snapshots.values()}
    assert {child: parents[child] for child in retained.expiration.reparented} == retained.expiration.reparented
    assert histories(repository.open())["branch main"] == ["f", "e", "b", "-"]


def test_an_expiration_of_format_1_that_releases_nothing_rewrites_nothing(tmp_path):
    """The expired snapshot is the tip of a tag. icechunk removes it from the branch's history, although it stays."""
    commits = [Commit("a", None, DAYS[0]), Commit("b", "a", DAYS[5])]
    repository = IcechunkRepository(
        tmp_path / "r", build_history(tmp_path / "r", 1, commits, {"main": "b"}, {"v1": "a"})
    )
    theirs = repository.copy(tmp_path / "theirs")
    before, policy = repository.files(), everything_older()
    plan = repository.plan(policy)
    assert plan.released == ()
    repository.publish(plan, policy)
    assert repository.files() == before
    theirs.open().expire_snapshots(AS_OF)
    assert histories(repository.open()) == {"branch main": ["b", "a", "-"], "tag v1": ["a", "-"]}
    assert histories(theirs.open()) == {"branch main": ["b", "-"], "tag v1": ["a", "-"]}


@both_formats
def test_a_second_publication_changes_nothing(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    first = repository.publish(plan)
    before = repository.files()
    again = repository.publish(plan)
    assert (again.written, again.released, again.references_removed, again.etag) == ((), 0, (), first.etag)
    assert repository.files() == before


@both_formats
def test_a_completed_publication_is_not_repeated_although_a_new_commit_would_release_more(
    tmp_path, spec_version: Format
):
    """The two newest snapshots are kept. Each commit makes one more expire, which the next plan handles."""
    repository = tree(tmp_path / "r", spec_version)
    policy = SnapshotPolicy(default=Keep("two", timedelta(0), last=2))
    plan = repository.plan(policy, DAYS[7])
    repository.publish(plan, policy)
    commit_to(repository.open())
    before = repository.files()
    assert repository.publish(plan, policy).references_removed == ()
    assert repository.files() == before


@both_formats
def test_commits_after_the_plan_stay(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    opened = repository.open()
    new = commit_to(opened)
    opened.create_tag("v3", new)
    opened.create_branch("side", repository.ids["e"])
    repository.publish(plan)
    found = histories(repository.open())
    assert found["branch main"] == found["tag v3"] == ["number 11", "f", "e", "-"]
    assert found["branch side"] == ["e", "-"]


@both_formats
def test_a_branch_that_moved_on_is_not_deleted(tmp_path, spec_version: Format):
    """The plan releases its old tip, but the new tip is a child and may use its files. So the plan is refused."""
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    new = commit_to(repository.open(), "old")
    before = repository.files()
    with pytest.raises(
        GuardRefused, match=f"new snapshot {new} is based on {repository.ids['z']}, which the plan removes"
    ):
        repository.publish(plan)
    assert repository.files() == before


@both_formats
@pytest.mark.parametrize("how", ["reset", "created_again", "another_name"])
def test_a_branch_that_moved_to_a_snapshot_to_release_is_not_deleted_and_the_plan_is_refused(
    tmp_path, spec_version: Format, how: str
):
    """The plan deletes the branch `old` with the tip z, and releases x and c."""
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    for name in ("x", "c"):
        changed = repository.copy(tmp_path / name)
        opened = changed.open()
        if how == "reset":
            opened.reset_branch("old", repository.ids[name])
        elif how == "created_again":
            opened.delete_branch("old")
            opened.create_branch("old", repository.ids[name])
        else:
            opened.create_branch("rescue", repository.ids[name])
        before = changed.files()
        with pytest.raises(GuardRefused, match=f"that a branch or tag reaches again: {repository.ids[name]}"):
            changed.publish(plan)
        assert changed.files() == before


@pytest.mark.parametrize("how", ["branch", "reset", "tag"])
def test_a_snapshot_to_release_that_was_a_tip_since_the_plan_is_not_released(tmp_path, how: str):
    """A session may have begun on c while a branch or tag was there."""
    repository = tree(tmp_path / "r", 2)
    plan = repository.plan()
    opened, c = repository.open(), repository.ids["c"]
    if how == "branch":
        opened.create_branch("look", c)
        opened.delete_branch("look")
    elif how == "tag":
        opened.create_tag("look", c)
        opened.delete_tag("look")
    else:
        opened.reset_branch("dev", c)
        opened.reset_branch("dev", repository.ids["y"])
    before = repository.files()
    with pytest.raises(GuardRefused, match=rf"on the snapshot {c}, which the plan removes.* Plan again"):
        repository.publish(plan)
    assert repository.files() == before


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "branch_deleted"])
def test_a_snapshot_to_release_that_was_in_use_since_the_plan_is_not_released_although_icechunk_expired_it(
    tmp_path, is_committed: bool
):
    """Then the history does not contain the snapshot any more. Its files still exist."""
    repository = tree(tmp_path / "r", 2)
    plan, c = repository.plan(), repository.ids["c"]
    repository.open().create_branch("look", c)
    if is_committed:
        commit_to(repository.open(), "look")
    else:
        repository.open().delete_branch("look")
    assert c in repository.open().expire_snapshots(AS_OF)
    assert decode_id(c) not in repository.state().history.snapshots
    before = repository.files()
    with pytest.raises(GuardRefused, match=rf"{c}, which the plan removes.* Plan again"):
        repository.publish(plan)
    assert repository.files() == before


def test_a_snapshot_whose_child_an_earlier_plan_released_can_be_released_later(tmp_path):
    """The child stays in the list of transaction logs of removed ancestors, and no plan knows it any more."""
    commits = [Commit("a", None, DAYS[0]), Commit("b", "a", DAYS[1]), Commit("c", "b", DAYS[5])]
    repository = IcechunkRepository(
        tmp_path / "r", build_history(tmp_path / "r", 2, commits, {"main": "c"}, {"v1": "a"})
    )
    policy = SnapshotPolicy(default=Keep("day", timedelta(days=1)))
    first = repository.plan(policy)
    assert first.released == (repository.ids["b"],)
    repository.publish(first, policy)
    repository.open().delete_tag("v1")
    second = repository.plan(policy)
    assert repository.ids["a"] in second.released
    repository.publish(second, policy)
    assert decode_id(repository.ids["a"]) not in reachable(
        *(lambda history: (history, history.tips()))(repository.state().history)
    )


def test_a_publication_goes_on_after_an_earlier_one_found_a_branch_to_delete_gone(tmp_path):
    repository = tree(tmp_path / "r", 2)
    plan = repository.plan()
    repository.open().delete_branch("old")
    repository.publish(plan)
    before = repository.files()
    left = replace(plan, deleted=frozenset(one for one in plan.deleted if one.name != "old"))  # see `edits_left`
    publish(repository.access, left, POLICY, now, lambda line: None, accepted=plan.deleted)
    assert repository.files() == before


def test_the_tip_of_a_branch_to_delete_is_not_released_if_another_branch_was_on_it_since_the_plan(tmp_path):
    repository = tree(tmp_path / "r", 2)
    plan = repository.plan()
    opened, z = repository.open(), repository.ids["z"]
    opened.create_branch("look", z)
    opened.delete_branch("look")
    before = repository.files()
    with pytest.raises(GuardRefused, match=rf"on the snapshot {z}, which the plan removes.* Plan again"):
        repository.publish(plan)
    assert repository.files() == before


def test_a_branch_to_delete_that_somebody_deleted_since_the_plan_is_no_conflict(tmp_path):
    repository = tree(tmp_path / "r", 2)
    plan = repository.plan()
    assert plan.deleted_branches == ("old",)
    repository.open().delete_branch("old")
    assert repository.publish(plan).references_removed == ("refs/tag.v1",)


@both_formats
def test_a_branch_that_moved_to_a_snapshot_that_stays_is_not_deleted(tmp_path, spec_version: Format):
    """The new tip of the branch has expired, and stays because a tag points to it."""
    repository = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("keep", "tag", "v1", None),))
    plan = repository.plan(policy)
    assert plan.deleted_branches == ("old",)
    opened = repository.open()
    opened.reset_branch("old", repository.ids["b"])
    published = repository.publish(plan, policy)
    assert (published.references_removed, published.left) == ((), 1)
    assert repository.open().lookup_branch("old") == repository.ids["b"]


def test_a_branch_that_moved_to_a_snapshot_to_drop_is_not_deleted_and_the_plan_is_refused(tmp_path):
    """While no reference reaches e, the default rule keeps e for ever. As the tip of `old`, e has expired."""
    repository = unreached(tmp_path / "r")
    rule = SnapshotRule("old", "branch", "old", timedelta(0))
    policy = SnapshotPolicy((rule,), Keep("default", None), (), delete_expired_branches=True)
    plan = repository.plan(policy, DAYS[7], dropped=[repository.ids["e"]])
    assert plan.deleted_branches == ("old",)
    repository.open().reset_branch("old", repository.ids["e"])
    before = repository.files()
    with pytest.raises(GuardRefused, match=rf"that a branch or tag reaches again: {repository.ids['e']}"):
        repository.publish(plan, policy)
    assert repository.files() == before


def test_a_tag_file_that_was_replaced_is_not_deleted_and_the_plan_is_refused(tmp_path):
    """icechunk never moves a tag. In format 1, anybody who can write the store can."""
    repository = tree(tmp_path / "r", 1)
    plan = repository.plan()
    assert "v1" in plan.deleted_tags
    (repository.directory / "refs/tag.v1/ref.json").write_bytes(write_reference(decode_id(repository.ids["c"])))
    before = repository.files()
    with pytest.raises(GuardRefused, match=f"that a branch or tag reaches again: {repository.ids['c']}"):
        repository.publish(plan)
    assert repository.files() == before
    planned_tip = ReferenceChange("tag", "v1", decode_id(repository.ids["b"]), None)
    assert not ReferenceFiles(repository.access).apply(planned_tip)
    assert repository.files() == before


def test_a_branch_created_again_after_a_sweep_removed_it_is_not_deleted_by_the_next(tmp_path):
    """In format 1 the files of its snapshots still exist after the publication."""
    repository = tree(tmp_path / "r", 1)
    plan = repository.plan()
    repository.publish(plan)
    repository.open().create_branch("old", repository.ids["z"])
    left = frozenset(one for one in plan.deleted if one.name != "old")  # see `edits_left`
    with pytest.raises(GuardRefused, match=f"that a branch or tag reaches again: {repository.ids['z']}"):
        repository.publish(replace(plan, deleted=left))
    assert "old" in repository.open().list_branches()


def test_a_branch_created_again_while_a_sweep_edits_the_history_is_not_deleted_a_second_time(tmp_path):
    """After a conflict with another writer, the sweep reads the repository again, and makes the edits that are left."""
    repository = tree(tmp_path / "r", 1)
    z = decode_id(repository.ids["z"])
    rewriter, history = _Rewriter(repository.access, lambda: None, None), repository.state().history
    assert rewriter.apply(ReferenceChange("branch", "old", z, None), history)
    repository.open().create_branch("old", repository.ids["z"])
    with pytest.raises(GuardRefused, match=r"created the branch old again .* Nothing more was changed .* Plan again"):
        rewriter.apply(ReferenceChange("branch", "old", z, None), repository.state().history)
    assert "old" in repository.open().list_branches()


@both_formats
def test_a_branch_created_again_after_another_plan_removed_it_stays_and_is_named(tmp_path, spec_version: Format):
    """Another branch keeps its tip. Nobody approved the deletion of the new branch."""
    repository = tree(tmp_path / "r", spec_version)
    repository.open().create_branch("keeps", repository.ids["z"])
    policy = replace(POLICY, rules=(SnapshotRule("keep", "branch", "keeps", None),))
    first, second = repository.plan(policy), repository.plan(policy)
    assert "refs/branch.old" in repository.publish(first, policy).references_removed
    repository.open().create_branch("old", repository.ids["z"])
    published = repository.publish(second, policy)
    assert {str(one) for one in published.new} == {"branch old"}
    assert (published.references_removed, published.left) == ((), 0)
    assert "old" in repository.open().list_branches()


def test_a_plan_that_deletes_no_branch_or_tag_needs_no_backups_of_the_repo_object(tmp_path):
    """The backups have the time at which a branch or tag was made. They may have been removed since the plan."""
    repository = tree(tmp_path / "r", 2)
    opened, before = repository.open(), now()
    config = opened.config
    config.num_updates_per_repo_info_file = 2
    opened = opened.reopen(config=config)
    opened.save_config()
    for name in "123456":
        opened.create_branch(name, repository.ids["f"])
    plan = replace(repository.plan(as_of=DAYS[0]), cutoff=before)
    assert not (plan.deleted or plan.released or plan.dropped)
    for path in (repository.directory / "overwritten").iterdir():
        path.unlink()
    assert repository.publish(plan).written == ()


@both_formats
def test_fewer_edits_than_planned_are_accepted(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    opened = repository.open()
    opened.delete_tag("v1")
    opened.delete_branch("old")
    assert repository.publish(plan).references_removed == ()
    assert histories(repository.open()) == LEFT


@both_formats
@pytest.mark.parametrize("name", ["a", "c", "x"])
def test_a_tag_on_a_snapshot_to_release_refuses_the_plan(tmp_path, spec_version: Format, name: str):
    repository = tree(tmp_path / "r", spec_version)
    policy = everything_older(delete_expired_branches=True)
    plan = repository.plan(policy)
    repository.open().create_tag("late", repository.ids[name])
    before = repository.files()
    with pytest.raises(GuardRefused, match=f"that a branch or tag reaches again: {repository.ids[name]}"):
        repository.publish(plan, policy)
    assert repository.files() == before


@both_formats
def test_a_snapshot_tagged_after_the_publication_refuses_the_next_attempt(tmp_path, spec_version: Format):
    """In format 2 nobody can tag it, since the repo object no longer has it."""
    repository = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("late", "tag", "late", None),))
    plan = repository.plan(policy)
    repository.publish(plan, policy)
    if spec_version == 2:
        with pytest.raises(ic.IcechunkError, match="snapshot"):
            repository.open().create_tag("late", repository.ids["a"])
        return
    repository.open().create_tag("late", repository.ids["a"])
    with pytest.raises(GuardRefused, match=f"that a branch or tag reaches again: {repository.ids['a']}"):
        repository.publish(plan, policy)


@both_formats
def test_an_expired_snapshot_that_the_plan_does_not_name_stays(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    whole = repository.plan()
    stays, *approved = whole.released
    before = values(repository.open())
    published = repository.publish(replace(whole, released=tuple(approved)))
    assert published.left == 1
    history = repository.state().history
    assert decode_id(stays) in history.snapshots
    assert not {decode_id(one) for one in approved} & reachable(history, history.tips())
    after = values(repository.open())
    assert after == {name: before[name] for name in after}
    commit_to(repository.open())


@both_formats
@pytest.mark.parametrize("lacks", ["tag", "branch"])
def test_a_reference_that_must_stay_on_a_snapshot_to_release_refuses_the_plan(
    tmp_path, spec_version: Format, lacks: str
):
    repository = tree(tmp_path / "r", spec_version)
    plan = repository.plan()
    short = replace(plan, deleted=frozenset(one for one in plan.deleted if one.kind != lacks))
    before = repository.files()
    with pytest.raises(GuardRefused, match=r"that a branch or tag reaches again.*Plan again"):
        repository.publish(short)
    assert repository.files() == before


@both_formats
@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_commit_after_the_plan_does_not_expire_more_snapshots_than_approved(
    tmp_path, spec_version: Format, commits: int
):
    """The two newest snapshots stay. Each commit makes one more expire, which the next plan handles."""
    repository = IcechunkRepository(
        tmp_path / "r", build_history(tmp_path / "r", spec_version, TREE[:6], {"main": "f"}, {})
    )
    policy = SnapshotPolicy(default=Keep("two", timedelta(0), last=2))
    plan = repository.plan(policy, DAYS[7])
    assert set(plan.released) == {repository.ids[name] for name in "abcd"}
    for _ in range(commits):
        commit_to(repository.open())
    before = values(repository.open())
    published = repository.publish(plan, policy)
    assert published.left == min(commits, 2)  # a commit after the policy's day does not expire
    found = histories(repository.open())["branch main"]
    assert found[-3:] == ["f", "e", "-"]  # as the plan leaves it, below the new commits
    assert len(found) == 3 + commits
    assert values(repository.open()) == before
    next_plan = repository.plan(policy, now())
    assert repository.ids["e"] in next_plan.released
    assert repository.publish(next_plan, policy).left == 0
    assert len(histories(repository.open())["branch main"]) == 3


def test_a_rule_for_every_tag_or_branch_keeps_those_with_a_slash_in_their_names(tmp_path):
    """Format 1 allows no such names."""
    repository = tree(tmp_path / "r", 2)
    opened = repository.open()
    opened.create_tag("release/1.0", repository.ids["b"])
    opened.create_branch("release/1.x", repository.ids["c"])
    forever = (SnapshotRule("tags", "tag", "*", None), SnapshotRule("branches", "branch", "release*", None))
    policy = replace(POLICY, rules=forever)
    plan = repository.plan(policy)
    assert (plan.deleted_tags, plan.deleted_branches) == ((), ("old",))
    repository.publish(plan, policy)
    assert {name: len(history) for name, history in histories(repository.open()).items() if "/" in name} == {
        "branch release/1.x": len("cba-"),
        "tag release/1.0": len("ba-"),
    }


@both_formats
def test_a_tag_deleted_after_the_plan_does_not_release_more_snapshots_than_approved(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    policy = replace(POLICY, rules=(SnapshotRule("keep", "tag", "v1", None),))
    plan = repository.plan(policy)
    assert repository.ids["b"] not in plan.released
    repository.open().delete_tag("v1")
    published = repository.publish(plan, policy)
    assert published.left == len({"a", "b"})
    history = repository.state().history
    assert {decode_id(repository.ids[name]) for name in "ab"} <= reachable(history, history.tips())
    assert not {decode_id(one) for one in plan.released} & reachable(history, history.tips())


def test_a_plan_of_another_format_is_refused(tmp_path):
    repository = tree(tmp_path / "r", 1)
    plan = repository.plan()
    upgrade(repository.access, now, dry_run=False)
    before = repository.files()
    with pytest.raises(GuardRefused, match=r"no longer has format 1.*Plan again"):
        repository.publish(plan)
    assert repository.files() == before


@both_formats
def test_nothing_is_published_once_the_caller_may_not_write_any_more(tmp_path, spec_version: Format):
    repository = tree(tmp_path / "r", spec_version)
    plan, before = repository.plan(), repository.files()

    def lease_lost() -> None:
        raise GuardRefused("the lease is lost")

    with pytest.raises(GuardRefused, match="the lease is lost"):
        publish(repository.access, plan, POLICY, now, print, lease_lost)
    assert repository.files() == before


def test_an_upgrade_while_the_edits_begin_is_refused(tmp_path):
    repository = tree(tmp_path / "r", 1)
    plan = repository.plan()

    def upgraded_meanwhile() -> datetime:
        upgrade(repository.access, now, dry_run=False)
        return now()

    where = re.escape(str(repository.directory))
    refused = rf"{where}: the repository now has format 2\. Nothing more was changed\. Plan again"
    with pytest.raises(GuardRefused, match=refused):
        publish(repository.access, plan, POLICY, upgraded_meanwhile, print)
    assert histories(repository.open()).keys() == {"branch main", "branch dev", "branch old", "tag v1", "tag v2"}


def test_the_edits_of_format_1_give_up_after_too_many_conflicts(tmp_path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    whole = expiration(repository.state())
    monkeypatch.setattr(format_1, "TRIES", 3)
    waits: list[float] = []

    def while_another_commits(history: History) -> Expiration:
        commit_to(repository.open(), "old")
        return replace(whole, edits=(deletion(history, "branch old"),))

    message = r"other writers were quicker 3 times\. .*No snapshot, manifest or chunk was deleted\. Run again"
    with pytest.raises(StoreError, match=rf"{re.escape(str(repository.directory))}: {message}"):
        format_1.apply_edits_v1(repository.access, while_another_commits, now, print, sleep=waits.append)
    assert len(waits) == 3
    assert "old" in repository.open().list_branches()


def unreached(directory) -> IcechunkRepository:
    """A repository of format 2 whose branch was reset: no reference reaches e and f, and f is the parent of g."""
    commits = [*TREE, Commit("g", "f", DAYS[6])]
    return IcechunkRepository(directory, build_history(directory, 2, commits, {**BRANCHES, "main": "d"}, {"v1": "b"}))


def test_dropped_snapshots_are_removed_and_their_children_get_an_ancestor(tmp_path):
    repository = unreached(tmp_path / "r")
    dropped = [repository.ids["e"], repository.ids["f"]]
    plan = replace(repository.plan(as_of=DAYS[0]), dropped=tuple(sorted(dropped)))
    published = repository.publish(plan, POLICY)
    assert len(published.written) == 1
    repo = repository.state().repo
    assert repo is not None
    assert not {decode_id(one) for one in dropped} & repo.snapshots.keys()
    assert encode_id(repo.snapshots[decode_id(repository.ids["g"])].parent_id or b"") == repository.ids["d"]
    assert repository.publish(plan).written == ()
    commit_to(repository.open())


def test_expiration_and_collection_are_two_entries_of_the_log_with_a_backup_each(tmp_path):
    repository = unreached(tmp_path / "r")
    plan = repository.plan(dropped=[repository.ids["f"]])
    published = repository.publish(plan)
    assert all((repository.directory / address).is_file() for address in published.written)
    log = list(repository.open().ops_log())
    assert [type(entry.kind).__name__ for entry in log[:2]] == ["GCRan", "ExpirationRan"]
    assert [f"overwritten/{entry.backup_path}" for entry in log[1:3]] == list(published.written)[::-1]


def test_a_read_only_repository_is_not_changed(tmp_path):
    repository = tree(tmp_path / "r", 2)
    plan = repository.plan()
    repository.open().set_status(ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving"))
    before = repository.files()
    with pytest.raises(GuardRefused, match="read-only \\(reason: moving\\)"):
        repository.publish(plan)
    assert repository.files() == before


def test_the_root_is_never_released(tmp_path):
    for spec_version in FORMATS:
        repository = tree(tmp_path / f"r{spec_version}", spec_version)
        assert INITIAL not in repository.plan(as_of=now()).released
        repository.publish(repository.plan(as_of=now()))
        assert INITIAL_SNAPSHOT in repository.state().history.snapshots
