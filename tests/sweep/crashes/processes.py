"""The effects of a run in several processes, driver and Spark's workers: counted together; when one dies, all do."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.sweep.worker import Action
from tests.sweep.crashes.effects import Effect, Effects, Notes, Point, aside, watch_from_now_on


class SharedNotes(Notes):
    """What all processes of a run note, in one folder; they do so for as long as it has a file `on`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_on(self) -> bool:  # type: ignore[override]
        return (self._folder / "on").exists()

    @property
    def dead(self) -> bool:  # type: ignore[override]
        return (self._folder / "dead").exists()

    @property
    def seen(self) -> list[Effect]:  # type: ignore[override]
        lines = (self._folder / "seen").read_text("utf-8").splitlines()
        return [Effect(verb, target, bool(half)) for verb, target, half in (line.split("\t") for line in lines)]

    @contextmanager
    def alone(self) -> Iterator[None]:
        with aside(), (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a process that dies lets go of it
            yield

    def add(self, effect: Effect) -> int:
        half = "half" if effect.divisible else ""
        with (self._folder / "seen").open("a", encoding="utf-8") as seen:
            seen.write(f"{effect.verb}\t{effect.target}\t{half}\n")
        return len(self.seen) - 1

    def end(self) -> None:
        (self._folder / "dead").touch()


@contextmanager
def notes_in(folder: Path) -> Iterator[SharedNotes]:
    """Give notes that all processes take for as long as the block lasts."""
    folder.mkdir()
    (folder / "seen").touch()
    (folder / "on").touch()
    try:
        yield SharedNotes(folder)
    finally:
        (folder / "on").unlink()


class _OfAWorker(Effects):
    def end_process(self) -> NoReturn:
        os._exit(1)


@dataclass(frozen=True)
class Mortal:
    """A deed whose workers are watched, and die with their run."""

    action: Action
    root: Path
    folder: Path
    point: Point | None

    @property
    def chunk_bytes(self) -> int | None:
        return self.action.chunk_bytes

    @property
    def target(self) -> str | None:
        return self.action.target

    def open(self, rate_limiter: RateLimiter) -> Action:
        watch_from_now_on(_OfAWorker(self.root, self.point, notes=SharedNotes(self.folder)))
        return self.action.open(rate_limiter)
