"""One edit of the repo object with concurrent writers, lost responses and wrong clocks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused, SourceError, StoreError
from retention_assets.icechunk.edits import commits
from retention_assets.icechunk.edits.commits import RepoCommits
from retention_assets.icechunk.formats.model import Repo
from retention_assets.icechunk.rules.updates import Stamp
from retention_assets.icechunk.source.ops_log import ops_log
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from tests.faulty_s3 import Faults, Request, faulty_s3
from tests.icechunk.rules.edits import create_tag
from tests.icechunk.sweep.repositories import now
from tests.icechunk.sweep.writer import storage_of
from tests.icechunk_repositories import INITIAL, INITIAL_SNAPSHOT, create_repository, open_repository
from tests.objectstore.s3 import Bucket


def tagging(repo: Repo, stamp: Stamp) -> Repo:
    return create_tag(repo, "ours", INITIAL_SNAPSHOT, stamp)


def interrupted(act: Callable[[], object], times: int = 1) -> Callable[[Repo, Stamp], Repo]:
    """Return the edit. Each of the first so many times, it calls `act` before it is written."""
    left = [act] * times

    def edit(repo: Repo, stamp: Stamp) -> Repo:
        if left:
            left.pop()()
        return tagging(repo, stamp)

    return edit


class World:
    """A repository in a bucket, edited by this package and by icechunk."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        ic.Repository.create(storage_of(bucket.endpoint, bucket.name, "repository"))
        self.lines: list[str] = []
        self.slept: list[float] = []
        self.number = 0

    def open(self) -> ic.Repository:
        return ic.Repository.open(storage_of(self.bucket.endpoint, self.bucket.name, "repository"))

    def commits(self, access: StoreAccess | None = None) -> RepoCommits:
        return RepoCommits(access or self.bucket.access("repository"), now, self.lines.append, sleep=self.slept.append)

    def write_as_another(self) -> None:
        self.number += 1
        self.open().create_tag(f"theirs-{self.number}", INITIAL)

    def keep_entries(self, most: int) -> None:
        repository = self.open()
        config = repository.config
        config.num_updates_per_repo_info_file = most
        repository.reopen(config=config).save_config()

    def backups(self) -> set[str]:
        found = self.bucket.client().list_objects_v2(Bucket=self.bucket.name, Prefix="repository/overwritten/")
        return {one["Key"].removeprefix("repository/") for one in found.get("Contents", [])}

    def named_backups(self) -> set[str]:
        return {f"overwritten/{one.backup_path}" for one in self.open().ops_log() if one.backup_path}


@pytest.fixture
def world(bucket: Bucket) -> World:
    return World(bucket)


def test_an_edit_is_written_with_a_backup_that_the_log_names(world: World):
    done = world.commits().commit(tagging)
    assert (done.conflicts, {done.backup}) == (0, world.backups())
    assert done.etag == ObjectReader(world.bucket.access("repository")).head("repo").e_tag
    assert world.named_backups() == world.backups()
    assert world.open().list_tags() == {"ours"}


@pytest.mark.parametrize("times", [1, 3])
def test_a_slower_writer_edits_the_newer_object_and_leaves_no_needless_backup(world: World, times: int):
    done = world.commits().commit(interrupted(world.write_as_another, times))
    assert done.conflicts == times
    assert len(world.slept) == len(world.lines) == times
    assert world.open().list_tags() == {"ours", *(f"theirs-{number + 1}" for number in range(times))}
    assert world.backups() == world.named_backups()
    assert len(list(world.open().ops_log())) == times + 2


def test_an_edit_that_became_impossible_is_refused_and_leaves_nothing(world: World):
    with pytest.raises(GuardRefused, match="there is a tag 'ours' already"):
        world.commits().commit(interrupted(lambda: world.open().create_tag("ours", INITIAL)))
    assert world.backups() == world.named_backups()


