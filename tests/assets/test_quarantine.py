"""Dagster's metadata of a sweep in modes `delete` and `quarantine`, and of the jobs that restore and purge."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.definitions import build_definitions
from retention_assets.state.ledger import read_ledgers
from retention_assets.sweep import undo as undoing
from retention_assets.sweep.sweep_run import Report
from retention_assets.sweep.undo import purge
from tests.clocks import GivenClock
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.scenarios import quarantined_world
from tests.sweep.crashes.world import DEAD, REPOSITORY, World, content
from tests.sweep.test_undo import kept, undo

pytestmark = pytest.mark.long

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


def test_a_purge_shows_the_due_amounts_of_each_plan_and_the_digest_that_approves_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quarantined_world(tmp_path / "world")
    world.wait(days=31)
    shown = ended(world, "purge", by="anna")
    assert (shown["due_objects"], shown["surplus_objects"]) == (len(DEAD), 0)
    assert "| plan | due | surplus copies |" in shown["plans"]
    assert f"| {world.plan.day} {world.plan.plan_hash} | {len(DEAD)} objects, " in shown["plans"]
    assert f"{REPOSITORY}: {len(DEAD)} objects, " in shown["what"]
    assert "unknown" not in shown["what"]
    digest = shown["what"].split("`digest: ")[1].split("`")[0]
    assert len(world.copies()) == len(DEAD)

    with monkeypatch.context() as patch:
        patch.setattr(undoing, "_keeps_versions", lambda _: None)
        unknown = ended(world, "purge", by="anna")["what"]
    assert "It is unknown whether the quarantine's store keeps versions" in unknown

    purge(undo(spark, world), digest, kept(spark))
    assert world.copies() == {}
    assert ended(world, "purge", by="anna")["what"] == (f"{REPOSITORY}: there is no due copy in quarantine.")


def test_a_purge_of_versions_says_what_is_known_of_the_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "world")
    sweep(world, "delete")
    world.wait(hours=1)
    shown = ended(world, "purge", by="anna", versions=True)
    assert shown["what"] == f"{REPOSITORY}: the store keeps no versions of deleted objects. No version is due."

    monkeypatch.setattr(undoing, "_repository_keeps_versions", lambda _: None)
    shown = ended(world, "purge", by="anna", versions=True)
    assert "It is unknown whether the bucket keeps versions of deleted objects." in shown["what"]
    assert "` and `versions: true`." in shown["what"]
    assert "| plan | deleted | surplus copies |" in shown["plans"]
    assert f"| {world.plan.day} {world.plan.plan_hash} | {shown['due_objects']} objects, " in shown["plans"]


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
