"""Restore and purge of quarantined objects, also after a run that failed or was interrupted."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.limits import QuarantineSettings
from retention_assets.config.settings import RecordSettings
from retention_assets.core.amounts import Amount
from retention_assets.errors import ConfigurationError, GuardRefused, RetentionError, StoreError, own_error
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state import clocks
from retention_assets.state.binding import require_same_location
from retention_assets.state.lease import LEASES, Lease, holds, resume_sweeps, stop_sweeps, take_lease
from retention_assets.state.ledger import AFTER, DONE, LedgerLocation
from retention_assets.state.plan import keep_plan
from retention_assets.state.policies import completed_runs
from retention_assets.state.quarantine import QuarantineLocation, quarantine_of_plan, quarantine_url
from retention_assets.state.records import read_records
from retention_assets.sweep import undo as undo_module
from retention_assets.sweep import undo_engine
from retention_assets.sweep.actions import Restore
from retention_assets.sweep.copies import PlanCopies, Undo
from retention_assets.sweep.engine import BatchResult
from retention_assets.sweep.execute import SweepResult, SweepRun
from retention_assets.sweep.undo import Selection, due_for_purge, purge, restore
from retention_assets.sweep.worker import OBJECTS, TaskSpec, work
from retention_assets.tables import LEDGER
from tests.frames import cached
from tests.ledgers import write_ledger
from tests.sweep.crashes.effects import Effects, Moment, Point, watched
from tests.sweep.crashes.engine import latest
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.scenarios import quarantined_world
from tests.sweep.crashes.world import DEAD, OTHER, REPOSITORY, World, address, content, name_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("small_steps")]


def undo(spark: SparkSession, world: World) -> Undo:
    """Return the `Undo` of the world's sweeps."""
    repository = world.configuration().repository(REPOSITORY)
    return Undo(spark, world.warehouse, repository, f"run-{world.now:%d%H%M%S}", "ada", lambda _: None, world.clock)


@dataclass(frozen=True)
class FakeLiveAddresses:
    """A `LiveAddresses` that returns what a function of the test returns."""

    asked: Callable[[], DataFrame]

    def now(self) -> DataFrame:
        return self.asked()


def kept(spark: SparkSession, *names: str) -> FakeLiveAddresses:
    """Return a liveness check that finds these objects live."""
    rows = pa.table({"address": pa.array([address(name) for name in names], pa.string())})
    return FakeLiveAddresses(lambda: spark.createDataFrame(rows))


def outcome(world: World, name: str) -> str:
    return str(latest(world.ledger())[address(name)]["outcome"])


def selected(name: str) -> Selection:
    return Selection(address=address(name))


def death_after(world: World, mode: str, verb: str, name: str, hours: int = 1) -> None:
    """Sweep the world until the run crashes, right after its effect `verb` on one object."""
    another = world.copy(world.root.with_name("another"))
    with watched(Effects(another.root)) as whole:
        sweep(another, mode)
    point = Point([str(effect) for effect in whole.seen].index(f"{verb} lake/{address(name)}"), Moment.AFTER)
    with watched(Effects(world.root, point)) as effects:
        sweep(world, mode)
    assert effects.dead
    world.wait(hours=hours)


def test_a_record_counts_objects_in_quarantine_whose_restore_failed_or_whose_copy_was_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = quarantined_world(tmp_path / "world")

    def counted() -> tuple[str, int, int]:
        *_, record = read_records(world.warehouse, REPOSITORY)
        outcomes = record.document["outcomes"].get(Outcome.QUARANTINED, {"objects": 0})
        return record.document["kind"], outcomes["objects"], record.document["in_quarantine"]["objects"]

    assert counted() == ("sweep", len(DEAD), len(DEAD))
    (world.root / "lake" / address("b")).mkdir()
    restore(undo(spark, world), selected("b"))
    assert counted() == ("restore", len(DEAD) - 1, len(DEAD))
    (world.root / "lake" / address("b")).rmdir()
    world.wait(days=60)
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark, "b"))
    assert counted() == ("purge", 0, 1)


