"""Makes a small sample Icechunk repository with icechunk: one field, overwritten every week.

Icechunk gives every snapshot the current time, so this module writes earlier times into the repository afterwards. Each
run makes the same arrays and history, but different ids and different bytes in the compressed files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retention_assets.demo.sample import replaced
from retention_assets.errors import StoreError
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import MAIN
from retention_assets.icechunk.formats.paths import REPO
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo

NEEDED = ("icechunk", "zarr")
_FIRST = datetime(2026, 5, 3, 6, tzinfo=UTC)
_WEEKS = 26
_SHAPE, _CHUNK = (48, 72), (24, 36)
_BRANCH_WEEK, _TAG_WEEK = 8, 9


def can_make_field() -> bool:
    """Return whether the packages that make the sample (`NEEDED`) are installed."""
    return all(find_spec(name) for name in NEEDED)


def make_field(target: Path) -> None:
    """Make the sample at `target`. An Icechunk repository of format 2 that is already there stays unchanged.

    `main` has one snapshot a week from 3 May 2026. The tag `summer` names a snapshot of July. The branch
    `recalibration` begins in June and ends in July. One write session was never committed.
    Errors: StoreError when `target` has other files, or is a file; ConfigurationError when the folder of `target`
    cannot be written.
    """
    if (target / REPO).is_file():
        return
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(
            f"{target}: exists and is not an Icechunk repository of format 2. Nothing was written. Empty or remove it."
        )
    with replaced(target) as fresh:
        _Field(fresh).make()


class _Field:
    """The repository under construction, and the day of each snapshot so far."""

    def __init__(self, directory: Path) -> None:
        import icechunk  # imported here: it takes half a second and is not always installed

        icechunk.set_logs_filter("error")  # otherwise icechunk warns about concurrent commits to local files
        config = icechunk.RepositoryConfig.default()
        config.inline_chunk_threshold_bytes = 0
        storage = icechunk.local_filesystem_storage(str(directory))
        self._directory = directory
        self._days: dict[str, datetime] = {}
        with self._written_at(_FIRST - timedelta(days=1)):
            self._repository: Any = icechunk.Repository.create(storage, config=config)
        self._days[self._repository.lookup_branch(MAIN)] = _FIRST - timedelta(days=1)

    def make(self) -> None:
        for week in range(_WEEKS):
            day = _FIRST + timedelta(weeks=week)
            tip = self._commit(MAIN, week, day)
            if week == _TAG_WEEK:
                self._repository.create_tag("summer", tip)
            if week == _BRANCH_WEEK:
                self._repository.create_branch("recalibration", tip)
                for again in range(3):
                    self._commit("recalibration", 100 + again, day + timedelta(days=1 + again))
        with self._written_at(_FIRST + timedelta(weeks=_WEEKS - 2)):
            self._write(self._repository.writable_session(MAIN), 200)  # this session is never committed
        self._set_days()

    def _commit(self, branch: str, number: int, day: datetime) -> str:
        with self._written_at(day):
            session = self._repository.writable_session(branch)
            self._write(session, number)
            snapshot: str = session.commit(f"{branch}, {day:%d %B}")
        self._days[snapshot] = day
        return snapshot

    def _write(self, session: Any, number: int) -> None:
        import numpy as np
        import zarr

        if not self._days.keys() - {session.snapshot_id}:
            array = zarr.create_array(session.store, name="field", shape=_SHAPE, chunks=_CHUNK, dtype="f4")
        else:
            array = zarr.open_array(session.store, path="field", mode="r+")
        rows, columns = np.indices(_SHAPE)
        array[:] = 280 + 10 * np.sin(rows / 9 + number) * np.cos(columns / 7 - number / 3)

    @contextmanager
    def _written_at(self, day: datetime) -> Iterator[None]:
        """Set the modification time of every file that is written inside the context to `day`."""
        before = set(self._directory.rglob("*"))
        yield
        for path in set(self._directory.rglob("*")) - before:
            if path.is_file():
                os.utime(path, (day.timestamp(), day.timestamp()))

    def _set_days(self) -> None:
        """Write the day of each snapshot into the repo object and its ops log: plans count ages from these times.

        The creation of a branch or tag gets the time of the snapshot that was written before it.
        """
        path = self._directory / REPO
        repo = read_repo(path.read_bytes(), str(path))
        times = {decode_id(name): int(day.timestamp()) * 10**6 for name, day in self._days.items()}
        assert times.keys() == repo.snapshots.keys(), [encode_id(one) for one in repo.snapshots.keys() ^ times.keys()]
        snapshots = {one: replace(snapshot, flushed_at=times[one]) for one, snapshot in repo.snapshots.items()}
        updates, at = [], min(times.values())
        for update in reversed(repo.latest_updates):  # the oldest first
            at = times.get(update.new_snapshot_id or b"", at)
            updates.append(replace(update, updated_at=at))
        path.write_bytes(write_repo(replace(repo, snapshots=snapshots, latest_updates=(*reversed(updates),))))
