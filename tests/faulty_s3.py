"""A proxy before an S3 server that injects faults: throttling, closed connections, failed keys, truncated listings.

It listens on a port of 127.0.0.1, so that Spark's workers in other processes reach it too. A test sets `faults`, and
reads all requests from `requests`. The proxy checks no signatures.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_STATUSES = {"AccessDenied": 403, "InternalError": 500, "SlowDown": 503, "NotImplemented": 501, "MalformedXML": 400,
             "PreconditionFailed": 412, "NoSuchKey": 404, "InvalidRequest": 400}  # fmt: skip
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
_OURS = _HOP_BY_HOP | {"if-match"}  # the proxy checks conditions of deletions itself
_NOT_PASSED_ON = _HOP_BY_HOP | {"date"}  # of the answers
_HANGING = 30  # seconds; longer than any client of a test waits
_AGAIN = "-again"  # marks the token under which a page is given a second time


@dataclass(frozen=True, slots=True)
class Named:
    """An object of a deletion request."""

    key: str
    e_tag: str | None = None  # without quotes
    version_id: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One received request."""

    method: str
    bucket: str
    key: str  # empty for a request about the bucket
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def deletes(self) -> Sequence[Named]:
        """The objects that the request deletes."""
        if self.method == "DELETE" and self.key:
            e_tag = self.headers.get("If-Match", "").strip('"') or None
            return [Named(self.key, e_tag, self.query.get("versionId"))]
        if self.method != "POST" or "delete" not in self.query:
            return []
        objects = ElementTree.fromstring(self.body).iter(f"{{{_NAMESPACE}}}Object")
        return [Named(_text(one, "Key") or "", _e_tag(one), _text(one, "VersionId")) for one in objects]

    @property
    def is_listing(self) -> bool:
        """Whether the request lists objects or versions."""
        return self.method == "GET" and not self.key and ("list-type" in self.query or "versions" in self.query)


@dataclass(frozen=True, slots=True)
class Answer:
    """One response. The status None closes the connection without a response."""

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Faults:
    """The faults. A share is the probability for each request for which `applies` is true; by default deletions."""

    slow_down: float = 0.0  # answered 503, nothing done
    lost: float = 0.0  # executed, then the connection is closed
    hanging: float = 0.0  # executed, without a response before the client gives up
    broken: float = 0.0  # executed, then answered 500
    applies: Callable[[Request], bool] = lambda request: bool(request.deletes)
    errors: dict[str, str] = field(default_factory=dict)  # code by key, or by version, always
    errors_once: dict[str, str] = field(default_factory=dict)  # code by key, for the first deletion of it
    unnamed: set[str] = field(default_factory=set)  # deleted, and left out of the answer to a bulk
    refuses: Callable[[Request], str | None] = lambda request: None  # the code that answers a request; nothing done
    refuses_bulk: str | None = None  # the code with which every deletion in bulk is answered
    conditions: str = "ignored"  # "kept", or the code with which a deletion on a condition is answered
    ignores: frozenset[str] = frozenset()  # conditions of writes that the server ignores: names of headers
    page: int | None = None  # the maximum number of objects on a page of a listing
    ends_early: bool = False  # the first page of a listing says that it is the last
    repeats: bool = False  # every page of a listing comes twice, the second time under a new token
    before: Callable[[Request], object] | None = None  # runs before a request is executed
    clock_ahead: float = 0.0  # seconds by which the dates of all answers are ahead of this machine's clock


