"""Two configured repositories on a real server, one of which refers to objects of the other by full addresses."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.real_lakefs.repository import Repository
from tests.real_lakefs.retention import Retention, name_of
from tests.real_lakefs.server import Server

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(params=["lakefs", pytest.param("lakefs_on_s3", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def share(server: Server) -> tuple[Repository, Repository, str, str]:
    """Return two repositories, an object of the first that the second refers to, and one without such a reference.

    Both objects were deleted in the first repository longer ago than its retention.
    """
    first, second = server.new_repository("first"), server.new_repository("second")
    shared = first.upload_and_commit("main", "a", b"shared")
    alone = first.upload_and_commit("main", "b", b"alone")
    physical = first.stat("main", "a")["physical_address"]
    second.stage("main", "theirs", physical, b"shared")
    second.commit("main", "refers to the first")
    for path in ("a", "b"):
        first.delete("main", path)
    first.upload("main", "new", b"new")
    first.commit("main", "without a and b")
    server.clock.forward(days=30)
    return first, second, shared, alone


def require_readable(*repositories: Repository) -> None:
    assert [repository.unreadable() for repository in repositories] == [[] for _ in repositories]


@pytest.mark.parametrize("planned_first", ["the_one_that_deletes", "the_one_that_refers"])
def test_objects_that_another_repository_references_stay(server: Server, tmp_path: Path, planned_first: str) -> None:
    first, second, shared, alone = share(server)
    retention = Retention(tmp_path, first, second, settle="0s")
    if planned_first == "the_one_that_refers":
        retention.plan(of=second)
    plan = retention.plan()
    retention.plan(of=second)
    retention.approve(plan)
    retention.sweep(plan)
    require_readable(first, second)
    assert shared in first.stored()
    assert alone not in first.stored()
    retention.plan()
    assert shared not in {row["address"] for row in retention.candidates()}


def test_a_sweep_refuses_while_another_repository_has_no_plan(lakefs: Server, tmp_path: Path) -> None:
    first, second, shared, alone = share(lakefs)
    retention = Retention(tmp_path, first, second, settle="0s")
    plan = retention.plan()
    assert f"{name_of(second)} has no complete plan yet" in " ".join(plan["warnings"])
    retention.approve(plan)
    answer = retention.run("sweep", day=plan["day"])
    assert answer.status == 1
    assert f"`retention plan {name_of(second)}`" in answer.err
    assert "Nothing was deleted" in answer.err
    assert {shared, alone} <= first.stored().keys()


def test_a_sweep_refuses_when_the_other_plan_is_too_old(lakefs: Server, tmp_path: Path) -> None:
    first, second, shared, alone = share(lakefs)
    retention = Retention(tmp_path, first, second, settle="0s")
    retention.plan(of=second)
    lakefs.clock.forward(hours=30)
    plan = retention.plan()
    retention.approve(plan)
    answer = retention.run("sweep", day=plan["day"])
    assert answer.status == 1
    assert f"The last complete plan of {name_of(second)} is of" in answer.err
    assert {shared, alone} <= first.stored().keys()


def test_a_sweep_refuses_after_the_other_repository_was_restored_to_an_older_state(
    lakefs: Server, tmp_path: Path
) -> None:
    """Somebody restores the other repository from an old dump by mistake, and later from a newer one."""
    first, second = lakefs.new_repository("first"), lakefs.new_repository("second")
    second.upload_and_commit("main", "own", b"of the second")
    second.dump(tmp_path / "old.json")
    shared = first.upload_and_commit("main", "a", b"shared")
    second.stage("main", "theirs", first.stat("main", "a")["physical_address"], b"shared")
    second.commit("main", "refers to the first")
    second.dump(tmp_path / "new.json")
    first.delete("main", "a")
    first.upload_and_commit("main", "new", b"new")
    lakefs.clock.forward(days=30)
    retention = Retention(tmp_path, first, second, settle="0s", reflog=True)
    retention.plan(of=second)
    second.roll_back(tmp_path / "old.json")
    assert "cannot be found any more" in retention.plan(of=second)["blocked"]
    plan = retention.plan()
    why = f"At its last plan, {name_of(second)} was in an older state than before. "
    assert why in " ".join(plan["warnings"])
    retention.approve(plan)
    answer = retention.run("sweep", day=plan["day"])
    assert answer.status == 1
    assert f"Nothing was deleted. {why}" in answer.err
    assert shared in first.stored()
    second.roll_back(tmp_path / "new.json")
    retention.plan(of=second)
    retention.sweep(plan)
    require_readable(first, second)


@pytest.mark.slow
def test_objects_that_the_other_repository_no_longer_references_are_deleted(lakefs: Server, tmp_path: Path) -> None:
    first, second, shared, _ = share(lakefs)
    second.delete("main", "theirs")
    second.upload("main", "new", b"new")
    second.commit("main", "without it")
    lakefs.clock.forward(days=30)
    retention = Retention(tmp_path, first, second, settle="0s")
    retention.plan(of=second)
    assert shared in {row["address"] for row in retention.plan_and_sweep()}
    assert shared not in first.stored()
    require_readable(first, second)


def test_repositories_of_the_server_that_are_not_configured_are_named(
    lakefs: Server, spark: SparkSession, tmp_path: Path
) -> None:
    first, second, *_ = share(lakefs)
    retention = Retention(tmp_path, first, settle="0s")
    for message in (" ".join(retention.plan()["warnings"]), retention.run("lint", day=None).out):
        assert " of the server " in message and " not configured: " in message
        assert second.name in message
        assert f"{first.name}," not in message


@pytest.mark.parametrize("inner", [pytest.param("", id="the_same"), pytest.param("/data/inner", id="inside_it")])
def test_a_plan_is_refused_if_an_unconfigured_repository_of_the_server_overlaps(
    lakefs: Server, tmp_path: Path, inner: str
) -> None:
    """lakeFS refuses neither a bare repository in a namespace that is in use, nor one inside another's namespace."""
    first = lakefs.new_repository("first")
    first.upload_and_commit("main", "always", b"there")
    garbage = first.upload("main", "a", b"garbage")
    first.reset("main")
    body = {"name": f"{first.name}-second", "storage_namespace": f"{first.namespace}{inner}"}
    first.client.ask("POST", "/repositories", {"bare": "true"}, body)
    lakefs.clock.forward(days=30)
    refused = Retention(tmp_path, first, settle="0s").run("plan", day=None)
    assert refused.status == 1
    assert "namespaces_apart" in refused.err
    assert f"{first.namespace} overlaps with {first.namespace}{inner} of repository {first.name}-second" in refused.err
    assert "`lakectl repo delete`" in refused.err
    assert garbage in first.stored()


