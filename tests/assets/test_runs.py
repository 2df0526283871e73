"""The error of a failed run."""

from types import SimpleNamespace
from typing import Any

import pytest
from dagster._utils.error import SerializableErrorInfo

from retention_assets.assets.runs import failure_of


def failed_step(message: str) -> Any:
    """Return the event of a step that failed with an unexpected error."""
    error = SerializableErrorInfo(message, stack=[], cls_name="ValueError")
    data = SimpleNamespace(error=error)
    return SimpleNamespace(
        event_type=None, is_step_failure=True, step_failure_data=data, step_key="orchard__commit_graph"
    )


@pytest.mark.parametrize("message", ["ValueError: no such column", "ValueError: no such column.\n\nDetails."])
def test_an_unexpected_error_of_a_step_is_one_sentence_of_the_message(message: str) -> None:
    error = failure_of([failed_step(message)], "orchard_plan", "r1")
    assert str(error) == (
        "commit_graph: ValueError: no such column. Nothing more was done. The Dagster UI has the details: run r1."
    )
