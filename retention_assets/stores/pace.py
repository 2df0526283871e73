"""How fast a store is asked: a rate that follows what the store says, and the waits between attempts.

Clock, sleep and randomness are passed in. Seconds by a monotonic clock, objects per second.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil
from random import Random
from threading import Lock

from retention_assets.errors import ConfigurationError

_WINDOW = 5.0  # seconds without a throttle after which the rate rises, and over which it is measured
_STEP = 0.1  # of the goal, when the rate is near it; further below, the rate doubles
_QUIET, _LONGEST_QUIET = 1.0, 60.0  # seconds without a request after a throttle; they double until an answer is clean
_LOWEST_SHARE = 0.01  # of the ceiling; however much a store throttles, a task goes on
_LOWEST = 10.0  # objects per second, where there is no ceiling


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is tried again: so many attempts in all, none due later than this after the first failed.

    The pace may hold the last one back for longer. Three quick retries lost whole runs of other systems to SlowDown.
    """

    attempts: int = 5
    seconds: float = 60.0


def backoffs(random: Random, first: float = 0.5, longest: float = 20.0) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt: a span that doubles, and by chance down to its half."""
    span = first
    while True:
        yield span * (0.5 + 0.5 * random.random())
        span = min(longest, span * 2)


class Pace:
    """The rate at which one task asks for objects, shared by its threads.

    A throttle halves the rate and stops all requests for a second, then two, and so on up to a minute; throttles that
    arrive while it is quiet are the same one. After five seconds without, the rate doubles as long as it is below half
    of its goal, and then rises by a tenth of it. The goal is the ceiling, or without one the rate at which the store
    first throttled. It travels to executors as its settings: a copy starts afresh, so `share` the ceiling first.
    S3 allows about 3,500 deletions per second and prefix, and counts each key. Source: AWS's figures.

    Args:
        ceiling_per_second: objects; None for as fast as the store answers until it throttles.
        clock: seconds, monotonic.
        sleep: waits for seconds.

    Raises:
        ConfigurationError: the ceiling is not above zero.
    """

    def __init__(
        self,
        ceiling_per_second: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if ceiling_per_second is not None and not ceiling_per_second > 0:
            raise ConfigurationError(f"{ceiling_per_second} objects per second: the ceiling must be above zero")
        self._ceiling = self._rate = self._goal = ceiling_per_second
        self._clock, self._sleep = clock, sleep
        self._lock = Lock()
        self._free_at = self._quiet_until = self._clean_since = self._counted_since = clock()
        self._counted = 0
        self._quiet = _QUIET

    def __reduce__(self) -> tuple[Callable[[float | None], "Pace"], tuple[float | None]]:
        return partial(Pace, clock=self._clock, sleep=self._sleep), (self._ceiling,)

    @property
    def rate(self) -> float | None:
        """Objects per second at present; None is without limit."""
        return self._rate

    def share(self, tasks: int) -> "Pace":
        """Return the pace of one of `tasks` that work at the same time: its part of the ceiling."""
        return Pace(self._ceiling / tasks if self._ceiling else None, clock=self._clock, sleep=self._sleep)

    def portion(self, most: int) -> int:
        """Return how many objects one request names at best: a second's worth, at least one, at most `most`."""
        rate = self._rate
        return most if rate is None else max(1, min(most, ceil(rate)))

    def before(self, objects: int) -> None:
        """Wait until a request that names so many objects may be sent."""
        while (wait := self._granted(objects)) > 0:
            self._sleep(wait)

    def throttled(self) -> None:
        """Note that the store asked for fewer requests."""
        with self._lock:
            now = self._clock()
            if now < self._quiet_until:
                return
            rate = self._measured(now) if self._rate is None else self._rate
            self._goal = self._goal or rate
            self._rate = max(self._lowest(), rate / 2)
            self._quiet_until = self._clean_since = now + self._quiet
            self._quiet = min(_LONGEST_QUIET, self._quiet * 2)

    def clean(self) -> None:
        """Note that the store answered a request without asking for fewer."""
        with self._lock:
            now = self._clock()
            if self._rate is None or self._goal is None or now < self._quiet_until:
                return
            self._quiet = _QUIET
            if now - self._clean_since < _WINDOW:
                return
            self._clean_since = now
            risen = self._rate * 2 if self._rate < self._goal / 2 else self._rate + self._goal * _STEP
            self._rate = min(risen, self._ceiling) if self._ceiling else risen

    def now(self) -> float:
        """Return the clock's seconds."""
        return self._clock()

    def rest(self, seconds: float) -> None:
        """Wait between two attempts at the same request."""
        self._sleep(seconds)

    def _granted(self, objects: int) -> float:
        """Take the tokens and return 0, or return the seconds after which to ask again."""
        with self._lock:
            now = self._clock()
            wait = max(self._free_at, self._quiet_until) - now
            if wait > 0:
                return wait
            if self._rate is not None:
                self._free_at = now + objects / self._rate
            if now - self._counted_since > _WINDOW:
                self._counted_since, self._counted = now, 0
            self._counted += objects
            return 0

    def _measured(self, now: float) -> float:
        return self._counted / max(now - self._counted_since, 1.0)

    def _lowest(self) -> float:
        return self._ceiling * _LOWEST_SHARE if self._ceiling else _LOWEST
