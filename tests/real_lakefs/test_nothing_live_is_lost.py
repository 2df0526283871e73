"""Operations of users that once lost live data: plan, approve, sweep, then read every object from the real server."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from urllib.parse import quote

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from tests.end_to_end.command import Json
from tests.real_lakefs.hooks import Webhook
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.retention import Retention
from tests.real_lakefs.server import Server
from tests.real_lakefs.stores import BUCKET, S3Store

pytestmark = pytest.mark.usefixtures("spark")

LONG_AGO = datetime(2015, 1, 1, tzinfo=UTC)
FOREVER_ON_GOLD: Json = {
    "retention": {"default": "7d", "branches": [{"branch": "gold", "keep": "forever"}]},
}


def garbage(repository: Repository) -> str:
    """Leave an unreferenced object next to a committed one; return its address. A sweep must delete the object."""
    repository.upload_and_commit("main", "always", b"there")
    address = repository.upload("main", "thrown-away", b"garbage")
    repository.reset("main", "thrown-away")
    return address


def require_all_readable(repository: Repository, gone: str) -> None:
    """Require that every object of every branch, tag and staging area can be read, and that the garbage is gone."""
    assert repository.unreadable() == []
    assert gone not in repository.stored()


# ---- addresses inside the namespace in another form of its URL


@pytest.mark.parametrize(
    "commits", [pytest.param(True, id="committed"), pytest.param(False, id="staged", marks=pytest.mark.slow)]
)
def test_an_object_linked_by_the_address_that_a_local_server_prints_stays(
    lakefs: Server, tmp_path: Path, *, commits: bool
) -> None:
    repository = lakefs.new_repository("linked")
    gone = garbage(repository)
    linked = repository.upload_and_link("main", "tables/linked.parquet", b"parquet bytes")
    if commits:
        repository.commit("main")
    lakefs.clock.forward(days=3)
    retention = Retention(tmp_path, repository, settle="0s")
    assert {row["address"] for row in retention.plan_and_sweep()} == {gone}
    assert linked in repository.stored()
    require_all_readable(repository, gone)
    assert retention.verify().status == 0


def test_an_object_linked_in_a_namespace_that_the_server_spells_decoded_stays(
    lakefs_on_s3: Server, tmp_path: Path
) -> None:
    repository = lakefs_on_s3.new_repository("linked", suffix="-my%20ns")
    gone = garbage(repository)
    printed = repository.backing("main", "linked")
    assert "my ns" in printed
    repository.write_backing(printed, b"parquet bytes")
    repository.link("main", "linked", printed, b"parquet bytes")
    repository.commit("main")
    assert repository.unreadable() == []
    lakefs_on_s3.clock.forward(days=3)
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    require_all_readable(repository, gone)


@pytest.mark.parametrize("suffix", ["-my ns", pytest.param("-größe", marks=pytest.mark.slow)])
def test_a_staged_object_that_a_client_linked_with_a_percent_encoded_address_stays(
    lakefs_on_s3: Server, tmp_path: Path, suffix: str
) -> None:
    """The server prints its namespace as it was given, and leaves the object out of its staged list."""
    repository = lakefs_on_s3.new_repository("encoded", suffix=suffix)
    gone = garbage(repository)
    repository.upload("main", "shown", b"the page of the list is not empty")
    printed = repository.backing("main", "linked")
    linked = repository.write_backing(printed, b"parquet bytes")
    repository.link("main", "linked", quote(printed, safe=":/,"), b"parquet bytes")
    assert repository.unreadable() == []
    lakefs_on_s3.clock.forward(days=3)
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    assert linked in repository.stored()
    require_all_readable(repository, gone)


@pytest.mark.parametrize(
    "spelled",
    [
        pytest.param("s3://{}/./{}", id="with_a_dot"),
        pytest.param("s3://{}//{}", id="with_two_slashes", marks=pytest.mark.slow),
    ],
)
def test_an_object_that_a_client_staged_by_its_plain_address_stays_in_a_namespace_that_is_spelled_otherwise(
    lakefs_on_s3: Server, tmp_path: Path, spelled: str
) -> None:
    """The server leaves the object out of its staged list."""
    first = lakefs_on_s3.new_repository("plain")
    folder = f"{first.folder}-second"
    body = {"name": f"{first.name}-second", "storage_namespace": spelled.format(BUCKET, folder)}
    first.client.ask("POST", "/repositories", body=body)
    repository = replace(first, name=body["name"], namespace=body["storage_namespace"], folder=folder)
    gone = garbage(repository)
    repository.upload("main", "shown", b"the page of the list is not empty")
    address = repository.upload("main", "a", b"content")
    repository.reset("main", "a")
    repository.stage("main", "b", f"s3://{BUCKET}/{repository.folder}/{address}", b"content")
    assert repository.unreadable() == []
    lakefs_on_s3.clock.forward(days=3)
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    assert address in repository.stored()
    require_all_readable(repository, gone)


@pytest.mark.parametrize(
    "commits", [pytest.param(False, id="staged"), pytest.param(True, id="committed", marks=pytest.mark.slow)]
)
def test_objects_that_a_client_staged_with_superfluous_slashes_or_dots_stay(
    lakefs_on_s3: Server, tmp_path: Path, *, commits: bool
) -> None:
    """Some stores resolve such addresses, as a file system does. There the server can read these objects."""
    repository = lakefs_on_s3.new_repository("slashes")
    gone = garbage(repository)
    found = [repository.upload("main", path, b"content") for path in "abcdef"]
    if commits:
        repository.commit("main")
    for path in "abcdef":
        (repository.delete if commits else repository.reset)("main", path)
    if commits:
        repository.commit("main")
    lakefs_on_s3.clock.forward(days=30)
    addresses = (
        f"/{found[0]}",
        found[1].replace("data/", "data//"),
        f"x/.././{found[2]}",
        found[3].replace("data/", "data/x/../"),
        f"data/../{found[4]}/x/..",
        f"{found[5]}/.",
    )
    for path, address in zip("123456", addresses, strict=True):
        repository.stage("main", path, f"{repository.namespace}/{address}", b"content")
    if commits:
        repository.commit("main")
    before = repository.unreadable()
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    assert {*found} <= {*repository.stored()}
    assert gone not in repository.stored()
    assert repository.unreadable() == before


# ---- entries that the server's own lists hide


@pytest.mark.parametrize("server", ["lakefs", pytest.param("lakefs_on_s3", marks=pytest.mark.slow)])
def test_an_object_that_was_uploaded_again_with_the_same_content_stays(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    repository = request.getfixturevalue(server).new_repository("again")
    gone = garbage(repository)
    repository.upload_and_commit("main", "_SUCCESS", b"done")
    again = repository.upload("main", "_SUCCESS", b"done")
    assert repository.diff("main") == []
    repository.server.clock.forward(days=3)
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    assert again in repository.stored()
    require_all_readable(repository, gone)


@pytest.mark.parametrize("server", ["lakefs", pytest.param("lakefs_on_s3", marks=pytest.mark.slow)])
def test_an_object_that_was_uploaded_again_in_parts_or_copied_again_stays(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    """The checksum of an upload in parts is no MD5 of the content, and a copy takes its source's checksum along."""
    repository = request.getfixturevalue(server).new_repository("parts")
    gone = garbage(repository)
    repository.upload_in_parts("main", "table", b"in one part")
    repository.copy("main", "table", "copy")
    repository.commit("main")
    again = {repository.upload_in_parts("main", "table", b"in one part"), repository.copy("main", "table", "copy")}
    assert repository.diff("main") == []
    repository.server.clock.forward(days=3)
    Retention(tmp_path, repository, settle="0s").plan_and_sweep()
    assert again <= set(repository.stored())
    require_all_readable(repository, gone)


