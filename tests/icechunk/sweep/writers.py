"""icechunk writers in other processes, on a server with correct conditional writes."""

import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from moto.s3.exceptions import PreconditionFailed
from moto.s3.responses import S3Response

from tests.objectstore.s3 import Bucket

WRITERS = ("w0", "w1")


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the server answer one request after the other, since moto checks a condition and writes in two steps.

    Returns the paths of our writes whose condition the server refuses.
    """
    lock, answer = Lock(), S3Response._key_response
    paths: list[str] = []

    def answer_one_request(self: S3Response, request: Any, full_url: str) -> Any:
        with lock:
            try:
                return answer(self, request, full_url)
            except PreconditionFailed:
                if "object_store" in request.headers["User-Agent"]:
                    paths.append(request.path)
                raise

    monkeypatch.setattr(S3Response, "_key_response", answer_one_request)
    return paths


class Writers:
    """The writer processes, with so many seconds between commits. The end of the block waits for their end."""

    def __init__(self, bucket: Bucket, count: int, pause: float = 0.0) -> None:
        place = (bucket.endpoint, bucket.name, "repository")
        self._running = {
            name: subprocess.Popen(
                [sys.executable, "-m", "tests.icechunk.sweep.writer", *place, name, str(count), str(pause)],
                cwd=Path(__file__).parents[3],
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in WRITERS
        }
        self.commits: dict[str, list[str]] = {}

    def wait_for_the_first(self) -> None:
        for name, one in self._running.items():
            assert one.stdout is not None
            self.commits[name] = [one.stdout.readline().strip()]

    @property
    def at_work(self) -> bool:
        return all(one.poll() is None for one in self._running.values())

    def __enter__(self) -> "Writers":
        self.wait_for_the_first()
        return self

    def stop(self) -> None:
        """Kill the processes. Each may have made a last commit that it did not print."""
        for one in self._running.values():
            one.kill()

    def __exit__(self, *error: object) -> None:
        for name, one in self._running.items():
            assert one.stdout is not None
            self.commits[name] += one.stdout.read().split()
            assert one.wait(timeout=60) in (0, -signal.SIGKILL)
