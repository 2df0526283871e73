"""A worker of a sweep: the ledger rows of each chunk, the checks in the store, the deadline, the lease and the rate."""

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
class RecordingAction:
    """An action that records its calls, calls `meanwhile` during each, and reports every object as deleted."""

    meanwhile: Callable[[int], object] = lambda _: None
    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None
    asked: list[tuple[str, list[str]]] = field(default_factory=list)  # name and addresses of each chunk
    before_deadline: list[bool] = field(default_factory=list)  # the answer after each chunk
    rate_limiters: list[RateLimiter] = field(default_factory=list)

    def open(self, rate_limiter: RateLimiter) -> "RecordingAction":
        self.rate_limiters.append(rate_limiter)
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
class WorkerSetup:
    """A warehouse with a lease, a clock, and a worker that has at most two objects in a chunk."""

    warehouse: Warehouse
    lease: Lease
    now: datetime = NOW

    def clock(self) -> datetime:
        return self.now

    def ledger_location(self, run_id: str = "a-run") -> LedgerLocation:
        return LedgerLocation(self.warehouse.root, "orchard", DAY, HASH, self.lease.fence, run_id)

    def work(
        self, action: RecordingAction, batches: Sequence[pa.RecordBatch], worker: str = "0-0", **task: Any
    ) -> list[Row]:
        """Run one worker over `batches` and return the rows of its tally. `task`: changed fields of its task spec."""
        given = {"deadline": NOW + timedelta(minutes=15), "batch_number": 0, "rate": 0.2, **task}
        tally = work(TaskSpec(action, self.ledger_location(), self.lease, **given), batches, worker, self.clock)
        return [row for part in tally for row in part.to_pylist()]

    def ledger(self) -> list[tuple[str, str, str | None]]:
        """Return address, outcome and detail of every row, in the order of the files' names."""
        files = sorted(Path(self.warehouse.root, "orchard", "ledger").rglob("*.parquet"))
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return [(row["address"], row["outcome"], row["detail"]) for row in rows]

    def outcomes(self, address: str) -> set[str]:
        return {outcome for name, outcome, _ in self.ledger() if name == address}


@pytest.fixture
def setup(tmp_path: Path) -> WorkerSetup:
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    return WorkerSetup(warehouse, take_lease(warehouse, "orchard", "a-run", NOW, LIFE))


def batch(*addresses: str, **decided: str) -> pa.RecordBatch:
    """Return a batch of objects of ten bytes. `decided`: objects with an outcome of the liveness check."""
    plain = {"size": 10, "last_modified": None, "etag": None}
    rows = [{"address": address, **plain, "outcome": None, "detail": None} for address in addresses]
    rows += [{"address": name, **plain, "outcome": outcome, "detail": "why"} for name, outcome in decided.items()]
    return pa.RecordBatch.from_pylist(rows, OBJECTS)


def test_the_ledger_has_rows_before_and_after_each_chunk(setup: WorkerSetup) -> None:
    recorded: list[set[str]] = []
    action = RecordingAction(lambda _: recorded.append(setup.outcomes(action.done[-1])))
    assert setup.work(action, [batch("a", "b", "c"), batch("d")]) == [
        {"outcome": "deleted", "objects": objects, "bytes": 10 * objects, "until": NOW, "reached": None}
        for objects in (2, 1, 1)
    ]
    assert action.done == ["a", "b", "c", "d"]
    assert recorded == [{"attempted"}] * 3
    assert all(setup.outcomes(address) == {"attempted", "deleted"} for address in action.done)


def test_objects_that_the_liveness_check_decided_are_recorded_and_not_processed(setup: WorkerSetup) -> None:
    action = RecordingAction()
    tally = setup.work(action, [batch("a", lives="skipped", gone="missing")])
    assert action.done == ["a"]
    assert ("lives", "skipped", "why") in setup.ledger()
    assert setup.outcomes("lives") == {"skipped"}
    assert setup.outcomes("gone") == {"missing"}
    untouched = {row["outcome"]: row["until"] for row in tally}
    assert untouched == {"skipped": None, "missing": None, "deleted": NOW}


@dataclass
class FakePreconditions:
    """Preconditions for which objects are missing in the store if their names begin with x."""

    asked: list[list[str]] = field(default_factory=list)

    def open(self) -> "FakePreconditions":
        return self

    def classified(self, objects: pa.Table, reader: object) -> pa.Table:
        self.asked.append(objects["address"].to_pylist())
        rows = [
            {**row, "outcome": "missing", "detail": "gone"} if row["address"].startswith("x") else row
            for row in objects.to_pylist()
        ]
        return pa.Table.from_pylist(rows, OBJECTS)


