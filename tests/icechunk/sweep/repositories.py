"""A repository written by icechunk, on disk or in a bucket, and a plan that expires some of its snapshots."""

import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk as ic
import zarr

from retention_assets.icechunk.edits.publishing import Published, publish
from retention_assets.icechunk.formats.ids import encode_id
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.rules.collection import is_old
from retention_assets.icechunk.rules.expiration import Expiration, expiration_v1, expiration_v2
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.source.ops_log import former_parents, tips_left, updates_since
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState
from retention_assets.icechunk.source.tables import manifest_chunks, snapshot_manifests
from retention_assets.icechunk.sweep.retained_set import (
    RetainedSet,
    current_retained_set,
    edits_of,
    held_ids,
    retained_set_of,
)
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.snapshots import SnapshotPolicy
from tests.icechunk.sweep.random_history import files
from tests.icechunk_repositories import Commit, Format, build_history, open_repository
from tests.models.policies import everything_older
from tests.objectstore.s3 import Bucket

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 9)]
POLICY = everything_older(delete_expired_branches=True, delete_expired_tags=True)
AS_OF = DAYS[4]  # a, b, c, d and x have expired then; e and f, and dev's y, have not
TREE = [Commit(name, parent, day) for name, parent, day in zip("abcdef", (None, *"abcde"), DAYS, strict=False)]
TREE += [Commit("x", "b", DAYS[2]), Commit("y", "x", DAYS[5]), Commit("z", "x", DAYS[3])]
BRANCHES = {"main": "f", "dev": "y", "old": "z"}
TAGS = {"v1": "b", "v2": "f"}


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class IcechunkRepository:
    """A repository in a directory, and the ids of its snapshots by commit message."""

    directory: Path
    ids: dict[str, str]

    @property
    def access(self) -> StoreAccess:
        return StoreAccess(f"file://{self.directory}")

    def state(self) -> IcechunkState:
        return IcechunkSource(self.access, now).state()

    def open(self) -> ic.Repository:
        return open_repository(self.directory)

    def copy(self, directory: Path) -> "IcechunkRepository":
        shutil.copytree(self.directory, directory)
        return IcechunkRepository(directory, self.ids)

    def plan(self, policy: SnapshotPolicy = POLICY, as_of: datetime = AS_OF, **changes: Any) -> PlannedEdits:
        return planned(self.state(), policy, as_of, **changes)

    def publish(self, plan: PlannedEdits, policy: SnapshotPolicy = POLICY) -> Published:
        return publish(self.access, plan, policy, now, lambda line: None)

    def files(self, *directories: str) -> dict[str, bytes]:
        """Return the files below these directories of the repository, by default all files."""
        repositories = [self.directory / name for name in directories] or [self.directory]
        paths = (path for repository in repositories for path in repository.rglob("*") if path.is_file())
        return {str(path.relative_to(self.directory)): path.read_bytes() for path in sorted(paths)}


def tree(directory: Path, spec_version: Format) -> IcechunkRepository:
    """Write the repository that most tests use."""
    return IcechunkRepository(directory, build_history(directory, spec_version, TREE, BRANCHES, TAGS))


def expiration(state: IcechunkState, policy: SnapshotPolicy = POLICY, as_of: datetime = AS_OF) -> Expiration:
    return (expiration_v1 if state.format == 1 else expiration_v2)(state.history, policy, as_of)


def planned(
    state: IcechunkState, policy: SnapshotPolicy = POLICY, as_of: datetime = AS_OF, dropped: Collection[str] = ()
) -> PlannedEdits:
    """Return the edits of a plan of the repository in its current state."""
    found = expiration(state, policy, as_of)
    return PlannedEdits(
        format=state.format,
        as_of=as_of,
        cutoff=now(),
        known=tuple(sorted(map(encode_id, state.history.snapshots))),
        released=tuple(sorted(map(encode_id, found.released))),
        dropped=tuple(sorted(dropped)),
        deleted=frozenset(found.selection.deleted),
    )


