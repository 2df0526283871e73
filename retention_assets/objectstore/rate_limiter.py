"""How fast a store is asked: a rate that follows what the store says, and the waits between attempts.

Clock, sleep and randomness are passed in. Seconds by a monotonic clock, objects per second.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from random import Random
from threading import Lock

from retention_assets.errors import ConfigurationError

_WINDOW = 5.0  # seconds over which a rate is measured that no ceiling sets
_LEAST_MEASURED = 500.0  # objects per second; less says what was asked for, not what the store allows
_KEPT = 0.8  # of the rate, after a throttle
_RECOVERY = 1.0  # seconds until the rate is again what it was when the store throttled
_RISE = 1.1  # what one answer may multiply the rate by
_QUIET, _LONGEST_QUIET = 0.25, 20.0  # seconds without a request after a throttle; at the lowest rate they double
_PORTION = 0.1  # seconds' worth of objects in a request to a store that throttled: it takes a few more readily
_LEAST_PORTION = 20  # objects, if no more than a second's worth: where chance throttles, more requests bring more of it
_LATENESS = 0.05  # seconds that a request may come late and be made up for
_LOWEST_SHARE = 0.01  # of the ceiling; however much a store throttles, a task goes on
_LOWEST = 20.0  # objects per second, where there is no ceiling


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is tried again.

    So many attempts in all, none due later than this after the first failed. An attempt that was throttled costs none
    of them: others may have been served instead. Such a request is given up once nothing at all was done for so long.
    Three quick retries lost whole runs of other systems to SlowDown.
    """

    attempts: int = 5
    seconds: float = 60.0


def backoffs(random: Random, first: float = 0.5, longest: float = 20.0) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt: a span that doubles, and by chance down to its half."""
    span = first
    while True:
        yield span * (0.5 + 0.5 * random.random())
        span = min(longest, span * 2)


class RateLimiter:
    """The rate at which one task asks for objects, shared by its threads.

    A throttle takes a fifth off the rate and stops all requests for a quarter of a second; further ones that answer
    what was asked before that are the same throttle. Then the rate rises on a cubic curve: fast while it is far below
    the rate that was throttled, slowly around it, a second later, and fast again beyond. So many workers find their
    shares of a store's limit without hearing of each other, and stay near it (`benchmarks/sweep.py`); and those still
    at work soon have what others left. At the lowest rate the pauses double instead, up to 20 seconds: less than
    anybody's patience. Source: RFC 9438, whose curve this is.

    S3 allows about 3,500 deletions per second and prefix, and counts each key. Source: AWS's figures.

    Args:
        ceiling_per_second: objects; None for as fast as the store answers until it throttles.
        reached: what an earlier pace reached, to begin there.
        clock: seconds, monotonic.
        sleep: waits for seconds.

    Raises:
        ConfigurationError: the ceiling is not above zero.
    """

    def __init__(
        self,
        ceiling_per_second: float | None = None,
        reached: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if ceiling_per_second is not None and not ceiling_per_second > 0:
            raise ConfigurationError(f"{ceiling_per_second} objects per second: the ceiling must be above zero")
        self._ceiling = ceiling_per_second
        self._rate = ceiling_per_second if reached is None else min(reached * _KEPT, ceiling_per_second or inf)
        self._throttled_at = reached  # objects per second, less where the last two throttles came close
        self._clock, self._sleep = clock, sleep
        self._lock = Lock()
        self._free_at = self._quiet_until = self._counted_since = self.progressed_at = clock()
        self._counted = 0
        self._quiet = _QUIET

    @property
    def rate(self) -> float | None:
        """Objects per second at present; None is without limit."""
        return self._rate

    @property
    def reached(self) -> float | None:
        """Objects per second that a store which throttles was found to take of one task; None: it never throttled."""
        return None if self._throttled_at is None else self._rate

    def portion(self, most: int) -> int:
        """Return how many objects one request names at best: a second's worth or less, at least one, at most `most`."""
        rate = self._rate
        if rate is None:
            return most
        of_a_second = ceil(rate)
        portion = of_a_second if self._throttled_at is None else max(ceil(rate * _PORTION), _LEAST_PORTION)
        return max(1, min(most, of_a_second, portion))

    def before(self, objects: int) -> None:
        """Wait until a request that names so many objects may be sent."""
        while (wait := self.granted(objects)) > 0:
            self._sleep(wait)

    def granted(self, objects: int) -> float:
        """Return 0 where a request that names so many objects may be sent now, else the seconds after which to ask."""
        with self._lock:
            now = self._clock()
            wait = max(self._free_at, self._quiet_until) - now
            if wait > 0:
                return wait
            if self._rate is not None:
                begins = self._free_at if now - self._free_at < _LATENESS else now
                self._free_at = begins + objects / self._rate
            if now - self._counted_since > _WINDOW:
                self._counted_since, self._counted = now, 0
            self._counted += objects
            return 0

    def throttled(self, asked_at: float) -> None:
        """Note that the store answered a request of that moment by asking for fewer."""
        with self._lock:
            now = self._clock()
            if self._is_old(asked_at):
                return
            rate = self._measured(now) if self._rate is None else self._rate
            is_lower = self._throttled_at is not None and rate < self._throttled_at
            self._throttled_at = rate * (1 + _KEPT) / 2 if is_lower else rate
            lowest = self._lowest()
            self._rate = max(lowest, rate * _KEPT)
            self._quiet_until = now + self._quiet
            self._quiet = min(_LONGEST_QUIET, self._quiet * 2) if rate <= lowest else _QUIET

    def clean(self, asked_at: float) -> None:
        """Note that the store answered a request of that moment without asking for fewer."""
        self.progressed()
        with self._lock:
            if self._rate is None or self._throttled_at is None or self._is_old(asked_at):
                return
            self._quiet = _QUIET
            passed = (self._clock() - self._quiet_until) / _RECOVERY
            curve = self._throttled_at * (1 + (1 - _KEPT) * (passed - 1) ** 3)
            self._rate = min(max(self._rate, curve), self._rate * _RISE, self._ceiling or inf)

    def progressed(self) -> None:
        """Note that the store did what it was asked for, or a part of it."""
        self.progressed_at = self._clock()

    def now(self) -> float:
        """Return the clock's seconds."""
        return self._clock()

    def rest(self, seconds: float) -> None:
        """Wait between two attempts at the same request."""
        self._sleep(seconds)

    def _is_old(self, asked_at: float) -> bool:
        """Return whether what was asked then says nothing of the rate of now."""
        return self._throttled_at is not None and asked_at < self._quiet_until

    def _measured(self, now: float) -> float:
        return max(_LEAST_MEASURED, self._counted / max(now - self._counted_since, 1.0))

    def _lowest(self) -> float:
        return self._ceiling * _LOWEST_SHARE if self._ceiling else _LOWEST


class Trials:
    """The further attempts at one request, or what is left of it."""

    def __init__(self, patience: Patience, rate_limiter: RateLimiter, random: Random) -> None:
        self._pace, self._seconds = rate_limiter, patience.seconds
        self._waits = islice(backoffs(random), patience.attempts - 1)
        self._failed_at: float | None = None

    def wait(self, *, throttled: bool) -> bool:
        """Wait after a failure that may pass; return whether patience lasts. After a throttle the pace itself waits."""
        now = self._pace.now()
        if self._failed_at is None:
            self._failed_at = now
        if throttled:
            return now <= max(self._failed_at, self._pace.progressed_at) + self._seconds
        pause = next(self._waits, None)
        if pause is None or now + pause > self._failed_at + self._seconds:
            return False
        self._pace.rest(pause)
        return True
