"""Deletion of many objects in a fake store: the requests, the retries, and the results."""

import time
from collections.abc import Callable, Sequence
from random import Random
from threading import Barrier, BrokenBarrierError, Event, Lock, Timer

import pytest

from retention_assets.errors import StoreError
from retention_assets.objectstore.failures import Failure, Kind, failure_of_response, unreachable
from retention_assets.objectstore.mutate.deletion import AT_ONCE, DeletionWork
from retention_assets.objectstore.outcomes import DELETED as GONE
from retention_assets.objectstore.outcomes import DeleteTarget, MaySend, ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter, RetryPolicy
from tests.objectstore.fake_clock import FakeClock

ABSENT = ObjectResult(Outcome.MISSING)
DENIED = ObjectResult.failed(failure_of_response("AccessDenied", 403, "no", ()))
BUSY = ObjectResult.failed(failure_of_response("SlowDown", 503, "slow down", ()))
LOST = ObjectResult.failed(unreachable())
REFUSED = ObjectResult.failed(Failure(Kind.OTHER, "some of them", retry_singly=True))
EXCHANGED = ObjectResult(Outcome.SKIPPED, "another object", failure_of_response("PreconditionFailed", 412, "", ()))
NO_BUCKET = ObjectResult.failed(failure_of_response("NoSuchBucket", 404, "", ()))

Play = Callable[[Sequence[DeleteTarget]], ObjectResult]


class FakeStore:
    """A store with answers of the test: `delete_many` by request, `delete_one` by the next answer for the object."""

    def __init__(self, most: int, answer: Play, *, delete_one: Sequence[ObjectResult] = ()) -> None:
        self.most_per_request = most
        self.requests: list[int] = []
        self._answer, self._alone = answer, list(delete_one)
        self._lock = Lock()

    def delete_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
        with self._lock:
            self.requests.append(len(to_delete))
        return [self._answer(to_delete)] * len(to_delete)

    def delete_one(self, to_delete: DeleteTarget, may_send: MaySend) -> ObjectResult:
        with self._lock:
            self.requests.append(1)
            if self._alone:
                return self._alone.pop(0)
        return self._answer([to_delete])


