"""A repository that is not the one that was planned is refused before anything of it is touched."""

from dataclasses import replace

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import History
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.sweeping import require_same_repository
from retention_assets.state.plan import Heads
from tests.icechunk.rules.graphs import at, history, snapshot_id
from tests.sweep.small_world import a_plan

LINE = {0: (None, 0), 1: (0, 1), 2: (1, 2), 3: (1, 3)}
PLANNED = history(LINE, {"main": 2, "old": 3}, {"v1": 1})
EDITS = PlannedEdits(2, at(10), at(9), (), (encode_id(snapshot_id(3)),), (), ("old",), ())


def state_of(now: History, **changes: object) -> IcechunkState:
    state = IcechunkState(2, now, None, frozenset(), {}, at(11))
    return replace(state, **changes)  # type: ignore[arg-type]


def require_same(state: IcechunkState) -> None:
    heads = Heads(
        {name: encode_id(tip) for name, tip in PLANNED.branches.items()},
        {name: encode_id(tip) for name, tip in PLANNED.tags.items()},
    )
    require_same_repository(a_plan(repository="field"), heads, EDITS, state)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(PLANNED, id="nothing_happened"),
        pytest.param(history({**LINE, 4: (2, 4)}, {"main": 4}, {}), id="commits_came_and_references_went"),
        pytest.param(history({0: (None, 0), 1: (0, 1), 2: (1, 2)}, {"main": 2}, {"v1": 1}), id="the_plan_is_done"),
    ],
)
def test_what_a_repository_may_become_is_no_reason_to_refuse(now: History) -> None:
    require_same(state_of(now))


@pytest.mark.parametrize(
    ("state", "why"),
    [
        pytest.param(state_of(PLANNED, format=1), "it has format 1, and the plan is for format 2", id="another_format"),
        pytest.param(
            state_of(history({0: (None, 0), 1: (0, 1)}, {"main": 1}, {"v1": 1})),
            f"main named {encode_id(snapshot_id(2))}, which no longer exists",
            id="gone_back",
        ),
        pytest.param(state_of(history({0: (None, 0)}, {"main": 0})), "main named", id="created_again"),
        pytest.param(
            state_of(history({0: (None, 0), 2: (0, 2)}, {"main": 2})), "tag v1 named", id="what_a_tag_named_is_gone"
        ),
    ],
)
def test_a_repository_that_is_another_one_is_refused(state: IcechunkState, why: str) -> None:
    with pytest.raises(GuardRefused, match=f"{why}.*Nothing was changed or deleted.*retention plan field"):
        require_same(state)
