"""A clock that only sleeping moves."""

from threading import Lock


class FakeClock:
    """Seconds since it was made. Threads may share it; each one's sleep moves it for all."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self._lock = Lock()

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.seconds += seconds