@pytest.mark.parametrize(
    ("server", "spelled"),
    [
        pytest.param("lakefs", "local://{}", id="as_its_own"),
        pytest.param("lakefs", "local:///{}", id="otherwise"),
        pytest.param("lakefs", "local://x/../{}", id="with_dots", marks=pytest.mark.slow),
        pytest.param("lakefs_on_s3", "s3://user@lakefs/{}", id="with_a_user"),
        pytest.param("lakefs_on_s3", "s3:///lakefs/{}", id="with_three_slashes", marks=pytest.mark.slow),
        pytest.param("lakefs_on_s3", "s3://lakefs/./{}", id="with_a_dot", marks=pytest.mark.slow),
    ],
    indirect=["server"],
)
def test_a_sweep_is_refused_once_another_repository_of_the_server_has_the_same_namespace(
    server: Server, tmp_path: Path, spelled: str
) -> None:
    first = server.new_repository("first")
    address = first.upload_and_commit("main", "a", b"content")
    first.delete("main", "a")
    first.upload_and_commit("main", "new", b"new")
    server.clock.forward(days=30)
    retention = Retention(tmp_path / "retention", first, settle="0s")
    plan = retention.plan()
    retention.approve(plan)
    assert [row["address"] for row in retention.candidates(plan)] == [address]
    namespace = spelled.format(first.folder)
    second = first.restored_as(f"{first.name}-second", tmp_path / "dump.json", namespace)
    second.revert("main", "main")
    refused = retention.run("sweep", day=plan["day"])
    assert refused.status == 1
    assert f"{name_of(first)}: namespaces_apart: its location {first.namespace} overlaps with" in refused.err
    assert f"of repository {second.name} of the lakeFS server. Nothing was deleted." in refused.err
    assert address in first.stored()
    require_readable(first, second)
