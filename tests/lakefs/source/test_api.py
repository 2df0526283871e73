"""Reading from a lakeFS server: changes during the reading, and each known defect of the server.

Source: docs/lakefs-formats.md.
"""

import dataclasses
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import CorruptFile, ObjectMissing, SourceError
from retention_assets.lakefs.rules.references import require_complete
from retention_assets.lakefs.source import api as lakefs_api
from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.repository import StagedList, staged_folder, staged_list
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.mutate.deletion import ObjectDeleter
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.policy.rules import ServerRules
from tests.lakefs.source.fake_lakefs_repository import Repository, bare, saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, Answer, FakeLakeFSServer, serving
from tests.saved_repositories import api, copy_saved_repository

NOW = datetime(2026, 11, 21, 4, tzinfo=UTC)
STAGED = staged_folder(api("orchard")["prepare_uncommitted"][0]["run_id"])
LOST_RUN = "ftk8401ksduf4a1dflo0"  # a run whose files the server never uploaded
PREPARE = "/gc/prepare_uncommited"
BRANCHES, TAGS = "/orchard/branches", "/orchard/tags"
NEW, NEWER = "a" * 64, "b" * 64
STAGED_ON = {
    change["branch"]: change["physical_address"].removeprefix("s3://lake/orchard/")
    for change in api("orchard")["staged"]
    if change["type"] == "added"
}
STAGED_ON_MAIN, STAGED_ADDRESSES = STAGED_ON["main"], set(STAGED_ON.values())
SAME_MARK = b64encode(b'{"branch": "~", "path": "", "run_id": "r1", "key": "1"}').decode()


