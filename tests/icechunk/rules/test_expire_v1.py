from datetime import timedelta

import pytest

from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.expiration import Reparented, edited, expiration_v1
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy, SnapshotRule
from tests.icechunk.rules.graphs import (
    SEED,
    SEED_THRESHOLD,
    at,
    branch_line,
    deletion,
    history,
    line,
    names,
    snapshot_id,
)
from tests.models.policies import everything_older

CHAIN = {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "c": ("b", 3), "d": ("c", 4), "e": ("d", 5)}


def reparented(child: str | int, parent: str | int) -> Reparented:
    return Reparented(snapshot_id(child), snapshot_id(parent))


def both_flags() -> SnapshotPolicy:
    return everything_older(delete_expired_branches=True, delete_expired_tags=True)


def test_the_writes_come_in_the_order_of_icechunk():
    expiration = expiration_v1(SEED, both_flags(), SEED_THRESHOLD)
    assert expiration.edits == (
        deletion(SEED, "tag tag1"),
        deletion(SEED, "tag tag2"),
        reparented(10, 0),
        reparented(12, 0),
        deletion(SEED, "branch old"),
        reparented(8, 0),
        reparented(9, 0),
    )


def test_each_write_alone_leaves_a_history_that_the_next_run_finishes():
    whole = expiration_v1(SEED, both_flags(), SEED_THRESHOLD)
    final = edited(SEED, whole.edits)
    for crash in range(len(whole.edits)):
        left = edited(SEED, whole.edits[:crash])
        rest = expiration_v1(left, both_flags(), SEED_THRESHOLD)
        after = edited(left, rest.edits)
        assert (after.branches, after.tags) == (final.branches, final.tags)
        for name in after.branches:
            assert branch_line(after, name) == branch_line(final, name)


def test_an_expired_tip_stays_and_only_the_rest_of_its_history_goes():
    old = history(CHAIN, {"main": "d"})
    expiration = expiration_v1(old, everything_older(), at(100))
    assert expiration.edits == (reparented("d", "root"),)
    assert names(expiration.released) == {"a", "b", "c"}


def test_an_expired_tip_directly_above_the_root_needs_no_edit():
    expiration = expiration_v1(history(CHAIN, {"main": "a"}), everything_older(), at(100))
    assert (expiration.edits, expiration.released) == ((), frozenset())


def test_references_on_the_root_are_deleted_only_with_the_flags():
    fresh = history(CHAIN, {"main": "root", "new": "root"}, {"first": "root"})
    assert expiration_v1(fresh, everything_older(), at(100)).edits == ()
    assert expiration_v1(fresh, both_flags(), at(100)).edits == (
        deletion(fresh, "tag first"),
        deletion(fresh, "branch new"),
    )
    assert expiration_v1(fresh, both_flags(), at(0)).edits == ()


def test_a_tip_that_only_a_deleted_tag_reaches_is_released_and_not_written_again():
    tagged = history({**CHAIN, "x": ("a", 2), "y": ("x", 3)}, {"main": "e"}, {"v1": "y"})
    expiration = expiration_v1(tagged, everything_older(delete_expired_tags=True), at(5))
    assert expiration.edits == (deletion(tagged, "tag v1"), reparented("e", "root"))
    assert names(expiration.released) == {"a", "b", "c", "d", "x", "y"}


def test_a_tip_of_two_references_is_written_once_and_stays_if_one_of_them_stays():
    shared = history(CHAIN, {"main": "e", "dev": "c"}, {"v1": "c"})
    expiration = expiration_v1(shared, everything_older(delete_expired_tags=True), at(5))
    assert expiration.edits == (deletion(shared, "tag v1"), reparented("c", "root"), reparented("e", "root"))
    assert names(expiration.released) == {"a", "b", "d"}


def test_dangling_snapshots_are_not_touched():
    dangling = history({**CHAIN, "x": ("b", 9), "y": ("x", 10)}, {"main": "e"})
    expiration = expiration_v1(dangling, everything_older(), at(9.5))
    assert expiration.edits == (reparented("e", "root"),)
    assert names(expiration.released) == {"a", "b", "c", "d"}


def test_a_snapshot_is_released_only_if_no_reference_keeps_it():
    forked = history({**CHAIN, "x": ("c", 50)}, {"main": "e", "dev": "x"})
    rules = (
        SnapshotRule("main", "branch", "main", timedelta(hours=10)),
        SnapshotRule("dev", "branch", "dev", timedelta(hours=59)),
    )
    expiration = expiration_v1(forked, SnapshotPolicy(rules), at(61))  # dev keeps b and younger snapshots
    assert names(expiration.released) == {"a", "d"}
    after = edited(forked, expiration.edits)
    assert branch_line(after, "dev") == ["x", "c", "b", "root"]
    assert branch_line(after) == ["e", "root"]


