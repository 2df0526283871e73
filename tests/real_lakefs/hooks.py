"""A webhook of lakeFS whose answer a test can delay, so that a commit or a merge takes longer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, ClassVar

import yaml

_WAITS = 1800.0  # seconds, for a test that never releases; a busy machine needs minutes


@dataclass
class Webhook:
    """Delays every call, or the first one, until `release`. `arrived` is set when a call arrives after `hold`."""

    url: str
    arrived: Event = field(default_factory=Event)
    released: Event = field(default_factory=Event)
    only_first: bool = False

    def hold(self, *, only_first: bool = False) -> None:
        """Delay all calls from now on, or only the first one."""
        self.only_first = only_first
        self.arrived.clear()
        self.released.clear()

    def release(self) -> None:
        """Answer the waiting calls, and answer later ones at once."""
        self.released.set()

    def action(self, *branches: str, on: str = "pre-commit") -> bytes:
        """Return an action that calls this webhook, to be uploaded below `_lakefs_actions/` of a branch."""
        properties = {"url": self.url, "timeout": f"{_WAITS:.0f}s"}
        return yaml.safe_dump(
            {
                "name": f"hold {on}",
                "on": {on: {"branches": list(branches)}},
                "hooks": [{"id": "hold", "type": "webhook", "properties": properties}],
            }
        ).encode()


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve a webhook for as long as the block lasts; it answers at once until a test calls `hold`."""
    hook = Webhook("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundWaiting", (_Waiting,), {"hook": hook}))
    server.daemon_threads = True
    hook.url = f"http://127.0.0.1:{server.server_port}/hold"
    hook.release()
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hook
    finally:
        hook.release()
        server.shutdown()
        server.server_close()


class UnderWay:
    """A call in another thread, such as a commit that waits for its hook."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            self._answer = act()
        except BaseException as error:  # `ended` raises it
            self._error = error

    def is_over(self) -> bool:
        """Return whether the call ended."""
        return not self._thread.is_alive()

    def ended(self, timeout: float = 60.0) -> Any:
        """Wait for the call and return its answer. Errors: what it raised."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the call did not end within {timeout:.0f} s")
        if self._error is not None:
            raise self._error
        return self._answer


class _Waiting(BaseHTTPRequestHandler):
    hook: ClassVar[Webhook]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_first = not self.hook.arrived.is_set()
        self.hook.arrived.set()
        if is_first or not self.hook.only_first:
            self.hook.released.wait(_WAITS)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
