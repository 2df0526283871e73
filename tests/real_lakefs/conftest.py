"""Real lakeFS servers, one of each kind per process; tests that use one are marked `lakefs_server`."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.end_to_end.s3_server import s3_server as moto_server
from tests.objectstore.programs import INSTALLED
from tests.objectstore.store_servers import MOTO, connect_s3, run_versitygw
from tests.real_lakefs.hooks import Webhook, webhook
from tests.real_lakefs.server import Server, lakefs_program, local_server, server_on_s3
from tests.real_lakefs.stores import S3Store, moto_store, versitygw_store

_FOLDERS = {Path(__file__).parent, Path(__file__).parents[1] / "random_histories"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent in _FOLDERS and "the_fake_server" not in item.name:
            item.add_marker(pytest.mark.lakefs_server)


@pytest.fixture(scope="session")
def lakefs(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over local files."""
    lakefs_program()
    with local_server(tmp_path_factory.mktemp("lakefs")) as server:
        yield server


@pytest.fixture(scope="session")
def lakefs_on_s3(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over a bucket: of versitygw if `make test-servers` installed it, else of moto."""
    lakefs_program()
    with ExitStack() as stack:
        store = _bucket(stack, tmp_path_factory.mktemp("bucket"))
        yield stack.enter_context(server_on_s3(tmp_path_factory.mktemp("lakefs_on_s3"), store))


@pytest.fixture(scope="session")
def lakefs_on_moto(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over a bucket of moto, where a test can change the ETags of objects."""
    lakefs_program()
    with moto_server() as running:
        store = moto_store(connect_s3(MOTO, running.endpoint))
        with server_on_s3(tmp_path_factory.mktemp("lakefs_on_moto"), store) as server:
            yield server


def _bucket(stack: ExitStack, directory: Path) -> S3Store:
    if (INSTALLED / "bin/versitygw").is_file():
        running = stack.enter_context(run_versitygw(directory))
        return versitygw_store(running, directory / "objects")
    running = stack.enter_context(moto_server())
    return moto_store(connect_s3(MOTO, running.endpoint))


@pytest.fixture
def hook() -> Iterator[Webhook]:
    """A webhook that delays its answers while a test tells it to."""
    with webhook() as running:
        yield running