def test_a_restore_that_failed_can_be_run_again(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    in_the_way = world.root / "lake" / address("b")
    in_the_way.mkdir()
    ended = restore(undo(spark, world), selected("b"))
    assert ended.ledgers[Outcome.FAILED].objects == 1
    assert outcome(world, "b") == Outcome.FAILED
    with pytest.raises(
        StoreError,
        match=r"1 object could not be restored; .* left as they are\. 1 failed, .* `retention report orchard --as-of",
    ):
        ended.require_complete(REPOSITORY, "restored")
    in_the_way.rmdir()
    assert restore(undo(spark, world), selected("b")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["b"] == content("b")
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(undo(spark, world), selected("b"))


def test_a_restore_fails_for_an_object_that_has_another_one_at_its_path(spark: SparkSession, tmp_path: Path) -> None:
    world, log = quarantined_world(tmp_path / "world"), list[str]()
    world.lay("b", b"another")
    ended = restore(replace(undo(spark, world), log=log.append), Selection(plan_hash=world.plan.plan_hash))
    assert (ended.failed, ended.skipped) == (0, 1)
    assert outcome(world, "b") == Outcome.SKIPPED
    assert world.stored()["b"] == b"another"
    (line,) = [line for line in log if "other objects are at the paths" in line]
    assert f"1 object of the plan of {world.plan.day}, " in line and ": not restored, because other objects" in line
    assert f"{address('b')} first" in line
    with pytest.raises(StoreError, match=r"1 object could not be restored; .* At the paths of 1 of them, .* move"):
        ended.require_complete(REPOSITORY, "restored")
    world.remove("b")
    restore(undo(spark, world), selected("b")).require_complete(REPOSITORY, "restored")
    assert world.stored()["b"] == content("b")


@pytest.mark.parametrize("other", [b"x" * len(content("b")), b"of another size"], ids=["same_size", "another_size"])
def test_a_restore_does_not_take_an_object_at_the_path_for_a_lost_copy(
    spark: SparkSession, tmp_path: Path, other: bytes
) -> None:
    world = quarantined_world(tmp_path / "world")
    world.lay("b", other)
    (world.root / "lake.quarantine" / world.place.path(address("b"))).unlink()
    fence = max(row["fence"] for row in world.ledger()) + 1
    attempt = {"address": address("b"), "size": len(content("b")), "outcome": "attempted", "at": world.clock()}
    plan = world.plan
    location = LedgerLocation(world.warehouse.root, REPOSITORY, plan.day, plan.plan_hash, fence, "interrupted")
    rows = pa.Table.from_pylist([{**attempt, "detail": None, "fence": fence}], LEDGER)
    location.append(rows, "b", "attempted")
    take_lease(world.warehouse, REPOSITORY, "interrupted", world.now, timedelta(minutes=30))
    world.wait(hours=1)
    ended = restore(undo(spark, world), selected("b"))
    assert (ended.failed, ended.skipped) == (1, 0)
    row = latest(world.ledger())[address("b")]
    assert row["outcome"] == Outcome.FAILED
    assert "The object at its path may be another one" in str(row["detail"])
    assert world.stored()["b"] == other


def test_a_damaged_copy_at_the_path_of_its_object_is_not_the_object(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    damaged = content("b")[:-1]
    world.lay("b", damaged)
    (world.root / "lake.quarantine" / world.place.path(address("b"))).write_bytes(damaged)
    ended = restore(undo(spark, world), selected("b"))
    assert (ended.failed, ended.skipped) == (0, 1)
    assert world.copies()["b"] == damaged


@pytest.mark.parametrize("last_step", ["append", "clean_up"])
def test_a_restore_whose_task_spark_repeats_counts_each_object_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_step: str
) -> None:
    """The worker ends after it wrote the results, or after it then deleted the copies."""

    def run_twice(objects: DataFrame, task: TaskSpec) -> BatchResult:
        table = objects.select(*OBJECTS.names).toArrow().cast(OBJECTS)
        with monkeypatch.context() as patch, suppress(ConnectionAbortedError):
            die_after(patch, last_step)
            list(work(task, table.to_batches(), "first"))
        (tally,) = [row for one in work(task, table.to_batches(), "second") for row in one.to_pylist()]
        return BatchResult({tally["outcome"]: Amount(tally["objects"], tally["bytes"])}, tally["until"])

    world = quarantined_world(tmp_path / "world")
    monkeypatch.setattr(undo_engine, "run_on_spark", run_twice)
    restore(undo(spark, world), selected("b")).require_complete(REPOSITORY, "restored")
    assert outcome(world, "b") == Outcome.RESTORED
    assert world.stored()["b"] == content("b")
    assert "b" not in world.copies()


@pytest.mark.parametrize("change", ["removed", "replaced"])
@pytest.mark.parametrize("is_back", [False, True], ids=["copied", "at_its_path_before"])
def test_a_copy_stays_if_the_restored_object_is_gone_or_another_one_before_the_copy_is_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_back: bool, change: str
) -> None:
    world = quarantined_world(tmp_path / "world")
    if is_back:
        world.lay("b")
    complete = LedgerLocation.append

    def append(location: LedgerLocation, rows: pa.Table, name: str, kind: str) -> None:
        complete(location, rows, name, kind)
        if kind == DONE and not name.endswith(AFTER):
            world.remove("b") if change == "removed" else world.lay("b", bytes(len(content("b"))))

    def run_here(objects: DataFrame, task: TaskSpec) -> BatchResult:
        table = objects.select(*OBJECTS.names).toArrow().cast(OBJECTS)
        (tally,) = [row for one in work(task, table.to_batches(), "worker") for row in one.to_pylist()]
        return BatchResult({tally["outcome"]: Amount(tally["objects"], tally["bytes"])}, tally["until"])

    monkeypatch.setattr(undo_engine, "run_on_spark", run_here)
    monkeypatch.setattr(LedgerLocation, "append", append)
    with pytest.raises(StoreError, match="1 object could not be restored"):
        restore(undo(spark, world), selected("b")).require_complete(REPOSITORY, "restored")
    assert outcome(world, "b") == Outcome.RESTORED
    assert world.copies()["b"] == content("b")
    monkeypatch.undo()
    with suppress(FileNotFoundError):
        world.remove("b")
    restore(undo(spark, world), selected("b")).require_complete(REPOSITORY, "restored")
    assert world.stored()["b"] == content("b")
    assert "b" not in world.copies()


@pytest.mark.parametrize("selection", [Selection(path="fruit/\udce4pfel"), Selection(address="data/\udce4")])
def test_a_path_or_address_that_is_not_utf_8_is_refused_before_anything_is_restored(
    spark: SparkSession, tmp_path: Path, selection: Selection
) -> None:
    world = quarantined_world(tmp_path / "world")
    with pytest.raises(
        ConfigurationError, match=r"is not UTF-8\. Nothing was restored\. Name the object by its address"
    ):
        restore(undo(spark, world), selection)


def test_an_object_that_a_repeated_task_restores_again_has_not_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, log = quarantined_world(tmp_path / "world"), list[str]()
    complete = LedgerLocation.append

    def append(location: LedgerLocation, rows: pa.Table, name: str, kind: str) -> None:
        complete(location, rows, name, kind)
        if kind == DONE and "first" in name and not name.endswith(AFTER):
            world.remove("b")

    def run_twice(objects: DataFrame, task: TaskSpec) -> BatchResult:
        table = objects.select(*OBJECTS.names).toArrow().cast(OBJECTS)
        for worker in ("first", "second"):
            (tally,) = [row for one in work(task, table.to_batches(), worker) for row in one.to_pylist()]
        return BatchResult({tally["outcome"]: Amount(tally["objects"], tally["bytes"])}, tally["until"])

    monkeypatch.setattr(undo_engine, "run_on_spark", run_twice)
    monkeypatch.setattr(LedgerLocation, "append", append)
    restore(replace(undo(spark, world), log=log.append), selected("b")).require_complete(REPOSITORY, "restored")
    assert not [line for line in log if "somebody removed or changed" in line]
    assert world.stored()["b"] == content("b")
    assert "b" not in world.copies()


def die_after(patch: pytest.MonkeyPatch, step: str) -> None:
    """Let the worker of a restore end after it wrote results (`append`), or deleted copies (`clean_up`)."""
    of, name = (LedgerLocation, "append") if step == "append" else (Restore, "clean_up")
    complete = getattr(of, name)

    def last(*arguments: Any) -> None:
        complete(*arguments)
        if step == "clean_up" or arguments[-1] == DONE:
            raise ConnectionAbortedError

    patch.setattr(of, name, last)


@pytest.mark.parametrize(("plans_before", "undone"), [(0, "Nothing was deleted"), (1, "Nothing more was deleted")])
def test_a_refusal_after_the_objects_of_another_plan_were_restored_says_that_nothing_more_was_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plans_before: int, undone: str
) -> None:
    world = quarantined_world(tmp_path / "world")
    found = list(undo(spark, world).restorable())
    calls: list[SweepRun] = []

    def execute(_: Undo, run: SweepRun, engine: object) -> SweepResult:
        calls.append(run)
        if len(calls) > plans_before:
            raise GuardRefused("orchard: another run holds the lease. Nothing was deleted. Wait.")
        return SweepResult({Outcome.RESTORED: Amount(1, 1)}, False)

    monkeypatch.setattr(undo_module, "_execute", execute)
    monkeypatch.setattr(undo_module, "_selected", lambda *_: (found * 2, 0))
    with pytest.raises(GuardRefused, match=rf"holds the lease\. {undone}\. Wait"):
        restore(undo(spark, world), Selection())


