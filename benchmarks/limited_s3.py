"""A door before an S3 server that lets so many deletions through a second, as the great stores do.

A small server that shares a machine with those who ask it is limited by its processor, which listing takes up as much
as deleting does. Amazon S3 limits deletions (3,500 a second and prefix) and readings (5,500) apart.
"""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock, local
from urllib.parse import urlsplit

from s3 import S3

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


@contextmanager
def limited(server: S3, deletions_per_second: float) -> Iterator[S3]:
    """Run a door before the server, in a process of its own, for as long as the block lasts.

    Deletions beyond the limit wait their turn, in the order of their coming; a second that is not used is not saved up.
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


def _serve(upstream: str, deletions_per_second: float, told: Connection) -> None:
    queue = _Queue(deletions_per_second)
    door = type("Door", (_Door,), {"host": urlsplit(upstream).netloc, "queue": queue, "connections": local()})
    with _Server(("127.0.0.1", 0), door) as server:
        told.send(server.server_port)
        server.serve_forever()


class _Queue:
    """Turns of a length that the limit sets."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._free_at = time.monotonic()
        self._lock = Lock()

    def wait(self, deletions: int) -> None:
        """Return when the turn of so many deletions is over."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + deletions / self._per_second
            over = self._free_at
        time.sleep(max(0.0, over - time.monotonic()))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: str
    queue: _Queue
    connections: local

    def do_GET(self) -> None:
        """Pass on a listing."""
        self._pass_on()

    def do_POST(self) -> None:
        """Pass on a deletion in bulk, in its turn."""
        self._pass_on()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if deletions := body.count(b"<Key>"):
            self.queue.wait(deletions)
        if not hasattr(self.connections, "open"):
            self.connections.open = HTTPConnection(self.host)
        connection: HTTPConnection = self.connections.open
        connection.request(self.command, self.path, body or None, dict(self.headers))  # signed: as it came
        came = connection.getresponse()
        content = came.read()
        self.send_response_only(came.status)
        for name, value in came.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Date", self.date_time_string())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