def require_kept(repository: Repository, directory: Path, again: str, gone: str) -> None:
    """Plan and sweep three days later. Require that all objects, also the hidden one, can be read, without garbage."""
    assert repository.diff("main") == []
    assert repository.stat("main", "table")["physical_address"].endswith(again)
    repository.server.clock.forward(days=3)
    Retention(directory, repository, settle="0s").plan_and_sweep()
    assert again in repository.stored()
    require_all_readable(repository, gone)


def test_a_hidden_object_stays_in_a_repository_whose_checksums_are_no_md5_sums(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("parts-only")
    gone = repository.upload("main", "thrown-away", b"garbage")
    repository.reset("main", "thrown-away")
    repository.upload_in_parts("main", "table", b"a first part, ", b"and a second one")
    repository.commit("main")
    require_kept(repository, tmp_path, repository.copy("main", "table", "table"), gone)


@pytest.mark.slow
def test_a_hidden_object_stays_when_the_object_at_head_is_outside_the_namespace(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("outside")
    gone = garbage(repository)
    assert lakefs.imports_from is not None
    outside = lakefs.imports_from / repository.name
    outside.mkdir()
    (outside / "big").write_bytes(b"content of a big file")
    repository.stage_as("main", "table", f"local://{outside}/big", "1931a52349230b949aaec2ffe1d615e1-2", size=21)
    repository.commit("main")
    require_kept(repository, tmp_path, repository.copy("main", "table", "table"), gone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checksum", "size", "contents"),
    [
        pytest.param("d41d8cd98f00b204e9800998ecf8427e", 7, (b"content", b"CONTENT"), id="one_checksum_for_all"),
        pytest.param(md5(b"content").hexdigest(), 0, (b"content", b"content"), id="no_sizes"),
    ],
)
def test_a_hidden_object_that_a_client_linked_with_a_made_up_checksum_and_size_stays(
    lakefs: Server, tmp_path: Path, checksum: str, size: int, contents: tuple[bytes, bytes]
) -> None:
    repository = lakefs.new_repository("made-up")
    gone = repository.upload("main", "thrown-away", b"garbage is longer")
    repository.reset("main", "thrown-away")

    def link(content: bytes) -> str:
        printed = repository.backing("main", "table")
        address = repository.write_backing(printed, content)
        repository.link_as("main", "table", printed, checksum, size=size)
        return address

    link(contents[0])
    repository.commit("main")
    require_kept(repository, tmp_path, link(contents[1]), gone)


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 2**17])
def test_a_hidden_object_stays_if_the_bucket_encrypts_objects_since_the_last_commit(
    lakefs_on_moto: Server, tmp_path: Path, size: int
) -> None:
    """The ETag of an object that a key of KMS encrypts looks like an MD5."""
    repository, store = lakefs_on_moto.new_repository("kms"), lakefs_on_moto.store
    assert isinstance(store, S3Store)
    gone = garbage(repository)
    repository.upload_and_commit("main", "table", bytes(size))
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    store.client().put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [rule]})
    again = repository.upload("main", "table", bytes(size))
    store.client().delete_bucket_encryption(Bucket=BUCKET)
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_object(BUCKET, f"{repository.folder}/{again}")._etag = "0f" * 16
    require_kept(repository, tmp_path, again, gone)


