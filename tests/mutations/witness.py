"""Runs tests in a process of its own and writes down what became of each: passed, failed by its assertion, or broken.

python -m tests.mutations.witness ANSWER.json NODE_ID...
"""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import retention_assets

PASSED, FAILED, BROKEN = "passed", "failed", "broken"
_NOTHING_RAISED = "DID NOT RAISE"  # how `pytest.raises` begins its complaint


class Witness:
    """Notes the worst that each test came to. An error that no assertion raised is no verdict on what is tested."""

    def __init__(self) -> None:
        self.saw: dict[str, tuple[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            error = call.excinfo.value if call.excinfo else None
            self.saw[item.nodeid] = FAILED if call.when == "call" and _is_verdict(error) else BROKEN, _first_line(error)
        elif report.skipped:
            self.saw[item.nodeid] = BROKEN, "was skipped"
        elif call.when == "call":
            self.saw.setdefault(item.nodeid, (PASSED, ""))
        return report


def _is_verdict(error: BaseException | None) -> bool:
    """Return whether the test itself saw that something is wrong."""
    nothing_raised = isinstance(error, pytest.fail.Exception) and str(error).startswith(_NOTHING_RAISED)
    return isinstance(error, AssertionError) or nothing_raised


def _first_line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def main(answer: str, *node_ids: str) -> None:
    """Run the tests and write the answer; tests that cannot be collected are not in it."""
    witness = Witness()
    pytest.main([*node_ids, "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short"], plugins=[witness])
    told = {"package": str(Path(retention_assets.__file__).parent), "tests": witness.saw}
    Path(answer).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
