"""What an executor does with its share of a round: note it, do it, note what came of it, a group at a time.

Plain functions over Arrow batches: Spark runs them on executors, a test in its own process. Nothing is touched after
the deadline, nor once the lease is gone. Source: DESIGN.md, invariants 5 and 8.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.config.timestamps import Clock, utc_now
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.lease import Lease, holds
from retention_assets.state.ledger import ATTEMPTED, DONE, LedgerPlace
from retention_assets.state.warehouse import Warehouse
from retention_assets.sweep.preconditions import Facts
from retention_assets.tables import INSTANT, LEDGER

_GROUP = 10_000  # objects between two lines of the ledger: what a crash leaves unknown, and ten bulk requests at once
_FIRST_GROUP = 1_000  # objects: the store is soon asked about so few, and about the next ones while these go
_GROWTH = 4  # of each further group of the first batch
_SECONDS_PER_GROUP = 10  # at a low rate a group is smaller, so that the deadline is looked at this often

OBJECTS = pa.schema(
    [
        ("address", pa.string()),
        ("size", pa.int64()),
        ("last_modified", INSTANT),
        ("etag", pa.string()),
        ("outcome", pa.string()),  # decided already, or null: to be worked on
        ("detail", pa.string()),
    ]
)
TALLY = pa.schema(
    [
        ("outcome", pa.string()),
        ("objects", pa.int64()),
        ("bytes", pa.int64()),
        ("until", INSTANT),
        ("reached", pa.float64()),  # objects per second, see `Pace`
    ]
)


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """What became of one object."""

    outcome: str
    detail: str | None = None


BeforeDeadline = Callable[[], bool]


class Action(Protocol):
    """What is done to objects: deleted, quarantined, restored, purged. It travels to executors."""

    group_bytes: ClassVar[int | None]  # what one group has at most; None: it makes no difference

    def open(self, rate_limiter: RateLimiter) -> "OpenAction":
        """Return what does it at this pace, with its clients open."""
        ...


class OpenAction(Protocol):
    """A action at work on one executor."""

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        """Do it to each row of `OBJECTS`, in their order. No store's error is raised: it is an outcome.

        `attempted` is the outcome of what was left, because the time was over: it gets no second line in the ledger.

        `name` is of this group alone, among all sweeps of the repository. `in_time` was true when the group was begun;
        a action that takes long asks again before it takes away what the look at what is live allowed to be taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """What every worker of a round is told; it travels to executors.

    In objects per second, of each worker: `rate`, a ceiling; `reached`, what the rounds before found the store to take.
    """

    action: Action
    ledger: LedgerPlace
    lease: Lease
    deadline: datetime
    turn: int  # which round of the sweep it is, counted over all passes
    rate: float | None = None
    reached: float | None = None
    ahead: timedelta = timedelta(0)  # of this machine's clock, the clock by which the deadline was set
    facts: Facts | None = None  # what asks the store again just before; None: the action itself does

    @property
    def group(self) -> int:
        """How many objects are worked on between two looks at deadline and lease."""
        return _GROUP if self.rate is None else max(1, min(_GROUP, int(self.rate * _SECONDS_PER_GROUP)))


def work(
    task: TaskSpec, batches: Iterable[pa.RecordBatch], worker: str, system: Clock = utc_now
) -> Iterator[pa.RecordBatch]:
    """Work on batches of `OBJECTS`, and yield a `TALLY` of what was written to the ledger.

    `worker` names this share of the round, and its try. What is left when the deadline comes has no row.
    """
    warehouse, rate_limiter = Warehouse(task.ledger.warehouse), RateLimiter(task.rate, task.reached)
    open_action = task.action.open(rate_limiter)

    def clock() -> datetime:
        return system() + task.ahead

    def before_deadline() -> bool:
        return clock() < task.deadline and holds(warehouse, task.lease, clock())

    for name, objects in _judged(task.facts, _groups_of(task, batches, worker)):
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            yield _tally(_noted(task, decided, _ended(decided), name, clock(), "decided"))
        to_delete = objects.filter(pc.is_null(objects["outcome"]))
        if to_delete.num_rows:
            if not before_deadline():
                return
            done = _done(task, open_action, to_delete, name, clock, before_deadline)
            if done.num_rows:
                yield _tally(done, until=clock(), reached=rate_limiter.reached)


_Named = tuple[str, pa.Table]


