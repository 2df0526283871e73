"""Sends requests to a lakeFS server; returns plain JSON or raises a RetentionError.

lakefs-sdk is not used, because its models reject some valid responses of the server.
Source: docs/lakefs-formats.md, "Rules".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from retention_assets.errors import AccessDenied, ConfigurationError, SourceError
from retention_assets.objectstore.failures import redacted
from retention_assets.policy.matching import is_unreadable
from retention_assets.policy.rules import ServerRules

_PAGE = 1_000  # results; the server's maximum
_CONNECTIONS = 8  # one for each thread that reads branches
_CONNECT_SECONDS = 4.0  # three attempts, about a second apart, so an unreachable server fails within 15 s
_READ_SECONDS = 60.0
_API = "/api/v1"
_MAX_MESSAGE = 200  # characters of the server's own message
# Retry-After is ignored, because the wait could be hours. A POST is sent again only if urllib3 could not connect: a
# server that gets it twice starts a second task.
_RETRIES = urllib3.Retry(
    total=3, connect=2, read=1, redirect=False, backoff_factor=0.5, status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods={"GET"}, raise_on_status=False, respect_retry_after_header=False,
)  # fmt: skip

_HEADERS = {"Accept": "application/json", "Content-Type": "application/json"}
_CHECK_NAME = "Check source.api.repository, and that source.api.url is the right server."
_CHECK_LOG = "Run again. If the error persists, read the server's log."

Json = Mapping[str, Any]


class NotFound(SourceError):
    """The server responded with 404."""

    def __init__(self, message: str, server_message: str) -> None:
        super().__init__(message)
        self.server_message = server_message

    def __reduce__(self) -> tuple[type["NotFound"], tuple[str, str]]:
        return NotFound, (str(self), self.server_message)


class LakeFSClient:
    """A client of one server with one key pair. The keys never appear in messages or in `repr`."""

    def __init__(self, url: str, access_key: str, secret_key: str) -> None:
        """`url`: the server's address, with or without `/api/v1`. Errors: ConfigurationError for a malformed `url`."""
        self._address = _checked_address(url)
        self._secrets = (access_key, secret_key)
        self._headers = {**_HEADERS, **urllib3.make_headers(basic_auth=f"{access_key}:{secret_key}")}
        self._pool = urllib3.PoolManager(maxsize=_CONNECTIONS, retries=_RETRIES)

    def get(self, path: str, names: Mapping[str, str], **query: str | int) -> Json:
        """Send a GET and return the response. `names` are escaped and replace the braces in `path`.

        Errors: NotFound for 404; AccessDenied for 401 and 403; SourceError for other failures, for a server that does
        not respond, and for a response that is not a JSON object.
        """
        return self._request("GET", path, names, query, None, _READ_SECONDS)

    def post(
        self, path: str, names: Mapping[str, str], body: Json | None = None, timeout: float = _READ_SECONDS
    ) -> Json:
        """Send a POST, wait up to `timeout` seconds, and return the response. The server gets the request at most once.

        Errors: as `get`.
        """
        return self._request("POST", path, names, {}, body, timeout)

    def pages(
        self, path: str, names: Mapping[str, str], amount: int = _PAGE, **query: str | int
    ) -> Iterator[Sequence[Json]]:
        """Yield the results of a listing, page by page.

        Errors: as `get`; SourceError when the pages repeat, or when a page ends at a path that is not UTF-8.
        """
        listing = path.format(**names)
        after = ""
        seen: set[str] = set()
        while True:
            page = self.get(path, names, amount=amount, after=after, **query)
            pagination = self.expect(page, "pagination", dict)
            yield self.expect(page, "results", list)
            if not self.expect(pagination, "has_more", bool):
                return
            after = self.expect(pagination, "next_offset", str)
            if not after or after in seen:
                raise SourceError(
                    f"{self._address}: the listing {listing} does not end: it has the page {after!r} twice. "
                    "Nothing was deleted. Check the proxies between this machine and the server."
                )
            if is_unreadable(after):
                raise SourceError(
                    f"{self._address}: the listing {listing} has a page that ends at {after!r}. This path is not "
                    "UTF-8, so the server cannot continue the listing there. Nothing was deleted. Commit or delete the "
                    "objects that are staged at such paths."
                )
            seen.add(after)

    def gc_rules(self, repository: str) -> ServerRules | None:
        """Return the garbage-collection rules; None if no rules are set.

        If a branch has two rules, the last one counts, as on the server. Errors: as `get`.
        """
        try:
            response = self.get("/repositories/{repository}/settings/gc_rules", {"repository": repository})
        except NotFound as error:
            if error.server_message == "repository not found":
                raise
            return None
        branches = response.get("branches") or []  # null when there are none. Source: docs/lakefs-formats.md, "Rules"
        if not isinstance(branches, list):
            branches = self.expect(response, "branches", list)
        days = {self.expect(rule, "branch_id", str): self.expect(rule, "retention_days", int) for rule in branches}
        return ServerRules(self.expect(response, "default_retention_days", int), days)

    def expect[T](self, response: Json, key: str, kind: type[T]) -> T:
        """Return `response[key]`. Errors: SourceError when the value is missing or is not a `kind`."""
        value = response.get(key) if isinstance(response, Mapping) else None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise SourceError(
                f"{self._address}: the server's response has no {key!r} of type {kind.__name__}. Nothing was deleted. "
                "Check that the server is a lakeFS of version 1.72 or later."
            )
        return value

    def _request(
        self, method: str, path: str, names: Mapping[str, str], query: Json, body: Json | None, timeout: float
    ) -> Json:
        url = self._address + _API + path.format(**{name: quote(value, safe="") for name, value in names.items()})
        try:
            response = self._pool.request(
                method,
                f"{url}?{urlencode(query)}" if query else url,
                body=None if body is None else json.dumps(body),
                headers=self._headers,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=timeout),
            )
            status, content = response.status, response.data.decode()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            status, content = 0, type(getattr(error, "reason", None) or error).__name__
        except UnicodeDecodeError:
            status, content = response.status, "bytes that are not text"
        # Raised outside of `except`, so that the traceback does not show urllib3's errors.
        return self._checked_response(f"{method} {path.format(**names)}", status, content)

    def _checked_response(self, request: str, status: int, content: str) -> Json:
        """Return the JSON object in `content`, or raise the error for `status`. Status 0: there was no response."""
        where = f"{self._address}: {request}"
        if status == 0:
            raise SourceError(
                f"{where}: the server cannot be reached, or closed the connection ({self._server_message(content)}). "
                "Nothing was read. Check source.api.url and the network between this machine and the server."
            )
        if status in (401, 403):
            why = self._server_message(content) or "without a reason"
            raise AccessDenied(
                f"{where}: the server refused ({status}: {why}). Nothing was read. "
                "Check source.api.access_key and secret_key, and the permissions of their user."
            )
        response = _object(content)
        if response is None:
            raise SourceError(
                f"{where}: the response (status {status}) is not a JSON object. Nothing was deleted. "
                "Check that source.api.url is the address of a lakeFS server."
            )
        message = self._server_message(str(response.get("message", "")))
        if status == 404:
            raise NotFound(f"{where}: {message or 'not found'}. Nothing was deleted. {_CHECK_NAME}", message)
        if not 200 <= status < 300:
            raise SourceError(f"{where}: the server failed ({status}: {message}). Nothing was deleted. {_CHECK_LOG}")
        return response

    def _server_message(self, text: str) -> str:
        """Return the server's message on one line, without the keys and cut to `_MAX_MESSAGE` characters."""
        message = (_object(text) or {}).get("message", text)
        return redacted(" ".join(str(message).split()), self._secrets)[:_MAX_MESSAGE]


def _object(content: str) -> Json | None:
    try:
        response = json.loads(content)
    except ValueError:
        return None
    return response if isinstance(response, dict) else None


def _checked_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = "" if set("@?") & set(url) else f"{url!r} is not one. "  # such a URL may have a password
        raise ConfigurationError(
            f"source.api.url must be the address of a lakeFS server. {shown}Write https://host or https://host:port."
        )
    if parts.username or parts.password or parts.query:
        raise ConfigurationError(
            f"source.api.url (host {parts.hostname}) has a user, a password or a query, which messages would show. "
            "Write only the address of the server, and set access_key and secret_key."
        )
    return url.rstrip("/").removesuffix(_API)
