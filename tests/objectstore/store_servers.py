"""Runs store servers of every kind with empty buckets, and describes how the kinds differ."""

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from hashlib import sha256
from pathlib import Path
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]

from retention_assets.objectstore.access import StoreAccess
from tests.objectstore.gcs_gateway import gateway
from tests.objectstore.programs import free_port, program, running
from tests.objectstore.s3 import REGION

BUCKET = "lake"
ANOTHER_BUCKET = "attic"

# Azurite's one account; everybody knows its key.
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_KEY = "testing"  # access key and secret of versitygw and moto


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store, and the behaviour in which kinds differ."""

    name: str
    deletes_on_condition: bool = False
    hashes_content: bool = False  # its ETags are MD5 sums
    lists_whole_seconds: bool = True
    has_buckets: bool = True
    copies_conditionally: bool = True  # it refuses to copy over an object if the request says so


MEMORY = Kind("memory", lists_whole_seconds=False, has_buckets=False)
LOCAL = Kind("local", lists_whole_seconds=False, has_buckets=False)
MOTO = Kind("moto", hashes_content=True, copies_conditionally=False)
VERSITYGW = Kind("versitygw", hashes_content=True, copies_conditionally=False)
AZURITE = Kind("azurite")
GCS = Kind("gcs", hashes_content=True, lists_whole_seconds=False)
KINDS = (MEMORY, LOCAL, MOTO, VERSITYGW, AZURITE, GCS)


@dataclass(frozen=True, slots=True)
class StoreServer:
    """A running store of one kind, with the URL and options of its buckets."""

    kind: Kind
    url: str  # with {bucket}
    options: dict[str, str]

    def access(self, prefix: str, bucket: str = BUCKET) -> StoreAccess:
        """Return access to `prefix` in a bucket. For local files, the directory must exist."""
        return StoreAccess(f"{self.url.format(bucket=bucket)}/{prefix}", self.options)


def connect_s3(kind: Kind, endpoint: str) -> StoreServer:
    """Return an S3 server with two empty buckets."""
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=_KEY, aws_secret_access_key=_KEY, region_name=REGION
    )
    options = {"endpoint": endpoint, "region": REGION, "access_key_id": _KEY, "secret_access_key": _KEY}
    for bucket in (BUCKET, ANOTHER_BUCKET):
        client.create_bucket(Bucket=f"{kind.name}-{bucket}")
    return StoreServer(kind, f"s3://{kind.name}-{{bucket}}", options)


@contextmanager
def run_versitygw(directory: Path, *, versioning: bool = False) -> Iterator[StoreServer]:
    """Run versitygw over a directory for as long as the block lasts. `versioning`: buckets can keep versions."""
    port = free_port()
    for name in ("objects", "attributes", "versions"):  # the file system need not have extended attributes
        (directory / name).mkdir()
    kept = ["--versioning-dir", str(directory / "versions")] if versioning else []
    command = [
        program("versitygw", "bin/versitygw"), "--quiet", "--keep-alive", "--port", f"127.0.0.1:{port}",
        "posix", "--sidecar", str(directory / "attributes"), *kept, str(directory / "objects"),
    ]  # fmt: skip
    secrets = {"ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _KEY}
    with running(command, port, directory / "log", secrets) as endpoint:
        yield connect_s3(VERSITYGW, endpoint)


@contextmanager
def run_azurite(directory: Path) -> Iterator[StoreServer]:
    """Run Azurite, which keeps everything in memory, for as long as the block lasts."""
    port = free_port()
    command = [
        program("azurite-blob", "npm/node_modules/.bin/azurite-blob"), "--silent", "--inMemoryPersistence",
        "--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port),
    ]  # fmt: skip
    with running(command, port, directory / "log") as endpoint:
        for bucket in (BUCKET, ANOTHER_BUCKET):
            _create_container(endpoint, bucket)
        options = {"account_name": _ACCOUNT, "account_key": _ACCOUNT_KEY, "endpoint": f"{endpoint}/{_ACCOUNT}"}
        yield StoreServer(AZURITE, "az://{bucket}", options)


@contextmanager
def run_gcs(directory: Path) -> Iterator[StoreServer]:
    """Run fake-gcs-server, which keeps everything in memory, behind its gateway for as long as the block lasts."""
    port = free_port()
    command = [
        program("fake-gcs-server", "bin/fake-gcs-server"), "-backend", "memory", "-scheme", "http",
        "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}", "-log-level", "error",
    ]  # fmt: skip
    with running(command, port, directory / "log") as server, gateway(server) as endpoint:
        for bucket in (BUCKET, ANOTHER_BUCKET):
            content = json.dumps({"name": bucket}).encode()
            plain = {"Content-Type": "application/json"}
            with urlopen(Request(f"{server}/storage/v1/b?project=p", content, plain)):
                pass
        yield StoreServer(GCS, "gs://{bucket}", {"base_url": endpoint, "bearer_token": "any"})


def _create_container(endpoint: str, name: str) -> None:
    date, version = formatdate(usegmt=True), "2021-08-06"
    empty_headers = "\n" * 12
    signed = (
        f"PUT{empty_headers}x-ms-date:{date}\nx-ms-version:{version}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    )
    signature = b64encode(hmac.digest(b64decode(_ACCOUNT_KEY), signed.encode(), sha256)).decode()
    headers = {
        "x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
    }  # fmt: skip
    with urlopen(Request(f"{endpoint}/{_ACCOUNT}/{name}?restype=container", method="PUT", headers=headers)):
        pass
