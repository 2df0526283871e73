"""Tips that branches and tags left since an earlier plan: sessions may still be open on them."""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk as ic
import pytest

from retention_assets.errors import CorruptFile, SourceError
from retention_assets.icechunk.administration.upgrade import upgrade
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.model import Availability, Repo, RepoStatus, SnapshotInfo, Update, UpdateKind
from retention_assets.icechunk.source import ops_log
from retention_assets.icechunk.source.history import history_details, history_rows, state_of
from retention_assets.icechunk.source.repository import IcechunkSource, IcechunkState
from retention_assets.icechunk.sweep.left_tips import with_left_tips
from retention_assets.icechunk.sweep.retained_set import decision_rows, retained_set_of
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.objects import ObjectReader
from retention_assets.policy.snapshots import Keep, SnapshotPolicy
from retention_assets.state.plan import PLANNED_HEADS, PLANS, made_at_name
from retention_assets.warehouse.warehouse import Warehouse
from tests.icechunk.sweep.repositories import now
from tests.icechunk_repositories import FORMATS, Commit, build_history, open_repository, set_stored_at, set_updated_at

NAME, GRACE = "field", timedelta(days=2)
LAST_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
COMMITS = [
    Commit(name, parent, LAST_YEAR + timedelta(days=n))
    for n, (name, parent) in enumerate(zip("abc", (None, "a", "b"), strict=True))
]
NEWEST = SnapshotPolicy(default=Keep("newest", timedelta(0), last=1))
FOR_EVER = SnapshotPolicy(default=Keep("for-ever", None))
DAYS = [datetime(2026, 1, day, 3, tzinfo=UTC) for day in range(1, 8)]
SOON = timedelta(seconds=1)


@dataclass(frozen=True)
class Repository:
    """A repository of old files: root <- a <- b <- c (main, dev, v1). The warehouse has what its plans found."""

    root: Path
    ids: dict[str, str]

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(str(self.root / "warehouse"))

    def open(self) -> ic.Repository:
        return open_repository(self.root / "r")

    def planned(
        self,
        at: datetime,
        branches: Mapping[str, str],
        tags: Mapping[str, str] | None = None,
        day: datetime | None = None,
    ) -> None:
        """Store what a plan at `at` stores about the references that it found. `day`: of the plan; None: of `at`."""
        plan_hash = hashlib.sha256(str(at).encode()).hexdigest()
        heads = {
            "branches": {name: self.ids[tip] for name, tip in branches.items()},
            "tags": {name: self.ids[tip] for name, tip in (tags or {}).items()},
        }
        self.warehouse.write_document(heads, NAME, PLANNED_HEADS, f"{plan_hash}.json")
        name = f"{made_at_name(at)}-{plan_hash[:12]}.json"
        self.warehouse.write_document({}, NAME, PLANS, (day or at).date().isoformat(), name)

    def state(self, at: datetime) -> IcechunkState:
        """Return the state as a plan at `at` stores it and reads it back."""
        access = StoreAccess(f"file://{self.root / 'r'}")
        state = IcechunkSource(access, lambda: at).state()
        state = with_left_tips(state, ObjectReader(access), self.warehouse, NAME, at - GRACE)
        return state_of(history_rows(state), history_details(state), at)

    def staying(self, at: datetime, policy: SnapshotPolicy = NEWEST) -> set[str]:
        retained = retained_set_of(self.state(at), policy, at, at - GRACE)
        return {name for name, one in self.ids.items() if decode_id(one) in retained.snapshots}