def test_an_edit_that_changes_nothing_writes_nothing(world: World):
    done = world.commits().commit(lambda repo, stamp: repo)
    assert done.backup is None
    assert world.backups() == set()


def test_an_error_before_a_write_ends_the_edit_and_leaves_nothing(world: World):
    answers = iter([None])

    def before_write() -> None:
        if next(answers, "lost"):
            raise GuardRefused("the lease is lost")

    access = world.bucket.access("repository")
    commits_of_sweep = RepoCommits(access, now, world.lines.append, before_write=before_write, sleep=world.slept.append)
    with pytest.raises(GuardRefused, match="the lease is lost"):
        commits_of_sweep.commit(interrupted(world.write_as_another))
    assert world.open().list_tags() == {"theirs-1"}
    assert world.backups() == world.named_backups()


def test_an_edit_fails_after_too_many_conflicts(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commits, "TRIES", 3)
    with pytest.raises(StoreError, match="other writers were quicker 3 times"):
        world.commits().commit(interrupted(world.write_as_another, 9))
    assert "ours" not in world.open().list_tags()
    assert all(0 < wait <= 30 for wait in world.slept)


@pytest.mark.parametrize("entries", [1000, 1])
def test_a_write_with_a_lost_response_is_recognized_although_others_edited_after_it(world: World, entries: int):
    """The store has our object, but the response is lost. Another writer commits, and our retry is refused.

    With one ops log entry per object, our edit is found only in the backups.
    """
    world.keep_entries(entries)
    before = world.backups()
    writes: list[Request] = []

    def is_first(request: Request) -> bool:
        if request.method == "PUT" and request.key.endswith("/repo"):
            writes.append(request)
            if len(writes) == 2:
                world.write_as_another()
        return writes == [request]

    with faulty_s3(world.bucket.endpoint) as proxy:
        proxy.faults = Faults(lost=1.0, applies=is_first)
        done = world.commits(world.bucket.access("repository", endpoint=proxy.endpoint)).commit(tagging)
    assert len(writes) == 2
    assert done.conflicts == 0
    assert world.open().list_tags() == {"ours", "theirs-1"}
    assert done.backup in world.backups() - before
    assert world.backups() == world.named_backups()


def unreadable_after_replace(monkeypatch: pytest.MonkeyPatch, *, is_written: bool) -> None:
    """Make the repo object unreadable after the first write. If not `is_written`, the write meets a conflict."""
    replace = ObjectWriter.replace

    def fail(self: ObjectReader, path: str) -> NoReturn:
        raise StoreError(f"cannot read {path!r}: down. Nothing was changed.")

    def replace_and_fail(self: ObjectWriter, path: str, content: bytes, e_tag: str) -> bool:
        done = is_written and replace(self, path, content, e_tag)
        for method in ("head", "read", "read_with_metadata"):
            monkeypatch.setattr(ObjectReader, method, fail)
        return done

    monkeypatch.setattr(ObjectWriter, "replace", replace_and_fail)


