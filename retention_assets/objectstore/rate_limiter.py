"""Limits the rate of requests to a store, and the retries of a request. The rate adapts to the store's throttling.

The clock, the sleep function and the random numbers are parameters. Times are seconds of a monotonic clock. Rates are
objects per second.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from random import Random
from threading import Lock

from retention_assets.config.timestamps import elapsed_seconds
from retention_assets.errors import ConfigurationError

_WINDOW = 5.0  # seconds over which the rate is measured when there is no ceiling
_LOWEST_MEASURED = 500.0  # objects per second; a lower measured rate shows demand, not what the store accepts
_DECREASE = 0.8  # a throttle multiplies the rate by this factor
_RECOVERY = 1.0  # seconds until the rate is back at the rate that was throttled
_MAX_RISE = 1.1  # one response raises the rate by at most this factor
_BACKOFF, _LONGEST_BACKOFF = 0.25, 20.0  # seconds after a throttle; doubled after each throttle at the lowest rate
# After a throttle, batches are smaller, because a store accepts small requests more readily:
_BATCH_SECONDS = 0.1  # a batch has the objects of this many seconds, at the current rate
# The fewest objects in a batch, unless the rate allows fewer in a second. If a store throttles requests at random, many
# small requests are throttled more often than few large ones.
_SMALLEST_BATCH = 20
_LATENESS = 0.05  # seconds; a request that is late by less than this does not lower the rate
_LOWEST_SHARE = 0.01  # the lowest rate as a share of the ceiling: a task continues even if every request is throttled
_LOWEST = 20.0  # objects per second; the lowest rate without a ceiling


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of one request.

    Throttled attempts do not count, because the store may have served other requests instead. A throttled
    request fails when no request at all has succeeded for `seconds`. In other systems, with a limit of three quick
    retries, whole runs failed because of SlowDown.
    """

    attempts: int = 5  # the most attempts, including the first
    seconds: float = 60.0  # the longest time from the first failure to the start of the last attempt