# ---- operations that began before the plan


def test_an_object_that_is_overwritten_while_its_commit_waits_for_a_hook_stays(
    lakefs: Server, hook: Webhook, tmp_path: Path
) -> None:
    repository = lakefs.new_repository("waiting")
    repository.add_hook("main", hook)
    gone = garbage(repository)
    lakefs.clock.forward(days=2)
    retention = Retention(tmp_path, repository)
    retention.plan()  # the garbage waits from now on
    repository.upload("main", "p.csv", b"first")
    lakefs.clock.forward(days=2)
    commit = repository.commit_under_way("main", hook)
    repository.upload("main", "p.csv", b"second")
    retention.plan_and_sweep()
    hook.release()
    commit.ended()
    assert repository.read("main@", "p.csv") == (200, b"first")
    require_all_readable(repository, gone)
    assert retention.verify().status == 0


def merged(repository: Repository) -> None:
    repository.merge("feature", "main")


def reverted(repository: Repository) -> None:
    repository.revert("main", "main")


def cherry_picked(repository: Repository) -> None:
    repository.cherry_pick("main", "feature")


@pytest.mark.parametrize(
    ("operation", "on"),
    [
        pytest.param(merged, "pre-merge", id="merge", marks=pytest.mark.slow),
        pytest.param(reverted, "pre-revert", id="revert"),
        pytest.param(cherry_picked, "pre-cherry-pick", id="cherry-pick", marks=pytest.mark.slow),
    ],
)
def test_an_expired_object_that_a_running_operation_commits_again_stays(
    lakefs: Server, hook: Webhook, tmp_path: Path, operation: Callable[[Repository], None], on: str
) -> None:
    repository = lakefs.new_repository("coming-back")
    repository.add_hook("main", hook, on=on)
    gone = garbage(repository)
    repository.upload_and_commit("main", "p.csv", b"first")
    repository.branch("feature")
    repository.upload_and_commit("feature", "q.csv", b"of the feature")
    repository.upload_and_commit("main", "p.csv", b"second")
    lakefs.clock.forward(days=5)
    retention = Retention(tmp_path, repository)
    retention.plan()
    lakefs.clock.forward(days=4)  # the commits that a branch left are expired by now
    hook.hold()
    under_way = repository.under_way(hook, lambda: operation(repository))
    repository.delete_branch("feature")
    retention.plan_and_sweep()
    hook.release()
    under_way.ended()
    require_all_readable(repository, gone)
    assert retention.verify().status == 0


