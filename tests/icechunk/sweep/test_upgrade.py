"""The upgrade from format 1 to format 2: the same result as icechunk's own, and no commit is lost."""

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import pytest

from retention_assets.errors import GuardRefused, SourceError, StoreError
from retention_assets.icechunk.administration import upgrade as module
from retention_assets.icechunk.administration.upgrade import upgrade
from retention_assets.icechunk.formats.ids import decode_id
from retention_assets.icechunk.formats.model import Repo
from retention_assets.icechunk.formats.paths import write_reference
from retention_assets.icechunk.formats.repo_reader import read_repo
from retention_assets.icechunk.formats.repo_writer import write_repo
from retention_assets.icechunk.formats.values import read_flexbuffer
from retention_assets.objectstore.mutate.writing import ObjectWriter
from retention_assets.objectstore.objects import ObjectReader
from tests.faulty_s3 import Faults, faulty_s3
from tests.icechunk.sweep.repositories import (
    AS_OF,
    DAYS,
    IcechunkRepository,
    histories,
    now,
    tree,
    uploaded,
    values,
)
from tests.icechunk.sweep.writer import commit_to, storage_of
from tests.icechunk_repositories import (
    build_varied,
    create_repository,
    open_repository,
    set_stored_at,
)
from tests.objectstore.s3 import Bucket


def repo_in(directory: Path) -> Repo:
    return read_repo((directory / "repo").read_bytes(), "repo")


def comparable(repo: Repo) -> Repo:
    """Return the repo object without the time of the upgrade and the encoding of metadata, which differ."""
    top, *older = repo.latest_updates
    plain = {its_id: replace(one, metadata={}) for its_id, one in repo.snapshots.items()}
    return replace(repo, snapshots=plain, latest_updates=(replace(top, updated_at=0), *older), config=None)


def test_an_upgraded_repository_equals_the_one_that_icechunk_upgrades(tmp_path: Path):
    build_varied(tmp_path / "ours", 1)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    repository = IcechunkRepository(tmp_path / "ours", {})
    done = upgrade(repository.access, now, dry_run=False)
    ic.upgrade_icechunk_repository(open_repository(tmp_path / "theirs"), dry_run=False)
    ours, theirs = repo_in(tmp_path / "ours"), repo_in(tmp_path / "theirs")
    assert comparable(ours) == comparable(theirs)
    assert ours.config is not None and theirs.config is not None
    assert read_flexbuffer(ours.config, "ours") == read_flexbuffer(theirs.config, "theirs")
    assert repository.files().keys() - {"repo"} == IcechunkRepository(tmp_path / "theirs", {}).files().keys() - {"repo"}
    assert (done.snapshots, done.branches, done.tags, done.left_out) == (len(ours.snapshots), 2, 2, 1)


def test_icechunk_reads_commits_and_uses_its_configuration_after_the_upgrade(tmp_path: Path):
    repository = tree(tmp_path / "r", 1)
    before = histories(repository.open()), values(repository.open())
    upgrade(repository.access, now, dry_run=False)
    opened = repository.open()
    assert opened.spec_version == ic.SpecVersion.v2
    assert (histories(opened), values(opened)) == before
    assert opened.config.inline_chunk_threshold_bytes == 0
    commit_to(opened)
    assert opened.list_tags() == {"v1", "v2"}


def test_an_upgrade_reads_every_snapshot_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    paths: Counter[str] = Counter()
    read = ObjectReader.read_with_metadata

    def counted(self: ObjectReader, path: str):  # type: ignore[no-untyped-def]
        paths[path] += 1
        return read(self, path)

    monkeypatch.setattr(ObjectReader, "read_with_metadata", counted)
    upgrade(repository.access, now, dry_run=False)
    snapshots = repository.files("snapshots")
    assert {path: paths[path] for path in snapshots} == dict.fromkeys(snapshots, 1)


