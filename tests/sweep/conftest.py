"""An approved plan of orchard, small chunks, and buckets, for all tests of the sweep."""

from collections.abc import Iterator
from itertools import count

import pytest
from moto.server import ThreadedMotoServer

from retention_assets.objectstore.mutate import copying
from retention_assets.sweep import worker as work
from tests.end_to_end.command import Answer, Project
from tests.objectstore.s3 import Bucket

_NUMBERS = count()


@pytest.fixture(scope="session")
def approved(planned_orchard: tuple[Project, Answer], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Orchard on disk with an approved plan. Tests must not change it."""
    planned, answer = planned_orchard
    project = planned.copy(tmp_path_factory.mktemp("approved"), mode="delete")
    assert project.run("approve", answer.document()["plan_hash"]).status == 0
    return project


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a chunk have two objects, and let one object be larger than the parts in which objects are copied."""
    monkeypatch.setattr(work, "_MOST_IN_CHUNK", 2)
    monkeypatch.setattr(copying, "_CHUNK", 64)


@pytest.fixture(scope="session")
def s3_endpoint(clean_environment: None) -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str) -> Bucket:
    """An empty bucket, whose server takes any credentials."""
    made = Bucket(s3_endpoint, f"sweep-{next(_NUMBERS)}", "any-access-key", "any-secret-key")
    made.client().create_bucket(Bucket=made.name)
    return made
