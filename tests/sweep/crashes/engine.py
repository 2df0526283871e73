"""The sweep's engine in this process: objects in Arrow tables, the ledger in lists, a model of what is live.

What Spark does is written here once more, in plain Python; one test holds the two against each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import batched

import pyarrow as pa

from retention_assets.core.amounts import Amount
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.state.ledger import FINISHED
from retention_assets.sweep.engine import Batch, BatchResult
from retention_assets.sweep.preconditions import InterruptedMoves
from retention_assets.sweep.worker import OBJECTS, TaskSpec, work
from tests.sweep.crashes.effects import aside
from tests.sweep.crashes.world import PLANNED, Row, World, address, content

_PER_ROUND, _WORKERS, _PER_BATCH = 5, 2, 2
_A_LOOK_TAKES = timedelta(minutes=8)  # so that the lease is renewed on the way

Hook = Callable[[int], object]


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the latest known word on each address; `attempted` where nothing else is known."""
    found: dict[str, Row] = {}
    for row in sorted(
        rows,
        key=lambda row: (
            row["outcome"] != Outcome.ATTEMPTED,
            row["fence"],
            row["outcome"] == Outcome.DELETED,
            row["outcome"] in FINISHED,
            row["at"],
        ),
    ):
        found[row["address"]] = row
    return found


def standing(rows: Iterable[Row]) -> list[Row]:
    """Return of each address the row that says where it is: how an attempt ended, or that its end is not known.

    An attempt that failed, or an object that was left alone, says nothing new: what was said before stands.
    """
    conclusive: dict[str, list[Row]] = {}
    for (name, _), sweep in _by_sweep(rows).items():
        ended = [row for row in sweep if row["outcome"] in FINISHED]
        attempts = [row for row in sweep if row["outcome"] == Outcome.ATTEMPTED]
        is_open = len(attempts) > len(sweep) - len(attempts)
        conclusive.setdefault(name, []).extend([*ended, *attempts[:1]] if is_open else ended)
    return [_last_of(of_address) for of_address in conclusive.values() if of_address]


def _last_of(rows: Sequence[Row]) -> Row:
    """Return the last row; the purge of a copy says nothing of an object that was restored."""

    def order(row: Row) -> tuple[int, bool, datetime]:
        return row["fence"], row["outcome"] != Outcome.ATTEMPTED, row["at"]

    others = [row for row in rows if not (row["outcome"] == Outcome.PURGED and row["detail"] == OF_COPY)]
    last = max(others, key=order, default=None)
    return last if last and last["outcome"] == Outcome.RESTORED else max(rows, key=order)


def _by_sweep(rows: Iterable[Row]) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row["address"], row["fence"]), []).append(row)
    return found


def amounts(rows: Iterable[Row]) -> dict[str, Amount]:
    """Return objects and bytes by outcome."""
    total: dict[str, Amount] = {}
    for row in rows:
        known = total.get(row["outcome"], Amount())
        total[row["outcome"]] = Amount(known.objects + 1, known.bytes + row["size"])
    return total


@dataclass
class Hooks:
    """What others do while a sweep is at work. Each is told the number of the look, counted over all passes."""

    before_look: Hook = lambda _: None
    after_look: Hook = lambda _: None  # between look and deed
    between_batches: Hook = lambda _: None
    after_round: Hook = lambda _: None


