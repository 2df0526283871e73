"""The commands of the docs work as written. A test runs the commands of each page from top to bottom.

The reader's repository is orchard in a bucket with its server. The test replaces the same words as a reader.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doc_pages import PAGES, ROOT, Block, blocks_of, name_of
from tests.end_to_end.approved import SINGLE_MACHINE, copied, copy_of_project
from tests.end_to_end.command import Answer, demo_on_disk, run
from tests.end_to_end.s3_server import Lake, empty_lake
from tests.inventories import Row, make_inventory
from tests.lakefs.source.fake_lakefs_repository import Repository, saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.objectstore.store_servers import StoreServer, run_azurite, run_gcs
from tests.saved_repositories import DATA, listing

# Commands that no test types here, with the reason.
NOT_TYPED = {
    "make setup": "makes the environment that the tests run in",
    "make demo": "set-up and `retention demo`, which tests/cli/test_output.py runs",
    "make test": "runs these tests",
    "make dev": "ends only when someone stops it; tests/assets/test_pages.py runs `dagster dev`",
    "RETENTION_CONFIG=retention.yaml make dev": "as `make dev`",
}
# Pages whose commands another test runs, or no test can run, with the test or the reason.
OTHER_PAGES = {
    "docs/dagster-project.md": "tests/test_installed.py, except the container: nothing builds one here",
    "docs/how-to/emr.md": "no EMR is here; tests/end_to_end/test_pipes.py runs the example with a fake",
    "docs/how-to/spark-connect.md": "tests/end_to_end/clusters.py starts the server, and test_cluster.py plans there",
}

_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_POLICY = "retention: {default: 20d, branches: [{branch: main, keep: 30d}]}\n"
INIT = "retention init orchard --server https://lakefs.example.org"


@dataclass
class Reader:
    """A reader of the docs at a terminal."""

    shell: pytest.MonkeyPatch
    names: dict[str, str] = field(default_factory=dict)  # the reader's names, by the names on the page
    before: dict[str, Callable[[], object]] = field(default_factory=dict)  # actions before a command
    printed: list[Answer] = field(default_factory=list)

    def read(self, page: str) -> None:
        """Run the commands and apply the snippets of a page from top to bottom."""
        for block in blocks_of(ROOT / page, "sh", "yaml"):
            if block.language == "yaml":
                self.edit(block)
                continue
            for command in block.commands:
                self.before.pop(command, lambda: None)()
                if command not in NOT_TYPED:
                    self.type(command)
        assert not self.before  # the page does not show this command

    def type(self, command: str) -> None:
        """Run a command. It must succeed."""
        first, *filters = self.replaced(command).split(" | ")
        program, *arguments = shlex.split(first)
        if program == "export":
            for assignment in arguments:
                self.shell.setenv(*assignment.split("=", 1))
        elif program.endswith("retention"):
            answer = run(*arguments)
            assert answer.status == 0, f"{command}\n{answer.out}{answer.err}"
            self.printed.append(answer)
            if filters:
                subprocess.run(["sh", "-c", " | ".join(filters)], input=answer.out, text=True, check=True)
        else:
            subprocess.run([program, *arguments], check=True)

    def edit(self, block: Block) -> None:
        """Write a snippet into the repository's settings, if it has settings."""
        document = yaml.safe_load(self.replaced(block.text))
        if document.keys() == {"repositories"}:
            self.set(**document["repositories"]["orchard"])
        elif document.keys() & {"mode", "tags"}:
            self.set(**document)

    def set(self, **settings: Any) -> None:
        """Change settings of the repository."""
        file = Path(os.environ.get("RETENTION_CONFIG", "retention.yaml"))
        document = yaml.safe_load(file.read_text("utf-8"))
        document["repositories"]["orchard"].update(settings)
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def replaced(self, text: str) -> str:
        """Return a text of the page with the reader's names and with the hash that was printed last."""
        hashes = [found for answer in self.printed for found in _HASH.findall(answer.out)]
        names = {**self.names, "HASH": hashes[-1] if hashes else "HASH"}
        longest_first = sorted(names, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: names[found[0]], text)


