"""Our garbage collection compared with icechunk's own, on random histories after an expiration."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.rules.collection import collected, is_old, kept_transaction_logs, kept_v1, kept_v2
from retention_assets.icechunk.rules.snapshots import datetime_of, reachable
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.icechunk_files import BEGINNING, expire, read_v1, read_v2
from tests.icechunk.rules.strategies import World, at, worlds
from tests.icechunk_repositories import Commit, build_history, open_repository, set_stored_at

on_files = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8)


def build(directory: Path, spec_version: int, world: World) -> None:
    """Write the history with a store time for the files of each snapshot, in any order."""
    history = world.history
    root = next(one for one in history.snapshots if history.is_root(one))
    called = {one: None if one == root else one.hex() for one in history.snapshots}
    commits = [
        Commit(called[one], called[snapshot.parent_id], snapshot.flushed_at)
        for one, snapshot in history.snapshots.items()
        if one != root
    ]
    branches = {name: called[tip] for name, tip in history.branches.items()}
    tags = {name: called[tip] for name, tip in history.tags.items()}
    shutil.rmtree(directory, ignore_errors=True)
    build_history(directory, spec_version, commits, branches, tags)


def store_times(directory: Path, hours: list[int]) -> None:
    for path, hour in zip(sorted((directory / "snapshots").iterdir()), hours, strict=False):
        set_stored_at(directory, at(hour), [f"*/{path.name}"])


def listed(directory: Path) -> dict[bytes, datetime]:
    return {decode_id(path.name): datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in directory.glob("*")}


def collect(directory: Path, cutoff: datetime) -> tuple[set[str], set[str]]:
    open_repository(directory).garbage_collect(cutoff)
    return names_in(directory / "snapshots"), names_in(directory / "transactions")


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*")}


def left(files: Mapping[bytes, datetime], kept: frozenset[bytes], cutoff: datetime) -> set[str]:
    return {encode_id(one) for one, stored in files.items() if one in kept or not is_old(stored, cutoff)}


hours_of_files = st.lists(st.integers(0, 12), min_size=13, max_size=13)


@settings(on_files)
@given(worlds(most=6), st.integers(0, 8), hours_of_files, st.integers(0, 14))
def test_a_collection_of_format_2_keeps_and_writes_the_same_as_icechunk(tmp_path, world, threshold, hours, cutoff_hour):
    directory = tmp_path / "repository"
    build(directory, 2, world)
    expire(directory, at(threshold + 0.5), branches=True, tags=False)
    store_times(directory, hours)
    cutoff, before, snapshots = at(cutoff_hour), read_v2(directory), listed(directory / "snapshots")
    logs = listed(directory / "transactions")
    kept = kept_v2(before, snapshots, cutoff)
    dropped = before.snapshots.keys() - kept
    remaining, remaining_logs = collect(directory, cutoff)
    after = read_v2(directory)
    stamp = Stamp(datetime_of(after.latest_updates[0].updated_at, b""), after.latest_updates[1].backup_path)
    ours = collected(before, before.snapshots.keys(), dropped, stamp)
    if dropped:  # icechunk writes the object even if nothing is collected
        assert ours == after
    assert ours.snapshots == after.snapshots
    assert left(snapshots, kept, cutoff) == remaining
    assert left(logs, kept_transaction_logs(ours, kept), cutoff) == remaining_logs


@settings(on_files)
@given(worlds(most=6), st.integers(0, 8), hours_of_files, st.integers(0, 14))
def test_a_collection_of_format_1_keeps_at_least_the_same_as_icechunk(tmp_path, world, threshold, hours, cutoff_hour):
    directory = tmp_path / "repository"
    build(directory, 1, world)
    expire(directory, at(threshold + 0.5), branches=True, tags=False)
    store_times(directory, hours)
    cutoff, history = at(cutoff_hour), read_v1(directory)
    snapshots, logs = listed(directory / "snapshots"), listed(directory / "transactions")
    kept = kept_v1(history, snapshots, cutoff)
    remaining, remaining_logs = collect(directory, cutoff)
    ours = left(snapshots, kept, cutoff)
    assert remaining <= ours
    assert remaining_logs <= left(logs, kept, cutoff)
    young = {one for one, stored in snapshots.items() if not is_old(stored, cutoff)}
    if young <= reachable(history, history.tips()):  # otherwise we keep the files of a young dangling snapshot
        assert ours == remaining


@pytest.mark.parametrize("spec_version", [1, 2])
@pytest.mark.parametrize(
    ("stored", "cutoff", "goes"),
    [
        pytest.param(at(1), at(1).replace(microsecond=999_999), False, id="within_its_second"),
        pytest.param(at(1), at(1).replace(second=1, microsecond=1), True, id="after_its_second"),
        pytest.param(at(1).replace(microsecond=500), at(1).replace(microsecond=500), False, id="exactly_the_cutoff"),
        pytest.param(at(1).replace(microsecond=500), at(1).replace(microsecond=501), True, id="a_microsecond_later"),
    ],
)
def test_icechunk_uses_the_same_age_cutoff_as_we_do(tmp_path, spec_version, stored, cutoff, goes):
    ids = build_history(tmp_path, spec_version, [Commit("a", None, BEGINNING)], {})
    set_stored_at(tmp_path, stored)
    remaining, _ = collect(tmp_path, cutoff)
    assert (ids["a"] not in remaining) is goes is is_old(stored, cutoff)


@pytest.mark.parametrize("spec_version", [1, 2])
def test_icechunk_deletes_a_file_exactly_one_second_after_a_time_of_whole_seconds_and_we_keep_it(
    tmp_path, spec_version
):
    ids = build_history(tmp_path, spec_version, [Commit("a", None, BEGINNING)], {})
    set_stored_at(tmp_path, at(1))
    cutoff = at(1) + timedelta(seconds=1)
    remaining, _ = collect(tmp_path, cutoff)
    assert ids["a"] not in remaining
    assert not is_old(at(1), cutoff)
