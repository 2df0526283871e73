"""A server that does not keep its word."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread


@contextmanager
def server_that_hangs_up() -> Iterator[str]:
    """Give the address of a server that accepts connections and closes each without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=_hang_up, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _hang_up(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            return
