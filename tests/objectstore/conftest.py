"""Store servers over HTTP, one of each kind per process, and a faulty proxy per file."""

from collections.abc import Iterator

import pytest

from tests.faulty_s3 import FaultyS3, faulty_s3
from tests.objectstore.store_servers import MOTO, StoreServer, connect_s3, run_azurite, run_gcs, run_versitygw


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[FaultyS3]:
    """A proxy before the S3 server that injects faults. A test sets its faults before use."""
    with faulty_s3(s3_endpoint) as running:
        yield running


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