def test_a_configuration_with_variants_is_upgraded(tmp_path: Path):
    opened = create_repository(tmp_path, 1)
    config = opened.config
    condition = ic.ManifestPreloadCondition.or_conditions(
        [ic.ManifestPreloadCondition.name_matches("a.*"), ic.ManifestPreloadCondition.true()]
    )
    config.manifest = ic.ManifestConfig(preload=ic.ManifestPreloadConfig(max_total_refs=7, preload_if=condition))
    config.compression = ic.CompressionConfig(level=5)
    config.set_virtual_chunk_container(ic.VirtualChunkContainer("s3://elsewhere/", ic.s3_store(region="eu-west-1")))
    opened.reopen(config=config).save_config()
    shutil.copytree(tmp_path, tmp_path / "theirs", ignore=shutil.ignore_patterns("theirs"))
    upgrade(IcechunkRepository(tmp_path, {}).access, now, dry_run=False)
    ic.upgrade_icechunk_repository(open_repository(tmp_path / "theirs"), dry_run=False)
    ours, theirs = repo_in(tmp_path).config, repo_in(tmp_path / "theirs").config
    assert read_flexbuffer(ours or b"", "ours") == read_flexbuffer(theirs or b"", "theirs")
    assert open_repository(tmp_path).config == open_repository(tmp_path / "theirs").config


def test_a_dry_run_returns_the_same_result_and_writes_nothing(tmp_path: Path):
    repository = tree(tmp_path / "r", 1)
    before = repository.files()
    would = upgrade(repository.access, now, dry_run=True)
    assert repository.files() == before
    assert upgrade(repository.access, now, dry_run=False) == would
    assert {*would.removed} == {name for name in before if name.startswith("refs/") or name == "config.yaml"}


def half_upgraded(directory: Path) -> IcechunkRepository:
    """A repository whose upgrade was interrupted after it wrote the repo object, with all old files."""
    repository = tree(directory, 1)
    ic.upgrade_icechunk_repository(repository.open(), dry_run=False, delete_unused_v1_files=False)
    return repository


def test_an_upgrade_that_left_old_files_is_completed(tmp_path: Path):
    repository = half_upgraded(tmp_path / "r")
    before = histories(repository.open())
    done = upgrade(repository.access, now, dry_run=False)
    assert done.was_half_done
    assert not repository.files("refs")
    assert histories(repository.open()) == before
    with pytest.raises(GuardRefused, match="format 2 already"):
        upgrade(repository.access, now, dry_run=False)


def acting_after_creation(monkeypatch: pytest.MonkeyPatch, act) -> None:  # type: ignore[no-untyped-def]
    create = ObjectWriter.create

    def create_and_act(self: ObjectWriter, path: str, content: bytes) -> bool:
        done = create(self, path, content)
        if path == "repo":
            act()
        return done

    monkeypatch.setattr(ObjectWriter, "create", create_and_act)


def crash_after_creation(
    repository: IcechunkRepository, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], datetime] = now
) -> None:
    """Upgrade, and crash after the repo object is written."""

    def die() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        acting_after_creation(patch, die)
        with pytest.raises(KeyboardInterrupt):
            upgrade(repository.access, clock, dry_run=False)


def interrupted_with_a_late_commit(repository: IcechunkRepository, monkeypatch: pytest.MonkeyPatch) -> str:
    """Upgrade, and crash after the repo object is written.

    Another writer commits after the upgrade read the references, and before it takes the time for the ops log.
    """
    session = repository.open().writable_session("main")
    calls: list[datetime] = []
    late: list[str] = []

    def clock() -> datetime:
        calls.append(now())
        if len(calls) == 2:  # the first call is for reading the state
            late.append(session.commit("late", allow_empty=True))
        return now()

    crash_after_creation(repository, monkeypatch, clock)
    return late[0]


def test_an_interrupted_upgrade_without_a_later_commit_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    late = interrupted_with_a_late_commit(repository, monkeypatch)
    with pytest.raises(
        SourceError, match=rf"branch\.main.*does not list its snapshot {late}.*`retention icechunk REPO"
    ):
        repository.state()  # the commit must not be collected
    before = repository.files()
    with pytest.raises(GuardRefused, match=r"Nothing was changed\. Stop all writers.*again without --dry-run"):
        upgrade(repository.access, now, dry_run=True)
    assert repository.files() == before
    with pytest.raises(
        GuardRefused, match=r"so the upgrade was undone.*Stop all writers of format 1, and upgrade again"
    ):
        upgrade(repository.access, now, dry_run=False)
    assert before.keys() - repository.files().keys() == {"repo"}
    upgrade(repository.access, now, dry_run=False)
    assert histories(repository.open())["branch main"][0] == "late"


