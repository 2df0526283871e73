"""A proxy of an S3 server that passes on a limited rate of deletions, and answers 503 SlowDown to the others.

Amazon S3 has such limits: about 3,500 deletions per second and prefix, where each key counts, and also 5,500 reads. A
small server on the same machine as its clients has no limit other than the processor.
"""

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock, local
from urllib.parse import urlsplit

from s3 import S3

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


@contextmanager
def limited(server: S3, deletions_per_second: float) -> Iterator[S3]:
    """Run a proxy of the server in a process of its own until the block ends.

    After a pause, the proxy passes on the deletions of one second at once.
    """
    processes = multiprocessing.get_context("spawn")
    here, there = processes.Pipe()
    process = processes.Process(target=_serve, args=(server.endpoint, deletions_per_second, there), daemon=True)
    process.start()
    there.close()
    try:
        yield replace(server, endpoint=f"http://127.0.0.1:{here.recv()}")
    finally:
        process.terminate()
        process.join()


def _serve(upstream: str, deletions_per_second: float, port: Connection) -> None:
    allowance = _Allowance(deletions_per_second)
    proxy = type(
        "Proxy", (_Proxy,), {"host": urlsplit(upstream).netloc, "allowance": allowance, "connections": local()}
    )
    with _Server(("127.0.0.1", 0), proxy) as server:
        port.send(server.server_port)
        server.serve_forever()


class _Allowance:
    """The number of deletions that are allowed now."""

    def __init__(self, per_second: float) -> None:
        self._per_second = self._left = per_second
        self._at = time.monotonic()
        self._lock = Lock()

    def takes(self, deletions: int) -> bool:
        """Return whether all of these deletions are allowed. If so, count them."""
        with self._lock:
            passed, self._at = time.monotonic() - self._at, time.monotonic()
            self._left = min(self._per_second, self._left + passed * self._per_second)
            if self._left < deletions:
                return False
            self._left -= deletions
            return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: str
    allowance: _Allowance
    connections: local

    def do_GET(self) -> None:
        """Pass on a listing."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass on a deletion in bulk, or refuse it."""
        self._pass_on()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        deletions = body.count(b"<Key>")
        if deletions and not self.allowance.takes(deletions):
            self._send(503, (), _SLOW_DOWN)
            return
        if not hasattr(self.connections, "open"):
            self.connections.open = HTTPConnection(self.host)
        connection: HTTPConnection = self.connections.open
        connection.request(self.command, self.path, body or None, dict(self.headers))  # unchanged, because it is signed
        response = connection.getresponse()
        content = response.read()
        self._send(response.status, response.getheaders(), content)

    def _send(self, status: int, headers: Iterable[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Date", self.date_time_string())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