class Clock:
    """A clock that moves when it is read and when `sleep` is called."""

    def __init__(self) -> None:
        self.now = NOW
        self.slept: list[float] = []

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The namespace of orchard; no test changes it."""
    return copy_saved_repository("orchard", tmp_path_factory.mktemp("lake") / "orchard")


@pytest.fixture
def orchard() -> Repository:
    return saved("orchard")


@pytest.fixture
def server(orchard: Repository) -> Iterator[FakeLakeFSServer]:
    with serving(orchard, *bare()) as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_source(server: FakeLakeFSServer, clock: Clock, pristine: Path) -> Callable[..., ApiSource]:
    def opened(**different: Any) -> ApiSource:
        settings: dict[str, Any] = {
            "url": server.url,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "repository": "orchard",
            "namespace": "s3://lake/orchard",
            "access": StoreAccess(f"file://{pristine}"),
            "clock": clock,
            "sleep": clock.sleep,
        }
        return ApiSource(**settings | different)

    return opened


@pytest.fixture
def source(open_source: Callable[..., ApiSource]) -> ApiSource:
    return open_source()


def asked(server: FakeLakeFSServer, end: str, method: str = "GET") -> int:
    return sum(call.method == method and call.path.endswith(end) for call in server.calls)


class TestStaged:
    @pytest.mark.parametrize(
        "pages",
        [
            pytest.param([True, False], id="the_last_page_is_empty"),
            pytest.param([False, True], id="the_first_page_is_empty"),
            pytest.param([False, True, False, False], id="most_pages_are_empty"),
        ],
    )
    def test_an_empty_page_does_not_hide_the_others(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, pages: list[bool]
    ) -> None:
        orchard.pages = pages
        assert len(source.staged().files) == 1
        assert asked(server, PREPARE, "POST") == len(pages)

    def test_files_that_no_page_names_are_found_by_the_run(self, source: ApiSource, orchard: Repository) -> None:
        orchard.pages = [False]
        assert len(source.staged().files) == 1

    def test_when_nothing_is_staged_the_list_is_empty(self, source: ApiSource, orchard: Repository) -> None:
        orchard.run_id, orchard.pages = LOST_RUN, [False]
        assert source.staged().files == ()

    def test_a_file_that_the_server_wrote_and_that_is_missing_from_the_store_is_an_error(
        self, source: ApiSource, orchard: Repository
    ) -> None:
        orchard.run_id = LOST_RUN
        with pytest.raises(SourceError, match=r"wrote 1 file .* has 0"):
            source.staged()

    def test_each_page_with_rows_must_have_a_file(self, source: ApiSource, orchard: Repository) -> None:
        orchard.pages = [True, True]
        with pytest.raises(SourceError, match=r"wrote 2 files .* has 1"):
            source.staged()

    @pytest.mark.parametrize("gone", ["main", "feature-long-lived"])
    def test_a_page_that_lost_its_rows_is_requested_again(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, gone: str
    ) -> None:
        orchard.changes = [change for change in orchard.changes if change["branch"] != "main"]  # none behind `gone`
        orchard.unfound = [{gone}]
        staged = source.staged()
        assert len(staged.files) == 1
        assert staged.shown == ()
        assert asked(server, PREPARE, "POST") == 2

    def test_a_page_that_loses_its_rows_each_time_is_replaced_by_what_the_branches_show(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.run_id = LOST_RUN
        orchard.unfound = [{"main"}, {"main", "hidden-replica"}, {"hidden-replica", "main"}]
        assert {address for address, _ in source.staged().shown} == STAGED_ADDRESSES
        assert asked(server, PREPARE, "POST") == 3

    def test_a_scan_that_fails_for_its_last_branch_each_time_is_replaced_by_what_the_branches_show(
        self, source: ApiSource, orchard: Repository
    ) -> None:
        orchard.run_id, orchard.unfound = LOST_RUN, [{"run-1"}, {"run-2"}, {"run-3"}]
        staged = source.staged()
        assert staged.files == ()
        assert {address for address, _ in staged.shown} == STAGED_ADDRESSES

    def test_a_later_page_that_fails_each_time_leaves_the_earlier_ones_in_the_list(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.pages = [True, True]
        server.before("POST", PREPARE, lambda: orchard.unfound.extend([{"z"}, {"z"}, {"z"}]), nth=2)
        staged = source.staged()
        assert len(staged.files) == 1
        assert staged.shown == ()  # no branch is behind the mark where the second page began

    def test_a_branch_that_is_deleted_before_it_is_read_has_nothing_staged(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.run_id, orchard.unfound = LOST_RUN, [{"z"}, {"z"}, {"z"}]
        server.before("GET", "/branches/dev/diff", lambda: orchard.branches.pop("dev"))
        (shown,) = source.staged().shown
        assert shown[0] == STAGED_ON_MAIN

    def test_an_empty_page_is_complete_if_only_deletions_are_staged(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.changes = [change for change in orchard.changes if change["type"] == "removed"]
        orchard.run_id, orchard.pages = LOST_RUN, [False]
        staged = source.staged()
        assert (staged.files, staged.shown) == ((), ())

    def test_many_staged_objects_of_a_branch_are_all_read(self, source: ApiSource, orchard: Repository) -> None:
        paths = [f"many/{number:05}" for number in range(0, 5_000, 2)]
        orchard.changes = [
            {"branch": "dev", "path": path, "physical_address": f"{orchard.namespace}/data/{path}", "type": "added"}
            for path in paths
        ]
        orchard.run_id, orchard.unfound = LOST_RUN, [{"z"}, {"z"}, {"z"}]
        assert {address for address, _ in source.staged().shown} == {f"data/{path}" for path in paths}

    def test_staged_objects_at_paths_that_are_not_text_are_shown(self, source: ApiSource, orchard: Repository) -> None:
        paths = {"odd/a": "a", "odd/\ufffdb": "b", "odd/\ufffdc": "c", "\ufffd": "d"}
        orchard.changes = [
            {"branch": "dev", "path": path, "physical_address": f"{orchard.namespace}/data/{name}", "type": "added"}
            for path, name in paths.items()
        ]
        orchard.run_id, orchard.unfound = LOST_RUN, [{"z"}, {"z"}, {"z"}]
        assert {address for address, _ in source.staged().shown} == {f"data/{name}" for name in paths.values()}

    def test_a_page_that_ends_at_a_path_that_is_not_text_is_continued_by_what_the_branches_show(
        self, source: ApiSource, server: FakeLakeFSServer, orchard: Repository
    ) -> None:
        token = b64encode(json.dumps({"branch": "dev", "path": "a\ufffd"}).encode()).decode()
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": "", "continuation_token": token}
        answer["gc_uncommitted_location"] = f"{orchard.namespace}/{STAGED}"
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        assert {address for address, _ in source.staged().shown} == STAGED_ADDRESSES
        assert asked(server, PREPARE, "POST") == 1

    def test_deleted_branches_during_the_scan_need_no_second_scan(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        server.before("POST", PREPARE, lambda: orchard.branches.pop("hidden-replica"))
        server.before("POST", PREPARE, lambda: orchard.branches.pop("b1"))
        assert len(source.staged().files) == 1
        assert asked(server, PREPARE, "POST") == 1

    def test_a_server_that_prints_another_namespace_hides_no_link(
        self, source: ApiSource, server: FakeLakeFSServer, orchard: Repository
    ) -> None:
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": f"s3a://lake/orchard/{STAGED}"}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        assert {address for address, _ in source.staged().shown} == STAGED_ADDRESSES

    def test_a_namespace_that_urls_escape_hides_no_link(
        self, open_source: Callable[..., ApiSource], server: FakeLakeFSServer, orchard: Repository
    ) -> None:
        """A client may have linked an object with `%20`, and the server prints its namespace with a space."""
        orchard.namespace = "s3://lake/my orchard"
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": f"s3://lake/my orchard/{STAGED}"}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        shown = open_source(namespace="s3://lake/my orchard").staged().shown
        assert {address.rpartition("/")[2] for address, _ in shown} == {
            one.rpartition("/")[2] for one in STAGED_ADDRESSES
        }

    def test_an_object_that_an_old_server_staged_is_read_from_its_branch_although_the_page_has_other_rows(
        self, source: ApiSource, orchard: Repository
    ) -> None:
        orchard.created = int(datetime(2021, 3, 1, tzinfo=UTC).timestamp())
        address = "5078f6" + "0" * 26
        old = {"branch": "main", "path": "old", "physical_address": f"{orchard.namespace}/{address}", "typed": False}
        orchard.changes = (*orchard.changes, {**old, "type": "added"})
        staged = source.staged()
        assert len(staged.files) == 1
        assert {address for address, _ in staged.shown} == {address, *STAGED_ADDRESSES}

    def test_a_commit_that_the_server_denies_is_an_error_and_no_deleted_branch(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.created = int(datetime(2021, 3, 1, tzinfo=UTC).timestamp())
        denied = Answer(404, {"message": "commit not found"})
        server.override["/repositories/orchard/refs/main/objects/ls"] = denied
        with pytest.raises(SourceError, match="commit not found"):
            source.staged()

    def test_a_read_only_repository_is_refused_with_the_reason(self, source: ApiSource, orchard: Repository) -> None:
        orchard.read_only = True
        with pytest.raises(SourceError, match=r"is read-only, .* the repository that it mirrors"):
            source.staged()

    def test_a_scan_that_fails_for_another_reason_is_an_error(
        self, source: ApiSource, server: FakeLakeFSServer
    ) -> None:
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(500, {"message": "disk full"})
        with pytest.raises(SourceError, match="disk full"):
            source.staged()

    def test_taken_at_of_the_staged_list_is_before_the_server_writes(
        self, source: ApiSource, server: FakeLakeFSServer, clock: Clock
    ) -> None:
        first: list[datetime] = []
        server.before("POST", PREPARE, lambda: first.append(clock.now))
        assert source.staged().taken_at <= first[0] < clock()

    def test_taken_at_of_the_staged_list_is_before_the_branches_are_listed(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, clock: Clock
    ) -> None:
        listed: list[datetime] = []
        server.before("GET", BRANCHES, lambda: listed.append(clock.now))
        assert source.staged().taken_at <= listed[0] < clock()

    def test_a_continuation_that_does_not_end_is_an_error(self, source: ApiSource, server: FakeLakeFSServer) -> None:
        answer = {"run_id": "r1", "gc_uncommitted_location": "", "continuation_token": SAME_MARK}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        with pytest.raises(SourceError, match="pages that do not end"):
            source.staged()

    @pytest.mark.parametrize("run_id", ["../../data", "", "a/b"])
    def test_a_run_id_that_leads_outside_of_the_folder_is_an_error(
        self, source: ApiSource, server: FakeLakeFSServer, run_id: str
    ) -> None:
        answer = {"run_id": run_id, "gc_uncommitted_location": ""}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        with pytest.raises(SourceError, match="The list was not used"):
            source.staged()

    @pytest.mark.parametrize("token", ["%%%", "bm8ganNvbg==", "W10=", "e30="], ids=["bytes", "text", "list", "empty"])
    def test_a_continuation_token_without_a_branch_is_an_error(
        self, source: ApiSource, server: FakeLakeFSServer, orchard: Repository, token: str
    ) -> None:
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": "", "continuation_token": token}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        with pytest.raises(SourceError, match="names no branch"):
            source.staged()

    @pytest.mark.parametrize(
        "location",
        [
            pytest.param("s3a://lake/orchard/{folder}/", id="s3a"),
            pytest.param("s3://lake/orchard/{folder}", id="no_slash"),
        ],
    )
    def test_a_location_in_another_spelling_of_the_namespace_is_accepted(
        self, source: ApiSource, server: FakeLakeFSServer, orchard: Repository, location: str
    ) -> None:
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": location.format(folder=STAGED)}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        assert len(source.staged().files) == 1

    @pytest.mark.parametrize("place", ["s3://lake/orchards", "s3://elsewhere/orchard", "file:///lake/orchard"])
    def test_a_location_outside_of_the_namespace_is_an_error(
        self, source: ApiSource, server: FakeLakeFSServer, orchard: Repository, place: str
    ) -> None:
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": f"{place}/{STAGED}/"}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        with pytest.raises(SourceError, match="outside of s3://lake/orchard"):
            source.staged()

    def test_a_location_with_the_absolute_path_of_a_local_server_is_accepted(
        self, open_source: Callable[..., ApiSource], server: FakeLakeFSServer, orchard: Repository
    ) -> None:
        orchard.namespace = "local://orchard"
        location = f"local:///var/lakefs/block/orchard/{STAGED}/"
        answer = {"run_id": orchard.run_id, "gc_uncommitted_location": location}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        assert len(open_source(namespace="local://orchard").staged().files) == 1

    @pytest.mark.parametrize("blocks", ["/var/lakefs/block", "/data/lakefs", "/srv/data"])
    def test_an_object_of_a_local_namespace_named_data_has_its_path_below_the_namespace(
        self, open_source: Callable[..., ApiSource], orchard: Repository, blocks: str
    ) -> None:
        orchard.namespace = "local://data"
        address = f"local://{blocks}/data/{STAGED_ON_MAIN}"
        orchard.changes = [{"branch": "main", "path": "a", "physical_address": address, "type": "added"}]
        orchard.run_id, orchard.pages = LOST_RUN, [False]
        (shown,) = open_source(namespace="local://data").staged().shown
        assert shown[0] == STAGED_ON_MAIN


class TestRelease:
    """The server's staged list is removed after it was read. Nothing else is removed."""

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        return copy_saved_repository("orchard", tmp_path / "orchard")

    @pytest.fixture
    def own(self, open_source: Callable[..., ApiSource], lake: Path) -> ApiSource:
        return open_source(access=StoreAccess(f"file://{lake}"))

    def written(self, lake: Path, at: datetime) -> Path:
        """Write the server's list with the time `at`, and return the file."""
        (file,) = (lake / STAGED).iterdir()
        os.utime(file, (at.timestamp(), at.timestamp()))
        return file

    def test_our_own_staged_list_is_removed_with_its_empty_directories(self, own: ApiSource, lake: Path) -> None:
        self.written(lake, NOW)
        before = files_of(lake)
        staged = own.staged()
        own.release(staged)
        assert before - files_of(lake) == set(staged.files)
        assert not (lake / STAGED).parent.exists()
        own.release(staged)  # a second time there is nothing to do

    def test_a_staged_list_is_removed_after_an_error(self, own: ApiSource, lake: Path) -> None:
        self.written(lake, NOW)
        with pytest.raises(ValueError, match="an error"), staged_list(own) as staged:
            assert staged is not None
            assert (lake / staged.files[0]).exists()
            raise ValueError("an error")
        assert not (lake / STAGED).parent.exists()

    def test_the_files_of_a_list_whose_second_page_fails_are_removed(
        self, own: ApiSource, lake: Path, orchard: Repository
    ) -> None:
        self.written(lake, NOW)
        before = files_of(lake)
        orchard.pages = [True, True]
        with pytest.raises(SourceError, match=r"wrote 2 files .* has 1"):
            own.staged()
        assert {file.rpartition("/")[0] for file in before - files_of(lake)} == {STAGED}
        assert not (lake / STAGED).parent.exists()

    def test_the_files_of_the_first_page_are_removed_when_the_second_page_is_of_another_run(
        self, own: ApiSource, lake: Path, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        self.written(lake, NOW)
        orchard.pages = [True, True]
        server.before("POST", PREPARE, lambda: setattr(orchard, "run_id", LOST_RUN), nth=2)
        with pytest.raises(SourceError, match=f"a page of the run '{LOST_RUN}', although the scan is the run"):
            own.staged()
        assert not (lake / STAGED).parent.exists()

    def test_files_that_others_write_into_the_folder_later_stay(self, own: ApiSource, lake: Path) -> None:
        self.written(lake, NOW)
        staged = own.staged()
        (lake / STAGED / "later").write_bytes(b"of somebody else")
        own.release(staged)
        assert [file.name for file in (lake / STAGED).iterdir()] == ["later"]

    def test_a_staged_list_that_is_older_than_the_request_stays(self, own: ApiSource, lake: Path) -> None:
        self.written(lake, NOW - timedelta(minutes=10))
        before = files_of(lake)
        own.release(own.staged())
        assert files_of(lake) == before

    def test_all_files_of_a_run_stay_if_one_of_them_is_older(self, own: ApiSource, lake: Path) -> None:
        file = self.written(lake, NOW - timedelta(minutes=10))
        shutil.copyfile(file, file.with_name("another"))
        os.utime(file.with_name("another"), (NOW.timestamp(), NOW.timestamp()))
        before = files_of(lake)
        own.release(own.staged())
        assert files_of(lake) == before

    def test_a_staged_list_that_another_source_requested_stays(
        self, own: ApiSource, lake: Path, open_source: Callable[..., ApiSource]
    ) -> None:
        self.written(lake, NOW)
        before = files_of(lake)
        open_source().release(own.staged())
        open_source().release(StagedList(tuple(before), NOW, run_id="../../../../data"))
        assert files_of(lake) == before

    def test_a_page_that_lies_outside_of_its_run_stays(
        self, own: ApiSource, lake: Path, server: FakeLakeFSServer, orchard: Repository
    ) -> None:
        self.written(lake, NOW)
        answer = {"run_id": "another", "gc_uncommitted_location": f"s3://lake/orchard/{STAGED}"}
        server.override["/repositories/orchard/gc/prepare_uncommited"] = Answer(201, answer)
        before = files_of(lake)
        own.release(own.staged())
        assert files_of(lake) == before

    def test_a_list_that_may_not_be_removed_stays_with_one_warning(
        self, own: ApiSource, lake: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def denied(self: object, files: list[str]) -> list[ObjectResult]:
            return [ObjectResult(Outcome.FAILED, "the store denied the request (AccessDenied)")] * len(files)

        monkeypatch.setattr(ObjectDeleter, "delete_all", denied)
        file = self.written(lake, NOW)
        for _ in range(2):
            own.release(own.staged())
        assert file.exists()
        (warning,) = caplog.records
        assert warning.levelname == "WARNING"
        assert "AccessDenied" in warning.getMessage()
        assert "_lakefs/retention/gc/uncommitted/" in warning.getMessage()


def files_of(lake: Path) -> set[str]:
    return {str(file.relative_to(lake)) for file in lake.rglob("*") if file.is_file()}


class TestReferences:
    def test_a_commit_whose_lookup_is_denied_is_found_in_the_log(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.unfindable = set(orchard.commits)
        assert source.references().commits.keys() == orchard.commits.keys()
        assert not [call.path for call in server.calls if "/orchard/commits/" in call.path]

    def test_a_branch_that_moves_during_the_dump_brings_its_commits(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        head = orchard.branches["main"]

        def move() -> None:
            orchard.branches["main"] = orchard.add_commit(
                NEWER, orchard.add_commit(NEW, head), orchard.tags["release-2026-q2"]
            )
            orchard.unfindable = {NEW, NEWER}

        server.before("GET", "/orchard/dump", move)
        references = source.references()
        assert references.branches["main"] == NEWER
        assert references.commits[NEWER].parents == (NEW, orchard.tags["release-2026-q2"])
        assert references.commits[NEW].parents == (head,)
        assert len(references.commits) == 57

    def test_a_dump_with_a_commit_and_without_its_ancestors_is_completed_from_the_logs(
        self, source: ApiSource, orchard: Repository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The server reads the commits in the order of their ids, one part after the other."""
        whole = source.references()
        head = whole.commits[whole.branches["main"]]
        lacking = whole.commits.keys() - {head.parents[0], whole.commits[head.parents[0]].parents[0]}
        monkeypatch.setattr(lakefs_api, "read_commit_table", lambda *_: {name: whole.commits[name] for name in lacking})
        found = source._dump(whole.instance, NOW)
        assert found.commits.keys() == whole.commits.keys()
        assert found.commits[head.commit_id] == head
        require_complete(found)

    def test_a_commit_from_a_log_counts_as_made_at_the_end_of_its_second(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        head = orchard.branches["main"]
        created = int(NOW.timestamp())
        server.before(
            "GET", "/orchard/dump", lambda: orchard.branches.update(main=orchard.add_commit(NEW, head, created=created))
        )
        assert source.references().commits[NEW].created_at == NOW.replace(microsecond=999_999)

    def test_a_move_deeper_than_one_page_of_the_log_is_followed(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        def move() -> None:
            head = orchard.branches["main"]
            for number in range(1_200):
                head = orchard.add_commit(f"{number:064}", head)
            orchard.branches["main"] = head

        server.before("GET", "/orchard/dump", move)
        assert len(source.references().commits) == 1_255

    def test_a_hidden_branch_that_moves_is_followed(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        old = orchard.branches["hidden-replica"]
        move = {"hidden-replica": NEW}
        server.before("GET", "/orchard/dump", lambda: (orchard.add_commit(NEW, old), orchard.branches.update(move)))
        references = source.references()
        assert references.branches["hidden-replica"] == NEW
        assert NEW in references.commits

    def test_a_tag_set_on_a_new_commit_during_the_dump_is_followed(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        head = orchard.branches["main"]
        server.before("GET", "/orchard/dump", lambda: orchard.tags.update(fresh=orchard.add_commit(NEW, head)))
        references = source.references()
        assert references.tags["fresh"] == NEW
        assert NEW in references.commits

    def test_a_branch_that_is_deleted_during_the_dump_needs_no_second_dump(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        head = orchard.branches["b1"]
        server.before("GET", "/orchard/dump", lambda: orchard.branches.pop("b1"))
        references = source.references()
        assert "b1" not in references.branches
        assert head in references.commits
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_branches_that_vanish_in_each_reading_of_the_list_cause_no_refusal(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        orchard.branches |= {f"run-{number}": orchard.branches["main"] for number in range(9)}
        for nth in range(9):
            server.before("GET", BRANCHES, lambda nth=nth: orchard.branches.pop(f"run-{nth}"), nth + 1)  # type: ignore[misc]
        assert source.references().branches.keys() >= saved("orchard").branches.keys()
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_a_branch_that_is_replaced_while_the_list_is_read_is_seen_under_its_new_name(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        """After the list has passed `a`, `a` is created in place of `b1`, before the list arrives at `b1`."""
        head = orchard.branches["b1"]
        lacking = [{"id": name, "commit_id": commit} for name, commit in orchard.branches.items() if name != "b1"]
        pagination = {"has_more": False, "next_offset": "", "results": len(lacking), "max_per_page": 1000}
        path = "/repositories/orchard/branches"
        page = Answer(200, {"pagination": pagination, "results": lacking})

        def replace() -> None:
            orchard.branches["a"] = orchard.branches.pop("b1")
            server.override[path] = page

        server.before("GET", BRANCHES, replace, nth=2)
        server.before("GET", BRANCHES, server.override.clear, nth=3)
        assert source.references().branches["a"] == head

    @pytest.mark.parametrize("nth", [1, 2, 3, 4])
    def test_a_tag_that_a_branch_replaces_while_the_lists_are_read_is_seen_as_the_branch(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, nth: int
    ) -> None:
        """The branch is created after the branches were listed, and the tag is deleted before the tags are listed."""
        head = orchard.branches["b1"]
        orchard.tags["kept"] = head
        for _ in range(2):
            source.references()  # later readings use the dump of the first one
            server.before("GET", TAGS, lambda: orchard.branches.update(kept=orchard.tags.pop("kept")), nth)
            references = source.references()
            assert head in {references.branches.get("kept"), references.tags.get("kept")}
            orchard.tags["kept"] = orchard.branches.pop("kept", head)

    def test_a_tag_that_a_branch_replaces_during_the_last_reading_of_a_busy_server_still_counts(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        """Each reading finds another commit on main. The branch is created after the last list of branches."""
        kept = orchard.tags["kept"] = orchard.branches["b1"]
        commits = [orchard.branches["main"]]
        commits += [orchard.add_commit(f"{number}" * 64, commits[-1]) for number in range(1, 5)]
        for nth, commit in enumerate(commits[1:], 1):
            server.before("GET", BRANCHES, lambda commit=commit: orchard.branches.update(main=commit), nth)  # type: ignore[misc]
        server.before("GET", TAGS, lambda: orchard.branches.update(rescued=orchard.tags.pop("kept")), 4)
        references = source.references()
        assert references.branches["main"] == commits[-1]
        assert kept in {references.branches.get("rescued"), references.tags.get("kept")}

    @pytest.mark.parametrize("calls", [1, 2], ids=["with_a_dump", "without_a_dump"])
    def test_a_tag_that_gets_another_commit_during_the_last_reading_of_a_busy_server_does_not_hide_a_new_branch(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, calls: int
    ) -> None:
        """A new branch takes over the commit of the tag after the last list of branches, and is read again."""
        if calls > 1:
            source.references()
        kept = orchard.tags["moved"] = orchard.add_commit("7" * 64, orchard.branches["b1"])
        commits = [orchard.branches["main"]]
        commits += [orchard.add_commit(f"{number}" * 64, commits[-1]) for number in range(1, 5)]
        for nth, commit in enumerate(commits[1:], 1):
            server.before("GET", BRANCHES, lambda commit=commit: orchard.branches.update(main=commit), nth)  # type: ignore[misc]

        def hand_over() -> None:
            orchard.branches["rescued"], orchard.tags["moved"] = kept, commits[0]

        server.before("GET", TAGS, hand_over, 4)
        assert source.references().branches["rescued"] == kept
        assert asked(server, "/orchard/dump", "POST") == calls

    def test_a_new_branch_makes_another_reading_necessary(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        """Each of two readings misses a commit, which three branches name one after the other."""
        commit = orchard.branches.pop("b1")
        first = dict(orchard.branches)
        second = {**first, "new": first["main"]}
        orchard.branches |= {"new": first["main"], "a": commit}
        path = "/repositories/orchard/branches"
        for nth, listed in enumerate((first, second), 1):
            rows = [{"id": name, "commit_id": of_name} for name, of_name in listed.items()]
            pagination = {"has_more": False, "next_offset": "", "results": len(rows), "max_per_page": 1000}
            page = Answer(200, {"pagination": pagination, "results": rows})
            server.before("GET", BRANCHES, lambda page=page: server.override.update({path: page}), nth)  # type: ignore[misc]
        server.before("GET", BRANCHES, server.override.clear, nth=3)
        assert source.references().branches.get("a") == commit

    def test_references_are_refused_while_a_branch_is_reset_in_each_reading(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        heads = [orchard.branches["main"], orchard.branches["b1"]] * 6
        for nth, head in enumerate(heads, 1):
            server.before("GET", BRANCHES, lambda head=head: orchard.branches.update(main=head), nth)  # type: ignore[misc]
        with pytest.raises(SourceError, match=r"in each of 3 attempts a branch was reset, .* Run again\."):
            source.references()

    def test_a_branch_that_was_created_and_replaced_since_the_last_reading_is_seen(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        source.references()
        old = next(iter(source.references().commits))
        orchard.branches["new"] = old
        listed = [{"id": name, "commit_id": commit} for name, commit in orchard.branches.items() if name != "new"]
        pagination = {"has_more": False, "next_offset": "", "results": len(listed), "max_per_page": 1000}
        page = Answer(200, {"pagination": pagination, "results": listed})

        def replace() -> None:
            orchard.branches["a"] = orchard.branches.pop("new")
            server.override["/repositories/orchard/branches"] = page

        server.before("GET", BRANCHES, replace)
        server.before("GET", BRANCHES, server.override.clear, nth=2)
        assert source.references().branches["a"] == old

    def test_a_branch_that_vanishes_before_its_log_is_read_is_explained_by_its_commit(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        move = {"b1": orchard.add_commit(NEW, orchard.branches["b1"])}
        server.before("GET", "/orchard/dump", lambda: orchard.branches.update(move))
        server.before("GET", "/refs/b1/commits", lambda: orchard.branches.pop("b1"))
        references = source.references()
        assert references.branches["b1"] == NEW
        assert NEW in references.commits
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_a_branch_that_vanishes_and_whose_commit_is_not_found_is_left_out(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        move = {"b1": orchard.add_commit(NEW, orchard.branches["b1"])}
        orchard.unfindable = {NEW}
        server.before("GET", "/orchard/dump", lambda: orchard.branches.update(move))
        server.before("GET", "/refs/b1/commits", lambda: orchard.branches.pop("b1"))
        assert "b1" not in source.references().branches
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_a_branch_that_was_reset_is_explained_by_its_commit(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        old = orchard.branches["main"]
        orchard.add_commit(NEW, old)
        server.before("GET", "/orchard/dump", lambda: orchard.branches.update(main=NEW))
        server.before("GET", "/refs/main/commits", lambda: orchard.branches.update(main=old))
        references = source.references()
        assert references.branches["main"] == NEW
        assert NEW in references.commits

    def test_a_head_that_no_log_explains_is_not_returned(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        old = orchard.branches["main"]
        orchard.add_commit(NEW, old)
        orchard.unfindable = {NEW}
        server.before("GET", "/orchard/dump", lambda: orchard.branches.update(main=NEW))
        for nth in (1, 2, 3):  # each time the branch is listed it has moved, and has moved back when its log is read
            server.before("GET", "/refs/main/commits", lambda: orchard.branches.update(main=old), nth)
        for nth in range(1, 7):  # twice for each attempt
            server.before("GET", BRANCHES, lambda: orchard.branches.update(main=NEW), nth)
        with pytest.raises(
            SourceError, match="in each of 3 attempts the log of a branch or tag did not have the commit"
        ):
            source.references()

    def test_taken_at_of_the_references_is_before_everything_is_read(
        self, source: ApiSource, server: FakeLakeFSServer, clock: Clock
    ) -> None:
        began: list[datetime] = []
        server.before("GET", BRANCHES, lambda: began.append(clock.now))
        assert source.references().taken_at <= began[0]
        assert source.references().taken_at > began[0]

    def test_a_dump_is_waited_for_with_growing_pauses(
        self, source: ApiSource, orchard: Repository, clock: Clock
    ) -> None:
        orchard.dump_polls = 8
        assert len(source.references().commits) == 55
        assert clock.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]

    def test_a_dump_that_never_ends_is_an_error(self, source: ApiSource, orchard: Repository, clock: Clock) -> None:
        orchard.dump_polls = 10_000
        with pytest.raises(SourceError, match="was not finished after 1:00:00"):
            source.references()
        assert sum(clock.slept) < timedelta(hours=1.1).total_seconds()

    def test_a_failed_dump_is_reported_with_its_error(self, source: ApiSource, orchard: Repository) -> None:
        orchard.dump_error = "no space left on device"
        with pytest.raises(SourceError, match="failed: no space left on device"):
            source.references()

    @pytest.mark.parametrize("metarange_id", ["", "../../etc/passwd", "dummy"])
    def test_a_dump_without_a_table_of_commits_is_an_error(
        self, source: ApiSource, orchard: Repository, metarange_id: str
    ) -> None:
        orchard.dump["commits_meta_range_id"] = metarange_id
        with pytest.raises(SourceError, match="not the id of a metarange"):
            source.references()

    def test_a_table_that_is_not_in_the_store_is_named(self, source: ApiSource, orchard: Repository) -> None:
        orchard.dump["commits_meta_range_id"] = "0" * 64
        with pytest.raises(ObjectMissing, match="0" * 64):
            source.references()

    def test_an_altered_table_is_refused(
        self, open_source: Callable[..., ApiSource], orchard: Repository, tmp_path: Path
    ) -> None:
        lake = copy_saved_repository("orchard", tmp_path / "orchard")
        file = lake / "_lakefs" / orchard.dump["commits_meta_range_id"]
        file.write_bytes(file.read_bytes()[:-60] + bytes(7) + file.read_bytes()[-53:])
        with pytest.raises(CorruptFile, match=file.name):
            open_source(access=StoreAccess(f"file://{lake}")).references()


class TestOtherRepositories:
    def test_the_namespaces_of_the_other_repositories_are_known_in_canonical_spelling(
        self, source: ApiSource, server: FakeLakeFSServer
    ) -> None:
        named = {"id": "grove", "storage_namespace": "s3a://lake/grove/"}
        own = {"id": "orchard", "storage_namespace": "s3://lake/orchard"}
        pagination = {"has_more": False, "max_per_page": 1000, "next_offset": "", "results": 2}
        server.override["/repositories"] = Answer(200, {"pagination": pagination, "results": [named, own]})
        assert source.other_repositories() == {"grove": "s3://lake/grove"}

    def test_other_repositories_are_unknown_if_the_user_may_not_list_them(
        self, source: ApiSource, server: FakeLakeFSServer
    ) -> None:
        server.override["/repositories"] = Answer(403, {"message": "insufficient permissions"})
        assert source.other_repositories() is None


class TestLaterReferences:
    """A process that reads the references again."""

    def test_no_dump_is_taken_if_no_branch_or_tag_moved(
        self, source: ApiSource, server: FakeLakeFSServer, clock: Clock
    ) -> None:
        first, second = source.references(), source.references()
        assert second == dataclasses.replace(first, taken_at=second.taken_at)
        assert second.taken_at > first.taken_at
        assert asked(server, "/orchard/dump", "POST") == 1
        assert asked(server, "/commits") == 0

    def test_new_commits_of_branches_and_tags_are_found_by_their_logs(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        first = source.references()
        orchard.branches["main"] = orchard.add_commit(NEW, orchard.branches["main"])
        orchard.tags["fresh"] = orchard.add_commit(NEWER, NEW)
        orchard.branches["restored"] = next(iter(orchard.commits))
        second = source.references()
        assert second.branches == orchard.branches
        assert second.tags == orchard.tags
        assert second.commits.keys() == {*first.commits, NEW, NEWER}
        assert first.commits.keys() == second.commits.keys() - {NEW, NEWER}  # the returned value does not change
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_a_tag_that_was_set_on_a_known_commit_is_seen(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        source.references()
        orchard.tags["late"] = next(iter(orchard.commits))
        del orchard.tags["release-2026-q2"]
        assert source.references().tags == orchard.tags
        assert asked(server, "/orchard/dump", "POST") == 1

    def test_a_branch_that_moved_and_moved_back_is_unchanged(self, source: ApiSource, orchard: Repository) -> None:
        first, old = source.references(), orchard.branches["main"]
        orchard.branches["main"] = orchard.add_commit(NEW, old)
        assert source.references().branches["main"] == NEW
        orchard.branches["main"] = old
        third = source.references()
        assert third.branches == first.branches
        assert NEW in third.commits  # known commits stay known, and are dangling now

    def test_long_logs_are_replaced_by_a_new_dump(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakefs_api, "_FEW_PAGES", 2)
        source.references()
        head = orchard.branches["main"]
        for number in range(250):
            head = orchard.add_commit(f"{number:064}", head)
        orchard.branches["main"] = head
        assert len(source.references().commits) == 305
        assert asked(server, "/orchard/dump", "POST") == 2

    def test_after_ten_minutes_a_dump_shows_the_commits_that_no_branch_has_any_more(
        self, source: ApiSource, server: FakeLakeFSServer, clock: Clock
    ) -> None:
        source.references()
        clock.sleep(540)
        source.references()
        assert asked(server, "/orchard/dump", "POST") == 1
        clock.sleep(60)
        source.references()
        assert asked(server, "/orchard/dump", "POST") == 2

    def test_the_references_of_a_repository_that_was_created_again_are_dumped_again(
        self, source: ApiSource, orchard: Repository, server: FakeLakeFSServer
    ) -> None:
        first = source.references()
        orchard.created += 1
        assert source.references().instance != first.instance
        assert asked(server, "/orchard/dump", "POST") == 2


class TestRules:
    def test_rules_with_null_branches_have_no_branches(self, open_source: Callable[..., ApiSource]) -> None:
        assert open_source(repository="norules", namespace="s3://lake/norules").rules() == ServerRules(10, {})

    def test_rules_that_were_never_set_are_none(self, open_source: Callable[..., ApiSource]) -> None:
        assert open_source(repository="never", namespace="s3://lake/never").rules() is None

    def test_the_last_of_two_rules_for_a_branch_is_used(self, source: ApiSource, orchard: Repository) -> None:
        rules = [{"branch_id": "main", "retention_days": days} for days in (5, 50)]
        orchard.rules = {"default_retention_days": 7, "branches": rules}
        assert source.rules() == ServerRules(7, {"main": 50})

    def test_a_missing_repository_is_an_error_and_not_a_repository_without_rules(
        self, source: ApiSource, server: FakeLakeFSServer
    ) -> None:
        server.before("GET", "/settings/gc_rules", lambda: server.repositories.pop("orchard"))
        with pytest.raises(SourceError, match="repository not found"):
            source.rules()

    @pytest.mark.parametrize(
        "rules",
        [
            pytest.param({"branches": []}, id="no_default"),
            pytest.param({"default_retention_days": "7", "branches": []}, id="text_for_days"),
            pytest.param({"default_retention_days": 7, "branches": {"main": 5}}, id="branches_in_another_schema"),
            pytest.param({"default_retention_days": 7, "branches": [{"branch_id": "main"}]}, id="branch_without_days"),
            pytest.param({"default_retention_days": True, "branches": []}, id="true_for_days"),
        ],
    )
    def test_rules_in_an_unknown_schema_are_refused(
        self, source: ApiSource, orchard: Repository, rules: dict[str, Any]
    ) -> None:
        orchard.rules = rules
        with pytest.raises(SourceError, match="Nothing was deleted"):
            source.rules()


class TestRepository:
    @pytest.mark.parametrize("namespace", ["s3://lake/orchard/", "s3a://lake/orchard"])
    def test_another_spelling_of_the_namespace_is_the_same(
        self, open_source: Callable[..., ApiSource], namespace: str
    ) -> None:
        assert open_source(namespace=namespace).rules() is not None

    @pytest.mark.parametrize("ask", [ApiSource.staged, ApiSource.references, ApiSource.rules])
    def test_a_repository_with_another_namespace_on_the_server_is_refused(
        self, open_source: Callable[..., ApiSource], server: FakeLakeFSServer, ask: Callable[[ApiSource], object]
    ) -> None:
        with pytest.raises(
            SourceError, match="its namespace is s3://lake/orchard on the server, but `namespace` is s3://lake/meadow"
        ):
            ask(open_source(namespace="s3://lake/meadow"))
        assert {call.method for call in server.calls} == {"GET"}

    @pytest.mark.parametrize("ask", [ApiSource.staged, ApiSource.references, ApiSource.rules])
    def test_an_unknown_repository_is_an_error(
        self, open_source: Callable[..., ApiSource], ask: Callable[[ApiSource], object]
    ) -> None:
        with pytest.raises(SourceError, match="repository not found") as caught:
            ask(open_source(repository="nope"))
        assert "source.api.repository" in str(caught.value)

    def test_the_grace_period_of_the_server_is_read(self, source: ApiSource) -> None:
        assert source.grace() == timedelta(hours=24)
