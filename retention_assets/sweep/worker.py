"""Applies an action to a worker's share of a batch, one chunk at a time.

A batch is a set of objects that one liveness check covers. A chunk is a part of a batch. For each chunk,
the worker writes `attempted` rows to the ledger, applies the action, and writes the results.

These are plain functions over Arrow record batches: Spark runs them on executors, a test runs them in its own process.
The worker sends no request to change an object after the deadline. When the lease is lost, it stops within seconds.
Source: docs/safety.md, "Before and during a sweep".
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import compress
from math import inf
from typing import ClassVar, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.timestamps import Clock, elapsed_seconds, utc_now
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.lease import Lease, holds
from retention_assets.state.ledger import AFTER, DECIDED, DONE, LedgerLocation
from retention_assets.sweep.preconditions import Preconditions
from retention_assets.tables import LEDGER, TIMESTAMP
from retention_assets.warehouse.warehouse import Warehouse

_MOST_IN_CHUNK = 10_000  # objects: ten bulk requests; after a crash, a worker has at most so many unknown results
_FIRST_CHUNK = 1_000  # objects: nothing is processed until the first chunk is checked, so it is small
_GROWTH = 4  # factor by which chunks of the first record batch grow
_SECONDS_PER_CHUNK = 10  # at a low rate, chunks are smaller, so that the deadline is checked every 10 seconds

OBJECTS = pa.schema(
    [
        ("address", pa.string()),
        ("size", pa.int64()),
        ("last_modified", TIMESTAMP),
        ("etag", pa.string()),
        ("outcome", pa.string()),  # decided by the liveness check; null: the action is still to be applied
        ("detail", pa.string()),  # without an outcome: why `Preconditions` skips the object if it exists
        ("earlier_targets", pa.list_(pa.string())),  # see `InterruptedMoves`; null: none
    ]
)
TALLY = pa.schema(
    [
        ("outcome", pa.string()),
        ("objects", pa.int64()),
        ("bytes", pa.int64()),
        ("until", TIMESTAMP),
        ("reached", pa.float64()),  # objects per second, see `RateLimiter`
    ]
)


BeforeDeadline = Callable[[], bool]


class Action(Protocol):
    """An operation on objects, such as `Delete` or `Quarantine`. It is pickled to executors, which open it."""

    chunk_bytes: ClassVar[int | None]  # most bytes in one chunk; None: no limit

    @property
    def target(self) -> str | None:
        """The URL of the quarantine folder to which the action moves objects; None: it moves none."""
        ...

    def open(self, rate_limiter: RateLimiter) -> "Action":
        """Return a copy of the action with open clients that keep to the rate of `rate_limiter`."""
        ...

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """Apply the open action to each row of `OBJECTS`, and return the results in the same order.

        A store error is returned as an outcome; it is not raised. Objects that are left at the deadline have the
        outcome `attempted`; no second ledger row is written for them.

        Args:
            objects: one chunk, as rows of `OBJECTS`.
            name: unique to this chunk among all sweeps of the repository.
            before_deadline: returns whether the deadline has not passed and the run still holds its lease. It returned
                true before this chunk. A slow action must call it again before each delete: the liveness check allows
                deletes only until the deadline.
        """
        ...


@runtime_checkable
class CleansUp(Protocol):
    """An action with a second step, which follows when the ledger has the results of the first."""

    def clean_up(
        self, objects: pa.Table, results: Sequence[ObjectResult], before_deadline: BeforeDeadline
    ) -> Sequence[ObjectResult]:
        """Do the second step, and return the results again, some of them with another detail.

        `objects`: those with known results, as rows of `OBJECTS`. See `Action.do`.
        """
        ...


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The parameters of one batch, the same for every worker; pickled to executors.

    `rate` and `reached` are objects per second of each worker: `rate` is the ceiling, `reached` is the rate that the
    store accepted in earlier batches.
    """

    action: Action
    ledger: LedgerLocation
    lease: Lease
    deadline: datetime
    batch_number: int  # counted over all passes of this sweep
    rate: float | None = None
    reached: float | None = None
    ahead: timedelta = timedelta(0)  # how far the run's clock is ahead of the clock of its machine
    sent_at: datetime | None = None  # by the run's clock; None: the clock of the worker's machine counts alone
    workers: int = 1  # the number of workers, which share the rate of the sweep
    preconditions: Preconditions | None = None  # checked before each chunk; None: the action checks by itself

    @property
    def chunk_size(self) -> int:
        """The most objects in a chunk. The worker checks the deadline and the lease before each chunk."""
        return _MOST_IN_CHUNK if self.rate is None else max(1, min(_MOST_IN_CHUNK, int(self.rate * _SECONDS_PER_CHUNK)))


def work(
    task: TaskSpec,
    batches: Iterable[pa.RecordBatch],
    worker: str,
    system: Clock = utc_now,
    elapsed: Callable[[], float] = elapsed_seconds,
) -> Iterator[pa.RecordBatch]:
    """Process record batches of `OBJECTS`, and yield `TALLY` rows that count the rows written to the ledger.

    `worker` names the Spark partition and its attempt. Objects that are left at the deadline are in no tally. `system`
    and `elapsed`: the clocks of this machine.
    """
    warehouse, rate_limiter = Warehouse(task.ledger.warehouse), RateLimiter(task.rate, task.reached)
    open_action, began = task.action.open(rate_limiter), elapsed()

    def clock() -> datetime:
        # If this machine's clock is slow or is set back, the deadline must not move, and the ledger must not have times
        # that make an object in quarantine look older than it is.
        earliest = task.sent_at + timedelta(seconds=elapsed() - began) if task.sent_at else None
        return max(filter(None, (system() + task.ahead, earliest)))

    def before_deadline() -> bool:
        # The clock is read last: this machine may sleep, or the process may be suspended, while the store answers.
        return holds(warehouse, task.lease, clock()) and clock() < task.deadline

    for name, objects in _classified(task.preconditions, _chunks_of(task, batches, worker)):
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            pairs = zip(decided["outcome"].to_pylist(), decided["detail"].to_pylist(), strict=True)
            results = [ObjectResult(Outcome(outcome), detail) for outcome, detail in pairs]
            yield _tally(_recorded(task, decided, results, name, clock(), DECIDED))
        to_delete = objects.filter(pc.is_null(objects["outcome"]))
        if to_delete.num_rows:
            if not before_deadline():
                return
            rows = _processed(task, open_action, to_delete, name, clock, before_deadline)
            if rows.num_rows:
                yield _tally(rows, until=clock(), reached=rate_limiter.reached)