def _groups_of(task: TaskSpec, batches: Iterable[pa.RecordBatch], worker: str) -> Iterator[_Named]:
    """Yield what a look decided of each batch, and then its groups, each with a name of its own."""
    for number, batch in enumerate(batches):
        objects = pa.Table.from_batches([batch]).cast(OBJECTS)
        name = f"{task.turn:05d}-{worker}-{number:05d}"
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            yield name, decided
        to_delete = objects.filter(pc.is_null(objects["outcome"]))
        first = task.group if number else _FIRST_GROUP
        for start, length in groups(to_delete["size"].to_pylist(), task.group, task.action.group_bytes, first):
            yield f"{name}-{start:07d}", to_delete.slice(start, length)


def _judged(facts: Facts | None, named: Iterable[_Named]) -> Iterator[_Named]:
    """Yield each group as the store has it by now. It is asked about one group while another is worked on."""
    if facts is None:
        yield from named
        return
    asking = facts.open()

    def classified(objects: pa.Table) -> pa.Table:
        return asking.classified(objects) if objects["outcome"].null_count else objects

    with ThreadPoolExecutor(1) as pool:
        asked: tuple[str, Future[pa.Table]] | None = None
        for name, objects in named:
            following = name, pool.submit(classified, objects)
            if asked:
                yield asked[0], asked[1].result()
            asked = following
        if asked:
            yield asked[0], asked[1].result()


def groups(sizes: Sequence[int], most: int, most_bytes: int | None, first: int) -> Iterator[tuple[int, int]]:
    """Yield where each group of objects of these sizes starts, and how many it has: at least one.

    The first has `first` at most, each further one four times what the one before may have, up to `most`.
    """
    start = total = 0
    now = min(first, most)
    for place, size in enumerate(sizes):
        if place - start == now or (most_bytes is not None and place > start and total + size > most_bytes):
            yield start, place - start
            start, total, now = place, 0, min(now * _GROWTH, most)
        total += size
    if start < len(sizes):
        yield start, len(sizes) - start


def _done(
    task: TaskSpec, open_action: OpenAction, group: pa.Table, name: str, clock: Clock, before_deadline: BeforeDeadline
) -> pa.Table:
    """Do the action to a group between its two lines of the ledger, and return the second."""
    attempted = [ObjectResult(ATTEMPTED)] * group.num_rows
    _noted(task, group, attempted, name, clock(), "attempted")
    ended = open_action.do(
        group, f"{task.ledger.fence:08d}-{name}", before_deadline
    )  # every sweep counts its groups from the first
    known = [one for one in ended if one.outcome != ATTEMPTED]
    if not known:
        return LEDGER.empty_table()
    answered = pa.array([one.outcome != ATTEMPTED for one in ended])
    return _noted(task, group.filter(answered), known, name, clock(), DONE)


def _noted(
    task: TaskSpec, objects: pa.Table, ended: Sequence[ObjectResult], name: str, at: datetime, stage: str
) -> pa.Table:
    """Append to the ledger what became of objects, and return the rows."""
    rows = _rows(task, objects, ended, at)
    task.ledger.append(rows, name, stage)
    return rows


def _tally(rows: pa.Table, until: datetime | None = None, reached: float | None = None) -> pa.RecordBatch:
    sums = rows.group_by("outcome").aggregate([("size", "count"), ("size", "sum")])
    columns = [
        sums["outcome"],
        sums["size_count"],
        sums["size_sum"],
        pa.repeat(pa.scalar(until, INSTANT), sums.num_rows),
        pa.repeat(pa.scalar(reached, pa.float64()), sums.num_rows),
    ]
    return pa.table(columns, schema=TALLY).combine_chunks().to_batches()[0]


def _ended(decided: pa.Table) -> list[ObjectResult]:
    pairs = zip(decided["outcome"].to_pylist(), decided["detail"].to_pylist(), strict=True)
    return [ObjectResult(outcome, detail) for outcome, detail in pairs]


def _rows(task: TaskSpec, objects: pa.Table, ended: Sequence[ObjectResult], at: datetime) -> pa.Table:
    columns = [
        objects["address"],
        objects["size"],
        pa.array([one.outcome for one in ended], pa.string()),
        pa.array([one.detail for one in ended], pa.string()),
        pa.repeat(pa.scalar(at, INSTANT), objects.num_rows),
        pa.repeat(pa.scalar(task.ledger.fence, pa.int64()), objects.num_rows),
    ]
    return pa.table(columns, schema=LEDGER)
