"""The progress that a sweep logs: objects done and left, rate, and remaining time."""

import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.core.amounts import Amount
from retention_assets.errors import StoreError
from retention_assets.state.ledger import LedgerLocation
from retention_assets.sweep import execute
from retention_assets.sweep.engine import BatchResult
from retention_assets.sweep.execute import Progress
from retention_assets.tables import LEDGER
from tests.frames import NOW

DAY, HASH = NOW.date(), "a" * 64


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def done(**objects: int) -> BatchResult:
    return BatchResult({outcome: Amount(number, 10 * number) for outcome, number in objects.items()}, NOW)


def test_batches_add_up_and_the_time_left_follows_from_the_rate() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress("orchard", 4_000, clock, lines.append)
    clock.now += timedelta(seconds=10)
    progress.count(done(deleted=900, failed=100))
    clock.now += timedelta(seconds=10)
    progress.count(done(skipped=2_000))
    assert progress.done == 3_000
    assert lines == [
        "orchard: 1,000 of 4,000 objects, 100 objects/s, 0:00:30 left; 900 deleted, 100 failed in this batch",
        "orchard: 3,000 of 4,000 objects, 150 objects/s, 0:00:07 left; 2,000 skipped in this batch",
    ]


@pytest.mark.parametrize(
    ("seconds", "batch_result"),
    [pytest.param(0, done(deleted=5), id="no_time_has_passed"), pytest.param(10, done(), id="nothing_was_done")],
)
def test_the_time_left_is_unknown_until_there_is_a_rate(seconds: int, batch_result: BatchResult) -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress("orchard", 10, clock, lines.append)
    clock.now += timedelta(seconds=seconds)
    progress.count(batch_result)
    assert "time left unknown" in lines[0]


def test_progress_counts_the_ledger_files_of_running_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_LOG_SECONDS", 0.01)
    place = LedgerLocation(str(tmp_path), "orchard", DAY, HASH, 1, "a-run")
    seen, lines = threading.Event(), list[str]()

    def log(line: str) -> None:
        lines.append(line)
        if "7 of 10" in line:
            seen.set()

    def append_rows(name: str, kind: str, **outcomes: str) -> None:
        rows = {"size": 10, "detail": None, "at": NOW, "fence": 1}
        table = [{"address": address, "outcome": outcome, **rows} for address, outcome in outcomes.items()]
        place.append(pa.Table.from_pylist(table, LEDGER), name, kind)

    progress = Progress("orchard", 10, Clock(), log)
    progress.count(done(deleted=4))
    append_rows("an-earlier-chunk", "done", a="deleted")  # is counted with its batch
    with progress.watched(place):
        append_rows("a-chunk", "attempted", b="attempted", c="attempted", d="attempted")
        append_rows("a-chunk", "done", b="deleted", c="deleted")
        append_rows("others", "decided", e="skipped")
        assert seen.wait(60), lines
    assert progress.done == 4  # only complete batches count


def test_progress_goes_on_after_the_ledger_could_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "_LOG_SECONDS", 0.01)
    logged, found = threading.Event(), iter([0, StoreError("the store does not respond"), 7])

    class Ledger:
        def objects_recorded(self) -> int:
            recorded = next(found, 7)
            if isinstance(recorded, StoreError):
                raise recorded
            return recorded

    def log(line: str) -> None:
        assert "7 of 10" in line
        logged.set()

    ledger: Any = Ledger()
    with Progress("orchard", 10, Clock(), log).watched(ledger):
        assert logged.wait(60)
