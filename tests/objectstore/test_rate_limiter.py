"""The rate limiter, with a clock that only `sleep` moves and given random numbers."""

from itertools import islice, pairwise
from random import Random

import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.objectstore.rate_limiter import RateLimiter, Retries, RetryPolicy, backoffs
from tests.objectstore.fake_clock import FakeClock

MINUTE = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def limiter_with(clock: FakeClock, ceiling: float | None) -> RateLimiter:
    return RateLimiter(ceiling, clock=clock, sleep=clock.sleep)


def run(
    rate_limiter: RateLimiter, clock: FakeClock, seconds: float, capacity: float | None = None, request: int = 100
) -> float:
    """Delete for so long in a store that throttles above its capacity; return the objects per second."""
    began, done, sent = clock(), 0, [(0.0, 0)]
    while clock() - began < seconds:
        rate_limiter.wait_for(request)
        sent_at = clock()
        sent = [(at, objects) for at, objects in sent if sent_at - at < 1]
        if capacity is not None and sum(objects for _, objects in sent) + request > capacity:
            rate_limiter.throttled(sent_at)
            continue
        clock.sleep(0.01)  # the request itself
        sent.append((clock(), request))
        done += request
        rate_limiter.not_throttled(sent_at)
    return done / (clock() - began)


class TestCeiling:
    def test_without_a_ceiling_nothing_waits(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, None)
        for _ in range(100):
            rate_limiter.wait_for(1_000)
        assert clock.slept == []

    def test_the_first_request_is_sent_at_once_and_the_next_after_the_time_of_its_objects(
        self, clock: FakeClock
    ) -> None:
        rate_limiter = limiter_with(clock, 500)
        rate_limiter.wait_for(1_000)
        assert clock() == 0
        rate_limiter.wait_for(10)
        assert clock() == pytest.approx(2)
        rate_limiter.wait_for(10)
        assert clock() == pytest.approx(2.02)

    def test_idle_time_does_not_raise_the_rate_later(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 100)
        rate_limiter.wait_for(100)
        clock.seconds += MINUTE
        rate_limiter.wait_for(100)
        rate_limiter.wait_for(100)
        assert clock() == pytest.approx(MINUTE + 1)

    @pytest.mark.parametrize("ceiling", [0.5, 17.5, 3_500])
    def test_no_ceiling_is_exceeded_over_a_minute(self, clock: FakeClock, ceiling: float) -> None:
        rate_limiter = limiter_with(clock, ceiling)
        request = rate_limiter.batch_size(1_000)
        # The first request does not wait. All others are at the ceiling.
        assert run(rate_limiter, clock, MINUTE, request=request) <= ceiling + request / MINUTE

    @pytest.mark.parametrize("ceiling", [0.0, -1.0, float("nan")])
    def test_a_ceiling_of_zero_is_refused(self, ceiling: float) -> None:
        with pytest.raises(ConfigurationError, match="must be above zero"):
            RateLimiter(ceiling)

    @pytest.mark.parametrize(
        ("ceiling", "batch_size"), [(None, 1_000), (3_500.0, 1_000), (17.5, 18), (0.25, 1)], ids=str
    )
    def test_a_request_has_the_objects_of_one_second(
        self, clock: FakeClock, ceiling: float | None, batch_size: int
    ) -> None:
        assert limiter_with(clock, ceiling).batch_size(1_000) == batch_size


