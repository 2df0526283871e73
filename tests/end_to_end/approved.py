"""Orchard in S3 with its server, planned and approved once. Each test sweeps its own copy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.end_to_end.command import Answer, Json, Project, environment, orchard, run
from tests.end_to_end.s3_server import REGION, Lake
from tests.lakefs.source.fake_lakefs_repository import Repository, saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, FakeLakeFSServer, serving
from tests.saved_repositories import api, objects_by_commit

NAMESPACE = "s3://lake/orchard/"
SINGLE_MACHINE = {"single_machine": True}  # the warehouse is on this machine, the lake in a bucket
_SECRETS = {"LAKE_SECRET": "a-secret", "LAKEFS_SECRET": SECRET_KEY}


@dataclass(frozen=True, slots=True)
class Approved:
    """A project with an approved plan. Tests must copy it before they change it."""

    project: Project
    plan_hash: str
    candidates: Mapping[str, Json]  # by address


@dataclass(frozen=True, slots=True)
class World:
    """A copy of the approved project with its own store and server."""

    lake: Lake
    server: FakeLakeFSServer
    repository: Repository  # of the server
    project: Project
    plan_hash: str
    candidates: Mapping[str, Json]

    @property
    def planned(self) -> set[str]:
        """The addresses of the candidates."""
        return set(self.candidates)

    def ledger(self) -> dict[str, Json]:
        """Return the report of the last sweep by address. Fails if an address is duplicated."""
        rows = self.project.rows("deletion_report")
        ledger = {row["address"]: row for row in rows}
        assert len(ledger) == len(rows)
        return ledger

    def outcomes(self) -> dict[str, set[str]]:
        """Return the addresses of each outcome of the last sweep's report."""
        by_outcome: dict[str, set[str]] = {}
        for address, row in self.ledger().items():
            by_outcome.setdefault(row["outcome"], set()).add(address)
        return by_outcome

    def command(self, name: str, *arguments: str) -> Answer:
        """Run a command that has no option `--as-of`."""
        return run("--config", self.project.file, name, "orchard", *arguments)

    def records(self) -> list[Path]:
        """Return the files of the records, in their order."""
        return sorted((self.project.warehouse / "orchard" / "records").iterdir())


def repository() -> Repository:
    """Return orchard without its tag, so that a test can create one. A plan has 59 candidates."""
    made = saved("orchard")
    made.tags.clear()
    return made


def approve_orchard(directory: Path, lake: Lake) -> Approved:
    """Plan the lake by its server, tags protected, and approve the plan."""
    with serving(repository()) as server, environment(**_SECRETS):
        project = orchard(directory, lake.storage, options(lake.server.endpoint))
        project.write(source=source(server), staged=None, tags="protect", mode="delete", sweep=SINGLE_MACHINE)
        plan_hash = project.plan()
        assert project.run("approve", plan_hash).status == 0
        return Approved(project, plan_hash, {row["address"]: row for row in project.rows("deletion_candidates")})


@contextmanager
def copied(approved: Approved, directory: Path, lake: Lake, endpoint: str = "", **settings: Any) -> Iterator[World]:
    """Yield a copy with the store `lake` behind `endpoint`, and a server, for as long as the block lasts."""
    made = repository()
    with serving(made) as server, environment(**_SECRETS):
        project = copy_of_project(approved.project, directory, lake, endpoint, source=source(server), **settings)
        yield World(lake, server, made, project, approved.plan_hash, approved.candidates)


def copy_of_project(project: Project, directory: Path, lake: Lake, endpoint: str = "", **settings: Any) -> Project:
    """Return a copy of a project and its tables, with `lake` as its store."""
    reached = options(endpoint or lake.server.endpoint)
    return project.copy(directory, storage=lake.storage, storage_options=reached, **settings)


def options(endpoint: str, **changes: str) -> Json:
    """Return the storage options for a server."""
    secret = {"env": "LAKE_SECRET"}
    return {"endpoint": endpoint, "region": REGION, "access_key_id": "a-key", "secret_access_key": secret, **changes}


def source(server: FakeLakeFSServer) -> Json:
    """Return the settings of a source that asks `server`."""
    return {"api": {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "LAKEFS_SECRET"}}}


def commit(message: str) -> str:
    """Return the id of orchard's commit of this message."""
    (found,) = [one["id"] for one in api("orchard")["commits"] if one["message"] == message]
    return str(found)


def held_by(commit_id: str) -> set[str]:
    """Return the addresses in a commit."""
    rows = objects_by_commit("orchard").to_pylist()
    return {row["physical_address"].removeprefix(NAMESPACE) for row in rows if row["commit_id"] == commit_id}


def staged_list(*addresses: str) -> bytes:
    """Return another file of a list of staged objects, as the server writes it."""
    columns = {"physical_address": list(addresses), "creation_date": [int(datetime.now(UTC).timestamp())]}
    file = BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()
