"""An Icechunk repository whose chunks another repository uses by virtual references."""

from pathlib import Path

import icechunk as ic
import pytest
import zarr
from pyspark.sql import SparkSession

from retention_assets.assets.runs import plan_job, sweep_job
from tests.assets.icechunk_lake import NAME, IcechunkLake, at, new_icechunk_lake
from tests.icechunk_repositories import Commit, create_repository

pytestmark = pytest.mark.usefixtures("spark", "forgetful")

COMMITS = (Commit("a", None, at(30)), Commit("gone", "a", at(25)), Commit("c", "a", at(2)))
OTHER = {"kind": "icechunk", "storage": "other", "policy": "policy.yaml"}
SWEPT = {"mode": "delete", "settle": "0s", "budget": {"objects": 1000}, "approval": {"max_revived": 1.0}}


def refer(directory: Path, location: str) -> None:
    """Make a repository with one virtual reference."""
    session = create_repository(directory).writable_session("main")
    zarr.create_array(session.store, name="a", shape=(2,), chunks=(1,), dtype="i4", compressors=None)
    chunk = ic.VirtualChunkSpec(index=[0], location=location, offset=0, length=4)
    session.store.set_virtual_refs("a", [chunk], validate_containers=False)
    session.commit("refers to another repository")


def warnings(lake: IcechunkLake) -> str:
    document = lake.plan_document()
    assert document is not None
    return " ".join(document["warnings"])


@pytest.mark.slow
def test_a_chunk_that_another_repository_names_stays(spark: SparkSession, tmp_path: Path) -> None:
    lake, _ = new_icechunk_lake(tmp_path, 2, COMMITS, {"main": "c"})
    lake.configure(**SWEPT)
    assert lake.plan().success
    assert "another repository" not in warnings(lake)
    candidates = set(lake.candidates())
    shared = min(name for name in candidates if name.startswith("chunks/"))

    refer(tmp_path / "other", f"file://{lake.directory}/{shared}")
    lake.configure(others={"other": OTHER}, **SWEPT)
    assert lake.plan().success
    assert "other has no complete plan yet" in warnings(lake)
    assert shared in lake.candidates()
    refused = lake.run(sweep_job(NAME))
    assert not refused.success
    assert "Nothing was deleted. other has no complete plan yet. Make one: `retention plan other`." in refused.errors

    assert lake.run(plan_job("other")).success  # a reference abroad is no reason to refuse it
    swept = lake.run(sweep_job(NAME))
    assert swept.success, swept.errors
    assert candidates & lake.files() == {shared}

    assert lake.plan().success
    assert shared not in lake.candidates()
    assert "another repository" not in warnings(lake)
