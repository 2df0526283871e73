"""A repository on disk with a random history: icechunk runs random operations, then the files get other times.

The operations are: commits; arrays that grow, are rewritten or deleted; branches and tags that are created, moved or
deleted; amended and detached snapshots; a session rebased on another commit; sessions that never commit.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import icechunk as ic
import numpy as np
import zarr

from tests.icechunk_repositories import (
    INITIAL,
    Format,
    create_repository,
    open_repository,
    set_flushed_at,
    set_stored_at,
    set_updated_at,
)

START = datetime(2025, 1, 1, tzinfo=UTC)
STORED = START + timedelta(days=400)  # the store's time of all files except those of open sessions
_CHUNK, _LONGEST = 2, 12


@dataclass
class RandomHistory:
    """A repository that grows by random steps. `open_sessions` have written chunks without references."""

    directory: Path
    spec_version: Format
    random: Random
    repository: ic.Repository = field(init=False)
    made: list[str] = field(default_factory=lambda: [INITIAL])  # snapshots, each after its parent
    open_sessions: list[ic.Session] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.repository = create_repository(self.directory, self.spec_version)
        self._commit("main")

    def take_steps(self, steps: int) -> None:
        """Run so many steps, then set times: an hour to three days between a snapshot and the next."""
        kinds = [self._commit_anywhere] * 6 + [self._branch, self._drop_branch, self._reset, self._tag, self._drop_tag]
        kinds += [self._rebase, self._rebase]
        if self.spec_version == 2:
            kinds += [self._amend, self._detach]
        for _ in range(steps):
            self.random.choice(kinds)()
        times, at = {}, START
        for snapshot in self.made:
            times[snapshot] = at
            at += timedelta(hours=self.random.randint(1, 72))
        set_flushed_at(self.directory, times)
        self.latest = at
        set_updated_at(self.directory, STORED)
        set_stored_at(self.directory, STORED)

    def leave_sessions_open(self) -> None:
        """Write chunks in sessions that stay open. The chunks have the current time in the store."""
        repository = open_repository(self.directory)
        for branch in self.random.sample(sorted(repository.list_branches()), 1):
            session = repository.writable_session(branch)
            self._change(session)
            self.open_sessions.append(session)

    def _commit_anywhere(self) -> None:
        self._commit(self._any_branch())

    def _commit(self, branch: str) -> None:
        session = self.repository.writable_session(branch)
        self._change(session)
        self.made.append(session.commit(f"{len(self.made)}"))

    def _change(self, session: ic.Session) -> None:
        group = zarr.open_group(session.store, mode="a")
        name = self.random.choice("abc")
        plain: dict[str, Any] = {"chunks": (_CHUNK,), "dtype": "i4", "compressors": None, "filters": None}
        if name not in group:
            group.create_array(name, shape=(_CHUNK,), **plain)[:] = self._number()
            return
        array: Any = group[name]
        length = array.shape[0]
        what = self.random.choice(("rewrite", "rewrite", "grow", "delete"))
        if what == "grow" and length < _LONGEST:
            array.resize((length + _CHUNK,))
            array[length:] = self._number()
        elif what == "delete":
            del group[name]
        else:
            place = self.random.randrange(0, length, _CHUNK)
            array[place : place + _CHUNK] = self._number()

    def _number(self) -> int:
        return self.random.randint(1, 2**31 - 1)

    def _any_branch(self) -> str:
        return self.random.choice(sorted(self.repository.list_branches()))

    def _branch(self) -> None:
        self.repository.create_branch(f"branch-{self._number()}", self.random.choice(self._known()))

    def _known(self) -> list[str]:
        """Return the snapshots that a branch or tag reaches. icechunk lists no others."""
        heads = [{"branch": name} for name in sorted(self.repository.list_branches())]
        heads += [{"tag": name} for name in sorted(self.repository.list_tags())]
        return sorted({one.id for head in heads for one in self.repository.ancestry(**head)})

    def _drop_branch(self) -> None:
        others = sorted(self.repository.list_branches() - {"main"})
        if others:
            self.repository.delete_branch(self.random.choice(others))

    def _reset(self) -> None:
        self.repository.reset_branch(self._any_branch(), self.random.choice(self._known()))

    def _tag(self) -> None:
        self.repository.create_tag(f"tag-{self._number()}", self.random.choice(self._known()))

    def _drop_tag(self) -> None:
        tags = sorted(self.repository.list_tags())
        if tags:
            self.repository.delete_tag(self.random.choice(tags))

    def _rebase(self) -> None:
        """Two sessions from one snapshot write arrays of their own; the later one is rebased on the earlier."""
        branch = self._any_branch()
        if self.repository.lookup_branch(branch) == INITIAL:
            self._commit(branch)
        first, second = (self.repository.writable_session(branch) for _ in range(2))
        for session in (first, second):
            number = self._number()
            zarr.create_array(session.store, name=f"own-{number}", shape=(1,), chunks=(1,), dtype="i4")[:] = number
        self.made.append(first.commit(f"{len(self.made)}"))
        second.rebase(ic.BasicConflictSolver())
        self.made.append(second.commit(f"{len(self.made)}"))

    def _amend(self) -> None:
        branch = self._any_branch()
        if self.repository.lookup_branch(branch) == INITIAL:
            return
        session = self.repository.writable_session(branch)
        self._change(session)
        self.made.append(session.amend(f"{len(self.made)}"))

    def _detach(self) -> None:
        session = self.repository.writable_session(self._any_branch())
        self._change(session)
        self.made.append(session.flush(f"{len(self.made)}"))


def lines(repository: ic.Repository) -> dict[str, list[str]]:
    """Return the ancestry of each reference, newest first."""
    heads: dict[str, dict[str, str]] = {f"branch {name}": {"branch": name} for name in repository.list_branches()}
    heads |= {f"tag {name}": {"tag": name} for name in repository.list_tags()}
    return {name: [one.id for one in repository.ancestry(**head)] for name, head in sorted(heads.items())}


def arrays(repository: ic.Repository, snapshots: set[str]) -> dict[tuple[str, str], list[int]]:
    """Return every array of these snapshots, read by zarr."""
    found = {}
    for snapshot in sorted(snapshots - {INITIAL}):  # which has nothing, not even a group
        group = zarr.open_group(repository.readonly_session(snapshot_id=snapshot).store, mode="r")
        for name, array in group.arrays():
            found[snapshot, name] = np.asarray(array[:]).tolist()
    return found


def files(directory: Path) -> set[str]:
    """Return the files of the directories that a garbage collection covers."""
    kinds = ("snapshots", "transactions", "manifests", "chunks")
    return {path.relative_to(directory).as_posix() for kind in kinds for path in directory.glob(f"{kind}/*")}
