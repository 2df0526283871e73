"""The sweep's engine without Spark: objects in Arrow tables, ledger rows in a list, the names of live objects in a set.

`test_model.py` compares its reading of the ledger with that of Spark.
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
from tests.sweep.crashes.effects import outside_the_run
from tests.sweep.crashes.world import PLANNED, Row, World, address, content, name_of

_PER_BATCH, _WORKERS, _PER_CHUNK = 5, 2, 2
_CHECK_TAKES = timedelta(minutes=8)  # so that the lease is renewed on the way

Hook = Callable[[int], object]


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """Return the latest row of each address. A row of an attempt counts only if the address has no other row."""
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


def outcomes(world: World) -> dict[str, str]:
    """Return the latest outcome of each object in the ledger, by name."""
    return {name_of(row["address"]): row["outcome"] for row in latest(world.ledger()).values()}


def conclusive(rows: Iterable[Row]) -> list[Row]:
    """Return, for each address, the row that shows where the object is: its last finished or interrupted attempt.

    Failed attempts and skipped objects do not change where an object is, so their rows do not count.
    """
    by_address: dict[str, list[Row]] = {}
    for (name, _), sweep in _by_sweep(rows).items():
        ended = [row for row in sweep if row["outcome"] in FINISHED]
        attempts = [row for row in sweep if row["outcome"] == Outcome.ATTEMPTED]
        is_open = len(attempts) > len(sweep) - len(attempts)
        by_address.setdefault(name, []).extend([*ended, *attempts[:1]] if is_open else ended)
    return [_last_of(of_address) for of_address in by_address.values() if of_address]


def _last_of(rows: Sequence[Row]) -> Row:
    """Return the last row. The purge of a copy does not count for an object that was restored."""

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
    """What others do during a sweep. Each hook gets the number of the liveness check, counted over all batches."""

    before_check: Hook = lambda _: None
    after_check: Hook = lambda _: None  # before the first object is deleted or moved
    between_chunks: Hook = lambda _: None
    after_batch: Hook = lambda _: None


@dataclass
class InProcessEngine:
    """An `Engine` for the plan of a `World`. It calls `hooks` between its steps."""

    world: World
    keeps_missing: bool = False
    hooks: Hooks = field(default_factory=Hooks)
    checks: int = 0
    later: int = 0
    _batches: list[list[str]] = field(default_factory=list)

    def remaining(self, fence: int) -> Sequence[int]:
        """See `Engine`."""
        self._batches = [list(names) for names in batched(self._unfinished(fence), _PER_BATCH)]
        return [len(names) for names in self._batches]

    def resurrected(self) -> int:
        """See `Engine`."""
        return sum(name in self.world.live for names in self._batches for name in names)

    def check(self, number: int) -> Batch[pa.Table]:
        """See `Engine`."""
        self.checks += 1
        self._call_hook(self.hooks.before_check)
        world, names = self.world, self._batches[number]
        checked_at, stored = world.clock(), world.stored()
        world.checked_at, world.live_at_check = checked_at, {name: name in world.live for name in names}
        rows = [self._checked_row(name, stored) for name in names]
        world.now += _CHECK_TAKES
        self._call_hook(self.hooks.after_check)
        return Batch(pa.Table.from_pylist(rows, OBJECTS), checked_at)

    def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
        """See `Engine`. The workers run one after the other, each with its share of the objects."""
        here = replace(task, ahead=timedelta(0))
        tallies = [
            row
            for worker in range(_WORKERS)
            for tally in work(here, self._share(objects.objects, worker), f"{worker}-0", self.world.clock)
            for row in tally.to_pylist()
        ]
        self._call_hook(self.hooks.after_batch)
        total: dict[str, Amount] = {}
        for row in tallies:
            known = total.get(row["outcome"], Amount())
            total[row["outcome"]] = Amount(known.objects + row["objects"], known.bytes + row["bytes"])
        return BatchResult(total, max((row["until"] for row in tallies if row["until"]), default=None))

    def outcomes(self) -> Mapping[str, Amount]:
        """See `Engine`."""
        return amounts(latest(self.world.ledger()).values())

    def in_quarantine(self) -> Amount:
        """See `Engine`."""
        finished = latest(row for row in self.world.ledger() if row["outcome"] in FINISHED)
        return amounts(finished.values()).get(Outcome.QUARANTINED, Amount())

    def ledger_digest(self, fence: int) -> str:
        """See `Engine`."""
        return ledger_digest(self.world, fence)

    def _unfinished(self, fence: int) -> list[str]:
        over = self._finished(FINISHED, fence)
        return [name for name in sorted(PLANNED) if address(name) not in over]

    def _finished(self, ended: Sequence[str], fence: int) -> set[str]:
        """Return the addresses with one of the outcomes `ended`, or with any outcome of this sweep."""
        return {
            row["address"]
            for row in self.world.ledger()
            if row["outcome"] in ended or (row["fence"] == fence and row["outcome"] != Outcome.ATTEMPTED)
        }

    def _checked_row(self, name: str, stored: Mapping[str, bytes]) -> Row:
        size = len(content(name))
        outcome, detail = None, None
        targets = self._targets().get(address(name))
        is_live = name in self.world.live
        if is_live and (name in stored or not self._is_attempted(name)):
            outcome, detail = Outcome.SKIPPED, "came back to life"
        elif name not in stored:
            is_passed_on = self.keeps_missing and not is_live
            outcome, detail = (None, None) if is_passed_on else (Outcome.MISSING, "was already gone")
            if targets and not is_passed_on:
                found = InterruptedMoves({}).result(address(name), size, targets)
                outcome, detail = found.outcome, found.detail
        elif len(stored[name]) != size:
            outcome, detail = Outcome.SKIPPED, "changed"
        row = {"address": address(name), "size": size, "last_modified": None, "etag": None}
        return {**row, "outcome": outcome, "detail": detail, "earlier_targets": targets}

    def _is_attempted(self, name: str) -> bool:
        return any(
            row["outcome"] == Outcome.ATTEMPTED and row["address"] == address(name) for row in self.world.ledger()
        )

    def _targets(self) -> dict[str, list[str]]:
        """Return, by address, the quarantine paths to which the plan's sweeps attempted to move the object."""
        found: dict[str, list[str]] = {}
        for row in self.world.ledger():
            if row["outcome"] == Outcome.ATTEMPTED and row["detail"]:
                found.setdefault(row["address"], []).append(row["detail"])
        return found

    def _share(self, objects: pa.Table, worker: int) -> Iterator[pa.RecordBatch]:
        share = objects.take(pa.array(range(worker, objects.num_rows, _WORKERS), pa.int64()))
        for number, batch in enumerate(share.combine_chunks().to_batches(max_chunksize=_PER_CHUNK)):
            if number:
                self._call_hook(self.hooks.between_chunks)
            yield batch

    def _call_hook(self, hook: Hook) -> None:
        with outside_the_run():
            hook(self.checks - 1)


@dataclass
class InProcessUndoEngine(InProcessEngine):
    """An `Engine` that restores or purges the quarantined objects `names`."""

    names: Sequence[str] = ()

    def _unfinished(self, fence: int) -> list[str]:
        over = self._finished((Outcome.PURGED, Outcome.RESTORED), fence)
        return [name for name in self.names if address(name) not in over]

    def _checked_row(self, name: str, stored: Mapping[str, bytes]) -> Row:
        row = {"address": address(name), "size": len(content(name))}
        return {**row, **dict.fromkeys(("last_modified", "etag", "outcome", "detail"))}


def ledger_digest(world: World, fence: int) -> str:
    """Return a hash of the ledger rows of all sweeps up to and including `fence`."""
    rows = sorted(str(sorted(row.items())) for row in world.ledger() if row["fence"] <= fence)
    return sha256("\n".join(rows).encode()).hexdigest()
