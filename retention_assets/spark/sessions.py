"""Starts Spark sessions: defaults for local runs, secrets, and this package for executors.

This module does not import Dagster. So Java can start in the background while Dagster is imported, which takes seconds.
"""

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from py4j.protocol import Py4JError
from pyspark.conf import SparkConf
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import retention_assets
from retention_assets.config.settings import MANY_OBJECTS, READ_TASKS, SWEEP_WORKERS, FromEnvironment, SparkValue
from retention_assets.errors import ConfigurationError
from retention_assets.spark.failures import start_error
from retention_assets.spark.frames import is_connect, is_local_master, is_one_process

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "retention_assets",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "32m",  # smaller joins use hashing and skip sorting
    # Rows that are distributed by the key of an aggregate are aggregated once, not before and after. See `by_address`.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # With Spark's default of 100, one worker of a sweep gets 5 % more objects than the others.
    "spark.sql.execution.rangeExchange.sampleSizePerPartition": "2000",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # else each column asks Java for its source line
    "spark.driver.defaultJavaOptions": "-XX:+ExitOnOutOfMemoryError",  # else threads wait forever for a dead one
    "spark.speculation": "false",  # else a deletion could run twice
    # Spark hides the values of options with these names in its logs and its UI.
    "spark.redaction.regex": "(?i)secret|passw|passphrase|token|credential|[._-]?key|sas|signature",
}


# If Spark skipped a file, rows such as live addresses would be missing. Many clusters set the first two to true.
_REQUIRED: Mapping[str, str] = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # other readers read the default as local time
}

# MetaspaceSize is as large as Spark's classes need: a smaller value causes garbage collections. A small plan fits into
# the initial heap. For a large plan, the heap grows only when it has to: with the default ratios, Java would have its
# maximal heap most of the time.
_JAVA_MEMORY = (
    "-XX:+UseSerialGC -XX:InitialHeapSize=384m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:MetaspaceSize=256m"
)
# Java's optimizing compiler (tier 4) starts late here: with its default thresholds, it doubles the processor time of a
# small plan. Without this compiler, aggregates of 500,000 rows take more than twice as long.
_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=20000 -XX:Tier4CompileThreshold=300000 "
    "-XX:Tier4BackEdgeThreshold=800000"
)
# For a process that plans few objects and ends: without counters for the optimizing compiler, Java's quick compiler
# takes half of the time. Alone, it has 48 MB for its code by default, and stops when they are full.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# Spark keeps figures of finished queries for its UI, by default of 1,000: 100 to 200 MB of Java's heap after 100 plans.
FEW_RETAINED: Mapping[str, str] = {
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}
# For few rows, compiling code, replanning a query after each stage, and deriving filters from other filters take longer
# than the query itself.
_FOR_FEW_OBJECTS: Mapping[str, tuple[str, str]] = {  # the values for few objects, and for more
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
    "spark.sql.adaptive.enabled": ("false", "true"),
    "spark.sql.constraintPropagation.enabled": ("false", "true"),
}
_FEW_OBJECTS = 50_000
_OBJECTS_OF_TASK = 10_000  # objects of one task if there are few: a task with fewer takes longer to start than to run
# In one process, all tasks share one memory. With many objects, there are more tasks than cores, so that the rows of a
# task fit into its part of the memory. Else tasks write most rows to disk and read them again.
_PARTITIONS, _PARTITION_BYTES = "spark.sql.shuffle.partitions", "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_LEAF_PARTITIONS = "spark.sql.leafNodeDefaultParallelism"  # of rows that the driver holds
_OBJECTS_AT_ONCE = 200_000  # objects of all tasks that run at the same time
_BYTES_AT_ONCE = 2**23  # shuffled bytes that these tasks read
_PYTHON, _MEMORY = "spark.pyspark.python", "spark.driver.memory"
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}
_SMALL_MEMORY: Mapping[str, str] = {  # for at most 2 GB of memory; the limit of 8,192 pages for a task is then enough
    "spark.buffer.pageSize": "2m",  # Spark's default is 16 MB for each aggregate and join
    "spark.memory.fraction": "0.25",  # of the heap, for rows in aggregates, joins and sorts; others are on disk
}
# How many classes Spark keeps that it compiled for queries, by default 100. A plan of many objects has 150 of them, and
# each later plan adds 6. Their texts are in memory, so not all can be kept.
_COMPILED_CODE = "spark.sql.codegen.cache.maxEntries"
_JAVA_FUNCTIONS = ("org.apache.spark.sql.functions", "functions", "PythonUtils")  # by the names that pyspark uses
_SUBMIT_PORT = "PYSPARK_GATEWAY_PORT"  # set if `spark-submit` started the driver with a master and settings
_NO_JAVA = "JAVA_GATEWAY_EXITED"  # Spark's name of the error when Java cannot be started, or ends at once
_SECONDS_TO_CONNECT = 45  # to a Spark Connect server
_LOGGING = Path(__file__).with_name("log4j2.properties")


