"""Runs Spark clusters from the Spark that pip installs, and drivers in separate processes.

The clusters are a standalone master with two workers, and a Spark Connect server.
"""

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from socket import create_connection

import pyspark

from tests.conftest import INTERPRETED
from tests.doc_pages import ROOT, blocks_of
from tests.end_to_end.command import Json, Project
from tests.objectstore.programs import free_port, stop

SECRETS = ("LAKE_KEY", "LAKE_SECRET")  # only drivers have them in their environment
_HOME = Path(pyspark.__file__).parent
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # a process that lives for a minute starts sooner
_SMALL = {"SPARK_DAEMON_MEMORY": "256m"}  # of a master and a worker, which start executors and run nothing
_CONNECT = blocks_of(ROOT / "docs/how-to/spark-connect.md", "sh")[0]
_STARTS_WITHIN = 60.0  # seconds
# Runs the same Python without .pth files, so that an editable install is not seen, and without the driver's secrets.
_WORKER = f"""#!/bin/sh
unset {" ".join(SECRETS)}
PYTHONPATH="$PYTHONPATH:{sysconfig.get_path("purelib")}" exec {sys.executable} -S "$@"
"""


def driven(scenario: str, project: Project, spark: Json, objects: str = "lake", **variables: str) -> Json:
    """Run a scenario of `cluster_driver` in a new process, and return its output.

    `objects`: the directory of the repository's objects below the project. `variables`: environment of the driver.
    """
    project.spark = spark
    document = {**asdict(project), "directory": str(project.directory), "objects": objects}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYSPARK_"))}
    secrets = dict.fromkeys(SECRETS, "a secret")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.end_to_end.cluster_driver", scenario, json.dumps(document)],
        cwd=Path(__file__).parents[2],
        env={**kept, **secrets, "DAGSTER_HOME": str(project.directory), **variables},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    seen: Json = json.loads(ended.stdout)
    return seen


def worker_python(directory: Path) -> Path:
    """Create the Python of the workers. It has all packages except this one."""
    worker = directory / "python"
    worker.write_text(_WORKER, encoding="utf-8")
    worker.chmod(0o755)
    return worker


@contextmanager
def standalone(directory: Path) -> Iterator[Json]:
    """Run a master and two workers of one core each. Yield the settings for a session on them."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    options = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as processes:
        command = ["org.apache.spark.deploy.master.Master", *options, "--port", str(port)]
        processes.enter_context(_running("master", "spark-class", command, directory, port, **_SMALL))
        for name in ("worker-1", "worker-2"):
            limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory / name)]
            command = ["org.apache.spark.deploy.worker.Worker", *options, *limits, master]
            processes.enter_context(_running(name, "spark-class", command, directory, **_SMALL))
        yield {
            "spark.master": master,
            "spark.executor.memory": "768m",
            "spark.executor.extraJavaOptions": _QUICK,
            "spark.driver.extraJavaOptions": _QUICK,
            "spark.sql.shuffle.partitions": 2,
            "spark.pyspark.python": str(worker_python(directory)),
            **INTERPRETED,
        }


@contextmanager
def connect_server(directory: Path) -> Iterator[Json]:
    """Run a Spark Connect server by the command of the docs. Yield the settings for a session on it."""
    port = free_port()
    settings = {"spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2}
    _, *command, resource = shlex.split(_CONNECT.commands[0])
    command += [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    command += ["--driver-memory", "1g", "--driver-java-options", _QUICK, resource]
    python = str(worker_python(directory))
    with _running("connect", "spark-submit", command, directory, port, PYSPARK_PYTHON=python):
        yield {"spark.remote": f"sc://127.0.0.1:{port}", **INTERPRETED}


@contextmanager
def _running(
    name: str, program: str, command: list[str], directory: Path, port: int | None = None, **variables: str
) -> Iterator[None]:
    """Run a program of Spark for as long as the block lasts. With `port`, wait until it listens on the port."""
    foreign = ("AWS_", "PYTHON", "SPARK_", "PYSPARK_")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(foreign) and key not in SECRETS}
    environment = {**clean, "SPARK_LOCAL_IP": "127.0.0.1", **variables}
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_HOME / "bin" / program), *command], stdout=output, stderr=output, env=environment, cwd=directory
        )
    try:
        if port is not None:
            _wait(process, port, log)
        yield
    finally:
        stop(process, within=30)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < ends:
        try:
            create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{log.name}: {log.read_text(errors='replace')[-2000:]}")
