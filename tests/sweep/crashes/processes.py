"""Crashes of a run with several processes: the driver and Spark's workers. When one process dies, all die."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.sweep.worker import Action
from tests.sweep.crashes.effects import Effect, EffectLog, Effects, Point, outside_the_run, watch_from_now_on


class SharedEffectLog(EffectLog):
    """The side effects of all processes of a run, in one folder. They are recorded while it has a file named `on`."""

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
    def exclusive(self) -> Iterator[None]:
        with outside_the_run(), (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the lock ends with its process
            yield

    def add(self, effect: Effect) -> int:
        half = "half" if effect.divisible else ""
        with (self._folder / "seen").open("a", encoding="utf-8") as seen:
            seen.write(f"{effect.verb}\t{effect.target}\t{half}\n")
        return len(self.seen) - 1

    def end(self) -> None:
        (self._folder / "dead").touch()


@contextmanager
def effect_log_in(folder: Path) -> Iterator[SharedEffectLog]:
    """Record the side effects of all processes for as long as the block lasts."""
    folder.mkdir()
    (folder / "seen").touch()
    (folder / "on").touch()
    try:
        yield SharedEffectLog(folder)
    finally:
        (folder / "on").unlink()


class _WorkerEffects(Effects):
    def end_process(self) -> NoReturn:
        os._exit(1)


@dataclass(frozen=True)
class CrashingAction:
    """An action whose workers record their side effects, and die when the run dies."""

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
        watch_from_now_on(_WorkerEffects(self.root, self.point, effect_log=SharedEffectLog(self.folder)))
        return self.action.open(rate_limiter)