def _local_defaults(objects: int) -> dict[str, str]:
    """Return the default settings for a session whose driver is the only process. Other masters get none of them."""
    cores = str(_cores())
    compiler = _QUICK_COMPILER if _are_few(objects) else _LATE_COMPILER
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    return {
        "spark.driver.extraJavaOptions": " ".join([_JAVA_MEMORY, compiler, logging, *class_archive()]),
        "spark.master": "local[*]",
        _MEMORY: "1g",
        **FEW_RETAINED,
        _COMPILED_CODE: "500",
        # Else each spilled part of a sort has three buffers of 1 MB, which Spark does not count.
        "spark.unsafe.sorter.spill.read.ahead.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _PARTITIONS: cores,
        _PARTITION_BYTES: str(_BYTES_AT_ONCE // _cores()),
        # A task that writes Parquet holds a whole row group. So does a task that reads it. The default is 128 MB.
        "spark.hadoop.parquet.block.size": str(2**23),
        READ_TASKS: cores,
        SWEEP_WORKERS: cores,
    }


def _cores() -> int:
    return max(2, os.cpu_count() or 1)


def _are_few(objects: int) -> bool:
    return 0 < objects <= _FEW_OBJECTS  # 0: nothing is listed yet, so there may be many


def _is_small(memory: str | None) -> bool:
    """Return whether the memory of the driver is the default or at most 2 GB. `memory`: as in `spark.driver.memory`."""
    if memory is None:
        return True
    match = re.fullmatch(r"(\d+)([kmg]?)b?", memory.strip().lower())
    return match is not None and int(match[1]) << _UNITS[match[2]] <= 2**31


def class_archive() -> list[str]:
    """Return Java's options for the class archive (CDS) that set-up wrote; empty if there is none.

    Java ignores an archive of another version of Java or Spark.
    """
    archive = Path(sys.prefix) / "spark.jsa"
    if not archive.is_file() or " " in str(archive):
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a session. `secrets` has the environment variable of each key with a secret value."""

    plain: Mapping[str, str]
    secrets: Mapping[str, str]
    suits_few: bool  # whether `fit_to` may change the session's settings

    def start(self) -> SparkSession:
        """Return the session of this process; start it if there is none.

        The Java process starts without the secrets, because every user of the machine can see its arguments.
        Errors: ConfigurationError when the environment variable of a secret is not set; StoreError when the master or
        the Spark Connect server cannot be reached, or rejects a setting.
        """
        secrets = {key: FromEnvironment(env=name).resolve(f"spark.{key}") for key, name in self.secrets.items()}
        remote = secrets.get("spark.remote") or self.plain.get("spark.remote", "")
        try:
            if remote.startswith("sc://"):
                _require_connection(remote)
            if secrets and "spark.remote" not in {*self.plain, *secrets}:
                SparkContext._ensure_initialized(conf=SparkConf().setAll(list(self.plain.items())))
            builder = SparkSession.builder
            for key, value in {**self.plain, **secrets}.items():
                builder = builder.config(key, value)
            return builder.getOrCreate()
        except (PySparkException, Py4JError, TimeoutError) as error:
            if _is_without_java(error):
                raise
            raise start_error(error, self._where()) from error

    def _where(self) -> str:
        key = "spark.remote" if "spark.remote" in {*self.plain, *self.secrets} else "spark.master"
        if key in self.secrets:
            return f"{key} (the environment variable {self.secrets[key]})"
        if key not in self.plain:
            return "the master of spark-submit"
        return f"{key}: {self.plain[key].partition(';')[0]}"  # without the server's token


@cache  # once in a process; an error is not cached
def _require_connection(url: str) -> None:
    """Raise TimeoutError if the Spark Connect server does not accept a connection. Spark would try for ten minutes."""
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    channel = DefaultChannelBuilder(url).toChannel()
    try:
        grpc.channel_ready_future(channel).result(_SECONDS_TO_CONNECT)
    except grpc.FutureTimeoutError:
        raise TimeoutError(f"the server accepted no connection within {_SECONDS_TO_CONNECT} seconds") from None
    finally:
        channel.close()


@contextlib.contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """Restore the handler of SIGINT, which Spark replaces when it starts in the main thread.

    Spark's handler calls Java on the connection that the interrupted code uses, so each of the two can read the
    response to the other. Dagster's handler ends a run that a person terminates.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def spark_settings(settings: Mapping[str, SparkValue], objects: int = 0) -> SparkSettings:
    """Return the settings of a session for `spark:` of the configuration. A process has only one session.

    `objects`: as in `start_early`.
    This also sets the environment variables of Spark's Python and Java: see `_prepare_environment`.
    """
    secrets = {key: value.env for key, value in settings.items() if isinstance(value, FromEnvironment)}
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in settings.items()
        if key not in secrets
    }
    is_remote = "spark.remote" in settings
    master = given.get("spark.master", "" if _SUBMIT_PORT in os.environ else "local[*]")
    is_local = not is_remote and is_local_master(master)
    defaults = {**_DEFAULTS, **(_local_defaults(objects) if is_local else {})}
    if is_remote:  # all other settings are the server's own
        defaults = {key: value for key, value in defaults.items() if key.startswith("spark.sql.")}
    if is_local and _is_small(given.get(_MEMORY)):
        defaults |= _SMALL_MEMORY
    _prepare_environment(given.get(_PYTHON) or (sys.executable if is_local else None))
    suits_few = is_local and not given.keys() & {*_FOR_FEW_OBJECTS, _PARTITIONS, _LEAF_PARTITIONS}
    return SparkSettings({**defaults, **given, **_REQUIRED}, secrets, suits_few)