def some(objects: int) -> list[DeleteTarget]:
    return [DeleteTarget(f"data/{number}") for number in range(objects)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def rate_limiter(clock: FakeClock) -> RateLimiter:
    return RateLimiter(clock=clock, sleep=clock.sleep)


def done(
    store: FakeStore,
    rate_limiter: RateLimiter,
    to_delete: Sequence[DeleteTarget],
    retry_policy: RetryPolicy | None = None,
) -> list[ObjectResult]:
    answers = DeletionWork(store, rate_limiter, retry_policy or RetryPolicy(), Random(0)).delete(to_delete)
    assert set(answers) == set(to_delete)
    return [answers[one] for one in to_delete]


def test_at_most_ten_requests_run_at_the_same_time(rate_limiter: RateLimiter) -> None:
    delete_many, eleventh = Barrier(10), Barrier(11)

    def answer(to_delete: Sequence[DeleteTarget]) -> ObjectResult:
        delete_many.wait(20)  # breaks unless ten are here
        with pytest.raises(BrokenBarrierError):
            eleventh.wait(0.1)  # an eleventh never comes
        return GONE

    assert done(FakeStore(100, answer), rate_limiter, some(2_000)) == [GONE] * 2_000


def test_a_request_has_at_most_a_seconds_worth_of_objects(clock: FakeClock) -> None:
    store = FakeStore(1_000, lambda to_delete: GONE)
    done(store, RateLimiter(50, clock=clock, sleep=clock.sleep), some(1_000))
    assert store.requests == [50] * 20
    assert clock() == pytest.approx(19)


def test_without_objects_no_request_is_sent(rate_limiter: RateLimiter) -> None:
    store = FakeStore(1_000, lambda to_delete: GONE)
    assert done(store, rate_limiter, []) == []
    assert store.requests == []


def test_an_object_missing_after_a_refused_bulk_request_counts_as_deleted(rate_limiter: RateLimiter) -> None:
    store = FakeStore(256, lambda to_delete: REFUSED, delete_one=[ABSENT, DENIED, GONE])
    answers = done(store, rate_limiter, some(3))
    assert sorted(answers, key=str) == sorted([GONE, DENIED, GONE], key=str)
    assert store.requests == [3, 1, 1, 1]


def test_an_object_missing_at_its_first_request_is_missing(rate_limiter: RateLimiter) -> None:
    assert done(FakeStore(1, lambda to_delete: ABSENT), rate_limiter, some(2)) == [ABSENT, ABSENT]


@pytest.mark.parametrize(
    ("answers", "comes_to", "ambiguous"),
    [
        pytest.param([LOST, GONE], Outcome.DELETED, False, id="lost_then_deleted"),
        pytest.param([LOST, ABSENT], Outcome.DELETED, False, id="lost_then_absent"),
        pytest.param([LOST, DENIED], Outcome.FAILED, True, id="lost_then_denied"),
        pytest.param([LOST, EXCHANGED], Outcome.FAILED, True, id="lost_then_another_object"),
        pytest.param([BUSY, EXCHANGED], Outcome.SKIPPED, False, id="throttled_then_another_object"),
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
def test_a_sequence_of_responses_has_the_expected_result(
    rate_limiter: RateLimiter, answers: list[ObjectResult], comes_to: Outcome, ambiguous: bool
) -> None:
    store = FakeStore(1, lambda to_delete: DENIED, delete_one=answers)
    (answer,) = done(store, rate_limiter, some(1), RetryPolicy(attempts=3))
    assert answer.outcome is comes_to
    assert (answer.failure is not None and answer.failure.ambiguous) is ambiguous
    assert len(store.requests) == len(answers)


@pytest.mark.parametrize("before", [(), (LOST,)], ids=["from_the_start", "after_a_lost_response"])
def test_an_endless_throttle_ends_as_a_failure(
    rate_limiter: RateLimiter, clock: FakeClock, before: Sequence[ObjectResult]
) -> None:
    (answer,) = done(
        FakeStore(1, lambda to_delete: BUSY, delete_one=before), rate_limiter, some(1), RetryPolicy(seconds=30)
    )
    assert answer.outcome is Outcome.FAILED
    assert answer.failure is not None
    assert answer.failure.ambiguous is bool(before)
    assert 30 < clock() < 90


def test_throttled_objects_are_deleted_in_batches(clock: FakeClock) -> None:
    busy = [True]

    def answer(to_delete: Sequence[DeleteTarget]) -> ObjectResult:
        return BUSY if busy and busy.pop() else GONE

    store = FakeStore(1_000, answer)
    assert done(store, RateLimiter(1_000, clock=clock, sleep=clock.sleep), some(900)) == [GONE] * 900
    assert store.requests[:2] == [900, 80]
    assert sum(store.requests) == 900 + 900
    assert max(store.requests[1:]) <= 100  # a tenth of the ceiling per second


def test_one_key_that_is_always_throttled_does_not_delay_others(clock: FakeClock, rate_limiter: RateLimiter) -> None:
    to_delete = some(1_500)

    class HotStore(FakeStore):
        def delete_many(self, to_delete: Sequence[DeleteTarget], may_send: MaySend) -> Sequence[ObjectResult]:
            super().delete_many(to_delete, may_send)
            return [BUSY if one.path == "data/700" else GONE for one in to_delete]

    answers = done(HotStore(1_000, lambda asked: GONE), rate_limiter, to_delete)
    assert [one.path for one, answer in zip(to_delete, answers, strict=True) if answer is not GONE] == ["data/700"]
    assert clock() < 240


def test_a_failure_of_the_store_itself_stops_further_requests(rate_limiter: RateLimiter) -> None:
    store = FakeStore(1, lambda to_delete: NO_BUCKET)
    answers = done(store, rate_limiter, some(500))
    assert {answer.outcome for answer in answers} == {Outcome.FAILED}
    assert len(store.requests) <= 10 * 2  # each of ten threads may already have checked the deadline
    assert sum(str(answer.failure and answer.failure.detail).startswith("not tried: ") for answer in answers) >= 480


def test_one_request_without_a_response_does_not_stop_the_others(rate_limiter: RateLimiter) -> None:
    to_delete, enough, given_up = some(60), Event(), Event()
    answered: list[DeleteTarget] = []
    lost: list[DeleteTarget] = []

    def answer(asked: Sequence[DeleteTarget]) -> ObjectResult:
        if asked[0] is to_delete[0]:
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

    answers = done(FakeStore(1, answer), rate_limiter, to_delete, RetryPolicy(attempts=2))
    assert answers[0].outcome is Outcome.FAILED
    assert answers[1:] == [GONE] * 59


def test_only_throttles_lower_the_rate(rate_limiter: RateLimiter) -> None:
    done(FakeStore(1, lambda to_delete: LOST), rate_limiter, some(1))
    done(FakeStore(1, lambda to_delete: DENIED), rate_limiter, some(1))
    assert rate_limiter.rate is None
    done(FakeStore(1, lambda to_delete: DENIED, delete_one=[BUSY]), rate_limiter, some(1))
    assert rate_limiter.rate is not None


def test_an_error_of_our_own_is_not_swallowed(rate_limiter: RateLimiter) -> None:
    def answer(to_delete: Sequence[DeleteTarget]) -> ObjectResult:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        done(FakeStore(1, answer), rate_limiter, some(1))


def ended_by(clock: FakeClock, seconds: float) -> Callable[[], bool]:
    return lambda: clock() < seconds


@pytest.mark.parametrize("most", [1, 10])
def test_no_request_is_sent_after_the_deadline(clock: FakeClock, most: int) -> None:
    rate_limiter = RateLimiter(10, clock=clock, sleep=clock.sleep)
    store = FakeStore(most, lambda to_delete: GONE)
    answers = DeletionWork(store, rate_limiter, RetryPolicy(), Random(0), ended_by(clock, 20)).delete(some(1_000))
    ended = [answer.outcome for answer in answers.values()]
    assert set(ended) == {Outcome.DELETED, Outcome.ATTEMPTED}
    assert ended.count(Outcome.DELETED) == sum(store.requests)
    assert 200 <= sum(store.requests) <= 250  # the requests of twenty seconds, and those between two polls


def test_an_object_that_was_requested_and_failed_is_not_attempted(clock: FakeClock, rate_limiter: RateLimiter) -> None:
    store = FakeStore(1, lambda to_delete: BUSY, delete_one=[LOST])
    answers = DeletionWork(store, rate_limiter, RetryPolicy(50, 3600), Random(0), ended_by(clock, 60)).delete(some(1))
    (answer,) = answers.values()
    assert answer.outcome is Outcome.FAILED
    assert answer.failure is not None
    assert answer.failure.ambiguous
    assert clock() < 60 + 60  # and one more pause of the rate limiter


def test_an_object_that_was_throttled_until_the_deadline_is_attempted(
    clock: FakeClock, rate_limiter: RateLimiter
) -> None:
    """The object was not deleted. It waits for the next liveness check."""
    store = FakeStore(10, lambda to_delete: BUSY)
    answers = DeletionWork(store, rate_limiter, RetryPolicy(seconds=3600), Random(0), ended_by(clock, 60)).delete(
        some(30)
    )
    assert {answer.outcome for answer in answers.values()} == {Outcome.ATTEMPTED}


def test_objects_of_a_refused_bulk_request_keep_its_result_at_the_deadline(clock: FakeClock) -> None:
    store = FakeStore(10, lambda to_delete: REFUSED)
    rate_limiter = RateLimiter(1, clock=clock, sleep=clock.sleep)
    answers = DeletionWork(store, rate_limiter, RetryPolicy(), Random(0), ended_by(clock, 5)).delete(some(50))
    assert {answer.outcome for answer in answers.values()} == {Outcome.FAILED, Outcome.ATTEMPTED}
    assert sum(answer.outcome is Outcome.FAILED for answer in answers.values()) == sum(store.requests)


def test_the_deadline_is_not_checked_before_every_request(clock: FakeClock) -> None:
    asked: list[float] = []

    def before_deadline() -> bool:
        asked.append(clock())
        return True

    rate_limiter = RateLimiter(100, clock=clock, sleep=clock.sleep)
    DeletionWork(FakeStore(1, lambda to_delete: GONE), rate_limiter, RetryPolicy(), Random(0), before_deadline).delete(
        some(2_000)
    )
    assert 5 <= len(asked) <= 20  # of twenty seconds and two thousand requests


def test_after_the_machine_slept_the_deadline_is_checked_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = 0.0

    def answer(to_delete: Sequence[DeleteTarget]) -> ObjectResult:
        nonlocal slept
        slept = 8 * 3600.0  # the machine sleeps during the first requests; `time.monotonic` does not show it
        return GONE

    boot_time = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: boot_time(clock) + slept)
    store = FakeStore(1, answer)
    DeletionWork(store, RateLimiter(), RetryPolicy(), Random(0), lambda: not slept).delete(some(500))
    assert len(store.requests) <= AT_ONCE


def test_no_request_is_sent_if_the_deadline_is_exceeded_at_the_start(clock: FakeClock) -> None:
    """The caller may have listed for a long time since it last checked the time."""
    store = FakeStore(10, lambda to_delete: GONE)
    rate_limiter = RateLimiter(clock=clock, sleep=clock.sleep)
    answers = DeletionWork(store, rate_limiter, RetryPolicy(), Random(0), lambda: False).delete(some(50))
    assert {answer.outcome for answer in answers.values()} == {Outcome.ATTEMPTED}
    assert store.requests == []


@pytest.mark.parametrize("most", [1, 100], ids=["one_by_one", "in_bulk"])
def test_no_thread_sends_a_request_while_the_deadline_is_checked(most: int) -> None:
    """A run that continues after it was suspended asks whether it still has the lease. The answer can take seconds."""
    store = FakeStore(most, lambda to_delete: GONE)

    def before_deadline() -> bool:
        time.sleep(0.3)  # the warehouse answers slowly
        return False

    DeletionWork(store, RateLimiter(), RetryPolicy(), Random(0), before_deadline).delete(some(5_000))
    assert store.requests == []


def test_an_error_of_the_deadline_check_stops_all_threads(clock: FakeClock) -> None:
    store = FakeStore(1, lambda to_delete: GONE)
    answers = iter([True])

    def before_deadline() -> bool:
        if next(answers, False):
            return True
        raise StoreError("the warehouse does not answer")

    rate_limiter = RateLimiter(10, clock=clock, sleep=clock.sleep)
    with pytest.raises(StoreError, match="the warehouse does not answer"):
        DeletionWork(store, rate_limiter, RetryPolicy(), Random(0), before_deadline).delete(some(500))
    assert len(store.requests) <= 10 * 3 + 10  # the requests of the first seconds, and those in progress
