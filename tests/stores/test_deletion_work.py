"""Many objects at once, at a store that the test plays: what is asked, how often, and what the answers come to."""

from collections.abc import Callable, Sequence
from random import Random
from threading import Barrier, BrokenBarrierError, Event, Lock, Timer

import pytest

from retention_assets.errors import StoreError
from retention_assets.objectstore.failures import Failure, Kind, failure_told, unreachable
from retention_assets.objectstore.mutate.deletion_work import DeletionWork
from retention_assets.objectstore.outcomes import Answer, Doomed, Outcome
from retention_assets.objectstore.pace import Pace, Patience
from tests.stores.fake_clock import FakeClock

GONE, ABSENT = Answer(Outcome.DELETED), Answer(Outcome.MISSING)
DENIED = Answer(Outcome.FAILED, failure_told("AccessDenied", 403, "no", ()))
BUSY = Answer(Outcome.FAILED, failure_told("SlowDown", 503, "slow down", ()))
LOST = Answer(Outcome.FAILED, unreachable())
REFUSED = Answer(Outcome.FAILED, Failure(Kind.OTHER, "some of them"), alone=True)
NO_BUCKET = Answer(Outcome.FAILED, failure_told("NoSuchBucket", 404, "", ()))

Play = Callable[[Sequence[Doomed]], Answer]


class FakeStore:
    """Answers as it is told: `together` by the whole request, `alone` by what is next for the object."""

    def __init__(
        self, most: int, answer: Callable[[Sequence[Doomed]], Answer], *, alone: Sequence[Answer] = ()
    ) -> None:
        self.most = most
        self.requests: list[int] = []
        self._answer, self._alone = answer, list(alone)
        self._lock = Lock()

    def together(self, doomed: Sequence[Doomed]) -> Sequence[Answer]:
        with self._lock:
            self.requests.append(len(doomed))
        return [self._answer(doomed)] * len(doomed)

    def alone(self, doomed: Doomed) -> Answer:
        with self._lock:
            self.requests.append(1)
            if self._alone:
                return self._alone.pop(0)
        return self._answer([doomed])


