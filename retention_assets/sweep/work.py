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

from retention_assets.config.instants import Clock, utc_now
from retention_assets.objectstore.pace import Pace
from retention_assets.state.lease import Lease, holds
from retention_assets.state.ledger import ATTEMPTED, DONE, LedgerPlace
from retention_assets.state.warehouse import Warehouse
from retention_assets.sweep.facts import Facts
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
class Ended:
    """What became of one object."""

    outcome: str
    detail: str | None = None


InTime = Callable[[], bool]


class Deed(Protocol):
    """What is done to objects: deleted, quarantined, restored, purged. It travels to executors."""

    group_bytes: ClassVar[int | None]  # what one group has at most; None: it makes no difference

    def open(self, pace: Pace) -> "Doer":
        """Return what does it at this pace, with its clients open."""
        ...


class Doer(Protocol):
    """A deed at work on one executor."""

    def do(self, objects: pa.Table, name: str, in_time: InTime) -> Sequence[Ended]:
        """Do it to each row of `OBJECTS`, in their order. No store's error is raised: it is an outcome.

        `attempted` is the outcome of what was left, because the time was over: it gets no second line in the ledger.

        `name` is of this group alone, among all sweeps of the repository. `in_time` was true when the group was begun;
        a deed that takes long asks again before it takes away what the look at what is live allowed to be taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class Orders:
    """What every worker of a round is told; it travels to executors.

    In objects per second, of each worker: `rate`, a ceiling; `reached`, what the rounds before found the store to take.
    """

    deed: Deed
    ledger: LedgerPlace
    lease: Lease
    deadline: datetime
    turn: int  # which round of the sweep it is, counted over all passes
    rate: float | None = None
    reached: float | None = None
    ahead: timedelta = timedelta(0)  # of this machine's clock, the clock by which the deadline was set
    facts: Facts | None = None  # what asks the store again just before; None: the deed itself does

    @property
    def group(self) -> int:
        """How many objects are worked on between two looks at deadline and lease."""
        return _GROUP if self.rate is None else max(1, min(_GROUP, int(self.rate * _SECONDS_PER_GROUP)))


def work(
    orders: Orders, batches: Iterable[pa.RecordBatch], worker: str, system: Clock = utc_now
) -> Iterator[pa.RecordBatch]:
    """Work on batches of `OBJECTS`, and yield a `TALLY` of what was written to the ledger.

    `worker` names this share of the round, and its try. What is left when the deadline comes has no row.
    """
    warehouse, pace = Warehouse(orders.ledger.warehouse), Pace(orders.rate, orders.reached)
    doer = orders.deed.open(pace)

    def clock() -> datetime:
        return system() + orders.ahead

    def in_time() -> bool:
        return clock() < orders.deadline and holds(warehouse, orders.lease, clock())

    for name, objects in _judged(orders.facts, _groups_of(orders, batches, worker)):
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            yield _tally(_noted(orders, decided, _ended(decided), name, clock(), "decided"))
        doomed = objects.filter(pc.is_null(objects["outcome"]))
        if doomed.num_rows:
            if not in_time():
                return
            done = _done(orders, doer, doomed, name, clock, in_time)
            if done.num_rows:
                yield _tally(done, until=clock(), reached=pace.reached)


_Named = tuple[str, pa.Table]


def _groups_of(orders: Orders, batches: Iterable[pa.RecordBatch], worker: str) -> Iterator[_Named]:
    """Yield what a look decided of each batch, and then its groups, each with a name of its own."""
    for number, batch in enumerate(batches):
        objects = pa.Table.from_batches([batch]).cast(OBJECTS)
        name = f"{orders.turn:05d}-{worker}-{number:05d}"
        decided = objects.filter(pc.is_valid(objects["outcome"]))
        if decided.num_rows:
            yield name, decided
        doomed = objects.filter(pc.is_null(objects["outcome"]))
        first = orders.group if number else _FIRST_GROUP
        for start, length in groups(doomed["size"].to_pylist(), orders.group, orders.deed.group_bytes, first):
            yield f"{name}-{start:07d}", doomed.slice(start, length)


def _judged(facts: Facts | None, named: Iterable[_Named]) -> Iterator[_Named]:
    """Yield each group as the store has it by now. It is asked about one group while another is worked on."""
    if facts is None:
        yield from named
        return
    asking = facts.open()

    def judged(objects: pa.Table) -> pa.Table:
        return asking.judged(objects) if objects["outcome"].null_count else objects

    with ThreadPoolExecutor(1) as pool:
        asked: tuple[str, Future[pa.Table]] | None = None
        for name, objects in named:
            following = name, pool.submit(judged, objects)
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


def _done(orders: Orders, doer: Doer, group: pa.Table, name: str, clock: Clock, in_time: InTime) -> pa.Table:
    """Do the deed to a group between its two lines of the ledger, and return the second."""
    attempted = [Ended(ATTEMPTED)] * group.num_rows
    _noted(orders, group, attempted, name, clock(), "attempted")
    ended = doer.do(group, f"{orders.ledger.fence:08d}-{name}", in_time)  # every sweep counts its groups from the first
    known = [one for one in ended if one.outcome != ATTEMPTED]
    if not known:
        return LEDGER.empty_table()
    answered = pa.array([one.outcome != ATTEMPTED for one in ended])
    return _noted(orders, group.filter(answered), known, name, clock(), DONE)


def _noted(orders: Orders, objects: pa.Table, ended: Sequence[Ended], name: str, at: datetime, stage: str) -> pa.Table:
    """Append to the ledger what became of objects, and return the rows."""
    rows = _rows(orders, objects, ended, at)
    orders.ledger.append(rows, name, stage)
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


def _ended(decided: pa.Table) -> list[Ended]:
    pairs = zip(decided["outcome"].to_pylist(), decided["detail"].to_pylist(), strict=True)
    return [Ended(outcome, detail) for outcome, detail in pairs]


def _rows(orders: Orders, objects: pa.Table, ended: Sequence[Ended], at: datetime) -> pa.Table:
    columns = [
        objects["address"],
        objects["size"],
        pa.array([one.outcome for one in ended], pa.string()),
        pa.array([one.detail for one in ended], pa.string()),
        pa.repeat(pa.scalar(at, INSTANT), objects.num_rows),
        pa.repeat(pa.scalar(orders.ledger.fence, pa.int64()), objects.num_rows),
    ]
    return pa.table(columns, schema=LEDGER)
