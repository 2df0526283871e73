"""Starts lakeFS over local files or an S3 server, with a clock that tests move."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import urllib3
import yaml

from tests.objectstore.programs import free_port, stop
from tests.real_lakefs.client import ACCESS_KEY, SECRET_KEY, Client
from tests.real_lakefs.clock import MovedClock
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.stores import FileStore, ObjectStore, S3Store

_STARTS_WITHIN = 30.0  # seconds; on an idle machine it answers within one
BEGINS = 700  # days before today: where the clock of every server begins


@dataclass(frozen=True, slots=True)
class Server:
    """A running lakeFS server. One server serves all tests of a process, each with repositories of its own."""

    url: str
    clock: MovedClock
    store: ObjectStore
    imports_from: Path | None  # a directory whose files may be imported; None on S3
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def client(self) -> Client:
        """Return a new client, for another thread."""
        return Client(self.url)

    def new_repository(self, name: str = "repository", *, suffix: str = "") -> Repository:
        """Create a repository named `name-NUMBER` and return it. Its namespace ends in `suffix`, unescaped.

        A server of a bucket decodes a namespace: the objects of `…-my%20data` are below `…-my data`.
        """
        unique = f"{name}-{next(self._numbers)}"
        namespace, client = self.store.namespace(unique + suffix), self.client()
        body = {"name": unique, "storage_namespace": namespace, "default_branch": "main"}
        client.ask("POST", "/repositories", body=body)
        return Repository(self, client, unique, namespace, unquote(unique + suffix))


@cache
def lakefs_program() -> str:
    """Return the path of `lakefs` on the PATH. Skip the test if it is missing, or if its clock cannot be moved."""
    found = shutil.which("lakefs")
    if found is None:
        pytest.skip("lakefs is not on the PATH: no real lakeFS server can be started")
    if b"CLOCK_FILE" not in Path(found).read_bytes():
        pytest.skip(f"{found} does not read CLOCK_FILE: the clock of this lakeFS server cannot be moved")
    return found


@contextmanager
def local_server(directory: Path) -> Iterator[Server]:
    """Run a server that keeps its objects in files below `directory`."""
    blocks, imports = directory / "blocks", directory / "imports"
    imports.mkdir(parents=True)
    local = {"path": str(blocks), "import_enabled": True, "allowed_external_prefixes": [str(imports)]}
    with _running(directory, {"type": "local", "local": local}) as (url, clock):
        yield Server(url, clock, FileStore(blocks), imports)


@contextmanager
def server_on_s3(directory: Path, store: S3Store) -> Iterator[Server]:
    """Run a server that keeps its objects in a bucket."""
    options = store.server.options
    s3 = {
        "endpoint": options["endpoint"],
        "force_path_style": True,
        "region": options["region"],
        "discover_bucket_region": False,
        "credentials": {key: options[key] for key in ("access_key_id", "secret_access_key")},
    }
    with _running(directory, {"type": "s3", "s3": s3}) as (url, clock):
        yield Server(url, clock, store, None)


@contextmanager
def _running(directory: Path, blockstore: Mapping[str, Any]) -> Iterator[tuple[str, MovedClock]]:
    port, clock = free_port(), MovedClock(directory / "clock")
    clock.set_back(BEGINS)
    settings = {
        "listen_address": f"127.0.0.1:{port}",
        "database": {"type": "local", "local": {"path": str(directory / "db")}},
        "blockstore": blockstore,
        "auth": {"encrypt": {"secret_key": "any text"}},
        "stats": {"enabled": False},
        "logging": {"level": "ERROR"},
        "committed": {
            "permanent": {"range_raggedness_entries": 60},  # small ranges for small repositories
            "local_cache": {"dir": str(directory / "cache")},
        },
        "installation": {"user_name": "admin", "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY},
    }
    (directory / "lakefs.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(directory), "CLOCK_FILE": str(clock.file)}
    with (directory / "log").open("wb") as log:
        command = [lakefs_program(), "--config", str(directory / "lakefs.yaml"), "run"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=directory)
    try:
        url = f"http://127.0.0.1:{port}"
        if not _answers(process, url):
            raise RuntimeError(f"lakefs did not start: {(directory / 'log').read_text(errors='replace')[-2000:]}")
        yield url, clock
    finally:
        stop(process)


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    ends = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < ends:
        try:
            if urllib3.request("GET", f"{url}/_health", retries=False, timeout=5).status == 200:
                return True
        except urllib3.exceptions.HTTPError:
            pass
        time.sleep(0.05)
    return False
