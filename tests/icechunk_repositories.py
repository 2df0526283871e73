"""Writes Icechunk repositories for tests into a directory by icechunk itself, in either format.

`build_history` writes a given history, `build_varied` a repository with everything that its files can contain.
icechunk always uses the current time. `set_flushed_at` and `set_updated_at` change times in the files, `set_stored_at`
the times of the files.
Open a repository again after that, since an instance caches what it has read.
"""

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import icechunk as ic
import numpy as np
import pyarrow as pa
import zarr
from flatbuffers.table import Table

ic.set_logs_filter("error")  # otherwise each repository on local files warns about concurrent commits

type Format = Literal[1, 2]
FORMATS: tuple[Format, ...] = (1, 2)
INITIAL = "1CECHNKREP0F1RSTCMT0"  # the root that icechunk makes
INITIAL_SNAPSHOT = bytes.fromhex("0b1cc8d6787580f0e33a6534")  # the same as bytes
HEADER = 39  # bytes before the compressed part of a metadata file

BUCKET = "s3://elsewhere/"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot to be written, with the commit `parent` or the repository's root as its parent."""

    name: str
    parent: str | None = None
    flushed_at: datetime | None = None  # None: as icechunk's clock has it


def create_repository(directory: Path, spec_version: Format = 2, **settings: Any) -> ic.Repository:
    """Make an empty repository; `settings` are attributes of icechunk's `RepositoryConfig`.

    Chunks get objects of their own, however small, unless `inline_chunk_threshold_bytes` says otherwise.
    """
    config = _configuration(**{"inline_chunk_threshold_bytes": 0, **settings})
    return ic.Repository.create(_storage(directory), config=config, spec_version=spec_version)


def open_repository(directory: Path) -> ic.Repository:
    """Open a repository again, so that it sees changes in its files."""
    return ic.Repository.open(_storage(directory))


