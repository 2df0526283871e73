"""Tests of a store server that is not installed are skipped, and the reason names the server."""

import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.objectstore.programs import free_port, program, running


def test_a_program_that_is_not_installed_is_named() -> None:
    with pytest.raises(pytest.skip.Exception, match="no-such-store is not installed: `make test-servers`"):
        program("no-such-store", "bin/no-such-store")


def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('this machine is too old')"]
    with (
        pytest.raises(pytest.skip.Exception, match="does not start here: this machine is too old"),
        running(command, free_port(), tmp_path / "log"),
    ):
        pass


def test_a_server_runs_as_long_as_it_is_needed(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with running(command, port, tmp_path / "log") as address, urlopen(address) as answer:
        assert answer.status == 200
    with pytest.raises(OSError, match="refused"):
        urlopen(address)
