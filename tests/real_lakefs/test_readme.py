"""The five commands of README lead to a plan of a repository of a real server."""

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.end_to_end.command import Answer, environment, run
from tests.end_to_end.s3_server import s3_server
from tests.objectstore.store_servers import MOTO, connect_s3
from tests.real_lakefs.client import ACCESS_KEY, SECRET_KEY
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.server import Server, lakefs_program, server_on_s3
from tests.real_lakefs.stores import moto_store

ROOT = Path(__file__).parents[2]
_SET_BACK = 700  # days: servers of tests start with this clock
NEXT = re.compile(r"\bretention (\w+)")


def commands() -> list[list[str]]:
    """Return the commands of the section, without comments."""
    section = (ROOT / "README.md").read_text("utf-8").split("## Your own repository in five commands\n")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    return [shlex.split(line, comments=True) for line in block.splitlines()]


@pytest.fixture
def server(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over a bucket, with this machine's clock."""
    lakefs_program()
    with ExitStack() as stack:
        running = stack.enter_context(s3_server())
        store = moto_store(connect_s3(MOTO, running.endpoint))
        server = stack.enter_context(server_on_s3(tmp_path_factory.mktemp("lakefs"), store))
        server.clock.forward(days=_SET_BACK)
        yield server


def orchard(server: Server) -> Repository:
    """Create a repository with the name that README has."""
    namespace, client = server.store.namespace("orchard"), server.client()
    body = {"name": "orchard", "storage_namespace": namespace, "default_branch": "main"}
    client.ask("POST", "/repositories", body=body)
    return Repository(server, client, "orchard", namespace, "orchard")


def test_the_five_commands_of_the_readme_make_a_plan(
    server: Server, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = orchard(server)
    address = repository.upload_and_commit("main", "fruit/apples.csv", b"1")
    setup, *own = commands()
    assert len(own) == 4
    assert setup == ["make", "setup"]
    assert re.search(r'echo "Next: \$\(VENV\)/retention init', (ROOT / "Makefile").read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    keys = {"LAKECTL_CREDENTIALS_ACCESS_KEY_ID": ACCESS_KEY, "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": SECRET_KEY}
    store = {"AWS_ENDPOINT_URL": str(server.store.settings("")["storage_options"]["endpoint"])}
    ended: list[Answer] = []
    with environment(**keys, **store):
        for program, *arguments in own:
            assert program == ".venv/bin/retention"
            ended.append(
                run(*({"https://lakefs.example.org": server.url}.get(argument, argument) for argument in arguments))
            )
            assert ended[-1].status == 0, ended[-1].out + ended[-1].err
        shown = run("show", "orchard", "addresses", "--format", "csv")
    named = [NEXT.findall(one.out) for one in ended]
    for now, following in zip(named, own[1:], strict=False):
        assert following[1] in now
    assert "No action is needed." in ended[-1].out
    assert address in shown.out