def backoffs(random: Random, first: float = 0.5, longest: float = 20.0) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt: a random 50 to 100 % of a duration that doubles."""
    duration = first
    while True:
        yield duration * (0.5 + 0.5 * random.random())
        duration = min(longest, duration * 2)


class RateLimiter:
    """Limits the rate of one task's requests, in objects per second. The threads of the task share it.

    A throttle lowers the rate by a fifth and stops all requests for a quarter of a second. Throttled responses to
    requests sent before the end of that pause count as the same throttle. Then the rate rises on a cubic curve: fast
    while the rate is far below the throttled rate, slowly near the throttled rate (about a second later), and fast
    again above it. At the lowest rate, the pauses double instead, up to 20 seconds, which is shorter than the time
    limit of the retry policy. Source: RFC 9438, which defines this curve.

    With this curve, many workers find their shares of a store's limit without communicating, and stay near the limit
    (`benchmarks/sweep.py`). When a worker ends, the others soon use its share.

    S3 allows about 3,500 deletions per second and prefix, and counts each key. Source: AWS's figures.

    Args:
        ceiling_per_second: the highest rate; None for no limit until the store throttles.
        reached: the rate that an earlier rate limiter reached; the rate begins at 80 % of it.
        clock: returns monotonic seconds, which also count while the machine sleeps.
        sleep: waits for seconds.

    Raises:
        ConfigurationError: the ceiling is not above zero.
    """

    def __init__(
        self,
        ceiling_per_second: float | None = None,
        reached: float | None = None,
        *,
        clock: Callable[[], float] = elapsed_seconds,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if ceiling_per_second is not None and not ceiling_per_second > 0:
            raise ConfigurationError(f"{ceiling_per_second} objects per second: the ceiling must be above zero")
        self._ceiling = ceiling_per_second
        self._rate = ceiling_per_second if reached is None else min(reached * _DECREASE, ceiling_per_second or inf)
        # The rate at the last throttle, reduced by 10 % if it was lower than the rate at the throttle before.
        self._throttled_at = reached
        self._clock, self._sleep = clock, sleep
        self._lock = Lock()
        self._free_at = self._backoff_until = self._counted_since = self.progressed_at = clock()
        self._counted = 0
        self._backoff = _BACKOFF

    @property
    def rate(self) -> float | None:
        """The current rate in objects per second; None means no limit."""
        return self._rate

    @property
    def reached(self) -> float | None:
        """The rate that the store accepts from this task, in objects per second; None if it never throttled."""
        return None if self._throttled_at is None else self._rate

    def batch_size(self, most: int) -> int:
        """Return the best batch size of a request, from 1 to `most`: what the rate allows in a second, or less."""
        rate = self._rate
        if rate is None:
            return most
        of_one_second = ceil(rate)
        batch_size = of_one_second if self._throttled_at is None else max(ceil(rate * _BATCH_SECONDS), _SMALLEST_BATCH)
        return max(1, min(most, of_one_second, batch_size))

    def wait_for(self, objects: int) -> None:
        """Wait until a request for `objects` objects may be sent."""
        while (wait := self.seconds_until_allowed(objects)) > 0:
            self._sleep(wait)

    def seconds_until_allowed(self, objects: int) -> float:
        """Return 0, and count the request, if `objects` objects may be requested now; else the seconds to wait first.

        After the wait, call this again: another thread may have sent a request.
        """
        with self._lock:
            now = self._clock()
            wait = max(self._free_at, self._backoff_until) - now
            if wait > 0:
                return wait
            if self._rate is not None:
                begins = self._free_at if now - self._free_at < _LATENESS else now
                self._free_at = begins + objects / self._rate
            if now - self._counted_since > _WINDOW:
                self._counted_since, self._counted = now, 0
            self._counted += objects
            return 0

    def throttled(self, sent_at: float) -> None:
        """Lower the rate, because the store throttled a request that was sent at `sent_at`."""
        with self._lock:
            now = self._clock()
            if self._was_sent_before_pause(sent_at):
                return
            rate = self._measured_rate(now) if self._rate is None else self._rate
            is_lower = self._throttled_at is not None and rate < self._throttled_at
            self._throttled_at = rate * (1 + _DECREASE) / 2 if is_lower else rate
            lowest = self._ceiling * _LOWEST_SHARE if self._ceiling else _LOWEST
            self._rate = max(lowest, rate * _DECREASE)
            self._backoff_until = now + self._backoff
            self._backoff = min(_LONGEST_BACKOFF, self._backoff * 2) if rate <= lowest else _BACKOFF

    def not_throttled(self, sent_at: float) -> None:
        """Raise the rate, because the store did not throttle a request that was sent at `sent_at`."""
        self.progressed()
        with self._lock:
            if self._rate is None or self._throttled_at is None or self._was_sent_before_pause(sent_at):
                return
            self._backoff = _BACKOFF
            passed = (self._clock() - self._backoff_until) / _RECOVERY
            curve = self._throttled_at * (1 + (1 - _DECREASE) * (passed - 1) ** 3)
            self._rate = min(max(self._rate, curve), self._rate * _MAX_RISE, self._ceiling or inf)

    def progressed(self) -> None:
        """Record that a request succeeded, at least in part, which gives throttled requests more time."""
        self.progressed_at = self._clock()

    def now(self) -> float:
        """Return the time of the clock in seconds."""
        return self._clock()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` between two attempts at the same request."""
        self._sleep(seconds)

    def _was_sent_before_pause(self, sent_at: float) -> bool:
        """Return whether a request was sent before the pause ended. Its response shows an earlier rate."""
        return self._throttled_at is not None and sent_at < self._backoff_until

    def _measured_rate(self, now: float) -> float:
        return max(_LOWEST_MEASURED, self._counted / max(now - self._counted_since, 1.0))


class Retries:
    """The retries of one request, or of the part of the request that failed."""

    def __init__(self, retry_policy: RetryPolicy, rate_limiter: RateLimiter, random: Random) -> None:
        self._rate_limiter, self._seconds = rate_limiter, retry_policy.seconds
        self._backoffs = islice(backoffs(random), retry_policy.attempts - 1)
        self._failed_at: float | None = None

    def wait(self, *, throttled: bool) -> bool:
        """Wait after a retryable failure, and return whether the retry policy allows another attempt.

        After a throttle, this method does not wait, because the rate limiter delays the next request.
        """
        now = self._rate_limiter.now()
        if self._failed_at is None:
            self._failed_at = now
        if throttled:
            return now <= max(self._failed_at, self._rate_limiter.progressed_at) + self._seconds
        pause = next(self._backoffs, None)
        if pause is None or now + pause > self._failed_at + self._seconds:
            return False
        self._rate_limiter.sleep(pause)
        return True