def test_the_parent_of_an_expired_tip_stays_if_another_reference_keeps_it():
    forked = history({**CHAIN, "x": ("c", 50)}, {"main": "d", "dev": "x"})
    rules = (
        SnapshotRule("main", "branch", "main", timedelta(hours=1)),
        SnapshotRule("dev", "branch", "dev", timedelta(hours=59)),
    )
    expiration = expiration_v1(forked, SnapshotPolicy(rules), at(61))
    assert expiration.edits == (reparented("b", "root"),)
    assert names(expiration.released) == {"a"}
    assert branch_line(edited(forked, expiration.edits)) == ["d", "c", "b", "root"]


def test_keep_last_keeps_the_newest_snapshots_of_each_history():
    forked = history({**CHAIN, "x": ("b", 9)}, {"main": "e", "dev": "x"})
    expiration = expiration_v1(forked, SnapshotPolicy(default=Keep("default", NOT_BY_AGE, 2)), at(100))
    after = edited(forked, expiration.edits)
    assert branch_line(after) == ["e", "d", "root"]
    assert branch_line(after, "dev") == ["x", "b", "root"]
    assert names(expiration.released) == {"a", "c"}


def test_a_held_snapshot_stays_in_its_history():
    held = Hold("h", "snapshot", encode_id(snapshot_id("c")), "audit")
    long = history({**CHAIN, "f": ("e", 6)}, {"main": "f"})
    policy = SnapshotPolicy(default=Keep("default", NOT_BY_AGE), holds=(held,))
    expiration = expiration_v1(long, policy, at(6))
    assert expiration.edits == (reparented("c", "root"), reparented("f", "c"))
    assert branch_line(edited(long, expiration.edits)) == ["f", "c", "root"]
    assert names(expiration.released) == {"a", "b", "d", "e"}


def test_a_held_snapshot_that_nothing_reaches_is_neither_written_nor_released():
    held = Hold("h", "snapshot", encode_id(snapshot_id("x")), "audit")
    dangling = history({**CHAIN, "x": ("b", 9)}, {"main": "e"})
    policy = SnapshotPolicy(default=Keep("default", NOT_BY_AGE), holds=(held,))
    expiration = expiration_v1(dangling, policy, at(100))
    assert expiration.edits == (reparented("e", "root"),)
    assert names(expiration.released) == {"a", "b", "c", "d"}


def test_a_held_snapshot_of_a_deleted_branch_is_not_released():
    held = Hold("h", "snapshot", encode_id(snapshot_id("x")), "audit")
    forked = history({**CHAIN, "x": ("b", 9), "y": ("x", 10)}, {"main": "e", "dev": "y"})
    policy = SnapshotPolicy(default=Keep("default", NOT_BY_AGE), holds=(held,), delete_expired_branches=True)
    expiration = expiration_v1(forked, policy, at(100))
    assert deletion(forked, "branch dev") in expiration.edits
    assert names(expiration.released) == {"a", "b", "c", "d", "y"}


@pytest.mark.parametrize("threshold", [5, 50, 101])
def test_clocks_that_differ_keep_more_snapshots_and_refuse_nothing(threshold):
    # icechunk panics here; what is younger than `threshold` by any clock stays, and its children with it
    times = {**CHAIN, "root": (None, 500), "c": ("b", 100), "f": ("e", 6), "g": ("f", 7)}
    skewed = history(times, {"main": "g"}, {"v1": "c"})
    expiration = expiration_v1(skewed, everything_older(), at(threshold))
    after = edited(skewed, expiration.edits)
    young = {name for name, (_, hours) in times.items() if hours >= threshold}
    assert young <= set(branch_line(after))
    assert branch_line(after) == (["g", "root"] if threshold == 101 else ["g", "f", "e", "d", "c", "root"])
    assert line(after, after.tags["v1"]) == ["c", "root"]


def test_a_history_with_two_roots_keeps_both():
    two = history({**CHAIN, "other": (None, 1), "x": ("other", 2), "y": ("x", 50)}, {"main": "e", "dev": "y"})
    after = edited(two, expiration_v1(two, everything_older(), at(40)).edits)
    assert branch_line(after) == ["e", "root"]
    assert branch_line(after, "dev") == ["y", "other"]


def test_a_repository_that_was_only_created_has_nothing_to_expire():
    empty = history({"root": (None, 0)}, {"main": "root"})
    assert expiration_v1(empty, both_flags(), at(100)).edits == ()
