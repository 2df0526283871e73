"""Properties of the real server and its clock that other tests rely on."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.real_lakefs.hooks import Webhook
from tests.real_lakefs.repository import Repository
from tests.real_lakefs.retention import Retention
from tests.real_lakefs.server import Server
from tests.real_lakefs.stores import issued_at


@pytest.fixture(params=["lakefs", pytest.param("lakefs_on_s3", marks=pytest.mark.slow)])
def repository(request: pytest.FixtureRequest) -> Repository:
    server: Server = request.getfixturevalue(request.param)
    return server.new_repository("orchard")


def test_addresses_and_commits_follow_the_moved_clock(repository: Repository) -> None:
    clock = repository.server.clock
    for _ in range(2):
        now = clock.forward(days=2)
        issued = issued_at(repository.upload("main", "a", str(now).encode()))
        assert issued is not None
        assert abs(issued - now) < timedelta(seconds=3)
        repository.commit("main")
        assert abs(repository.log("main")[0]["creation_date"] - now.timestamp()) < 3


def test_every_object_is_read_through_staging_head_and_tags(repository: Repository) -> None:
    lost = repository.upload_and_commit("main", "lost", b"1")
    repository.tag("v1")
    repository.delete("main", "lost")
    repository.upload("main", "kept", b"2")
    assert repository.unreadable() == []
    repository.lose(lost)
    assert {(one.ref, one.path, one.address) for one in repository.unreadable()} == {
        ("main@", "lost", lost),
        ("v1", "lost", lost),
    }


def test_a_linked_object_is_readable_and_in_the_store(repository: Repository) -> None:
    address = repository.upload_and_link("main", "linked", b"parquet")
    assert repository.read("main", "linked") == (200, b"parquet")
    assert repository.stored() == {address: 7}


def test_a_commit_waits_for_its_hook(repository: Repository, hook: Webhook) -> None:
    repository.add_hook("main", hook)
    before = repository.branches()["main"]
    repository.upload("main", "a", b"1")
    commit = repository.commit_under_way("main", hook)
    assert repository.branches()["main"] == before
    hook.release()
    made = commit.ended()
    assert repository.branches()["main"] == made != before


def test_an_import_adds_files_outside_the_namespace(lakefs: Server) -> None:
    assert lakefs.imports_from is not None
    folder = lakefs.imports_from / "landing"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    repository = lakefs.new_repository("imports")
    repository.import_prefix("main", f"local://{folder}/", "landing/")
    assert repository.read("main", "landing/a") == (200, b"1")


def test_a_plan_on_the_moved_clock_has_the_old_objects_and_keeps_the_others(
    repository: Repository, spark: SparkSession, tmp_path: Path
) -> None:
    replaced = repository.upload_and_commit("main", "a", b"1")
    repository.upload_and_commit("main", "a", b"2")
    staged = repository.upload("main", "staged", b"3")
    thrown_away = repository.upload("main", "thrown-away", b"4")
    repository.reset("main", "thrown-away")
    repository.server.clock.forward(days=10)
    young = repository.upload("main", "young", b"5")
    repository.reset("main", "young")
    retention = Retention(tmp_path, repository, settle="0s")
    found = {row["address"]: row["reason"] for row in retention.plan_and_sweep()}
    assert found == {replaced: "expired", thrown_away: "unreferenced"}
    assert {staged, young} < repository.stored().keys()
    assert not found.keys() & repository.stored().keys()
    assert repository.unreadable() == []
    assert retention.verify().status == 0
