"""Fixtures of all tests: a clean environment, one Spark session per process, and the profiles of Hypothesis."""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import botocore.session  # type: ignore[import-untyped]
import pytest
from alembic.script import ScriptDirectory
from botocore.loaders import create_loader  # type: ignore[import-untyped]
from hypothesis import settings
from pyspark.sql import SparkSession
from sqlalchemy import Engine, event
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from retention_assets.spark.sessions import FEW_RETAINED, class_archive, prepared
from tests.end_to_end.command import Answer, Project, orchard_on_disk
from tests.refusals import record

pytest_plugins = ["tests.buckets"]

# Variables of a developer's shell that tests must not see: credentials, endpoints, other installations of tools.
FOREIGN_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "LAKECTL_", "LAKEFS_", "RETENTION_", "DAGSTER_", "SPARK_", "PYSPARK_")
FOREIGN_NAMES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "NO_COLOR", "FORCE_COLOR")

TEST_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PYSPARK_PYTHON": sys.executable,  # otherwise workers use python3 of the PATH
    "SPARK_LOCAL_IP": "127.0.0.1",
    "TERM": "xterm-256color",
}

settings.register_profile("project", deadline=None)  # a first call that compiles or warms up is no failure
settings.register_profile("thorough", settings.get_profile("project"), max_examples=2000)
settings.load_profile("project")


def pytest_configure() -> None:
    """Record errors from the first import on, in this process and in xdist's workers: see `tests.refusals`."""
    if folder := os.environ.get("REFUSALS"):
        record(Path(folder).resolve())


deselected: set[str] = set()  # the ids of tests that this run collected and does not execute


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember the tests that a marker or a name leaves out."""
    deselected.update(item.nodeid for item in items)


# Files that share a fixture which takes long. One xdist worker runs all files of a set, so the fixture runs once.
ON_ONE_WORKER = {
    "lakes": ("tests/assets/test_plans.py", "tests/assets/test_refusals.py"),
    "an approved plan in S3": (
        "tests/end_to_end/test_changed_world.py",
        "tests/end_to_end/test_faulty_store.py",
        "tests/end_to_end/test_quarantine.py",
        "tests/end_to_end/test_writer_at_work.py",
    ),
    "an approved plan on disk": ("tests/sweep/crashes/test_through_assets.py", "tests/sweep/test_execute.py"),
}


class OneWorkerForShared(LoadFileScheduling):
    """All tests of a file run on one worker, and so do all files of each set in `ON_ONE_WORKER`."""

    _sets: ClassVar = {file: shared for shared, files in ON_ONE_WORKER.items() for file in files}

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return self._sets.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return OneWorkerForShared(config, log) if config.getvalue("dist") == "loadfile" else None


def java_home() -> str | None:
    """Return the JAVA_HOME that `make setup` recorded in this virtualenv, else the one of the shell."""
    noted = Path(sys.prefix) / "java_home"
    return noted.read_text(encoding="utf-8").strip() if noted.is_file() else os.environ.get("JAVA_HOME")


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the developer's settings from the environment, and give Dagster an empty home."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores Ctrl-C for what it starts in the background. Dagster then ignores SIGTERM, too, and so would
        # all servers that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    dagster_home = tmp_path_factory.mktemp("dagster_home")
    (dagster_home / "dagster.yaml").write_text(_DAGSTER, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN_PREFIXES) or name in FOREIGN_NAMES:
                patch.delenv(name)
        for name, value in {**TEST_ENVIRONMENT, "DAGSTER_HOME": str(dagster_home)}.items():
            patch.setenv(name, value)
        if home := java_home():
            patch.setenv("JAVA_HOME", home)
        yield


# Nobody reads the output of these runs: capturing it would start four processes for each.
_DAGSTER = """
telemetry: {enabled: false}
compute_logs: {module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager}
"""


@pytest.fixture(scope="session", autouse=True)
def migrations_read_once() -> Iterator[None]:
    """Let Dagster read its migrations once per process. It reads a hundred files for each new database of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", cache(ScriptDirectory.from_config))
        yield


@pytest.fixture(scope="session", autouse=True)
def models_of_aws_read_once() -> Iterator[None]:
    """Let botocore read its models once per process. Each new session reads that of S3 again, which takes 0.1 seconds.

    botocore adds to a model while it reads it, so no thread may use the model before.
    """
    loader = create_loader()
    loader.load_service_model("s3", "service-2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", lambda _: loader)
        yield


@pytest.fixture(scope="session", autouse=True)
def databases_without_wait() -> Iterator[None]:
    """Let SQLite write without waiting for the disk. Dagster commits after each of its 400 statements of a plan."""

    def without_wait(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", without_wait)
    yield
    event.remove(Engine, "connect", without_wait)


# Queries over a dozen rows cost more to compile than to interpret: compiled, they take twice the processor time.
# `tests/end_to_end/test_sweep.py` compiles, as runs with many objects do.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
}
COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.constraintPropagation.enabled": "true",
}
# Only Java's simple compiler. Without counters for the thorough compiler, its code is compiled in a third of the time.
SIMPLE_COMPILER = "-XX:+UseSerialGC -XX:MetaspaceSize=256m -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


@pytest.fixture(scope="session")
def spark(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local session per process. Resources of the code under test get the same session."""
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("retention_assets tests")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark_warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.buffer.pageSize", "2m")
        .config("spark.driver.extraJavaOptions", " ".join([SIMPLE_COMPILER, *class_archive()]))
        .config(map={**INTERPRETED, **FEW_RETAINED})
    )
    session = prepared(builder.getOrCreate)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def planned_orchard(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Answer]:
    """Orchard on disk after `plan --json`, with the output of the command. Tests must copy it before they change it."""
    project = orchard_on_disk(tmp_path_factory.mktemp("planned"))
    answer = project.run("plan", "--json")
    assert answer.status == 0, answer.err
    return project, answer


def forget_caches() -> None:
    """Empty Spark's cache. In production each run has its own process; in tests its frames would stay."""
    session = SparkSession.getActiveSession()
    if session:
        session.catalog.clearCache()


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Empties Spark's cache after each test, for tests of complete runs."""
    yield
    forget_caches()


@pytest.fixture(scope="module", autouse=True)
def forgetful_modules() -> Iterator[None]:
    """Empties Spark's cache after the last test of each file."""
    yield
    forget_caches()