def test_an_edit_succeeds_although_the_object_cannot_be_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Then the caller writes the record of the edit."""
    create_repository(tmp_path)
    unreadable_after_replace(monkeypatch, is_written=True)
    lines: list[str] = []
    done = RepoCommits(StoreAccess(f"file://{tmp_path}"), now, lines.append).commit(tagging)
    assert (done.etag, done.conflicts) == (None, 0)
    assert "this edit was made. Its ETag is not recorded: cannot read 'repo': down. Nothing more was" in lines[-1]
    assert open_repository(tmp_path).list_tags() == {"ours"}


def test_after_a_conflict_it_is_unknown_whether_the_edit_was_made_if_the_object_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    create_repository(tmp_path)
    unreadable_after_replace(monkeypatch, is_written=False)
    refused = r"the store reported a conflict.*unknown whether this edit was made.*'repo': down\. Nothing more was"
    with pytest.raises(StoreError, match=refused):
        RepoCommits(StoreAccess(f"file://{tmp_path}"), now, print).commit(tagging)


def test_an_edit_of_a_missing_repo_object_is_refused(tmp_path: Path):
    with pytest.raises(SourceError, match=r"repo: the repo object does not exist. Nothing was changed"):
        RepoCommits(StoreAccess(f"file://{tmp_path}"), now, print).commit(tagging)


def test_an_existing_backup_is_not_overwritten(tmp_path: Path):
    create_repository(tmp_path)
    laid: list[Path] = []

    def edit(repo: Repo, stamp: Stamp) -> Repo:
        laid.append(tmp_path / "overwritten" / stamp.backup)
        laid[0].parent.mkdir()
        laid[0].write_bytes(b"theirs")
        return tagging(repo, stamp)

    with pytest.raises(GuardRefused, match=r"overwritten/repo.*: this backup exists already\. This edit was not made"):
        RepoCommits(StoreAccess(f"file://{tmp_path}"), now, print).commit(edit)
    assert laid[0].read_bytes() == b"theirs"
    assert open_repository(tmp_path).list_tags() == set()


def test_another_writers_clock_that_is_a_little_ahead_is_waited_for(tmp_path: Path):
    create_repository(tmp_path)
    top = next(iter(open_repository(tmp_path).ops_log())).updated_at
    times = [top - timedelta(seconds=1)]

    def sleep(seconds: float) -> None:
        times[0] += timedelta(seconds=seconds)

    RepoCommits(StoreAccess(f"file://{tmp_path}"), lambda: times[0], print, sleep=sleep).commit(tagging)
    assert open_repository(tmp_path).list_tags() == {"ours"}


def test_an_edit_is_refused_if_the_clock_is_far_behind(tmp_path: Path):
    create_repository(tmp_path)
    slept: list[float] = []
    behind = datetime.now(UTC) - timedelta(minutes=1)
    with pytest.raises(GuardRefused, match="Compare the clocks"):
        RepoCommits(StoreAccess(f"file://{tmp_path}"), lambda: behind, print, sleep=slept.append).commit(tagging)
    assert slept == []


def test_a_clock_that_is_ahead_of_the_store_does_not_keep_icechunk_from_writing(world: World):
    """Icechunk refuses to write while the newest entry of the log is in the future."""
    access, ahead = world.bucket.access("repository"), timedelta(minutes=4)
    RepoCommits(access, lambda: now() + ahead, world.lines.append).commit(tagging)
    world.write_as_another()
    assert world.open().list_tags() == {"ours", "theirs-1"}


@pytest.mark.parametrize("most", [1, 2, 5])
def test_the_whole_log_is_read_through_its_backups_as_by_icechunk(tmp_path: Path, most: int):
    repository = create_repository(tmp_path, num_updates_per_repo_info_file=most)
    repository.save_config()
    for number in range(7):
        open_repository(tmp_path).create_tag(f"t{number}", INITIAL)
    access = StoreAccess(f"file://{tmp_path}")
    done = RepoCommits(access, now, print).commit(tagging)
    ours = [(one.updated_at, one.backup_path) for one in ops_log(ObjectReader(access), done.repo)]
    theirs = [
        ((one.updated_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), one.backup_path)
        for one in open_repository(tmp_path).ops_log()
    ]
    assert ours == theirs
    assert len(ours) == 10


def test_a_log_whose_backup_is_gone_ends_there(tmp_path: Path):
    create_repository(tmp_path, num_updates_per_repo_info_file=2).save_config()
    for number in range(4):
        open_repository(tmp_path).create_tag(f"t{number}", INITIAL)
    for path in (tmp_path / "overwritten").iterdir():
        path.unlink()
    access = StoreAccess(f"file://{tmp_path}")
    done = RepoCommits(access, now, print).commit(tagging)
    assert len(list(ops_log(ObjectReader(access), done.repo))) == len(list(open_repository(tmp_path).ops_log()))
