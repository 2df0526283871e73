"""A store or a server that denies access, is unknown, or does not answer: one clear line, and nothing is deleted."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import boto3  # type: ignore[import-untyped]
import pytest
from werkzeug.wrappers import Request, Response

from tests.end_to_end.command import Project, environment, orchard
from tests.end_to_end.s3_server import REGION, Lake, S3Server, error, is_listing
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, Answer, FakeLakeFSServer, serving
from tests.objectstore.s3 import statement
from tests.objectstore.servers import server_that_hangs_up
from tests.saved_repositories import api

pytestmark = pytest.mark.usefixtures("spark")

METARANGES = {commit["meta_range_id"] for commit in api("orchard")["commits"]}
_LONGEST = 60  # seconds for a store that does not answer: it is given up after about 13, a server within 15


@dataclass
class World:
    """A project with its storage in S3 and references from a server, both working."""

    lake: Lake
    server: FakeLakeFSServer
    project: Project

    def source(self, **changes: Any) -> Any:
        """Return the settings of the source with `changes`."""
        api = {"url": self.server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "LAKEFS_SECRET"}}
        return {"api": {**api, **changes}}

    def options(self, **changes: Any) -> Any:
        """Return the storage options with `changes`."""
        keys = {"access_key_id": {"env": "LAKE_KEY"}, "secret_access_key": {"env": "LAKE_SECRET"}}
        return {"endpoint": self.lake.server.endpoint, "region": REGION, **keys, **changes}


@pytest.fixture(scope="module")
def bucket(new_lake: Callable[[], Lake]) -> Lake:
    return new_lake()


@pytest.fixture
def world(bucket: Lake, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        server = stack.enter_context(serving(saved("orchard")))
        secrets = {"LAKE_KEY": "a-key", "LAKE_SECRET": "a-secret", "LAKEFS_SECRET": SECRET_KEY}
        stack.enter_context(environment(**secrets))
        made = World(bucket, server, orchard(tmp_path, bucket.storage))
        alone = {"single_machine": True}
        made.project.write(
            storage_options=made.options(), source=made.source(), staged=None, mode="delete", sweep=alone
        )
        yield made


Trouble = Callable[[World], AbstractContextManager[object]]


@contextmanager
def signatures_checked(world: World) -> Iterator[None]:
    """Let the S3 server check signatures. The client has a valid key and a wrong secret."""
    iam = boto3.client("iam", endpoint_url=world.lake.server.endpoint, region_name=REGION)
    user = world.lake.bucket
    iam.create_user(UserName=user)
    iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=statement("Allow", ["s3:*"], "*"))
    key = iam.create_access_key(UserName=user)["AccessKey"]["AccessKeyId"]
    check_signatures(world.lake.server, "0")
    try:
        with environment(LAKE_KEY=key, LAKE_SECRET="not-its-secret"):
            yield
    finally:
        check_signatures(world.lake.server, "inf")


def check_signatures(server: S3Server, after: str) -> None:
    """Let the S3 server check signatures after so many requests."""
    plain = {"Content-Type": "text/plain"}
    with urlopen(HttpRequest(f"{server.endpoint}/moto-api/reset-auth", after.encode(), plain, method="POST")):
        pass


def denied(applies: Callable[[Request], bool]) -> Trouble:
    """Return a fault: the store denies the requests for which `applies` is true."""

    def rule(request: Request) -> Response | None:
        return error("AccessDenied", 403) if applies(request) else None

    return lambda world: world.lake.server.answering(rule)


def is_metarange(request: Request) -> bool:
    """Return whether a request reads a metarange, which executors read first."""
    return request.method == "GET" and request.path.rpartition("/")[2] in METARANGES


def changed(**settings: Callable[[World], object]) -> Trouble:
    """Return a fault: a configuration with other settings."""

    @contextmanager
    def trouble(world: World) -> Iterator[None]:
        world.project.write(**{name: make(world) for name, make in settings.items()})
        yield

    return trouble


@contextmanager
def store_hangs_up(world: World) -> Iterator[None]:
    with server_that_hangs_up() as url:
        world.project.write(storage_options=world.options(endpoint=url))
        yield


@contextmanager
def server_speaks_html(world: World) -> Iterator[None]:
    world.server.override["/repositories/orchard"] = Answer(200, b"<html>Welcome</html>")
    yield


NOBODY = "http://127.0.0.1:9"  # the port of `discard`, where nobody listens


@pytest.mark.parametrize(
    ("trouble", "names"),
    [
        pytest.param(signatures_checked, ["s3://", "SignatureDoesNotMatch", "secret_access_key"], id="a wrong secret"),
        pytest.param(denied(is_listing), ["s3://", "cannot list", "s3:ListBucket"], id="listing is denied"),
        pytest.param(
            denied(is_metarange), ["_lakefs/", "AccessDenied", "s3:GetObject"], id="reading is denied to executors"
        ),
        pytest.param(
            changed(storage=lambda world: "s3://no-such-bucket/orchard"), ["no-such-bucket"], id="no such bucket"
        ),
        pytest.param(
            changed(storage_options=lambda world: world.options(endpoint=NOBODY)),
            ["s3://", "cannot be reached", "endpoint"],
            id="the server does not listen",
        ),
        pytest.param(store_hangs_up, ["s3://", "cannot be reached", "endpoint"], id="the store closes the connection"),
        pytest.param(
            lambda world: environment(LAKEFS_SECRET="not-its-secret"),
            ["401", "source.api.access_key and secret_key"],
            id="a wrong secret of the server",
        ),
        pytest.param(
            changed(source=lambda world: world.source(repository="vineyard")),
            ["vineyard", "not found", "source.api.repository"],
            id="a repository that the server does not know",
        ),
        pytest.param(
            changed(namespace=lambda world: "s3://lake/vineyard"),
            ["s3://lake/orchard", "s3://lake/vineyard", "namespace"],
            id="a repository with another namespace on the server",
        ),
        pytest.param(
            changed(source=lambda world: world.source(url=NOBODY)),
            ["cannot be reached", "source.api.url"],
            id="no server",
        ),
        pytest.param(server_speaks_html, ["JSON", "source.api.url"], id="not a server of lakeFS"),
    ],
)
@pytest.mark.slow
def test_the_error_of_a_plan_is_one_line_with_the_cause_and_the_remedy(
    world: World, trouble: Trouble, names: list[str]
) -> None:
    before = world.lake.listing()
    began = time.monotonic()
    with trouble(world):
        answer = world.project.run("plan")
    assert time.monotonic() - began < _LONGEST
    assert answer.status == 3, answer
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert len(answer.err.splitlines()) == 1, answer.err
    for name in names:
        assert name in answer.err
    assert world.lake.listing() == before
