"""A clock that only `sleep` moves."""

from threading import Lock


class FakeClock:
    """Seconds since the clock was created. Threads may share it: each call of `sleep` moves it for all."""

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
