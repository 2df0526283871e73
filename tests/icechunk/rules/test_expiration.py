from dataclasses import replace

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.expiration import (
    Reparented,
    edited,
    expiration_v1,
    require_allowed,
)
from retention_assets.policy.rules import Hold
from retention_assets.policy.snapshots import NOT_BY_AGE, Keep, SnapshotPolicy
from tests.icechunk.rules.graphs import SEED, SEED_THRESHOLD, branch_line, deletion, names, snapshot_id
from tests.models.policies import everything_older

RIGHT = expiration_v1(SEED, everything_older(), SEED_THRESHOLD)
HOLD = Hold("h", "snapshot", encode_id(snapshot_id(2)), "audit")
HOLDING = expiration_v1(SEED, SnapshotPolicy(default=Keep("default", NOT_BY_AGE), holds=(HOLD,)), SEED_THRESHOLD)


def released(*more: int) -> frozenset[bytes]:
    return RIGHT.released | {snapshot_id(number) for number in more}


def test_a_correct_expiration_passes():
    require_allowed(SEED, RIGHT)
    require_allowed(SEED, HOLDING)


@pytest.mark.parametrize(
    ("wrong", "violation"),
    [
        pytest.param(replace(RIGHT, released=released(0)), "would be released, but it is a root", id="a_root"),
        pytest.param(replace(RIGHT, released=released(3)), "but a reference or a hold keeps it", id="under_a_tag"),
        pytest.param(replace(RIGHT, released=released(4)), "but a reference or a hold keeps it", id="under_a_branch"),
        pytest.param(replace(RIGHT, released=released(12)), "would be released, but rules keep it", id="not_expired"),
        pytest.param(replace(RIGHT, edits=()), "but a reference or a hold keeps it", id="still_reachable"),
        pytest.param(
            replace(HOLDING, released=HOLDING.released | {snapshot_id(2)}), "would be released, but rules", id="held"
        ),
        pytest.param(
            replace(RIGHT, edits=(*RIGHT.edits, deletion(SEED, "branch qa"))),
            "would be lost, but rules keep it",
            id="lost",
        ),
        pytest.param(
            replace(RIGHT, edits=(*RIGHT.edits, deletion(SEED, "branch main"))), "the branch main would", id="main"
        ),
        pytest.param(
            replace(RIGHT, edits=(*RIGHT.edits, Reparented(snapshot_id(14), snapshot_id(11)))),
            "would get a parent that is not its ancestor",
            id="another_history",
        ),
        pytest.param(
            replace(RIGHT, edits=(*RIGHT.edits, Reparented(snapshot_id(0), snapshot_id(14)))),
            "would get a parent that is not its ancestor",
            id="a_root_gets_a_parent",
        ),
        pytest.param(
            replace(RIGHT, edits=(*RIGHT.edits, Reparented(snapshot_id(13), snapshot_id(13)))),
            "would get a parent that is not its ancestor",
            id="its_own_parent",
        ),
    ],
)
def test_an_expiration_that_would_lose_data_is_refused(wrong, violation):
    with pytest.raises(GuardRefused, match=f"{violation}.*Nothing was changed or deleted"):
        require_allowed(SEED, wrong)


def test_edits_change_parents_and_references_and_nothing_else():
    after = edited(
        SEED, [Reparented(snapshot_id(12), snapshot_id(4)), deletion(SEED, "tag tag1"), deletion(SEED, "branch qa")]
    )
    assert branch_line(after) == ["14", "13", "12", "4", "2", "1", "0"]
    assert set(after.tags) == {"tag2"}
    assert set(after.branches) == set(SEED.branches) - {"qa"}
    assert names(after.snapshots) == names(SEED.snapshots)
    assert after.snapshots[snapshot_id(12)].flushed_at == SEED.snapshots[snapshot_id(12)].flushed_at
    assert branch_line(SEED)[3] == "5"


def test_an_expiration_lists_the_snapshots_that_get_another_parent():
    assert names(RIGHT.reparented) == {"3", "5", "4", "10", "12", "8", "9"}
    assert names(RIGHT.reparented.values()) == {"0"}
