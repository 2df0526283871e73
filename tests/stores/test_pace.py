"""How fast a store is asked: by a clock that only sleeping moves, and by chance that is given."""

import pickle
from itertools import islice
from random import Random

import pytest

from retention_assets.errors import ConfigurationError
from retention_assets.stores.pace import Pace, backoffs
from tests.stores.fake_clock import FakeClock

MINUTE = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def paced(clock: FakeClock, ceiling: float | None) -> Pace:
    return Pace(ceiling, clock=clock, sleep=clock.sleep)


def run(pace: Pace, clock: FakeClock, seconds: float, capacity: float | None = None, request: int = 100) -> float:
    """Delete for so long at a store that throttles what goes beyond its capacity; return the objects per second."""
    began, done, sent = clock(), 0, [(0.0, 0)]
    while clock() - began < seconds:
        pace.before(request)
        recent = sum(objects for at, objects in sent if clock() - at < 1)
        if capacity is not None and recent + request > capacity:
            pace.throttled()
            continue
        clock.sleep(0.01)  # the request itself
        sent.append((clock(), request))
        done += request
        pace.clean()
    return done / (clock() - began)


class TestCeiling:
    def test_without_a_ceiling_nothing_waits(self, clock: FakeClock) -> None:
        pace = paced(clock, None)
        for _ in range(100):
            pace.before(1_000)
        assert clock.slept == []

    def test_the_first_request_goes_at_once_and_the_next_when_its_objects_are_due(self, clock: FakeClock) -> None:
        pace = paced(clock, 500)
        pace.before(1_000)
        assert clock() == 0
        pace.before(10)
        assert clock() == pytest.approx(2)
        pace.before(10)
        assert clock() == pytest.approx(2.02)

    def test_idle_time_is_not_saved_up(self, clock: FakeClock) -> None:
        pace = paced(clock, 100)
        pace.before(100)
        clock.seconds += MINUTE
        pace.before(100)
        pace.before(100)
        assert clock() == pytest.approx(MINUTE + 1)

    @pytest.mark.parametrize("ceiling", [0.5, 17.5, 3_500])
    def test_no_ceiling_is_exceeded_over_a_minute(self, clock: FakeClock, ceiling: float) -> None:
        pace = paced(clock, ceiling)
        request = pace.portion(1_000)
        # The first request is not waited for; what remains is the ceiling.
        assert run(pace, clock, MINUTE, request=request) <= ceiling + request / MINUTE

    def test_tasks_share_the_ceiling(self, clock: FakeClock) -> None:
        assert paced(clock, 3_500).share(200).rate == 17.5
        assert paced(clock, None).share(200).rate is None

    @pytest.mark.parametrize("ceiling", [0.0, -1.0, float("nan")])
    def test_a_ceiling_that_lets_nothing_through_is_refused(self, ceiling: float) -> None:
        with pytest.raises(ConfigurationError, match="must be above zero"):
            Pace(ceiling)

    @pytest.mark.parametrize(("ceiling", "portion"), [(None, 1_000), (3_500.0, 1_000), (17.5, 18), (0.25, 1)], ids=str)
    def test_a_request_names_what_a_second_allows(self, clock: FakeClock, ceiling: float | None, portion: int) -> None:
        assert paced(clock, ceiling).portion(1_000) == portion


