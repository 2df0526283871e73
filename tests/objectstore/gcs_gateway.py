"""Translates the XML API of GCS, which obstore uses, to the JSON API of fake-gcs-server, which has only a part of it.

Objects, generations, conditions and pages are those of the server. The gateway translates requests to JSON, and
responses to headers and XML. It runs in this process on 127.0.0.1.
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from threading import local
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.objectstore.servers import served

_PAGE = 1_000  # the most that GCS answers at once
_CODES = {404: "NoSuchKey", 412: "PreconditionFailed", 409: "Conflict"}
_HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"

Json = Mapping[str, Any]


def gateway(server: str) -> AbstractContextManager[str]:
    """Run a gateway before the fake-gcs-server at `server` for as long as the block lasts, and yield its URL."""
    host = urlsplit(server).netloc
    return served(type("Bound", (_Handler,), {"host": host, "connections": local(), "uploads": {}}))


class _Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together
    host: ClassVar[str]
    connections: ClassVar[Any]
    uploads: ClassVar[dict[str, dict[int, bytes]]]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        bucket, _, name = url.path.removeprefix("/").partition("/")
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if not name:
                return self._answer(200, self._listing(unquote(bucket), query))
            return self._object(unquote(bucket), unquote(name), query, content)
        except _Refused as refused:
            words = f"<Error><Code>{refused.code}</Code><Message>said the server</Message></Error>"
            return self._answer(refused.status, b"" if self.command == "HEAD" else words.encode())

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def _object(self, bucket: str, name: str, query: Mapping[str, str], content: bytes) -> None:
        if self.command == "PUT" and "uploadId" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = content
            return self._answer(200, ETag=f'"part-{query["partNumber"]}"')
        if self.command == "POST":
            return self._multipart(bucket, name, query)
        if self.command == "PUT":
            made = self._copied(bucket, name) if "x-goog-copy-source" in self.headers else None
            return self._answer(200, **_headers(made or self._uploaded(bucket, name, content)))
        if self.command == "DELETE" and "uploadId" in query:
            self.uploads.pop(query["uploadId"])
            return self._answer(204)
        if self.command == "DELETE":
            self._ask("DELETE", _place(bucket, name), bucket=bucket)
            return self._answer(204)
        found = json.loads(self._ask("GET", _place(bucket, name), bucket=bucket))
        if self.headers.get("If-Match", _e_tag(found)) != _e_tag(found):
            raise _Refused(412, "PreconditionFailed")
        if self.command == "HEAD":
            return self._answer(200, length=int(found["size"]), **_headers(found))
        body = self._ask("GET", f"{_place(bucket, name)}?alt=media")
        if span := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = int(span[1]), min(int(span[2]), len(body) - 1)
            content_range = f"bytes {first}-{last}/{len(body)}"
            return self._answer(206, body[first : last + 1], Content_Range=content_range, **_headers(found))
        return self._answer(200, body, **_headers(found))

    def _multipart(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        if "uploads" in query:
            upload = f"upload-{len(self.uploads)}"
            self.uploads[upload] = {}
            words = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            return self._answer(200, words.encode())
        parts = self.uploads.pop(query["uploadId"])
        made = self._uploaded(bucket, name, b"".join(parts[number] for number in sorted(parts)))
        words = f"<CompleteMultipartUploadResult><ETag>{_e_tag(made)}</ETag></CompleteMultipartUploadResult>"
        return self._answer(200, words.encode(), **_headers(made))

    def _uploaded(self, bucket: str, name: str, content: bytes) -> Json:
        query = {"uploadType": "media", "name": name}
        if generation := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = generation
        path = f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}"
        made: Json = json.loads(self._ask("POST", path, content, bucket=bucket))
        return made

    def _copied(self, bucket: str, name: str) -> Json:
        from_bucket, _, from_name = unquote(self.headers["x-goog-copy-source"]).partition("/")
        path = f"{_place(from_bucket, from_name)}/rewriteTo{_place(bucket, name).removeprefix('/storage/v1')}"
        # fake-gcs-server ignores this condition of a copy.
        if self.headers.get("x-goog-if-generation-match") == "0" and self._exists(bucket, name):
            raise _Refused(412, "PreconditionFailed")
        made: Json = json.loads(self._ask("POST", path, bucket=from_bucket))["resource"]
        return made

    def _exists(self, bucket: str, name: str) -> bool:
        try:
            self._ask("GET", _place(bucket, name), bucket=bucket)
        except _Refused:
            return False
        return True

    def _listing(self, bucket: str, query: Mapping[str, str]) -> bytes:
        names = {"prefix": "prefix", "delimiter": "delimiter", "continuation-token": "pageToken"}
        asked = {theirs: query[ours] for ours, theirs in names.items() if query.get(ours)} | {"maxResults": str(_PAGE)}
        page = json.loads(self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{urlencode(asked)}", bucket=bucket))
        parts = [
            f"<Contents><Key>{escape(entry['name'])}</Key><Size>{entry['size']}</Size><ETag>{_e_tag(entry)}</ETag>"
            f"<LastModified>{entry['updated']}</LastModified></Contents>"
            for entry in page.get("items", ())
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in page.get("prefixes", ())
        ]
        if token := page.get("nextPageToken"):
            parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
        return f"<ListBucketResult>{''.join(parts)}</ListBucketResult>".encode()

    def _ask(self, method: str, path: str, content: bytes = b"", bucket: str = "") -> bytes:
        if not hasattr(self.connections, "kept"):
            self.connections.kept = HTTPConnection(self.host)
        self.connections.kept.request(method, path, content, {"Content-Length": str(len(content))})
        answer = self.connections.kept.getresponse()
        body: bytes = answer.read()
        if answer.status < 400:
            return body
        if answer.status == 404 and not path.endswith(f"/b/{quote(bucket)}"):
            self._ask("GET", f"/storage/v1/b/{quote(bucket)}", bucket=bucket)  # which of the two is it that is absent
            raise _Refused(404, "NoSuchKey")
        raise _Refused(answer.status, "NoSuchBucket" if answer.status == 404 else _CODES.get(answer.status, "Odd"))

    def _answer(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""


def _place(bucket: str, name: str) -> str:
    return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(name, safe='')}"


def _e_tag(found: Json) -> str:
    """Return the ETag of the XML API: the MD5 sum in hexadecimal digits."""
    return f'"{b64decode(found["md5Hash"]).hex()}"'


def _headers(found: Json) -> Mapping[str, str]:
    updated = datetime.fromisoformat(found["updated"])
    return {
        "ETag": _e_tag(found),
        "Last_Modified": updated.strftime(_HTTP_DATE),
        "x_goog_generation": found["generation"],
    }
