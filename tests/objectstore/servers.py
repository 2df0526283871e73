"""HTTP servers that behave wrongly."""

import re
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
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
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server with this handler for as long as the block lasts, and yield its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def server_that_answers(
    status: int, body: bytes = b"", requests: list[str] | None = None
) -> AbstractContextManager[str]:
    """Yield the URL of a server that answers every request alike. `requests` gets the method of each request."""
    attributes = {"status": status, "body": body, "requests": [] if requests is None else requests}
    return served(type("Answering", (_Answering,), attributes))


def server_of_blob_batches(
    refused: MutableMapping[str, tuple[int, int]], requests: list[list[str]]
) -> AbstractContextManager[str]:
    """Yield the URL of a server that deletes blobs of Azure in batches. Each blob exists until it is deleted.

    `refused`: by the name of a blob, a status and how many times it is answered before the blob is deleted.
    `requests` gets the names of the blobs of each request.
    """
    return served(type("Batches", (_Batches,), {"refused": refused, "requests": requests, "deleted": set()}))


class _Batches(BaseHTTPRequestHandler):
    refused: ClassVar[MutableMapping[str, tuple[int, int]]]
    requests: ClassVar[list[list[str]]]
    deleted: ClassVar[set[str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        names = re.findall(r"^DELETE \S*/(\S+) HTTP", body, re.MULTILINE)
        self.requests.append(names)
        parts = "".join(self._part(number, name) for number, name in enumerate(names))
        answer = f"{parts}--batch--\r\n".encode()
        self.send_response(202)
        self.send_header("Content-Type", "multipart/mixed; boundary=batch")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _part(self, number: int, name: str) -> str:
        status, times = self.refused.get(name, (202, 0))
        line = "202 Accepted"
        if times:
            self.refused[name] = status, times - 1
            line = f"{status} Refused by the test."
        elif name in self.deleted:
            line = "404 The specified blob does not exist."
        else:
            self.deleted.add(name)
        return (
            f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
            f"HTTP/1.1 {line}\r\nx-ms-version: 2023-11-03\r\n\r\n\r\n"
        )

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""


class _Answering(BaseHTTPRequestHandler):
    status: ClassVar[int]
    body: ClassVar[bytes]
    requests: ClassVar[list[str]]

    def do_GET(self) -> None:
        self.requests.append(self.command)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""
