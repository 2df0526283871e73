"""Runs the `retention` command in this process, and writes projects (`retention.yaml` and its files) for it."""

import json
import re
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
from tests.saved_repositories import AS_OF, DATA, api, copy_saved_repository, policy_file

DAY = AS_OF.date().isoformat()
_OF_ICECHUNK = {"repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks"}
MADE_BY_A_PLAN = sorted(TABLES.keys() - {"deletion_report", "deletion_proof"} - _OF_ICECHUNK)  # of lakeFS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The exit status and the output of a command. `err`: `printed_err`, without `--config` in commands of errors."""

    status: int
    out: str
    printed_err: str
    command: str = ""

    @property
    def err(self) -> str:
        return re.sub(r"`retention --config ('[^']*'|\S+) ", "`retention ", self.printed_err)

    def document(self) -> Any:
        """Return the JSON document on standard output. Most commands have a schema, and the document must match it."""
        return checked(self.command, json.loads(self.out))


def run(*arguments: str | Path) -> Answer:
    """Run `retention` with these arguments, also if it is not on the PATH."""
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
        answer.document()  # every JSON output must match its schema
    return answer


def _command(arguments: Sequence[str]) -> str:
    """Return the name of a command, as in the schemas of outputs."""
    named = list(arguments[2:] if arguments[:1] == ["--config"] else arguments)
    if named[0] != "icechunk":
        return named[0]
    return " ".join([named[0], *named[2 : 4 if named[2] in ("branch", "tag") else 3]])


@dataclass(slots=True)
class Project:
    """A directory with a `retention.yaml` of one repository and its warehouse. Tests may change the settings."""

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
        """The directory of the tables."""
        return self.directory / "warehouse"

    def write(self, **changes: Any) -> None:
        """Write the configuration with `changes` of the repository's settings. None removes a setting."""
        self.settings = {key: value for key, value in {**self.settings, **changes}.items() if value is not None}
        document = {"warehouse": self.tables, "spark": self.spark, "repositories": {self.name: self.settings}}
        if self.shared:
            document["shared_warehouse"] = True
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")

    def copy(self, directory: Path, **changes: Any) -> "Project":
        """Return a copy with `changes` of its settings. Files keep their times, and plans count as made in the copy."""
        shutil.copytree(self.directory, directory, dirs_exist_ok=True)
        made = replace(self, directory=directory)
        made.write(**changes)
        made.adopt()
        return made

    def adopt(self) -> None:
        """Let the plans and approvals of a copied warehouse count as made in this project with its settings."""
        repository = load_configuration(self.file).repository(self.name)
        bound = self.warehouse / self.name / "place.json"
        if bound.is_file():
            project = {"namespace": repository.namespace, "storage": repository.storage}
            bound.write_text(json.dumps(project), encoding="utf-8")
        for pattern, terms in (("plans/*/*.json", planned_terms), ("approvals/*.json", approved_terms)):
            for file in (self.warehouse / self.name).glob(pattern):
                document = json.loads(file.read_text(encoding="utf-8"))
                adopted = {**document, "terms": dict(terms(repository))}
                file.write_text(json.dumps(adopted), encoding="utf-8")

    def run(self, command: str, *arguments: str | Path) -> Answer:
        """Run a command on this repository, with `--as-of` the day of the expected files."""
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
    """Return the path of the repository's list of staged objects, relative to its namespace."""
    return f"_lakefs/retention/gc/uncommitted/{api(name)['prepare_uncommitted'][0]['run_id']}/uncommitted/"


def orchard(directory: Path, storage: str, options: Mapping[str, Any] | None = None) -> Project:
    """Return a project for orchard at `storage`, with references from its dump, retention rules, and ignored tags."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "dump.json").write_text(json.dumps(api("orchard")["refs_dump"]), encoding="utf-8")
    (directory / "gc_rules.json").write_bytes(policy_file("orchard", "gc_rules.json").read_bytes())
    project = Project(
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
    project.write()
    return project


def orchard_on_disk(directory: Path) -> Project:
    """Return a project for a copy of orchard next to its configuration."""
    copy_saved_repository("orchard", directory / "lake")
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
    """Return size and modification time of every file, by path."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime)
        for path in directory.rglob("*")
        if path.is_file()
    }


def sample(address: str) -> bytes:
    """Return the content of an object of orchard."""
    return (DATA / "orchard" / "namespace" / address).read_bytes()


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set variables for as long as the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield
