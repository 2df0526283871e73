"""Icechunk repositories with a configuration and a warehouse, and the arrays that users read in them."""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml
import zarr
from zarr.errors import ArrayNotFoundError

from tests.end_to_end.command import Project
from tests.icechunk_repositories import Commit, Format, build_history, open_repository, set_stored_at
from tests.saved_repositories import AS_OF

STORED = AS_OF - timedelta(days=90)  # when the store got every file, unless a test says otherwise
KEEP = timedelta(days=60)
POLICY = {"snapshots": {"default": {"keep_newer": "60d"}, "delete_expired_branches": True}}
GARBAGE = "chunks/ZZZZZZZZZZZZZZZZZZZG"  # of a write session that never committed
FOREIGN = "chunks/notes.txt"


def ago(days: float) -> datetime:
    """Return the time so many days before the day of the plan."""
    return AS_OF - timedelta(days=days)


@dataclass(frozen=True)
class IcechunkProject:
    """A project whose Icechunk repository is in `repository`. `ids`: its snapshots by commit name."""

    project: Project
    format: Format
    ids: Mapping[str, str]

    @property
    def directory(self) -> Path:
        return self.project.directory / "repository"

    def files(self, *directories: str) -> set[str]:
        """Return the paths of the files below these directories, by default of all files."""
        found = {path.relative_to(self.directory).as_posix() for path in self.directory.rglob("*") if path.is_file()}
        return {path for path in found if not directories or path.partition("/")[0] in directories}

    def copy(self, directory: Path) -> "IcechunkProject":
        """Return a copy in another directory. Files keep their times."""
        shutil.copytree(self.project.directory, directory, dirs_exist_ok=True)
        return IcechunkProject(
            Project(directory, dict(self.project.settings), name=self.project.name), self.format, self.ids
        )


def icechunk_project(
    directory: Path,
    spec_version: Format,
    commits: Sequence[Commit],
    branches: Mapping[str, str | None],
    tags: Mapping[str, str | None] | None = None,
    **settings: object,
) -> IcechunkProject:
    """Write a repository with this history and only old files, including garbage and a foreign file."""
    ids = build_history(directory / "repository", spec_version, commits, branches, tags)
    for path in (GARBAGE, FOREIGN):
        (directory / "repository" / path).write_bytes(b"nobody's")
    set_stored_at(directory / "repository", STORED)
    (directory / "policy.yaml").write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    entry = {"kind": "icechunk", "storage": "repository", "policy": "policy.yaml", "mode": "delete", **settings}
    project = Project(directory, entry, name="field")
    project.write()
    return IcechunkProject(project, spec_version, ids)


def reachable_arrays(directory: Path) -> dict[str, npt.NDArray[np.int32]]:
    """Return the array of each snapshot that a branch or tag reaches, by snapshot id."""
    repository = open_repository(directory)
    heads = [{"branch": name} for name in repository.list_branches()] + [
        {"tag": name} for name in repository.list_tags()
    ]
    found = {one.id for head in heads for one in repository.ancestry(**head)}
    return {one: array_of(directory, one) for one in found}


def array_of(directory: Path, snapshot: str) -> npt.NDArray[np.int32]:
    """Return the values of the snapshot's array; empty if it has none."""
    session = open_repository(directory).readonly_session(snapshot_id=snapshot)
    try:
        return np.asarray(zarr.open_array(session.store, path="a", mode="r")[:])
    except ArrayNotFoundError:
        return np.empty(0, np.int32)


def commit_again(directory: Path) -> str:
    """Commit to `main`, read the commit, and return the new snapshot."""
    session = open_repository(directory).writable_session("main")
    zarr.create_array(session.store, name="again", shape=(2,), chunks=(1,), dtype="i4")[:] = 7
    snapshot = session.commit("again")
    again = open_repository(directory).readonly_session("main")
    assert list(zarr.open_array(again.store, path="again", mode="r")[:]) == [7, 7]
    return snapshot


def random_history(seed: int) -> tuple[list[Commit], dict[str, str | None], dict[str, str | None]]:
    """Return random commits, mostly in a line, with ages around the retention, and random branches and tags."""
    dice = random.Random(seed)
    commits: list[Commit] = []
    for number in range(dice.randint(4, 9)):
        earlier = [one.name for one in commits]
        parent = dice.choice([earlier[-1], earlier[-1], *earlier, None]) if earlier else None
        commits.append(Commit(f"c{number}", parent, ago(110 - 11 * number)))
    names = [None, *(one.name for one in commits)]
    branches = {name: dice.choice(names) for name in ("main", "dev", "exp") if name == "main" or dice.random() < 0.6}
    tags = {name: dice.choice(names) for name in ("v1", "v2") if dice.random() < 0.6}
    return commits, branches, tags


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)
