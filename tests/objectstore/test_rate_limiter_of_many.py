"""Many workers, each with its own rate limiter, on one store that throttles: a simulation without real time."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

import pytest

from retention_assets.objectstore.rate_limiter import RateLimiter
from tests.objectstore.fake_clock import FakeClock

Thread = Iterator[float]  # yields the seconds that it waits
THREADS = 10
LATENCY = 0.3  # seconds of a request that names 1,000 objects


class ThrottlingStore:
    """A store that accepts so many objects per second, more after a pause, and answers 503 to all others."""

    def __init__(self, clock: FakeClock, limit: Callable[[float], float], burst: float) -> None:
        self._clock, self._limit, self._burst = clock, limit, burst
        self._tokens, self._at = burst, clock()
        self.deleted = self.throttles = 0

    def delete(self, objects: int) -> bool:
        passed, self._at = self._clock() - self._at, self._clock()
        self._tokens = min(self._burst, self._tokens + passed * self._limit(self._at))
        if self._tokens < objects:
            self.throttles += 1
            return False
        self._tokens -= objects
        self.deleted += objects
        return True


@dataclass
class Work:
    """The remaining objects of a worker."""

    rate_limiter: RateLimiter
    left: int


def thread(work: Work, store: ThrottlingStore, clock: FakeClock, chance: Random) -> Thread:
    """A thread of a worker, like those of `DeletionWork`."""
    rate_limiter = work.rate_limiter
    while batch := min(work.left, rate_limiter.batch_size(1_000)):
        work.left -= batch
        while batch:
            part = min(batch, rate_limiter.batch_size(1_000))
            while (wait := rate_limiter.seconds_until_allowed(part)) > 0:
                yield wait
            sent_at = clock()
            if store.delete(part):
                yield LATENCY * chance.uniform(0.5, 1.5) * (0.3 + 0.7 * part / 1_000)
                rate_limiter.not_throttled(sent_at)
                batch -= part
            else:
                yield 0.03
                rate_limiter.throttled(sent_at)


def play(clock: FakeClock, threads: list[Thread], until: float) -> None:
    """Run the threads until they end, or until the given time."""
    order = count()
    waiting = [(clock(), next(order), one) for one in threads]
    while waiting and clock() < until:
        clock.seconds, _, one = heapq.heappop(waiting)
        wait = next(one, None)
        if wait is not None:
            heapq.heappush(waiting, (clock() + wait, next(order), one))


def workers(number: int, objects: int, store: ThrottlingStore, clock: FakeClock) -> list[Thread]:
    """Return the threads of so many workers that share the objects."""
    return threads([work(objects // number, clock) for _ in range(number)], store, clock)


def work(objects: int, clock: FakeClock) -> Work:
    """Return the work of a worker, with its own rate limiter."""
    return Work(RateLimiter(clock=clock, sleep=clock.sleep), objects)


def threads(works: list[Work], store: ThrottlingStore, clock: FakeClock) -> list[Thread]:
    """Return the threads of these workers."""
    chance = Random(len(works))
    return [thread(one, store, clock, chance) for one in works for _ in range(THREADS)]


@pytest.mark.parametrize("number", [2, 8, 32])
@pytest.mark.parametrize(("limit", "burst"), [(3_500, 3_500), (3_500, 1_500), (800, 800)])
def test_independent_workers_together_come_near_the_limit(number: int, limit: int, burst: int) -> None:
    clock = FakeClock()
    store = ThrottlingStore(clock, lambda _: limit, burst)
    play(clock, workers(number, limit * 240, store, clock), until=300)
    assert clock() < 300
    assert store.deleted == limit * 240 // number * number
    assert store.deleted / clock() > 0.85 * limit
    assert store.throttles < clock() * number


def test_workers_give_way_to_others_and_recover() -> None:
    clock = FakeClock()
    store = ThrottlingStore(clock, lambda at: 350 if 120 <= at < 240 else 3_500, 3_500)
    at_work = workers(8, 10_000_000, store, clock)
    done = []
    for until in (60, 120, 150, 240, 300, 360):
        before = store.deleted
        play(clock, at_work, until)
        done.append(store.deleted - before)
    assert done[1] > 0.85 * 3_500 * 60
    assert done[3] < 1.01 * 350 * 90 + 3_500
    assert done[3] > 0.75 * 350 * 90
    assert done[5] > 0.85 * 3_500 * 60


def test_the_last_worker_soon_gets_the_rate_of_the_others() -> None:
    clock = FakeClock()
    store = ThrottlingStore(clock, lambda _: 3_500, 3_500)
    brief, long = work(100_000, clock), work(10_000_000, clock)
    at_work = threads([brief, long], store, clock)
    while brief.left:
        play(clock, at_work, clock() + 0.5)
    play(clock, at_work, clock() + 3)
    before, since = store.deleted, clock()
    play(clock, at_work, since + 3)
    assert store.deleted - before > 0.85 * 3_500 * (clock() - since)
