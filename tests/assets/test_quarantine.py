"""Dagster's metadata of a sweep in modes `delete` and `quarantine`, and of the jobs that restore and purge."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.definitions import build_definitions
from retention_assets.state.ledger import read_ledgers
from retention_assets.sweep.sweep_run import Report
from tests.clocks import GivenClock
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.scenarios import quarantined_world
from tests.sweep.crashes.world import DEAD, REPOSITORY, World, content

BYTES = sum(len(content(name)) for name in DEAD)


def ended(world: World, operation: str, **options: object) -> dict[str, Any]:
    """Run the job of an operation, and return the metadata that the run shows."""
    job = build_definitions(world.configuration(), clock=GivenClock(world.clock)).resolve_job_def(
        f"{REPOSITORY}_{operation}"
    )
    config = {"ops": {f"{operation}__{REPOSITORY}": {"config": options}}} if options else None
    events = job.execute_in_process(run_config=config).all_events
    shown = [event.step_output_data.metadata for event in events if event.is_successful_output]
    return {name: value.value for metadata in shown for name, value in metadata.items()}


def test_the_quarantine_is_shown_by_plan_and_restored_in_dagster(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    shown = ended(world, "quarantined")
    assert (shown["quarantined_objects"], shown["quarantined_bytes"]) == (len(DEAD), BYTES)
    assert f"| {world.plan.day} {world.plan.plan_hash} | {len(DEAD)} objects, " in shown["plans"]
    assert not set(DEAD) & world.stored().keys()

    restored = ended(world, "restore", plan_hash=world.plan.plan_hash, by="anna")
    assert restored["restored_objects"] == len(DEAD)
    assert {name: world.stored()[name] for name in DEAD} == {name: content(name) for name in DEAD}
    assert "quarantined_objects" not in restored
    assert ended(world, "quarantined")["what"] == "In quarantine: 0 objects, 0 B."


@pytest.mark.parametrize(("mode", "outcome"), [("delete", "deleted"), ("quarantine", "quarantined")])
def test_the_report_has_the_amounts_of_each_outcome_and_of_freed_objects(
    spark: SparkSession, tmp_path: Path, mode: str, outcome: str
) -> None:
    world = World(tmp_path / "world")
    sweep(world, mode)
    plan = world.plan
    ledger = read_ledgers(spark, world.warehouse, REPOSITORY, [(plan.day.isoformat(), plan.plan_hash)])
    numbers = Report(plan, mode, ledger, failed=0).numbers()
    assert (numbers[f"{outcome}_objects"], numbers[f"{outcome}_bytes"]) == (len(DEAD), BYTES)
    assert (numbers["freed_objects"], numbers["freed_bytes"]) == ((len(DEAD), BYTES) if mode == "delete" else (0, 0))
    assert numbers["failed_objects"] == numbers["unattempted_objects"] == 0
    assert numbers["planned_objects"] == plan.candidates.objects