@pytest.mark.parametrize("how", ["written_in_format_2", "old_reference_gone", "old_configuration_gone"])
def test_an_interrupted_upgrade_without_a_later_commit_that_cannot_be_undone_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    repository = tree(tmp_path / "r", 1)
    late = interrupted_with_a_late_commit(repository, monkeypatch)
    if how == "written_in_format_2":
        repository.open().create_tag("early", repository.ids["a"])
    else:
        gone = "config.yaml" if how == "old_configuration_gone" else "refs/branch.dev/ref.json"
        (repository.directory / gone).unlink()
    before = repository.files()
    with pytest.raises(SourceError, match=rf"branch\.main.*does not list its snapshot {late}.*delete the object"):
        upgrade(repository.access, now, dry_run=False)
    assert repository.files() == before


def test_an_interrupted_upgrade_without_a_new_branch_is_undone(tmp_path: Path):
    repository = half_upgraded(tmp_path / "r")
    (repository.directory / "refs/branch.new").mkdir()
    (repository.directory / "refs/branch.new/ref.json").write_bytes(write_reference(decode_id(repository.ids["c"])))
    with pytest.raises(GuardRefused, match="so the upgrade was undone"):
        upgrade(repository.access, now, dry_run=False)
    upgrade(repository.access, now, dry_run=False)
    assert repository.open().lookup_branch("new") == repository.ids["c"]


def test_a_branch_of_format_1_after_an_interrupted_upgrade_is_not_removed_if_others_wrote_in_format_2(tmp_path: Path):
    """The repo object lists the snapshot of the branch, but not the branch, and can no longer be undone."""
    repository = half_upgraded(tmp_path / "r")
    repository.open().create_tag("early", repository.ids["a"])
    (repository.directory / "refs/branch.new").mkdir()
    (repository.directory / "refs/branch.new/ref.json").write_bytes(write_reference(decode_id(repository.ids["c"])))
    before = repository.files()
    with pytest.raises(GuardRefused, match=r"save the snapshots that the old references name.*Then remove these files"):
        upgrade(repository.access, now, dry_run=False)
    assert repository.files() == before


@pytest.mark.parametrize("how", ["as_it_is", "copied", "first_backup_gone"])
def test_references_that_an_upgrade_left_are_no_sign_of_a_writer_once_their_snapshots_are_released(
    tmp_path: Path, how: str
):
    """In a copy of the repository, the files of the references are newer than the upgrade."""
    repository = half_upgraded(tmp_path / "r")
    repository.publish(repository.plan())
    if how == "copied":
        set_stored_at(repository.directory, now() + timedelta(minutes=1))
    if how == "first_backup_gone":
        max((repository.directory / "overwritten").iterdir()).unlink()  # their names count down to the year 3000
    assert decode_id(repository.ids["z"]) not in repository.state().history.snapshots
    assert (repository.directory / "snapshots" / repository.ids["z"]).exists()


def test_nothing_is_published_while_it_would_make_a_reference_that_an_upgrade_left_look_like_a_writers(
    tmp_path: Path,
):
    """The ops log no longer reaches back to the upgrade, as after a month of `collect_overwritten`."""
    repository = half_upgraded(tmp_path / "r")
    for number in range(3):
        repository.open().create_tag(f"t{number}", repository.ids["f"])
    repo = repo_in(repository.directory)
    (repository.directory / "repo").write_bytes(write_repo(replace(repo, latest_updates=repo.latest_updates[:1])))
    shutil.rmtree(repository.directory / "overwritten")
    plan, before = repository.plan(), repository.files()
    refused = rf"refs/tag\.v1: .*removes its snapshot {repository.ids['b']}.*Nothing was changed.*icechunk REPO upgrade"
    with pytest.raises(SourceError, match=refused):
        repository.publish(plan)
    assert repository.files() == before
    assert upgrade(repository.access, now, dry_run=False).was_half_done
    assert repository.publish(plan).references_removed == ("refs/branch.old", "refs/tag.v1")
    assert decode_id(repository.ids["z"]) not in repository.state().history.snapshots


def test_a_deleted_tag_that_an_upgrade_left_is_no_sign_of_a_writer(tmp_path: Path):
    """An upgrade does not add a snapshot to the repo object that only a deleted tag points to."""
    repository = tree(tmp_path / "r", 1)
    opened = repository.open()
    only = opened.writable_session("old").commit("only", allow_empty=True)
    opened.create_tag("gone", only)
    opened.delete_tag("gone")
    opened.reset_branch("old", repository.ids["z"])
    ic.upgrade_icechunk_repository(repository.open(), dry_run=False, delete_unused_v1_files=False)
    assert decode_id(only) not in repository.state().history.snapshots
    assert upgrade(repository.access, now, dry_run=False).was_half_done


