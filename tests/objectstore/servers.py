"""HTTP servers that behave wrongly."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar


@contextmanager
def server_that_hangs_up() -> Iterator[str]:
    """Yield the URL of a server that accepts connections and closes each without a response."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_hang_up, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _hang_up(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return


@contextmanager
def server_that_answers(status: int, body: bytes = b"") -> Iterator[str]:
    """Yield the URL of a server that answers every request alike."""
    answering = type("Answering", (_Answering,), {"status": status, "body": body})
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Answering(BaseHTTPRequestHandler):
    status: ClassVar[int]
    body: ClassVar[bytes]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