def test_each_chunk_is_checked_in_the_store_before_the_action(setup: WorkerSetup) -> None:
    preconditions, action = FakePreconditions(), RecordingAction()
    tally = setup.work(
        action, [batch("a", "x1", "x2", "x3", "b", lives="skipped"), batch("c")], preconditions=preconditions
    )
    assert preconditions.asked == [["a", "x1"], ["x2", "x3"], ["b"], ["c"]]
    assert action.done == ["a", "b", "c"]
    assert [setup.outcomes(name) for name in ("x1", "x2", "x3")] == [{"missing"}] * 3
    assert setup.outcomes("lives") == {"skipped"}
    assert sum(row["objects"] for row in tally) == 7


def test_objects_that_cannot_be_checked_in_the_store_are_not_processed(setup: WorkerSetup) -> None:
    class FailingPreconditions(FakePreconditions):
        def classified(self, objects: pa.Table, reader: object) -> pa.Table:
            if "c" in objects["address"].to_pylist():
                raise StoreError("no answer")
            return super().classified(objects, reader)

    action = RecordingAction()
    with pytest.raises(StoreError, match="no answer"):
        setup.work(action, [batch("a", "b", "c", "d")], preconditions=FailingPreconditions())
    assert action.done == ["a", "b"]
    assert {address for address, _, _ in setup.ledger()} == {"a", "b"}


def test_a_chunk_whose_attempt_cannot_be_recorded_is_not_processed(setup: WorkerSetup) -> None:
    setup.work(RecordingAction(), [batch("a")])
    again = RecordingAction()
    with pytest.raises(TableContractError, match="exists already"):
        setup.work(again, [batch("a")])
    assert again.done == []


def test_every_chunk_of_every_worker_and_batch_has_a_unique_name(setup: WorkerSetup) -> None:
    action = RecordingAction()
    for batch_number in (0, 1):
        for worker in ("0-0", "1-0"):
            setup.work(action, [batch("a", "b", "c"), batch("d")], worker, batch_number=batch_number)
    release_lease(setup.warehouse, setup.lease, NOW)
    setup.lease = take_lease(setup.warehouse, "orchard", "a-run", NOW, LIFE)  # the next sweep counts from the first
    setup.work(action, [batch("a", "b", "c"), batch("d")])
    names = [name for name, _ in action.asked]
    assert len(set(names)) == len(names) == 15


def test_objects_left_at_the_deadline_have_no_row(setup: WorkerSetup) -> None:
    def meanwhile(chunks_done: int) -> None:
        setup.now += timedelta(minutes=8)

    action = RecordingAction(meanwhile)
    tally = setup.work(action, [batch("a", "b", "c", "d", "e"), batch("f")])
    assert action.done == ["a", "b", "c", "d"]  # the deadline is after 15 minutes
    assert action.before_deadline == [True, False]
    assert {address for address, _, _ in setup.ledger()} == {"a", "b", "c", "d"}
    assert sum(row["objects"] for row in tally) == 4


@pytest.mark.parametrize(
    ("after", "done"),
    [(timedelta(0), []), (timedelta(microseconds=-1), ["a"])],
    ids=["the_deadline_itself_is_too_late", "before_it_is_not"],
)
def test_no_chunk_is_started_at_the_deadline(setup: WorkerSetup, after: timedelta, done: list[str]) -> None:
    setup.now = NOW + timedelta(minutes=15) + after
    action = RecordingAction()
    setup.work(action, [batch("a")])
    assert action.done == done


def test_a_worker_uses_the_clock_that_set_the_deadline(setup: WorkerSetup) -> None:
    setup.now = NOW - timedelta(hours=3)  # this machine is late
    late, right = RecordingAction(), RecordingAction()
    setup.work(late, [batch("a")], ahead=timedelta(hours=3, minutes=15))
    setup.work(right, [batch("a")], ahead=timedelta(hours=3, minutes=14))
    assert (late.done, right.done) == ([], ["a"])
    (at,) = {
        row["at"] for file in Path(setup.warehouse.root).rglob("*.parquet") for row in pq.read_table(file).to_pylist()
    }
    assert at == NOW + timedelta(minutes=14)