class FaultyS3:
    """The proxy. `faults` may be replaced or changed at any time."""

    def __init__(self, upstream: str, seed: int = 0) -> None:
        self.faults = Faults()
        self.requests: list[Request] = []
        self.answers: list[int | None] = []  # a status each; None where the connection was closed
        self.endpoint = ""
        self.closed = Event()
        self._upstream = urlsplit(upstream)
        self._seed, self._random = seed, Random(seed)
        self._lock = Lock()
        self._pages: dict[str, Mapping[str, str]] = {}  # the query that brought a token

    def reset(self) -> None:
        """Begin again: no faults, no requests, and the same random numbers."""
        self.faults = Faults()
        self.requests.clear()
        self.answers.clear()
        self._random = Random(self._seed)

    @property
    def deletions(self) -> list[Request]:
        """The requests that delete."""
        return [request for request in self.requests if request.deletes]

    def answer(self, request: Request) -> Answer:
        """Record the request and return its response."""
        self.requests.append(request)
        answer = self._answer(request)
        self.answers.append(answer.status)
        return answer

    def _answer(self, request: Request) -> Answer:
        fault = self._fault(request)
        if fault == "slow_down":
            return _error("SlowDown")
        if self.faults.before:
            self.faults.before(request)
        if code := self.faults.refuses(request):
            return _error(code)
        answer = self._execute(request)
        if fault == "broken":
            return _error("InternalError")
        if fault == "hanging":
            self.closed.wait(_HANGING)
        return Answer(None) if fault in ("lost", "hanging") else answer

    def _fault(self, request: Request) -> str | None:
        """Return the fault of a request. One random number decides between all shares."""
        if not self.faults.applies(request):
            return None
        with self._lock:
            chance = self._random.random()
        for name in ("slow_down", "lost", "hanging", "broken"):
            chance -= getattr(self.faults, name)
            if chance < 0:
                return name
        return None

    def _execute(self, request: Request) -> Answer:
        if request.deletes:
            return self._delete(request)
        return self._list(request) if request.is_listing else self._forward(request)

    def _delete(self, request: Request) -> Answer:
        named = request.deletes
        if request.method == "POST" and self.faults.refuses_bulk:
            return _error(self.faults.refuses_bulk)
        if self.faults.conditions in _STATUSES and any(one.e_tag for one in named):
            return _error(self.faults.conditions)
        refused = {one: code for one in named if (code := self._refusal(request, one))}
        if request.method == "DELETE":
            return _error(refused[named[0]]) if refused else self._forward(request)
        left = [one for one in named if one not in refused]
        deleted = self._forward(request, body=_body(left)) if left else Answer(200, b"</DeleteResult>")
        if deleted.status != 200:
            return deleted
        results = [f"<Deleted>{_words(one)}</Deleted>" for one in left if one.key not in self.faults.unnamed]
        results += [f"<Error>{_words(one)}<Code>{code}</Code></Error>" for one, code in refused.items()]
        return Answer(200, f'<DeleteResult xmlns="{_NAMESPACE}">{"".join(results)}</DeleteResult>'.encode())

    def _refusal(self, request: Request, named: Named) -> str | None:
        with self._lock:
            once = self.faults.errors_once.pop(named.key, None)
        if code := once or self.faults.errors.get(named.key) or self.faults.errors.get(named.version_id or ""):
            return code
        if self.faults.conditions != "kept" or named.e_tag is None:
            return None
        if named.version_id:
            return "NotImplemented"  # as S3 has it
        signed = {name: text for name, text in request.headers.items() if name == "Authorization"}
        head = self._forward(Request("HEAD", request.bucket, named.key, {}, signed, b""))
        if head.status == 404:
            return "NoSuchKey"
        return None if head.headers["ETag"].strip('"') == named.e_tag else "PreconditionFailed"

    def _list(self, request: Request) -> Answer:
        faults, query = self.faults, dict(request.query)
        token, next_token = (
            ("continuation-token", "NextContinuationToken")
            if "list-type" in query
            else ("version-id-marker", "NextVersionIdMarker")
        )
        if faults.page:
            query["max-keys"] = str(faults.page)
        asked = query.get(token, "")
        if faults.repeats and asked and not asked.endswith(_AGAIN):
            page = self._forward(request, query=self._pages[asked]).body
            return Answer(200, _with_text(page, next_token, asked + _AGAIN))
        if asked:
            query[token] = asked.removesuffix(_AGAIN)
        page = self._forward(request, query=query)
        if came := re.search(f"<{next_token}>(.*?)</{next_token}>".encode(), page.body):
            self._pages[unquote(came[1].decode())] = query
        if not faults.ends_early:
            return page
        whole = re.sub(rb"<Next(\w+)>.*?</Next\1>", b"", page.body)
        return Answer(page.status, _with_text(whole, "IsTruncated", "false"))

    def _forward(self, request: Request, query: Mapping[str, str] | None = None, body: bytes | None = None) -> Answer:
        connection = HTTPConnection(self._upstream.netloc, timeout=60)
        query = request.query if query is None else query
        path = quote(f"/{request.bucket}/{request.key}" if request.key else f"/{request.bucket}")
        left_out = _OURS if request.deletes else _HOP_BY_HOP | self.faults.ignores
        headers = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
        connection.request(request.method, f"{path}?{urlencode(query)}", body or request.body, headers)
        came = connection.getresponse()
        answer = Answer(came.status, came.read(), dict(came.getheaders()))
        connection.close()
        return answer


@contextmanager
def faulty_s3(upstream: str, seed: int = 0) -> Iterator[FaultyS3]:
    """Run a proxy before the server at `upstream` for as long as the block lasts."""
    faulty = FaultyS3(upstream, seed)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"faulty": faulty}))
    faulty.endpoint = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield faulty
    finally:
        faulty.closed.set()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # many workers connect at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a client closes its connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    faulty: FaultyS3

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        answer = self.faulty.answer(Request(self.command, bucket, key, query, dict(self.headers), body))
        if answer.status is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        self.send_header("Date", self.date_time_string(time.time() + self.faulty.faults.clock_ahead))
        length = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(answer.body))
        for name, value in {**answer.headers, "Content-Length": length}.items():
            if name.lower() not in _NOT_PASSED_ON or name == "Content-Length":
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""


def _error(code: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>said the test</Message></Error>"
    return Answer(_STATUSES[code], body.encode(), {"Content-Type": "application/xml"})


def _words(named: Named) -> str:
    version = f"<VersionId>{named.version_id}</VersionId>" if named.version_id else ""
    return f"<Key>{escape(named.key)}</Key>{version}"


def _body(named: Sequence[Named]) -> bytes:
    objects = [f"<Object>{_words(one)}</Object>" for one in named]
    return f'<Delete xmlns="{_NAMESPACE}">{"".join(objects)}</Delete>'.encode()


def _text(element: ElementTree.Element, name: str) -> str | None:
    return element.findtext(f"{{{_NAMESPACE}}}{name}")


def _e_tag(element: ElementTree.Element) -> str | None:
    e_tag = _text(element, "ETag")
    return e_tag.strip('"') if e_tag else None


def _with_text(page: bytes, name: str, text: str) -> bytes:
    return re.sub(f"<{name}>.*?</{name}>".encode(), f"<{name}>{text}</{name}>".encode(), page)
