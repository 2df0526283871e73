"""The `retention` command, run in this process, and the configuration files it is run with."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml

from retention_assets.cli.main import main
from retention_assets.config.configuration import load_configuration
from retention_assets.demo.sample import place_sample
from retention_assets.state.approval import approved_terms, planned_terms
from retention_assets.tables import TABLES
from tests.outputs import checked
from tests.repositories import AS_OF, DATA, api, place_repository, policy_file

DAY = AS_OF.date().isoformat()
_OF_ICECHUNK = {"repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks"}
MADE_BY_A_PLAN = sorted(TABLES.keys() - {"deletion_report", "deletion_proof"} - _OF_ICECHUNK)  # of lakeFS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command left behind."""

    status: int
    out: str
    err: str
    command: str = ""

    def document(self) -> Any:
        """Return standard output, which must be one JSON document; of most commands, one that its schema describes."""
        return checked(self.command, json.loads(self.out))


def run(*arguments: str | Path) -> Answer:
    """Run `retention` with these arguments, called by that name, whether or not it is on the PATH."""
    called = ["retention", *map(str, arguments)]
    out, err = StringIO(), StringIO()
    status: int | str | None = 0
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", called):
        try:
            main(called[1:])
        except SystemExit as ended:
            status = ended.code
    assert isinstance(status, int)
    answer = Answer(status, out.getvalue(), err.getvalue(), _command(called[1:]))
    if "--json" in called and answer.out:
        answer.document()  # whatever the test asks of it, its schema holds
    return answer


def _command(arguments: Sequence[str]) -> str:
    """Return the name of a command, as the schemas of outputs have it."""
    named = list(arguments[2:] if arguments[:1] == ["--config"] else arguments)
    if named[0] != "icechunk":
        return named[0]
    return " ".join([named[0], *named[2 : 4 if named[2] in ("branch", "tag") else 3]])


@dataclass(slots=True)
class Place:
    """A directory with a configuration of one repository, `orchard`, whose settings may be changed."""

    directory: Path
    settings: Json
    spark: Json = field(default_factory=dict)
    name: str = "orchard"
    tables: str = "warehouse"  # the setting `warehouse`
    shared: bool = False  # the warehouse is used by a cluster whose processes all see this directory

    @property
    def file(self) -> Path:
        """The configuration file."""
        return self.directory / "retention.yaml"

    @property
    def warehouse(self) -> Path:
        """Where the tables are."""
        return self.directory / "warehouse"

    def write(self, **changes: Any) -> None:
        """Write the configuration with `changes` of the repository's settings; None takes one out."""
        self.settings = {key: value for key, value in {**self.settings, **changes}.items() if value is not None}
        document = {"warehouse": self.tables, "spark": self.spark, "repositories": {self.name: self.settings}}
        if self.shared:
            document["shared_warehouse"] = True
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def copy(self, directory: Path, **changes: Any) -> "Place":
        """Return a copy with `changes` of its settings; files keep their times, and the plan is one of the copy."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        made = replace(self, directory=directory)
        made.write(**changes)
        made.adopt()
        return made

    def adopt(self) -> None:
        """Let the plans and approvals of a copied warehouse be of this place and its settings, as if made here."""
        repository = load_configuration(self.file).repository(self.name)
        bound = self.warehouse / self.name / "place.json"
        if bound.is_file():
            place = {"namespace": repository.namespace, "storage": repository.storage}
            bound.write_text(json.dumps(place), encoding="utf-8")
        for pattern, terms in (("plans/*/*.json", planned_terms), ("approvals/*.json", approved_terms)):
            for file in (self.warehouse / self.name).glob(pattern):
                document = json.loads(file.read_text(encoding="utf-8"))
                adopted = {**document, "terms": dict(terms(repository))}
                file.write_text(json.dumps(adopted), encoding="utf-8")

    def run(self, command: str, *arguments: str | Path) -> Answer:
        """Run a command on this repository as of the day that every expected file counts from."""
        return run("--config", self.file, command, self.name, *arguments, "--as-of", DAY)

    def plan(self) -> str:
        """Plan, and return the plan's hash."""
        answer = self.run("plan", "--json")
        assert answer.status == 0, answer.err
        return str(answer.document()["plan_hash"])

    def rows(self, table: str) -> list[Json]:
        """Return the rows of a table as `show` prints them."""
        answer = self.run("show", table, "--json")
        assert answer.status == 0, answer.err
        rows: list[Json] = answer.document()
        return rows


def staged_folder(name: str = "orchard") -> str:
    """Return where the repository's own list of staged objects lies, relative to its namespace."""
    return f"_lakefs/retention/gc/uncommitted/{api(name)['prepare_uncommitted'][0]['run_id']}/uncommitted/"


def orchard(directory: Path, storage: str, options: Mapping[str, Any] | None = None) -> Place:
    """Return a place that plans orchard at `storage`, from its dump, by the retention rules, tags ignored."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "dump.json").write_text(json.dumps(api("orchard")["refs_dump"]), encoding="utf-8")
    (directory / "gc_rules.json").write_bytes(policy_file("orchard", "gc_rules.json").read_bytes())
    place = Place(
        directory,
        {
            "kind": "lakefs",
            "settle": "0s",
            "namespace": "s3://lake/orchard",
            "storage": storage,
            "storage_options": dict(options or {}),
            "source": {"dump": "dump.json", "dump_age": "3650d"},
            "staged": staged_folder(),
            "policy": ["gc_rules.json"],
            "tags": "ignore",
        },
    )
    place.write()
    return place


def orchard_on_disk(directory: Path) -> Place:
    """Return a place whose storage is a copy of orchard beside its configuration."""
    place_repository("orchard", directory / "lake")
    return orchard(directory, "lake")


def demo_on_disk(directory: Path) -> Path:
    """Lay out the demo of orchard below `directory`, as `make demo` does in a checkout, and return `directory`."""
    samples = Path(__file__).parents[2] / "demo"
    for name in ("retention.yaml", "gc_rules.json", "lifecycle.yaml", "field.yaml", "refs_dump.json"):
        (directory / "demo").mkdir(exist_ok=True)
        shutil.copy(samples / name, directory / "demo")
    place_sample(samples / "orchard", directory / ".demo/orchard/namespace")
    return directory


def files_below(directory: Path) -> dict[str, tuple[int, float]]:
    """Return size and time of every file, by its path."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime)
        for path in directory.rglob("*")
        if path.is_file()
    }


def sample(address: str) -> bytes:
    """Return the bytes of an object of orchard as the sample has them."""
    return (DATA / "orchard" / "namespace" / address).read_bytes()


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for as long as the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
