"""A fake lakeFS server: HTTP on 127.0.0.1, with the recorded answers of a real server.

`before` lets a test change the repository between two requests. `calls` has all requests.
"""

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from threading import Lock, Thread
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tests.lakefs.source.fake_lakefs_repository import Json, Repository

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

_NOT_FOUND = "not found"
_GRACE_SECONDS = 86_400
_NOW = "2026-11-21T03:15:47.566448576Z"
_STORE = "http://s3.example.com"
_SIGNED = "X-Amz-Signature=redacted"


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str  # below /api/v1
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `body` is sent as JSON unless it is bytes."""

    status: int
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """An error response that a lookup in a route raises."""

    def __init__(self, status: int, message: str) -> None:
        self.answer = Answer(status, {"message": message})


@dataclass
class Hook:
    """`act` runs once, before the `nth` request of this method and end of path is answered."""

    method: str
    end: str
    nth: int
    act: Callable[[], object]


Route = Callable[["FakeLakeFSServer", Call, re.Match[str]], Answer]
_ROUTES: list[tuple[str, re.Pattern[str], Route]] = []


def route(method: str, path: str) -> Callable[[Route], Route]:
    """Register a route; `{name}` in `path` is one escaped part."""
    pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))

    def register(answer: Route) -> Route:
        _ROUTES.append((method, pattern, answer))
        return answer

    return register


class FakeLakeFSServer:
    """The server's state. `override` has fixed answers by path, to act as a proxy or a broken server."""

    def __init__(self, repositories: Iterable[Repository]) -> None:
        self.repositories = {repository.name: repository for repository in repositories}
        self.calls: list[Call] = []
        self.override: dict[str, Answer] = {}
        self.url = ""
        self._tasks: dict[str, int] = {}  # how often each was asked about
        self._hooks: list[Hook] = []
        self._lock = Lock()

    def before(self, method: str, end: str, act: Callable[[], object], nth: int = 1) -> None:
        """Run `act` before the `nth` request from now on whose path ends with `end` is answered."""
        self._hooks.append(Hook(method, end, nth, act))

    def answer(self, call: Call, authorization: str | None) -> Answer:
        """Return the answer to one request; requests are answered one at a time."""
        with self._lock:
            self.calls.append(call)
            self._run_hooks(call)
            if call.path in self.override:
                return self.override[call.path]
            if call.path != "/healthcheck" and authorization != _basic(ACCESS_KEY, SECRET_KEY):
                return Answer(401, {"message": "error authenticating request"})
            for method, pattern, answer in _ROUTES:
                if method == call.method and (match := pattern.fullmatch(call.path)):
                    try:
                        return answer(self, call, match)
                    except Refusal as refusal:
                        return refusal.answer
            return Answer(404, {"message": "invalid API endpoint"})

    def _run_hooks(self, call: Call) -> None:
        for hook in list(self._hooks):
            if hook.method == call.method and call.path.endswith(hook.end):
                hook.nth -= 1
                if hook.nth == 0:
                    self._hooks.remove(hook)
                    hook.act()

    def repository(self, match: re.Match[str]) -> Repository:
        """Return the repository that a path names."""
        found = self.repositories.get(unquote(match["repository"]))
        if found is None:
            raise Refusal(404, "repository not found")
        return found

    def start_task(self, prefix: str) -> str:
        """Return the id of a new task."""
        task = f"{prefix}{len(self._tasks):020}"
        self._tasks[task] = 0
        return task

    def asked(self, task: str) -> int:
        """Return how many earlier requests asked for the state of a task."""
        if task not in self._tasks:
            raise Refusal(404, _NOT_FOUND)
        self._tasks[task] += 1
        return self._tasks[task] - 1


