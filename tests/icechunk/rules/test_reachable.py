from dataclasses import replace
from datetime import timedelta

import pytest

from retention_assets.errors import SourceError
from retention_assets.icechunk.rules.collection import is_old, kept_transaction_logs, kept_v1, kept_v2
from retention_assets.icechunk.rules.snapshots import History
from tests.icechunk.rules.graphs import at, history, names, snapshot_id
from tests.icechunk.rules.icechunk_files import repo_of

CUTOFF = at(100) + timedelta(microseconds=500)


def us(number: int) -> timedelta:
    return timedelta(microseconds=number)


@pytest.mark.parametrize(
    ("stored", "cutoff", "old"),
    [
        pytest.param(at(0), at(0) + us(999_999), False, id="within_its_second"),
        pytest.param(at(0), at(0) + us(1_000_000), False, id="at_the_end_of_its_second"),
        pytest.param(at(0), at(0) + us(1_000_001), True, id="after_its_second"),
        pytest.param(at(0) + us(500), at(0) + us(500), False, id="exactly_the_cutoff"),
        pytest.param(at(0) + us(500), at(0) + us(501), True, id="a_microsecond_later"),
        pytest.param(at(0) + us(999_999), at(0) + us(1_000_000), True, id="the_last_of_a_second"),
    ],
)
def test_a_whole_second_counts_as_its_end(stored, cutoff, old):
    assert is_old(stored, cutoff) is old


# main: root, a, b; nothing reaches x, y (on a, on x) and z (on b)
HISTORY = history(
    {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "x": ("a", 3), "y": ("x", 4), "z": ("b", 5)}, {"main": "b"}
)
OLD = {one: at(1) for one in HISTORY.snapshots}


def stored(**times: float):
    return {**OLD, **{snapshot_id(name): at(hours) for name, hours in times.items()}}


@pytest.mark.parametrize(
    ("times", "kept", "dropped"),
    [
        pytest.param(OLD, {"root", "a", "b"}, {"x", "y", "z"}, id="all_old"),
        pytest.param(stored(z=101), {"root", "a", "b", "z"}, {"x", "y"}, id="a_young_snapshot"),
        pytest.param(stored(y=101), {"root", "a", "b", "y"}, {"x", "z"}, id="without_its_old_parent"),
        pytest.param(stored(a=101), {"root", "a", "b"}, {"x", "y", "z"}, id="a_young_reachable_snapshot"),
        pytest.param(
            stored(new=101), {"root", "a", "b", "new"}, {"x", "y", "z"}, id="a_young_snapshot_not_in_the_repo_object"
        ),
        pytest.param(stored(new=99), {"root", "a", "b"}, {"x", "y", "z"}, id="an_old_one_not_in_the_object"),
    ],
)
def test_format_2_keeps_reachable_snapshots_and_young_snapshots(times, kept, dropped):
    found = kept_v2(repo_of(HISTORY), times, CUTOFF)
    assert (names(found), names(HISTORY.snapshots.keys() - found)) == (kept, dropped)


def test_snapshots_that_are_not_in_the_listing_are_kept():
    found = kept_v2(repo_of(HISTORY), {one: at(1) for one in OLD if one not in map(snapshot_id, "ax")}, CUTOFF)
    assert names(found) == {"root", "a", "b", "x"}


def test_an_empty_listing_drops_nothing():
    assert kept_v2(repo_of(HISTORY), {}, CUTOFF) == HISTORY.snapshots.keys()


def test_held_snapshots_are_kept():
    assert names(kept_v2(repo_of(HISTORY), OLD, CUTOFF, [snapshot_id("x")])) == {"root", "a", "b", "x"}
    assert names(kept_v1(HISTORY, OLD, CUTOFF, [snapshot_id("y")])) == {"root", "a", "b", "x", "y"}


def test_the_root_of_a_young_snapshot_is_kept_though_nothing_reaches_it():
    two = history(
        {"root": (None, 0), "a": ("root", 1), "other": (None, 1), "x": ("other", 2), "y": ("x", 3)}, {"main": "a"}
    )
    times = {**{one: at(1) for one in two.snapshots}, snapshot_id("y"): at(101)}
    assert names(kept_v2(repo_of(two), times, CUTOFF)) == {"root", "a", "other", "y"}
    assert names(kept_v2(repo_of(two), {one: at(1) for one in two.snapshots}, CUTOFF)) == {"root", "a"}


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        pytest.param(OLD, {"root", "a", "b"}, id="all_old"),
        pytest.param(stored(y=101), {"root", "a", "b", "x", "y"}, id="a_young_snapshot_with_its_ancestors"),
        pytest.param(stored(z=101), {"root", "a", "b", "z"}, id="a_young_child_of_a_reachable_snapshot"),
    ],
)
def test_format_1_keeps_reachable_snapshots_and_young_snapshots_with_their_ancestors(times, kept):
    assert names(kept_v1(HISTORY, times, CUTOFF)) == kept


def test_format_1_keeps_a_young_snapshot_whose_parent_was_collected_before():
    left = History({one: s for one, s in HISTORY.snapshots.items() if one != snapshot_id("x")}, HISTORY.branches, {})
    assert names(kept_v1(left, stored(y=101), CUTOFF)) == {"root", "a", "b", "y"}


@pytest.mark.parametrize("kept", [kept_v1, lambda one, *more: kept_v2(repo_of(one), *more)], ids=("v1", "v2"))
def test_a_history_with_a_gap_is_refused(kept):
    gap = History(HISTORY.snapshots, {"main": snapshot_id("gone")}, {})
    with pytest.raises(SourceError, match="branch main: its snapshot"):
        kept(gap, OLD, CUTOFF)


def test_transaction_logs_stay_while_a_snapshot_lists_them():
    repo = repo_of(HISTORY)
    b = replace(repo.snapshots[snapshot_id("b")], pruned_ancestor_tx_logs=(snapshot_id("gone"), snapshot_id("a")))
    repo = replace(repo, snapshots={**repo.snapshots, b.id: b})
    assert names(kept_transaction_logs(repo, frozenset({snapshot_id("b")}))) == {"b", "gone", "a"}
