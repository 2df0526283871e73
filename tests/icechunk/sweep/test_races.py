"""icechunk writes to a repository on S3 after a sweep has computed an edit, and before the sweep writes the edit."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.edits import format_1 as format_1_edits
from retention_assets.icechunk.edits.publishing import Published, publish
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.rules.planned import PlannedEdits
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState
from retention_assets.icechunk.sweep.retained_set import current_retained_set
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from tests.icechunk.sweep.repositories import AS_OF, POLICY, histories, now, planned, tree, uploaded
from tests.icechunk.sweep.writer import commit_to, storage_of
from tests.icechunk_repositories import FORMATS
from tests.objectstore.s3 import Bucket

pytestmark = pytest.mark.long


@dataclass
class World:
    """A repository in a bucket, and the edits of a plan that releases a, b, c, d, x and z."""

    bucket: Bucket
    access: StoreAccess
    ids: dict[str, str]

    def open(self) -> ic.Repository:
        return ic.Repository.open(storage_of(self.bucket.endpoint, self.bucket.name, "repository"))

    def state(self) -> IcechunkState:
        return IcechunkSource(self.access, now).state()

    @cached_property
    def plan(self) -> PlannedEdits:
        return planned(self.state())

    def publish_until_lost(self, lost: list[bool]) -> Published:
        """Publish the edits under a lease that is lost once `lost` has an entry."""

        def before_write() -> None:
            if lost:
                raise GuardRefused("the lease is lost")

        return publish(self.access, self.plan, POLICY, now, lambda _: None, before_write)

    def publish(self, act: Callable[[], object]) -> Published:
        """Publish the edits. `act` is called once, after the first edit was computed and before it is written."""
        waiting = [act]

        def before_write() -> None:
            if waiting:
                waiting.pop()()

        return publish(self.access, self.plan, POLICY, now, lambda _: None, before_write)

    def files(self) -> dict[str, bytes]:
        reader = ObjectReader(self.access)
        return {path: reader.read(path) for batch in reader.list() for path in batch["path"].to_pylist()}

    def kept(self) -> set[str]:
        """Return the names of the snapshots that a liveness check keeps now, although all files are old."""
        retained = current_retained_set(self.state(), now(), ())
        return {name for name, one in self.ids.items() if decode_id(one) in retained.snapshots}


@pytest.fixture(params=FORMATS, ids=["format_1", "format_2"])
def world(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> World:
    made = tree(tmp_path / "r", request.param)
    found = World(bucket, uploaded(made.directory, bucket), made.ids)
    assert found.plan.released
    return found


format_1 = pytest.mark.parametrize("world", [1], indirect=True, ids=["format_1"])
format_2 = pytest.mark.parametrize("world", [2], indirect=True, ids=["format_2"])


@format_2
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda world: world.open().create_tag("keep", world.ids["a"]), id="a_tag"),
        pytest.param(lambda world: world.open().create_branch("keep", world.ids["c"]), id="a_branch"),
        pytest.param(lambda world: world.open().reset_branch("main", world.ids["d"]), id="a_reset_branch"),
        pytest.param(lambda world: commit_to(world.open(), "old"), id="a_commit"),
    ],
)
def test_a_new_use_of_a_released_snapshot_is_seen_and_ends_the_edit(
    world: World, act: Callable[[World], object]
) -> None:
    with pytest.raises(GuardRefused, match=r"Plan again"):
        world.publish(lambda: act(world))
    assert {"a", "b", "c", "d", "x", "z"} <= world.kept()
    assert {"old", "v1"} <= {*world.open().list_branches(), *world.open().list_tags()}


@pytest.mark.parametrize(
    "name", [pytest.param("a", id="the_oldest"), pytest.param("d", id="the_parent_of_a_snapshot_that_stays")]
)
@format_1
def test_a_tag_on_a_released_snapshot_protects_it_although_the_edits_do_not_see_the_tag(
    world: World, name: str
) -> None:
    line = "abcd"[: "abcd".index(name) + 1]
    world.publish(lambda: world.open().create_tag("keep", world.ids[name]))
    assert set(line) <= world.kept()
    assert histories(world.open())["tag keep"] == [*reversed(line), "-"]


@format_1
def test_a_commit_to_a_branch_that_is_to_be_deleted_ends_the_edits_and_keeps_the_branch(world: World) -> None:
    with pytest.raises(GuardRefused, match=r"new snapshot .* is based on .*, which the plan removes"):
        world.publish(lambda: commit_to(world.open(), "old"))
    assert histories(world.open())["branch old"][1:] == ["z", "x", "b", "a", "-"]
    assert {"a", "b", "x", "z"} <= world.kept()


@format_1
def test_a_commit_just_before_the_request_that_deletes_a_branch_keeps_the_branch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ignores the conditions of bulk deletions, so this request must not be one."""
    read, committed = ObjectWriter._e_tag, list[str]()

    def e_tag(writer: ObjectWriter, path: str) -> str | None:
        found = read(writer, path)
        if path == "refs/branch.old/ref.json" and not committed:
            committed.append(commit_to(world.open(), "old"))
        return found

    monkeypatch.setattr(ObjectWriter, "_e_tag", e_tag)
    with pytest.raises(GuardRefused, match=r"new snapshot .* is based on .*, which the plan removes"):
        world.publish(lambda: None)
    assert committed == [one.id for one in world.open().ancestry(branch="old")][:1]


