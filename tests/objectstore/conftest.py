"""Store servers over HTTP, one of each kind per process, and a new bucket for each test."""

from collections.abc import Iterator
from itertools import count
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.objectstore.s3 import REGION, Bucket, statement
from tests.objectstore.store_servers import MOTO, StoreServer, connect_s3, run_azurite, run_gcs, run_versitygw

_NUMBERS = count()


@pytest.fixture(scope="session")
def s3_endpoint(clean_environment: None) -> Iterator[str]:
    app, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def one_at_a_time(*request: Any) -> Any:
        with lock:  # moto looks for an object and creates it in two steps: two conditional requests might both succeed
            return app(*request)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    """An empty bucket, whose server accepts any credentials."""
    made = Bucket(s3_endpoint, f"lake-{next(_NUMBERS)}", "any-access-key", "any-secret-key")
    made.client().create_bucket(Bucket=made.name)
    return made


@pytest.fixture(scope="session")
def moto(s3_endpoint: str) -> StoreServer:
    return connect_s3(MOTO, s3_endpoint)


@pytest.fixture(scope="session")
def versitygw(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with run_versitygw(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with run_azurite(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def gcs(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with run_gcs(tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def guarded(bucket: Bucket) -> Iterator[Bucket]:
    """The same bucket with checked signatures. The user may not list, and may not delete `theirs/2`."""
    iam = boto3.client("iam", endpoint_url=bucket.endpoint, region_name=REGION)
    name = f"user-of-{bucket.name}"
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    allowed = statement("Allow", ["s3:GetObject", "s3:DeleteObject"], "*")
    iam.put_user_policy(UserName=name, PolicyName="no-listing", PolicyDocument=allowed)
    s3 = bucket.client()
    for path in ("mine/1", "theirs/2", "mine/3"):
        s3.put_object(Bucket=bucket.name, Key=path, Body=b"1")
    theirs = f"arn:aws:s3:::{bucket.name}/theirs/*"
    s3.put_bucket_policy(Bucket=bucket.name, Policy=statement("Deny", ["s3:DeleteObject"], theirs, Principal="*"))
    _check_signatures_after(bucket.endpoint, "0")
    yield Bucket(bucket.endpoint, bucket.name, key["AccessKeyId"], key["SecretAccessKey"])
    _check_signatures_after(bucket.endpoint, "inf")


def _check_signatures_after(endpoint: str, requests: str) -> None:
    plain = {"Content-Type": "text/plain"}
    with urlopen(Request(f"{endpoint}/moto-api/reset-auth", requests.encode(), plain, method="POST")):
        pass
