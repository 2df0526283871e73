"""boto3, which deletes, uses the same endpoint and the same credentials as obstore, which lists."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from retention_assets.errors import ConfigurationError
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.failures import Kind
from retention_assets.objectstore.s3 import S3_ERRORS, failure_of_s3, s3_bucket

KEYS = {"access_key_id": "AKIAOPTION", "secret_access_key": "a-secret/of+options"}
SECRET = KEYS["secret_access_key"]


class Listener:
    """A server that records the target and the signer of each request, and answers all requests alike."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Mapping[str, str]]] = []  # path, headers by their name in lower case
        self.endpoint = ""
        self.status = 404
        self.server: Any = None

    def places(self) -> set[tuple[str, str, str]]:
        """Host, path and the signature's scope of every request since the last call: key, region; or nothing."""
        seen = {
            (headers["host"], path.partition("?")[0], _scope(headers.get("authorization", "")))
            for path, headers in self.seen
        }
        self.seen.clear()
        return seen


def _scope(authorization: str) -> str:
    if "Credential=" not in authorization:
        return "unsigned"
    key, _, region, *_ = authorization.partition("Credential=")[2].split("/")
    return f"{key} {region}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    noting = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            noting.seen.append((self.path, headers))
            self.send_response(noting.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_DELETE = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    noting.server = server
    noting.endpoint = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield noting
    server.shutdown()
    server.server_close()


def ask_both(access: StoreAccess) -> tuple[Any, Any]:
    """Read one object through each client."""

    def obstore() -> None:
        with suppress(Exception):
            access.open().head("data/a b")

    def ours() -> None:
        bucket = s3_bucket(access)
        with suppress(*S3_ERRORS):
            bucket.client.head_object(Bucket=bucket.name, Key=bucket.key("data/a b"), **bucket.extra)

    return obstore, ours


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        pytest.param({**KEYS, "region": "eu-central-1", "endpoint": "{}"}, {}, id="options"),
        pytest.param(
            {f"aws_{name}": value for name, value in KEYS.items()} | {"aws_endpoint": "{}"}, {}, id="aws_names"
        ),
        pytest.param({"ACCESS_KEY_ID": "K", "SECRET_ACCESS_KEY": "s", "ENDPOINT_URL": "{}"}, {}, id="upper_case"),
        pytest.param({**KEYS, "endpoint_url": "{}", "default_region": "eu-west-9"}, {}, id="default_region"),
        pytest.param({**KEYS, "endpoint": "{}"}, {"AWS_REGION": "eu-north-1"}, id="region_of_the_environment"),
        pytest.param({**KEYS, "endpoint": "{}", "region": "eu-1"}, {"AWS_REGION": "eu-2"}, id="an_option_wins"),
        pytest.param({"allow_http": "true"}, {"AWS_ENDPOINT": "{}"}, id="endpoint_of_the_environment"),
        pytest.param({"allow_http": "true"}, {"AWS_ENDPOINT_URL": "{}"}, id="endpoint_url_of_the_environment"),
        pytest.param(
            {**KEYS, "endpoint": "http://127.0.0.1:9"}, {"AWS_ENDPOINT_URL_S3": "{}"}, id="endpoint_url_s3_wins"
        ),
        pytest.param({"endpoint": "{}"}, {}, id="keys_of_the_environment"),
        pytest.param({**KEYS, "token": "a-token", "endpoint": "{}"}, {}, id="session_token"),
        pytest.param({"skip_signature": "true", "endpoint": "{}"}, {}, id="unsigned"),
        pytest.param({"endpoint": "{}"}, {"AWS_SKIP_SIGNATURE": "true"}, id="unsigned_by_the_environment"),
        pytest.param({**KEYS, "endpoint": "{}", "request_payer": "true"}, {}, id="requester_pays"),
    ],
)
def test_boto3_and_obstore_use_the_same_bucket_and_credentials(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(listener.endpoint))
    access = StoreAccess("s3://lake/ns p", {name: text.format(listener.endpoint) for name, text in options.items()})
    obstore, ours = ask_both(access)
    obstore()
    headers = listener.seen[0][1]
    expected = listener.places()
    ours()
    for name in ("x-amz-security-token", "x-amz-request-payer"):
        assert listener.seen[0][1].get(name) == headers.get(name)
    assert listener.places() == expected


