"""Reading an Icechunk repository. Incomplete or changing references end the reading: their files would be deleted."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import icechunk as ic
import pytest

from retention_assets.errors import CorruptFile, RetentionError, SourceError, StoreError
from retention_assets.icechunk.formats.ids import decode_id, encode_id
from retention_assets.icechunk.formats.model import Update, UpdateKind
from retention_assets.icechunk.formats.paths import write_reference
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.rules.snapshots import history_of, micros_of
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState, read_references
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectMetadata, ObjectReader
from tests.icechunk_repositories import (
    FORMATS,
    INITIAL,
    INITIAL_SNAPSHOT,
    Commit,
    Format,
    build_history,
    build_varied,
    create_repository,
    open_repository,
    set_stored_at,
)
from tests.objectstore.s3 import Bucket
from tests.objectstore.servers import server_that_answers

DAYS = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 9)]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
COMMITS = [Commit("a", None, DAYS[0]), Commit("b", "a", DAYS[1]), Commit("x", "a", DAYS[2])]
both_formats = pytest.mark.parametrize("spec_version", FORMATS, ids=["format_1", "format_2"])


def source(directory: Path) -> IcechunkSource:
    return IcechunkSource(StoreAccess(f"file://{directory}"), lambda: NOW)


def state(directory: Path) -> IcechunkState:
    return source(directory).state()


@pytest.fixture
def old(tmp_path) -> Path:
    """A repository of format 1."""
    build_history(tmp_path / "r", 1, COMMITS, {"main": "b", "dev": "x"}, {"v1": "a", "v2": "b"})
    return tmp_path / "r"


@both_formats
def test_snapshots_references_and_times_are_read(tmp_path, spec_version: Format):
    ids = build_history(tmp_path, spec_version, COMMITS, {"main": "b", "dev": "x"}, {"v1": "a", "v2": "b"})
    open_repository(tmp_path).delete_tag("v2")
    set_stored_at(tmp_path, DAYS[5], ["snapshots/*"])
    found = state(tmp_path)
    assert found.format == spec_version
    assert found.taken_at == NOW
    assert found.deleted_tags == {"v2"}
    assert {name: encode_id(tip) for name, tip in found.history.branches.items()} == {
        "main": ids["b"],
        "dev": ids["x"],
    }
    assert {name: encode_id(tip) for name, tip in found.history.tags.items()} == {"v1": ids["a"]}
    parents = {encode_id(one.snapshot_id): one.parent_id for one in found.history.snapshots.values()}
    assert parents == {
        INITIAL: None,
        ids["a"]: INITIAL_SNAPSHOT,
        ids["b"]: decode_id(ids["a"]),
        ids["x"]: decode_id(ids["a"]),
    }
    assert {found.history.snapshots[decode_id(ids[name])].flushed_at for name in "abx"} == set(DAYS[:3])
    assert found.stored == dict.fromkeys(found.history.snapshots, DAYS[5])


def test_the_repo_object_comes_with_the_etag_of_the_same_response(tmp_path):
    create_repository(tmp_path)
    found = source(tmp_path).repo_object()
    assert found is not None
    assert found.etag == ObjectReader(StoreAccess(f"file://{tmp_path}")).head("repo").e_tag
    assert state(tmp_path).history == history_of(found.repo)


def test_format_1_has_no_repo_object(old):
    assert source(old).repo_object() is None
    assert state(old).repo is None


@both_formats
def test_a_repository_with_all_features_is_read(tmp_path, spec_version: Format):
    repository = build_varied(tmp_path, spec_version)
    found = state(tmp_path)
    assert found.history.branches.keys() == repository.list_branches()
    assert found.history.tags.keys() == repository.list_tags()
    for name in repository.list_branches():
        listed = [one.id for one in repository.ancestry(branch=name)]
        ours, at = [], found.history.branches[name]
        while at is not None:
            ours.append(encode_id(at))
            at = found.history.snapshots[at].parent_id
        assert ours == listed


def test_a_tag_that_icechunk_does_not_list_is_kept(old):
    repository = open_repository(old)
    tip = repository.lookup_branch("main")
    repository.create_tag("é", tip)
    assert "é" not in repository.list_tags()
    assert len(state(old).history.tags) == 3


def damaged(path: str, content: bytes) -> Callable[[Path], object]:
    return lambda directory: (directory / path).write_bytes(content)


def made(path: str, content: bytes) -> Callable[[Path], object]:
    def make(directory: Path) -> None:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)

    return make


def without_snapshot(message: str) -> Callable[[Path], object]:
    def remove(directory: Path) -> None:
        found = next(one.id for one in open_repository(directory).ancestry(branch="main") if one.message == message)
        (directory / "snapshots" / found).unlink()

    return remove


def cut_snapshot(directory: Path) -> None:
    path = next((directory / "snapshots").iterdir())
    path.write_bytes(path.read_bytes()[:-5])


NOWHERE = write_reference(bytes(12))


@pytest.mark.parametrize(
    ("damage", "error", "violation"),
    [
        pytest.param(damaged("refs/tag.v1/ref.json", b'{"snapshot": 3}'), CorruptFile, "tag.v1/ref.json", id="tag"),
        pytest.param(damaged("refs/tag.v1/ref.json", b""), CorruptFile, "tag.v1/ref.json", id="empty_tag"),
        pytest.param(damaged("refs/branch.dev/ref.json", b"{"), CorruptFile, "branch.dev/ref.json", id="branch"),
        pytest.param(damaged("refs/tag.v1/ref.json", NOWHERE), SourceError, "tag v1: its snapshot", id="tag_nowhere"),
        pytest.param(made("refs/note.v1/ref.json", NOWHERE), CorruptFile, "refs/note.v1", id="unknown_kind"),
        pytest.param(made("refs/tag.v1/other", b""), CorruptFile, "tag.v1/other", id="unknown_file"),
        pytest.param(made("refs/branch.main/ref.json.deleted", b""), CorruptFile, "branch.main", id="buried_branch"),
        pytest.param(without_snapshot("b"), SourceError, "its snapshot .* is missing", id="tip_missing"),
        pytest.param(without_snapshot("a"), SourceError, "is missing", id="ancestor_missing"),
        pytest.param(cut_snapshot, CorruptFile, "snapshots/", id="snapshot_cut"),
        pytest.param(
            lambda directory: shutil.rmtree(directory / "refs/branch.main"),
            SourceError,
            "no Icechunk repository: neither `repo`.*Found: .*refs/, snapshots/",
            id="no_main",
        ),
    ],
)
def test_a_damaged_or_contradictory_file_ends_the_reading(old, damage: Callable[[Path], object], error, violation: str):
    damage(old)
    with pytest.raises(error, match=f"{violation}.*[Nn]othing"):
        state(old)


def test_an_empty_object_with_the_key_of_a_folder_is_no_reference(tmp_path, bucket):
    """Consoles of object stores write such objects."""
    build_history(tmp_path, 1, COMMITS, {"main": "b"}, {"v1": "a"})
    client = bucket.client()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        client.put_object(Bucket=bucket.name, Key=f"r/{path.relative_to(tmp_path)}", Body=path.read_bytes())
    before = read_references(ObjectReader(bucket.access("r")))
    for key in ("refs/", "refs/branch.main/", "refs/tag.v1/"):
        client.put_object(Bucket=bucket.name, Key=f"r/{key}", Body=b"")
    found = read_references(ObjectReader(bucket.access("r")))
    assert (found.branches, found.tags) == (before.branches, before.tags)
    client.put_object(Bucket=bucket.name, Key="r/refs/tag.v2/", Body=b"?")
    with pytest.raises(CorruptFile, match=r"refs/tag\.v2/: it is neither a branch nor a tag"):
        read_references(ObjectReader(bucket.access("r")))


def test_a_tag_that_may_not_be_read_ends_the_reading(tmp_path, bucket):
    """icechunk skips the tag, and then collects the files that the tag keeps."""
    access = bucket.access("r")
    client = bucket.client()
    build_history(tmp_path / "r", 1, COMMITS, {"main": "b"}, {"v1": "a"})
    for path in (tmp_path / "r").rglob("*"):
        if path.is_file():
            key = f"r/{path.relative_to(tmp_path / 'r')}"
            client.put_object(Bucket=bucket.name, Key=key, Body=path.read_bytes())
    assert IcechunkSource(access, lambda: NOW).state().history.tags.keys() == {"v1"}
    reads = ObjectReader.read_with_metadata

    def denied(self: ObjectReader, path: str) -> tuple[bytes, ObjectMetadata]:
        if "tag.v1" in path:
            raise StoreError(f"{path}: the store denied it")
        return reads(self, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectReader, "read_with_metadata", denied)
        with pytest.raises(StoreError, match=r"tag\.v1"):
            IcechunkSource(access, lambda: NOW).state()


def test_a_deleted_tag_keeps_nothing_and_may_be_damaged(old):
    open_repository(old).delete_tag("v1")
    (old / "refs/tag.v1/ref.json").write_bytes(b"?")
    assert state(old).deleted_tags == {"v1"}
    assert source(old).references().deleted_tags == {"v1": None}


def test_the_parent_of_an_unreachable_snapshot_may_be_missing(old):
    build_without = open_repository(old)
    gone = build_without.lookup_branch("dev")
    session = build_without.writable_session("dev")
    child = session.commit("child", allow_empty=True)
    build_without.delete_branch("dev")
    (old / "snapshots" / gone).unlink()
    assert decode_id(child) in state(old).history.snapshots


def test_files_with_names_that_icechunk_does_not_make_are_ignored(old):
    for name in ("notes.txt", "0000000000000000000o", "sub/1CECHNKREP0F1RSTCMT0"):
        made(f"snapshots/{name}", b"")(old)
    assert len(state(old).stored) == 4


class Busy(ObjectReader):
    """A reader. `before` and `after` have what somebody does before and after the nth listing of the references."""

    def __init__(
        self, directory: Path, after: Callable[[int], object], before: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__(StoreAccess(f"file://{directory}"))
        self.listings, self.after, self.before = 0, after, before

    def list(self, prefix: str = ""):
        if prefix != "refs/":
            yield from super().list(prefix)
            return
        self.listings += 1
        self.before(self.listings)
        yield from super().list(prefix)
        self.after(self.listings)


def busy_state(directory: Path, after: Callable[[int], object]) -> IcechunkState:
    """Return the state of a repository that somebody changes meanwhile."""
    source = IcechunkSource(StoreAccess(f"file://{directory}"), lambda: NOW)
    source._reader = Busy(directory, after)
    return source.state()


def test_a_reference_that_vanishes_while_it_is_read_makes_another_reading_necessary(old):
    found = read_references(Busy(old, lambda _: shutil.rmtree(old / "refs/branch.dev", ignore_errors=True)))
    assert found.branches.keys() == {"main"}
    assert not found.replaced


def test_a_tag_that_replaces_a_branch_while_the_references_are_read_is_seen(old):
    """The tag is created after the listing, and the branch is moved before its file is read."""
    before = read_references(ObjectReader(StoreAccess(f"file://{old}")))
    rescued = before.branches["dev"]
    assert rescued not in {before.branches["main"], *before.tags.values()}

    def replace(listing: int) -> None:
        if listing == 1:
            (old / "refs/tag.kept").mkdir()
            shutil.copy(old / "refs/branch.dev/ref.json", old / "refs/tag.kept/ref.json")
            shutil.copy(old / "refs/branch.main/ref.json", old / "refs/branch.dev/ref.json")

    found = read_references(Busy(old, replace))
    assert found.tags["kept"] == rescued
    assert found.branches["dev"] == before.branches["main"]


@pytest.mark.parametrize("same_time", [False, True])
def test_a_branch_that_was_moved_and_moved_back_while_it_was_read_is_read_again(old, same_time: bool):
    """In each of two readings, its snapshot is meanwhile that of a tag which is deleted again before the listing.

    The store may have times of whole seconds, so that a listing does not show these changes.
    """
    file, written = old / "refs/branch.dev/ref.json", (old / "refs/branch.dev/ref.json").stat()
    dev, main = file.read_bytes(), (old / "refs/branch.main/ref.json").read_bytes()

    def move(listing: int) -> None:
        if listing < 3:
            file.write_bytes(main)

    def move_back(listing: int) -> None:
        if 1 < listing < 4:
            file.write_bytes(dev)
            if same_time:
                os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))

    expected = read_references(ObjectReader(StoreAccess(f"file://{old}"))).branches["dev"]
    assert read_references(Busy(old, move, move_back)).branches["dev"] == expected


def test_references_that_come_and_go_in_each_reading_are_refused(old):
    def create(listing: int) -> None:
        shutil.copytree(old / "refs/branch.dev", old / f"refs/branch.run-{listing}")

    with pytest.raises(SourceError, match=r"refs.*again and again\. Nothing was changed or deleted\. Run again"):
        read_references(Busy(old, create))


def test_a_branch_with_a_commit_in_each_reading_is_no_refusal(old):
    made = []

    def commit(_: int) -> None:
        made.append(open_repository(old).writable_session("dev").commit("another", allow_empty=True))

    found = busy_state(old, commit)
    assert encode_id(found.history.branches["dev"]) in made


def test_a_branch_that_is_reset_in_each_reading_is_refused(old):
    tips = [(old / f"refs/branch.{name}/ref.json").read_bytes() for name in ("dev", "main")]
    with pytest.raises(SourceError, match=r"reset while they were read, again and again\. Nothing was .* Run again"):
        busy_state(old, lambda n: (old / "refs/branch.dev/ref.json").write_bytes(tips[n % 2]))


def test_a_tag_that_takes_over_the_snapshot_of_a_branch_beside_commits_is_seen(old):
    """A commit in each reading, so no two are the same. The branch is reset after the last of them began."""
    before = read_references(ObjectReader(StoreAccess(f"file://{old}"))).branches
    open_repository(old).create_branch("other", open_repository(old).lookup_branch("dev"))

    def change(listing: int) -> None:
        open_repository(old).writable_session("main").commit("another", allow_empty=True)
        if listing == 4:
            (old / "refs/tag.rescued").mkdir()
            shutil.copy(old / "refs/branch.other/ref.json", old / "refs/tag.rescued/ref.json")
            for name in ("dev", "other"):
                shutil.copy(old / "refs/branch.main/ref.json", old / f"refs/branch.{name}/ref.json")

    assert busy_state(old, change).history.tags["rescued"] == before["dev"]


def test_a_store_without_etags_is_refused(old):
    """Without ETags, a change of the repo object since it was read cannot be noticed."""
    half_upgraded(old)
    with server_that_answers(200, (old / "repo").read_bytes()) as endpoint:
        access = Bucket(endpoint, "lake", "any", "any").access("r")
        with pytest.raises(SourceError, match=r"^s3://lake/r/repo: the store returns no ETag.* Nothing was.*Copy the"):
            IcechunkSource(access, lambda: NOW).repo_object()


class Interrupted(IcechunkSource):
    """A reader. After it lists the snapshots or reads the references, it calls a function of the test."""

    def __init__(
        self, directory: Path, *, after_listing: Callable[[], object] = int, after: Callable[[], object] = int
    ):
        super().__init__(StoreAccess(f"file://{directory}"), lambda: NOW)
        self._after_listing, self._after = after_listing, after

    def _listed(self):
        found = super()._listed()
        self._after_listing()
        return found

    def references(self):
        found = super().references()
        self._after()
        return found


@both_formats
def test_a_commit_after_the_listing_is_known_and_counts_as_unlisted(tmp_path, spec_version: Format):
    build_history(tmp_path, spec_version, COMMITS, {"main": "b"})
    new: list[str] = []

    def commit() -> None:
        for number in range(2):
            session = open_repository(tmp_path).writable_session("main")
            new.append(session.commit(f"new {number}", allow_empty=True))

    found = Interrupted(tmp_path, after_listing=commit).state()
    ids = {decode_id(one) for one in new}
    assert ids <= found.history.snapshots.keys()
    assert not ids & found.stored.keys()


def test_an_upgrade_between_the_references_ends_the_reading(old):
    """An upgrade deletes references one by one, so only a part of them is read."""
    upgrade = Interrupted(old, after=lambda: ic.upgrade_icechunk_repository(open_repository(old), dry_run=False))
    with pytest.raises(SourceError, match=r"upgraded to format 2 while it was read.*Run again"):
        upgrade.state()


def half_upgraded(directory: Path) -> None:
    ic.upgrade_icechunk_repository(open_repository(directory), dry_run=False, delete_unused_v1_files=False)


def test_an_upgraded_repository_is_read_as_format_2_whatever_old_references_remain(old):
    half_upgraded(old)
    (old / "refs/tag.v1/ref.json").unlink()
    found = state(old)
    assert found.format == 2
    assert found.history.tags.keys() == {"v1", "v2"}


def test_a_commit_in_format_1_after_the_upgrade_ends_the_reading(old, tmp_path):
    shutil.copytree(old, tmp_path / "seen_by_the_old")
    half_upgraded(old)
    new = open_repository(tmp_path / "seen_by_the_old").writable_session("main").commit("lost", allow_empty=True)
    shutil.copy(tmp_path / "seen_by_the_old/snapshots" / new, old / "snapshots")
    path = old / "refs/branch.main/ref.json"
    path.write_bytes(write_reference(decode_id(new)))
    set_stored_at(old, datetime.now(UTC) + timedelta(minutes=1), ["refs/branch.main/*"])
    with pytest.raises(SourceError, match=rf"branch\.main.*does not list its snapshot {new}.*Stop that writer"):
        state(old)


@pytest.mark.parametrize("is_cut", [False, True], ids=["the_log_goes_on_in_a_backup", "the_log_was_cut_off"])
def test_a_commit_in_format_1_ends_the_reading_even_long_after_the_upgrade(old, tmp_path, is_cut: bool):
    """After a thousand updates, the upgrade is only in the backups of the ops log, not in the repo object."""
    shutil.copytree(old, tmp_path / "seen_by_the_old")
    half_upgraded(old)
    repo = read_repo((old / "repo").read_bytes(), "repo")
    (old / "overwritten").mkdir(exist_ok=True)
    (old / "overwritten/a-backup").write_bytes((old / "repo").read_bytes())
    long_after = micros_of(datetime.now(UTC) + timedelta(days=2))
    update = Update(UpdateKind.CONFIG_CHANGED, long_after)
    before = "gone" if is_cut else "a-backup"
    (old / "repo").write_bytes(write_repo(replace(repo, latest_updates=(update,), repo_before_updates=before)))
    assert state(old).format == 2
    new = open_repository(tmp_path / "seen_by_the_old").writable_session("main").commit("lost", allow_empty=True)
    shutil.copy(tmp_path / "seen_by_the_old/snapshots" / new, old / "snapshots")
    (old / "refs/branch.main/ref.json").write_bytes(write_reference(decode_id(new)))
    set_stored_at(old, datetime.now(UTC) + timedelta(minutes=1), ["refs/branch.main/*"])
    with pytest.raises(SourceError, match=rf"branch\.main.*does not list its snapshot {new}.*Stop that writer"):
        state(old)


@pytest.mark.parametrize("found", ["nothing", "files"])
def test_the_error_for_a_location_without_a_repository_lists_the_files_there(tmp_path, found: str):
    if found == "files":
        (tmp_path / "chunks").mkdir()
        (tmp_path / "chunks" / "one").touch()
        (tmp_path / "notes.txt").touch()
    seen = "nothing" if found == "nothing" else "chunks/, notes.txt"
    with pytest.raises(SourceError, match=f"no Icechunk repository.*Found: {seen}. Nothing was changed"):
        state(tmp_path)


def test_a_lost_repo_object_is_not_taken_for_format_1_although_an_upgrade_left_old_files(old):
    half_upgraded(old)
    repository = open_repository(old)
    repository.create_branch("later", repository.lookup_branch("main"))  # icechunk writes a backup of `repo`
    assert state(old).format == 2
    (old / "repo").unlink()
    assert (old / "refs" / "branch.main" / "ref.json").is_file()
    with pytest.raises(SourceError, match=r"`repo` of format 2 is missing, and overwritten/repo\.\S+ is its newest"):
        state(old)


def test_a_damaged_repo_object_is_not_taken_for_format_1(old):
    half_upgraded(old)
    (old / "repo").write_bytes((old / "repo").read_bytes()[:-9])
    with pytest.raises(RetentionError, match=r"repo: .*[Nn]othing"):
        state(old)


def test_a_snapshot_of_format_2_in_a_repository_of_format_1_is_no_root(old, tmp_path):
    """A snapshot of format 2 does not name its parent, so its history would count as garbage."""
    create_repository(tmp_path / "new")
    new = open_repository(tmp_path / "new").writable_session("main").commit("new", allow_empty=True)
    shutil.copy(tmp_path / "new/snapshots" / new, old / "snapshots")
    with pytest.raises(SourceError, match=f"snapshot {new} has format 2.*`repo` of format 2 is missing: restore it"):
        state(old)


class Counted(ObjectReader):
    """A reader that records which snapshots it reads."""

    read_ids: ClassVar[list[str]] = []

    def read_with_metadata(self, path: str):
        if path.startswith("snapshots/"):
            self.read_ids.append(path.removeprefix("snapshots/"))
        return super().read_with_metadata(path)


def test_a_second_reading_requests_only_new_and_rewritten_files(old, monkeypatch: pytest.MonkeyPatch):
    """icechunk's expiration rewrites x with the root as its parent. a stays in the history of main."""
    monkeypatch.setattr("retention_assets.icechunk.source.repository.ObjectReader", Counted)
    asked = source(old)
    assert asked.state().history == state(old).history
    Counted.read_ids.clear()
    assert asked.state() == state(old)
    assert len(Counted.read_ids) == 4  # by the other source
    repository = open_repository(old)
    ids = {one.message: one.id for name in ("main", "dev") for one in repository.ancestry(branch=name)}
    new = repository.writable_session("main").commit("new", allow_empty=True)
    open_repository(old).expire_snapshots(DAYS[2])
    Counted.read_ids.clear()
    found = asked.state()
    assert {new, ids["x"]} <= set(Counted.read_ids)
    assert not {INITIAL, ids["a"]} & set(Counted.read_ids)
    assert found.history == state(old).history
    assert found.history.snapshots[decode_id(ids["x"])].parent_id == INITIAL_SNAPSHOT
    (old / "snapshots" / ids["x"]).unlink()
    with pytest.raises(SourceError, match=f"branch dev: its snapshot {ids['x']} is missing"):
        asked.state()
