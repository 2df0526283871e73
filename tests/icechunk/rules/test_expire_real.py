"""Our expiration compared with icechunk's own, on the same random histories."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retention_assets.icechunk.rules.expiration import edited, expiration_v1
from retention_assets.icechunk.rules.snapshots import History, history_of, lineage, reachable
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.edits import expire_v2
from tests.icechunk.rules.icechunk_files import (
    Templates,
    expire,
    read_v1,
    read_v2,
    repo_of,
    templates_of,
    write_v1,
    write_v2,
)
from tests.icechunk.rules.strategies import World, worlds
from tests.models.policies import everything_older

FEW, MANY = 30, 1000
FLAGS = st.tuples(st.booleans(), st.booleans())
on_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
any_worlds = worlds() | worlds(more_roots=True)


@pytest.fixture(scope="module")
def templates(tmp_path_factory) -> Templates:
    return templates_of(tmp_path_factory.mktemp("templates"))


def lines(history: History) -> dict[str, list[bytes]]:
    """Return the history of each reference."""
    return {str(one): lineage(history, one.tip, ()) for one in history.references()}


def agree_in_format_1(directory: Path, templates: Templates, world: World, instants: list[datetime], flags) -> None:
    """Expire at each time in turn, always on what icechunk left."""
    branches, tags = flags
    write_v1(directory, world.history, templates)
    policy = everything_older(delete_expired_branches=branches, delete_expired_tags=tags)
    buried = set()
    for older_than in instants:
        before = read_v1(directory)
        expire(directory, older_than, branches=branches, tags=tags)
        ours = expiration_v1(before, policy, older_than)
        assert lines(edited(before, ours.edits)) == lines(read_v1(directory))
        buried |= {f"tag.{one.name}" for one in ours.deletions if one.kind == "tag"}
        assert buried == {path.parent.name for path in (directory / "refs").glob("*/ref.json.deleted")}


def agree_in_format_2(directory: Path, world: World, instants: list[datetime], flags) -> None:
    """Expire at each time in turn, always on what icechunk left."""
    branches, tags = flags
    write_v2(directory, repo_of(world.history))
    policy = everything_older(delete_expired_branches=branches, delete_expired_tags=tags)
    for older_than in instants:
        before = read_v2(directory)
        returned = expire(directory, older_than, branches=branches, tags=tags)
        theirs = read_v2(directory)
        ours, expiration = expire_v2(before, policy, older_than, Stamp(datetime.now(UTC), "backup"))
        assert expiration.released == returned
        assert ours.snapshots.keys() == theirs.snapshots.keys()
        history = history_of(theirs)
        assert lines(history_of(ours)) == lines(history)
        one_root = sum(map(history.is_root, history.snapshots)) == 1
        # of several roots icechunk gives a snapshot that nothing reaches the well-known one, and we its own
        same = history.snapshots if one_root else reachable(history, history.tips())
        assert {one: ours.snapshots[one] for one in same} == {one: theirs.snapshots[one] for one in same}
        assert (ours.branches, ours.tags, ours.deleted_tags) == (theirs.branches, theirs.tags, theirs.deleted_tags)


def two_of(data: st.DataObject, world: World) -> list[datetime]:
    return sorted(data.draw(st.lists(st.sampled_from(world.instants), min_size=1, max_size=2)))


@settings(on_files, max_examples=FEW)
@given(any_worlds, st.data(), FLAGS)
def test_format_1_expires_as_icechunk_does(tmp_path, templates, world, data, flags):
    agree_in_format_1(tmp_path / "repository", templates, world, two_of(data, world), flags)


@settings(on_files, max_examples=FEW)
@given(any_worlds, st.data(), FLAGS)
def test_format_2_expires_as_icechunk_does(tmp_path, world, data, flags):
    agree_in_format_2(tmp_path / "repository", world, two_of(data, world), flags)


@pytest.mark.slow
@settings(on_files, max_examples=MANY)
@given(any_worlds, st.data(), FLAGS)
def test_format_1_expires_as_icechunk_does_in_many_histories(tmp_path, templates, world, data, flags):
    agree_in_format_1(tmp_path / "repository", templates, world, two_of(data, world), flags)


@pytest.mark.slow
@settings(on_files, max_examples=MANY)
@given(any_worlds, st.data(), FLAGS)
def test_format_2_expires_as_icechunk_does_in_many_histories(tmp_path, world, data, flags):
    agree_in_format_2(tmp_path / "repository", world, two_of(data, world), flags)
