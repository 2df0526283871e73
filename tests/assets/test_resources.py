"""The resources: their configuration in Dagster, when Spark's secrets are read, and how tests replace a resource."""

import json
import os
from datetime import UTC, date, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.remote_representation.external_data import RepositorySnap
from pyspark.sql import SparkSession

from retention_assets.assets import resources
from retention_assets.assets.lakefs import policy_table
from retention_assets.assets.resources import (
    CLOCK,
    TABLES,
    WAREHOUSE,
    ClockResource,
    WarehouseResource,
    repository_key,
    session,
    spark_resource,
)
from retention_assets.config.configuration import load_configuration
from retention_assets.config.settings import READ_TASKS, SWEEP_WORKERS, FromEnvironment, SparkValue
from retention_assets.definitions import build_definitions, repository_resources, shared_resources
from retention_assets.errors import ConfigurationError, OutOfMemory
from retention_assets.spark import sessions
from retention_assets.spark.failures import explaining
from retention_assets.spark.frames import CachedFrames, read_tasks, sweep_workers
from retention_assets.warehouse.warehouse import Warehouse
from tests.assets.graph import REPOSITORY, configuration
from tests.assets.lake import DAY, new_lake

KEY = "spark.hadoop.fs.s3a.secret.key"


def test_dagster_shows_the_variable_of_a_secret_and_not_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLES_SECRET", "a-canary")
    monkeypatch.setenv("LAKE_SECRET", "a-canary")
    entry = {**REPOSITORY, "storage_options": {"secret_access_key": {"env": "LAKE_SECRET"}}}
    document = {"warehouse": "w", "spark": {KEY: {"env": "TABLES_SECRET"}}, "repositories": {"orchard": entry}}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    definitions = build_definitions(load_configuration(file))
    shown = dg.serialize_value(RepositorySnap.from_def(definitions.get_repository_def()))
    assert "TABLES_SECRET" in shown
    assert "a-canary" not in shown


def test_a_secret_is_read_when_the_session_is_made_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABLES_SECRET", raising=False)
    resource = spark_resource({KEY: FromEnvironment(env="TABLES_SECRET"), "spark.driver.memory": "2g"})
    assert KEY not in resource.spark_config
    assert "TABLES_SECRET" in json.dumps(resource.secrets)
    with pytest.raises(ConfigurationError, match=r"spark\.hadoop.*TABLES_SECRET is not set. Nothing was read"):
        session(resource)


def test_unreadable_files_are_never_skipped_whatever_the_settings_of_the_session_are(spark: SparkSession) -> None:
    pinned = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    assert {spark_resource({}).spark_config[key] for key in pinned} == {"false"}
    try:
        for key in pinned:
            spark.conf.set(key, "true")
        assert {session(spark_resource({})).conf.get(key) for key in pinned} == {"false"}
    finally:
        for key in pinned:
            spark.conf.unset(key)


def test_a_local_session_compiles_for_many_objects_only_and_keeps_settings_of_the_configuration(
    spark: SparkSession,
) -> None:
    compiles = "spark.sql.codegen.wholeStage"
    before = spark.conf.get(compiles)
    for objects, expected in ((500, "false"), (5_000_000, "true"), (500, "false")):
        spark_resource({}).fit_to(objects)
        assert spark.conf.get(compiles) == expected
    spark_resource({compiles: False}).fit_to(5_000_000)
    spark_resource({"spark.master": "spark://a:7077"}).fit_to(5_000_000)
    assert spark.conf.get(compiles) == before == "false"


def test_a_task_of_a_local_session_has_at_most_as_many_objects_as_fit_into_its_part_of_the_memory(
    spark: SparkSession,
) -> None:
    partitions, cores = "spark.sql.shuffle.partitions", max(2, os.cpu_count() or 1)
    before = spark.conf.get(partitions)
    try:
        for objects in (0, 50_001, 200_000, 200_001, 10_000_000, 0):
            spark_resource({}).fit_to(objects)
            tasks = int(spark.conf.get(partitions) or 0)
            assert tasks % cores == 0
            assert tasks == cores or objects / tasks > 100_000 / cores
            assert objects / tasks * cores <= 200_000
        spark_resource({partitions: 7}).fit_to(10_000_000)
        assert spark.conf.get(partitions) == str(cores)
    finally:
        spark.conf.set(partitions, before)


