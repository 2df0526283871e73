"""Many objects deleted by several requests at once, each tried again for what may yet go through."""

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

AT_ONCE = 10  # more than 12 deletions at a time made S3 answer SlowDown. Source: lakeFS facts 8, #5729

_GLANCE = 2.0  # seconds between two questions whether the caller still is in time: the answer may cost a request

BeforeDeadline = Callable[[], bool]
_Ask = Callable[[Sequence[DeleteTarget]], Sequence[Answer]]
_Answers = dict[DeleteTarget, Answer]


class DeletionWork:
    """One list of objects on its way through a store. To be used once.

    An object that a request named without a clear answer, and that the next request does not find, counts as deleted:
    by the first, for all that is known. One that fails then stays unclear. Once the store itself fails (its bucket,
    the credentials, the way to it) nothing more is sent. Nor is it once `in_time` says no, or cannot say: a store that
    throttles may hold a list up for long. What was not asked for by then, or only throttled, is `late`.
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
        self._unclear: set[DeleteTarget] = set()  # named by a request without a clear answer
        self._answered_at = -inf
        self._broken: Failure | None = None

    def done(self, to_delete: Sequence[DeleteTarget]) -> _Answers:
        """Delete the objects, which differ, and return the last answer about each."""
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
        """Ask for the objects, again for those whose failure may pass, and return the last answers."""
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
        """Return what there is time for later: what was throttled each time is as if it had never been asked for."""
        late = (one for one, answer in answers.items() if _is_throttled(answer) and one not in self._unclear)
        return dict.fromkeys(late, Answer(Outcome.LATE))

    def _left(self, answers: _Answers) -> _Answers:
        """Return what to ask for next of that which may yet go; once the store throttled, only a portion."""
        left = {one: answer for one, answer in answers.items() if answer.failure and answer.failure.passing}
        if any(map(_is_throttled, left.values())):
            return dict(islice(left.items(), self._pace.portion(len(left))))
        return left

    def _asked(self, batch: Sequence[DeleteTarget], ask: _Ask) -> _Answers:
        """Ask once, as soon as the pace allows it; no answers when it is too late by then."""
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
        """Ask whether there is time left. Where nobody can say, there is none for the other threads, either."""
        try:
            self._is_late = self._is_late or not self._in_time()
        except Exception:
            self._is_late = True
            raise

    def _note_broken(self, answers: _Answers, began: float) -> None:
        """Note a failure of the store itself. A lost request shows none, if others were answered meanwhile."""
        failures = (answer.failure for answer in answers.values() if answer.failure)
        failure = next((failure for failure in failures if failure.kind.is_of_the_store), None)
        if failure and (failure.kind is not Kind.UNREACHABLE or self._answered_at < began):
            self._broken = failure

    def _after_another(self, to_delete: DeleteTarget, answer: Answer) -> Answer:
        """Return the answer about an object that an earlier request may have deleted."""
        if answer.outcome is Outcome.MISSING:
            return Answer(Outcome.DELETED)
        if answer.outcome is Outcome.FAILED and answer.failure and to_delete in self._unclear:
            return replace(answer, failure=replace(answer.failure, unclear=True))
        return answer


def _is_throttled(answer: Answer) -> bool:
    return answer.failure is not None and answer.failure.throttled
