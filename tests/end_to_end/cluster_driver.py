"""Runs commands of `retention` on a cluster, and asks its executors where they found the package.

Run as a process of its own: `python -m tests.end_to_end.cluster_driver STORY PLACE`. `PLACE` is a JSON document
with the fields of a `Place`. Prints one JSON document.
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
from tests.end_to_end.command import DAY, Place, files_below, run

_TASKS = 8


def executors() -> list[dict[str, Any]]:
    """Return what each process of an executor says: its file of the package, its id, and the secrets that it sees."""
    spark = SparkSession.active()
    said = spark.range(_TASKS, numPartitions=_TASKS).mapInArrow(_look, "file string, process long, secrets string")
    return [row.asDict() for row in said.distinct().collect()]


def _look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import retention_assets

    for _ in batches:
        said = {
            "file": retention_assets.__file__,
            "process": os.getpid(),
            "secrets": "".join(os.environ.get(name, "") for name in SECRETS),
        }
        yield pa.RecordBatch.from_pylist([said])


def whole(place: Place, objects: str) -> dict[str, Any]:
    """Run each command that uses Spark. `objects`: the directory with the repository's objects."""
    before = names(place, objects)
    seen: dict[str, Any] = {
        "swept_in_plan_mode": place.run("sweep").status,
        "unchanged": names(place, objects) == before,
    }
    copied = replace(place, directory=place.directory.with_name("deleted"))
    shutil.copytree(place.directory, copied.directory)

    plan = approved(place, "quarantine")
    done(place, "sweep")
    seen["moved"] = sorted(before - names(place, objects))
    restored = run("--config", place.file, "restore", place.name, "--plan", plan)
    assert restored.status == 0, (restored.out, restored.err)
    seen["back"] = sorted(names(place, objects) & set(seen["moved"]))
    done(place, "verify")

    approved(copied, "delete")
    done(copied, "sweep")
    seen["deleted"] = sorted(before - names(copied, objects))
    seen["report"] = copied.rows("deletion_report")
    done(copied, "verify")
    return seen


def delete(place: Place, plan: str) -> dict[str, Any]:
    """Execute the plan of a place with mode `delete`, and verify the result."""
    for command in (("approve", plan), ("sweep",), ("verify",)):
        done(place, *command)
    return {"report": place.rows("deletion_report")}


def approved(place: Place, mode: str) -> str:
    """Approve the plan under this mode, and return its hash."""
    place.write(mode=mode)
    place.adopt()
    current = place.warehouse / place.name / "plans"
    (file,) = current.glob("*/current.json")
    plan = str(json.loads(file.read_text(encoding="utf-8"))["plan_hash"])
    done(place, "approve", plan)
    return plan


def done(place: Place, *command: str) -> None:
    """Run a command that must succeed."""
    answer = place.run(*command)
    assert answer.status == 0, (command, answer.out, answer.err)


def names(place: Place, objects: str) -> set[str]:
    """Return the addresses of all objects in the repository."""
    return set(files_below(place.directory / objects))


def tables(place: Place) -> dict[str, Any]:
    """Write a partition twice, and read it back with Spark and with Arrow."""
    configuration = load_configuration(place.file)
    spark, warehouse = session(spark_resource(configuration.spark)), Warehouse(configuration.warehouse)
    day, now = date.fromisoformat(DAY), datetime.now(UTC)
    partition = (place.name, UNCOMMITTED_OBJECTS.name, day)
    for addresses in (["old"], ["data/a", "data/b"]):
        rows = pa.table([addresses, [now] * len(addresses)], schema=UNCOMMITTED_OBJECTS.schema)
        written = write_rows(from_arrow(spark, rows), warehouse, *partition, shared=place.shared)
        warehouse.write_metadata(*partition, PartitionMetadata(now, written.rows, "a-run"))
    read = warehouse.rows(spark, *partition).frame.toArrow()
    with_arrow = open_table(warehouse, *partition)
    return {"spark": sorted(read["address"].to_pylist()), "arrow": with_arrow["address"].to_pylist()}


def planned(place: Place, story: str, objects: str) -> dict[str, Any]:
    """Plan, and go on as the story says."""
    plan = place.plan()
    seen = {"plan": plan, "candidates": place.rows("deletion_candidates"), "executors": executors()}
    if story == "delete":
        seen |= delete(place, plan)
    if story == "whole":
        seen |= whole(place, objects)
    return seen


if __name__ == "__main__":
    _, story, document = sys.argv
    given = json.loads(document)
    objects = given.pop("objects")
    place = Place(**{**given, "directory": Path(given["directory"])})
    place.write()
    seen = tables(place) if story == "tables" else planned(place, story, objects)
    json.dump({**seen, "driver": os.getpid()}, sys.stdout)
