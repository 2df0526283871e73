"""The store's clock comes from the store's service, by a request without secrets. It can be unknown."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.clock import not_ahead_of_store, service_address, store_time
from tests.objectstore.servers import server_that_hangs_up

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
TOLD, IT_IS = "Sat, 21 Nov 2026 03:15:47 GMT", datetime(2026, 11, 21, 3, 15, 47, tzinfo=UTC)


@dataclass
class Clock:
    """A server with a clock. `seen`: everything that it received."""

    status: int = 403
    headers: dict[str, str] = field(default_factory=lambda: {"Date": TOLD})
    seen: list[str] = field(default_factory=list)
    address: str = ""


@contextmanager
def serving(clock: Clock) -> Iterator[Clock]:
    handler = type("Handler", (_Handler,), {"clock": clock})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    clock.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield clock
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    clock: ClassVar[Clock]

    def do_HEAD(self) -> None:
        self.clock.seen.append(f"{self.requestline}\n{self.headers}")
        self.send_response_only(self.clock.status)
        for name, value in {"Content-Length": "0", **self.clock.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Stay silent."""


def access(clock: Clock) -> StoreAccess:
    options = {"endpoint": clock.address, "access_key_id": "AKIAEXAMPLE", "secret_access_key": SECRET}
    return StoreAccess("s3://lake/orchard", options)


@pytest.mark.parametrize("status", [200, 307, 400, 403, 404, 405, 503])
def test_any_response_has_the_time(status: int) -> None:
    with serving(Clock(status)) as clock:
        assert store_time(access(clock)) == IT_IS


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no_date"),
        pytest.param({"Date": "yesterday"}, id="no_date_of_http"),
        pytest.param({"Date": TOLD, "Age": "17"}, id="from_a_cache"),
    ],
)
def test_a_response_without_a_date_gives_no_time(headers: dict[str, str]) -> None:
    with serving(Clock(headers=headers)) as clock:
        assert store_time(access(clock)) is None


def test_a_redirection_is_not_followed() -> None:
    other = Clock()
    with serving(other), serving(Clock(307, {"Date": TOLD, "Location": other.address})) as clock:
        assert store_time(access(clock)) == IT_IS
    assert other.seen == []


def test_neither_secret_nor_bucket_nor_path_is_sent() -> None:
    with serving(Clock()) as clock:
        address = clock.address
        clock.address = address.replace("http://", "http://user:password@") + "/behind?sig=SIGNATURE"
        assert store_time(access(clock)) == IT_IS
    (sent,) = clock.seen
    assert sent.startswith("HEAD / HTTP/1.1\n")
    for word in ("AKIAEXAMPLE", SECRET, "Authorization", "lake", "orchard", "password", "SIGNATURE", "behind"):
        assert word not in sent


def test_a_proxy_of_the_options_is_used() -> None:
    with serving(Clock()) as proxy:
        options = {"proxy_url": proxy.address, "endpoint": "http://store.example.com"}
        assert store_time(StoreAccess("s3://lake", options)) == IT_IS
    assert proxy.seen[0].startswith("HEAD http://store.example.com/ HTTP/1.1\n")


def test_a_service_without_a_response_gives_no_time() -> None:
    with server_that_hangs_up() as address:
        assert store_time(access(Clock(address=address))) is None
    assert store_time(access(Clock(address="http://127.0.0.1:1"))) is None


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_local_files_have_the_clock_of_this_machine(tmp_path: Path, scheme: str) -> None:
    assert store_time(StoreAccess(f"{scheme}://{tmp_path}"), local_clock=lambda: IT_IS) == IT_IS


AZURE = {"account_name": "acct", "account_key": "a2V5"}


@pytest.mark.parametrize(
    ("url", "options", "address"),
    [
        pytest.param("s3://lake/p", {}, "https://s3.us-east-1.amazonaws.com/", id="s3"),
        pytest.param("s3://lake", {"region": "eu-west-1"}, "https://s3.eu-west-1.amazonaws.com/", id="s3_region"),
        pytest.param("s3://lake", {"region": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn/", id="s3_china"),
        pytest.param("s3a://lake", {"aws_endpoint_url": "http://h:9000/x"}, "http://h:9000/", id="s3_endpoint"),
        pytest.param("gs://lake", {}, "https://storage.googleapis.com/", id="gcs"),
        pytest.param("gs://lake", {"google_base_url": "http://h:4443"}, "http://h:4443/", id="gcs_endpoint"),
        pytest.param("az://lake/p", AZURE, "https://acct.blob.core.windows.net/", id="azure"),
        pytest.param("az://lake", AZURE | {"endpoint": "http://h:1/acct"}, "http://h:1/", id="azure_endpoint"),
        pytest.param("az://lake", {"use_emulator": "true"}, "http://127.0.0.1:10000/", id="azure_emulator"),
        pytest.param(
            "abfss://lake@acct.dfs.core.windows.net/p", AZURE, "https://acct.dfs.core.windows.net/", id="abfss"
        ),
        pytest.param(
            "https://acct.blob.core.windows.net/lake/p", AZURE, "https://acct.blob.core.windows.net/", id="https"
        ),
    ],
)
def test_each_kind_of_store_has_its_service(url: str, options: dict[str, str], address: str) -> None:
    # Outside the tests' own environment, which names a region.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_REGION", raising=False)
        patch.delenv("AWS_DEFAULT_REGION", raising=False)
        assert service_address(StoreAccess(url, options)) == address


def test_the_environment_counts_as_it_does_for_obstore() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://from.environment:9000")
        assert service_address(StoreAccess("s3://lake")) == "http://from.environment:9000/"
        assert service_address(StoreAccess("s3://lake", {"endpoint": "http://given"})) == "http://given/"


@pytest.mark.parametrize(
    ("ahead", "becomes"),
    [
        pytest.param(timedelta(minutes=-4), timedelta(minutes=-4), id="behind"),
        pytest.param(timedelta(seconds=2), timedelta(seconds=2), id="within_the_precision_of_the_store"),
        pytest.param(timedelta(minutes=4), timedelta(0), id="ahead"),
    ],
)
def test_a_clock_is_set_back_by_as_much_as_it_is_ahead_of_the_store(ahead: timedelta, becomes: timedelta) -> None:
    with serving(Clock(200)) as clock:
        assert not_ahead_of_store(access(clock), lambda: IT_IS + ahead)() == IT_IS + becomes


def test_a_clock_that_was_set_back_is_not_ahead_although_a_second_began_during_the_request() -> None:
    ahead, moment = timedelta(minutes=4), timedelta(milliseconds=5)
    times = iter([IT_IS + ahead - moment, IT_IS + ahead + moment, IT_IS + ahead + moment])
    with serving(Clock(200)) as clock:
        assert not_ahead_of_store(access(clock), lambda: next(times))() <= IT_IS


def test_a_clock_is_unchanged_if_the_store_does_not_give_its_time() -> None:
    with serving(Clock(200, {})) as clock:
        assert not_ahead_of_store(access(clock), lambda: IT_IS + timedelta(days=1))() == IT_IS + timedelta(days=1)
