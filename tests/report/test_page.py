"""The HTML of the report's page."""

from html import escape
from types import SimpleNamespace
from typing import Any

import pytest

from retention_assets.report import page
from tests.explain.test_status import a_plan
from tests.frames import NOW

PROGRAM = "retention --config 'a<b>&c.yaml'"


@pytest.mark.parametrize("section", ["_forecast", "_outcomes"])
def test_the_name_of_the_configuration_in_a_command_is_escaped(section: str) -> None:
    outcomes = SimpleNamespace(ended_early=None, mode="delete", ended=NOW, amounts={})
    figures: Any = SimpleNamespace(forecast=None, plan=a_plan(), outcomes=outcomes)
    text = getattr(page, section)(figures, PROGRAM)
    assert f"<pre>{escape(PROGRAM)} s" in text
    assert "<b>" not in text