def test_a_clock_that_is_set_back_moves_neither_the_deadline_nor_the_times_in_the_ledger(setup: WorkerSetup) -> None:
    """Another clock would delete objects long after their liveness check, and make copies in quarantine older."""
    minutes = 0

    def meanwhile(chunks_done: int) -> None:
        nonlocal minutes
        minutes += 8
        setup.now = NOW - timedelta(days=1)

    action, task = RecordingAction(meanwhile), {"deadline": NOW + timedelta(minutes=15), "sent_at": NOW}
    spec = TaskSpec(action, setup.ledger_location(), setup.lease, batch_number=0, rate=0.2, **task)
    parts = work(spec, [batch("a", "b", "c", "d", "e")], "0-0", setup.clock, lambda: 1000 + 60.0 * minutes)
    assert sum(row["objects"] for part in parts for row in part.to_pylist()) == 4
    assert action.done == ["a", "b", "c", "d"]
    assert action.before_deadline == [True, False]
    files = Path(setup.warehouse.root).rglob("*.parquet")
    assert min(row["at"] for file in files for row in pq.read_table(file).to_pylist()) == NOW


def stop_all_sweeps(setup: WorkerSetup) -> None:
    stop_sweeps(setup.warehouse, "orchard", "ada", setup.now)


def let_the_lease_expire(setup: WorkerSetup) -> None:
    setup.now += LIFE


@pytest.mark.parametrize("lose", [stop_all_sweeps, let_the_lease_expire])
def test_a_worker_whose_lease_is_lost_ends_after_its_current_chunk(
    setup: WorkerSetup, lose: Callable[[WorkerSetup], None]
) -> None:
    action = RecordingAction(lambda _: lose(setup))
    setup.work(action, [batch("a", "b", "c", "d")], deadline=NOW + 2 * LIFE)
    assert action.done == ["a", "b"]
    assert action.before_deadline == [False]
    assert {address for address, _, _ in setup.ledger()} == {"a", "b"}


@pytest.mark.parametrize(
    ("rate", "objects"),
    [(None, 10_000), (5_000.0, 10_000), (7.0, 70), (0.05, 1)],
    ids=["without_a_rate", "at_a_high_rate", "at_a_low_rate", "at_the_lowest_rate"],
)
def test_a_chunk_is_small_enough_to_check_the_deadline_often(
    setup: WorkerSetup, rate: float | None, objects: int
) -> None:
    assert TaskSpec(RecordingAction(), setup.ledger_location(), setup.lease, NOW, 0, rate).chunk_size == objects


@pytest.mark.parametrize(
    ("sizes", "most_bytes", "expected"),
    [
        pytest.param([], None, [], id="nothing"),
        pytest.param([1, 1, 1, 1, 1], None, [(0, 3), (3, 2)], id="by_number"),
        pytest.param([4, 4, 4], 8, [(0, 2), (2, 1)], id="by_bytes"),
        pytest.param([9, 1, 20, 1], 8, [(0, 1), (1, 1), (2, 1), (3, 1)], id="a_large_object_is_a_chunk_of_its_own"),
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


def test_objects_that_the_action_left_at_the_deadline_stay_attempted_and_are_not_counted(setup: WorkerSetup) -> None:
    class ActionHalfDoneAtDeadline(RecordingAction):
        def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
            super().do(objects, name, before_deadline)
            return [
                ObjectResult(Outcome.DELETED if one == "a" else Outcome.ATTEMPTED)
                for one in objects["address"].to_pylist()
            ]

    tally = setup.work(ActionHalfDoneAtDeadline(), [batch("a", "b", "c", "d")])
    assert [(row["outcome"], row["objects"]) for row in tally] == [("deleted", 1)]
    assert setup.outcomes("a") == {"attempted", "deleted"}
    assert [setup.outcomes(name) for name in "bcd"] == [{"attempted"}] * 3


def test_a_worker_begins_at_the_rate_that_others_reached_and_returns_its_own_rate(setup: WorkerSetup) -> None:
    action = RecordingAction(lambda _: action.rate_limiters[0].throttled(action.rate_limiters[0].now() + 60))
    tally = setup.work(action, [batch("a", "b")], rate=None, reached=1_000.0)
    assert [row["reached"] for row in tally] == [pytest.approx(1_000 * 0.8 * 0.8)]
    tally = setup.work(RecordingAction(), [batch("f", "g", lives="skipped")], batch_number=1)
    assert {row["outcome"]: row["reached"] for row in tally} == {"deleted": None, "skipped": None}
