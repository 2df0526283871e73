import pytest

from retention_assets.errors import SourceError
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import SnapshotInfo
from retention_assets.icechunk.rules.snapshots import (
    History,
    Snapshot,
    anchors,
    children_first,
    datetime_of,
    descendants,
    history_of,
    lineage,
    micros_of,
    reachable,
    require_complete,
)
from tests.icechunk.rules.graphs import SEED, at, branch_line, history, line, names, snapshot_id
from tests.icechunk.rules.icechunk_files import repo_of

FORKED = history(
    {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "c": ("b", 3), "x": ("a", 2), "lost": ("x", 4)},
    {"main": "c", "dev": "x"},
    {"v1": "b"},
)


def without(one: History, name: str) -> History:
    left = {key: snapshot for key, snapshot in one.snapshots.items() if key != snapshot_id(name)}
    return History(left, one.branches, one.tags)


def with_parent(one: History, name: str, parent: str) -> History:
    changed = Snapshot(snapshot_id(name), snapshot_id(parent), one.snapshots[snapshot_id(name)].flushed_at)
    return History({**one.snapshots, changed.snapshot_id: changed}, one.branches, one.tags)


def test_ancestry_is_newest_first_and_ends_in_the_root():
    assert line(FORKED, snapshot_id("c")) == ["c", "b", "a", "root"]
    assert line(FORKED, snapshot_id("root")) == ["root"]


def test_a_repo_object_gives_the_same_history():
    assert history_of(repo_of(FORKED)) == FORKED


def test_times_are_converted_to_microseconds_and_back():
    later = at(3).replace(microsecond=123457)
    assert datetime_of(micros_of(later), snapshot_id("a")) == later


def test_a_time_outside_the_calendar_is_an_error_that_names_the_snapshot():
    repo = repo_of(FORKED)
    strange = SnapshotInfo(snapshot_id("a"), snapshot_id("root"), 2**63, "")
    repo.snapshots[strange.id] = strange
    with pytest.raises(SourceError, match=encode_id(strange.id)):
        history_of(repo)


def test_references_are_sorted_tags_first_and_then_by_name():
    assert [str(one) for one in SEED.references()] == [
        "tag tag1",
        "tag tag2",
        "branch develop",
        "branch main",
        "branch old",
        "branch qa",
        "branch test",
    ]


def test_reachable_snapshots_do_not_include_dangling_ones():
    assert names(reachable(FORKED, FORKED.tips())) == {"root", "a", "b", "c", "x"}
    assert names(lineage(FORKED, snapshot_id("c"), {snapshot_id("a")})) == {"c", "b"}
    assert lineage(FORKED, snapshot_id("nobody"), ()) == []


def test_children_come_before_their_parents():
    order = [one.snapshot_id for one in children_first(SEED)]
    places = {one: place for place, one in enumerate(order)}
    assert len(order) == len(SEED.snapshots)
    for one in SEED.snapshots.values():
        assert one.parent_id is None or places[one.snapshot_id] < places[one.parent_id]


def test_descendants_are_all_snapshots_with_the_snapshot_as_an_ancestor():
    assert names(descendants(FORKED, snapshot_id("b"))) == {"c"}
    assert names(descendants(FORKED, snapshot_id("a"))) == {"b", "c", "x", "lost"}
    assert descendants(FORKED, snapshot_id("lost")) == set()


def test_the_anchor_is_the_nearest_held_ancestor_or_the_root():
    found = anchors(FORKED, {snapshot_id("b")})
    assert {names([one]).pop(): names([anchor]).pop() for one, anchor in found.items()} == {
        "a": "root",
        "b": "root",
        "c": "b",
        "x": "root",
        "lost": "root",
    }


def test_a_history_with_two_roots_has_an_anchor_in_each():
    two = history({"r": (None, 0), "s": (None, 0), "a": ("r", 1), "b": ("s", 1)}, {"main": "a", "other": "b"})
    assert anchors(two) == {snapshot_id("a"): snapshot_id("r"), snapshot_id("b"): snapshot_id("s")}
    require_complete(two)


def test_a_complete_history_passes():
    require_complete(FORKED)
    require_complete(SEED)


def test_the_parent_of_a_dangling_snapshot_may_be_missing():
    require_complete(History(without(FORKED, "x").snapshots, {"main": snapshot_id("c")}, {}))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(without(FORKED, "x"), f"branch dev: its snapshot {encode_id(snapshot_id('x'))}", id="tip_missing"),
        pytest.param(without(FORKED, "b"), f"tag v1: its snapshot {encode_id(snapshot_id('b'))}", id="tag_missing"),
        pytest.param(without(FORKED, "a"), f"its parent {encode_id(snapshot_id('a'))} is missing", id="parent_missing"),
        pytest.param(with_parent(FORKED, "a", "c"), "is its own ancestor", id="cycle"),
        pytest.param(with_parent(FORKED, "root", "root"), "is its own ancestor", id="own_parent"),
        pytest.param(with_parent(FORKED, "x", "lost"), "is its own ancestor", id="cycle_at_a_branch"),
        pytest.param(History(FORKED.snapshots, {"dev": snapshot_id("c")}, {}), "no branch 'main'", id="no_main"),
    ],
)
def test_an_impossible_history_is_refused(broken, message):
    with pytest.raises(SourceError, match=message) as raised:
        require_complete(broken)
    assert "Nothing more was changed or deleted." in str(raised.value)


def test_a_cycle_that_no_reference_reaches_is_refused_too():
    dangling = with_parent(with_parent(FORKED, "x", "lost"), "lost", "x")
    with pytest.raises(SourceError, match="is its own ancestor"):
        require_complete(History(dangling.snapshots, {"main": snapshot_id("c")}, {}))


def test_a_walk_ends_on_a_cycle_and_on_a_missing_parent():
    assert line(with_parent(FORKED, "a", "c"), snapshot_id("c")) == ["c", "b", "a"]
    assert line(without(FORKED, "a"), snapshot_id("c")) == ["c", "b"]


def test_a_long_history_needs_no_deep_stack():
    long = history({0: (None, 0), **{n: (n - 1, n) for n in range(1, 5000)}}, {"main": 4999})
    require_complete(long)
    assert len(branch_line(long)) == 5000