def histories(repository: ic.Repository) -> dict[str, list[str]]:
    """Return the messages of each reference's history, newest first, as icechunk reads them; `-` is the root."""
    heads = {f"branch {name}": {"branch": name} for name in repository.list_branches()}
    heads |= {f"tag {name}": {"tag": name} for name in repository.list_tags()}
    return {
        name: ["-" if one.parent_id is None else one.message for one in repository.ancestry(**head)]
        for name, head in sorted(heads.items())
    }


def values(repository: ic.Repository) -> dict[str, list[int]]:
    """Return the array at the tip of each reference. Each of its chunks is read."""
    heads = {f"branch {name}": {"branch": name} for name in repository.list_branches()}
    heads |= {f"tag {name}": {"tag": name} for name in repository.list_tags()}
    return {
        name: zarr.open_array(repository.readonly_session(**head).store, path="a", mode="r")[:12].tolist()
        for name, head in sorted(heads.items())
    }


def uploaded(directory: Path, bucket: Bucket) -> StoreAccess:
    """Upload a repository into the bucket, without its stored configuration.

    The configuration was written on a disk, and would make icechunk write without conditions in the bucket too.
    """
    (directory / "config.yaml").unlink(missing_ok=True)
    if (directory / "repo").exists():
        repo = read_repo((directory / "repo").read_bytes(), "repo")
        (directory / "repo").write_bytes(write_repo(replace(repo, config=None)))
    client = bucket.client()
    for path in directory.rglob("*"):
        if path.is_file():
            key = f"repository/{path.relative_to(directory)}"
            client.put_object(Bucket=bucket.name, Key=key, Body=path.read_bytes())
    return bucket.access("repository")


def plan_and_sweep(directory: Path, policy: SnapshotPolicy, as_of: datetime, cutoff: datetime) -> PlannedEdits:
    """Plan, publish the edits, check again, and delete unreachable files, like the assets but without Spark."""
    access = StoreAccess(f"file://{directory}")
    source = IcechunkSource(access, now)
    state = source.state()
    if state.repo:
        updates = list(updates_since(ObjectReader(access), state.repo, cutoff))
        parents = former_parents(ObjectReader(access), state.repo, updates)
        state = replace(state, left=tips_left(updates, parents=parents))
    retained = retained_set_of(state, policy, as_of, cutoff)
    dead = _dead(directory, retained, cutoff)
    edits = edits_of(state, retained, as_of, cutoff)
    publish(access, edits, policy, now, lambda line: None)
    fresh = source.state()
    assert _dead(directory, current_retained_set(fresh, cutoff, held_ids(fresh, policy, as_of)), cutoff) >= dead
    results = ObjectDeleter(access).delete_all(sorted(dead))
    assert {one.outcome for one in results} <= {Outcome.DELETED}
    return edits


def _dead(directory: Path, retained: RetainedSet, cutoff: datetime) -> set[str]:
    """Return the old files that no remaining snapshot reaches, by the readers of the package."""
    live = {f"snapshots/{encode_id(one)}" for one in retained.snapshots}
    live |= {f"transactions/{encode_id(one)}" for one in retained.transaction_logs}
    manifests: set[str] = set()
    for one in map(encode_id, retained.snapshots):
        content = (directory / "snapshots" / one).read_bytes()
        manifests |= set(snapshot_manifests().decode(content, one, one)["manifest_id"].to_pylist())
    live |= {f"manifests/{one}" for one in manifests}
    for one in manifests:
        content = (directory / "manifests" / one).read_bytes()
        chunks = manifest_chunks().decode(content, one, one)["chunk_id"].to_pylist()
        live |= {f"chunks/{chunk}" for chunk in chunks if chunk is not None}
    return {name for name in files(directory) - live if is_old(stored_at(directory / name), cutoff)}


def stored_at(path: Path) -> datetime:
    """Return when the file was written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
