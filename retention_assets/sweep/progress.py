"""Logs the progress of a running sweep: objects, rate and time left."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from retention_assets.state.ledger import LedgerPlace
from retention_assets.sweep.engine import Done

_EVERY = 10.0  # seconds between two log lines
Log = Callable[[str], None]


class Progress:
    """Counts the processed objects of all batches against the expected total."""

    def __init__(self, name: str, objects: int, clock: Callable[[], datetime], log: Log) -> None:
        self._name = name
        self._objects = objects
        self._clock = clock
        self._log = log
        self._began = clock()
        self.done = 0

    def count(self, done: Done) -> None:
        """Add the results of a finished batch, and log the progress of the sweep."""
        self.done += sum(amount.objects for amount in done.amounts.values())
        counts = ", ".join(f"{amount.objects:,} {outcome}" for outcome, amount in sorted(done.amounts.items()))
        self._log(f"{self._told(self.done)}; {counts or 'nothing'} in this round")

    def expect(self, objects: int) -> None:
        """Raise the expected total if `objects` more objects remain, for example those of the next phase."""
        self._objects = max(self._objects, self.done + objects)

    @contextmanager
    def watched(self, place: LedgerPlace) -> Iterator[None]:
        """Log the progress of the workers every few seconds, counted by the files they add to the ledger."""
        before, ended = place.objects_noted(), threading.Event()

        def watch() -> None:
            while not ended.wait(_EVERY):
                self._log(self._told(self.done + place.objects_noted() - before))

        watcher = threading.Thread(target=watch, daemon=True, name="sweep-progress")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(_EVERY)  # it may be reading the warehouse, and must not do so while the process exits

    def _told(self, done: int) -> str:
        seconds = (self._clock() - self._began).total_seconds()
        rate = done / seconds if seconds else 0.0
        left = f"{timedelta(seconds=round((self._objects - done) / rate))} left" if rate else "time left unknown"
        return f"{self._name}: {done:,} of {self._objects:,} objects, {rate:,.0f} objects/s, {left}"