class TestThrottle:
    def test_a_throttle_lowers_the_rate_and_pauses_the_task(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 800)
        rate_limiter.throttled(clock())
        assert rate_limiter.rate == pytest.approx(640)
        rate_limiter.wait_for(1)
        assert clock() == pytest.approx(0.25)

    @pytest.mark.parametrize("answered_at", [0.1, 3.0], ids=["during_the_pause", "after_it"])
    def test_throttles_of_requests_sent_before_the_pause_count_once(self, clock: FakeClock, answered_at: float) -> None:
        rate_limiter = limiter_with(clock, 800)
        rate_limiter.throttled(0)
        clock.seconds = answered_at
        for _ in range(10):
            rate_limiter.throttled(0)
        assert rate_limiter.rate == pytest.approx(640)
        rate_limiter.wait_for(1)
        assert clock() == max(0.25, answered_at)

    def test_each_later_throttle_lowers_the_rate_further(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 800)
        for _ in range(3):
            rate_limiter.wait_for(1)
            rate_limiter.throttled(clock())
        assert rate_limiter.rate == pytest.approx(800 * 0.8**3)

    def test_at_the_lowest_rate_the_pause_doubles_up_to_twenty_seconds(self, clock: FakeClock) -> None:
        assert backoffs_after(at_lowest_rate(clock), clock, 9) == [0.25, 0.5, 1, 2, 4, 8, 16, 20, 20]

    def test_a_success_makes_the_next_pause_short_again(self, clock: FakeClock) -> None:
        rate_limiter = at_lowest_rate(clock)
        backoffs_after(rate_limiter, clock, 5)
        rate_limiter.not_throttled(clock())
        assert backoffs_after(rate_limiter, clock, 1) == [0.25]

    @pytest.mark.parametrize(("ceiling", "lowest"), [(800.0, 8.0), (None, 20.0)], ids=["a_hundredth", "twenty"])
    def test_the_rate_has_a_floor(self, clock: FakeClock, ceiling: float | None, lowest: float) -> None:
        rate_limiter = limiter_with(clock, ceiling)
        for _ in range(70):
            rate_limiter.wait_for(1)
            rate_limiter.throttled(clock())
        assert rate_limiter.rate == lowest

    @pytest.mark.parametrize("idle", [0.0, 60 * MINUTE], ids=["from_the_start", "after_an_idle_hour"])
    def test_without_a_ceiling_the_first_throttle_starts_from_the_measured_rate(
        self, clock: FakeClock, idle: float
    ) -> None:
        rate_limiter = limiter_with(clock, None)
        rate_limiter.wait_for(0)
        clock.seconds += idle
        for _ in range(40):  # 10,000 objects in four seconds
            rate_limiter.wait_for(250)
            clock.seconds += 0.1
        rate_limiter.throttled(clock())
        assert rate_limiter.rate == pytest.approx(2_500 * 0.8)

    def test_a_low_measured_rate_does_not_show_the_limit_of_the_store(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, None)
        rate_limiter.wait_for(6)
        rate_limiter.throttled(clock())
        assert rate_limiter.rate == pytest.approx(500 * 0.8)

    def test_after_a_throttle_a_request_has_the_objects_of_a_tenth_of_a_second(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 2_000)
        rate_limiter.throttled(clock())
        assert rate_limiter.batch_size(1_000) == 160

    @pytest.mark.parametrize(("ceiling", "batch_size"), [(100.0, 20), (20.0, 16), (0.5, 1)], ids=str)
    def test_after_a_throttle_a_request_has_at_least_twenty_objects_if_a_second_allows_them(
        self, clock: FakeClock, ceiling: float, batch_size: int
    ) -> None:
        rate_limiter = limiter_with(clock, ceiling)
        rate_limiter.throttled(clock())
        assert rate_limiter.batch_size(1_000) == batch_size


class TestRecovery:
    def test_the_rate_rises_fast_then_slowly_near_the_throttled_rate_and_then_fast_again(
        self, clock: FakeClock
    ) -> None:
        rate_limiter = limiter_with(clock, None)
        for _ in range(50):
            rate_limiter.wait_for(100)
            clock.seconds += 0.1
        rate_limiter.throttled(clock())
        clock.seconds += 0.25
        rates = [answered(rate_limiter, clock, 0.125) for _ in range(16)]
        assert rates[7] == pytest.approx(1_000, rel=0.001)  # where it was throttled, a second later
        steps = [later - sooner for sooner, later in pairwise(rates)]
        assert steps == sorted(steps[:7], reverse=True) + sorted(steps[7:])
        assert rates[-1] == pytest.approx(1_200, rel=0.001)

    def test_after_two_throttles_close_together_the_target_rate_is_lower(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 1_000)
        rate_limiter.throttled(clock())
        rate_limiter.wait_for(1)
        rate_limiter.throttled(clock())  # at 800, since other clients use more of the capacity
        clock.seconds += 0.25
        assert [answered(rate_limiter, clock, 0.1) for _ in range(10)][-1] == pytest.approx(800 * 1.8 / 2, rel=0.001)

    def test_the_rate_rises_by_at_most_a_tenth_with_each_response(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, None)
        rate_limiter.wait_for(1_000)
        rate_limiter.throttled(clock())
        assert answered(rate_limiter, clock, 60 * MINUTE) == pytest.approx(800 * 1.1)

    def test_the_rate_never_rises_above_the_ceiling(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 800)
        rate_limiter.throttled(clock())
        assert [answered(rate_limiter, clock, 1) for _ in range(60)][-1] == 800

    def test_responses_to_requests_sent_before_the_throttle_do_not_raise_the_rate(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 800)
        rate_limiter.throttled(clock())
        clock.seconds += 20
        rate_limiter.not_throttled(0.2)
        assert rate_limiter.rate == pytest.approx(640)
        rate_limiter.not_throttled(0.3)
        assert rate_limiter.rate == pytest.approx(704)

    @pytest.mark.parametrize("ceiling", [None, 3_500.0], ids=["no_ceiling", "a_ceiling_above"])
    def test_the_rate_settles_near_the_limit_of_the_store(self, clock: FakeClock, ceiling: float | None) -> None:
        rate_limiter = limiter_with(clock, ceiling)
        run(rate_limiter, clock, MINUTE, capacity=1_000, request=20)
        assert 750 < run(rate_limiter, clock, 10 * MINUTE, capacity=1_000, request=20) <= 1_000

    def test_a_store_that_always_throttles_gets_a_request_every_twenty_seconds(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, 3_500)
        run(rate_limiter, clock, 10 * MINUTE, capacity=0)
        asked = len(clock.slept)
        run(rate_limiter, clock, 10 * MINUTE, capacity=0)
        assert len(clock.slept) - asked <= 60  # each request waits at most twice: for the rate, and for the pause


