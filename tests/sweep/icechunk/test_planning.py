"""What a plan says of a repository that forbids the edits it would need."""

from datetime import UTC, datetime
from typing import Any

import pytest

from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.sweep.planning import PlanBasis
from retention_assets.state.warehouse import Rows

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def blocked(tags: tuple[str, ...] = (), **notes: str) -> str | None:
    known = {"availability": "online", "limits": "", "tags_deletable": "true", **notes}
    nothing: Any = None
    edits = PlannedEdits(2, NOW, NOW, (), (), (), (), tags)
    return PlanBasis(nothing, nothing, edits, Rows(nothing, NOW, known)).blocked


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
        pytest.param((), {"availability": "offline"}, "offline (reason: none given)", id="offline"),
    ],
)
def test_a_plan_is_blocked_where_its_edits_would_be_refused(
    tags: tuple[str, ...], notes: dict[str, str], expected: str | None
) -> None:
    found = blocked(tags, **notes)
    assert found is None if expected is None else expected in (found or "")