_starting = threading.RLock()


def started(settings: Mapping[str, SparkValue]) -> SparkSession:
    """Return the session of this process for `spark:` of the configuration. Errors: as `prepared`."""
    return prepared(spark_settings(settings).start)


def prepared(start: Callable[[], SparkSession]) -> SparkSession:
    """Return the session that `start` returns. If executors run in other processes, send this package to them.

    Errors: ConfigurationError when Java does not start, or when an existing or remote session may run a task twice at
    the same time. The errors of `start`.
    """
    with _starting:
        try:
            with _same_interrupt_handler():
                spark = start()
        except PySparkException as error:
            if not _is_without_java(error):
                raise
            raise ConfigurationError(_no_java()) from error
        for key, value in _REQUIRED.items():  # an existing or remote session may have other values
            if spark.conf.get(key) != value:
                spark.conf.set(key, value)
        if _speculates(spark):
            raise ConfigurationError(
                "The Spark session has spark.speculation=true, so a task of a sweep could run twice. Nothing was read "
                "or deleted. Start the cluster or its Spark Connect server with spark.speculation=false."
            )
        if not is_one_process(spark):
            _send_package(spark)
        if not is_connect(spark):
            _remember_functions(spark)
            _keep_compiled_code(spark)
    return spark


_with_kept_code = weakref.WeakSet[SparkSession]()


def _keep_compiled_code(spark: SparkSession) -> None:
    """Let Spark make its cache of compiled code with the size that `_COMPILED_CODE` sets.

    Spark makes the cache when it first compiles code. This can be when the results of a task are sent, where Spark does
    not know its settings. With a small cache, a process compiles the queries of each plan again, which takes a third of
    the processor time.
    """
    if spark in _with_kept_code or not is_one_process(spark):
        return
    _with_kept_code.add(spark)
    java: Any = spark.sparkContext._jvm
    with contextlib.suppress(TypeError, Py4JError):  # an internal class: another version of Spark may not have it
        java.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator.resetCompileTime()


class _Remembered:
    """A Java class that remembers its functions."""

    def __init__(self, java_class: object) -> None:
        self._class = java_class

    def __getattr__(self, name: str) -> object:
        member = getattr(self._class, name)
        setattr(self, name, member)
        return member