def build_history(
    directory: Path,
    spec_version: Format,
    commits: Sequence[Commit],
    branches: Mapping[str, str | None],
    tags: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """Write a repository with this history and return the snapshots' ids by commit name.

    Each commit writes its own chunk, so that it has its own manifest and transaction log.

    Args:
        directory: the directory of the repository; it is created.
        spec_version: the format of the repository.
        commits: parents before their children. With times, the root is a day older than the oldest commit, and the ops
            log of format 2 is not newer than this commit.
        branches: the commit of each branch, None for the root. `main` stays at the root unless it is named here.
        tags: the commit of each tag.
    """
    repository = create_repository(directory, spec_version)
    ids: dict[str | None, str] = {None: INITIAL}
    for number, commit in enumerate(commits):
        repository.create_branch("being-made", ids[commit.parent])
        session = repository.writable_session("being-made")
        _write_chunk(session, number, first=commit.parent is None)
        ids[commit.name] = session.commit(commit.name)
        repository.delete_branch("being-made")
    for name, commit_name in branches.items():
        if name == "main":
            repository.reset_branch(name, ids[commit_name])
        else:
            repository.create_branch(name, ids[commit_name])
    for name, commit_name in (tags or {}).items():
        repository.create_tag(name, ids[commit_name])
    times = {ids[commit.name]: commit.flushed_at for commit in commits if commit.flushed_at is not None}
    if times:  # icechunk panics on a root that is younger than its descendants
        set_flushed_at(directory, {INITIAL: min(times.values()) - timedelta(days=1), **times})
        set_updated_at(directory, min(times.values()))
    return {name: its_id for name, its_id in ids.items() if name is not None}


def _write_chunk(session: ic.Session, number: int, *, first: bool) -> None:
    if first:
        array = zarr.create_array(session.store, name="a", shape=(64,), chunks=(1,), dtype="i4", compressors=None)
    else:
        array = zarr.open_array(session.store, path="a", mode="r+")
    array[number % 64] = number + 1


def build_varied(directory: Path, spec_version: Format) -> ic.Repository:
    """Write a repository with groups, arrays, all kinds of chunks, metadata, branches, tags and deleted ones.

    In format 2 it also has an amended and a detached snapshot, expired history whose transaction logs remain, flags,
    repository metadata, an ops log with backups, and the status read-only.
    """
    repository = create_repository(directory, spec_version, inline_chunk_threshold_bytes=8)
    container = ic.VirtualChunkContainer(BUCKET, ic.s3_store(region="us-east-1"))
    config = _configuration(inline_chunk_threshold_bytes=8)
    config.set_virtual_chunk_container(container)
    repository = repository.reopen(config=config)
    repository.save_config()
    snapshots = [_commit_first(repository)]
    snapshots += [_commit_more(repository, number) for number in range(3)]
    repository.create_branch("dev", snapshots[1])
    _commit_more(repository, 7, branch="dev")
    repository.create_branch("gone", snapshots[0])
    repository.delete_branch("gone")
    accented = "v2" if spec_version == 1 else "v2-é"  # format 1 loses sight of names that a path must escape
    for name, snapshot in {"v1": snapshots[1], accented: snapshots[3], "withdrawn": snapshots[2]}.items():
        repository.create_tag(name, snapshot)
    repository.delete_tag("withdrawn")
    repository.reset_branch("dev", snapshots[2])
    if spec_version == 2:
        _vary_further(directory, repository, snapshots)
    return open_repository(directory)


def _commit_first(repository: ic.Repository) -> str:
    session = repository.writable_session("main")
    group = zarr.create_group(session.store, overwrite=True, attributes={"title": "varied"})
    plain: dict[str, Any] = {"chunks": (2,), "dtype": "i8", "compressors": None, "filters": None}
    group.create_array("native", shape=(20,), **plain)[:] = np.arange(1, 21)
    group.create_array("deep/er/inline", shape=(3,), **{**plain, "chunks": (1,)})[:] = np.arange(7, 10)
    group.create_array("virtual", shape=(3000,), **plain)
    group.create_array("empty", shape=(4,), **plain)
    chunks = [
        ic.VirtualChunkSpec(index=[n], location=f"{BUCKET}grid/é-{n % 7:03}.nc", offset=16 * n, length=16)
        for n in range(1200)
    ]
    session.store.set_virtual_refs("virtual", chunks, validate_containers=False)
    return session.commit("first, with everything: é", metadata=METADATA)


# every JSON type, and numbers around each width that FlexBuffers and MessagePack distinguish
METADATA: dict[str, Any] = {
    "author": "A. Writer",
    "nothing": None,
    "yes": True,
    "numbers": [0, -1, 255, 256, -129, 65_536, 2**32, -(2**63), 2**63 - 1, 0.5, 0.1, 1e300],
    "one kind": [[1, 2], [1, 2, 3], [1.5, 2.5], ["a", "b"], [True, False]],
    "nested": {"empty": {}, "list": [], "text": "", "é": "x" * 300, "deep": [{"a": [{"b": None}]}]},
}


def _commit_more(repository: ic.Repository, number: int, branch: str = "main") -> str:
    session = repository.writable_session(branch)
    zarr.open_array(session.store, path="native", mode="r+")[2 * number : 2 * number + 2] = 100 + number
    return session.commit(f"change {number}", metadata={"author": "A. Writer", "number": number})


def _vary_further(directory: Path, repository: ic.Repository, snapshots: Sequence[str]) -> None:
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="native", mode="r+")[0] = -1
    session.amend("amended", metadata={"again": True})
    session = repository.writable_session("main")
    zarr.open_array(session.store, path="native", mode="r+")[0] = -2
    session.flush("detached")
    repository.set_metadata(METADATA)
    repository.set_feature_flag("move_node", False)
    repository.set_feature_flag("create_tag", True)
    repository.set_feature_flag("delete_tag", False)
    repository.set_feature_flag("delete_tag", None)
    repository.create_branch("feature/with/slashes", snapshots[3])
    now = datetime.now(UTC)
    set_flushed_at(directory, {snapshot: now - timedelta(days=9 - n) for n, snapshot in enumerate(snapshots)})
    repository = open_repository(directory)
    repository.expire_snapshots(now - timedelta(days=6, hours=12))
    config = repository.config
    config.num_updates_per_repo_info_file = 5
    repository = repository.reopen(config=config)
    repository.save_config()
    repository.garbage_collect(now - timedelta(days=1))
    repository.set_status(ic.RepoStatus(ic.RepoAvailability.read_only, limited_availability_reason="moving: é"))