def test_a_restore_fails_for_objects_that_a_purge_deleted_after_they_were_selected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, log = quarantined_world(tmp_path / "world"), []
    world.now += timedelta(days=30)
    another = undo(spark, world)
    with another.frames:
        due = due_for_purge(another)

    def selected_before_a_purge(here: Undo, selection: Selection) -> tuple[list[PlanCopies], int]:
        found = selected_now(here, selection)
        purge(replace(another, run_id="another"), due.digest, kept(spark))
        return found

    selected_now = undo_module._selected
    monkeypatch.setattr(undo_module, "_selected", selected_before_a_purge)
    ended = restore(replace(undo(spark, world), log=log.append), selected("b"))
    assert outcome(world, "b") == Outcome.PURGED
    with pytest.raises(StoreError, match="1 object could not be restored"):
        ended.require_complete(REPOSITORY, "restored")
    assert "another run changed 1 of the selected objects" in "".join(log)


@pytest.mark.slow
def test_a_restore_or_purge_releases_all_frames_that_it_cached_also_after_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    world, before = quarantined_world(tmp_path / "world"), cached(spark)
    restore(undo(spark, world), selected("b"))
    assert cached(spark) <= before
    world.now += timedelta(days=30)
    with pytest.raises(GuardRefused, match="is not the hash of the objects that may be purged now"):
        purge(undo(spark, world), "0" * 64, kept(spark))
    assert cached(spark) <= before
    here = undo(spark, world)
    with here.frames:
        due = due_for_purge(here)

    def unknown() -> DataFrame:
        raise GuardRefused("nobody knows what is live")

    with pytest.raises(GuardRefused, match="nobody knows"):
        purge(undo(spark, world), due.digest, FakeLiveAddresses(unknown))
    assert cached(spark) <= before
    purge(undo(spark, world), due.digest, kept(spark, "c"))
    assert cached(spark) <= before


