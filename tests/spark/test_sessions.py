"""Sessions whose executors run in other processes have this package."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from py4j.protocol import Py4JError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from retention_assets.config.settings import FromEnvironment, SparkValue
from retention_assets.errors import ConfigurationError, StoreError
from retention_assets.spark import sessions
from retention_assets.spark.frames import is_one_process, master_of
from retention_assets.spark.sessions import prepared, spark_settings, started


class Settings(dict[str, str]):
    """The settings of a session on a cluster."""

    def set(self, key: str, value: str) -> None:
        """Change one setting."""
        self[key] = value


class ClusterSession:
    """The part of a session on a cluster that `prepared` uses. Its executors import the files in `sent`."""

    def __init__(self) -> None:
        self.conf = Settings({"spark.master": "local[*]"})  # a default of this project, which has no effect there
        self.sparkContext = SimpleNamespace(master="spark://cluster:7077", _conf={}, _jvm=Mock())
        self.sent: list[str] = []

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:
        """Send a file to the executors."""
        assert pyfile
        self.sent.append(path)


def test_every_new_session_gets_the_package_once() -> None:
    for _ in range(20):  # Python gives a new session the address of one that is gone
        session: Any = ClusterSession()
        for _ in range(2):
            prepared(lambda session=session: session)
        assert len(session.sent) == 1
        del session


@pytest.mark.parametrize(("objects", "is_quick"), [(0, False), (1, True), (50_000, True), (50_001, False)])
def test_java_compiles_for_few_objects_only_where_few_are_listed(objects: int, is_quick: bool) -> None:
    options = spark_settings({}, objects).plain["spark.driver.extraJavaOptions"]
    assert ("-XX:TieredStopAtLevel=1" in options, "-XX:Tier4CompileThreshold=" in options) == (is_quick, not is_quick)


def test_a_function_of_spark_is_looked_up_in_java_only_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = prepared(lambda: spark).sparkContext
    F.coalesce(F.col("first"), F.lit(1))
    requests, client = [], context._gateway._gateway_client
    send = client.send_command

    def record(command: str, *arguments: object, **options: object) -> object:
        requests.append(command.split("\n")[0])
        return send(command, *arguments, **options)

    monkeypatch.setattr(client, "send_command", record)
    F.coalesce(F.col("second"), F.lit(2))
    assert "c" in requests  # Java's functions are called
    assert "r" not in requests  # Java is not asked for them


_PLANS_TWICE = """
from pyspark.sql import functions as F
from retention_assets.spark.sessions import fit_to, started

spark = started({})
fit_to(1, spark)
spark.range(9).observe("sent after the task", F.collect_set("id").alias("ids")).collect()
fit_to(1_000_000, spark)
compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
for _ in range(2):
    before = compiled.getCount()
    for number in range(60):
        spark.range(9).where(f"id > {number}").groupBy("id").count().count()
    print(compiled.getCount() - before)
"""


@pytest.mark.long
def test_code_that_was_compiled_for_the_queries_of_a_plan_is_kept_for_the_next() -> None:
    command = [sys.executable, "-c", _PLANS_TWICE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split()[-2:])
    assert first > 100
    assert second == 0


OVERLAID = {"spark.master": "spark://head:7077", "spark.speculation": "false"}


@pytest.fixture
def overlaid(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that existed before it was asked for with other settings. Spark stores them, and ignores the first."""
    before = {key: str(spark.conf.get(key, value)) for key, value in OVERLAID.items()}
    assert SparkSession.builder.config(map=OVERLAID).getOrCreate() is spark
    yield spark
    SparkSession.builder.config(map=before).getOrCreate()


def test_the_master_of_a_session_that_existed_before_is_the_one_it_started_with(overlaid: SparkSession) -> None:
    assert overlaid.conf.get("spark.master") == "spark://head:7077"
    assert master_of(overlaid) == "local[2]"
    assert is_one_process(overlaid)


def test_speculation_is_found_in_a_session_that_existed_before(overlaid: SparkSession) -> None:
    of_context = overlaid.sparkContext._conf
    of_context.set("spark.speculation", "true")
    try:
        assert overlaid.conf.get("spark.speculation") == "false"
        with pytest.raises(ConfigurationError, match=r"spark\.speculation=true.*Start the cluster"):
            started({})
    finally:
        of_context.set("spark.speculation", "false")
    assert started({}) is overlaid


