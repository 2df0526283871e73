"""The whole graph on a cluster of two workers: code, settings and credentials reach other processes."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end import cluster_driver
from tests.end_to_end.command import DAY, orchard
from tests.end_to_end.s3_server import REGION, Lake
from tests.repositories import expected

pytestmark = pytest.mark.slow  # two more JVMs: a minute and a half

SECRET = "the secret of the lake in the cluster"
CLUSTER = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g", "spark.default.parallelism": 4}
# Runs the same Python without .pth files, so that an editable install is not seen, and without the driver's secrets.
WORKER = """#!/bin/sh
unset LAKE_KEY LAKE_SECRET
PYTHONPATH="$PYTHONPATH:{packages}" exec {python} -S "$@"
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, new_lake: Callable[[], Lake]) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("cluster")
    lake = new_lake()
    secrets = {"access_key_id": {"env": "LAKE_KEY"}, "secret_access_key": {"env": cluster_driver.SECRET}}
    place = orchard(directory, lake.storage, {"endpoint": lake.server.endpoint, "region": REGION, **secrets})
    place.spark = CLUSTER
    place.write()
    worker = directory / "python"
    worker.write_text(WORKER.format(packages=sysconfig.get_path("purelib"), python=sys.executable), encoding="utf-8")
    worker.chmod(0o755)
    ended = subprocess.run(
        [sys.executable, cluster_driver.__file__, str(place.file), DAY],
        cwd=directory,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "PYSPARK_PYTHON": str(worker),
            "LAKE_KEY": "the-key",
            cluster_driver.SECRET: SECRET,
            "DAGSTER_HOME": str(directory),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_a_cluster_finds_the_candidates_that_one_process_finds(seen: dict[str, Any]) -> None:
    found = {(row["address"], row["size"]) for row in seen["candidates"] if row["reason"] == "expired"}
    committed = {row for row in expected("orchard", "retention.csv") if row.kind == "committed"}
    assert found == {(row.address, row.size) for row in committed}


def test_executors_are_other_processes(seen: dict[str, Any]) -> None:
    assert seen["driver"] not in {executor["process"] for executor in seen["executors"]}


def test_executors_import_the_package_from_the_zip_that_was_sent(seen: dict[str, Any]) -> None:
    assert seen["executors"]
    for executor in seen["executors"]:
        assert "/retention_assets.zip/" in executor["file"]


def test_executors_have_no_secret_in_their_environment(seen: dict[str, Any]) -> None:
    assert {executor["secret"] for executor in seen["executors"]} == {""}
