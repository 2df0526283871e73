"""Driver and workers crash during Dagster's sweep job of orchard, and a later run completes the sweep.

Tables that Spark's JVM writes do not count as effects: no reader uses them before they are complete.
"""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.assets.runs import SWEEP, sweep_job
from retention_assets.config.configuration import load_configuration
from retention_assets.definitions import build_definitions
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import all_collected_addresses
from retention_assets.state.records import read_records
from retention_assets.sweep import sweep_run as sweep_run_module
from retention_assets.sweep.sweep_run import Sweep
from retention_assets.sweep.worker import Action
from retention_assets.warehouse.warehouse import Warehouse
from tests.clocks import GivenClock
from tests.end_to_end.command import DAY, Project, files_below, sample
from tests.sweep.crashes.effects import Effect, Effects, Moment, Point, points, watched
from tests.sweep.crashes.processes import CrashingAction, effect_log_in

pytestmark = pytest.mark.long

_CRASHES = 20  # evenly spread over all points; every second sweep moves to quarantine


def swept(project: Project, after: timedelta = timedelta(0)) -> bool:
    """Run the sweep job with a clock that is ahead by `after`; return whether it succeeded."""
    definitions = build_definitions(
        load_configuration(project.file), clock=GivenClock(lambda: datetime.now(UTC) + after)
    )
    job = definitions.resolve_job_def(sweep_job(project.name))
    with dg.DagsterInstance.ephemeral() as instance:
        return bool(job.execute_in_process(partition_key=DAY, instance=instance, raise_on_error=False).success)


def effects_of_a_sweep(project: Project, point: Point | None, after: timedelta = timedelta(0)) -> list[Effect]:
    """Run a sweep whose processes all crash at `point`; return its effects."""
    folder = project.directory.with_name(f"notes-{uuid4()}")
    action_of, make_ready = sweep_run_module.action_of, sweep_run_module._make_ready

    def crashing_action(*sweep_plan_mode: object) -> Action:
        return CrashingAction(action_of(*sweep_plan_mode), project.directory, folder, point)  # type: ignore[arg-type]

    def make_quarantine_ready(sweep: Sweep[Any], action: CrashingAction, workers: int) -> None:
        make_ready(sweep, action.action, workers)

    with effect_log_in(folder) as effect_log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_run_module, "action_of", crashing_action)
        patch.setattr(sweep_run_module, "_make_ready", make_quarantine_ready)
        with watched(Effects(project.directory, point, effect_log=effect_log)):
            assert swept(project, after) or point
        assert effect_log.dead is (point is not None)
        return effect_log.seen


class CompleteSweeps:
    """The effects of sweeps that do not crash. The sweep of a mode runs when it is first needed."""

    def __init__(self, approved: Project, directory: Path) -> None:
        self._approved = approved
        self._directory = directory
        self._effects: dict[str, list[Effect]] = {}

    def effects(self, mode: str) -> list[Effect]:
        if mode not in self._effects:
            project = self._approved.copy(self._directory / mode, mode=mode)
            self._effects[mode] = effects_of_a_sweep(project, None)
        return self._effects[mode]


@pytest.fixture(scope="module")
def complete_sweeps(approved: Project, tmp_path_factory: pytest.TempPathFactory) -> CompleteSweeps:
    return CompleteSweeps(approved, tmp_path_factory.mktemp("whole"))


def report(project: Project) -> dict[str, str]:
    """Return the outcome of each planned object."""
    rows = pq.read_table(project.warehouse / project.name / "deletion_report" / DAY).to_pylist()
    outcomes = {row["address"]: row["outcome"] for row in rows}
    assert len(rows) == len(outcomes)
    return outcomes


def planned(project: Project) -> set[str]:
    return set(pq.read_table(project.warehouse / project.name / "deletion_candidates" / DAY)["address"].to_pylist())


def require_missing_objects_in_the_ledger(project: Project, spark: SparkSession, gone: set[str]) -> None:
    collected = all_collected_addresses(spark, Warehouse(str(project.warehouse)), project.name)
    assert gone <= {row["address"] for row in collected.collect()}