def test_a_java_that_is_missing_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts `java` in a process of its own, so the test does the same without a session of this process."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")

    def start() -> SparkSession:
        launch_gateway()
        raise AssertionError("Java was started")

    with pytest.raises(ConfigurationError, match=r"^Java did not start\. JAVA_HOME is /no/java\..* Install Java 17 or"):
        prepared(start)


@pytest.mark.parametrize("is_secret", [False, True])
def test_a_server_that_accepts_no_connection_is_reported_soon(monkeypatch: pytest.MonkeyPatch, is_secret: bool) -> None:
    """Spark itself would try for ten minutes."""
    monkeypatch.setattr(sessions, "_SECONDS_TO_CONNECT", 0.5)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: pytest.fail("Spark tries to connect"))
    with socket.socket() as bound:  # nobody listens, and nobody else gets the port
        bound.bind(("127.0.0.1", 0))
        address = f"sc://127.0.0.1:{bound.getsockname()[1]}/"
        monkeypatch.setenv("THE_SERVER", f"{address};user_id=canary")
        remote = FromEnvironment(env="THE_SERVER") if is_secret else f"{address};user_id=canary"
        with pytest.raises(StoreError) as refused:
            started({"spark.remote": remote})
    where = "spark.remote (the environment variable THE_SERVER)" if is_secret else f"spark.remote: {address}"
    assert str(refused.value).startswith(
        "Spark did not start: the server accepted no connection within 0.5 seconds. The session is for "
        f"{where}. Nothing was read or deleted. Check that this address can be reached"
    )
    assert "canary" not in str(refused.value)


def test_a_server_that_accepts_connections_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: refused_by_server())
    try:
        with pytest.raises(StoreError, match="Connection refused"):  # the error of Spark, which was called
            started({"spark.remote": f"sc://127.0.0.1:{port}"})
    finally:
        server.stop(None)


def refused_by_server() -> SparkSession:
    """The error that pyspark raises after its attempts to reach a server that has stopped."""
    raise SparkConnectGrpcException(
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
        '\tdetails = "failed to connect to all addresses; Connection refused"\n\tdebug_error_string = "…"\n>'
    )


def stopped_by_spark() -> SparkSession:
    """The error that Spark raises after its attempts to reach a master, which take a minute."""
    raise Py4JError("An error occurred while calling None.SparkSession.\n: IllegalStateException: stopped.\n\tat …")


@pytest.mark.parametrize(
    ("settings", "fails", "reason", "where"),
    [
        pytest.param(
            {"spark.remote": "sc://far:15002/;token=canary"},
            refused_by_server,
            "failed to connect to all addresses; Connection refused",
            "spark.remote: sc://far:15002/",
            id="connect",
        ),
        pytest.param(
            {"spark.remote": FromEnvironment(env="THE_SERVER")},
            refused_by_server,
            "failed to connect to all addresses; Connection refused",
            "spark.remote (the environment variable THE_SERVER)",
            id="connect_with_a_secret",
        ),
        pytest.param(
            {"spark.master": "spark://far:7077"},
            stopped_by_spark,
            "IllegalStateException: stopped",
            "spark.master: spark://far:7077",
            id="standalone",
        ),
    ],
)
def test_a_master_or_server_that_cannot_be_reached_is_named(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, SparkValue],
    fails: Callable[[], SparkSession],
    reason: str,
    where: str,
) -> None:
    monkeypatch.setenv("THE_SERVER", "sc://far:15002/;token=canary")
    monkeypatch.setattr(sessions, "_require_connection", lambda _: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: fails())
    with pytest.raises(StoreError) as refused:
        started(settings)
    assert str(refused.value).startswith(f"Spark did not start: {reason}. The session is for {where}. Nothing was read")
    assert "canary" not in str(refused.value)
    assert refused.value.exit_code == 3


def test_the_master_of_a_submitted_job_whose_session_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "15002")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: stopped_by_spark())
    with pytest.raises(StoreError, match=r"The session is for the master of spark-submit\. Nothing was read"):
        started({})
