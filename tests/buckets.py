"""Fixtures: buckets of one S3 server (moto) per process, for the tests of every folder."""

from collections.abc import Iterator
from itertools import count
from threading import Lock, Thread
from typing import Any
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]
import pytest

from tests.faulty_s3 import FaultyS3, faulty_s3
from tests.objectstore.s3 import REGION, Bucket, statement

_NUMBERS = count()


@pytest.fixture(scope="session")
def s3_endpoint(clean_environment: None) -> Iterator[str]:
    """The URL of the server, which answers one request at a time."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

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


@pytest.fixture
def faulty(bucket: Bucket) -> Iterator[FaultyS3]:
    """A proxy before the server of the bucket that injects faults."""
    with faulty_s3(bucket.endpoint) as proxy:
        yield proxy


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
