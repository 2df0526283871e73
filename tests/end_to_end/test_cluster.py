"""Plans and sweeps on Spark clusters: code, settings and credentials reach the executors.

The tests that are not slow plan once on each cluster. `make test-clusters` runs all of them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.clusters import connect_server, driven, standalone
from tests.end_to_end.command import Json, Project, orchard, orchard_on_disk
from tests.end_to_end.s3_server import REGION, Lake
from tests.icechunk_projects import GARBAGE, ago, icechunk_project
from tests.icechunk_repositories import Commit
from tests.saved_repositories import expected

pytestmark = [pytest.mark.clusters, pytest.mark.timeout(900)]

COMMITS = (Commit("a", None, ago(100)), Commit("b", "a", ago(90)), Commit("c", "b", ago(5)))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    with standalone(tmp_path_factory.mktemp("standalone")) as settings:
        yield settings


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    with connect_server(tmp_path_factory.mktemp("connect")) as settings:
        yield settings


def shared(project: Project) -> Project:
    """Return the project with a warehouse that all processes of the cluster share."""
    project.shared = True
    return project


def icechunk(directory: Path) -> Project:
    return icechunk_project(directory, 2, COMMITS, {"main": "c"}, mode="plan").project


def of_commits(rows: list[Json]) -> set[tuple[str, int]]:
    return {(row["address"], row["size"]) for row in rows if row["reason"] == "expired"}


EXPIRED = {(row.address, row.size) for row in expected("orchard", "retention.csv") if row.kind == "committed"}


def test_a_standalone_cluster_plans_a_repository_on_s3_with_the_package_and_the_secrets_of_the_driver(
    master: Json, new_lake: Callable[[], Lake], tmp_path: Path
) -> None:
    lake = new_lake()
    secrets = {"access_key_id": {"env": "LAKE_KEY"}, "secret_access_key": {"env": "LAKE_SECRET"}}
    project = orchard(tmp_path, lake.storage, {"endpoint": lake.server.endpoint, "region": REGION, **secrets})
    seen = driven("plan", shared(project), master)
    assert of_commits(seen["candidates"]) == EXPIRED
    assert seen["executors"]
    for executor in seen["executors"]:
        assert executor["process"] != seen["driver"]
        assert "/retention_assets.zip/" in executor["file"]
        assert executor["secrets"] == ""


def test_a_spark_connect_server_plans_an_icechunk_repository(remote: Json, tmp_path: Path) -> None:
    seen = driven("plan", shared(icechunk(tmp_path / "field")), remote)
    assert GARBAGE in {row["address"] for row in seen["candidates"]}
    assert all("/retention_assets.zip/" in executor["file"] for executor in seen["executors"])


@pytest.mark.slow  # two minutes each: a dozen commands
@pytest.mark.parametrize("make", [orchard_on_disk, icechunk], ids=["lakefs", "icechunk"])
@pytest.mark.parametrize("cluster", ["master", "remote"], ids=["standalone", "connect"])
def test_a_cluster_plans_moves_restores_deletes_and_verifies(
    request: pytest.FixtureRequest, tmp_path: Path, make: Callable[[Path], Project], cluster: str
) -> None:
    project, objects = shared(make(tmp_path / "planned")), "lake" if make is orchard_on_disk else "repository"
    seen = driven("run_all", project, request.getfixturevalue(cluster), objects)
    candidates = {row["address"] for row in seen["candidates"]}
    assert candidates
    assert seen["swept_in_plan_mode"] != 0
    assert seen["unchanged"]
    assert set(seen["moved"]) == set(seen["back"]) == candidates
    assert set(seen["deleted"]) == candidates
    assert {(row["address"], row["outcome"]) for row in seen["report"]} == {(one, "deleted") for one in candidates}