@format_1
@pytest.mark.parametrize(
    "read",
    [
        pytest.param(("read_reference", "branch.old"), id="the_file_of_a_branch"),
        pytest.param(("read_reference", "tag.v1"), id="the_file_of_a_tag"),
        pytest.param(("read_snapshot", "snapshots/"), id="a_snapshot"),
    ],
)
def test_a_lease_that_is_lost_after_a_file_was_read_ends_the_edits_before_that_file_is_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, read: tuple[str, str]
) -> None:
    """The process was suspended for longer than its lease."""
    function, path = read
    reads, lost, left = getattr(format_1_edits, function), list[bool](), dict[str, bytes]()

    def suspended(content: bytes, where: str) -> object:
        if path in where and not lost:
            lost.append(True)
            left.update(world.files())
        return reads(content, where)

    monkeypatch.setattr(format_1_edits, function, suspended)
    with pytest.raises(GuardRefused, match=r"^the lease is lost$"):
        world.publish_until_lost(lost)
    assert world.files() == left


@format_2
def test_a_lease_that_is_lost_after_the_backup_was_written_ends_the_edit_of_the_repo_object(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, create, lost = world.files(), ObjectWriter.create, list[bool]()

    def suspended(writer: ObjectWriter, path: str, content: bytes) -> bool:
        created = create(writer, path, content)
        lost.append(True)
        return created

    monkeypatch.setattr(ObjectWriter, "create", suspended)
    with pytest.raises(GuardRefused, match=r"^the lease is lost$"):
        world.publish_until_lost(lost)
    assert world.files() == before


@format_1
@pytest.mark.parametrize("again", ["created_again", "moved_away_and_back"])
def test_a_branch_that_comes_back_after_the_edits_were_computed_is_not_deleted(world: World, again: str) -> None:
    """Its file has the same content, and so the same ETag, as the file of the branch that the plan deletes."""
    assert world.plan.deleted_branches == ("old",)

    def come_back() -> None:
        time.sleep(1.1)  # the store has whole seconds
        if again == "created_again":
            world.open().delete_branch("old")
            world.open().create_branch("old", world.ids["z"])
        else:
            world.open().reset_branch("old", world.ids["f"])
            world.open().reset_branch("old", world.ids["z"])

    with suppress(GuardRefused):
        world.publish(come_back)
    assert world.open().lookup_branch("old") == world.ids["z"]
    assert {"z", "x"} <= world.kept()


def test_a_branch_that_is_reset_to_a_snapshot_that_stays_is_not_deleted(world: World) -> None:
    published = world.publish(lambda: world.open().reset_branch("old", world.ids["f"]))
    assert published.conflicts == 1
    assert published.references_removed == ("refs/tag.v1",)
    assert histories(world.open())["branch old"] == ["f", "e", "-"]


def test_a_commit_to_a_branch_that_stays_is_not_lost(world: World) -> None:
    new = []
    world.publish(lambda: new.append(commit_to(world.open())))
    assert world.open().lookup_branch("main") == new[0]
    assert histories(world.open())["branch main"] == ["number 11", "f", "e", "-"]


@format_2
def test_an_amended_commit_is_not_lost(world: World) -> None:
    def amend() -> None:
        session = world.open().writable_session("main")
        session.amend("amended", allow_empty=True)

    world.publish(amend)
    assert histories(world.open())["branch main"] == ["amended", "e", "-"]
    assert "f" in world.kept()


def test_an_expiration_by_icechunk_leaves_nothing_to_do(world: World) -> None:
    def expire() -> None:
        world.open().expire_snapshots(AS_OF, delete_expired_branches=True, delete_expired_tags=True)

    world.publish(expire)
    assert histories(world.open()) == {
        "branch dev": ["y", "-"],
        "branch main": ["f", "e", "-"],
        "tag v2": ["f", "e", "-"],
    }


@format_1
def test_an_upgrade_by_icechunk_ends_the_edits(world: World) -> None:
    with pytest.raises(GuardRefused, match=r"now has format 2.*Plan again"):
        world.publish(lambda: ic.upgrade_icechunk_repository(world.open(), dry_run=False))
    assert {"branch old", "tag v1"} <= histories(world.open()).keys()
    assert world.ids.keys() - {"z"} <= world.kept()


@format_2
def test_icechunk_refuses_a_reference_to_a_released_snapshot_also_if_it_was_opened_before(world: World) -> None:
    """In format 2, no reference can be put on a snapshot between the liveness check and the deletion of its files."""
    before = world.open()
    before.readonly_session(snapshot_id=world.ids["a"])
    session = before.writable_session("old")
    world.publish(lambda: None)
    for act in (
        lambda: before.create_tag("keep", world.ids["a"]),
        lambda: before.create_branch("keep", world.ids["a"]),
        lambda: before.reset_branch("dev", world.ids["c"]),
        lambda: session.commit("late", allow_empty=True),
        lambda: session.flush("late"),
    ):
        with pytest.raises(ic.IcechunkError, match=r"snapshot id not found|branch not found"):
            act()
