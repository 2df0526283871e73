"""An S3 server (moto) behind a proxy of rules, with which a test answers requests itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from threading import Thread
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import boto3  # type: ignore[import-untyped]
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

from tests.saved_repositories import DATA, listing

REGION = "us-east-1"
_NAMESPACE = {"s3": "http://s3.amazonaws.com/doc/2006-03-01/"}

Rule = Callable[[Request], Response | None]
Listing = dict[str, tuple[int, datetime]]  # bytes and the store's time, by address


@dataclass
class Gate:
    """The rules before the server. A request reaches the server only if every rule returns None."""

    application: Any
    rules: list[Rule] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] == "POST":
            content = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = BytesIO(content)
        for rule in list(self.rules):
            if (answer := rule(Request(environ, populate_request=False))) is not None:
                return answer(environ, start)
            if environ["REQUEST_METHOD"] == "POST":
                environ["wsgi.input"].seek(0)
        return self.application(environ, start)


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server."""

    endpoint: str
    gate: Gate

    @contextmanager
    def answering(self, rule: Rule) -> Iterator[None]:
        """Apply `rule` for as long as the block lasts."""
        self.gate.rules.append(rule)
        try:
            yield
        finally:
            self.gate.rules.remove(rule)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server for as long as the block lasts."""
    gate = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield S3Server(f"http://127.0.0.1:{server.server_port}", gate)
    finally:
        server.shutdown()


@dataclass(frozen=True, slots=True)
class Lake:
    """A copy of orchard in a new bucket. Its methods do not use the code under test."""

    server: S3Server
    bucket: str
    prefix: str = "orchard"

    @property
    def storage(self) -> str:
        """The URL of the namespace in the store."""
        return f"s3://{self.bucket}/{self.prefix}"

    def client(self) -> Any:
        """Return boto3's client."""
        return boto3.client("s3", endpoint_url=self.server.endpoint, region_name=REGION)

    def listing(self) -> Listing:
        """Return size and time of every object of the bucket, by address."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {
            entry["Key"].removeprefix(f"{self.prefix}/"): (entry["Size"], entry["LastModified"])
            for page in pages
            for entry in page.get("Contents", ())
        }

    def read(self, address: str) -> bytes:
        """Return an object's bytes."""
        content: bytes = self.client().get_object(Bucket=self.bucket, Key=self._key(address))["Body"].read()
        return content

    def put(self, address: str, content: bytes, last_modified: datetime | None = None) -> None:
        """Write an object, as of `last_modified` (by default the server's clock)."""
        written = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, self._key(address), content)
        if last_modified is not None:
            written.last_modified = last_modified.replace(tzinfo=None)

    def delete(self, address: str) -> None:
        """Delete an object."""
        self.client().delete_object(Bucket=self.bucket, Key=self._key(address))

    def copied(self, bucket: str) -> "Lake":
        """Return a copy of the bucket, with the store's times."""
        copy = empty_lake(self.server, bucket, self.prefix)
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for address, (_, last_modified) in self.listing().items():
            copy.put(address, backend.get_object(self.bucket, self._key(address)).value, last_modified)
        return copy

    def _key(self, address: str) -> str:
        return f"{self.prefix}/{address}"


def empty_lake(server: S3Server, bucket: str, prefix: str = "orchard") -> Lake:
    """Return a new, empty bucket."""
    made = Lake(server, bucket, prefix)
    made.client().create_bucket(Bucket=bucket)
    return made


def lake(server: S3Server, bucket: str) -> Lake:
    """Return a new bucket with the objects of orchard and their original times."""
    made = empty_lake(server, bucket)
    for entry in listing("orchard"):
        content = (DATA / "orchard" / "namespace" / entry.address).read_bytes()
        made.put(entry.address, content, entry.last_modified)
    return made


def error(code: str, status: int, message: str = "said the test") -> Response:
    """Return an error response of S3."""
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Response(body, status, content_type="application/xml")


def is_listing(request: Request) -> bool:
    """Return whether a request lists a bucket."""
    return request.method == "GET" and "list-type" in request.args


def deletions(request: Request) -> list[str]:
    """Return the keys that a request deletes."""
    if request.method == "DELETE":
        return [request.path.split("/", 2)[2]]
    if request.method != "POST" or "delete" not in request.args:
        return []
    return [key.text or "" for key in ElementTree.fromstring(request.get_data()).iterfind(".//s3:Key", _NAMESPACE)]


def denying_deletion_of(lake: Lake, addresses: set[str]) -> Rule:
    """Return a rule that denies the deletion of `addresses`, and deletes all other objects of the request."""
    denied = {f"{lake.prefix}/{address}" for address in addresses}

    def rule(request: Request) -> Response | None:
        wanted = deletions(request)
        if request.method == "POST" and wanted:
            return _deleted_in_part(lake, wanted, denied)
        return error("AccessDenied", 403) if denied.intersection(wanted) else None

    return rule


def _deleted_in_part(lake: Lake, wanted: list[str], denied: set[str]) -> Response:
    lines = []
    for key in wanted:
        if key in denied:
            lines.append(f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code><Message>no</Message></Error>")
        else:
            lake.client().delete_object(Bucket=lake.bucket, Key=key)
            lines.append(f"<Deleted><Key>{escape(key)}</Key></Deleted>")
    body = f'<DeleteResult xmlns="{_NAMESPACE["s3"]}">{"".join(lines)}</DeleteResult>'
    return Response(f'<?xml version="1.0"?>{body}', 200, content_type="application/xml")


def recording_deletions(noted: set[str], lake: Lake) -> Rule:
    """Return a rule that adds the addresses of all deletion requests to `noted`, and lets all requests through."""

    def rule(request: Request) -> Response | None:
        noted.update(key.removeprefix(f"{lake.prefix}/") for key in deletions(request))
        return None

    return rule


def busy_once() -> Rule:
    """Return a rule that answers the first bulk deletion with SlowDown."""
    answered: list[str] = []

    def rule(request: Request) -> Response | None:
        if answered or request.method != "POST" or not deletions(request):
            return None
        answered.append(request.path)
        return error("SlowDown", 503)

    return rule