def test_old_files_are_removed_after_their_snapshots_were_released(tmp_path: Path):
    """The references that the upgrade left are no sign of a writer of format 1, since the repo object had them."""
    repository = half_upgraded(tmp_path / "r")
    repository.publish(repository.plan())
    assert set(upgrade(repository.access, now, dry_run=False).removed) >= {
        "refs/branch.old/ref.json",
        "refs/tag.v1/ref.json",
    }
    assert not repository.files("refs")


OLD_TAG = "repository/refs/tag.v1/ref.json"


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        pytest.param(Faults(errors={OLD_TAG: "AccessDenied"}), "AccessDenied", id="it_may_not_be_deleted"),
        pytest.param(Faults(conditions="kept"), "somebody wrote to it meanwhile", id="it_is_rewritten"),
    ],
)
def test_an_old_file_that_stays_is_named_and_the_next_upgrade_deletes_it(
    tmp_path: Path, bucket: Bucket, faults: Faults, why: str
):
    repository = half_upgraded(tmp_path / "r")
    uploaded(repository.directory, bucket)
    same_snapshot = write_reference(decode_id(repository.ids["b"])) + b"\n"

    def another_writes() -> datetime:
        if not faults.errors:
            bucket.client().put_object(Bucket=bucket.name, Key=OLD_TAG, Body=same_snapshot)
        return now()

    left = r"upgraded\. 1 old file is left\. Stop all writers of format 1, and upgrade again"
    with faulty_s3(bucket.endpoint) as proxy:
        proxy.faults = faults
        access = bucket.access("repository", endpoint=proxy.endpoint)
        with pytest.raises(StoreError, match=f"{OLD_TAG}: it was not deleted: .*{why}.* {left}"):
            upgrade(access, another_writes, dry_run=False)
    assert upgrade(bucket.access("repository"), now, dry_run=False).removed == ("refs/tag.v1/ref.json",)


def test_the_tombstone_of_a_tag_stays_as_long_as_the_file_of_the_tag(tmp_path: Path, bucket: Bucket):
    """Otherwise the next upgrade would take the deleted tag for a new one."""
    repository = tree(tmp_path / "r", 1)
    repository.open().delete_tag("v1")
    ic.upgrade_icechunk_repository(repository.open(), dry_run=False, delete_unused_v1_files=False)
    uploaded(repository.directory, bucket)
    with faulty_s3(bucket.endpoint) as proxy:
        proxy.faults = Faults(errors={OLD_TAG: "AccessDenied"})
        access = bucket.access("repository", endpoint=proxy.endpoint)
        with pytest.raises(StoreError, match=r"2 old files are left"):
            upgrade(access, now, dry_run=False)
    removed = upgrade(bucket.access("repository"), now, dry_run=False).removed
    assert removed == ("refs/tag.v1/ref.json", "refs/tag.v1/ref.json.deleted")


def test_a_reference_that_is_written_in_the_last_moment_is_not_deleted_on_a_store_without_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    session, check = repository.open().writable_session("main"), module._require_nobody_wrote

    def commit_after_the_check(*given: Any) -> None:
        check(*given)
        session.commit("late", allow_empty=True)

    monkeypatch.setattr(module, "_require_nobody_wrote", commit_after_the_check)
    left = r"somebody wrote to it meanwhile\. The repository is upgraded\. 1 old file is left"
    with pytest.raises(StoreError, match=rf"refs/branch\.main/ref\.json: it was not deleted: {left}"):
        upgrade(repository.access, now, dry_run=False)
    assert set(repository.files("refs")) == {"refs/branch.main/ref.json"}
    with pytest.raises(SourceError, match="somebody may have written this reference with an old icechunk version"):
        repository.state()


def test_a_commit_in_format_1_during_the_upgrade_undoes_the_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    session = repository.open().writable_session("main")  # opened before: it knows format 1 only
    acting_after_creation(monkeypatch, lambda: session.commit("late", allow_empty=True))
    with pytest.raises(GuardRefused, match=r"during the upgrade, so the upgrade was undone.*Stop all writers"):
        upgrade(repository.access, now, dry_run=False)
    assert not (repository.directory / "repo").exists()
    assert histories(repository.open())["branch main"][0] == "late"
    monkeypatch.undo()
    upgrade(repository.access, now, dry_run=False)
    assert histories(repository.open())["branch main"][0] == "late"