def require_complete_sweep(project: Project, mode: str, to_delete: set[str], gone: set[str]) -> None:
    """Require that the report, the records and the quarantine account for all planned objects."""
    outcomes = report(project)
    assert outcomes.keys() == to_delete
    assert all(kept.follows for kept in read_records(Warehouse(str(project.warehouse)), project.name))
    if mode == "quarantine":
        assert set(outcomes.values()) == {Outcome.QUARANTINED}
        (objects,) = project.directory.glob("lake.quarantine/*/*/objects")
        assert {path: (objects / path).read_bytes() for path in to_delete} == {path: sample(path) for path in to_delete}
    else:
        assert set(outcomes.values()) <= {Outcome.DELETED, Outcome.MISSING}
        assert {address for address, outcome in outcomes.items() if outcome == Outcome.MISSING} <= gone


@pytest.mark.slow
def test_run_after_run_dies_in_the_middle_of_the_job_and_the_last_one_ends_well(
    approved: Project, spark: SparkSession, tmp_path: Path
) -> None:
    project = approved.copy(tmp_path / "orchard", mode="delete")
    lake, to_delete = project.directory / "lake", planned(project)
    before = files_below(lake)
    crash_points = (Point(0, Moment.AFTER), Point(30, Moment.BEFORE), Point(10, Moment.AFTER))
    for hours, point in enumerate(crash_points):
        effects_of_a_sweep(project, point, timedelta(hours=hours))
        gone = before.keys() - files_below(lake).keys()
        assert bool(gone) is (hours > 0)
        require_missing_objects_in_the_ledger(project, spark, gone)
    assert swept(project, timedelta(hours=len(crash_points)))
    assert files_below(lake) == {path: size_and_time for path, size_and_time in before.items() if path not in to_delete}
    require_complete_sweep(project, "delete", to_delete, gone)


@pytest.mark.slow
@pytest.mark.parametrize("crash", range(_CRASHES))
def test_a_death_in_the_middle_of_the_job_loses_nothing_and_the_next_run_ends_well(
    crash: int, complete_sweeps: CompleteSweeps, approved: Project, spark: SparkSession, tmp_path: Path
) -> None:
    mode = "quarantine" if crash % 2 else "delete"
    all_points = points(complete_sweeps.effects(mode))
    project = approved.copy(tmp_path / "orchard", mode=mode)
    lake, to_delete = project.directory / "lake", planned(project)
    before = files_below(lake)
    effects_of_a_sweep(project, all_points[(2 * crash + 1) * len(all_points) // (2 * _CRASHES)])
    gone = before.keys() - files_below(lake).keys()
    require_missing_objects_in_the_ledger(project, spark, gone)
    assert swept(project, timedelta(hours=1))
    assert files_below(lake) == {path: size_and_time for path, size_and_time in before.items() if path not in to_delete}
    require_complete_sweep(project, mode, to_delete, gone)


def test_a_sweep_with_executors_on_other_machines_moves_objects_to_a_directory_in_which_all_see_its_marker(
    approved: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = approved.copy(tmp_path / "orchard", mode="quarantine")
    monkeypatch.setattr(sweep_run_module, "is_on_this_machine", lambda _: False)
    assert swept(project)
    require_complete_sweep(project, "quarantine", planned(project), set())
    marker, day = sorted(one.name for one in (project.directory / "lake.quarantine").iterdir())
    assert re.fullmatch(r"\.retention-quarantine-[0-9a-f]{32}", marker)
    assert day == DAY


def test_materialize_all_reports_and_deletes_nothing_though_the_plan_is_approved(
    approved: Project, tmp_path: Path
) -> None:
    project = approved.copy(tmp_path / "all", mode="delete")
    before = files_below(project.directory / "lake")
    job = build_definitions(load_configuration(project.file)).resolve_implicit_global_asset_job_def()
    assets = [dg.AssetKey([project.name, "deletion_report"])]
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            partition_key=DAY, instance=instance, asset_selection=assets, raise_on_error=False
        )
        assert result.success
        assert files_below(project.directory / "lake") == before
        assert report(project) == {}
        tagged = job.execute_in_process(
            partition_key=DAY, instance=instance, asset_selection=assets, tags={SWEEP: "true"}, raise_on_error=False
        )
    assert tagged.success
    assert report(project).keys() == planned(project)
