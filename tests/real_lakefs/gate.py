"""A proxy between the command under test and the server. A test can act between two requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import ClassVar

import urllib3

Pass = Callable[[], urllib3.BaseHTTPResponse]
Act = Callable[[str, str, Pass], urllib3.BaseHTTPResponse]  # method, path below /api/v1, the request to the server


def let_pass(method: str, path: str, forward: Pass) -> urllib3.BaseHTTPResponse:
    """Forward a request, and do nothing else."""
    return forward()


@dataclass
class Gate:
    """`act` is called for each request, one at a time; it must call its third argument and return that answer."""

    url: str
    server: str
    act: Act = let_pass

    def __post_init__(self) -> None:
        self.pool = urllib3.PoolManager(maxsize=8)
        self.lock = Lock()


@contextmanager
def gate(server: str) -> Iterator[Gate]:
    """Run a proxy before the server at this URL for as long as the block lasts."""
    made = Gate("", server)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundPassing", (_Passing,), {"gate": made}))
    listener.daemon_threads = True
    made.url = f"http://127.0.0.1:{listener.server_port}"
    Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield made
    finally:
        listener.shutdown()
        listener.server_close()


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together
    gate: ClassVar[Gate]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name not in ("Host", "Content-Length")}
        headers["Accept-Encoding"] = "identity"

        def forward() -> urllib3.BaseHTTPResponse:
            address = self.gate.server + self.path
            return self.gate.pool.request(
                self.command, address, body=body or None, headers=headers, retries=False, redirect=False
            )

        with self.gate.lock:
            path = self.path.partition("?")[0].removeprefix("/api/v1")
            answer = self.gate.act(self.command, path, forward)
        self.send_response(answer.status)
        for name in ("Content-Type", "Location"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.data)))
        self.end_headers()
        self.wfile.write(answer.data)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
