"""A client of the server's API with raw JSON requests, since lakefs-sdk hides parts of the responses."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import boto3  # type: ignore[import-untyped]
import urllib3
from botocore.config import Config  # type: ignore[import-untyped]

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

Json = dict[str, Any]


def s3_gateway(url: str) -> Any:
    """Return a boto3 client of the S3 gateway: a bucket is a repository, and a key begins with a branch."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
    )


class Refused(Exception):
    """The server answered with an error: `status` and its message."""

    def __init__(self, request: str, status: int, message: str) -> None:
        super().__init__(f"{request}: {status}: {message}")
        self.status = status
        self.message = message


class Client:
    """The API of one server. It is thread safe, but a client per thread is faster."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/api/v1"
        self._headers = urllib3.make_headers(basic_auth=f"{ACCESS_KEY}:{SECRET_KEY}")
        self._pool = urllib3.PoolManager(maxsize=8)

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        *,
        timeout: float = 300.0,
    ) -> Any:
        """Send a request and return the JSON of the response, None if empty. `body`: JSON or bytes. Errors: Refused."""
        answer = self.raw(method, path, query, body, timeout=timeout)
        if answer.status >= 300:
            raise Refused(f"{method} {path} {query or ''}", answer.status, _message(answer.data))
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return json.loads(answer.data) if answer.data and is_json else None

    def raw(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        *,
        timeout: float = 300.0,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and return the response, also if it is an error."""
        is_bytes = isinstance(body, bytes)
        kind = {"Content-Type": "application/octet-stream" if is_bytes else "application/json"}
        return self._pool.request(
            method,
            self._url + path + (f"?{urlencode(query)}" if query else ""),
            body=body if is_bytes else None if body is None else json.dumps(body),
            headers={**self._headers, **kind},
            timeout=timeout,
            retries=False,
            redirect=False,
        )

    def pages(self, path: str, **query: str) -> Iterator[Json]:
        """Yield the results of all pages."""
        after = ""
        while True:
            answer = self.ask("GET", path, {**query, "amount": "1000", "after": after})
            yield from answer["results"]
            if not answer["pagination"]["has_more"]:
                return
            after = answer["pagination"]["next_offset"]


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")[:300]
