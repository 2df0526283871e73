"""The warnings of a plan whose edits the repository does not allow."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.rules.snapshots import Reference
from retention_assets.icechunk.source.repository import IcechunkState
from retention_assets.icechunk.sweep.planning import (
    IcechunkPlanInputs,
    IcechunkPlanParameters,
    PlanBasis,
    origin_of,
    require_one_origin,
)
from retention_assets.icechunk.sweep.retained_set import retained_set_of
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.warehouse.metadata import Details
from retention_assets.warehouse.warehouse import Rows
from tests.icechunk.rules.graphs import history

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DAY = timedelta(days=1)
OTHER = "another"
POLICY = SnapshotPolicy((), None, (), delete_expired_branches=False, delete_expired_tags=False)


def test_tables_of_another_origin_than_the_plan_are_refused_by_name() -> None:
    nothing: Any = None
    now = history({0: (None, 0)}, {"main": 0})
    edits = PlannedEdits(2, NOW, NOW, (), (), (), frozenset())
    state = IcechunkState(2, now, None, frozenset(), {}, NOW)
    basis = PlanBasis(state, retained_set_of(state, POLICY, NOW, NOW), edits, Rows(nothing, NOW))
    parameters = IcechunkPlanParameters("field", NOW.date(), POLICY, "r", nothing, NOW, "a-run", {})
    details = origin_of(basis, POLICY.policy_hash)
    right = IcechunkPlanInputs(Rows(nothing, NOW), Rows(nothing, NOW, details), Rows(nothing, NOW, details))
    require_one_origin(parameters, basis, right)
    other = Rows(nothing, NOW, replace(details, cutoff=NOW - 9 * DAY, policy_hash=OTHER))
    remedy = r"Nothing was deleted\. Plan again: `retention plan field --as-of 2026-11-21`"
    for table in ("manifests", "chunks"):
        refused = (
            rf"^field 2026-11-21: reachable_{table} does not match the plan "
            rf"\(another cutoff and policy hash\)\. {remedy}"
        )
        with pytest.raises(GuardRefused, match=refused):
            require_one_origin(parameters, basis, replace(right, **{table: other}))
    other_snapshots = Rows(nothing, NOW, replace(details, snapshots_digest=OTHER))
    with pytest.raises(GuardRefused, match=rf"chunks does not match the plan .another snapshots digest.. {remedy}"):
        require_one_origin(parameters, basis, replace(right, chunks=other_snapshots))


@pytest.mark.parametrize(
    ("inventory", "history_of", "refused"),
    [
        pytest.param(None, None, None, id="of_an_earlier_version"),
        pytest.param("file:///here", "file:///here", None, id="of_this_storage"),
        pytest.param(
            "file:///there", "file:///here", "storage_inventory was read from file:///there", id="another_inventory"
        ),
        pytest.param(
            "file:///here", "file:///there", "repository_history was read from file:///there", id="another_history"
        ),
    ],
)
def test_tables_of_another_storage_than_the_configured_one_are_refused_by_name(
    inventory: str | None, history_of: str | None, refused: str | None
) -> None:
    nothing: Any = None
    edits = PlannedEdits(2, NOW, NOW, (), (), (), frozenset())
    state = IcechunkState(2, history({0: (None, 0)}, {"main": 0}), None, frozenset(), {}, NOW)
    basis = PlanBasis(
        state, retained_set_of(state, POLICY, NOW, NOW), edits, Rows(nothing, NOW, Details(storage=history_of))
    )
    parameters = IcechunkPlanParameters(
        "field", NOW.date(), POLICY, "r", nothing, NOW, "a-run", {"storage": "file:///here"}
    )
    of_plan = Rows(nothing, NOW, origin_of(basis, POLICY.policy_hash))
    inputs = IcechunkPlanInputs(Rows(nothing, NOW, Details(storage=inventory)), of_plan, of_plan)
    if refused is None:
        require_one_origin(parameters, basis, inputs)
        return
    remedy = r", and the configuration names file:///here\. Nothing was deleted\. Plan again: `retention plan field"
    with pytest.raises(GuardRefused, match=f"^field 2026-11-21: {refused}{remedy}"):
        require_one_origin(parameters, basis, inputs)


def blocked(tags: tuple[str, ...] = (), **notes: str) -> str | None:
    known = Details.of_texts({"availability": "online", "limits": "", "tags_deletable": "true", **notes})
    nothing: Any = None
    deleted = frozenset(Reference("tag", name, b"") for name in tags)
    edits = PlannedEdits(2, NOW, NOW, (), (), (), deleted)
    return PlanBasis(nothing, nothing, edits, Rows(nothing, NOW, known)).blocked("field")


@pytest.mark.parametrize(
    ("tags", "notes", "expected"),
    [
        pytest.param((), {}, None, id="online"),
        pytest.param(("v1",), {}, None, id="a_tag_goes"),
        pytest.param((), {"tags_deletable": "false"}, None, id="no_tag_goes"),
        pytest.param(
            ("v1", "v2"), {"tags_deletable": "false"}, "2 tags, 'v1' first, have expired", id="tags_forbidden"
        ),
        pytest.param(
            (), {"availability": "read-only", "limits": "moving"}, "read-only (reason: moving)", id="read_only"
        ),
        pytest.param((), {"availability": "read-only"}, "`retention icechunk field status online`", id="remedy"),
        pytest.param((), {"availability": "offline"}, "offline (reason: none given)", id="offline"),
    ],
)
def test_a_plan_is_blocked_where_its_edits_would_be_refused(
    tags: tuple[str, ...], notes: dict[str, str], expected: str | None
) -> None:
    found = blocked(tags, **notes)
    assert found is None if expected is None else expected in (found or "")
