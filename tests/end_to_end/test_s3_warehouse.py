"""A warehouse on S3: Spark uses s3a:// for its tables, and all other files go through obstore."""

from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from retention_assets.cli import runs
from tests.conftest import INTERPRETED
from tests.end_to_end.clusters import driven
from tests.end_to_end.command import Json, environment, orchard_on_disk
from tests.end_to_end.s3_server import REGION, S3Server, empty_lake
from tests.objectstore.programs import INSTALLED

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    found = sorted((INSTALLED / "ivy" / "jars").glob("*.jar"))
    if not found:
        pytest.skip("hadoop-aws is not installed: `make test-servers` installs it")
    return found


def test_the_installed_hadoop_aws_is_of_the_version_of_hadoop_in_pyspark(jars: list[Path]) -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.name.removeprefix("hadoop-client-api-")
    assert f"org.apache.hadoop_hadoop-aws-{version}" in {jar.name for jar in jars}


@pytest.fixture
def on_s3(jars: list[Path], s3: S3Server, tmp_path: Path) -> Callable[[str], Json]:
    """Return a function that runs a scenario of `cluster_driver` with its tables in a new bucket."""

    def seen(scenario: str) -> Json:
        tables = empty_lake(s3, f"tables-{scenario}", "warehouse")
        project = orchard_on_disk(tmp_path / "orchard")
        project.tables, project.settings["mode"] = tables.storage.replace("s3://", "s3a://"), "delete"
        session = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.path.style.access": True,
            "spark.hadoop.fs.s3a.access.key": {"env": "LAKE_KEY"},
            "spark.hadoop.fs.s3a.secret.key": {"env": "LAKE_SECRET"},
            **INTERPRETED,
        }
        obstore = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": REGION}
        keys = {"AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": "a secret"}
        output = driven(scenario, project, session, **obstore, **keys)
        assert not (project.directory / "warehouse").exists()
        return {**output, "tables": {path.split("/")[1] for path in tables.listing() if "/" in path}}

    return seen


@pytest.mark.clusters
def test_a_table_on_s3_is_written_by_spark_and_read_by_spark_and_arrow(on_s3: Callable[[str], Json]) -> None:
    seen = on_s3("tables")
    assert seen["spark"] == seen["arrow"] == ["data/a", "data/b"]
    assert seen["tables"] == {"uncommitted_objects"}


@pytest.mark.slow  # 1,700 requests to a server in Python
@pytest.mark.clusters
def test_a_plan_whose_tables_are_on_s3_is_made_approved_executed_and_verified(on_s3: Callable[[str], Json]) -> None:
    seen = on_s3("delete")
    assert {(row["address"], row["outcome"]) for row in seen["report"]} == {
        (row["address"], "deleted") for row in seen["candidates"]
    }
    assert {"deletion_proof", "ledger", "records"} <= seen["tables"]


def test_a_warehouse_that_spark_cannot_use_is_refused_before_the_first_step(
    s3: S3Server, spark: SparkSession, tmp_path: Path
) -> None:
    tables = empty_lake(s3, "tables-without-jars", "warehouse")
    project = orchard_on_disk(tmp_path)
    project.tables = tables.storage.replace("s3://", "s3a://")
    project.write()
    keys = {"AWS_ACCESS_KEY_ID": "the-key", "AWS_SECRET_ACCESS_KEY": "a secret"}
    with environment(AWS_ENDPOINT_URL=s3.endpoint, AWS_REGION=REGION, **keys):
        answer = project.run("plan")
    assert answer.status == 2, answer.err
    assert f"{project.tables}: Spark cannot use the warehouse" in answer.err
    assert tables.listing().keys() == {"warehouse.json"}


def test_a_warehouse_that_cannot_be_written_is_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "build_definitions", lambda *_, **__: pytest.fail("a run began"))
    project = orchard_on_disk(tmp_path)
    (tmp_path / "file").write_text("no directory")
    project.tables = "file/warehouse"
    project.write()
    answer = project.run("plan")
    assert answer.status == 3
    assert "file/warehouse: cannot write its objects" in answer.err
