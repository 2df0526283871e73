"""Runs the `retention` command on repositories of a real server, in this process and by the server's moved clock."""

import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from retention_assets import cli
from retention_assets.cli import runs
from retention_assets.config.configuration import Configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.definitions import build_definitions
from tests.clocks import GivenClock
from tests.conftest import forget_caches
from tests.end_to_end.command import Answer, Json, environment, run
from tests.real_lakefs.client import ACCESS_KEY, SECRET_KEY
from tests.real_lakefs.clock import MovedClock
from tests.real_lakefs.repository import Repository

DEFAULT_POLICY: Json = {"default_retention_days": 7, "branches": []}
_SECRETS = {"LAKEFS_SECRET": SECRET_KEY}


@contextmanager
def _in_memory(_: Configuration) -> Iterator[tuple[dg.DagsterInstance, str]]:
    """Record runs in memory, since files take a quarter of the time of a small plan."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance, "the UI"


@contextmanager
def by_the_clock(clock: MovedClock) -> Iterator[None]:
    """Let the `retention` command run in this process read `clock`, for as long as the block lasts."""
    modules = [importlib.import_module(name) for _, name, _ in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}.")]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if getattr(module, "utc_now", None) is utc_now:
                patch.setattr(module, "utc_now", clock)
            if hasattr(module, "build_definitions"):
                patch.setattr(module, "build_definitions", partial(build_definitions, clock=GivenClock(clock)))
        patch.setattr(runs, "_instance", _in_memory)
        yield


class Retention:
    """A retention.yaml of one or several repositories, and the commands on it, by default on the first repository.

    `settings` are those of every repository. `policy` is a document of lakeFS or of this project. The default settings
    allow plans that are live again and live sets that shrink, since the repositories are small. `through`: the URL of
    a proxy before the server.
    """

    def __init__(
        self,
        directory: Path,
        *repositories: Repository,
        policy: Json | None = None,
        through: str | None = None,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.through = through
        self.repositories = repositories
        self.policy = policy or DEFAULT_POLICY

        self.settings: Json = {
            "policy": ["policy.json"],
            "mode": "delete",
            "guards": {"max_live_shrink": 1.0, "max_clock_skew": None},
            "approval": {"max_revived": 1.0},
            "sweep": {"single_machine": True},
            **settings,
        }
        self.answers: list[Answer] = []
        self.write()

    @property
    def clock(self) -> MovedClock:
        """The server's clock, by which every command counts."""
        return self.repositories[0].server.clock

    @property
    def day(self) -> str:
        """The clock's day, for `--as-of`."""
        return self.clock().date().isoformat()

    def write(self, policy: Json | None = None, **changes: Any) -> None:
        """Write retention.yaml and the policy, with changes of the settings. None removes a setting."""
        self.policy = policy or self.policy
        self.settings = {name: value for name, value in {**self.settings, **changes}.items() if value is not None}
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "policy.json").write_text(json.dumps(self.policy), encoding="utf-8")
        entries = {name_of(repository): self._entry(repository) for repository in self.repositories}
        document = {"warehouse": "warehouse", "repositories": entries}
        (self.directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def _entry(self, repository: Repository) -> Mapping[str, Any]:
        api = {
            "url": self.through or repository.server.url,
            "access_key": ACCESS_KEY,
            "secret_key": {"env": "LAKEFS_SECRET"},
            "repository": repository.name,
        }
        place = {"kind": "lakefs", "namespace": repository.namespace, "source": {"api": api}}
        return {**place, **repository.server.store.settings(repository.folder), **self.settings}

    def run(self, command: str, *arguments: str | Path, of: Repository | None = None, day: str | None = "") -> Answer:
        """Run a command on a repository. `day`: for `--as-of`, by default the clock's day; None: without the option."""
        repository = of or self.repositories[0]
        options = [] if day is None else ["--as-of", day or self.day]
        with by_the_clock(self.clock), environment(LAKE_SECRET="testing", **_SECRETS):
            file = self.directory / "retention.yaml"
            answer = run("--config", file, command, name_of(repository), *arguments, *options)
        forget_caches()
        self.answers.append(answer)
        return answer

    def plan(self, *, of: Repository | None = None) -> Json:
        """Age the objects, plan as of the clock's day, and return the plan. Fails if a guard refuses."""
        (of or self.repositories[0]).age_objects()
        document: Json = _done(self.run("plan", "--json", of=of)).document()
        return document

    def approve(self, plan: Json, *, of: Repository | None = None) -> Answer:
        """Approve a plan by its hash."""
        return _done(self.run("approve", plan["plan_hash"], of=of, day=plan["day"]))

    def sweep(self, plan: Json | None = None, *, of: Repository | None = None) -> Answer:
        """Sweep a plan, by default that of the clock's day. Fails if the sweep is refused."""
        return _done(self.run("sweep", of=of, day=plan["day"] if plan else ""))

    def plan_and_sweep(self, *, of: Repository | None = None) -> list[Json]:
        """Plan, approve and sweep; return the candidates."""
        plan = self.plan(of=of)
        self.approve(plan, of=of)
        self.sweep(plan, of=of)
        return self.candidates(plan, of=of)

    def verify(self, *, of: Repository | None = None) -> Answer:
        """Run `verify` and return its answer."""
        return self.run("verify", of=of)

    def purge(self, *, of: Repository | None = None) -> Answer:
        """Purge the due objects, if there are any."""
        shown = _done(self.run("purge", of=of, day=None))
        words = " ".join(shown.out.split()).split()
        if "--approve" not in words:
            return shown
        return _done(self.run("purge", "--approve", words[words.index("--approve") + 1], of=of, day=None))

    def rows(self, table: str, plan: Json | None = None, *, of: Repository | None = None) -> list[Json]:
        """Return the rows of a table of the plan's day, by default the clock's, as `show` prints them."""
        answer = _done(self.run("show", table, "--format", "json", of=of, day=plan["day"] if plan else ""))
        rows: list[Json] = answer.document()
        return rows

    def candidates(self, plan: Json | None = None, *, of: Repository | None = None) -> list[Json]:
        """Return the candidates of a plan, by default of the clock's day."""
        return self.rows("deletion_candidates", plan, of=of)

    def warehouse(self, *, of: Repository | None = None) -> Path:
        """Return where a repository's tables, ledgers and records are."""
        return self.directory / "warehouse" / name_of(of or self.repositories[0])


def name_of(repository: Repository) -> str:
    """Return a repository's name in retention.yaml."""
    return repository.name.replace("-", "_")


def _done(answer: Answer) -> Answer:
    assert answer.status == 0, f"{answer.out}\n{answer.err}"
    return answer