class TestAWSFiles:
    """obstore reads no AWS files. A profile that sends boto3 to another store would delete unlisted objects there."""

    @pytest.fixture(autouse=True)
    def files(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        elsewhere = "endpoint_url = http://127.0.0.1:9\nregion = mars-1\n"
        keys = "aws_access_key_id = OTHER\naws_secret_access_key = other\n"
        (tmp_path / "config").write_text(f"[default]\n{elsewhere}", encoding="utf-8")
        (tmp_path / "credentials").write_text(f"[default]\n{keys}", encoding="utf-8")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)

    def test_aws_configuration_files_do_not_redirect_requests(self) -> None:
        client = s3_bucket(StoreAccess("s3://lake", KEYS)).client
        assert (client.meta.endpoint_url, client.meta.region_name) == ("https://s3.amazonaws.com", "us-east-1")

    def test_aws_configuration_files_provide_no_keys(self, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        access = StoreAccess("s3://lake", {"endpoint": listener.endpoint})
        bucket = s3_bucket(access)
        with pytest.raises(S3_ERRORS) as caught:
            bucket.client.head_object(Bucket=bucket.name, Key="a")
        assert failure_of_s3(caught.value, access).kind is Kind.CREDENTIALS
        assert listener.seen == []

    def test_aws_configuration_files_need_not_have_the_profile_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
        assert s3_bucket(StoreAccess("s3://lake", KEYS)).name == "lake"


def test_a_request_is_sent_once_so_that_its_caller_sees_every_error(listener: Listener) -> None:
    listener.status = 503
    access = StoreAccess("s3://lake", {**KEYS, "endpoint": listener.endpoint})
    bucket = s3_bucket(access)
    with pytest.raises(S3_ERRORS) as caught:
        bucket.client.head_object(Bucket=bucket.name, Key="a")
    assert failure_of_s3(caught.value, access).throttled
    assert len(listener.seen) == 1


def test_a_deletion_in_bulk_carries_the_digest_that_older_servers_demand(listener: Listener) -> None:
    bucket = s3_bucket(StoreAccess("s3://lake", {**KEYS, "endpoint": listener.endpoint}))
    with suppress(*S3_ERRORS):
        bucket.client.delete_objects(Bucket=bucket.name, Delete={"Objects": [{"Key": "a"}]})
    assert len(listener.seen[0][1]["content-md5"]) == 24


@pytest.mark.parametrize(
    ("key_range", "seconds"), [("3s", 3), ("500ms", 0.5), ("1min 30s", 90), ("2 minutes", 120), ("1h", 3_600)], ids=str
)
def test_timeouts_are_those_of_the_options(key_range: str, seconds: float) -> None:
    config = s3_bucket(
        StoreAccess("s3://lake", {**KEYS, "connect_timeout": key_range, "read_timeout": key_range})
    ).client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (seconds, seconds)


def test_without_options_timeouts_are_those_of_every_store() -> None:
    config = s3_bucket(StoreAccess("s3://lake", KEYS)).client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (3, 120)


def test_a_bucket_before_the_host_is_named_once() -> None:
    options = {**KEYS, "virtual_hosted_style_request": "true", "endpoint": "https://lake.s3.example.com"}
    client = s3_bucket(StoreAccess("s3://lake", options)).client
    signed = client.generate_presigned_url("get_object", Params={"Bucket": "lake", "Key": "a"})
    assert signed.startswith("https://lake.s3.example.com/a?")


class TestCertificates:
    @pytest.fixture
    def encrypted(self, listener: Listener, certificate: Path) -> StoreAccess:
        """The listener with a self-signed certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        listener.server.socket = context.wrap_socket(listener.server.socket, server_side=True)
        return StoreAccess("s3://lake", {**KEYS, "endpoint": listener.endpoint.replace("http://", "https://")})

    @pytest.fixture(scope="class")
    def certificate(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A certificate of 127.0.0.1 with its key."""
        file = tmp_path_factory.mktemp("certificate") / "server.pem"
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(made.public_bytes(pem) + private)
        return file

    @pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
    @pytest.mark.parametrize("option", ["root_certificate", "allow_invalid_certificates"])
    def test_a_certificate_that_the_options_trust_is_trusted(
        self, listener: Listener, encrypted: StoreAccess, certificate: Path, option: str
    ) -> None:
        public = certificate.read_text(encoding="utf-8").partition("-----BEGIN PRIVATE")[0]
        value = {"root_certificate": public, "allow_invalid_certificates": "true"}[option]
        ask_both(StoreAccess(encrypted.url, {**encrypted.options, option: value}))[1]()
        assert len(listener.seen) == 1

    def test_a_certificate_that_nobody_trusts_gets_no_request(self, listener: Listener, encrypted: StoreAccess) -> None:
        ask_both(encrypted)[1]()
        assert listener.seen == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"role_arn": "arn:aws:iam::1:role/x"}, "Set AWS_ROLE_ARN in the environment", id="role"),
        pytest.param({"metadata_endpoint": "http://10.0.0.1"}, "Set AWS_METADATA_ENDPOINT", id="metadata_endpoint"),
        pytest.param(
            {**KEYS, "virtual_hosted_style_request": "true", "endpoint": "https://cdn.example.com"},
            "only if the endpoint begins with the bucket's name",
            id="a_host_that_hides_the_bucket",
        ),
        pytest.param(
            {**KEYS, "endpoint": "http://s3.example.com", "allow_http": "false"},
            "Set storage_options.allow_http",
            id="http",
        ),
    ],
)
def test_options_that_boto3_does_not_support_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        s3_bucket(StoreAccess("s3://lake", options))
    assert SECRET not in str(caught.value)


def test_keys_make_a_role_unnecessary() -> None:
    assert s3_bucket(StoreAccess("s3://lake", {**KEYS, "role_arn": "arn:aws:iam::1:role/x"})).name == "lake"


def test_keys_and_paths_belong_to_each_other() -> None:
    below = s3_bucket(StoreAccess("s3://lake/a/b%20c", KEYS))
    assert below.key("data/x") == "a/b c/data/x"
    assert below.path("a/b c/data/x") == "data/x"
    whole = s3_bucket(StoreAccess("s3://lake", KEYS))
    assert (whole.key("data/x"), whole.path("data/x")) == ("data/x", "data/x")
