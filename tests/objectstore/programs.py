"""Starts and stops store servers that `make test-servers` installs.

A test is skipped if its server is not installed. The reason names the server.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

INSTALLED = Path(__file__).parents[2] / ".servers"
_NONE: Mapping[str, str] = {}
_STARTS_WITHIN = 30.0  # seconds; on an idle machine all answer within one


@contextmanager
def running(command: Sequence[str], port: int, log: Path, secrets: Mapping[str, str] = _NONE) -> Iterator[str]:
    """Run a server for as long as the block lasts, and yield its URL once it answers. Skip the test if it does not."""
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(log.parent), **secrets}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=log.parent)
    try:
        if not _answers(process, port):
            words = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            pytest.skip(f"{Path(command[0]).name} does not start here: {words[0]}")
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], within: float = 5.0) -> None:
    """End a server with SIGTERM, and kill it if it has not ended `within` these seconds."""
    process.terminate()
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def program(name: str, *places: str) -> str:
    """Return the path of a program below `.servers`, else on PATH. Skip the test if it is missing."""
    for place in places:
        if (INSTALLED / place).is_file():
            return str(INSTALLED / place)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: `make test-servers` installs it, with go or npm")
    return found


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    ends = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < ends:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/")
            connection.getresponse()
        except (OSError, HTTPException):
            time.sleep(0.05)
        else:
            return True
    return False