def some(objects: int) -> list[Doomed]:
    return [Doomed(f"data/{number}") for number in range(objects)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pace(clock: FakeClock) -> Pace:
    return Pace(clock=clock, sleep=clock.sleep)


def done(store: FakeStore, pace: Pace, doomed: Sequence[Doomed], patience: Patience | None = None) -> list[Answer]:
    answers = DeletionWork(store, pace, patience or Patience(), Random(0)).done(doomed)
    assert set(answers) == set(doomed)
    return [answers[one] for one in doomed]


def test_ten_requests_are_under_way_at_once_and_no_more(pace: Pace) -> None:
    together, eleventh = Barrier(10), Barrier(11)

    def answer(doomed: Sequence[Doomed]) -> Answer:
        together.wait(20)  # breaks unless ten are here
        with pytest.raises(BrokenBarrierError):
            eleventh.wait(0.1)  # an eleventh never comes
        return GONE

    assert done(FakeStore(100, answer), pace, some(2_000)) == [GONE] * 2_000


def test_requests_are_as_large_as_the_pace_allows_in_a_second(clock: FakeClock) -> None:
    store = FakeStore(1_000, lambda doomed: GONE)
    done(store, Pace(50, clock=clock, sleep=clock.sleep), some(1_000))
    assert store.requests == [50] * 20
    assert clock() == pytest.approx(19)


def test_no_objects_ask_nothing(pace: Pace) -> None:
    store = FakeStore(1_000, lambda doomed: GONE)
    assert done(store, pace, []) == []
    assert store.requests == []


def test_of_a_bulk_that_was_refused_what_is_absent_counts_as_deleted_by_it(pace: Pace) -> None:
    store = FakeStore(256, lambda doomed: REFUSED, alone=[ABSENT, DENIED, GONE])
    answers = done(store, pace, some(3))
    assert sorted(answers, key=str) == sorted([GONE, DENIED, GONE], key=str)
    assert store.requests == [3, 1, 1, 1]


def test_where_nothing_was_asked_before_what_is_absent_is_missing(pace: Pace) -> None:
    assert done(FakeStore(1, lambda doomed: ABSENT), pace, some(2)) == [ABSENT, ABSENT]


@pytest.mark.parametrize(
    ("answers", "comes_to", "unclear"),
    [
        pytest.param([LOST, GONE], Outcome.DELETED, False, id="lost_then_deleted"),
        pytest.param([LOST, ABSENT], Outcome.DELETED, False, id="lost_then_absent"),
        pytest.param([LOST, DENIED], Outcome.FAILED, True, id="lost_then_denied"),
        pytest.param([LOST, *[BUSY] * 4, ABSENT], Outcome.DELETED, False, id="lost_then_throttled_then_absent"),
        pytest.param([BUSY, ABSENT], Outcome.MISSING, False, id="throttled_then_absent"),
        pytest.param([*[BUSY] * 4, GONE], Outcome.DELETED, False, id="throttled_often_then_deleted"),
        pytest.param(
            [BUSY, LOST, BUSY, LOST, BUSY, LOST], Outcome.FAILED, True, id="lost_three_times_between_throttles"
        ),
        pytest.param([BUSY, DENIED], Outcome.FAILED, False, id="throttled_then_denied"),
        pytest.param([LOST, LOST, LOST], Outcome.FAILED, True, id="lost_for_ever"),
    ],
)
def test_what_a_row_of_answers_comes_to(pace: Pace, answers: list[Answer], comes_to: Outcome, unclear: bool) -> None:
    store = FakeStore(1, lambda doomed: DENIED, alone=answers)
    (answer,) = done(store, pace, some(1), Patience(attempts=3))
    assert answer.outcome is comes_to
    assert (answer.failure is not None and answer.failure.unclear) is unclear
    assert len(store.requests) == len(answers)


@pytest.mark.parametrize("before", [(), (LOST,)], ids=["from_the_start", "after_a_lost_answer"])
def test_an_endless_throttle_ends_as_a_failure(pace: Pace, clock: FakeClock, before: Sequence[Answer]) -> None:
    (answer,) = done(FakeStore(1, lambda doomed: BUSY, alone=before), pace, some(1), Patience(seconds=30))
    assert answer.outcome is Outcome.FAILED
    assert answer.failure is not None
    assert answer.failure.unclear is bool(before)
    assert 30 < clock() < 90


def test_what_was_throttled_goes_in_portions(clock: FakeClock) -> None:
    busy = [True]

    def answer(doomed: Sequence[Doomed]) -> Answer:
        return BUSY if busy and busy.pop() else GONE

    store = FakeStore(1_000, answer)
    assert done(store, Pace(1_000, clock=clock, sleep=clock.sleep), some(900)) == [GONE] * 900
    assert store.requests[:2] == [900, 80]
    assert sum(store.requests) == 900 + 900
    assert max(store.requests[1:]) <= 100  # a tenth of what the ceiling allows in a second


def test_one_key_that_is_throttled_for_ever_holds_up_no_other(clock: FakeClock, pace: Pace) -> None:
    doomed = some(1_500)

    class HotStore(FakeStore):
        def together(self, doomed: Sequence[Doomed]) -> Sequence[Answer]:
            super().together(doomed)
            return [BUSY if one.path == "data/700" else GONE for one in doomed]

    answers = done(HotStore(1_000, lambda asked: GONE), pace, doomed)
    assert [one.path for one, answer in zip(doomed, answers, strict=True) if answer is not GONE] == ["data/700"]
    assert clock() < 240


def test_a_failure_of_the_store_itself_ends_the_work(pace: Pace) -> None:
    store = FakeStore(1, lambda doomed: NO_BUCKET)
    answers = done(store, pace, some(500))
    assert {answer.outcome for answer in answers} == {Outcome.FAILED}
    assert len(store.requests) <= 10 * 2  # each of ten threads may have been past the look
    assert sum(str(answer.failure and answer.failure.detail).startswith("not tried: ") for answer in answers) >= 480


def test_one_request_without_an_answer_among_others_with_one_ends_nothing(pace: Pace) -> None:
    doomed, enough, given_up = some(60), Event(), Event()
    answered: list[Doomed] = []
    lost: list[Doomed] = []

    def answer(asked: Sequence[Doomed]) -> Answer:
        if asked[0] is doomed[0]:
            lost.extend(asked)
            if len(lost) == 2:  # the last attempt
                enough.wait(20)
                Timer(0.2, given_up.set).start()
            return LOST
        answered.append(asked[0])
        if len(answered) > 20:
            enough.set()
            given_up.wait(20)
        return GONE

    answers = done(FakeStore(1, answer), pace, doomed, Patience(attempts=2))
    assert answers[0].outcome is Outcome.FAILED
    assert answers[1:] == [GONE] * 59


def test_only_throttles_slow_the_pace_down(pace: Pace) -> None:
    done(FakeStore(1, lambda doomed: LOST), pace, some(1))
    done(FakeStore(1, lambda doomed: DENIED), pace, some(1))
    assert pace.rate is None
    done(FakeStore(1, lambda doomed: DENIED, alone=[BUSY]), pace, some(1))
    assert pace.rate is not None


def test_an_error_of_our_own_is_not_swallowed(pace: Pace) -> None:
    def answer(doomed: Sequence[Doomed]) -> Answer:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        done(FakeStore(1, answer), pace, some(1))


def ended_by(clock: FakeClock, seconds: float) -> Callable[[], bool]:
    return lambda: clock() < seconds


@pytest.mark.parametrize("most", [1, 10])
def test_nothing_is_asked_for_once_the_callers_time_is_over(clock: FakeClock, most: int) -> None:
    pace = Pace(10, clock=clock, sleep=clock.sleep)
    store = FakeStore(most, lambda doomed: GONE)
    answers = DeletionWork(store, pace, Patience(), Random(0), ended_by(clock, 20)).done(some(1_000))
    ended = [answer.outcome for answer in answers.values()]
    assert set(ended) == {Outcome.DELETED, Outcome.LATE}
    assert ended.count(Outcome.DELETED) == sum(store.requests)
    assert 200 <= sum(store.requests) <= 250  # twenty seconds' worth, and what is asked for between two glances


def test_what_was_asked_for_and_failed_is_not_said_to_be_late(clock: FakeClock, pace: Pace) -> None:
    store = FakeStore(1, lambda doomed: BUSY, alone=[LOST])
    answers = DeletionWork(store, pace, Patience(50, 3600), Random(0), ended_by(clock, 60)).done(some(1))
    (answer,) = answers.values()
    assert answer.outcome is Outcome.FAILED
    assert answer.failure is not None
    assert answer.failure.unclear
    assert clock() < 60 + 60  # one rest of the pace more


def test_what_was_throttled_until_the_time_was_over_is_late(clock: FakeClock, pace: Pace) -> None:
    """Nothing was done to it: the next look is what it waits for."""
    store = FakeStore(10, lambda doomed: BUSY)
    answers = DeletionWork(store, pace, Patience(seconds=3600), Random(0), ended_by(clock, 60)).done(some(30))
    assert {answer.outcome for answer in answers.values()} == {Outcome.LATE}


def test_what_a_refused_bulk_leaves_to_be_asked_for_singly_keeps_its_answer_when_it_is_late(clock: FakeClock) -> None:
    store = FakeStore(10, lambda doomed: REFUSED)
    pace = Pace(1, clock=clock, sleep=clock.sleep)
    answers = DeletionWork(store, pace, Patience(), Random(0), ended_by(clock, 5)).done(some(50))
    assert {answer.outcome for answer in answers.values()} == {Outcome.FAILED, Outcome.LATE}
    assert sum(answer.outcome is Outcome.FAILED for answer in answers.values()) == sum(store.requests)


def test_whether_there_is_time_is_not_asked_for_every_request(clock: FakeClock) -> None:
    asked: list[float] = []

    def in_time() -> bool:
        asked.append(clock())
        return True

    pace = Pace(100, clock=clock, sleep=clock.sleep)
    DeletionWork(FakeStore(1, lambda doomed: GONE), pace, Patience(), Random(0), in_time).done(some(2_000))
    assert 5 <= len(asked) <= 20  # of twenty seconds and two thousand requests


def test_nothing_is_asked_for_when_there_is_no_time_left_from_the_beginning(clock: FakeClock) -> None:
    """A caller may have listed for long since it looked at the time last."""
    store = FakeStore(10, lambda doomed: GONE)
    pace = Pace(clock=clock, sleep=clock.sleep)
    answers = DeletionWork(store, pace, Patience(), Random(0), lambda: False).done(some(50))
    assert {answer.outcome for answer in answers.values()} == {Outcome.LATE}
    assert store.requests == []


def test_where_nobody_can_say_whether_there_is_time_no_thread_goes_on(clock: FakeClock) -> None:
    store = FakeStore(1, lambda doomed: GONE)
    answers = iter([True])

    def in_time() -> bool:
        if next(answers, False):
            return True
        raise StoreError("the warehouse does not answer")

    pace = Pace(10, clock=clock, sleep=clock.sleep)
    with pytest.raises(StoreError, match="the warehouse does not answer"):
        DeletionWork(store, pace, Patience(), Random(0), in_time).done(some(500))
    assert len(store.requests) <= 10 * 3 + 10  # the first seconds', and what was on its way
