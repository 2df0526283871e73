"""Runs tests and writes the result of each: passed, failed by its assertion, or broken by another error.

python -m tests.mutations.record_results ANSWER.json NODE_ID...
"""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import retention_assets

PASSED, FAILED, BROKEN = "passed", "failed", "broken"
_NOTHING_RAISED = "DID NOT RAISE"  # how `pytest.raises` begins its message


class ResultRecorder:
    """Records the worst result of each test. An error that no assertion raised counts as broken, not as failed."""

    def __init__(self) -> None:
        self.results: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            error = call.excinfo.value if call.excinfo else None
            self.results[item.nodeid] = (
                FAILED if call.when == "call" and _is_assertion_failure(error) else BROKEN,
                _first_line(error),
            )
        elif report.skipped:
            self.results[item.nodeid] = BROKEN, "was skipped"
        elif call.when == "call":
            self.results.setdefault(item.nodeid, (PASSED, ""))
        return report


def _is_assertion_failure(error: BaseException | None) -> bool:
    """Return whether an assertion of the test raised the error."""
    nothing_raised = isinstance(error, pytest.fail.Exception) and str(error).startswith(_NOTHING_RAISED)
    return isinstance(error, AssertionError) or nothing_raised


def _first_line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def main(answer: str, *node_ids: str) -> None:
    """Run the tests and write their results. Tests that cannot be collected have none."""
    recorder = ResultRecorder()
    pytest.main([*node_ids, "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short"], plugins=[recorder])
    document = {"package": str(Path(retention_assets.__file__).parent), "tests": recorder.results}
    Path(answer).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