# ---- branches and dates


def test_objects_of_a_branch_stay_after_the_branch_was_deleted_by_mistake(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("reflog")
    gone = garbage(repository)
    repository.branch("gold")
    repository.upload_and_commit("gold", "model", b"weights 1")
    repository.upload_and_commit("gold", "model", b"weights 2")
    commits = [commit["id"] for commit in repository.log("gold")[:2]]
    lakefs.clock.forward(days=20)
    retention = Retention(tmp_path, repository, policy=FOREVER_ON_GOLD, settle="0s", reflog=True)
    retention.plan()
    repository.delete_branch("gold")
    retention.write(reflog=False)
    retention.plan()  # one plan without the reflog forgets nothing
    retention.write(reflog=True)
    for _ in range(2):
        lakefs.clock.forward(days=10)
        retention.plan_and_sweep()
        for number, commit in enumerate(commits):
            repository.branch("gold-again", commit)
            assert repository.read("gold-again", "model") == (200, f"weights {2 - number}".encode())
            assert repository.unreadable() == []
            repository.delete_branch("gold-again")
    require_all_readable(repository, gone)


@pytest.mark.slow
def test_a_branch_that_was_reset_to_an_older_commit_keeps_its_earlier_objects(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("hard-reset")
    gone = garbage(repository)
    repository.upload_and_commit("main", "table", b"old")
    repository.upload_and_commit("main", "table", b"new")
    lakefs.clock.forward(days=20)
    retention = Retention(tmp_path, repository, settle="0s", reflog=True)
    retention.plan()
    newest = repository.branches()["main"]
    repository.hard_reset("main", repository.log("main")[1]["id"])
    lakefs.clock.forward(days=2)
    retention.plan_and_sweep()
    repository.branch("again", newest)
    assert repository.read("again", "table") == (200, b"new")
    require_all_readable(repository, gone)


def test_a_backdated_commit_expires_no_object_before_its_time(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("dated-back")
    gone = garbage(repository)
    repository.upload_and_commit("main", "table", b"first")
    first = repository.branches()["main"]
    lakefs.clock.forward(days=2)
    retention = Retention(tmp_path, repository, settle="0s", reflog=True)
    retention.plan()
    repository.upload_and_commit("main", "table", b"second", date=LONG_AGO)
    lakefs.clock.forward(days=2)
    retention.plan_and_sweep()
    repository.branch("again", first)
    assert repository.read("again", "table") == (200, b"first")
    require_all_readable(repository, gone)


@pytest.mark.slow
def test_an_object_of_a_backdated_commit_is_not_due_before_its_time(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("due-early")
    gone = garbage(repository)
    repository.upload_and_commit("main", "kept", b"1")
    lakefs.clock.forward(days=2)
    policy = {"lifecycle": [{"id": "raw", "prefix": "raw", "keep": "60d"}]}
    retention = Retention(tmp_path, repository, policy=policy, settle="0s", reflog=True)
    retention.plan()
    repository.upload_and_commit("main", "raw/today", b"2", date=LONG_AGO)
    lakefs.clock.forward(days=2)
    retention.plan_and_sweep()
    require_all_readable(repository, gone)


# ---- values from clients that the server does not verify


@pytest.mark.parametrize(
    "date", [pytest.param(1_700_000_000_000, id="milliseconds"), pytest.param(0, id="none", marks=pytest.mark.slow)]
)
def test_a_commit_with_an_impossible_date_keeps_the_objects_that_it_replaced(
    lakefs: Server, tmp_path: Path, date: int
) -> None:
    repository = lakefs.new_repository("no-date")
    gone = garbage(repository)
    first = repository.upload_and_commit("main", "table", b"first")
    repository.upload("main", "table", b"second")
    commit = repository.commit("main", date=date)
    replaced = repository.upload_and_commit("main", "table", b"third")
    repository.upload_and_commit("main", "table", b"fourth")
    lakefs.clock.forward(days=30)
    retention = Retention(tmp_path, repository, settle="0s")
    plan = retention.plan()
    assert any(
        text.startswith("1 commit has a date that is impossible") and commit in text for text in plan["warnings"]
    )
    retention.approve(plan)
    retention.sweep(plan)
    assert first in repository.stored()
    assert replaced not in repository.stored()
    require_all_readable(repository, gone)
    assert retention.run("explain", first, day=None).status == 0


def test_entries_with_an_impossible_time_are_planned_and_counted(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("no-time")
    gone = garbage(repository)
    assert lakefs.imports_from is not None
    outside = lakefs.imports_from / f"files-of-{repository.name}"
    outside.mkdir()
    for mtime in (1_700_000_000_000, 1_700_000_000_000_000, -(10**12)):
        (outside / f"x{mtime}").write_bytes(b"x")
        repository.stage_as("main", f"x{mtime}", f"local://{outside}/x{mtime}", "aa", size=1, mtime=mtime)
    lakefs.clock.forward(days=3)
    retention = Retention(tmp_path, repository, settle="0s")
    retention.plan()
    repository.commit("main")
    plan = retention.plan()
    assert "In the commits, 3 entries have no time, or an impossible time, which is not used." in plan["warnings"]
    retention.approve(plan)
    retention.sweep(plan)
    require_all_readable(repository, gone)


def test_objects_at_paths_that_are_not_text_stay(lakefs: Server, tmp_path: Path) -> None:
    """The server prints such paths with U+FFFD. Linked objects are found by the prefix before this character."""
    repository = lakefs.new_repository("no-text")
    gone = garbage(repository)
    paths = [b"linked/\x80", b"linked/\x81", "linked/é".encode(), b"\xff"]
    kept = {repository.upload_and_link("main", path, b"linked %d" % n) for n, path in enumerate(paths)}
    kept.add(repository.upload("main", b"raw/caf\xe9", b"uploaded"))
    lakefs.clock.forward(days=3)
    policy = {"lifecycle": [{"id": "all", "prefix": "", "keep": "1d"}]}
    retention = Retention(tmp_path, repository, policy=policy, settle="0s")
    retention.plan_and_sweep()
    assert kept <= repository.stored().keys()
    assert gone not in repository.stored()
    repository.commit("main")
    lakefs.clock.forward(days=3)
    plan = retention.plan()
    assert any("4 entries have a path that is not UTF-8 (first: linked/\ufffd80)" in text for text in plan["warnings"])
    retention.approve(plan)
    retention.sweep(plan)
    assert repository.stored().keys() & kept == kept - {repository.address_of(repository.stat("main", "linked/é"))}


# ---- a staged list that was made long before the dump


def test_an_object_that_was_hidden_from_an_old_staged_list_stays(lakefs: Server, tmp_path: Path) -> None:
    """HEAD had its content when the list was made. The branch moved before the dump was made."""
    repository = lakefs.new_repository("old-list")
    garbage(repository)
    repository.upload_and_commit("main", "table", b"one")
    repository.branch("dev")
    repository.upload_and_commit("dev", "table", b"other")
    hidden = repository.upload("main", "table", b"one")
    repository.upload("main", "another", b"shown")
    lakefs.clock.forward(days=3)
    staged = repository.staged_list()
    lake = Path(lakefs.store.settings(repository.folder)["storage"])
    for file in (lake / staged).iterdir():
        lakefs.store.set_time(repository.folder, str(file.relative_to(lake)), lakefs.clock())
    lakefs.clock.forward(hours=12)
    repository.hard_reset("main", repository.branches()["dev"])
    source = repository.dump(tmp_path / "dump.json")
    for table in json.loads((tmp_path / "dump.json").read_text("utf-8")).values():
        lakefs.store.set_time(repository.folder, f"_lakefs/{table}", lakefs.clock())
    retention = Retention(tmp_path / "retention", repository, settle="0s", source=source, staged=staged)
    plan = retention.plan()
    assert "is more than 2h older than the references" in plan["blocked"]
    refused = retention.run("sweep", day=plan["day"])
    assert refused.status == 1
    assert hidden in repository.stored()


def test_a_staged_object_that_neither_a_dump_nor_a_staged_list_shows_stays(lakefs: Server, tmp_path: Path) -> None:
    """A local server leaves an object out of its list if a client linked it with the address that the server prints."""
    repository = lakefs.new_repository("two-spellings")
    garbage(repository)
    linked = repository.upload_and_link("main", "linked", b"parquet bytes")
    repository.upload("main", "shown", b"1")
    lakefs.clock.forward(days=3)
    staged = repository.staged_list()
    source = repository.dump(tmp_path / "dump.json")
    retention = Retention(tmp_path / "retention", repository, settle="0s", source=source, staged=staged)
    plan = retention.plan()
    assert "the staged list may be incomplete" in plan["blocked"]
    assert retention.run("approve", plan["plan_hash"]).status == 1
    assert retention.run("sweep").status == 1
    assert linked in repository.stored()
    assert repository.unreadable() == []


def test_a_commit_that_was_lost_can_be_restored_from_a_newer_dump(lakefs: Server, tmp_path: Path) -> None:
    """The repository is restored from an old dump by mistake, and plans go on until somebody notices."""
    repository = lakefs.new_repository("rolled-back")
    for path in ("a", "b", "c"):
        repository.upload("main", path, path.encode())
    repository.commit("main")
    repository.dump(tmp_path / "old.json")
    repository.upload_and_commit("main", "d", b"only in the new dump")
    repository.dump(tmp_path / "new.json")
    lakefs.clock.forward(days=3)
    retention = Retention(tmp_path / "retention", repository)
    retention.plan()
    repository.roll_back(tmp_path / "old.json")
    for _ in range(2):
        lakefs.clock.forward(days=1, hours=1)
        plan = retention.plan()
        assert "cannot be found any more: branch main had " in plan["blocked"]
    assert retention.run("approve", plan["plan_hash"]).status == 1
    assert retention.run("sweep").status == 1
    repository.roll_back(tmp_path / "new.json")
    assert repository.unreadable() == []
    assert retention.plan()["blocked"] is None


# ---- a configuration that was corrected


def test_a_corrected_namespace_is_used_from_the_next_plan_on(lakefs: Server, tmp_path: Path) -> None:
    repository = lakefs.new_repository("mistyped")
    gone = garbage(repository)
    linked = repository.upload_and_link("main", "linked", b"parquet bytes")
    repository.commit("main")
    repository.upload("main", "staged", b"1")
    lakefs.clock.forward(days=3)
    absolute = f"local://{lakefs.store.settings(repository.folder)['storage']}"  # as the server prints addresses
    retention = Retention(tmp_path, repository, settle="0s")
    staged = repository.staged_list()  # before the references, or the plan must not be executed
    retention.write(source=repository.dump(tmp_path / "dump.json"), staged=staged)
    retention.write(namespace="local://mistyped")
    retention.plan()
    retention.write(namespace=absolute)
    plan = retention.plan()
    assert linked in {row["address"] for row in retention.rows("addresses", plan)}
    assert {row["address"] for row in retention.candidates(plan)} == {gone}
    retention.write(namespace=None, source=None, staged=None)  # sweeps need the server, and its own spelling
    plan = retention.plan()
    retention.approve(plan)
    retention.sweep(plan)
    require_all_readable(repository, gone)


# ---- files of other systems


def test_files_of_another_system_with_legacy_names_stay_although_a_client_staged_one_of_them(
    lakefs_on_s3: Server, tmp_path: Path
) -> None:
    """Old versions of lakeFS named objects as other systems name files: by an MD5, directly in the namespace."""
    repository = lakefs_on_s3.new_repository("foreign")
    gone = garbage(repository)
    contents = {md5(content, usedforsecurity=False).hexdigest(): content for content in (b"1", b"22", b"333")}
    store = repository.server.store
    for name, content in contents.items():
        store.put(repository.folder, name, content)
        store.set_time(repository.folder, name, lakefs_on_s3.clock())
    staged = next(iter(contents))
    repository.stage("main", "theirs", f"{repository.namespace}/{staged}", contents[staged])
    repository.commit("main")
    lakefs_on_s3.clock.forward(days=3)
    retention = Retention(tmp_path, repository, settle="0s")
    assert {row["address"] for row in retention.plan_and_sweep()} == {gone}
    assert set(contents) <= set(repository.stored())
    require_all_readable(repository, gone)
    assert retention.verify().status == 0