_NamedChunk = tuple[str, pa.Table]


def _chunks_of(task: TaskSpec, batches: Iterable[pa.RecordBatch], worker: str) -> Iterator[_NamedChunk]:
    """Yield, for each record batch, the objects that the liveness check decided, then all other objects in chunks.

    Each chunk has a unique name.
    """
    for number, batch in enumerate(batches):
        objects = pa.Table.from_batches([batch]).cast(OBJECTS)
        name = f"{task.batch_number:05d}-{worker}-{number:05d}"
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            yield name, decided
        to_delete = objects.filter(pc.is_null(objects["outcome"]))
        first = task.chunk_size if number else _FIRST_CHUNK
        for start, length in chunks(to_delete["size"].to_pylist(), task.chunk_size, task.action.chunk_bytes, first):
            yield f"{name}-{start:07d}", to_delete.slice(start, length)


def _classified(preconditions: Preconditions | None, named_chunks: Iterable[_NamedChunk]) -> Iterator[_NamedChunk]:
    """Yield each chunk with the outcomes of the precondition check.

    The next chunk is checked while the caller processes the current one.
    """
    if preconditions is None:
        yield from named_chunks
        return
    reader = preconditions.open()

    def classified(objects: pa.Table) -> pa.Table:
        return preconditions.classified(objects, reader) if objects["outcome"].null_count else objects

    with ThreadPoolExecutor(1) as pool:
        pending: tuple[str, Future[pa.Table]] | None = None
        for name, objects in named_chunks:
            following = name, pool.submit(classified, objects)
            if pending:
                yield pending[0], pending[1].result()
            pending = following
        if pending:
            yield pending[0], pending[1].result()


def chunks(
    sizes: Sequence[int], most: float, most_bytes: float | None, first: float = inf, fewest: int = 1
) -> Iterator[tuple[int, int]]:
    """Yield (start, length) of each chunk of objects that have these sizes. Each chunk has at least one object.

    The first chunk has at most `first` objects. The limit of each further chunk is four times the limit of the chunk
    before, up to `most`. A chunk with more than `fewest` objects has at most `most_bytes` bytes.
    """
    start = total = 0
    now = min(first, most)
    for number, size in enumerate(sizes):
        objects = number - start
        if objects == now or (most_bytes is not None and objects >= fewest and total + size > most_bytes):
            yield start, objects
            start, total, now = number, 0, min(now * _GROWTH, most)
        total += size
    if start < len(sizes):
        yield start, len(sizes) - start


def _processed(
    task: TaskSpec, open_action: Action, chunk: pa.Table, name: str, clock: Clock, before_deadline: BeforeDeadline
) -> pa.Table:
    """Write `attempted` rows for a chunk, apply the action, write the results, and return the rows of the results.

    An action that cleans up (`CleansUp`) does so at the end, and its changed results are written, too.
    After a crash, the `attempted` rows show which objects may be gone, and to which folder they may have been moved.
    """
    attempted = [ObjectResult(Outcome.ATTEMPTED, task.action.target)] * chunk.num_rows
    _recorded(task, chunk, attempted, name, clock(), "attempted")
    unique_name = f"{task.ledger.fence:08d}-{name}"  # every sweep numbers its chunks from 0, so the fence is needed
    results = open_action.do(chunk, unique_name, before_deadline)
    known = [one for one in results if one.outcome != Outcome.ATTEMPTED]
    if not known:
        return LEDGER.empty_table()
    done = chunk.filter(pa.array([one.outcome != Outcome.ATTEMPTED for one in results]))
    rows = _recorded(task, done, known, name, clock(), DONE)
    if isinstance(open_action, CleansUp):
        after = open_action.clean_up(done, known, before_deadline)
        changed = [new != old for new, old in zip(after, known, strict=True)]
        if any(changed):
            _recorded(
                task, done.filter(pa.array(changed)), list(compress(after, changed)), f"{name}-{AFTER}", clock(), DONE
            )
    return rows


def _recorded(
    task: TaskSpec, objects: pa.Table, results: Sequence[ObjectResult], name: str, at: datetime, stage: str
) -> pa.Table:
    """Append the results of the objects to the ledger, and return the rows."""
    rows = task.ledger.rows(objects, results, at)
    task.ledger.append(rows, name, stage)
    return rows


def _tally(rows: pa.Table, until: datetime | None = None, reached: float | None = None) -> pa.RecordBatch:
    sums = rows.group_by("outcome").aggregate([("size", "count"), ("size", "sum")])
    columns = [
        sums["outcome"],
        sums["size_count"],
        sums["size_sum"],
        pa.repeat(pa.scalar(until, TIMESTAMP), sums.num_rows),
        pa.repeat(pa.scalar(reached, pa.float64()), sums.num_rows),
    ]
    return pa.table(columns, schema=TALLY).combine_chunks().to_batches()[0]
