"""Deletes many objects with concurrent requests, and retries the objects whose failure is retryable."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from math import ceil, inf
from random import Random
from threading import Lock

from retention_assets.objectstore.failures import Failure, Kind
from retention_assets.objectstore.outcomes import Answer, DeleteTarget, DeletingStore, Outcome
from retention_assets.objectstore.rate_limiter import Patience, RateLimiter, Trials

AT_ONCE = 10  # more than 12 concurrent deletions made S3 answer SlowDown. Source: lakeFS facts 8, #5729

_GLANCE = 2.0  # seconds between two polls of the caller's deadline, because a poll may cost a request

BeforeDeadline = Callable[[], bool]
_Ask = Callable[[Sequence[DeleteTarget]], Sequence[Answer]]
_Answers = dict[DeleteTarget, Answer]


class DeletionWork:
    """Deletes one list of objects. Each instance is used once.

    If a request has an ambiguous result and the next request does not find the object, the object counts as deleted. If
    the next request fails too, the result stays ambiguous.

    No further request is sent once the store itself fails: its bucket, its credentials or the network. No further
    request is sent either once `before_deadline()` returns False or raises, because a throttling store can delay a list
    for a long time. Objects that were not requested by then, or whose requests were only throttled, are `late`.
    """

    def __init__(
        self,
        store: DeletingStore,
        rate_limiter: RateLimiter,
        patience: Patience,
        random: Random,
        before_deadline: BeforeDeadline = lambda: True,
    ) -> None:
        self._store, self._pace, self._patience, self._random = store, rate_limiter, patience, random
        self._in_time, self._glanced_at, self._is_late = before_deadline, -inf, False
        self._lock = Lock()
        self._unclear: set[DeleteTarget] = set()  # named by a request with an ambiguous result
        self._answered_at = -inf
        self._broken: Failure | None = None

    def done(self, to_delete: Sequence[DeleteTarget]) -> _Answers:
        """Delete the objects, which must be distinct, and return the last answer for each."""
        answers: _Answers = {}
        delete_one = list(to_delete)
        if in_bulk := self._store.most > 1:
            answers = self._each(to_delete, self._store.most, self._store.delete_many)
            delete_one = [one for one, answer in answers.items() if answer.retry_alone]
        singly = self._each(delete_one, 1, lambda batch: [self._store.delete_one(one) for one in batch])
        answers |= {
            one: answer for one, answer in singly.items() if answer.outcome is not Outcome.LATE or one not in answers
        }
        before = self._unclear.union(delete_one if in_bulk else ())
        return answers | {one: self._after_another(one, answers[one]) for one in before}

    def _each(self, to_delete: Sequence[DeleteTarget], most: int, ask: _Ask) -> _Answers:
        queue = deque(to_delete)

        def work() -> _Answers:
            ended: _Answers = {}
            while batch := self._taken(queue, most):
                ended |= self._settled(batch, ask)
            return ended

        workers = min(AT_ONCE, ceil(len(queue) / most))
        if not workers:
            return {}
        with ThreadPoolExecutor(workers) as pool:
            parts = [pool.submit(work) for _ in range(workers)]
        return {one: answer for part in parts for one, answer in part.result().items()}

    def _taken(self, queue: deque[DeleteTarget], most: int) -> Sequence[DeleteTarget]:
        with self._lock:
            return [queue.popleft() for _ in range(min(len(queue), self._pace.portion(most)))]

    def _settled(self, batch: Sequence[DeleteTarget], ask: _Ask) -> _Answers:
        """Delete a batch, retry the objects whose failure is retryable, and return the last answer for each."""
        if broken := self._broken:
            not_tried = replace(broken, detail=f"not tried: {broken.detail}", unclear=False)
            return dict.fromkeys(batch, Answer(Outcome.FAILED, not_tried))
        trials = Trials(self._patience, self._pace, self._random)
        began = self._pace.now()
        answers = self._asked(batch, ask)
        if not answers:
            return dict.fromkeys(batch, Answer(Outcome.LATE))
        while left := self._left(answers):
            if not trials.wait(throttled=any(map(_is_throttled, left.values()))):
                break
            again = self._asked(list(left), ask)
            if not again:
                return answers | self._late(answers)
            answers |= again
        self._note_broken(answers, began)
        return answers

    def _late(self, answers: _Answers) -> _Answers:
        """Return `late` answers for the objects that were only throttled, as if they had never been requested."""
        late = (one for one, answer in answers.items() if _is_throttled(answer) and one not in self._unclear)
        return dict.fromkeys(late, Answer(Outcome.LATE))

    def _left(self, answers: _Answers) -> _Answers:
        """Return the objects to retry next, with their answers: all retryable objects, or fewer after a throttle."""
        left = {one: answer for one, answer in answers.items() if answer.failure and answer.failure.passing}
        if any(map(_is_throttled, left.values())):
            return dict(islice(left.items(), self._pace.portion(len(left))))
        return left

    def _asked(self, batch: Sequence[DeleteTarget], ask: _Ask) -> _Answers:
        """Send one request when the rate limiter allows it; return no answers if the deadline is exceeded by then."""
        if not self._may_ask(len(batch)):
            return {}
        asked_at = self._pace.now()
        answers = dict(zip(batch, ask(batch), strict=True))
        failures = [answer.failure for answer in answers.values() if answer.failure]
        if any(failure.throttled for failure in failures):
            self._pace.throttled(asked_at)
            if len(failures) < len(batch):
                self._pace.progressed()
        elif not any(failure.passing for failure in failures):
            self._pace.clean(asked_at)
        with self._lock:
            self._unclear.update(one for one, answer in answers.items() if answer.failure and answer.failure.unclear)
            if not any(failure.kind is Kind.UNREACHABLE for failure in failures):
                self._answered_at = self._pace.now()
        return answers

    def _may_ask(self, objects: int) -> bool:
        if not self._is_late:
            self._pace.before(objects)
            now = self._pace.now()
            if now - self._glanced_at >= _GLANCE:
                self._glanced_at = now
                self._poll()
        return not self._is_late

    def _poll(self) -> None:
        """Check the deadline. If `before_deadline` raises, the deadline counts as exceeded for all threads."""
        try:
            self._is_late = self._is_late or not self._in_time()
        except Exception:
            self._is_late = True
            raise

    def _note_broken(self, answers: _Answers, began: float) -> None:
        """Note a failure of the store itself.

        A request without a response does not count as one if other requests got responses in the meantime.
        """
        failures = (answer.failure for answer in answers.values() if answer.failure)
        failure = next((failure for failure in failures if failure.kind.is_of_the_store), None)
        if failure and (failure.kind is not Kind.UNREACHABLE or self._answered_at < began):
            self._broken = failure

    def _after_another(self, to_delete: DeleteTarget, answer: Answer) -> Answer:
        """Return the final answer for an object that an earlier request may have deleted."""
        if answer.outcome is Outcome.MISSING:
            return Answer(Outcome.DELETED)
        if answer.outcome is Outcome.FAILED and answer.failure and to_delete in self._unclear:
            return replace(answer, failure=replace(answer.failure, unclear=True))
        return answer


def _is_throttled(answer: Answer) -> bool:
    return answer.failure is not None and answer.failure.throttled
