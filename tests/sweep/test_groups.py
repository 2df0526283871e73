"""A worker notes a group before it touches it, and touches none after the deadline or without its lease."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep import work as working
from retention_assets.sweep.lease import Lease, stop_sweeps, take_lease
from retention_assets.sweep.ledger import LEDGERS, LedgerPlace
from retention_assets.sweep.work import OBJECTS, Ended, InTime, Orders, work
from tests.sweep.small_world import DAY
from tests.transforms.frames import NOW

HASH = "a" * 64
WINDOW = timedelta(minutes=15)
NAMES = ("a", "b", "c", "d", "e", "f")
SKIPPED = ("x", "y")  # the look left them alone


def nothing(_: Sequence[str]) -> None:
    """Let nobody else do anything meanwhile."""


@dataclass
class Recorded:
    """A deed that touches nothing: it keeps what it was told to do, and lets others act before it does."""

    group_bytes: ClassVar[int | None] = None

    before: Callable[[Sequence[str]], object] = nothing
    groups: list[list[str]] = field(default_factory=list)

    def open(self) -> "Recorded":
        return self

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        names = objects["address"].to_pylist()
        self.before(names)
        self.groups.append(names)
        return [Ended("deleted")] * len(names)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


class Place:
    """A warehouse with a lease, and a worker that has two batches before it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.warehouse = Warehouse(str(root))
        self.clock = Clock()
        self.lease: Lease = take_lease(self.warehouse, "orchard", "a-run", NOW, timedelta(minutes=30))

    def run(self, deed: Recorded) -> dict[str, int]:
        """Have the deed done, and return how many objects were told to have ended in which way."""
        ledger = LedgerPlace(self.warehouse.root, "orchard", DAY, HASH, self.lease.fence, "a-run")
        orders = Orders(deed, ledger, self.lease, NOW + WINDOW, turn=0)
        told: dict[str, int] = {}
        for tally in work(orders, (batch(NAMES[:4], SKIPPED), batch(NAMES[4:])), "0-0", self.clock):
            for row in tally.to_pylist():
                told[row["outcome"]] = told.get(row["outcome"], 0) + row["objects"]
        return told

    def noted(self, outcome: str) -> list[str]:
        """Return the addresses of which the ledger says this."""
        files = sorted((self.root / "orchard" / LEDGERS).rglob("*.parquet"))
        rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
        return sorted(row["address"] for row in rows if row["outcome"] == outcome)


def batch(doomed: Sequence[str], skipped: Sequence[str] = ()) -> pa.RecordBatch:
    rows = [{"address": name, "size": 10} for name in doomed]
    rows += [{"address": name, "size": 10, "outcome": "skipped", "detail": "lives"} for name in skipped]
    return pa.RecordBatch.from_pylist(rows, schema=OBJECTS)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(working, "_GROUP", 2)
    return Place(tmp_path / "warehouse")


def test_everything_that_is_not_decided_is_touched_once_a_group_at_a_time(place: Place) -> None:
    deed = Recorded()
    assert place.run(deed) == {"skipped": 2, "deleted": 6}
    assert deed.groups == [["a", "b"], ["c", "d"], ["e", "f"]]
    assert place.noted("skipped") == list(SKIPPED)
    assert place.noted("attempted") == place.noted("deleted") == list(NAMES)


def test_what_is_about_to_be_touched_is_in_the_ledger_already(place: Place) -> None:
    seen: list[bool] = []
    deed = Recorded(lambda names: seen.append(set(names) <= set(place.noted("attempted"))))
    place.run(deed)
    assert seen == [True] * 3


def test_what_was_done_is_in_the_ledger_before_the_next_group_is_touched(place: Place) -> None:
    known: list[list[str]] = []
    place.run(Recorded(lambda _: known.append(place.noted("deleted"))))
    assert known == [[], ["a", "b"], ["a", "b", "c", "d"]]


def test_no_group_is_touched_once_the_deadline_has_come_and_what_is_left_has_no_row(place: Place) -> None:
    def pass_the_deadline(names: Sequence[str]) -> None:
        place.clock.now = NOW + WINDOW

    deed = Recorded(pass_the_deadline)
    assert place.run(deed) == {"skipped": 2, "deleted": 2}
    assert deed.groups == [["a", "b"]]
    assert place.noted("attempted") == ["a", "b"]


def test_no_group_is_touched_once_the_lease_is_gone(place: Place) -> None:
    deed = Recorded(lambda _: stop_sweeps(place.warehouse, "orchard", "a-person", NOW))
    place.run(deed)
    assert deed.groups == [["a", "b"]]
    assert place.noted("attempted") == ["a", "b"]
