"""Errors of a lakeFS server: one line in the log with the remedy, without secrets, and without long retries."""

import pickle
import time
import traceback
from collections.abc import Iterator

import pytest

from retention_assets.errors import AccessDenied, ConfigurationError, RetentionError, SourceError
from retention_assets.lakefs.source.client import LakeFSClient, NotFound
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, Answer, FakeLakeFSServer, serving
from tests.objectstore.servers import server_that_hangs_up

PATH = "/repositories/{repository}"
ORCHARD = {"repository": "orchard"}


@pytest.fixture
def server() -> Iterator[FakeLakeFSServer]:
    with serving(saved("orchard")) as running:
        yield running


def refusal(url: str, secret_key: str = SECRET_KEY, access_key: str = ACCESS_KEY) -> RetentionError:
    """Return the error of a request for a repository, after checks that apply to all errors."""
    started = time.monotonic()
    with pytest.raises(RetentionError) as caught:
        LakeFSClient(url, access_key, secret_key).get(PATH, ORCHARD)
    error = caught.value
    assert time.monotonic() - started < 15
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    assert str(error).startswith(f"{url}: GET /repositories/orchard: ")
    trace = "".join(traceback.format_exception(error))
    assert secret_key not in trace
    assert "Authorization" not in trace
    assert "During handling" not in trace
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    return error


@pytest.mark.parametrize("spelling", ["{url}", "{url}/", "{url}/api/v1", "{url}/api/v1/"])
def test_the_address_may_include_the_path_of_the_api(server: FakeLakeFSServer, spelling: str) -> None:
    client = LakeFSClient(spelling.format(url=server.url), ACCESS_KEY, SECRET_KEY)
    assert client.get(PATH, ORCHARD)["storage_namespace"] == "s3://lake/orchard"


@pytest.mark.parametrize(
    ("access_key", "secret_key"),
    [pytest.param(ACCESS_KEY, "wrong/secret+key", id="secret"), pytest.param("AKIAUNKNOWN", SECRET_KEY, id="key")],
)
def test_wrong_keys_are_access_denied(server: FakeLakeFSServer, access_key: str, secret_key: str) -> None:
    error = refusal(server.url, secret_key, access_key)
    assert isinstance(error, AccessDenied)
    assert "refused (401: error authenticating request)" in str(error)
    assert "source.api.access_key and secret_key" in str(error)


def test_a_request_that_the_user_may_not_make_is_access_denied(server: FakeLakeFSServer) -> None:
    server.override["/repositories/orchard"] = Answer(403, {"message": "insufficient permissions"})
    error = refusal(server.url)
    assert isinstance(error, AccessDenied)
    assert "insufficient permissions" in str(error)


def test_a_refusal_whose_reason_is_not_text_is_access_denied(server: FakeLakeFSServer) -> None:
    server.override["/repositories/orchard"] = Answer(403, b"caf\xe9")
    error = refusal(server.url)
    assert isinstance(error, AccessDenied)
    assert "the server refused (403: bytes that are not text)" in str(error)


def test_a_404_has_the_servers_own_message(server: FakeLakeFSServer) -> None:
    del server.repositories["orchard"]
    error = refusal(server.url)
    assert isinstance(error, NotFound)
    assert error.server_message == "repository not found"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}), id="a_sign_in_page"),
        pytest.param(Answer(404, b"<html>Not Found</html>", {"Content-Type": "text/html"}), id="a_404_page"),
        pytest.param(Answer(200, b"\xff\xfe\x00", {"Content-Type": "application/json"}), id="bytes"),
        pytest.param(Answer(418, b"<html>caf\xe9</html>", {"Content-Type": "text/html"}), id="a_page_in_latin_1"),
        pytest.param(Answer(200, b""), id="nothing"),
        pytest.param(Answer(200, ["a", "list"]), id="a_list"),
        pytest.param(Answer(302, b"", {"Location": "http://elsewhere.example/"}), id="a_redirect"),
    ],
)
def test_a_response_that_is_not_a_json_object_is_an_error(server: FakeLakeFSServer, answer: Answer) -> None:
    server.override["/repositories/orchard"] = answer
    error = refusal(server.url)
    assert type(error) is SourceError
    assert f"the response (status {answer.status}) is not a JSON object" in str(error)
    assert "address of a lakeFS server" in str(error)


def test_a_server_error_is_reported_on_one_line_without_the_secret(server: FakeLakeFSServer) -> None:
    message = f"panic:\n  goroutine 1\n  key {SECRET_KEY}\n" + "x" * 5_000
    server.override["/repositories/orchard"] = Answer(418, {"message": message})
    error = refusal(server.url)
    assert "the server failed (418: panic: goroutine 1 key ***" in str(error)


def test_a_request_to_a_busy_server_is_retried(server: FakeLakeFSServer) -> None:
    server.override["/repositories/orchard"] = Answer(503, {"message": "busy"}, {"Retry-After": "3600"})
    server.before("GET", "/orchard", server.override.clear, nth=3)
    client = LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY)
    assert client.get(PATH, ORCHARD)["id"] == "orchard"


def test_requests_to_a_server_that_stays_busy_fail(server: FakeLakeFSServer) -> None:
    server.override["/repositories/orchard"] = Answer(503, {"message": "busy"}, {"Retry-After": "3600"})
    assert "the server failed (503: busy)" in str(refusal(server.url))
    assert len(server.calls) == 4


def test_a_post_is_sent_once(server: FakeLakeFSServer) -> None:
    server.override["/repositories/orchard/dump"] = Answer(503, {"message": "busy"})
    client = LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY)
    with pytest.raises(SourceError, match="busy"):
        client.post(PATH + "/dump", ORCHARD)
    assert len(server.calls) == 1


def test_an_unreachable_server_is_reported() -> None:
    assert "the server cannot be reached, or closed the connection" in str(refusal("http://127.0.0.1:1"))


def test_a_server_that_closes_the_connection_is_reported() -> None:
    with server_that_hangs_up() as url:
        assert "the server cannot be reached, or closed the connection" in str(refusal(url))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param(
            "lakefs.example.com", "address.*'lakefs.example.com' is not one.*https://host:port", id="no_scheme"
        ),
        pytest.param("ftp://lakefs.example.com", "must be the address", id="no_web_address"),
        pytest.param(
            f"https://key:{SECRET_KEY.replace('/', '')}@lakefs.example.com",
            r"host lakefs\.example\.com\) has a user",
            id="keys",
        ),
    ],
)
def test_an_invalid_address_is_refused_at_once(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        LakeFSClient(url, ACCESS_KEY, SECRET_KEY)
    assert SECRET_KEY.replace("/", "") not in str(caught.value)


def test_the_client_does_not_print_its_keys(server: FakeLakeFSServer) -> None:
    client = LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY)
    assert SECRET_KEY not in f"{client} {client!r}"


class TestPages:
    def test_pages_are_read_to_the_last_one(self, server: FakeLakeFSServer) -> None:
        repository = server.repositories["orchard"]
        repository.branches = {f"b{number:04}": "c" for number in range(2_500)}
        pages = LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY).pages(PATH + "/branches", ORCHARD)
        assert [branch["id"] for page in pages for branch in page] == list(repository.branches)

    @pytest.mark.parametrize("offset", ["", "b1"])
    def test_pages_that_do_not_end_are_an_error(self, server: FakeLakeFSServer, offset: str) -> None:
        page = {"pagination": {"has_more": True, "next_offset": offset}, "results": []}
        server.override["/repositories/orchard/branches"] = Answer(200, page)
        with pytest.raises(SourceError, match="the listing /repositories/orchard/branches does not end"):
            list(LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY).pages(PATH + "/branches", ORCHARD))

    def test_pages_that_end_at_a_path_that_is_not_text_are_an_error(self, server: FakeLakeFSServer) -> None:
        """The server prints U+FFFD for its bytes, so the next page would begin at another path."""
        page = {"pagination": {"has_more": True, "next_offset": "a\ufffd"}, "results": []}
        server.override["/repositories/orchard/branches"] = Answer(200, page)
        with pytest.raises(SourceError, match=r"'a\ufffd'\. This path is not UTF-8"):
            list(LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY).pages(PATH + "/branches", ORCHARD))

    @pytest.mark.parametrize("page", [{}, {"results": []}, {"pagination": {"has_more": False}}, {"pagination": []}])
    def test_pages_in_another_schema_are_an_error(self, server: FakeLakeFSServer, page: dict[str, object]) -> None:
        server.override["/repositories/orchard/branches"] = Answer(200, page)
        with pytest.raises(SourceError, match="response has no"):
            list(LakeFSClient(server.url, ACCESS_KEY, SECRET_KEY).pages(PATH + "/branches", ORCHARD))