def test_a_purge_that_deletes_only_manifests_lists_the_witness_before_and_writes_a_record_after(
    spark: SparkSession, tmp_path: Path
) -> None:
    world, witness = quarantined_world(tmp_path / "world"), tmp_path / "witness"
    world.wait(days=31)

    def run_purge() -> None:
        here = undo(spark, world)
        here = replace(here, repository=replace(here.repository, records=RecordSettings(witness=str(witness))))
        with here.frames:
            due = due_for_purge(here)
        purge(here, due.digest, kept(spark))

    def manifests() -> list[Path]:
        return sorted(world.root.glob("lake.quarantine/*/*/manifest/*"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undo_module, "_delete_manifests", lambda *_, **__: 0)
        run_purge()
    before, records = manifests(), list(read_records(world.warehouse, REPOSITORY))
    assert before
    world.wait(hours=1)
    copies = witness.rename(tmp_path / "copies")
    witness.write_text("no directory", encoding="utf-8")
    with pytest.raises(RetentionError):
        run_purge()
    assert manifests() == before
    assert list(read_records(world.warehouse, REPOSITORY)) == records
    witness.unlink()
    copies.rename(witness)
    run_purge()
    assert manifests() == []
    *earlier, record = read_records(world.warehouse, REPOSITORY)
    assert earlier == records
    assert (record.document["kind"], record.document["approved_by"]) == ("purge", "ada")
    plan = world.plan
    assert record.document["published"] == {"manifests_of": [f"{plan.day} {plan.plan_hash}"], "failed": 0}
    assert len(list((witness / REPOSITORY).iterdir())) == len(records) + 1


def test_the_manifests_of_an_interrupted_sweep_stay_until_a_sweep_has_ended_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By them, a later sweep knows that an object which is gone was not moved."""
    world, rehearsal = World(tmp_path / "world"), World(tmp_path / "rehearsal")
    with watched(Effects(rehearsal.root)) as whole:
        sweep(rehearsal, "quarantine")
    number = next(number for number, effect in enumerate(whole.seen) if "manifest" in str(effect))
    with watched(Effects(world.root, Point(number, Moment.AFTER))) as effects:
        sweep(world, "quarantine")
    assert effects.dead
    world.wait(hours=2)
    assert world.manifests()
    assert not due_for_purge(undo(spark, world)).has_any
    world.remove("a")  # under another plan
    sweep(world, "delete", "later")
    assert outcome(world, "a") == Outcome.MISSING
    world.wait(hours=2)
    assert due_for_purge(undo(spark, world)).manifests == [world.plan]


@pytest.mark.parametrize(
    ("only_manifests", "told"),
    [
        (False, "orchard: The copies were purged. Manifests of purged copies stay until the next purge deletes them. "),
        (True, "orchard: Manifests of purged copies stay until the next purge deletes them. "),
    ],
)
def test_a_purge_that_cannot_delete_its_manifests_says_what_was_deleted_and_what_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_manifests: bool, told: str
) -> None:
    world, log, leased = quarantined_world(tmp_path / "world"), list[str](), undo_module._leased
    world.wait(days=31)
    if only_manifests:
        with monkeypatch.context() as patch:
            patch.setattr(undo_module, "_delete_manifests", lambda *_, **__: 0)
            purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
        world.wait(hours=1)
    here = replace(undo(spark, world), log=log.append)
    with here.frames:
        due = due_for_purge(here)
    calls: list[Undo] = []

    def taken_by_another(undo: Undo) -> AbstractContextManager[Lease]:
        calls.append(undo)
        if len(calls) == 2:  # the first lease is of the computation of what is due
            take_lease(world.warehouse, REPOSITORY, "another-run", world.clock(), timedelta(hours=1))
        return leased(undo)

    monkeypatch.setattr(undo_module, "_leased", taken_by_another)
    purge(here, due.digest, kept(spark))
    (line,) = [one for one in log if "anifests" in one]
    assert line.startswith(f"{told}orchard: another-run holds the lease")
    assert ("Nothing more was deleted" in line, "Nothing was deleted" in line) == (not only_manifests, only_manifests)
    assert sorted(world.root.glob("lake.quarantine/*/*/manifest/*"))


def test_a_purge_that_was_suspended_does_not_delete_the_manifests_of_the_run_that_took_its_lease(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, remove = quarantined_world(tmp_path / "world"), undo_module.remove_manifests
    world.wait(days=31)
    here = undo(spark, world)
    with here.frames:
        due = due_for_purge(here)

    def continued_after_another_run(*arguments: object) -> int:
        stop_sweeps(world.warehouse, REPOSITORY, "ada", world.clock())
        resume_sweeps(world.warehouse, REPOSITORY, world.clock())
        take_lease(world.warehouse, REPOSITORY, "another-run", world.clock(), timedelta(hours=1))
        location.write_manifest(pa.table({"address": ["a"], "size": [1], "etag": ["b"]}), "of-another-run")
        return remove(*arguments)

    location = quarantine_of_plan(here.repository, world.plan)
    monkeypatch.setattr(undo_module, "remove_manifests", continued_after_another_run)
    result = purge(here, due.digest, kept(spark))
    assert [*world.root.glob("lake.quarantine/*/*/manifest/of-another-run-*.json")]
    assert result.failed  # so the command does not succeed


def test_a_purge_that_lost_its_lease_before_it_deletes_manifests_leaves_them_to_the_next_purge(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, renew, log = quarantined_world(tmp_path / "world"), undo_module.renew_lease, list[str]()
    world.wait(days=31)
    here = replace(undo(spark, world), log=log.append)
    with here.frames:
        due = due_for_purge(here)

    def stopped(*arguments: Any) -> Lease:
        stop_sweeps(world.warehouse, REPOSITORY, "ada", world.clock())
        return renew(*arguments)

    monkeypatch.setattr(undo_module, "renew_lease", stopped)
    result = purge(here, due.digest, kept(spark))
    assert (result.ledgers["purged"].objects > 0, result.failed) == (True, 0)
    assert any("The copies were purged. Manifests of purged copies stay until the next purge" in line for line in log)
    assert sorted(world.root.glob("lake.quarantine/*/*/manifest/*"))


def test_nothing_is_restored_or_purged_if_other_machines_do_not_see_the_warehouse(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep on another machine would not see the lease."""
    world = quarantined_world(tmp_path / "world")
    monkeypatch.setattr("retention_assets.sweep.undo.require_clock", lambda *_: None)
    here = undo(spark, world)
    settings = {"quarantine": QuarantineSettings(url=quarantine_url(here.repository))}
    in_a_bucket = replace(
        here.repository,
        storage="s3://lake/orchard",
        settings=here.repository.settings.model_copy(update=settings),
    )
    away = replace(here, repository=in_a_bucket)
    for begin in (lambda: restore(away, selected("b")), lambda: purge(away, "0" * 64, kept(spark))):
        with pytest.raises(GuardRefused, match=r"would not see the lease of this sweep\. Nothing was deleted"):
            begin()


def test_the_quarantine_of_another_location_is_neither_restored_nor_purged(spark: SparkSession, tmp_path: Path) -> None:
    """The liveness check would not know its objects, and a restore would write them to a wrong location."""
    world = quarantined_world(tmp_path / "world")
    before = undo(spark, world)
    require_same_location(world.warehouse, before.repository)  # as the first plan does
    world.now += timedelta(days=30)
    settings = {"quarantine": QuarantineSettings(url=quarantine_url(before.repository))}
    elsewhere = replace(
        before.repository,
        namespace="s3://lake/vineyard",
        settings=before.repository.settings.model_copy(update=settings),
    )
    moved = replace(undo(spark, world), repository=elsewhere)
    with pytest.raises(GuardRefused, match="its ledgers in the warehouse belong to namespace s3://lake/orchard"):
        purge(moved, due_for_purge(before).digest, kept(spark))
    with pytest.raises(GuardRefused, match="its ledgers in the warehouse belong to namespace s3://lake/orchard"):
        restore(moved, selected("b"))
    assert world.copies().keys() == set(DEAD)


def test_a_wrong_clock_purges_nothing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = quarantined_world(tmp_path / "world")
    store_says = world.now
    monkeypatch.setattr(clocks, "store_time", lambda *_: store_says)
    world.now += timedelta(days=30)
    with pytest.raises(GuardRefused, match=r"clock_agrees: .* Nothing was deleted"):
        purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    assert world.copies().keys() == set(DEAD)


def test_a_wrong_clock_restores_nothing_and_leaves_the_lease_of_a_running_sweep(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quarantined_world(tmp_path / "world")
    store_says = world.now
    monkeypatch.setattr(clocks, "store_time", lambda *_: store_says)
    lease = take_lease(world.warehouse, REPOSITORY, "a sweep", store_says, timedelta(minutes=30))
    world.now += timedelta(hours=1)
    with pytest.raises(GuardRefused, match=r"clock_agrees: .* Nothing was restored\. .* run the same command again"):
        restore(undo(spark, world), selected("b"))
    assert holds(world.warehouse, lease, store_says)
    assert world.copies().keys() == set(DEAD)


@pytest.mark.slow
def test_copies_that_could_not_be_restored_are_purged_with_the_others_when_they_are_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = quarantined_world(tmp_path / "world")
    world.lay("d", OTHER)
    assert restore(undo(spark, world), selected("d")).ledgers[Outcome.SKIPPED] == Amount(
        3, sum(len(content(name)) for name in "cdh")
    )
    assert due_for_purge(undo(spark, world)).amount == Amount()
    world.now += timedelta(days=30)
    due = due_for_purge(undo(spark, world))
    assert due.amount == Amount(len(DEAD), sum(len(content(name)) for name in DEAD))
    with watched(Effects(world.root, Point(0, Moment.AFTER))):  # it dies with the lease in its hands
        purge(undo(spark, world), due.digest, kept(spark))
    world.wait(hours=1)
    assert purge(undo(spark, world), due.digest, kept(spark)).ledgers[Outcome.PURGED] == due.amount
    assert world.copies() == {}
    assert world.stored()["d"] == OTHER


def test_objects_that_an_interrupted_run_moved_can_be_restored_without_continuing_its_plan(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    keep_plan(world.warehouse, replace(world.plan, plan_hash="f" * 64))
    assert outcome(world, "e") == "attempted"
    assert "e" not in world.stored()
    ended = restore(undo(spark, world), selected("e")).ledgers
    assert (ended[Outcome.RESTORED].objects, ended[Outcome.QUARANTINED].objects) == (1, 1)
    assert world.stored()["e"] == content("e")
    assert world.copies().keys() == {"a"}


def test_objects_that_an_interrupted_run_deleted_cannot_be_restored(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    death_after(world, "delete", "delete", "e")
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(undo(spark, world), selected("e"))


def test_objects_that_an_interrupted_run_may_still_process_are_not_restored_before_its_window_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A worker that outlives its run deletes originals that it has copied, and so could delete a restored object."""
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e", hours=0)
    lines: list[str] = []
    early = replace(undo(spark, world), log=lines.append)
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(early, selected("e"))
    assert [line for line in lines if "may still be processing" in line and "can be restored after" in line]
    assert world.copies().keys() == {"a", "e"}
    world.wait(hours=1)
    assert restore(undo(spark, world), selected("e")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["e"] == content("e")


def test_objects_that_a_suspended_run_may_still_process_are_not_restored_although_another_run_recorded_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A person stopped the first run and let the next one start, but a worker of the first run was only suspended."""
    world, lines = World(tmp_path / "world"), list[str]()
    every = Selection(plan_hash=world.plan.plan_hash)
    death_after(world, "quarantine", "delete", "e", hours=0)
    rows = latest(world.ledger()).values()
    without_result = {name_of(row["address"]) for row in rows if row["outcome"] == Outcome.ATTEMPTED}.intersection(DEAD)
    assert "e" in without_result
    stop_sweeps(world.warehouse, REPOSITORY, "a-person", world.clock())
    resume_sweeps(world.warehouse, REPOSITORY, world.clock())
    sweep(world, "quarantine", "another-run")
    assert world.copies().keys() == set(DEAD)
    ended = restore(replace(undo(spark, world), log=lines.append), every)
    assert world.copies().keys() == without_result != set(DEAD)
    with pytest.raises(StoreError, match=rf"An interrupted run may still be processing {len(without_result)} of them;"):
        ended.require_complete(REPOSITORY, "restored")
    assert [line for line in lines if f"may still be processing {len(without_result)} object" in line]
    world.wait(hours=1)
    restore(undo(spark, world), every)
    assert world.stored()["e"] == content("e")
    assert not world.copies()


def test_an_object_whose_copy_a_purge_skipped_can_be_restored_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """An interrupted sweep moved it. It is live again, and the purge names the command that restores it."""
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    keep_plan(world.warehouse, replace(world.plan, plan_hash="f" * 64))
    world.now += timedelta(days=30)
    due = due_for_purge(undo(spark, world))
    purge(undo(spark, world), due.digest, kept(spark, "e"))
    assert "e" in world.copies()
    assert restore(undo(spark, world), selected("e")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["e"] == content("e")


@pytest.mark.parametrize("cause", ["the_copy_failed", "another_object_was_there"])
def test_a_restore_tries_an_object_that_no_sweep_recorded_again_at_once_after_it_failed_itself(
    spark: SparkSession, tmp_path: Path, cause: str
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    path = world.root / "lake" / address("e")
    path.mkdir() if cause == "the_copy_failed" else world.lay("e", OTHER)
    ended = restore(undo(spark, world), selected("e"))
    assert (ended.failed, ended.skipped) == ((1, 0) if cause == "the_copy_failed" else (0, 1))
    assert "not restored: " in str(latest(world.ledger())[address("e")]["detail"])
    path.rmdir() if cause == "the_copy_failed" else world.remove("e")
    restore(undo(spark, world), selected("e")).require_complete(REPOSITORY, "restored")
    assert world.stored()["e"] == content("e")
    assert "e" not in world.copies()


def test_copies_in_another_quarantine_are_not_purged_unless_they_are_also_in_the_current_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A copy that is not found would count as purged, and no later run would delete it."""
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    before = undo(spark, world)
    there, lines = tmp_path / "elsewhere", list[str]()
    now = elsewhere(before, f"file://{there}", lines.append)
    assert due_for_purge(now).amount == Amount()
    (line,) = lines
    assert f"{len(DEAD)} copies of the plan of" in line
    assert "elsewhere" in line
    assert "To purge these copies, set quarantine.url to the URL to which they were moved" in line
    due = due_for_purge(before)
    assert due.amount.objects == len(DEAD)
    shutil.copytree(world.root / "lake.quarantine", there, dirs_exist_ok=True)
    assert due_for_purge(now).digest == due.digest


def test_copies_are_not_purged_while_their_quarantine_is_not_mounted(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    mount, volume, log = world.root / "lake.quarantine", world.root / "volume", list[str]()
    mount.rename(volume)
    mount.mkdir()
    due = due_for_purge(replace(undo(spark, world), log=log.append))
    assert not due.has_any
    (line,) = log
    assert f"{len(DEAD)} copies of the plan of {world.plan.day} cannot be purged. {world.place.url} has neither" in line
    mark = mount / world.place.folder / "manifest" / "deleted-by-hand"  # the runbook names this way out
    mark.parent.mkdir(parents=True)
    mark.touch()
    assert due_for_purge(undo(spark, world)).amount.objects == len(DEAD)
    shutil.rmtree(mount)
    volume.rename(mount)
    due = due_for_purge(undo(spark, world))
    assert due.amount.objects == len(DEAD)
    for copy in (mount / world.place.path(address("x"))).parent.iterdir():
        copy.unlink()  # by hand: the manifests show that this is the right quarantine
    purge(undo(spark, world), due.digest, kept(spark))
    assert outcome(world, "b") == Outcome.PURGED


@pytest.mark.parametrize("tested_by", ["the_command", "the_workers"])
def test_nothing_is_restored_where_the_repository_is_not_mounted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tested_by: str
) -> None:
    """A mount point without its mount is an empty directory. The copies would go below the mount."""
    world = quarantined_world(tmp_path / "world")
    if tested_by == "the_workers":
        monkeypatch.setattr(undo_module, "is_on_this_machine", lambda _: False)
    mount, volume, copies = world.root / "lake", world.root / "volume", world.copies()
    mount.rename(volume)
    mount.mkdir()
    with pytest.raises(Exception, match="Nothing") as refused:
        restore(undo(spark, world), selected("b"))
    error = own_error(refused.value)
    assert isinstance(error, StoreError)
    assert f"file://{mount}: the directory is empty on the machine " in str(error)
    assert "Nothing was restored. Mount the directory on every machine" in str(error)
    assert world.copies() == copies
    assert list(mount.iterdir()) == []
    mount.rmdir()
    volume.rename(mount)
    world.wait(hours=1)
    restore(undo(spark, world), selected("b"))
    assert world.stored()["b"] == content("b")


def test_all_objects_of_a_repository_can_be_restored_after_it_lost_all_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = quarantined_world(tmp_path / "world")
    shutil.rmtree(world.root / "lake")
    (world.root / "lake").mkdir()
    with pytest.raises(StoreError, match=r"has lost all its files, write a file into it: .*\. Then run the same"):
        restore(undo(spark, world), Selection())
    (world.root / "lake" / "restored-by-ada").touch()
    assert restore(undo(spark, world), Selection()).ledgers[Outcome.RESTORED].objects == len(DEAD)
    assert world.stored() == {name: content(name) for name in DEAD}


def test_a_purge_ends_on_a_machine_that_does_not_see_the_quarantine_and_records_nothing_as_purged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The driver sees the copies, and a worker on another machine does not."""
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    due, mount, volume = due_for_purge(undo(spark, world)), world.root / "lake.quarantine", world.root / "volume"

    def unmounted() -> DataFrame:
        mount.rename(volume)  # after the command has listed what is due
        return kept(spark).now()

    with pytest.raises(Exception, match="sees neither copies nor manifests there") as refused:
        purge(undo(spark, world), due.digest, FakeLiveAddresses(unmounted))
    assert isinstance(own_error(refused.value), StoreError)
    assert not mount.exists()
    volume.rename(mount)
    assert outcome(world, "b") == Outcome.QUARANTINED
    world.wait(hours=1)
    purge(undo(spark, world), due.digest, kept(spark))
    assert outcome(world, "b") == Outcome.PURGED
    assert world.copies() == {}


def elsewhere(here: Undo, url: str, log: Callable[[str], None] = lambda _: None) -> Undo:
    """Return `here` with another `quarantine.url`."""
    changed = here.repository.settings.model_copy(update={"quarantine": QuarantineSettings(url=url)})
    return replace(here, repository=replace(here.repository, settings=changed), log=log)


@pytest.mark.parametrize("mode", ["quarantine", "delete"])
def test_a_later_sweep_records_what_an_interrupted_sweep_moved_also_in_another_mode_or_to_another_url(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    copy = world.place.describe(address("e"))
    other = QuarantineLocation(StoreAccess(f"file://{tmp_path}/elsewhere"), world.place.folder)
    with monkeypatch.context() as patch:
        patch.setattr(World, "place", property(lambda _: other))
        sweep(world, mode, "second-run")
    row = latest(world.ledger())[address("e")]
    assert (row["outcome"], row["detail"]) == (Outcome.QUARANTINED, copy)
    world.wait(hours=1)
    restore(undo(spark, world), selected("e"))
    assert world.stored()["e"] == content("e")


@pytest.mark.parametrize("mode", ["quarantine", "delete"])
def test_a_missing_object_fails_while_the_quarantine_of_an_interrupted_sweep_cannot_be_seen(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    before, volume = world.root / "lake.quarantine", world.root / "volume"
    before.rename(volume)
    before.mkdir()  # a volume that is not mounted
    other = QuarantineLocation(StoreAccess(f"file://{tmp_path}/elsewhere"), world.place.folder)
    monkeypatch.setattr(World, "place", property(lambda _: other))
    sweep(world, mode, "second-run")
    row = latest(world.ledger())[address("e")]
    assert row["outcome"] == Outcome.FAILED
    assert f"may have been moved to file://{before}/{other.folder} by an interrupted sweep" in row["detail"]
    assert "this plan has no files there" in row["detail"]
    before.rmdir()
    world.wait(hours=1)
    sweep(world, mode, "third-run")
    assert outcome(world, "e") == Outcome.FAILED
    volume.rename(before)
    world.wait(hours=1)
    sweep(world, mode, "fourth-run")
    assert outcome(world, "e") == Outcome.QUARANTINED


def test_a_restore_that_finds_no_copy_names_the_location_where_it_looked(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    (tmp_path / "elsewhere").mkdir()
    restore(elsewhere(undo(spark, world), f"file://{tmp_path}/elsewhere"), selected("b"))
    row = latest(world.ledger())[address("b")]
    assert row["outcome"] == Outcome.FAILED
    copy = f"file://{tmp_path}/elsewhere/{world.place.path(address('b'))}"
    assert row["detail"] == f"not restored: no copy is at {copy}: it was removed, or quarantine.url was changed"


def test_a_restore_that_sees_no_quarantine_takes_no_other_object_for_the_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise the only copy would be due for purge once the quarantine is mounted again."""
    world = quarantined_world(tmp_path / "world")
    world.lay("b", b"x" * len(content("b")))
    (tmp_path / "elsewhere").mkdir()
    restore(elsewhere(undo(spark, world), f"file://{tmp_path}/elsewhere"), selected("b"))
    row = latest(world.ledger())[address("b")]
    assert row["outcome"] == Outcome.FAILED
    assert row["detail"].startswith(f"not restored: no copy is at file://{tmp_path}/elsewhere/")


def test_objects_that_an_interrupted_sweep_may_have_moved_to_an_earlier_quarantine_are_logged_and_keep_their_versions(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    next_day = world.plan.day + timedelta(days=1)
    keep_plan(world.warehouse, replace(world.plan, day=next_day))
    found = {address("e"): "missing", address("f"): "missing"}
    write_ledger(world.warehouse, REPOSITORY, next_day, world.plan.plan_hash, found, world.clock(), fence=9)
    log: list[str] = []
    here = elsewhere(undo(spark, world), f"file://{tmp_path}/elsewhere", log.append)
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(here, selected("e"))
    assert [line for line in log if "1 object is missing from the repository. An interrupted sweep" in line]
    assert [line for line in log if f"moved missing objects to file://{world.root}/lake.quarantine. To see" in line]
    with_versions = {row["address"] for _, rows in here.with_versions() for row in rows.collect()}
    assert with_versions == {address("f")}


def test_no_version_is_due_in_a_store_that_keeps_none_and_the_ledger_stays(spark: SparkSession, tmp_path: Path) -> None:
    world = World(tmp_path / "world")
    sweep(world, "delete")
    world.wait(hours=1)
    before = world.ledger()
    due = due_for_purge(undo(spark, world), versions=True)
    assert (due.has_any, due.amount, due.keeps_versions) == (False, Amount(), False)
    with pytest.raises(GuardRefused, match="is not the hash of the objects that may be purged now"):
        purge(undo(spark, world), due.digest, kept(spark), versions=True)
    assert world.ledger() == before


@pytest.fixture
def with_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the local directory of a test count as a bucket that keeps versions."""
    monkeypatch.setattr(undo_module, "_repository_keeps_versions", lambda _: True)


@pytest.mark.usefixtures("with_versions")
def test_versions_of_deleted_objects_and_of_moved_objects_with_purged_copies_may_be_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    gone_before = due_for_purge(undo(spark, world), versions=True).amount
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    assert {row["detail"] for row in world.ledger() if row["outcome"] == Outcome.PURGED} == {"its copy in quarantine"}
    after = due_for_purge(undo(spark, world), versions=True)
    assert after.amount.objects == gone_before.objects + len(DEAD)


@pytest.mark.usefixtures("with_versions")
def test_versions_stay_if_one_plan_found_the_object_missing_and_another_has_it_in_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two plans may name one object. If the first sweep moves it, the second one finds it missing."""
    world = quarantined_world(tmp_path / "world")
    before = due_for_purge(undo(spark, world), versions=True).amount
    other = replace(world.plan, plan_hash="f" * 64)
    keep_plan(world.warehouse, other)
    row = {
        "address": address("a"),
        "size": len(content("a")),
        "outcome": Outcome.MISSING,
        "detail": None,
        "at": world.now,
    }
    rows = pa.Table.from_pylist([{**row, "fence": 9}], schema=LEDGER)
    LedgerLocation(world.warehouse.root, REPOSITORY, other.day, other.plan_hash, 9, "later").append(rows, "one", "done")
    assert due_for_purge(undo(spark, world), versions=True).amount == before
    world.now += timedelta(days=30)
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    after = due_for_purge(undo(spark, world), versions=True)
    assert after.amount.objects == before.objects + len(DEAD)


def test_versions_stay_while_a_copy_that_an_interrupted_sweep_did_not_record_is_in_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    days = [world.plan.day, world.plan.day + timedelta(days=1)]  # the plan of the next day finds the object missing
    keep_plan(world.warehouse, replace(world.plan, day=days[1]))
    for day in days:
        found = {address("e"): "missing", address("f"): "missing"}
        write_ledger(world.warehouse, REPOSITORY, day, world.plan.plan_hash, found, world.clock(), fence=7 + day.day)

    def with_versions() -> set[str]:
        return {row["address"] for _, rows in undo(spark, world).with_versions() for row in rows.collect()}

    assert with_versions() == {address("f")}
    world.now += timedelta(days=31)
    assert "e" in world.copies()
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    assert world.copies() == {}
    assert with_versions() == {address(name) for name in "aef"}


def test_a_copy_stays_until_quarantine_keep_after_the_versions_of_its_original_were_purged(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Earlier releases purged the versions of an object while an unrecorded copy of it was in quarantine."""
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    row = {"address": address("e"), "size": len(content("e")), "outcome": Outcome.PURGED, "detail": "its versions"}
    rows = pa.Table.from_pylist([{**row, "at": world.clock(), "fence": 9}], schema=LEDGER)
    plan = world.plan
    LedgerLocation(world.warehouse.root, REPOSITORY, plan.day, plan.plan_hash, 9, "later").append(rows, "one", "done")
    world.wait(days=29, hours=23.5)  # the other object, `a`, was moved an hour earlier
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    assert world.copies().keys() == {"e"}
    world.wait(hours=1)
    purge(undo(spark, world), due_for_purge(undo(spark, world)).digest, kept(spark))
    assert world.copies() == {}


def test_versions_belong_to_the_plan_of_their_day_if_two_days_have_equal_hashes(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    days = [world.plan.day, world.plan.day + timedelta(days=1)]
    for fence, day in enumerate(days):
        keep_plan(world.warehouse, replace(world.plan, day=day))
        outcomes = {f"data/{fence}": "deleted"}
        write_ledger(world.warehouse, REPOSITORY, day, world.plan.plan_hash, outcomes, world.now, fence=fence)
    found = undo(spark, world).with_versions()
    addresses = [(plan.day, [row["address"] for row in rows.collect()]) for plan, rows in found]
    assert addresses == [(days[0], ["data/0"]), (days[1], ["data/1"])]


def test_objects_that_are_live_again_and_missing_are_not_purged(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    due, lines = due_for_purge(undo(spark, world)), list[str]()
    ended = purge(replace(undo(spark, world), log=lines.append), due.digest, kept(spark, "b", "never")).ledgers
    assert ended[Outcome.PURGED].objects == len(DEAD) - 1
    assert outcome(world, "b") == Outcome.SKIPPED
    assert world.copies().keys() == {"b"}
    assert completed_runs(world.warehouse, REPOSITORY) == frozenset()  # a copy is still in quarantine
    (line,) = [line for line in lines if "1 object is live again but missing from the path" in line]
    assert f"{address('b')} first" in line
    due = due_for_purge(undo(spark, world))
    assert due.amount.objects == 1
    world.lay("b", content("b")[:-1])  # somebody brought back a part of the object
    lines.clear()
    purge(replace(undo(spark, world), log=lines.append), due.digest, kept(spark, "b"))
    assert world.copies().keys() == {"b"}
    assert any(f"or of another size there, {address('b')} first" in line for line in lines)
    world.lay("b", bytes(len(content("b"))))  # somebody wrote other bytes of the same size
    purge(replace(undo(spark, world), log=lines.append), due.digest, kept(spark, "b"))
    assert world.copies()["b"] == content("b")
    assert any(f"missing or have other bytes, {address('b')} first" in line for line in lines)
    assert "has other bytes" in str(latest(world.ledger())[address("b")]["detail"])
    world.lay("b", content("b"))  # the object exists again, so the copy is not the last one
    assert purge(undo(spark, world), due.digest, kept(spark, "b")).ledgers[Outcome.PURGED].objects == len(DEAD)
    assert world.copies() == {}
    assert completed_runs(world.warehouse, REPOSITORY) == {world.plan.policy_run}


def test_a_purge_runs_its_own_liveness_check_and_its_window_begins_there(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    world.now += timedelta(days=30)
    due, asked = due_for_purge(undo(spark, world)), list[bool]()

    def answer() -> DataFrame:
        lease = world.warehouse.read_document(REPOSITORY, LEASES, world.warehouse.documents(REPOSITORY, LEASES)[-1])
        asked.append(lease is not None and not lease["released"])
        world.now += timedelta(minutes=5)
        return kept(spark).now()

    purge(undo(spark, world), due.digest, FakeLiveAddresses(answer))
    assert asked == [True]
    *_, record = read_records(world.warehouse, REPOSITORY)
    assert record.document["longest_window_seconds"] >= 300
    with pytest.raises(GuardRefused, match="is not the hash of the objects that may be purged now"):
        purge(undo(spark, world), due.digest, FakeLiveAddresses(answer))
    assert asked == [True]
