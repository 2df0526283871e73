from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, Update, UpdateKind
from retention_assets.icechunk.rules.expiration import expiration_v2
from retention_assets.icechunk.rules.snapshots import History, history_of, micros_of
from retention_assets.icechunk.rules.updates import DELETE_TAG, Stamp
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules.edits import expire_v2
from tests.icechunk.rules.graphs import at, branch_line, history, names, snapshot_id
from tests.icechunk.rules.icechunk_files import repo_of
from tests.models.policies import everything_older

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = Stamp(NOW, "repo.before")
CHAIN = {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "c": ("b", 3), "d": ("c", 4), "e": ("d", 5)}


def expired(one: History | Repo, policy: SnapshotPolicy, threshold: float) -> tuple[Repo, set[str]]:
    repo = repo_of(one) if isinstance(one, History) else one
    after, expiration = expire_v2(repo, policy, at(threshold), STAMP)
    return after, names(expiration.released)


def logs(repo: Repo, name: str) -> list[str]:
    return [one.decode().strip("-") for one in repo.snapshots[snapshot_id(name)].pruned_ancestor_tx_logs]


def both_flags() -> SnapshotPolicy:
    return everything_older(delete_expired_branches=True, delete_expired_tags=True)


def test_the_tip_of_main_stays_however_old_it_is():
    repo, released = expired(history(CHAIN, {"main": "d"}), both_flags(), 100)
    assert released == {"a", "b", "c", "e"}
    assert branch_line(history_of(repo)) == ["d", "root"]
    assert "e" not in names(repo.snapshots)


def test_a_reparented_snapshot_lists_the_logs_of_released_ancestors_oldest_first():
    repo, _ = expired(history(CHAIN, {"main": "e"}), everything_older(), 5)
    assert logs(repo, "e") == ["a", "b", "c", "d"]


def test_logs_that_a_released_ancestor_listed_are_listed_at_its_position():
    repo, _ = expired(history({**CHAIN, "f": ("e", 6), "g": ("f", 7)}, {"main": "g"}), everything_older(), 3)
    assert logs(repo, "c") == ["a", "b"]
    repo = replace(repo, snapshots={**repo.snapshots, snapshot_id("e"): _with_logs(repo, "e", "amended")})
    again, released = expire_v2(repo, everything_older(), at(6), Stamp(NOW + timedelta(seconds=1), "second"))
    assert names(released.released) == {"c", "d", "e"}
    assert logs(again, "f") == ["a", "b", "c", "d", "amended", "e"]
    assert branch_line(history_of(again)) == ["g", "f", "root"]


def test_logs_that_a_reparented_snapshot_already_listed_come_last():
    repo = repo_of(history(CHAIN, {"main": "e"}))
    repo = replace(repo, snapshots={**repo.snapshots, snapshot_id("e"): _with_logs(repo, "e", "newer")})
    assert logs(expired(repo, everything_older(), 5)[0], "e") == ["a", "b", "c", "d", "newer"]


def _with_logs(repo: Repo, name: str, *ids: str):
    return replace(repo.snapshots[snapshot_id(name)], pruned_ancestor_tx_logs=tuple(map(snapshot_id, ids)))


def test_the_log_of_an_ancestor_that_only_a_tag_keeps_is_also_listed():
    repo, released = expired(history(CHAIN, {"main": "e"}, {"v1": "b"}), everything_older(), 5)
    assert released == {"a", "c", "d"}
    assert branch_line(history_of(repo)) == ["e", "root"]
    assert logs(repo, "e") == ["a", "b", "c", "d"]
    assert logs(repo, "b") == ["a"]


def test_a_snapshot_whose_parent_stays_is_not_touched():
    repo, _ = expired(history(CHAIN, {"main": "e"}, {"v1": "d"}), everything_older(), 5)
    assert branch_line(history_of(repo)) == ["e", "d", "root"]
    assert logs(repo, "e") == []
    assert logs(repo, "d") == ["a", "b", "c"]


def test_references_on_the_root_stay():
    fresh = history(CHAIN, {"main": "root", "new": "root"}, {"first": "root"})
    repo, released = expired(fresh, both_flags(), 100)
    assert (set(repo.branches), set(repo.tags)) == ({"main", "new"}, {"first"})
    assert released == {"a", "b", "c", "d", "e"}  # they were in the object, and nothing reached them


def test_an_expired_tag_on_the_tip_of_main_is_deleted_and_the_tip_stays():
    repo, released = expired(history(CHAIN, {"main": "e", "dev": "e"}, {"v1": "e"}), both_flags(), 100)
    assert (set(repo.branches), set(repo.tags), repo.deleted_tags) == ({"main"}, set(), {"v1"})
    assert released == {"a", "b", "c", "d"}


def test_an_unreachable_young_snapshot_gets_its_own_root_whatever_its_id():
    # icechunk looks for its well-known root here, and fails where the root has another id
    dangling = history({**CHAIN, "x": ("b", 3.5), "y": ("x", 9)}, {"main": "e"})
    repo, released = expired(dangling, everything_older(), 5)
    assert released == {"a", "b", "c", "d", "x"}
    assert repo.snapshots[snapshot_id("y")].parent_id == snapshot_id("root")
    assert logs(repo, "y") == ["a", "b", "x"]


def test_in_a_history_with_two_roots_each_root_keeps_its_own_snapshots():
    two = {**CHAIN, "other": (None, 1), "x": ("other", 2), "y": ("x", 9), "z": ("x", 9)}
    repo, released = expired(history(two, {"main": "e", "dev": "y"}), everything_older(), 8)
    assert released == {"a", "b", "c", "d", "x"}
    assert branch_line(history_of(repo), "dev") == ["y", "other"]
    assert repo.snapshots[snapshot_id("z")].parent_id == snapshot_id("other")