def set_flushed_at(directory: Path, times: Mapping[str, datetime]) -> None:
    """Change the times of snapshots in their files and, in format 2, in the repo object."""
    micros = {snapshot: (time - _EPOCH) // timedelta(microseconds=1) for snapshot, time in times.items()}
    for snapshot, value in micros.items():
        change_file(directory / "snapshots" / snapshot, lambda body, value=value: _set_number(root(body), 3, value))
    if (directory / "repo").exists() and micros:
        change_file(directory / "repo", lambda body: _set_listed(body, micros))


def _set_listed(body: bytearray, micros: Mapping[str, int]) -> None:
    for entry in tables(root(body), 4):
        start = entry.Pos + entry.Offset(4)
        if (its_id := _text_of_id(body[start : start + 12])) in micros:
            _set_number(entry, 2, micros[its_id])


def set_updated_at(directory: Path, newest: datetime) -> None:
    """Change the times of the ops log in the repo object of format 2. The newest entry gets the time `newest`."""
    if (directory / "repo").exists():
        change_file(directory / "repo", lambda body: _set_updated(body, newest))


def _set_updated(body: bytearray, newest: datetime) -> None:
    for number, entry in enumerate(tables(root(body), 7)):
        _set_number(entry, 2, (newest - _EPOCH) // timedelta(microseconds=1) - number)


def set_stored_at(directory: Path, time: datetime, paths: Iterable[str] = ("**/*",)) -> None:
    """Change the modification times of files; `paths` are globs below the repository."""
    nanoseconds = (time - _EPOCH) // timedelta(microseconds=1) * 1000
    for pattern in paths:
        for path in directory.glob(pattern):
            os.utime(path, ns=(nanoseconds, nanoseconds))


def change_file(path: Path, change: Callable[[bytearray], None]) -> None:
    """Change the flatbuffer in a metadata file by `change`. The file keeps its times."""
    content, status = path.read_bytes(), path.stat()
    body = bytearray(decoded(content))
    change(body)
    path.write_bytes(content[:HEADER] + encoded(body))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def decoded(content: bytes) -> bytes:
    """Return the flatbuffer in a metadata file."""
    return pa.CompressedInputStream(pa.BufferReader(content[HEADER:]), "zstd").read()


def encoded(body: bytes | bytearray) -> bytes:
    """Return a flatbuffer in the encoding of a metadata file."""
    return pa.Codec("zstd").compress(bytes(body), asbytes=True)


def root(body: bytes | bytearray) -> Table:
    """Return the root table of a flatbuffer, read by the library."""
    return Table(body, struct.unpack_from("<I", body)[0])


def tables(table: Table, slot: int) -> list[Table]:
    """Return the tables of a vector field."""
    field = table.Offset(4 + 2 * slot)
    start = table.Vector(field)
    return [Table(table.Bytes, table.Indirect(start + 4 * n)) for n in range(table.VectorLen(field))]


def _set_number(table: Table, slot: int, value: int) -> None:
    struct.pack_into("<Q", table.Bytes, table.Pos + table.Offset(4 + 2 * slot), value)


def _text_of_id(raw: bytes | bytearray) -> str:
    bits = int.from_bytes(raw, "big") << 4
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[bits >> shift & 31] for shift in range(95, -1, -5))


def _configuration(**settings: Any) -> ic.RepositoryConfig:
    config = ic.RepositoryConfig.default()
    for name, value in settings.items():
        setattr(config, name, value)
    return config


def _storage(directory: Path) -> ic.Storage:
    return ic.local_filesystem_storage(str(directory))
