"""Our upgrade of a repository of format 1 compared with icechunk's own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk as ic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retention_assets.errors import GuardRefused, SourceError
from retention_assets.icechunk.formats.model import Repo, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.formats.paths import read_reference
from retention_assets.icechunk.formats.snapshots import read_snapshot
from retention_assets.icechunk.formats.values import read_flexbuffer, upgraded_metadata
from retention_assets.icechunk.rules.snapshots import History, datetime_of, micros_of
from retention_assets.icechunk.rules.upgrade import upgraded
from tests.icechunk.rules.graphs import at, history, names, snapshot_id
from tests.icechunk.rules.icechunk_files import Templates, read_v1, read_v2, repo_of, templates_of, write_v1
from tests.icechunk.rules.strategies import TAGS, World, worlds
from tests.icechunk_repositories import build_varied, open_repository

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
on_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=20)


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Templates:
    return templates_of(tmp_path_factory.mktemp("templates"))


@dataclass(frozen=True)
class Format1:
    """A repository of format 1, as an upgrade reads it."""

    history: History
    snapshots: Mapping[bytes, SnapshotInfo]
    deleted_tags: Mapping[str, bytes | None]
    config: bytes | None = None

    def upgraded(self, at: datetime) -> Repo:
        return upgraded(self.history, self.snapshots, self.deleted_tags, self.config, at)


def format_1(directory: Path) -> Format1:
    """Read the files of a repository of format 1 as an upgrade does."""
    references = read_v1(directory)
    snapshots = {}
    for path in (directory / "snapshots").iterdir():
        one = read_snapshot(path.read_bytes(), path.name)
        metadata = upgraded_metadata(one.metadata, path.name)
        snapshots[one.id] = SnapshotInfo(one.id, one.parent_id, one.flushed_at, one.message, metadata)
    deleted = {}
    for path in (directory / "refs").glob("tag.*/ref.json.deleted"):
        target = path.with_name("ref.json")
        tip = read_reference(target.read_bytes(), target.name) if target.exists() else None
        deleted[path.parent.name.removeprefix("tag.")] = tip
    return Format1(references, snapshots, deleted)


def upgrade_by_icechunk(directory: Path) -> Repo:
    ic.upgrade_icechunk_repository(open_repository(directory), dry_run=False)
    return read_v2(directory)


def decoded(repo: Repo) -> dict[bytes, dict[str, object]]:
    return {
        one.id: {name: read_flexbuffer(value, name) for name, value in one.metadata.items()}
        for one in repo.snapshots.values()
    }


def assert_same(ours: Repo, theirs: Repo) -> None:
    """Require equal objects, except for the encoding of metadata and for the configuration, which we did not read."""
    assert decoded(ours) == decoded(theirs)
    plain = {one.id: replace(one, metadata={}) for one in theirs.snapshots.values()}
    ours_plain = {one.id: replace(one, metadata={}) for one in ours.snapshots.values()}
    assert replace(ours, snapshots=ours_plain) == replace(theirs, snapshots=plain, config=None)


@on_files
@given(worlds(most=8), st.data())
def test_an_upgrade_writes_the_same_repo_object_as_icechunk(tmp_path, templates, world: World, data):
    directory = tmp_path / "repository"
    write_v1(directory, world.history, templates)
    for name in data.draw(st.sets(st.sampled_from(TAGS))) & world.history.tags.keys():
        (directory / "refs" / f"tag.{name}" / "ref.json.deleted").touch()
    old = format_1(directory)
    theirs = upgrade_by_icechunk(directory)
    assert_same(old.upgraded(datetime_of(theirs.latest_updates[0].updated_at, b"")), theirs)


def test_an_upgrade_keeps_messages_and_metadata(tmp_path):
    build_varied(tmp_path, 1)
    old = format_1(tmp_path)
    theirs = upgrade_by_icechunk(tmp_path)
    ours = replace(old, config=theirs.config).upgraded(datetime_of(theirs.latest_updates[0].updated_at, b""))
    assert_same(replace(ours, config=None), theirs)
    assert ours.config == theirs.config
    assert any(one.metadata for one in ours.snapshots.values())


#  main: root, a, b; dev leaves it after a for x; nothing reaches `lost`
OLD = history(
    {"root": (None, 0), "a": ("root", 1), "b": ("a", 2), "x": ("a", 2), "lost": ("x", 3)},
    {"main": "b", "dev": "x"},
    {"v1": "a"},
)


WHOLE = Format1(OLD, repo_of(OLD).snapshots, {"v0": snapshot_id("lost"), "gone": None})


def test_an_upgraded_repo_object_has_only_reachable_snapshots():
    made = WHOLE.upgraded(NOW)
    assert names(made.snapshots) == {"root", "a", "b", "x"}
    assert made.deleted_tags == {"v0", "gone"}


def test_the_log_of_an_upgrade_has_the_history_in_order_and_ends_with_the_upgrade():
    updates = WHOLE.upgraded(NOW).latest_updates[::-1]
    start = micros_of(at(0))
    v0 = snapshot_id("lost")
    assert updates == (
        Update(UpdateKind.REPO_INITIALIZED, start),
        Update(UpdateKind.TAG_CREATED, start + 1000, name="v0"),
        Update(UpdateKind.TAG_DELETED, start + 2000, name="v0", previous_snapshot_id=v0),
        Update(UpdateKind.NEW_COMMIT, start + HOUR, name="main", new_snapshot_id=snapshot_id("a")),
        Update(UpdateKind.TAG_CREATED, start + HOUR + 1000, name="v1"),
        Update(UpdateKind.NEW_COMMIT, start + 2 * HOUR, name="main", new_snapshot_id=snapshot_id("b")),
        Update(UpdateKind.NEW_COMMIT, start + 2 * HOUR + 1, name="dev", new_snapshot_id=snapshot_id("x")),
        Update(UpdateKind.BRANCH_CREATED, start + 2 * HOUR + 1000, name="dev"),
        Update(UpdateKind.REPO_MIGRATED, micros_of(NOW), from_version=1, to_version=2),
    )


def test_a_history_that_ends_after_the_upgrade_is_refused():
    with pytest.raises(GuardRefused, match=r"\.001000 UTC, but it is only .*Nothing was changed"):
        WHOLE.upgraded(at(2))
    newest = at(2) + timedelta(milliseconds=1)  # the time at which the branch was created
    with pytest.raises(GuardRefused, match=r"but it is only .* UTC on this machine"):
        WHOLE.upgraded(newest)
    WHOLE.upgraded(newest + timedelta(microseconds=1))


def test_a_history_with_a_gap_is_refused():
    with pytest.raises(SourceError, match=r"its snapshot .* is missing"):
        replace(WHOLE, history=replace(OLD, tags={"v1": snapshot_id("gone")})).upgraded(NOW)