def at_lowest_rate(clock: FakeClock) -> RateLimiter:
    """Return a rate limiter at its lowest rate."""
    rate_limiter = limiter_with(clock, 10_000)
    while rate_limiter.rate != 100:
        rate_limiter.wait_for(1)
        rate_limiter.throttled(clock())
    rate_limiter.wait_for(1)
    return rate_limiter


def backoffs_after(rate_limiter: RateLimiter, clock: FakeClock, throttles: int) -> list[float]:
    """Return the backoff after each of so many throttled requests."""
    seconds = []
    for _ in range(throttles):
        began = clock()
        rate_limiter.throttled(began)
        rate_limiter.wait_for(1)
        seconds.append(round(clock() - began, 2))
    return seconds


def answered(rate_limiter: RateLimiter, clock: FakeClock, seconds: float) -> float:
    """Let so many seconds pass, record one successful request, and return the rate."""
    clock.seconds += seconds
    rate_limiter.not_throttled(clock())
    assert rate_limiter.rate is not None
    return rate_limiter.rate


class TestRetries:
    def retries(self, clock: FakeClock, rate_limiter: RateLimiter) -> Retries:
        return Retries(RetryPolicy(attempts=3, seconds=MINUTE), rate_limiter, Random(0))

    def test_a_failure_costs_one_attempt_and_a_pause(self, clock: FakeClock) -> None:
        retries = self.retries(clock, limiter_with(clock, None))
        assert [retries.wait(throttled=False) for _ in range(3)] == [True, True, False]
        assert len(clock.slept) == 2

    def test_no_backoff_exceeds_the_retry_policy(self, clock: FakeClock) -> None:
        retries = self.retries(clock, limiter_with(clock, None))
        assert retries.wait(throttled=False)
        clock.seconds = MINUTE
        assert not retries.wait(throttled=False)

    def test_a_throttle_costs_no_attempt_until_the_time_limit_of_the_retry_policy(self, clock: FakeClock) -> None:
        retries = self.retries(clock, limiter_with(clock, None))
        assert all(retries.wait(throttled=True) for _ in range(100))
        clock.seconds = MINUTE + 1
        assert not retries.wait(throttled=True)
        assert clock.slept == []

    def test_a_throttle_costs_no_attempt_while_other_requests_succeed(self, clock: FakeClock) -> None:
        rate_limiter = limiter_with(clock, None)
        retries = self.retries(clock, rate_limiter)
        assert retries.wait(throttled=True)
        clock.seconds = MINUTE
        rate_limiter.progressed()
        clock.seconds = 2 * MINUTE
        assert retries.wait(throttled=True)
        clock.seconds += 1
        assert not retries.wait(throttled=True)


class TestRateOfTheNextBatch:
    def test_a_rate_limiter_begins_near_the_rate_that_another_reached(self, clock: FakeClock) -> None:
        before = limiter_with(clock, None)
        assert before.reached is None
        before.throttled(clock())
        after = RateLimiter(None, before.reached, clock=clock, sleep=clock.sleep)
        assert (before.rate, after.rate) == (400, pytest.approx(320))
        clock.seconds += 1
        for _ in range(10):
            after.not_throttled(clock())
        assert after.rate == pytest.approx(400)
        assert after.batch_size(1_000) == 40

    def test_a_rate_limiter_never_begins_above_its_ceiling(self, clock: FakeClock) -> None:
        assert RateLimiter(100, 1_000, clock=clock, sleep=clock.sleep).rate == 100


class TestBackoffs:
    def test_each_backoff_is_between_half_and_all_of_a_doubling_duration(self) -> None:
        durations = [0.5, 1, 2, 4, 8, 16, 20, 20]
        for seed in range(50):
            waits = list(islice(backoffs(Random(seed)), len(durations)))
            assert all(duration / 2 <= wait <= duration for wait, duration in zip(waits, durations, strict=True))

    def test_random_numbers_spread_the_backoffs(self) -> None:
        assert len({next(backoffs(Random(seed))) for seed in range(50)}) == 50

    def test_the_same_seed_gives_the_same_backoffs(self) -> None:
        assert list(islice(backoffs(Random(7)), 6)) == list(islice(backoffs(Random(7)), 6))