@contextmanager
def serving(*repositories: Repository) -> Iterator[FakeLakeFSServer]:
    """Run a server over `repositories` for as long as the block lasts."""
    state = FakeLakeFSServer(repositories)
    handler = type("BoundHandler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together: sent apart, each answer waits 40 ms for an acknowledgement
    state: ClassVar[FakeLakeFSServer]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = Call(
            self.command, url.path.removeprefix("/api/v1"), dict(parse_qsl(url.query)), json.loads(content or "{}")
        )
        answer = self.state.answer(call, self.headers.get("Authorization"))
        is_json = not isinstance(answer.body, bytes)
        body = json.dumps(answer.body).encode() if is_json else answer.body
        self.send_response(answer.status)
        for name, value in {**({"Content-Type": "application/json"} if is_json else {}), **answer.headers}.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""


def _basic(access_key: str, secret_key: str) -> str:
    return "Basic " + b64encode(f"{access_key}:{secret_key}".encode()).decode()


def _page(call: Call, results: Iterable[Json], key: str) -> Answer:
    """Return the page of `results` after `after`, in the order of the listing."""
    amount, after = int(call.query.get("amount", 100)), call.query.get("after", "")
    remaining = iter(results)
    if after:
        next((result for result in remaining if result[key] == after), None)
    page = list(islice(remaining, amount))
    has_more = next(remaining, None) is not None
    pagination = {
        "has_more": has_more,
        "max_per_page": 1000,
        "next_offset": page[-1][key] if has_more else "",
        "results": len(page),
    }
    return Answer(200, {"pagination": pagination, "results": page})


def _heads(heads: Mapping[str, str], hidden: Iterable[str] = ()) -> list[Json]:
    return [{"commit_id": heads[name], "id": name} for name in sorted(heads.keys() - set(hidden))]


@route("GET", "/healthcheck")
def _health(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return Answer(204)


@route("GET", "/config")
def _config(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    storage = {
        "blockstore_description": "", "blockstore_id": "", "blockstore_namespace_ValidityRegex": "^s3://",
        "blockstore_namespace_example": "s3://example-bucket/", "blockstore_type": "s3",
        "default_namespace_prefix": "", "import_support": True, "import_validity_regex": "^s3://",
        "pre_sign_multipart_upload": True, "pre_sign_support": True, "pre_sign_support_ui": False,
    }  # fmt: skip
    version = {"version": "dev", "version_context": "lakeFS"}
    rest: Json = {"capabilities_config": {}, "storage_config_list": [], "ui_config": {}}
    return Answer(200, {"storage_config": storage, "version_config": version, **rest})


@route("GET", "/config/version")
def _version(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return Answer(200, {"version": "dev", "version_context": "lakeFS"})


@route("GET", "/config/garbage-collection")
def _grace(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return Answer(200, {"grace_period": _GRACE_SECONDS})


@route("GET", "/user")
def _user(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return Answer(200, {"user": {"creation_date": 1795230503, "email": "", "friendly_name": "", "id": "admin"}})


@route("GET", "/repositories")
def _repositories(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return _page(call, [server.repositories[name].answer() for name in sorted(server.repositories)], "id")


@route("GET", "/repositories/{repository}")
def _repository(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return Answer(200, server.repository(match).answer())


@route("GET", "/repositories/{repository}/branches")
def _branches(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    hidden = () if call.query.get("show_hidden", "").lower() == "true" else repository.hidden
    return _page(call, _heads(repository.branches, hidden), "id")


@route("GET", "/repositories/{repository}/branches/{branch}")
def _branch(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    heads = server.repository(match).branches
    name = unquote(match["branch"])
    if name not in heads:
        raise Refusal(404, "branch not found")
    return Answer(200, {"commit_id": heads[name], "id": name})


@route("GET", "/repositories/{repository}/branches/{branch}/diff")
def _diff(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    if unquote(match["branch"]) not in repository.branches:
        raise Refusal(404, "branch not found")
    changes = [
        {
            "path": change["path"],
            "path_type": "object",
            "size_bytes": repository.size_of(change),
            "type": change["type"],
        }
        for change in repository.shown_changes(unquote(match["branch"]))
    ]
    return _page(call, changes, "path")


@route("GET", "/repositories/{repository}/tags")
def _tags(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    return _page(call, _heads(server.repository(match).tags), "id")


@route("GET", "/repositories/{repository}/refs/{ref}/commits")
def _log(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    head = repository.commit_of(unquote(match["ref"]))
    if head is None:
        raise Refusal(404, _NOT_FOUND)
    return _page(call, repository.log(head, first_parent=call.query.get("first_parent") == "true"), "id")


@route("GET", "/repositories/{repository}/commits/{commit}")
def _commit(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    if match["commit"] not in repository.commits or match["commit"] in repository.unfindable:
        raise Refusal(404, "commit not found")
    return Answer(200, repository.commits[match["commit"]])


@route("GET", "/repositories/{repository}/metadata/(meta_range|range)/{id}")
def _location(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    server.repository(match)
    location = f"_lakefs/{match['id']}"
    return Answer(200, {"location": location}, {"Location": f"{location}?{_SIGNED}"})


@route("GET", "/repositories/{repository}/metadata/object/(meta_range|range)/{id}")
def _table(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    if call.query.get("presign") == "true":
        place = f"{_STORE}/{repository.namespace.removeprefix('s3://')}/_lakefs/{match['id']}?{_SIGNED}"
        return Answer(302, b"", {"Location": place})
    return Answer(200, repository.read(match["id"]), {"Content-Type": "application/octet-stream"})


@route("GET", "/repositories/{repository}/refs/{ref}/objects/ls")
def _objects(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository, ref = server.repository(match), unquote(match["ref"])
    if repository.commit_of(ref) is None:
        raise Refusal(404, _NOT_FOUND)
    objects = repository.objects(ref)
    prefix = call.query.get("prefix", "")
    return _page(call, (found for found in objects if found["path"].startswith(prefix)), "path")


@route("GET", "/repositories/{repository}/refs/{ref}/objects/stat")
def _object(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    for found in server.repository(match).objects(unquote(match["ref"])):
        if found["path"] == call.query["path"]:
            return Answer(200, found)
    raise Refusal(404, _NOT_FOUND)


@route("GET", "/repositories/{repository}/settings/gc_rules")
def _rules(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    rules = server.repository(match).rules
    if rules is None:
        raise Refusal(404, _NOT_FOUND)
    return Answer(200, rules)


@route("POST", "/repositories/{repository}/dump")
def _start_dump(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    server.repository(match)
    return Answer(202, {"id": server.start_task("DR")})


@route("GET", "/repositories/{repository}/dump")
def _dump(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    task = call.query["task_id"]
    done = server.asked(task) >= repository.dump_polls
    state = {"done": done, "id": task, "update_time": _NOW}
    if done and repository.dump_error:
        return Answer(200, {**state, "error": repository.dump_error})
    return Answer(200, {**state, "refs": repository.dump} if done else state)


@route("POST", "/repositories/{repository}/gc/prepare_commits/async")
def _start_prepare(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    server.repository(match)
    return Answer(202, {"id": server.start_task("GCPC")})


@route("GET", "/repositories/{repository}/gc/prepare_commits/status")
def _prepared(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    task = call.query["id"]
    server.asked(task)
    folder = f"{repository.namespace}/_lakefs/retention/gc"
    commits = f"{folder}/commits/run_id={repository.commits_run_id}/commits.csv"
    result = {
        "gc_addresses_location": f"{folder}/addresses/",
        "gc_commits_location": commits,
        "gc_commits_presigned_url": f"{_STORE}/{quote(commits.removeprefix('s3://'))}?{_SIGNED}",
        "run_id": repository.commits_run_id,
    }
    return Answer(200, {"completed": True, "result": result, "task_id": task, "update_time": _NOW})


@route("POST", "/repositories/{repository}/gc/prepare_uncommited")
def _prepare_uncommitted(server: FakeLakeFSServer, call: Call, match: re.Match[str]) -> Answer:
    repository = server.repository(match)
    number = _page_number(call.body.get("continuation_token", ""))
    has_rows = repository.pages[number] if number < len(repository.pages) else False
    if repository.pages == (True,):  # one page of everything
        has_rows = any(repository.lists_rows_of(name) for name in repository.branches)
    if repository.unfound:
        has_rows = _has_rows_without(repository, repository.unfound.pop(0))
    folder = f"{repository.namespace}/_lakefs/retention/gc/uncommitted/{repository.run_id}/uncommitted/"
    answer = {"gc_uncommitted_location": folder if has_rows else "", "run_id": repository.run_id}
    if number + 1 < len(repository.pages):
        # The branches that staged something are in the page with rows; the marks around it are at no branch of them.
        first = min(change["branch"] for change in repository.changes)
        mark = f"~{number}" if any(repository.pages[: number + 1]) else first
        token = {"branch": mark, "path": "", "run_id": repository.run_id, "key": str(number + 1)}
        answer["continuation_token"] = b64encode(json.dumps(token).encode()).decode()
    return Answer(201, answer)


def _has_rows_without(repository: Repository, unfound: set[str]) -> bool:
    """Return whether the page is written although the scan does not find some branches.

    Each such branch resets the count of rows to zero. If it is the last branch, the request fails.
    Source: docs/lakefs-formats.md, "Staged lists".
    """
    names = sorted({*repository.branches, *unfound})
    has_rows = False
    for name in names:
        has_rows = name not in unfound and (has_rows or repository.lists_rows_of(name))
    if names[-1] in unfound:
        raise Refusal(404, "branch not found")
    return has_rows


def _page_number(token: str) -> int:
    try:
        return int(json.loads(b64decode(token, validate=True))["key"]) if token else 0
    except (BadBase64, ValueError, KeyError):
        raise Refusal(400, "invalid continuation token") from None
