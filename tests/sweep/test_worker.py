"""What one worker does with its share of a batch, and what it leaves when its time is over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import StoreError, TableContractError
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.lease import Lease, release_lease, stop_sweeps, take_lease
from retention_assets.state.ledger import LedgerLocation
from retention_assets.sweep.worker import OBJECTS, BeforeDeadline, TaskSpec, chunks, work
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import NOW

DAY, HASH = NOW.date(), "a" * 64
LIFE = timedelta(minutes=30)
Row = dict[str, Any]


@dataclass
class Recording:
    """A deed that notes what it is asked to do, and lets something happen while it does it."""

    meanwhile: Callable[[int], object] = lambda _: None
    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None
    asked: list[tuple[str, list[str]]] = field(default_factory=list)  # names and addresses of its groups
    before_deadline: list[bool] = field(default_factory=list)  # what it is told after each
    paces: list[RateLimiter] = field(default_factory=list)

    def open(self, rate_limiter: RateLimiter) -> "Recording":
        self.paces.append(rate_limiter)
        return self

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        self.asked.append((name, objects["address"].to_pylist()))
        self.meanwhile(len(self.asked))
        self.before_deadline.append(before_deadline())
        return [ObjectResult(Outcome.DELETED) for _ in range(objects.num_rows)]

    @property
    def done(self) -> list[str]:
        return [address for _, addresses in self.asked for address in addresses]


@dataclass
class Bench:
    """A warehouse with a lease, and a worker's clock."""

    warehouse: Warehouse
    lease: Lease
    now: datetime = NOW

    def clock(self) -> datetime:
        return self.now

    def place(self, run_id: str = "a-run") -> LedgerLocation:
        return LedgerLocation(self.warehouse.root, "orchard", DAY, HASH, self.lease.fence, run_id)

    def work(self, action: Recording, batches: Sequence[pa.RecordBatch], worker: str = "0-0", **task: Any) -> list[Row]:
        """Return the tally of one worker that has two objects in each group."""
        given = {"deadline": NOW + timedelta(minutes=15), "batch_number": 0, "rate": 0.2, **task}
        tally = work(TaskSpec(action, self.place(), self.lease, **given), batches, worker, self.clock)
        return [row for part in tally for row in part.to_pylist()]

    def ledger(self) -> list[tuple[str, str, str | None]]:
        """Return address, outcome and detail of every row, in the order of the files' names."""
        files = sorted(Path(self.warehouse.root, "orchard", "ledger").rglob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return [(row["address"], row["outcome"], row["detail"]) for row in rows]

    def outcomes(self, address: str) -> set[str]:
        return {outcome for name, outcome, _ in self.ledger() if name == address}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    return Bench(warehouse, take_lease(warehouse, "orchard", "a-run", NOW, LIFE))


def batch(*addresses: str, **decided: str) -> pa.RecordBatch:
    """Return objects of ten bytes to be worked on, and others with the outcome that a look gave them."""
    plain = {"size": 10, "last_modified": None, "etag": None}
    rows = [{"address": address, **plain, "outcome": None, "detail": None} for address in addresses]
    rows += [{"address": name, **plain, "outcome": outcome, "detail": "why"} for name, outcome in decided.items()]
    return pa.RecordBatch.from_pylist(rows, OBJECTS)


def test_the_ledger_has_rows_before_and_after_each_chunk(bench: Bench) -> None:
    noted: list[set[str]] = []
    action = Recording(lambda _: noted.append(bench.outcomes(action.done[-1])))
    assert bench.work(action, [batch("a", "b", "c"), batch("d")]) == [
        {"outcome": "deleted", "objects": objects, "bytes": 10 * objects, "until": NOW, "reached": None}
        for objects in (2, 1, 1)
    ]
    assert action.done == ["a", "b", "c", "d"]
    assert noted == [{"attempted"}] * 3
    assert all(bench.outcomes(address) == {"attempted", "deleted"} for address in action.done)


def test_objects_that_the_liveness_check_decided_are_recorded_and_not_processed(bench: Bench) -> None:
    action = Recording()
    tally = bench.work(action, [batch("a", lives="skipped", gone="missing")])
    assert action.done == ["a"]
    assert ("lives", "skipped", "why") in bench.ledger()
    assert bench.outcomes("lives") == {"skipped"}
    assert bench.outcomes("gone") == {"missing"}
    untouched = {row["outcome"]: row["until"] for row in tally}
    assert untouched == {"skipped": None, "missing": None, "deleted": NOW}


@dataclass
class Asking:
    """Stands for the store: objects whose names begin with x are gone."""

    asked: list[list[str]] = field(default_factory=list)

    def open(self) -> "Asking":
        return self

    def classified(self, objects: pa.Table, reader: object) -> pa.Table:
        self.asked.append(objects["address"].to_pylist())
        rows = [
            {**row, "outcome": "missing", "detail": "gone"} if row["address"].startswith("x") else row
            for row in objects.to_pylist()
        ]
        return pa.Table.from_pylist(rows, OBJECTS)


def test_each_chunk_is_checked_in_the_store_before_the_action(bench: Bench) -> None:
    asking, action = Asking(), Recording()
    tally = bench.work(action, [batch("a", "x1", "x2", "x3", "b", lives="skipped"), batch("c")], preconditions=asking)
    assert asking.asked == [["a", "x1"], ["x2", "x3"], ["b"], ["c"]]
    assert action.done == ["a", "b", "c"]
    assert [bench.outcomes(name) for name in ("x1", "x2", "x3")] == [{"missing"}] * 3
    assert bench.outcomes("lives") == {"skipped"}
    assert sum(row["objects"] for row in tally) == 7


def test_objects_that_cannot_be_checked_in_the_store_are_not_processed(bench: Bench) -> None:
    class Refusing(Asking):
        def classified(self, objects: pa.Table, reader: object) -> pa.Table:
            if "c" in objects["address"].to_pylist():
                raise StoreError("no answer")
            return super().classified(objects, reader)

    action = Recording()
    with pytest.raises(StoreError, match="no answer"):
        bench.work(action, [batch("a", "b", "c", "d")], preconditions=Refusing())
    assert action.done == ["a", "b"]
    assert {address for address, _, _ in bench.ledger()} == {"a", "b"}


def test_a_chunk_whose_attempt_cannot_be_recorded_is_not_processed(bench: Bench) -> None:
    bench.work(Recording(), [batch("a")])
    again = Recording()
    with pytest.raises(TableContractError, match="exists already"):
        bench.work(again, [batch("a")])
    assert again.done == []


def test_every_chunk_of_every_worker_and_batch_has_a_unique_name(bench: Bench) -> None:
    action = Recording()
    for batch_number in (0, 1):
        for worker in ("0-0", "1-0"):
            bench.work(action, [batch("a", "b", "c"), batch("d")], worker, batch_number=batch_number)
    release_lease(bench.warehouse, bench.lease, NOW)
    bench.lease = take_lease(bench.warehouse, "orchard", "a-run", NOW, LIFE)  # the next sweep counts from the first
    bench.work(action, [batch("a", "b", "c"), batch("d")])
    names = [name for name, _ in action.asked]
    assert len(set(names)) == len(names) == 15


def test_objects_left_at_the_deadline_have_no_row(bench: Bench) -> None:
    def meanwhile(groups_done: int) -> None:
        bench.now += timedelta(minutes=8)

    action = Recording(meanwhile)
    tally = bench.work(action, [batch("a", "b", "c", "d", "e"), batch("f")])
    assert action.done == ["a", "b", "c", "d"]  # the deadline is after 15 minutes
    assert action.before_deadline == [True, False]
    assert {address for address, _, _ in bench.ledger()} == {"a", "b", "c", "d"}
    assert sum(row["objects"] for row in tally) == 4


@pytest.mark.parametrize(
    ("after", "done"),
    [(timedelta(0), []), (timedelta(microseconds=-1), ["a"])],
    ids=["the_deadline_itself_is_too_late", "before_it_is_not"],
)
def test_no_chunk_is_started_at_the_deadline(bench: Bench, after: timedelta, done: list[str]) -> None:
    bench.now = NOW + timedelta(minutes=15) + after
    action = Recording()
    bench.work(action, [batch("a")])
    assert action.done == done


def test_a_worker_uses_the_clock_that_set_the_deadline(bench: Bench) -> None:
    bench.now = NOW - timedelta(hours=3)  # this machine is late
    late, right = Recording(), Recording()
    bench.work(late, [batch("a")], ahead=timedelta(hours=3, minutes=15))
    bench.work(right, [batch("a")], ahead=timedelta(hours=3, minutes=14))
    assert (late.done, right.done) == ([], ["a"])
    (at,) = {
        row["at"] for file in Path(bench.warehouse.root).rglob("*.parquet") for row in pq.read_table(file).to_pylist()
    }
    assert at == NOW + timedelta(minutes=14)


def stop(bench: Bench) -> None:
    stop_sweeps(bench.warehouse, "orchard", "ada", bench.now)


def let_it_run_out(bench: Bench) -> None:
    bench.now += LIFE


@pytest.mark.parametrize("lose", [stop, let_it_run_out])
def test_a_worker_whose_lease_is_lost_ends_after_its_current_chunk(bench: Bench, lose: Callable[[Bench], None]) -> None:
    action = Recording(lambda _: lose(bench))
    bench.work(action, [batch("a", "b", "c", "d")], deadline=NOW + 2 * LIFE)
    assert action.done == ["a", "b"]
    assert action.before_deadline == [False]
    assert {address for address, _, _ in bench.ledger()} == {"a", "b"}


@pytest.mark.parametrize(
    ("rate", "objects"),
    [(None, 10_000), (5_000.0, 10_000), (7.0, 70), (0.05, 1)],
    ids=["without_a_rate", "at_a_high_rate", "at_a_low_rate", "at_the_lowest_rate"],
)
def test_a_chunk_is_small_enough_to_check_the_deadline_often(bench: Bench, rate: float | None, objects: int) -> None:
    assert TaskSpec(Recording(), bench.place(), bench.lease, NOW, 0, rate).chunk_size == objects


@pytest.mark.parametrize(
    ("sizes", "most_bytes", "expected"),
    [
        pytest.param([], None, [], id="nothing"),
        pytest.param([1, 1, 1, 1, 1], None, [(0, 3), (3, 2)], id="by_number"),
        pytest.param([4, 4, 4], 8, [(0, 2), (2, 1)], id="by_bytes"),
        pytest.param([9, 1, 20, 1], 8, [(0, 1), (1, 1), (2, 1), (3, 1)], id="a_large_one_is_a_group_of_its_own"),
        pytest.param([0, 0, 0, 0], 8, [(0, 3), (3, 1)], id="empty_objects_count_as_well"),
    ],
)
def test_chunks_exceed_neither_the_most_objects_nor_the_most_bytes(
    sizes: list[int], most_bytes: int | None, expected: list[tuple[int, int]]
) -> None:
    assert list(chunks(sizes, 3, most_bytes, first=3)) == expected


def test_the_first_chunks_are_small_and_grow() -> None:
    made = list(chunks([1] * 50, 20, None, first=2))
    assert [length for _, length in made] == [2, 8, 20, 20]
    assert [start for start, _ in made] == [0, 2, 10, 30]


def test_the_first_chunk_is_never_larger_than_the_others() -> None:
    assert list(chunks([1] * 5, 3, None, first=1_000)) == [(0, 3), (3, 2)]


def test_objects_that_the_action_left_at_the_deadline_stay_attempted_and_are_not_counted(bench: Bench) -> None:
    class HalfInTime(Recording):
        def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
            super().do(objects, name, before_deadline)
            return [
                ObjectResult(Outcome.DELETED if one == "a" else Outcome.ATTEMPTED)
                for one in objects["address"].to_pylist()
            ]

    tally = bench.work(HalfInTime(), [batch("a", "b", "c", "d")])
    assert [(row["outcome"], row["objects"]) for row in tally] == [("deleted", 1)]
    assert bench.outcomes("a") == {"attempted", "deleted"}
    assert [bench.outcomes(name) for name in "bcd"] == [{"attempted"}] * 3


def test_a_worker_begins_at_the_rate_that_others_reached_and_returns_its_own_rate(bench: Bench) -> None:
    action = Recording(lambda _: action.paces[0].throttled(action.paces[0].now() + 60))
    tally = bench.work(action, [batch("a", "b")], rate=None, reached=1_000.0)
    assert [row["reached"] for row in tally] == [pytest.approx(1_000 * 0.8 * 0.8)]
    tally = bench.work(Recording(), [batch("f", "g", lives="skipped")], batch_number=1)
    assert {row["outcome"]: row["reached"] for row in tally} == {"deleted": None, "skipped": None}