@pytest.mark.parametrize("collects", [False, True], ids=["expired", "expired_and_collected"])
def test_an_expiration_by_icechunk_during_the_upgrade_undoes_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collects: bool
):
    """The references stay as they are. But the repo object would list snapshots that nothing reaches any more."""
    repository = tree(tmp_path / "r", 1)
    set_stored_at(repository.directory, DAYS[0])
    other = repository.open()  # opened before: it knows format 1 only

    def expire() -> None:
        other.expire_snapshots(AS_OF)
        if collects:
            other.garbage_collect(now() - timedelta(hours=1))

    acting_after_creation(monkeypatch, expire)
    with pytest.raises(GuardRefused, match=r"during the upgrade, so the upgrade was undone.*Stop all writers"):
        upgrade(repository.access, now, dry_run=False)
    assert not (repository.directory / "repo").exists()
    monkeypatch.undo()
    upgrade(repository.access, now, dry_run=False)
    assert histories(repository.open())["branch main"] == ["f", "e", "-"]


def test_an_expiration_by_icechunk_after_an_interrupted_upgrade_undoes_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    other = repository.open()
    crash_after_creation(repository, monkeypatch)
    other.expire_snapshots(AS_OF)
    with pytest.raises(GuardRefused, match=r"so the upgrade was undone.*Stop all writers"):
        upgrade(repository.access, now, dry_run=False)
    upgrade(repository.access, now, dry_run=False)
    assert histories(repository.open())["branch main"] == ["f", "e", "-"]


def save_another_configuration(opened: ic.Repository) -> None:
    config = opened.config
    config.inline_chunk_threshold_bytes = 777
    opened.reopen(config=config).save_config()


