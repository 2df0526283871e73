"""The fake lakeFS server answers each recorded request as the real server did."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from tests.lakefs.source.fake_lakefs_repository import bare, saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, FakeLakeFSServer, serving
from tests.saved_repositories import DATA

RECORDED = json.loads((DATA / "http.json").read_text(encoding="utf-8"))
CREDENTIALS = {
    "wrong secret": f"{ACCESS_KEY}:wrong",
    "unknown key": f"AKIAUNKNOWN:{SECRET_KEY}",
    "no credentials": None,
}
# What no two runs of a server share.
VARYING = {"commits_meta_range_id", "run_id", "task_id", "update_time"}
RUN_ID = re.compile(r"(?<![0-9a-v])[0-9a-v]{20}(?![0-9a-v])")


@pytest.fixture(scope="module")
def server() -> Iterator[FakeLakeFSServer]:
    with serving(saved("orchard"), saved("meadow"), saved("thicket"), *bare()) as running:
        yield running


@pytest.fixture(scope="module")
def tasks(server: FakeLakeFSServer) -> dict[str, str]:
    """The server's own id for each recorded task."""
    started = [each for each in RECORDED if each["response"]["status"] == 202]
    return {each["response"]["body"]["id"]: ask(server, each, {}).json()["id"] for each in started}


def ask(server: FakeLakeFSServer, recorded: dict[str, Any], tasks: dict[str, str]) -> urllib3.BaseHTTPResponse:
    """Send the recorded request, with the server's own ids of tasks."""
    request = recorded["request"]
    credentials = CREDENTIALS.get(recorded["note"], f"{ACCESS_KEY}:{SECRET_KEY}")
    return urllib3.request(
        request["method"],
        server.url + request["path"],
        fields={key: tasks.get(value, value) for key, value in request["params"].items()} or None,
        body=None if request["json"] is None else json.dumps(request["json"]),
        headers=urllib3.make_headers(basic_auth=credentials) if credentials else {},
        redirect=False,
    )


def steady(value: Any) -> Any:
    """Return `value` without the parts that differ between two runs of a server."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in VARYING}
    if isinstance(value, list):
        return [steady(item) for item in value]
    if isinstance(value, str):
        return value if "/data/" in value else RUN_ID.sub("RUN", value)
    return value


@pytest.mark.parametrize(
    "recorded", [pytest.param(each, id=f"{number}-{each['note']}") for number, each in enumerate(RECORDED)]
)
def test_the_fake_server_answers_as_recorded(
    server: FakeLakeFSServer, tasks: dict[str, str], recorded: dict[str, Any]
) -> None:
    expected = recorded["response"]
    answer = ask(server, recorded, tasks)
    assert answer.status == expected["status"]
    for name in ("Content-Type", "Location"):
        assert answer.headers.get(name) == expected["headers"].get(name)
    if isinstance(expected["body"], str):
        assert f"<{len(answer.data)} bytes>" == expected["body"]
        return
    body = answer.json()
    if "id" in body and expected["body"]["id"] in tasks:
        body["id"] = expected["body"]["id"]
    assert steady(body) == steady(expected["body"])
    assert shape(body) == shape(expected["body"])


def shape(value: Any) -> Any:
    """Return the keys of `value` with all types below them."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value)
