"""The faulty S3 proxy injects the configured faults, and no others."""

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.s3 import S3Bucket, s3_bucket
from tests.faulty_s3 import Faults, FaultyS3, Named, faulty_s3
from tests.objectstore.s3 import Bucket

PATHS = [f"data/{number}" for number in range(7)]


@pytest.fixture
def access(bucket: Bucket, proxy: FaultyS3) -> StoreAccess:
    proxy.reset()
    made = bucket.access("ns", endpoint=proxy.endpoint)
    for path in PATHS:
        made.open().put(path, path.encode())
    proxy.requests.clear()
    proxy.answers.clear()
    return made


@pytest.fixture
def client(access: StoreAccess) -> S3Bucket:
    return s3_bucket(access)


def listed(access: StoreAccess) -> list[str]:
    return [path for batch in ObjectReader(access).list() for path in batch["path"].to_pylist()]


def delete(client: S3Bucket, *objects: dict[str, str]) -> Any:
    return client.client.delete_objects(Bucket=client.name, Delete={"Objects": list(objects)})


def test_without_faults_the_proxy_answers_as_the_server(access: StoreAccess, client: S3Bucket) -> None:
    reader = ObjectReader(access)
    assert listed(access) == PATHS
    assert reader.read("data/3") == b"data/3"
    assert reader.head("data/3").size == 6
    client.client.put_object(Bucket=client.name, Key="ns/data/é & +", Body=b"1")
    assert delete(client, {"Key": "ns/data/é & +"})["Deleted"] == [{"Key": "ns/data/é & +"}]
    assert listed(access) == PATHS


def test_every_request_is_recorded(access: StoreAccess, client: S3Bucket, proxy: FaultyS3) -> None:
    delete(client, {"Key": "ns/data/0", "ETag": "abc"}, {"Key": "ns/data/1", "VersionId": "v"})
    client.client.delete_object(Bucket=client.name, Key="ns/data/2", IfMatch='"abc"')
    assert [request.method for request in proxy.requests] == ["POST", "DELETE"]
    assert [request.deletes for request in proxy.deletions] == [
        [Named("ns/data/0", "abc"), Named("ns/data/1", None, "v")],
        [Named("ns/data/2", "abc")],
    ]
    assert proxy.answers == [200, 204]


def test_a_share_of_requests_fails_with_the_given_probability(s3_endpoint: str, access: StoreAccess) -> None:
    def answers(seed: int) -> list[int | None]:
        with faulty_s3(s3_endpoint, seed) as proxy:
            proxy.faults = Faults(slow_down=0.3, broken=0.2, applies=lambda request: request.method == "HEAD")
            client = s3_bucket(StoreAccess(access.url, {**access.options, "endpoint": proxy.endpoint}))
            for _ in range(40):
                with suppress(ClientError):
                    client.client.head_object(Bucket=client.name, Key="ns/data/0")
            return proxy.answers

    first = answers(1)
    assert answers(1) == first
    assert answers(2) != first
    assert set(first) == {200, 500, 503}


@pytest.mark.parametrize("fault", ["lost", "broken"])
def test_a_deletion_without_a_response_is_executed(
    access: StoreAccess, client: S3Bucket, proxy: FaultyS3, fault: str
) -> None:
    proxy.faults = Faults(**{fault: 1.0})
    with pytest.raises((ClientError, ConnectionClosedError)):
        delete(client, {"Key": "ns/data/0"})
    assert listed(access) == PATHS[1:]


def test_a_throttled_deletion_is_not_executed(access: StoreAccess, client: S3Bucket, proxy: FaultyS3) -> None:
    proxy.faults = Faults(slow_down=1.0)
    with pytest.raises(ClientError, match="SlowDown"):
        delete(client, {"Key": "ns/data/0"})
    assert listed(access) == PATHS


@pytest.mark.parametrize("page", [1, 3, 7])
def test_short_pages_give_a_complete_listing(access: StoreAccess, proxy: FaultyS3, page: int) -> None:
    proxy.faults = Faults(page=page)
    assert listed(access) == PATHS
    assert len(proxy.requests) == -(-7 // page)


def test_a_listing_that_ends_early_claims_to_be_complete(access: StoreAccess, proxy: FaultyS3) -> None:
    proxy.faults = Faults(page=3, ends_early=True)
    assert listed(access) == PATHS[:3]


def test_a_repeated_page_has_a_new_token(client: S3Bucket, proxy: FaultyS3) -> None:
    proxy.faults = Faults(page=3, repeats=True)
    pages = client.client.get_paginator("list_objects_v2").paginate(Bucket=client.name, Prefix=client.prefix)
    paths = [client.path(entry["Key"]) for page in pages for entry in page["Contents"]]
    assert paths == [*PATHS[:3], *PATHS[:3], *PATHS[3:6], *PATHS[3:6], PATHS[6]]
    tokens = [request.query.get("continuation-token") for request in proxy.requests]
    assert len(set(tokens)) == len(tokens)


def test_the_proxy_can_be_reached_from_another_process(access: StoreAccess, proxy: FaultyS3) -> None:
    asks = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status)"
    ended = subprocess.run(
        [sys.executable, "-c", asks, f"{proxy.endpoint}/moto-api/"], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "200\n"
    assert len(proxy.requests) == 1