def test_a_snapshot_is_released_only_if_no_reference_keeps_it():
    forked = history({**CHAIN, "x": ("c", 50)}, {"main": "e", "dev": "x"})
    rules = (
        SnapshotRule("main", "branch", "main", timedelta(hours=10)),
        SnapshotRule("dev", "branch", "dev", timedelta(hours=59)),
    )
    repo, released = expired(forked, SnapshotPolicy(rules), 61)
    assert released == {"a", "d"}
    assert branch_line(history_of(repo), "dev") == ["x", "c", "b", "root"]
    assert branch_line(history_of(repo)) == ["e", "root"]


def test_a_held_snapshot_stays_in_its_history():
    held = Hold("h", "snapshot", encode_id(snapshot_id("c")), "audit")
    policy = SnapshotPolicy(default=Keep("default", NOT_BY_AGE), holds=(held,))
    repo, released = expired(history({**CHAIN, "f": ("e", 6)}, {"main": "f"}), policy, 6)
    assert released == {"a", "b", "d", "e"}
    assert branch_line(history_of(repo)) == ["f", "c", "root"]
    assert (logs(repo, "f"), logs(repo, "c")) == (["d", "e"], ["a", "b"])


def test_clocks_that_differ_keep_more_snapshots():
    skewed = history({**CHAIN, "b": ("a", 100)}, {"main": "e"})
    assert expired(skewed, everything_older(), 50)[1] == {"a"}
    assert expired(skewed, everything_older(), 101)[1] == {"a", "b", "c", "d"}


def test_the_repo_object_is_unchanged_if_nothing_expires():
    repo = repo_of(history(CHAIN, {"main": "e"}))
    after, expiration = expire_v2(repo, both_flags(), at(0), STAMP)
    assert after is repo
    assert (expiration.edits, expiration.released) == ((), frozenset())


def test_an_unreachable_snapshot_is_released_although_no_history_changes():
    repo, released = expired(history({**CHAIN, "x": ("root", 2)}, {"main": "a"}), everything_older(), 100)
    assert released == {"b", "c", "d", "e", "x"}
    assert names(repo.snapshots) == {"root", "a"}
    assert repo.latest_updates[0].kind is UpdateKind.EXPIRATION_RAN


def test_an_expiration_changes_no_other_fields_of_the_repo_object():
    plain = repo_of(history(CHAIN, {"main": "e"}, {"v1": "b"}))
    full = replace(
        plain,
        deleted_tags=frozenset({"v0"}),
        metadata={"owner": b"\x01"},
        enabled_feature_flags=frozenset({3}),
        disabled_feature_flags=frozenset(),
        repo_before_updates="older",
        extra=b"more",
    )
    after, _ = expire_v2(full, everything_older(delete_expired_tags=True), at(5), STAMP)
    assert after == replace(
        full,
        tags={},
        deleted_tags=frozenset({"v0", "v1"}),
        snapshots={
            snapshot_id("root"): full.snapshots[snapshot_id("root")],
            snapshot_id("e"): replace(
                full.snapshots[snapshot_id("e")],
                parent_id=snapshot_id("root"),
                pruned_ancestor_tx_logs=tuple(map(snapshot_id, "abcd")),
            ),
        },
        latest_updates=(
            Update(UpdateKind.EXPIRATION_RAN, micros_of(NOW)),
            replace(full.latest_updates[0], backup_path="repo.before"),
        ),
    )


def test_an_expiration_can_be_computed_without_an_edit():
    one = history(CHAIN, {"main": "e"})
    assert expire_v2(repo_of(one), both_flags(), at(5), STAMP)[1] == expiration_v2(one, both_flags(), at(5))


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        pytest.param(
            {"status": RepoStatus(Availability.READ_ONLY, 0, "moving")}, "is read-only .reason: moving", id="read_only"
        ),
        pytest.param({"status": RepoStatus(Availability.OFFLINE, 0)}, "is offline .reason: none given", id="offline"),
        pytest.param(
            {"disabled_feature_flags": frozenset({DELETE_TAG})},
            "1 tag, 'v1', has expired.* delete_tag is off",
            id="flag",
        ),
        pytest.param(
            {"latest_updates": (Update(UpdateKind.GC_RAN, micros_of(NOW)),)},
            "but it is only .* UTC on this machine",
            id="at_the_same_time",
        ),
        pytest.param(
            {"latest_updates": (Update(UpdateKind.GC_RAN, micros_of(NOW) + 5),)},
            "but it is only .* UTC on this machine",
            id="future",
        ),
    ],
)
def test_an_edit_of_a_repository_that_is_not_online_is_refused(changes, violation):
    repo = replace(repo_of(history(CHAIN, {"main": "e"}, {"v1": "b"})), **changes)
    with pytest.raises(GuardRefused, match=f"{violation}.*Nothing was changed or deleted"):
        expire_v2(repo, both_flags(), at(5), STAMP)


def test_a_repository_that_forbids_tag_deletion_can_expire_untagged_snapshots():
    repo = replace(repo_of(history(CHAIN, {"main": "e"}, {"v1": "e"})), disabled_feature_flags=frozenset({DELETE_TAG}))
    after, released = expired(repo, both_flags(), 5)
    assert released == {"a", "b", "c", "d"}
    assert set(after.tags) == {"v1"}