@pytest.fixture
def reader(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new.yaml").write_text(_POLICY, encoding="utf-8")
    return Reader(monkeypatch)


# ---- the repository of the reader


@contextmanager
def on_a_server(reader: Reader, repository: Repository, namespace: str) -> Iterator[None]:
    """Configure a reader for a server with `repository` at `namespace`."""
    repository.namespace = namespace
    key = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID={} LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY={}"
    reader.shell.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", ACCESS_KEY)
    reader.shell.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", SECRET_KEY)
    with serving(repository) as server:
        reader.names["https://lakefs.example.org"] = server.url
        reader.names[key.format("AKIAEXAMPLE", "the-secret")] = key.format(ACCESS_KEY, SECRET_KEY)
        yield


@contextmanager
def on_s3(reader: Reader, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Configure a reader for orchard in a bucket, with its server."""
    lake: Lake = request.getfixturevalue("new_lake")()
    reader.shell.setenv("AWS_ENDPOINT_URL", lake.server.endpoint)
    with on_a_server(reader, saved("orchard"), lake.storage):
        yield lake


def ready_to_sweep(reader: Reader, lake: Lake) -> None:
    """Set the mode as the page says, do not wait the day that objects settle, and plan again."""
    attic = empty_lake(lake.server, f"{lake.bucket}-attic")
    reader.set(mode="quarantine", quarantine={"url": attic.storage}, sweep=SINGLE_MACHINE, settle="0s")
    reader.type("retention plan orchard")


@contextmanager
def of_readme(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    reader.names |= {"fruit/apples.csv": "tables/summary.csv", "tables/day=7": "raw"}
    with on_s3(reader, request) as lake:
        reader.before["retention approve orchard HASH"] = lambda: ready_to_sweep(reader, lake)
        yield


@contextmanager
def of_s3(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    with on_s3(reader, request) as lake:
        reader.before["retention approve orchard HASH"] = lambda: ready_to_sweep(reader, lake)
        yield


@contextmanager
def of_inventory(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    with on_s3(reader, request) as lake:
        reader.type(INIT)
        rows = [Row(f"orchard/{one.address}", one.size, one.last_modified, one.etag) for one in listing("orchard")]
        made = make_inventory(rows, lake.bucket, datetime.now(UTC) - timedelta(days=1), "Parquet")
        deliveries = empty_lake(lake.server, f"{lake.bucket}-deliveries", "daily")
        for key, content in made.objects.items():
            deliveries.client().put_object(Bucket=deliveries.bucket, Key=key, Body=content)
        reader.names["s3://inventories/lake/daily"] = f"s3://{deliveries.bucket}/{made.folder}"
        yield


def copy_orchard(server: StoreServer) -> None:
    """Write orchard below `orchard/` in the bucket of a store."""
    store = server.access("orchard").open()
    for one in listing("orchard"):
        store.put(one.address, (DATA / "orchard" / "namespace" / one.address).read_bytes())


def use_local_server(reader: Reader, server: StoreServer) -> None:
    """Configure a reader and `init` for a local server in place of the real service."""
    reader.shell.setenv("GCS_TOKEN", server.options.get("bearer_token", ""))
    options = {**server.options, "bearer_token": "env:GCS_TOKEN"}
    given = {name: options[name] for name in server.options if name not in ("account_name", "account_key")}
    reader.names[INIT] = " ".join([INIT, *(f"--option {name}={value}" for name, value in given.items())])
    copy_orchard(server)


@contextmanager
def of_azure(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    with run_azurite(request.getfixturevalue("tmp_path")) as server:
        account, key = server.options["account_name"], server.options["account_key"]
        reader.names["AZURE_STORAGE_ACCOUNT_NAME=lake AZURE_STORAGE_ACCOUNT_KEY=the-key"] = (
            f"AZURE_STORAGE_ACCOUNT_NAME={account} AZURE_STORAGE_ACCOUNT_KEY={key}"
        )
        use_local_server(reader, server)
        namespace = f"https://{account}.blob.core.windows.net/lake/orchard"
        with on_a_server(reader, saved("orchard"), namespace):
            reader.names[INIT] = reader.replaced(reader.names.pop(INIT))
            yield


@contextmanager
def of_gcs(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    with run_gcs(request.getfixturevalue("tmp_path")) as server:
        use_local_server(reader, server)
        with on_a_server(reader, saved("orchard"), "gs://lake/orchard"):
            reader.names[INIT] = reader.replaced(reader.names.pop(INIT))
            yield


@contextmanager
def of_quarantine(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    """Step 3 restores what step 4 purges, so the test runs step 3 in a copy."""
    lake, directory = request.getfixturevalue("new_lake")(), request.getfixturevalue("tmp_path")
    attic = empty_lake(lake.server, f"{lake.bucket}-attic")
    reader.names |= {"s3://attic/orchard": attic.storage, "fruit/apples.csv": "raw/week=03/part-0.csv"}
    with copied(request.getfixturevalue("approved"), directory, lake) as world:
        reader.shell.setenv("RETENTION_CONFIG", str(world.project.file))

        def in_a_copy() -> None:
            copy_of_lake, copy_of_attic = (one.copied(f"{one.bucket}-copy") for one in (lake, attic))
            settings = {"mode": "quarantine", "quarantine": {"url": copy_of_attic.storage}}
            copy = copy_of_project(world.project, directory / "copy", copy_of_lake, **settings)
            reader.shell.setenv("RETENTION_CONFIG", str(copy.file))

        def after_thirty_days() -> None:
            reader.shell.setenv("RETENTION_CONFIG", str(world.project.file))
            reader.set(quarantine={"url": attic.storage, "keep": "0s"})

        reader.before["retention explain orchard fruit/apples.csv"] = in_a_copy
        reader.before["retention purge orchard"] = after_thirty_days
        yield


@contextmanager
def on_a_plan(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    """Configure a reader for an existing plan of orchard."""
    lake, directory = request.getfixturevalue("new_lake")(), request.getfixturevalue("tmp_path")
    reader.names["REPO"] = "orchard"
    with copied(request.getfixturevalue("approved"), directory, lake) as world:
        reader.shell.setenv("RETENTION_CONFIG", str(world.project.file))
        yield


@pytest.fixture(scope="module")
def demo(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo with the plan of the example of docs/library.md."""
    directory = demo_on_disk(tmp_path_factory.mktemp("demo"))
    (example,) = blocks_of(ROOT / "docs/library.md", "python")
    shown = {"retention.yaml": "demo/retention.yaml", "fruit/apples.csv": "tables/summary.csv"}
    code = re.sub("|".join(map(re.escape, shown)), lambda found: shown[found[0]], example.text)
    with pytest.MonkeyPatch.context() as shell:
        shell.chdir(directory)
        exec(compile(code, "library.md", "exec"), {})
    return directory


@contextmanager
def on_the_demo(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    directory: Path = request.getfixturevalue("demo")
    reader.shell.chdir(directory)
    reader.shell.setenv("RETENTION_CONFIG", str(directory / "demo/retention.yaml"))
    yield


@contextmanager
def of_a_staged_list(reader: Reader, request: pytest.FixtureRequest) -> Iterator[None]:
    """A server writes the list, in a bucket; all other commands are about the demo."""
    reader.names["$KEY:$SECRET"] = f"{ACCESS_KEY}:{SECRET_KEY}"
    lake: Lake = request.getfixturevalue("new_lake")()
    with on_a_server(reader, saved("orchard"), lake.storage), on_the_demo(reader, request):
        yield


Scenario = Callable[[Reader, pytest.FixtureRequest], AbstractContextManager[object]]
QUICK: Mapping[str, Scenario] = {"docs/report.md": on_a_plan, "docs/runbook.md": on_a_plan}
SCENARIOS: Mapping[str, Scenario] = {
    **QUICK,
    "README.md": of_readme,
    "docs/how-to/azure.md": of_azure,
    "docs/how-to/from-lakefs-gc.md": on_s3,
    "docs/how-to/gcs.md": of_gcs,
    "docs/how-to/inventory.md": of_inventory,
    "docs/how-to/quarantine.md": of_quarantine,
    "docs/how-to/s3.md": of_s3,
    "docs/retention.md": on_the_demo,
    "docs/tutorial.md": on_the_demo,
    "docs/uncommitted.md": of_a_staged_list,
}


@pytest.mark.long
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in SCENARIOS]
)
def test_the_commands_of_a_page_work_as_written(page: str, reader: Reader, request: pytest.FixtureRequest) -> None:
    with SCENARIOS[page](reader, request):
        reader.read(page)


def test_the_commands_of_every_page_are_tested() -> None:
    shown = {name_of(page) for page in PAGES if blocks_of(page, "sh")}
    assert SCENARIOS.keys() | OTHER_PAGES.keys() == shown
    assert not SCENARIOS.keys() & OTHER_PAGES.keys()


def test_every_command_on_the_list_of_untested_commands_is_in_the_docs() -> None:
    shown = {command for page in SCENARIOS for block in blocks_of(ROOT / page, "sh") for command in block.commands}
    assert NOT_TYPED.keys() <= shown
    assert not [command for command in shown if command.startswith("make ") and command not in NOT_TYPED]