def _remember_functions(spark: SparkSession) -> None:
    """Let the session's Python look up Spark's Java functions only once each.

    pyspark asks Java for the class and for the function, each time that Python makes a column: a third of the 10,000
    requests of a small plan.
    """
    java: Any = spark.sparkContext._jvm
    for name in _JAVA_FUNCTIONS:
        if name not in vars(java):
            setattr(java, name, _Remembered(getattr(java, name)))


def _speculates(spark: SparkSession) -> bool:
    """Return whether Spark may run a task a second time while the first run goes on."""
    # If the session already existed, `spark.conf` has the default of this module, which had no effect.
    # `getConf` of the context would copy all settings, which takes 9 ms.
    settings = spark.conf if is_connect(spark) else spark.sparkContext._conf
    return (settings.get("spark.speculation", "false") or "").strip().lower() == "true"  # as Spark reads it


def _is_without_java(error: Exception) -> bool:
    return isinstance(error, PySparkException) and error.getCondition() == _NO_JAVA


def _no_java() -> str:
    home = os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME is {home}" if home else "JAVA_HOME is not set, so `java` on PATH is used"
    return (
        f"Java did not start. {where}. Spark's own message is above. Nothing was read or deleted. Install Java 17 or "
        "21, and set JAVA_HOME to its directory. In a checkout, `make setup` finds Java."
    )


def fit_to(objects: int, spark: SparkSession) -> None:
    """Set the SQL settings of a local session for a repository of this many listed objects."""
    is_large = objects > _FEW_OBJECTS
    for key, values in _FOR_FEW_OBJECTS.items():
        spark.conf.set(key, values[is_large])
    spark.conf.set(MANY_OBJECTS, str(is_large).lower())
    if _are_few(objects):
        tasks = min(_cores(), ceil(objects / _OBJECTS_OF_TASK))
        spark.conf.set(_LEAF_PARTITIONS, str(tasks))
    else:
        tasks = _cores() * max(1, ceil(objects / _OBJECTS_AT_ONCE))
        spark.conf.unset(_LEAF_PARTITIONS)
    spark.conf.set(_PARTITIONS, str(tasks))


def start_early(settings: Mapping[str, SparkValue], objects: int) -> None:
    """Start the session in the background, because the start of Java takes half of a short run.

    If the start fails, the error appears where the session is first used. `objects`: the number of objects that were
    last listed in the repositories that this process works on; 0: it is not known.
    """
    session_settings = spark_settings(settings, objects)

    def start() -> None:
        with contextlib.suppress(Exception):
            prepared(session_settings.start)

    threading.Thread(target=start, daemon=True, name="spark-start").start()


def java_ended() -> bool:
    """Return whether the Java that this process started has ended. Then nothing more can run in its Spark session."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _prepare_environment(python: str | None) -> None:
    """Set the environment variables for the Python of Spark's workers, and for the Java that set-up recorded, if any.

    `python` is None for executors on other machines, where this Python may not exist: they use their own `python3`.
    PYSPARK_PYTHON takes precedence. A variable is needed because Spark reads the setting `spark.pyspark.python` only
    when `spark-submit` starts the driver.
    """
    if python:
        os.environ.setdefault("PYSPARK_PYTHON", python)
    recorded = Path(sys.prefix) / "java_home"
    if recorded.is_file():
        os.environ["JAVA_HOME"] = recorded.read_text(encoding="utf-8").strip()


_sent_to = weakref.WeakSet[SparkSession]()


def _send_package(spark: SparkSession) -> None:
    if spark in _sent_to:
        return
    spark.addArtifacts(str(package_archive()), pyfile=True)
    _sent_to.add(spark)


_directory = cache(lambda: tempfile.TemporaryDirectory(prefix="retention-assets-"))  # removed when the process ends


@cache
def package_archive() -> Path:
    """Return the path of a zip with this package's modules, which executors import."""
    root = Path(retention_assets.__file__).parent
    archive = Path(_directory().name) / "retention_assets.zip"
    with ZipFile(archive, "w", ZIP_DEFLATED) as target:
        for module in sorted(root.rglob("*.py")):
            target.write(module, module.relative_to(root.parent))
    return archive
