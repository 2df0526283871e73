from dataclasses import replace
from datetime import UTC, datetime

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.model import Availability, RepoStatus, Update, UpdateKind
from retention_assets.icechunk.rules.collection import collected
from retention_assets.icechunk.rules.snapshots import History, micros_of
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.graphs import history, names, snapshot_id
from tests.icechunk.rules.icechunk_files import repo_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAMP = Stamp(NOW, "repo.before")
# main: root, a, b; nothing reaches c, d, e, which follow b one after the other
HISTORY = history(
    {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "c": ("b", 3), "d": ("c", 4), "e": ("d", 5)}, {"main": "b"}
)
REPO = repo_of(HISTORY)
PLANNED = HISTORY.snapshots.keys()


def ids(of: str) -> set[bytes]:
    return {snapshot_id(name) for name in of}


def test_children_of_dropped_snapshots_get_their_nearest_remaining_ancestor():
    after = collected(REPO, PLANNED, ids("cd"), STAMP)
    e = REPO.snapshots[snapshot_id("e")]
    logs = (snapshot_id("c"), snapshot_id("d"))
    assert after == replace(
        REPO,
        snapshots={
            **{one: REPO.snapshots[one] for one in [snapshot_id("root"), *sorted(ids("ab"))]},
            e.id: replace(e, parent_id=snapshot_id("b"), pruned_ancestor_tx_logs=logs),
        },
        latest_updates=(
            Update(UpdateKind.GC_RAN, micros_of(NOW)),
            replace(REPO.latest_updates[0], backup_path="repo.before"),
        ),
    )


def test_the_repo_object_is_unchanged_if_no_snapshot_is_dropped():
    assert collected(REPO, PLANNED, (), STAMP) is REPO
    assert collected(REPO, PLANNED, ids("q"), STAMP) is REPO


def test_a_snapshot_that_was_committed_after_the_plan_stays():
    after = collected(REPO, PLANNED - ids("e"), ids("cd") - ids("d"), STAMP)
    assert names(after.snapshots) == {"root", "a", "b", "d", "e"}


def moved(branches: dict[str, str], tags: dict[str, str] | None = None) -> History:
    return History(
        HISTORY.snapshots,
        {name: snapshot_id(tip) for name, tip in branches.items()},
        {name: snapshot_id(tip) for name, tip in (tags or {}).items()},
    )


@pytest.mark.parametrize(
    ("now", "planned", "dropped", "violation"),
    [
        pytest.param(
            repo_of(moved({"main": "c"})),
            PLANNED,
            "cde",
            f"reaches the snapshot {encode_id(snapshot_id('c'))}",
            id="a_branch_moved_onto_it",
        ),
        pytest.param(
            repo_of(moved({"main": "b"}, {"v1": "e"})), PLANNED, "cd", "a branch or tag reaches", id="a_tag_above_it"
        ),
        pytest.param(REPO, PLANNED - ids("e"), "cd", "the new snapshot .* is based on one", id="a_new_child"),
        pytest.param(
            repo_of(history({"root": (None, 0), "x": (None, 0), "y": ("x", 1)}, {"main": "root"})),
            {snapshot_id("root"), *ids("xy")},
            "x",
            "would have no ancestor left",
            id="a_root_is_dropped_before_its_child",
        ),
        pytest.param(
            replace(REPO, status=RepoStatus(Availability.READ_ONLY, 0)), PLANNED, "cde", "is read-only", id="read_only"
        ),
        pytest.param(
            replace(REPO, latest_updates=(Update(UpdateKind.GC_RAN, micros_of(NOW)),)),
            PLANNED,
            "cde",
            "is dated",
            id="clock",
        ),
    ],
)
def test_a_collection_that_no_longer_fits_the_repository_is_refused(now, planned, dropped, violation):
    nothing = "Nothing (more )?was changed or deleted"
    with pytest.raises(GuardRefused, match=f"{violation}.*{nothing}"):
        collected(now, planned, ids(dropped), STAMP)