CHANGES: dict[str, Callable[[ic.Repository], None]] = {
    "configuration-is-saved": save_another_configuration,
    "tag-is-deleted": lambda opened: opened.delete_tag("v1"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_in_format_1_after_an_interrupted_upgrade_undoes_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    repository = tree(tmp_path / "r", 1)
    other = repository.open()  # opened before: it knows format 1 only
    crash_after_creation(repository, monkeypatch)
    CHANGES[how](other)
    before = repository.files()
    with pytest.raises(GuardRefused, match=r"Nothing was changed\. Stop all writers.*again without --dry-run"):
        upgrade(repository.access, now, dry_run=True)
    with pytest.raises(GuardRefused, match=r"so the upgrade was undone.*Stop all writers"):
        upgrade(repository.access, now, dry_run=False)
    assert before.keys() - repository.files().keys() == {"repo"}
    upgrade(repository.access, now, dry_run=False)
    opened = repository.open()
    found = opened.config.inline_chunk_threshold_bytes, opened.list_tags()
    assert found == ((777, {"v1", "v2"}) if how == "configuration-is-saved" else (0, {"v2"}))


@pytest.mark.parametrize("how", CHANGES)
def test_an_upgrade_is_not_finished_after_a_change_in_format_1_if_others_wrote_in_format_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    repository = tree(tmp_path / "r", 1)
    other = repository.open()
    crash_after_creation(repository, monkeypatch)
    CHANGES[how](other)
    repository.open().create_tag("early", repository.ids["a"])
    before = repository.files()
    refused = r"delete the tags that have a file.*save the configuration in config\.yaml\. Then remove these files"
    with pytest.raises(GuardRefused, match=refused):
        upgrade(repository.access, now, dry_run=False)
    assert repository.files() == before
    for path in ("refs/tag.v1/ref.json.deleted", "config.yaml"):
        (repository.directory / path).unlink(missing_ok=True)
    assert upgrade(repository.access, now, dry_run=False).was_half_done


@pytest.mark.parametrize("is_edited", [False, True], ids=["unchanged", "edited_in_format_2"])
def test_settings_that_an_old_configuration_lacks_are_no_sign_of_a_writer(tmp_path: Path, *, is_edited: bool):
    """Icechunk's upgrade writes null or false for the settings that older versions do not know."""
    repository = tree(tmp_path / "r", 1)
    (repository.directory / "config.yaml").write_text(OLD_CONFIGURATION)
    ic.upgrade_icechunk_repository(repository.open(), dry_run=False, delete_unused_v1_files=False)
    if is_edited:
        save_another_configuration(repository.open())
    assert "config.yaml" in upgrade(repository.access, now, dry_run=False).removed


OLD_CONFIGURATION = """\
inline_chunk_threshold_bytes: 8
compression: {}
storage: null
virtual_chunk_containers:
  s3://elsewhere/:
    url_prefix: s3://elsewhere/
    store: !s3
      region: us-east-1
      endpoint_url: null
      anonymous: false
      allow_http: false
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("bytes: 8", "bytes: null", id="null_in_place_of_a_number"),
        pytest.param("storage: null", "storage: {unsafe_use_conditional_update: false}", id="false_in_place_of_null"),
        pytest.param("storage: null", "manifest: {preload: {max_total_refs: 7}}", id="another_group"),
        pytest.param(OLD_CONFIGURATION[OLD_CONFIGURATION.index("virtual") :], "", id="a_container_less"),
    ],
)
def test_each_changed_setting_undoes_an_interrupted_upgrade(tmp_path: Path, old: str, new: str):
    repository = tree(tmp_path / "r", 1)
    config = repository.directory / "config.yaml"
    config.write_text(OLD_CONFIGURATION)
    ic.upgrade_icechunk_repository(repository.open(), dry_run=False, delete_unused_v1_files=False)
    config.write_text(OLD_CONFIGURATION.replace(old, new))
    with pytest.raises(GuardRefused, match="so the upgrade was undone"):
        upgrade(repository.access, now, dry_run=False)
    assert config.exists()


def test_a_configuration_that_is_new_since_an_interrupted_upgrade_undoes_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    (repository.directory / "config.yaml").unlink()
    other = repository.open()
    crash_after_creation(repository, monkeypatch)
    save_another_configuration(other)
    with pytest.raises(GuardRefused, match="so the upgrade was undone"):
        upgrade(repository.access, now, dry_run=False)
    assert (repository.directory / "config.yaml").exists()


def test_a_half_written_reference_during_the_upgrade_undoes_the_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    repository = tree(tmp_path / "r", 1)
    reference = repository.directory / "refs/branch.main/ref.json"
    whole = reference.read_bytes()
    acting_after_creation(monkeypatch, lambda: reference.write_bytes(whole[:9]))
    with pytest.raises(GuardRefused, match=r"during the upgrade, so the upgrade was undone.*Stop all writers"):
        upgrade(repository.access, now, dry_run=False)
    assert not (repository.directory / "repo").exists()


def test_an_upgrade_that_others_have_edited_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    session = repository.open().writable_session("main")

    def both_write() -> None:
        session.commit("late", allow_empty=True)
        repository.open().create_tag("early", repository.ids["a"])

    acting_after_creation(monkeypatch, both_write)
    with pytest.raises(GuardRefused, match=r"in format 1 during the upgrade\. The upgrade was not undone: somebody"):
        upgrade(repository.access, now, dry_run=False)
    assert "early" in repository.open().list_tags()
    assert (repository.directory / "refs/branch.main/ref.json").is_file()


def test_exactly_one_of_two_concurrent_upgrades_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    repository = tree(tmp_path / "r", 1)
    create = ObjectWriter.create

    def another_first(self: ObjectWriter, path: str, content: bytes) -> bool:
        (repository.directory / "repo").exists() or ic.upgrade_icechunk_repository(repository.open(), dry_run=False)
        return create(self, path, content)

    monkeypatch.setattr(ObjectWriter, "create", another_first)
    with pytest.raises(GuardRefused, match=r"somebody else upgraded the repository just now. Nothing was changed"):
        upgrade(repository.access, now, dry_run=False)
    assert len(histories(repository.open())) == 5


def test_a_repository_in_a_bucket_is_upgraded(tmp_path: Path, bucket: Bucket):
    repository = tree(tmp_path / "r", 1)
    repository.open().delete_tag("v1")
    access = uploaded(repository.directory, bucket)
    before = histories(ic.Repository.open(storage_of(bucket.endpoint, bucket.name, "repository")))
    done = upgrade(access, now, dry_run=False)
    assert len(done.removed) == 6
    assert not ObjectReader(access).holds_objects("refs")
    opened = ic.Repository.open(storage_of(bucket.endpoint, bucket.name, "repository"))
    assert opened.spec_version == ic.SpecVersion.v2
    assert histories(opened) == before
    commit_to(opened)