@dataclass
class EngineHere:
    """See `Engine`: of a sweep's plan."""

    world: World
    keeps_missing: bool = False
    hooks: Hooks = field(default_factory=Hooks)
    looks: int = 0
    _rounds: list[list[str]] = field(default_factory=list)

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`."""
        self._rounds = [list(names) for names in batched(self._unfinished(fence), _PER_ROUND)]
        return [len(names) for names in self._rounds]

    def resurrected(self) -> int:
        """See `Engine`."""
        return sum(name in self.world.live for names in self._rounds for name in names)

    def check(self, number: int) -> Batch[pa.Table]:
        """See `Engine`."""
        self.looks += 1
        self._let(self.hooks.before_look)
        world, names = self.world, self._rounds[number]
        checked_at, stored = world.clock(), world.stored()
        world.checked_at, world.looked = checked_at, {name: name in world.live for name in names}
        rows = [self._fate(name, stored) for name in names]
        world.now += _A_LOOK_TAKES
        self._let(self.hooks.after_look)
        return Batch(pa.Table.from_pylist(rows, OBJECTS), checked_at)

    def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
        """See `Engine`. One worker after the other, each with its share in small batches."""
        here = replace(task, ahead=timedelta(0))
        tallies = [
            row
            for worker in range(_WORKERS)
            for tally in work(here, self._share(objects.objects, worker), f"{worker}-0", self.world.clock)
            for row in tally.to_pylist()
        ]
        self._let(self.hooks.after_round)
        total: dict[str, Amount] = {}
        for row in tallies:
            known = total.get(row["outcome"], Amount())
            total[row["outcome"]] = Amount(known.objects + row["objects"], known.bytes + row["bytes"])
        return BatchResult(total, max((row["until"] for row in tallies if row["until"]), default=None))

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts(latest(self.world.ledger()).values())

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self.world, fence)

    def _unfinished(self, fence: int) -> list[str]:
        over = self._over(FINISHED, fence)
        return [name for name in sorted(PLANNED) if address(name) not in over]

    def _over(self, ended: Sequence[str], fence: int) -> set[str]:
        """Return the addresses that ended so, or of which this sweep knows what became of them."""
        return {
            row["address"]
            for row in self.world.ledger()
            if row["outcome"] in ended or (row["fence"] == fence and row["outcome"] != Outcome.ATTEMPTED)
        }

    def _fate(self, name: str, stored: Mapping[str, bytes]) -> Row:
        size = len(content(name))
        outcome, detail = None, None
        targets = self._targets().get(address(name))
        if name in self.world.live:
            outcome, detail = Outcome.SKIPPED, "came back to life"
        elif name not in stored:
            outcome, detail = (None, None) if self.keeps_missing else (Outcome.MISSING, "was gone before")
            if targets and not self.keeps_missing:
                found = InterruptedMoves({}).result(address(name), size, targets)
                outcome, detail = found.outcome, found.detail
        elif len(stored[name]) != size:
            outcome, detail = Outcome.SKIPPED, "changed"
        row = {"address": address(name), "size": size, "last_modified": None, "etag": None}
        return {**row, "outcome": outcome, "detail": detail, "earlier_targets": targets}

    def _targets(self) -> dict[str, list[str]]:
        """Return, by address, where the attempts of the plan's sweeps moved objects to."""
        found: dict[str, list[str]] = {}
        for row in self.world.ledger():
            if row["outcome"] == Outcome.ATTEMPTED and row["detail"]:
                found.setdefault(row["address"], []).append(row["detail"])
        return found

    def _share(self, objects: pa.Table, worker: int) -> Iterator[pa.RecordBatch]:
        share = objects.take(pa.array(range(worker, objects.num_rows, _WORKERS), pa.int64()))
        for number, batch in enumerate(share.combine_chunks().to_batches(max_chunksize=_PER_BATCH)):
            if number:
                self._let(self.hooks.between_batches)
            yield batch

    def _let(self, hook: Hook) -> None:
        with aside():
            hook(self.looks - 1)


@dataclass
class EngineOfQuarantine(EngineHere):
    """See `Engine`: of what lies in quarantine, to be restored or purged."""

    names: Sequence[str] = ()

    def _unfinished(self, fence: int) -> list[str]:
        over = self._over((Outcome.PURGED, Outcome.RESTORED), fence)
        return [name for name in self.names if address(name) not in over]

    def _fate(self, name: str, stored: Mapping[str, bytes]) -> Row:
        row = {"address": address(name), "size": len(content(name))}
        return {**row, **dict.fromkeys(("last_modified", "etag", "outcome", "detail"))}


def ledger_digest(world: World, fence: int) -> str:
    """Return a hash of the plan's ledger up to and with the sweep of `fence`."""
    rows = sorted(str(sorted(row.items())) for row in world.ledger() if row["fence"] <= fence)
    return sha256("\n".join(rows).encode()).hexdigest()
