"""Our edits of the repo object compared with icechunk's own: the results are equal field by field."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import Availability, Repo
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.rules.operations import set_status
from retention_assets.icechunk.rules.snapshots import datetime_of, history_of, lineage, micros_of
from retention_assets.icechunk.rules.updates import Stamp
from tests.icechunk.rules.edits import create_branch, create_tag, delete_branch, delete_tag, expire_v2, reset_branch
from tests.icechunk_repositories import INITIAL_SNAPSHOT, Commit, build_history, create_repository, open_repository
from tests.models.policies import everything_older

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 10)]


class Beside:
    """A repository of icechunk, with its repo object before and after an operation."""

    def __init__(self, directory: Path, ids: Mapping[str, str]) -> None:
        self.directory = directory
        self.repository = open_repository(directory)
        self.ids = ids

    def read(self) -> Repo:
        return read_repo((self.directory / "repo").read_bytes(), "repo")

    def both(self, theirs: Callable[[], object], edit: Callable[..., Repo], *arguments: Any, **named: Any) -> None:
        """Run `theirs`, and apply `edit` to the object from before, with the same time and backup name."""
        before = self.read()
        theirs()
        after = self.read()
        backup = after.latest_updates[1].backup_path if len(after.latest_updates) > 1 else after.repo_before_updates
        stamp = Stamp(datetime_of(after.latest_updates[0].updated_at, b""), backup)
        taken = [argument(before, after) if callable(argument) else argument for argument in arguments]
        assert edit(before, *taken, stamp, **named) == after
        assert after != before

    def refused(
        self, violation: str, theirs: Callable[[], object], edit: Callable[..., Repo], *arguments: Any, **named: Any
    ) -> None:
        """Require that both refuse, and that nothing is written."""
        before = self.read()
        with pytest.raises(ic.IcechunkError):
            theirs()
        assert self.read() == before
        with pytest.raises(GuardRefused, match=f"{violation}.*Nothing was changed or deleted"):
            edit(before, *arguments, Stamp(datetime.now(UTC), "backup"), **named)


def expired(repo: Repo, older_than: datetime, stamp: Stamp, **flags: bool) -> Repo:
    return expire_v2(repo, everything_older(**flags), older_than, stamp)[0]


@pytest.fixture
def beside(tmp_path) -> Beside:
    commits = [Commit(name, before, day) for name, before, day in zip("abcd", (None, *"abc"), DAYS, strict=False)]
    commits.append(Commit("x", "b", DAYS[6]))
    return Beside(tmp_path, build_history(tmp_path, 2, commits, {"main": "d", "dev": "x"}, {"v1": "b"}))


def test_branches_are_made_moved_and_deleted_as_by_icechunk(beside):
    a, d, repository = beside.ids["a"], beside.ids["d"], beside.repository
    beside.both(lambda: repository.create_branch("new/é", a), create_branch, "new/é", decode_id(a))
    beside.both(lambda: repository.reset_branch("new/é", d), reset_branch, "new/é", decode_id(d))
    beside.both(
        lambda: repository.reset_branch("main", a, from_snapshot_id=d),
        reset_branch,
        "main",
        decode_id(a),
        expected=decode_id(d),
    )
    beside.both(lambda: repository.delete_branch("dev"), delete_branch, "dev")


def test_tags_are_made_and_deleted_as_by_icechunk(beside):
    a, repository = beside.ids["a"], beside.repository
    beside.both(lambda: repository.create_tag("v2", a), create_tag, "v2", decode_id(a))
    beside.both(lambda: repository.delete_tag("v1"), delete_tag, "v1")


def test_consecutive_expirations_are_written_as_by_icechunk(beside):
    repository = beside.repository
    for older_than, flags in (
        (DAYS[2], {}),
        (DAYS[3], {"delete_expired_tags": True}),
        (DAYS[8], {"delete_expired_branches": True}),
    ):
        beside.both(lambda at=older_than, on=flags: repository.expire_snapshots(at, **on), expired, older_than, **flags)


def test_the_status_is_set_as_by_icechunk_and_read_only_refuses_other_edits(beside):
    a, repository = beside.ids["a"], beside.repository
    at = datetime.now(UTC)

    def same(repo: Repo, availability: Availability, reason: str | None, stamp: Stamp) -> Repo:
        made = set_status(repo, availability, reason, stamp)
        assert made.status.set_at == made.latest_updates[0].updated_at
        status = replace(made.status, set_at=micros_of(at))  # icechunk takes that time from the caller
        top, *older = made.latest_updates
        return replace(made, status=status, latest_updates=(replace(top, status=status), *older))

    read_only = ic.RepoStatus(ic.RepoAvailability.read_only, at, limited_availability_reason="moving")
    beside.both(lambda: repository.set_status(read_only), same, Availability.READ_ONLY, "moving")
    beside.refused("is read-only", lambda: repository.create_tag("v9", a), create_tag, "v9", decode_id(a))
    beside.refused("reason: moving", lambda: repository.expire_snapshots(DAYS[3]), expired, DAYS[3])
    online = ic.RepoStatus(ic.RepoAvailability.online, at)
    beside.both(lambda: repository.set_status(online), same, Availability.ONLINE, None)


def test_operations_that_icechunk_refuses_are_refused(beside):
    a, d, x, unknown = (*(beside.ids[name] for name in "adx"), encode_id(bytes(12)))
    its, here = beside.repository, decode_id(a)
    for violation, theirs, edit, *arguments in (
        ("a branch 'dev' already", lambda: its.create_branch("dev", a), create_branch, "dev", here),
        (f"no snapshot {unknown}", lambda: its.create_branch("new", unknown), create_branch, "new", bytes(12)),
        ("'main' cannot be deleted", lambda: its.delete_branch("main"), delete_branch, "main"),
        ("no branch 'gone'", lambda: its.delete_branch("gone"), delete_branch, "gone"),
        ("no branch 'gone'", lambda: its.reset_branch("gone", a), reset_branch, "gone", here),
        (f"no snapshot {unknown}", lambda: its.reset_branch("dev", unknown), reset_branch, "dev", bytes(12)),
        ("a tag 'v1' already", lambda: its.create_tag("v1", a), create_tag, "v1", here),
        (f"no snapshot {unknown}", lambda: its.create_tag("v2", unknown), create_tag, "v2", bytes(12)),
        ("no tag 'gone'", lambda: its.delete_tag("gone"), delete_tag, "gone"),
    ):
        beside.refused(violation, theirs, edit, *arguments)
    beside.refused(
        f"the branch 'dev' is on {x}, not on {d}",
        lambda: its.reset_branch("dev", a, from_snapshot_id=d),
        reset_branch,
        "dev",
        here,
        expected=decode_id(d),
    )
    its.delete_tag("v1")
    beside.refused("the tag 'v1' was deleted", lambda: its.create_tag("v1", a), create_tag, "v1", here)


def test_flags_that_are_off_refuse_and_may_be_turned_on_again(beside):
    a, repository = beside.ids["a"], beside.repository
    for flag in ("create_tag", "delete_tag"):
        repository.set_feature_flag(flag, False)
    beside.refused("create_tag is off", lambda: repository.create_tag("v2", a), create_tag, "v2", decode_id(a))
    beside.refused("delete_tag is off", lambda: repository.delete_tag("v1"), delete_tag, "v1")
    repository.set_feature_flag("create_tag", True)
    repository.set_feature_flag("delete_tag", None)
    beside.both(lambda: repository.create_tag("v2", a), create_tag, "v2", decode_id(a))
    beside.both(lambda: repository.delete_tag("v1"), delete_tag, "v1")


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_the_log_is_cut_where_icechunk_cuts_it(tmp_path, most):
    create_repository(tmp_path, num_updates_per_repo_info_file=most).save_config()
    beside = Beside(tmp_path, {})
    root = encode_id(INITIAL_SNAPSHOT)
    for name in ("t0", "t1", "t2", "t3", "t4", "t5", "t6"):
        beside.both(lambda name=name: beside.repository.create_tag(name, root), create_tag, name, INITIAL_SNAPSHOT)
    assert len(beside.read().latest_updates) == most


def test_icechunk_still_works_with_the_object_that_we_wrote(beside):
    repo = expired(beside.read(), DAYS[3], Stamp(datetime.now(UTC), "repo.backup"))
    (beside.directory / "repo").write_bytes(write_repo(repo))
    repository = open_repository(beside.directory)
    seen = [one.id for one in repository.ancestry(branch="main")]
    ours = lineage(history_of(repo), repo.branches["main"], ())
    assert [decode_id(one) for one in seen] == ours
    repository.create_tag("after", seen[0])
    repository.writable_session("main").commit("after", allow_empty=True)
    repository.garbage_collect(datetime.now(UTC) + timedelta(minutes=1))
    assert decode_id(seen[0]) in beside.read().snapshots