class TestThrottle:
    def test_a_throttle_halves_the_rate_and_silences_the_task_for_a_second(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        pace.throttled()
        assert pace.rate == 400
        pace.before(1)
        assert clock() == pytest.approx(1)

    def test_throttles_that_arrive_while_it_is_quiet_are_one(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        for _ in range(10):
            pace.throttled()
        assert pace.rate == 400
        pace.before(1)
        assert clock() == pytest.approx(1)

    def test_the_quiet_doubles_up_to_a_minute_as_long_as_nothing_is_clean(self, clock: FakeClock) -> None:
        pace = paced(clock, 1e6)
        quiet = []
        for _ in range(9):
            pace.throttled()
            began = clock()
            pace.before(1)
            quiet.append(round(clock() - began))
        assert quiet == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    def test_a_clean_answer_makes_the_next_quiet_short_again(self, clock: FakeClock) -> None:
        pace = paced(clock, 1e6)
        for _ in range(5):
            pace.throttled()
            pace.before(1)
        pace.clean()
        pace.throttled()
        began = clock()
        pace.before(1)
        assert clock() - began == pytest.approx(1)

    @pytest.mark.parametrize(("ceiling", "lowest"), [(800.0, 8.0), (None, 10.0)], ids=["a_hundredth", "ten"])
    def test_the_rate_has_a_floor(self, clock: FakeClock, ceiling: float | None, lowest: float) -> None:
        pace = paced(clock, ceiling)
        for _ in range(50):
            pace.throttled()
            pace.before(1)
        assert pace.rate == lowest

    @pytest.mark.parametrize("idle", [0.0, 60 * MINUTE], ids=["from_the_start", "after_an_idle_hour"])
    def test_without_a_ceiling_the_rate_is_half_of_what_was_going_on(self, clock: FakeClock, idle: float) -> None:
        pace = paced(clock, None)
        pace.before(0)
        clock.seconds += idle
        for _ in range(40):  # 10,000 objects in four seconds
            pace.before(250)
            clock.seconds += 0.1
        pace.throttled()
        assert pace.rate == pytest.approx(1_250)


class TestRecovery:
    def test_far_below_its_goal_the_rate_doubles_and_then_creeps_up_to_the_ceiling(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        for _ in range(3):
            pace.throttled()
            pace.before(1)
        rates = [pace.rate]
        while rates[-1] != 800:
            clock.seconds += 5
            pace.clean()
            rates.append(pace.rate)
        assert rates == [100, 200, 400, 480, 560, 640, 720, 800]

    def test_answers_within_one_window_raise_it_once(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        pace.throttled()
        clock.seconds += 6.1
        for _ in range(10):
            pace.clean()
        assert pace.rate == 480

    def test_the_time_before_the_throttle_does_not_count_as_clean(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        clock.seconds += MINUTE
        pace.throttled()
        clock.seconds += 1.1
        pace.clean()
        assert pace.rate == 400
        clock.seconds += 5
        pace.clean()
        assert pace.rate == 480

    def test_what_was_on_its_way_at_the_throttle_proves_nothing(self, clock: FakeClock) -> None:
        pace = paced(clock, 800)
        pace.throttled()
        pace.clean()
        assert pace.rate == 400
        clock.seconds += 1.1
        pace.throttled()
        clock.seconds += 1.1
        pace.clean()
        pace.throttled()  # still within the second quiet, of two seconds
        assert pace.rate == 200

    def test_without_a_ceiling_the_rate_may_rise_beyond_where_it_was_throttled(self, clock: FakeClock) -> None:
        pace = paced(clock, None)
        pace.before(1_000)
        pace.throttled()
        for _ in range(20):
            clock.seconds += 5
            pace.clean()
        assert pace.rate is not None
        assert pace.rate > 1_000

    @pytest.mark.parametrize("ceiling", [None, 3_500.0], ids=["no_ceiling", "a_ceiling_above"])
    def test_it_settles_near_what_the_store_takes(self, clock: FakeClock, ceiling: float | None) -> None:
        pace = paced(clock, ceiling)
        run(pace, clock, MINUTE, capacity=1_000)
        assert 500 < run(pace, clock, 10 * MINUTE, capacity=1_000) <= 1_000

    def test_a_store_that_always_throttles_is_asked_once_a_minute(self, clock: FakeClock) -> None:
        pace = paced(clock, 3_500)
        run(pace, clock, 10 * MINUTE, capacity=0)
        asked = len(clock.slept)
        run(pace, clock, 10 * MINUTE, capacity=0)
        assert len(clock.slept) - asked <= 20  # each is slept for at most twice: its objects, and the quiet


class TestTravel:
    def test_a_copy_has_the_settings_and_starts_afresh(self) -> None:
        pace = Pace(800, sleep=_never)
        pace.throttled()
        arrived = pickle.loads(pickle.dumps(pace))
        assert (pace.rate, arrived.rate) == (400, 800)
        arrived.before(1)  # it is not quiet, else it would sleep
        with pytest.raises(AssertionError):
            pace.before(1)


def _never(seconds: float) -> None:
    raise AssertionError(f"asked to sleep {seconds} s")


class TestBackoffs:
    def test_each_wait_is_between_half_of_a_doubling_span_and_the_whole(self) -> None:
        spans = [0.5, 1, 2, 4, 8, 16, 20, 20]
        for seed in range(50):
            waits = list(islice(backoffs(Random(seed)), len(spans)))
            assert all(span / 2 <= wait <= span for wait, span in zip(waits, spans, strict=True))

    def test_chance_spreads_them(self) -> None:
        assert len({next(backoffs(Random(seed))) for seed in range(50)}) == 50

    def test_the_same_chance_gives_the_same_waits(self) -> None:
        assert list(islice(backoffs(Random(7)), 6)) == list(islice(backoffs(Random(7)), 6))
