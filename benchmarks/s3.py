"""Runs an S3 server, fills it, and empties it with minimal loops of deletions, with which sweeps are compared."""

import asyncio
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from obstore.store import S3Store

BUCKET = "lake"
_KEY, _REGION = "benchmark", "us-east-1"  # key and secret of a server that only this machine can reach
_PUTS_AT_ONCE = 32
_BULK = 1_000  # keys in one request, the most that S3 takes
_RETRY_AFTER = 0.05  # seconds between a throttled request and its retry
_STARTS_WITHIN = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class S3:
    """A running server with an empty bucket."""

    name: str
    endpoint: str

    def options(self) -> dict[str, str]:
        """Return the options with which obstore and the package connect."""
        return {
            "endpoint": self.endpoint,
            "region": _REGION,
            "access_key_id": _KEY,
            "secret_access_key": _KEY,
        }

    def client(self, connections: int = 1) -> Any:
        """Return a client of boto3."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            aws_access_key_id=_KEY,
            aws_secret_access_key=_KEY,
            config=Config(
                max_pool_connections=connections, s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}
            ),
        )

    def fill(self, keys: Sequence[str]) -> None:
        """Put an object of one byte at each key."""
        store: Any = S3Store(BUCKET, config=self.options(), client_options={"allow_http": True})

        async def put_all() -> None:
            waiting = iter(keys)

            async def put() -> None:
                for key in waiting:
                    await store.put_async(key, b"1", use_multipart=False)

            await asyncio.gather(*(put() for _ in range(_PUTS_AT_ONCE)))

        asyncio.run(put_all())

    def bare_seconds(self, keys: Sequence[str], workers: int, at_once: int, *, listing: bool = False) -> float:
        """Delete the keys with bulk requests, in `workers` processes with `at_once` requests each. Return the seconds.

        `listing`: list the keys of each request first. Throttled requests are retried at once, so the store works at
        its limit.
        """
        processes = multiprocessing.get_context("spawn")
        barrier = processes.Barrier(workers + 1)
        share = -(-len(keys) // workers)
        parts = [keys[start : start + share] for start in range(0, len(keys), share)]
        at_work = [processes.Process(target=_delete, args=(self, part, at_once, listing, barrier)) for part in parts]
        for one in at_work:
            one.start()
        barrier.wait()
        started = time.perf_counter()
        for one in at_work:
            one.join()
        seconds = time.perf_counter() - started
        if any(one.exitcode for one in at_work):
            raise SystemExit("the loop of deletions failed")
        return seconds


def _delete(server: S3, keys: Sequence[str], at_once: int, listing: bool, barrier: Any) -> None:
    client = server.client(at_once)

    def delete(batch: Sequence[str]) -> None:
        if listing:
            page = client.list_objects_v2(Bucket=BUCKET, StartAfter=batch[0][:-1], MaxKeys=_BULK)
            if page["KeyCount"] < len(batch):
                raise SystemExit(f"{page['KeyCount']} of {len(batch)} keys were listed")
        while not _deleted(client, batch):
            time.sleep(_RETRY_AFTER)

    barrier.wait()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(delete, batched(keys, _BULK)))


def _deleted(client: Any, batch: Sequence[str]) -> bool:
    """Delete the keys. Return False if the store throttled the request."""
    try:
        response = client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in batch]})
    except ClientError as error:
        if error.response["Error"]["Code"] != "SlowDown":
            raise
        return False
    if "Errors" in response:
        raise SystemExit(f"the store refused a deletion: {response['Errors'][0]}")
    return True


@contextmanager
def s3_server(directory: Path) -> Iterator[S3]:
    """Run versitygw on `directory`, or moto if versitygw is not installed, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    name, command = _command(directory, port)
    # A real store does not share processors with its clients: this server gets one processor.
    environment = {**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _KEY, "GOMAXPROCS": "1"}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=directory)
    try:
        _wait_for(process, port)
        server = S3(name, f"http://127.0.0.1:{port}")
        server.client().create_bucket(Bucket=BUCKET)
        yield server
    finally:
        process.terminate()
        process.wait()


def _command(directory: Path, port: int) -> tuple[str, Sequence[str]]:
    installed = Path(__file__).parents[1] / ".servers" / "bin" / "versitygw"
    gateway = str(installed) if installed.is_file() else shutil.which("versitygw")
    if gateway is None:
        return "moto", [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    objects, attributes = (directory / name for name in ("objects", "attributes"))
    objects.mkdir()
    options = ["--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}"]
    sidecar: list[str] = []
    if not _keeps_attributes(objects):  # then the server needs a file for the attributes of each object
        attributes.mkdir()
        sidecar = ["--sidecar", str(attributes)]
    return "versitygw", [gateway, *options, "posix", *sidecar, str(objects)]


def _keeps_attributes(directory: Path) -> bool:
    """Return whether the file system has extended attributes."""
    try:
        os.setxattr(directory, "user.benchmark", b"1")
    except OSError:
        return False
    return True


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the S3 server does not start")