@pytest.fixture(params=FORMATS, ids=["format_1", "format_2"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    ids = build_history(tmp_path / "r", request.param, COMMITS, {"main": "c", "dev": "c"}, {"v1": "c"})
    set_stored_at(tmp_path / "r", LAST_YEAR)
    return Repository(tmp_path, ids)


format_2 = pytest.mark.parametrize("repository", [2], indirect=True, ids=["format_2"])


def opened_with_main_alone(repository: Repository) -> ic.Repository:
    """Delete all references but the branch main, and return the opened repository."""
    opened = repository.open()
    opened.delete_branch("dev")
    opened.delete_tag("v1")
    return opened


def leave_c(repository: Repository) -> None:
    """Take all references from c. The ops log of format 2 has older times, so only plans show when this was."""
    opened = opened_with_main_alone(repository)
    opened.reset_branch("main", repository.ids["a"])
    set_updated_at(repository.root / "r", LAST_YEAR)


@pytest.mark.parametrize("policy", [NEWEST, FOR_EVER], ids=["expired", "unreachable"])
@pytest.mark.parametrize(
    ("branches", "tags"),
    [({"main": "c"}, {}), ({"dev": "c"}, {}), ({}, {"v1": "c"})],
    ids=["main-is-reset", "dev-is-deleted", "v1-is-deleted"],
)
def test_a_tip_that_an_earlier_plan_found_stays_for_the_grace_period_after_the_next_plan(
    repository: Repository, policy: SnapshotPolicy, branches: Mapping[str, str], tags: Mapping[str, str]
) -> None:
    repository.planned(DAYS[0], branches, tags)
    leave_c(repository)
    assert "c" in repository.staying(DAYS[4], policy)  # it may have been left just now
    repository.planned(DAYS[4], {"main": "a"})
    assert "c" in repository.staying(DAYS[4] + GRACE, policy)
    assert "c" not in repository.staying(DAYS[4] + GRACE + SOON, policy)


@pytest.mark.parametrize("is_planned_again", [False, True])
def test_a_plan_made_again_from_the_tables_of_an_older_day_does_not_show_that_a_tip_was_left(
    repository: Repository, *, is_planned_again: bool
) -> None:
    """Such a plan has the references of that older day. When it is made, the branch is still on c."""
    repository.planned(DAYS[1], {"main": "c"})
    repository.planned(DAYS[2], {"main": "a"}, day=DAYS[0])
    leave_c(repository)  # just before DAYS[5]
    if is_planned_again:
        repository.planned(DAYS[5], {"main": "a"})
    assert "c" in repository.staying(DAYS[6])


@pytest.mark.parametrize("policy", [NEWEST, FOR_EVER], ids=["expired", "unreachable"])
def test_snapshots_that_only_the_left_tip_reaches_stay_with_it(repository: Repository, policy: SnapshotPolicy) -> None:
    """If the reset was a mistake, the branch can be reset again, to its complete history."""
    repository.planned(DAYS[0], {"main": "c"})
    leave_c(repository)
    assert repository.staying(DAYS[1], policy) == {"a", "b", "c"}
    repository.planned(DAYS[1], {"main": "a"})
    assert repository.staying(DAYS[1] + GRACE + SOON, policy) == {"a"}


def test_a_tip_that_an_earlier_plan_found_stays_although_icechunk_expired_it(repository: Repository) -> None:
    """Someone commits on it first. No reference reaches it any more. In format 2, the history does not contain it."""
    repository.planned(DAYS[0], {"main": "c"})
    opened = opened_with_main_alone(repository)
    opened.writable_session("main").commit("new", allow_empty=True)
    assert repository.ids["c"] in repository.open().expire_snapshots(now() - timedelta(days=1))
    set_updated_at(repository.root / "r", LAST_YEAR)
    set_stored_at(repository.root / "r", LAST_YEAR)
    assert "c" in repository.staying(DAYS[1], FOR_EVER)
    repository.planned(DAYS[1], {"main": "a"})
    assert "c" not in repository.staying(DAYS[1] + GRACE + SOON, FOR_EVER)


@format_2
def test_a_tip_that_is_amended_stays(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"})
    opened = opened_with_main_alone(repository)
    opened.writable_session("main").amend("amended", allow_empty=True)
    set_updated_at(repository.root / "r", LAST_YEAR)
    assert "c" in repository.staying(DAYS[1])


def test_snapshots_that_another_branch_reaches_expire_under_its_rules(repository: Repository) -> None:
    repository.planned(DAYS[0], {"dev": "b"})
    repository.open().delete_branch("dev")
    assert repository.staying(DAYS[1]) == {"b", "c"}


def test_the_reason_says_that_sessions_may_be_open(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"})
    leave_c(repository)
    state = repository.state(DAYS[1])
    rows = decision_rows(state, retained_set_of(state, FOR_EVER, DAYS[1], DAYS[1] - GRACE)).to_pylist()
    (row,) = (row for row in rows if row["snapshot_id"] == repository.ids["c"])
    assert (row["decision"], row["stays"]) == ("kept", True)
    assert row["reason"] == (
        "kept: it was a tip within the grace period, or only such a tip reaches it, so sessions may still need it"
    )


def test_a_tip_that_no_earlier_plan_found_is_released(repository: Repository) -> None:
    leave_c(repository)
    assert repository.state(DAYS[1]).left == {}
    repository.planned(DAYS[0], {"main": "a"})
    assert repository.state(DAYS[1]).left == {}
    assert "c" not in repository.staying(DAYS[1])


def test_only_the_newest_plan_before_the_grace_period_counts(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"})
    repository.planned(DAYS[1], {"main": "b"})
    leave_c(repository)
    found = repository.state(DAYS[1] + GRACE + SOON)
    assert set(found.left) == {decode_id(repository.ids["b"])}


@pytest.mark.parametrize(("written", "is_commit"), [(DAYS[1], True), (DAYS[0] - SOON, False)], ids=["commit", "reset"])
def test_a_branch_that_moves_forward_leaves_its_tip_unless_a_commit_moved_it(
    repository: Repository, written: datetime, is_commit: bool
) -> None:
    """In format 2, the age of a child that is younger than the plan counts. Else the branch was reset to an old child.

    In format 1, the branch may also have been reset to a young child.
    """
    is_left = not is_commit or repository.state(DAYS[6]).format == 1
    set_stored_at(repository.root / "r", written, [f"snapshots/{repository.ids['c']}"])
    repository.planned(DAYS[0], {"main": "b"})
    assert (decode_id(repository.ids["b"]) in repository.state(DAYS[6]).left) == is_left


@pytest.mark.parametrize("repository", [1], indirect=True, ids=["format_1"])
def test_a_tip_stays_after_a_reset_to_a_child_that_was_written_after_the_plan(repository: Repository) -> None:
    """The branch may have been on the tip until just before the next plan, long after the child was written."""
    set_stored_at(repository.root / "r", DAYS[0] + SOON, [f"snapshots/{repository.ids['c']}"])
    repository.planned(DAYS[0], {"main": "b", "dev": "b"})
    repository.planned(DAYS[1], {"main": "c", "dev": "c"})
    assert "b" in repository.staying(DAYS[1] + GRACE)
    assert "b" not in repository.staying(DAYS[1] + GRACE + SOON)


UPGRADES: dict[str, Callable[[Repository], object]] = {
    "by-this-tool": lambda repository: upgrade(StoreAccess(f"file://{repository.root / 'r'}"), now, dry_run=False),
    "by-icechunk": lambda repository: ic.upgrade_icechunk_repository(repository.open(), dry_run=False),
}


@pytest.mark.parametrize("repository", [1], indirect=True, ids=["format_1"])
@pytest.mark.parametrize("how", UPGRADES)
def test_a_tip_that_was_left_before_an_upgrade_stays_for_the_grace_period_after_the_upgrade(
    repository: Repository, how: str
) -> None:
    """The ops log of an upgraded repository has no resets of format 1. The child of b is older than `grace`."""
    planned_at = now() - 3 * GRACE
    set_stored_at(repository.root / "r", planned_at + SOON, [f"snapshots/{repository.ids['c']}"])
    repository.planned(planned_at, {"main": "b", "dev": "b"})
    UPGRADES[how](repository)
    upgraded_at = now()
    assert "b" in repository.staying(upgraded_at)
    repository.planned(upgraded_at, {"main": "c", "dev": "c"})
    assert "b" in repository.staying(upgraded_at + GRACE - timedelta(minutes=5))
    assert "b" not in repository.staying(upgraded_at + GRACE + SOON)


def test_a_plan_whose_heads_are_no_longer_stored_is_left_out(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "b"})
    repository.planned(DAYS[1], {"main": "c"})
    documents = (repository.root / "warehouse" / NAME / PLANNED_HEADS).iterdir()
    (newest,) = (path for path in documents if repository.ids["c"] in path.read_text())
    newest.unlink()
    leave_c(repository)
    assert set(repository.state(DAYS[2]).left) == {decode_id(repository.ids["b"])}


LEAVINGS: dict[str, Callable[[Repository, ic.Repository], object]] = {
    "main-is-reset": lambda repository, opened: opened.reset_branch("main", repository.ids["a"]),
    "main-is-amended": lambda _, opened: opened.writable_session("main").amend("amended", allow_empty=True),
    "dev-is-deleted": lambda _, opened: opened.delete_branch("dev"),
    "v1-is-deleted": lambda _, opened: opened.delete_tag("v1"),
}


@format_2
@pytest.mark.parametrize("policy", [NEWEST, FOR_EVER], ids=["expired", "unreachable"])
@pytest.mark.parametrize("leave", LEAVINGS)
def test_a_tip_that_no_plan_found_stays_for_the_grace_period_after_the_ops_log_says_that_it_was_left(
    repository: Repository, leave: str, policy: SnapshotPolicy
) -> None:
    others = {"main-is-reset", "dev-is-deleted", "v1-is-deleted"} - {leave.replace("amended", "reset")}
    for other in others:
        LEAVINGS[other](repository, repository.open())
    set_updated_at(repository.root / "r", LAST_YEAR)
    assert repository.state(now()).left == {}
    before = now()
    LEAVINGS[leave](repository, repository.open())
    assert repository.state(now()).left.keys() == {decode_id(repository.ids["c"])}
    assert "c" in repository.staying(before + GRACE, policy)
    assert "c" not in repository.staying(now() + GRACE, policy)


@format_2
def test_a_tip_that_was_left_twice_stays_until_the_grace_period_after_the_last_time(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"})
    repository.planned(DAYS[1], {"main": "a"})
    repository.open().reset_branch("main", repository.ids["a"])
    left = repository.state(DAYS[1] + GRACE).left[decode_id(repository.ids["c"])]
    assert left > now() - timedelta(minutes=5)


def write_many_updates(repository: Repository) -> None:
    """Leave c, and then make so many changes that the ops log continues in backups."""
    opened = repository.open()
    config = opened.config
    config.num_updates_per_repo_info_file = 2
    opened = opened.reopen(config=config)
    opened.save_config()
    for change in ("dev-is-deleted", "v1-is-deleted", "main-is-reset"):
        LEAVINGS[change](repository, opened)
    for number in range(3):
        opened.create_branch(f"later-{number}", repository.ids["a"])


def backups(repository: Repository) -> list[Path]:
    return list((repository.root / "r" / "overwritten").iterdir())


@format_2
def test_the_ops_log_is_read_from_its_backups_back_to_the_grace_period(repository: Repository) -> None:
    write_many_updates(repository)
    assert decode_id(repository.ids["c"]) in repository.state(now()).left


@format_2
def test_a_plan_is_refused_if_the_ops_log_of_the_grace_period_has_a_gap(repository: Repository) -> None:
    write_many_updates(repository)
    for path in backups(repository):
        path.unlink()
    with pytest.raises(SourceError, match=r"this backup of the repo object no longer exists.* Restore this backup"):
        repository.state(now())


@format_2
def test_a_plan_is_refused_if_the_ops_log_of_the_grace_period_is_corrupt(repository: Repository) -> None:
    write_many_updates(repository)
    for path in backups(repository):
        path.write_bytes(b"damaged")
    with pytest.raises(CorruptFile, match="overwritten/"):
        repository.state(now())


@format_2
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"damaged")], ids=["missing", "corrupt"])
def test_backups_that_a_plan_does_not_need_are_not_read(
    repository: Repository, damage: Callable[[Path], object]
) -> None:
    write_many_updates(repository)
    set_updated_at(repository.root / "r", LAST_YEAR)
    for path in backups(repository):
        damage(path)
    assert repository.state(now()).left == {}


def test_the_parent_of_a_removed_snapshot_is_that_of_its_commit_although_an_expiration_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """icechunk 2.0 does not list the parents that an expiration removed."""
    root, tip, child, grandchild, newest = (bytes([number]) * 12 for number in range(5))

    def repo(parents: Mapping[bytes, bytes | None]) -> Repo:
        snapshots = {one: SnapshotInfo(one, parent, 0, "") for one, parent in parents.items()}
        return Repo({"main": newest}, snapshots, RepoStatus(Availability.ONLINE, 0), ())

    backups = {
        "after the first commit": repo({root: None, tip: root, child: tip}),
        "after the second commit": repo({root: None, child: root, grandchild: child}),
    }
    monkeypatch.setattr(ops_log, "backup", lambda _, name: backups[name])
    updates = [
        Update(UpdateKind.EXPIRATION_RAN, 4),
        Update(UpdateKind.NEW_COMMIT, 3, "after the second commit", "main", new_snapshot_id=grandchild),
        Update(UpdateKind.EXPIRATION_RAN, 2, "after the expiration"),
        Update(UpdateKind.NEW_COMMIT, 1, "after the first commit", "main", new_snapshot_id=child),
    ]
    reader = ObjectReader(StoreAccess(tmp_path.as_uri()))
    found = ops_log.former_parents(reader, repo({root: None, newest: root}), updates)
    assert found == {grandchild: child, child: tip}


# ---- references that were made or moved, or whose file was lost


EXPIRED = SnapshotPolicy(
    default=Keep("90d", timedelta(days=90)), delete_expired_branches=True, delete_expired_tags=True
)
MAKINGS: dict[str, Callable[[Repository, ic.Repository], object]] = {
    "branch new": lambda repository, opened: opened.create_branch("new", repository.ids["a"]),
    "branch dev": lambda repository, opened: opened.reset_branch("dev", repository.ids["a"]),
    "tag new": lambda repository, opened: opened.create_tag("new", repository.ids["a"]),
}


def deleted(repository: Repository, at: datetime) -> set[str]:
    retained = retained_set_of(repository.state(at), EXPIRED, at, at - GRACE)
    assert retained.expiration is not None
    return {str(one) for one in retained.expiration.selection.deleted}


@pytest.mark.parametrize("made", MAKINGS)
def test_a_reference_is_not_deleted_within_the_grace_period_after_it_was_made_or_moved(
    repository: Repository, made: str
) -> None:
    """A session may have begun on it, although the snapshot is a year old: the session could not commit."""
    set_stored_at(repository.root / "r", LAST_YEAR)
    set_updated_at(repository.root / "r", LAST_YEAR)
    before = now() - SOON  # the times of files are some milliseconds coarse
    MAKINGS[made](repository, repository.open())
    others = {"branch dev", "tag v1", made} - {made}
    assert deleted(repository, before + GRACE) == others
    assert deleted(repository, now() + GRACE + SOON) == {made, *others}


def test_a_forecast_deletes_a_young_reference_after_the_grace_period(repository: Repository) -> None:
    set_stored_at(repository.root / "r", LAST_YEAR)
    set_updated_at(repository.root / "r", LAST_YEAR)
    repository.open().create_branch("new", repository.ids["a"])
    state = repository.state(now())
    for later, is_deleted in ((timedelta(0), False), (GRACE + SOON, True)):
        at = now() + later
        retained = retained_set_of(state, EXPIRED, at, at - GRACE)
        assert retained.expiration is not None
        assert ("branch new" in map(str, retained.expiration.selection.deleted)) is is_deleted


@pytest.mark.parametrize("repository", [1], indirect=True, ids=["format_1"])
def test_a_tag_without_its_file_is_not_taken_for_a_deleted_tag(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"}, {"v1": "c"})
    folder = repository.root / "r" / "refs" / "tag.v1"
    content = (folder / "ref.json").read_bytes()
    (folder / "ref.json").unlink()
    snapshot = repository.ids["c"]
    with pytest.raises(SourceError, match=f"found the tag 'v1' on the snapshot {snapshot}, .*tag create v1 {snapshot}"):
        repository.state(DAYS[6])
    (folder / "ref.json").write_bytes(content)
    repository.open().delete_tag("v1")
    assert "c" in repository.staying(DAYS[0] + SOON)


@pytest.mark.parametrize("repository", [1], indirect=True, ids=["format_1"])
def test_a_tag_of_a_repository_that_was_created_again_is_no_lost_file(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"}, {"v1": "c"})
    shutil.rmtree(repository.root / "r")
    build_history(repository.root / "r", 1, COMMITS, {"main": "c"})
    assert repository.state(DAYS[6]).history.tags == {}


@pytest.mark.parametrize("repository", [1], indirect=True, ids=["format_1"])
@pytest.mark.parametrize("how", UPGRADES)
def test_an_upgrade_does_not_hide_that_a_branch_was_just_made(repository: Repository, how: str) -> None:
    """The entries of the ops log that an upgrade reconstructs have other times."""
    set_stored_at(repository.root / "r", LAST_YEAR)
    repository.open().create_branch("new", repository.ids["a"])
    UPGRADES[how](repository)
    upgraded_at = now()
    assert "branch new" not in deleted(repository, upgraded_at + GRACE - timedelta(minutes=5))
    assert "branch new" in deleted(repository, upgraded_at + GRACE + SOON)


@format_2
def test_a_tag_that_was_deleted_in_format_2_is_no_lost_file(repository: Repository) -> None:
    repository.planned(DAYS[0], {"main": "c"}, {"v1": "c"})
    repository.open().delete_tag("v1")
    assert repository.state(DAYS[6]).history.tags == {}