def test_few_objects_are_not_distributed_to_all_cores(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    partitions, of_rows = "spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism"
    resource, before = spark_resource({}), spark.conf.get(partitions)
    monkeypatch.setattr(sessions, "_cores", lambda: 64)
    try:
        for objects, tasks in ((1, 1), (10_000, 1), (10_001, 2), (50_000, 5)):
            resource.fit_to(objects)
            assert {spark.conf.get(partitions), spark.conf.get(of_rows)} == {str(tasks)}
        resource.fit_to(50_001)
        assert (spark.conf.get(partitions), spark.conf.get(of_rows, None)) == ("64", None)
        resource.fit_to(1)
    finally:
        spark.conf.unset(of_rows)
        spark.conf.set(partitions, before)


def test_a_session_of_a_cluster_that_existed_before_is_not_fitted_to_few_objects(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles = "spark.sql.codegen.wholeStage"
    resource, before = spark_resource({}), spark.conf.get(compiles)
    monkeypatch.setattr(resources, "session", lambda _: spark)
    monkeypatch.setattr(spark.sparkContext, "master", "spark://head:7077")
    try:
        resource.fit_to(5_000_000)
        assert spark.conf.get(compiles) == before == "false"
    finally:
        spark.conf.set(compiles, "false")


def test_cached_rows_are_on_disk_only_for_many_objects(spark: SparkSession) -> None:
    partitions = "spark.sql.shuffle.partitions"
    before = spark.conf.get(partitions)
    try:
        for objects, in_memory in ((500, True), (5_000_000, False), (500, True)):
            spark_resource({}).fit_to(objects)
            with CachedFrames() as frames:
                assert frames.cache(spark.range(3)).storageLevel.useMemory == in_memory
    finally:
        spark.conf.set(partitions, before)


@pytest.mark.parametrize("settings", [{"spark.master": "spark://a:7077"}, {"spark.remote": "sc://a"}], ids=str)
def test_a_cluster_gets_no_setting_that_is_meant_for_one_machine(
    settings: dict[str, SparkValue], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = spark_resource({}).spark_config.keys()
    assert {"spark.driver.host", "spark.driver.memory", READ_TASKS, SWEEP_WORKERS} <= local
    monkeypatch.delenv("PYSPARK_PYTHON")
    config = spark_resource(settings).spark_config
    of_one = {name for name in config if name.startswith(("spark.driver.", "spark.retention.", "spark.sql.shuffle"))}
    assert of_one <= {"spark.driver.defaultJavaOptions"}  # how Java ends is right for every driver that starts here
    assert "PYSPARK_PYTHON" not in os.environ
    spark_resource({**settings, "spark.pyspark.python": "/opt/python3"})
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python3"


def test_a_submitted_driver_takes_its_master_and_memory_from_the_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert not {"spark.master", "spark.driver.memory"} & spark_resource({}).spark_config.keys()


@pytest.mark.parametrize("value", ["true", "True", "TRUE", " true "])
def test_a_session_that_may_run_a_task_twice_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    setting = spark.sparkContext._conf.get
    speculating = {"spark.speculation": value}
    monkeypatch.setattr(
        spark.sparkContext._conf, "get", lambda key, *default: speculating.get(key) or setting(key, *default)
    )
    with pytest.raises(ConfigurationError, match=r"spark\.speculation=true.*Start the cluster"):
        session(spark_resource({}))


def test_an_error_of_java_that_has_no_memory_left_names_the_setting(spark: SparkSession) -> None:
    remedy = r"Nothing more was done\. Set more memory .*spark\.driver\.memory.*Then run the same command again"
    failing = spark.sql("SELECT raise_error('java.lang.OutOfMemoryError: Java heap space')")
    with pytest.raises(OutOfMemory, match=f"^Java used up its memory.* {remedy}"), explaining():
        failing.collect()


@pytest.mark.parametrize("memory", [None, "1g", "2G", "2048m", "1073741824"])
def test_a_small_memory_has_small_pages_and_keeps_few_rows(memory: str | None) -> None:
    config = spark_resource({"spark.driver.memory": memory} if memory else {}).spark_config
    assert (config["spark.buffer.pageSize"], config["spark.memory.fraction"]) == ("2m", "0.25")


@pytest.mark.parametrize(
    "settings",
    [{"spark.driver.memory": "3g"}, {"spark.driver.memory": "64g"}, {"spark.master": "spark://host:7077"}],
    ids=str,
)
def test_a_large_memory_has_the_pages_of_spark_because_a_task_has_a_limited_number_of_them(
    settings: dict[str, SparkValue],
) -> None:
    assert not {"spark.buffer.pageSize", "spark.memory.fraction"} & spark_resource(settings).spark_config.keys()


def test_java_starts_with_the_archive_of_classes_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert "SharedArchiveFile" not in spark_resource({}).spark_config["spark.driver.extraJavaOptions"]
    (tmp_path / "spark.jsa").touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/" in spark_resource({}).spark_config["spark.driver.extraJavaOptions"]


def test_reading_tasks_and_sweep_workers_do_not_follow_the_shuffle_partitions_where_they_are_set(
    spark: SparkSession,
) -> None:
    assert (read_tasks(spark), sweep_workers(spark)) == (2, 2)  # shuffle partitions; cores of the session
    chosen = {READ_TASKS: "7", SWEEP_WORKERS: "3", "spark.sql.shuffle.partitions": "400"}
    try:
        for key, value in chosen.items():
            spark.conf.set(key, value)
        assert (read_tasks(spark), sweep_workers(spark)) == (7, 3)
    finally:
        spark.conf.unset(READ_TASKS)
        assert (read_tasks(spark), sweep_workers(spark)) == (400, 3)
        spark.conf.unset(SWEEP_WORKERS)
        spark.conf.set("spark.sql.shuffle.partitions", "2")


class FixedClock(ClockResource):
    """A clock that always shows one configured time."""

    at: str

    def now(self) -> datetime:
        return datetime.fromisoformat(self.at)


def replaced(tmp_path: Path) -> dg.Definitions:
    """Return definitions with a fixed clock and a warehouse that the configuration does not name."""
    warehouse = WarehouseResource(root=str(tmp_path / "another"))
    shared = shared_resources({}, warehouse, FixedClock(at="2026-11-22T03:00:00+00:00"))
    return build_definitions(configuration(tmp_path, "orchard", "9meadows"), resources=shared)


def test_dagster_shows_the_resources_and_what_they_use(tmp_path: Path) -> None:
    definitions = replaced(tmp_path)
    dg.Definitions.validate_loadable(definitions)
    shown = {one.name: one for one in RepositorySnap.from_def(definitions.get_repository_def()).resources or []}
    fields = {
        name: {key: json.loads(value) for key, value in one.configured_values.items()} for name, one in shown.items()
    }
    assert fields[WAREHOUSE]["root"] == str(tmp_path / "another")
    assert fields[CLOCK] == {"at": "2026-11-22T03:00:00+00:00"}
    assert fields[repository_key("orchard")] == {"name": "orchard"}
    used = shown[repository_key("9meadows")].nested_resources
    assert (used["tables"].name, used["clock"].name) == (WAREHOUSE, CLOCK)
    assert shown[TABLES].nested_resources["tables"].name == WAREHOUSE


def test_an_asset_uses_the_clock_and_the_warehouse_that_replace_the_usual_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = new_lake("orchard", tmp_path)
    warehouse = WarehouseResource(root=str(tmp_path / "another"))
    shared = shared_resources({}, warehouse, FixedClock(at="2026-11-22T03:00:00+00:00"))
    settings = lake.configuration()
    asset = policy_table.definition(settings.repository("orchard"))
    resources = {**shared, **repository_resources(settings, shared)}
    made = dg.materialize([asset], partition_key=DAY, resources=resources)
    assert made.success
    metadata = Warehouse(warehouse.root).metadata("orchard", "policy_table", date.fromisoformat(DAY))
    assert metadata.taken_at == datetime(2026, 11, 22, 3, tzinfo=UTC)
    assert not (tmp_path / "warehouse").exists()


def test_definitions_open_no_store_and_no_warehouse(tmp_path: Path) -> None:
    dg.Definitions.validate_loadable(replaced(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["retention.yaml"]
