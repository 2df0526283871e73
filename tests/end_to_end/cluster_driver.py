"""Runs commands of `retention` on a Spark cluster, and reports the package and the secrets that its executors see.

Usage: `python -m tests.end_to_end.cluster_driver SCENARIO PROJECT`. `PROJECT` is a JSON document with the fields of a
`Project`. Prints one JSON document.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from retention_assets.assets.resources import session, spark_resource
from retention_assets.cli.rendering import open_table
from retention_assets.config.configuration import load_configuration
from retention_assets.spark.frames import from_arrow
from retention_assets.tables import UNCOMMITTED_OBJECTS
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.table_writer import write_rows
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.clusters import SECRETS
from tests.end_to_end.command import DAY, Project, files_below, run

_TASKS = 8


def executors() -> list[dict[str, Any]]:
    """Return, for each executor process, its file of the package, its process id, and the secrets that it sees."""
    spark = SparkSession.active()
    reports = spark.range(_TASKS, numPartitions=_TASKS).mapInArrow(_report, "file string, process long, secrets string")
    return [row.asDict() for row in reports.distinct().collect()]


def _report(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import retention_assets

    for _ in batches:
        reports = {
            "file": retention_assets.__file__,
            "process": os.getpid(),
            "secrets": "".join(os.environ.get(name, "") for name in SECRETS),
        }
        yield pa.RecordBatch.from_pylist([reports])


def run_all(project: Project, objects: str) -> dict[str, Any]:
    """Run each command that uses Spark. `objects`: the directory with the repository's objects."""
    before = names(project, objects)
    seen: dict[str, Any] = {
        "swept_in_plan_mode": project.run("sweep").status,
        "unchanged": names(project, objects) == before,
    }
    copied = replace(project, directory=project.directory.with_name("deleted"))
    shutil.copytree(project.directory, copied.directory)

    plan = approved(project, "quarantine")
    done(project, "sweep")
    seen["moved"] = sorted(before - names(project, objects))
    restored = run("--config", project.file, "restore", project.name, "--plan", plan)
    assert restored.status == 0, (restored.out, restored.err)
    seen["back"] = sorted(names(project, objects) & set(seen["moved"]))
    done(project, "verify")

    approved(copied, "delete")
    done(copied, "sweep")
    seen["deleted"] = sorted(before - names(copied, objects))
    seen["report"] = copied.rows("deletion_report")
    done(copied, "verify")
    return seen


def delete(project: Project, plan: str) -> dict[str, Any]:
    """Execute the plan of a copy of the project in mode `delete`, and verify the result."""
    for command in (("approve", plan), ("sweep",), ("verify",)):
        done(project, *command)
    return {"report": project.rows("deletion_report")}


def approved(project: Project, mode: str) -> str:
    """Approve the plan under this mode, and return its hash."""
    project.write(mode=mode)
    project.adopt()
    current = project.warehouse / project.name / "plans"
    (file,) = current.glob("*/current.json")
    plan = str(json.loads(file.read_text(encoding="utf-8"))["plan_hash"])
    done(project, "approve", plan)
    return plan


def done(project: Project, *command: str) -> None:
    """Run a command, and require that it succeeds."""
    answer = project.run(*command)
    assert answer.status == 0, (command, answer.out, answer.err)


def names(project: Project, objects: str) -> set[str]:
    """Return the addresses of all objects in the repository."""
    return set(files_below(project.directory / objects))


def tables(project: Project) -> dict[str, Any]:
    """Write a partition twice, and read it back with Spark and with Arrow."""
    configuration = load_configuration(project.file)
    spark, warehouse = session(spark_resource(configuration.spark)), Warehouse(configuration.warehouse)
    day, now = date.fromisoformat(DAY), datetime.now(UTC)
    partition = (project.name, UNCOMMITTED_OBJECTS.name, day)
    for addresses in (["old"], ["data/a", "data/b"]):
        rows = pa.table([addresses, [now] * len(addresses)], schema=UNCOMMITTED_OBJECTS.schema)
        written = write_rows(from_arrow(spark, rows), warehouse, *partition, shared=project.shared)
        warehouse.write_metadata(*partition, PartitionMetadata(now, written.rows, "a-run"))
    read = warehouse.rows(spark, *partition).frame.toArrow()
    with_arrow = open_table(warehouse, *partition)
    return {"spark": sorted(read["address"].to_pylist()), "arrow": with_arrow["address"].to_pylist()}


def planned(project: Project, scenario: str, objects: str) -> dict[str, Any]:
    """Plan, and run the other steps of the scenario."""
    plan = project.plan()
    seen = {"plan": plan, "candidates": project.rows("deletion_candidates"), "executors": executors()}
    if scenario == "delete":
        seen |= delete(project, plan)
    if scenario == "run_all":
        seen |= run_all(project, objects)
    return seen


if __name__ == "__main__":
    _, scenario, document = sys.argv
    given = json.loads(document)
    objects = given.pop("objects")
    project = Project(**{**given, "directory": Path(given["directory"])})
    project.write()
    seen = tables(project) if scenario == "tables" else planned(project, scenario, objects)
    json.dump({**seen, "driver": os.getpid()}, sys.stdout)
