"""The real servers of tests/real_lakefs, and a summary of the rounds at the end of a run."""

import pytest

from tests.real_lakefs.conftest import lakefs, lakefs_on_s3, pytest_collection_modifyitems

__all__ = ["lakefs", "lakefs_on_s3", "pytest_collection_modifyitems"]

_TOLD = "random history"


@pytest.fixture
def note_for_summary(record_property):
    """Return a function that adds a line to the summary at the end of the run."""
    return lambda line: record_property(_TOLD, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [value for report in reports for name, value in getattr(report, "user_properties", ()) if name == _TOLD]
    if lines:
        terminalreporter.section("random histories")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(line)
