"""Surplus copies in quarantine, which no ledger calls quarantined: they are shown, restored if needed, and purged."""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from retention_assets.assets.reporting import quarantine_table
from retention_assets.cli import undoing as commands
from retention_assets.config.configuration import load_configuration
from retention_assets.core.amounts import Amount, human_amount, human_bytes
from retention_assets.errors import AccessDenied, GuardRefused
from retention_assets.objectstore import versions as listed_versions
from retention_assets.objectstore.access import StoreAccess
from retention_assets.objectstore.outcomes import OF_COPY, Outcome
from retention_assets.state.acknowledged import acknowledge
from retention_assets.state.lease import MARGIN, release_lease, take_lease
from retention_assets.state.ledger import SURPLUS_LEDGERS, LedgerLocation
from retention_assets.state.plan import Plan, keep_plan
from retention_assets.state.quarantine import QuarantineLocation
from retention_assets.state.records import read_records
from retention_assets.sweep import purges, undo_engine, verification
from retention_assets.sweep import undo as undoing
from retention_assets.sweep.actions import GONE_AGAIN
from retention_assets.sweep.copies import Undo
from retention_assets.sweep.undo import due_for_purge, purge, restore
from retention_assets.sweep.verification import VerificationInputs, copies_in_quarantine
from retention_assets.tables import LEDGER
from tests.end_to_end.command import Answer, run
from tests.objectstore.s3 import Bucket
from tests.objectstore.store_servers import StoreServer, run_versitygw
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.scenarios import quarantined_world
from tests.sweep.crashes.test_buckets import BucketWorld
from tests.sweep.crashes.world import DEAD, REPOSITORY, World, address, content
from tests.sweep.test_undo import FakeLiveAddresses, death_after, elsewhere, kept, outcome, selected, undo

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("small_steps")]


def a_world(directory: Path) -> World:
    """Return a world after three sweeps, whose fences were 1, 3 and 5."""
    world = World(directory / "world")
    for _ in range(3):
        lease = take_lease(world.warehouse, REPOSITORY, "an-earlier-run", world.now, timedelta(minutes=30))
        release_lease(world.warehouse, lease, world.now)
    return world


def another_plan(world: World, number: int) -> Plan:
    """Return a plan of a later day with the same candidates."""
    plan = replace(world.plan, plan_hash=f"{number:x}" * 64, day=world.plan.day + timedelta(days=number))
    keep_plan(world.warehouse, plan)
    return plan


def place(world: World, plan: Plan) -> QuarantineLocation:
    return replace(world.place, folder=f"{plan.day}/{plan.plan_hash[:16]}")


def write_rows(
    world: World, plan: Plan, fence: int, *outcomes: str, name: str = "a", detail: str | None = None
) -> None:
    """Write ledger rows with these outcomes of one object."""
    for outcome_ in outcomes:
        response = detail or (place(world, plan).describe(address(name)) if outcome_ == Outcome.QUARANTINED else None)
        row = {"address": address(name), "size": len(content(name)), "outcome": outcome_, "detail": response}
        rows = pa.Table.from_pylist([{**row, "at": world.clock(), "fence": fence}], schema=LEDGER)
        kind = "attempted" if outcome_ == Outcome.ATTEMPTED else "done"
        target = LedgerLocation(world.warehouse.root, REPOSITORY, plan.day, plan.plan_hash, fence, f"run-{fence}")
        target.append(rows, f"{name}-{uuid4().hex}", kind)


def lay_copy(world: World, plan: Plan, name: str = "a", bytes_: bytes | None = None) -> Path:
    file = world.root / "lake.quarantine" / place(world, plan).path(address(name))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content(name) if bytes_ is None else bytes_)
    return file


def copied_not_deleted(world: World, plan: Plan, fence: int = 1) -> Path:
    """Leave the state after a sweep copied an object and failed to delete the original."""
    write_rows(world, plan, fence, Outcome.ATTEMPTED, Outcome.FAILED)
    return lay_copy(world, plan)


def moved(world: World, plan: Plan, fence: int = 3) -> Path:
    write_rows(world, plan, fence, Outcome.ATTEMPTED, Outcome.QUARANTINED)
    if "a" in world.stored():
        world.remove("a")
    return lay_copy(world, plan)


def purged(spark: SparkSession, world: World, *live: str) -> Mapping[str, Amount]:
    """Purge the due objects, if there are any."""
    due = due_for_purge(undo(spark, world))
    return purge(undo(spark, world), due.digest, kept(spark, *live)).ledgers if due.has_any else {}


def shown(spark: SparkSession, world: World) -> dict[str, tuple[int, int]]:
    """Return, by plan, the numbers of quarantined copies and of surplus copies."""
    return {
        one.plan.plan_hash: (one.moved.objects, one.surplus.objects) for one in undo(spark, world).copies().by_plan()
    }


def test_a_moved_object_whose_copy_another_program_deleted_is_counted_as_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    moved(world, another_plan(world, 1)).unlink()
    (one,) = undo(spark, world).copies().by_plan()
    amount = Amount(1, len(content("a")))
    assert (one.moved, one.missing, one.held) == (amount, amount, Amount())


def files(world: World) -> set[str]:
    """Return the files in the folders of plans: the marker of the quarantine stays."""
    folder = world.root / "lake.quarantine"
    return {str(file.relative_to(folder)) for file in folder.rglob("*/*") if file.is_file()}


@pytest.mark.slow
def test_copies_of_one_object_under_two_plans_go_together_and_none_is_left(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    copied_not_deleted(world, first)
    world.wait(days=2)
    moved(world, second)
    assert shown(spark, world) == {first.plan_hash: (1, 0), second.plan_hash: (1, 0)}
    world.wait(days=29)  # the first copy is older than quarantine.keep, the second is not
    assert not due_for_purge(undo(spark, world)).has_any
    world.wait(days=1)
    assert purged(spark, world) == {Outcome.PURGED: Amount(2, 2 * len(content("a")))}
    assert files(world) == set()
    assert shown(spark, world) == {}


def moved_to(world: World, directory: Path, plan: Plan, fence: int = 3) -> Path:
    """Leave the state after a sweep moved an object to the quarantine at `directory`. Return the copy."""
    location = QuarantineLocation(StoreAccess(f"file://{directory}"), place(world, plan).folder)
    write_rows(world, plan, fence, Outcome.ATTEMPTED, detail=location.url)
    write_rows(world, plan, fence, Outcome.QUARANTINED, detail=location.describe(address("a")))
    if "a" in world.stored():
        world.remove("a")
    copy = directory / location.path(address("a"))
    for file in (copy, directory / location.folder / "manifest" / "1.json"):
        file.parent.mkdir(parents=True)
        file.write_bytes(content("a"))
    return copy


def moved_twice(spark: SparkSession, tmp_path: Path) -> tuple[World, Path, Path, Undo]:
    """Return the state after two plans moved one object, and `quarantine.url` was changed in between.

    The results are the world, both copies, and the `Undo` with the earlier quarantine. All copies are due.
    """
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    copies = moved_to(world, tmp_path / "earlier", first), moved_to(world, world.root / "lake.quarantine", second, 5)
    world.wait(days=31)
    return world, *copies, elsewhere(undo(spark, world), f"file://{tmp_path}/earlier")


def purged_in(spark: SparkSession, run: Undo) -> Mapping[str, Amount]:
    return purge(run, due_for_purge(run).digest, kept(spark)).ledgers


def test_copies_of_one_object_in_two_quarantines_are_purged_separately(spark: SparkSession, tmp_path: Path) -> None:
    world, earlier, current, in_earlier = moved_twice(spark, tmp_path)
    plans = another_plan(world, 1), another_plan(world, 2)
    assert check_result(spark, world, *plans).passed
    assert purged(spark, world)[Outcome.PURGED].objects == 1
    assert (earlier.exists(), current.exists()) == (True, False)
    assert check_result(spark, world, *plans).passed  # the first plan still has the object in quarantine
    assert purged_in(spark, in_earlier)[Outcome.PURGED].objects == 1
    assert not earlier.exists()
    assert check_result(spark, world, *plans).passed
    assert shown(spark, world) == {}


@pytest.mark.parametrize("interrupted", [(), (Outcome.ATTEMPTED, Outcome.RESTORED)], ids=["swept", "restored_before"])
def test_an_object_that_a_suspended_run_of_another_plan_may_still_process_is_not_restored(
    spark: SparkSession, tmp_path: Path, interrupted: tuple[Outcome, ...]
) -> None:
    """The worker of the first plan recorded no result. It could delete the object after it is restored."""
    world, lines = a_world(tmp_path), list[str]()
    first, second = another_plan(world, 1), another_plan(world, 2)
    if interrupted:
        write_rows(world, first, 1, Outcome.ATTEMPTED, Outcome.QUARANTINED)
        write_rows(world, first, 2, *interrupted)
    write_rows(world, first, 3, Outcome.ATTEMPTED)
    moved(world, second, fence=5)
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(replace(undo(spark, world), log=lines.append), selected("a"))
    assert [line for line in lines if "may still be processing 1 object" in line]
    world.wait(minutes=21)  # sweep.window and five minutes
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["a"] == content("a")


@pytest.mark.parametrize("last", [Outcome.ATTEMPTED, Outcome.FAILED], ids=["without_result", "failed"])
def test_the_failure_of_a_restore_does_not_shorten_the_wait_for_a_sweep(
    spark: SparkSession, tmp_path: Path, last: Outcome
) -> None:
    """A worker of the sweep may still be running, or the store may still carry out the deletion that failed."""
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    write_rows(world, plan, 1, *{Outcome.ATTEMPTED: None, last: None})
    write_rows(world, plan, 3, Outcome.ATTEMPTED)
    write_rows(world, plan, 3, Outcome.FAILED, detail="not restored: the store refused")
    lay_copy(world, plan)
    world.remove("a")
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(undo(spark, world), selected("a"))
    world.wait(minutes=21)  # sweep.window and five minutes
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1


@pytest.mark.parametrize("by", [None, "sweep", "purge"])
def test_a_restore_whose_object_somebody_removed_is_repeated_at_once_if_no_other_run_may_process_the_object(
    spark: SparkSession, tmp_path: Path, by: str | None
) -> None:
    world, lines = a_world(tmp_path), list[str]()
    plan = another_plan(world, 1)
    if by == "sweep":  # it was interrupted, and a later sweep found what it had moved
        write_rows(world, plan, 1, Outcome.ATTEMPTED)
    moved(world, plan, fence=3)
    write_rows(world, plan, 4, Outcome.ATTEMPTED)
    write_rows(world, plan, 4, Outcome.RESTORED, detail=GONE_AGAIN)  # the copy stays
    if by == "purge":
        write_rows(world, plan, 5, Outcome.ATTEMPTED)
    here = replace(undo(spark, world), log=lines.append)
    if by:
        with pytest.raises(GuardRefused, match="no object in quarantine matches"):
            restore(here, selected("a"))
        (line,) = [line for line in lines if "may still be processing 1 object" in line]
        assert f"can be restored after {world.now + timedelta(minutes=20):%Y-%m-%d %H:%M}:" in line
        world.wait(minutes=21)  # sweep.window and five minutes
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["a"] == content("a")


@pytest.mark.parametrize("restored_before", [False, True], ids=["moved", "restored_before"])
def test_an_object_is_not_restored_while_a_worker_that_spark_lost_may_still_delete_it(
    spark: SparkSession, tmp_path: Path, restored_before: bool
) -> None:
    """Another worker of the same sweep moved the object. The worker that was lost has recorded no result."""
    world, lines = a_world(tmp_path), list[str]()
    plan = another_plan(world, 1)
    write_rows(world, plan, 3, Outcome.ATTEMPTED)
    world.wait(minutes=2)
    moved(world, plan, fence=3)
    if restored_before:
        write_rows(world, plan, 4, Outcome.ATTEMPTED)
        write_rows(world, plan, 4, Outcome.RESTORED, detail=GONE_AGAIN)  # the copy stays
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(replace(undo(spark, world), log=lines.append), selected("a"))
    (line,) = [line for line in lines if "may still be processing 1 object" in line]
    assert f"can be restored after {world.now + timedelta(minutes=18):%Y-%m-%d %H:%M}:" in line
    world.wait(minutes=19)  # sweep.window and five minutes
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["a"] == content("a")


def test_an_object_that_is_attempted_again_after_a_failure_is_restored_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    write_rows(world, plan, 3, Outcome.ATTEMPTED, Outcome.FAILED)
    world.wait(minutes=2)
    moved(world, plan, fence=3)
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1


def test_an_object_that_a_run_of_another_plan_processed_with_a_result_is_restored_at_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    write_rows(world, first, 1, Outcome.ATTEMPTED, Outcome.QUARANTINED)
    write_rows(world, first, 2, Outcome.ATTEMPTED, Outcome.RESTORED)
    write_rows(world, first, 3, Outcome.ATTEMPTED, Outcome.FAILED)
    moved(world, second, fence=5)
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1


def test_a_copy_whose_object_is_still_at_its_path_is_surplus_and_is_purged_once_no_sweep_processes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copied_not_deleted(world, plan)
    assert shown(spark, world) == {plan.plan_hash: (0, 1)}
    assert not due_for_purge(undo(spark, world)).has_any  # a worker may be about to delete the original
    world.wait(minutes=21)  # sweep.window and five minutes
    due = due_for_purge(undo(spark, world))
    assert (due.amount, due.surplus) == (Amount(), Amount(1, len(content("a"))))
    assert purged(spark, world) == {Outcome.FAILED: Amount(1, len(content("a")))}  # the plan's ledger is as it was
    assert files(world) == set()
    assert world.stored()["a"] == content("a")
    *_, record = read_records(world.warehouse, REPOSITORY)
    assert record.document["published"]["surplus_copies"] == 1
    assert world.warehouse.directories(REPOSITORY, SURPLUS_LEDGERS) == [plan.day.isoformat()]


def test_the_record_of_a_purge_that_was_refused_does_not_count_surplus_copies_that_it_did_not_try(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    copied_not_deleted(world, another_plan(world, 1))
    world.wait(minutes=21)
    due = due_for_purge(undo(spark, world))

    def refuse() -> DataFrame:
        raise GuardRefused("orchard: the references are incomplete. Nothing was deleted. Plan again.")

    with pytest.raises(GuardRefused, match="Nothing was deleted"):
        purge(undo(spark, world), due.digest, FakeLiveAddresses(refuse))
    assert list(read_records(world.warehouse, REPOSITORY)) == []


def test_a_surplus_copy_stays_if_its_object_was_deleted_before_the_purge_checked_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copy = copied_not_deleted(world, plan)
    world.wait(hours=1)
    due = due_for_purge(undo(spark, world))

    def take_it_away() -> DataFrame:
        world.remove("a")
        return kept(spark).now()

    purge(undo(spark, world), due.digest, FakeLiveAddresses(take_it_away))
    assert copy.read_bytes() == content("a")
    assert shown(spark, world) == {plan.plan_hash: (1, 0)}


def test_a_copy_whose_path_has_another_object_of_the_same_size_is_not_purged_as_surplus(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An interrupted sweep moved the object and recorded nothing. Then somebody wrote other bytes to the path."""
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copy = copied_not_deleted(world, plan)
    other = b"X" * len(content("a"))
    (world.root / "lake" / address("a")).write_bytes(other)
    world.wait(hours=1)
    due = due_for_purge(undo(spark, world))
    assert due.surplus == Amount(1, len(other))
    purge(undo(spark, world), due.digest, kept(spark))
    assert copy.read_bytes() == content("a")
    assert world.stored()["a"] == other


def test_copies_that_stay_are_named_for_live_objects_and_for_surplus_copies(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    for name, last in {"a": Outcome.QUARANTINED, "b": Outcome.QUARANTINED, "c": Outcome.FAILED}.items():
        write_rows(world, plan, 3, Outcome.ATTEMPTED, last, name=name)
        lay_copy(world, plan, name)
        world.lay(name, b"X" * len(content(name)))
    world.wait(days=31)
    due, lines = due_for_purge(undo(spark, world)), list[str]()
    purge(replace(undo(spark, world), log=lines.append), due.digest, kept(spark, "a", "b"))
    named = [line for line in lines if "not purged, because" in line]
    assert [re.findall(r"(\d) cop.* bytes, (\S+) first", line) for line in named] == [
        [("2", address("a"))],
        [("1", address("c"))],
    ]


def test_a_copy_that_another_run_changed_after_it_was_found_due_is_not_purged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep of the plan may continue between the search for due copies and their purge."""
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copy = copied_not_deleted(world, plan)
    world.wait(hours=1)
    due = due_for_purge(undo(spark, world))
    found_due = undoing.due_for_purge

    def and_then_the_sweep_goes_on(*arguments: Any, **options: Any) -> Any:
        result = found_due(*arguments, **options)
        write_rows(world, plan, 50, Outcome.ATTEMPTED, Outcome.QUARANTINED)
        world.remove("a")
        return result

    monkeypatch.setattr(undoing, "due_for_purge", and_then_the_sweep_goes_on)
    lines = list[str]()
    purge(replace(undo(spark, world), log=lines.append), due.digest, kept(spark))
    assert f"orchard: another run worked on 1 due object of the plan of {plan.day} meanwhile" in " ".join(lines)
    assert copy.read_bytes() == content("a")
    assert shown(spark, world) == {plan.plan_hash: (1, 0)}


@pytest.mark.parametrize("versions", [False, True], ids=["copies", "versions"])
def test_an_object_that_a_sweep_of_another_plan_moved_after_it_was_found_due_is_not_purged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: bool
) -> None:
    """Somebody brought the object back, and a second plan moved it between the search for due objects and the purge."""
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    if versions:
        monkeypatch.setattr(undoing, "_repository_keeps_versions", lambda _: True)
        write_rows(world, first, 5, Outcome.ATTEMPTED, Outcome.DELETED)
        world.remove("a")
    else:
        moved(world, first, fence=5)
    world.wait(days=31)
    due = due_for_purge(undo(spark, world), versions=versions)
    assert due.amount.objects == 1
    execute = undoing._execute_each

    def once_another_plan_has_moved_the_object(*arguments: Any, **options: Any) -> Any:
        lease = take_lease(world.warehouse, REPOSITORY, "of-the-second-plan", world.now, timedelta(minutes=30))
        moved(world, second, lease.fence)
        release_lease(world.warehouse, lease, world.now)
        return execute(*arguments, **options)

    monkeypatch.setattr(undoing, "_execute_each", once_another_plan_has_moved_the_object)
    lines = list[str]()
    purging = replace(undo(spark, world), log=lines.append)
    assert Outcome.PURGED not in purge(purging, due.digest, kept(spark), versions=versions).ledgers
    (line,) = (line for line in lines if "another run" in line)
    assert f"orchard: another run worked on 1 due object of the plan of {first.day} meanwhile, {address('a')}" in line
    monkeypatch.undo()
    of_first = {} if versions else {first.plan_hash: (1, 0)}
    assert shown(spark, world) == {**of_first, second.plan_hash: (1, 0)}
    assert not due_for_purge(undo(spark, world)).has_any
    world.wait(days=31)
    copies = 1 if versions else 2
    assert purged(spark, world)[Outcome.PURGED].objects == copies  # together
    assert files(world) == set()


def test_a_purge_lists_the_ledgers_of_all_plans_once_for_each_plan_with_due_copies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    moved(world, another_plan(world, 1), fence=5)
    world.wait(days=31)
    due, listed, calls = due_for_purge(undo(spark, world)), undoing.recorded_sweeps, list[tuple[Any, ...]]()

    def listing(*arguments: Any) -> frozenset[str]:
        calls.append(arguments)
        return listed(*arguments)

    for module in (undoing, undo_engine):
        monkeypatch.setattr(module, "recorded_sweeps", listing)
    assert purge(undo(spark, world), due.digest, kept(spark)).ledgers[Outcome.PURGED].objects == 1
    assert len(calls) == 2  # when the purge finds what is due, and before it purges the copies of the plan


def test_while_a_sweep_has_the_lease_nothing_is_purged(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    copy = copied_not_deleted(world, another_plan(world, 1))
    take_lease(world.warehouse, REPOSITORY, "a-sweep", world.now, timedelta(minutes=30))
    with pytest.raises(GuardRefused, match="a-sweep holds the lease"):
        purge(undo(spark, world), "any hash", kept(spark))
    assert copy.is_file()


@pytest.mark.parametrize("answer", [Outcome.FAILED, Outcome.DELETED, Outcome.MISSING, Outcome.RESTORED, None])
@pytest.mark.slow
def test_the_last_copy_of_an_object_can_be_restored_whatever_the_ledger_says(
    spark: SparkSession, tmp_path: Path, answer: str | None
) -> None:
    """After an ambiguous response of the store, the original of a `failed` object may be deleted."""
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    write_rows(world, plan, 1, *([Outcome.ATTEMPTED, answer] if answer else [Outcome.ATTEMPTED]))
    lay_copy(world, plan)
    world.remove("a")
    assert shown(spark, world) == {plan.plan_hash: (1, 0)}
    world.wait(hours=1)
    assert not due_for_purge(undo(spark, world)).has_any
    assert restore(undo(spark, world), selected("a")).ledgers[Outcome.RESTORED].objects == 1
    assert world.stored()["a"] == content("a")
    assert shown(spark, world) == {}


def test_a_copy_of_an_object_that_is_live_again_and_missing_from_its_path_is_not_purged(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copy = copied_not_deleted(world, plan)
    world.remove("a")
    world.wait(days=31)
    purged(spark, world, "a")
    assert copy.is_file()


def test_a_lost_copy_of_a_live_object_is_due_until_a_person_acknowledges_the_loss(
    spark: SparkSession, tmp_path: Path
) -> None:
    world, log = a_world(tmp_path), list[str]()
    first, second = another_plan(world, 1), another_plan(world, 2)
    copy = moved(world, first)
    world.wait(days=31)
    copy.rename(tmp_path / "a")
    (copy.parent / "b").touch()  # the folder can be seen
    assert Outcome.PURGED not in purged(spark, world, "a")
    due = due_for_purge(undo(spark, world))
    assert due.amount.objects == 1
    acknowledge(world.warehouse, REPOSITORY, [address("a")], "ada", world.clock(), "a-run")

    def put_back() -> DataFrame:
        (tmp_path / "a").rename(copy)  # from a backup, after the purge has listed the quarantine
        return kept(spark, "a").now()

    run = replace(undo(spark, world), log=log.append)
    assert purge(run, due.digest, FakeLiveAddresses(put_back)).ledgers[Outcome.PURGED].objects == 1
    assert not [line for line in log if "live again" in line]
    assert copy.read_bytes() == content("a")
    purged(spark, world, "a")
    assert copy.exists()  # it may be the last copy
    copy.unlink()
    assert not due_for_purge(undo(spark, world)).has_any
    write_rows(world, first, 50, Outcome.QUARANTINED)
    moved(world, second, fence=51)
    world.wait(days=31)
    purged(spark, world, "a")
    assert shown(spark, world) == {first.plan_hash: (1, 0), second.plan_hash: (1, 0)}  # another plan has a copy


def test_a_copy_of_another_size_is_not_restored(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    write_rows(world, plan, 1, Outcome.ATTEMPTED)
    lay_copy(world, plan, bytes_=b"part")
    world.remove("a")
    world.wait(hours=1)
    with pytest.raises(GuardRefused, match="no object in quarantine matches"):
        restore(undo(spark, world), selected("a"))


def test_copies_that_no_ledger_names_are_shown_and_never_deleted(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    plan, another_repositorys = another_plan(world, 1), replace(world.plan, day=date(2026, 1, 1), plan_hash="e" * 64)
    moved(world, plan)
    strange = lay_copy(world, plan, "never-tried", b"???")
    replacement = lay_copy(world, another_repositorys, "theirs", b"their bytes")
    (world.root / "lake.quarantine" / "something" / "else").mkdir(parents=True)
    (world.root / "lake.quarantine" / "something" / "else" / "file").write_bytes(b"not ours")
    for of in (plan, another_repositorys):
        (world.root / "lake.quarantine" / place(world, of).folder / "note.txt").write_bytes(b"a note")
    world.wait(days=31)
    assert undo(spark, world).copies().unknown() == [
        (place(world, another_repositorys).folder, Amount(2, len(b"their bytes" + b"a note"))),
        (place(world, plan).folder, Amount(1, 3)),
    ]
    purged(spark, world)
    assert strange.is_file()
    assert replacement.is_file()


def test_manifests_are_deleted_with_the_last_copy(spark: SparkSession, tmp_path: Path) -> None:
    world = quarantined_world(tmp_path / "world")
    assert any("/manifest/" in file for file in files(world))
    world.wait(days=31)
    restore(undo(spark, world), selected("b"))
    purged(spark, world)
    assert files(world) == set()


def test_manifests_stay_until_the_ledger_has_no_object_in_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    """Without them, no purge could tell a lost copy from a quarantine that is not mounted."""
    world, log = quarantined_world(tmp_path / "world"), list[str]()
    (world.root / "lake.quarantine" / world.place.path(address("b"))).unlink()
    world.wait(days=31)
    due = due_for_purge(undo(spark, world))
    purge(replace(undo(spark, world), log=log.append), due.digest, kept(spark, "b"))
    assert (outcome(world, "b"), outcome(world, "a")) == (Outcome.SKIPPED, Outcome.PURGED)
    (line,) = [line for line in log if "live again" in line]
    assert f"the quarantine has no whole copy under the plan of {world.plan.day}" in line
    assert "retention restore" not in line
    assert files(world)
    assert all("/manifest/" in file for file in files(world))
    purged(spark, world)
    assert (outcome(world, "b"), files(world)) == (Outcome.PURGED, set())


@pytest.mark.slow
def test_manifests_that_an_interrupted_purge_left_are_deleted_by_the_next_purge(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = quarantined_world(tmp_path / "world")
    world.wait(days=31)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undoing, "_delete_manifests", lambda *_, **__: 0)
        purged(spark, world)
    assert all("/manifest/" in file for file in files(world))
    world.wait(hours=1)
    due = due_for_purge(undo(spark, world))
    assert (due.amount, [plan.plan_hash for plan in due.manifests]) == (Amount(), [world.plan.plan_hash])
    purged(spark, world)
    assert files(world) == set()


def test_copies_that_an_interrupted_run_did_not_record_are_purged_when_they_are_due(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path / "world")
    death_after(world, "quarantine", "delete", "e")
    keep_plan(world.warehouse, replace(world.plan, plan_hash="f" * 64))  # no run continues the plan
    assert "e" not in world.stored()
    world.wait(days=31)
    purged(spark, world)
    assert world.copies() == {}
    assert outcome(world, "e") == Outcome.PURGED
    assert files(world) == set()


# ---- the commands


def command(spark: SparkSession, world: World, name: str, *arguments: str) -> Answer:
    undo(spark, world)  # writes the configuration
    return run("--config", world.root / "retention.yaml", name, REPOSITORY, *arguments)


def test_quarantined_shows_surplus_copies_and_copies_that_no_ledger_names(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copied_not_deleted(world, plan)
    lay_copy(world, plan, "never-tried", b"???")
    assert command(spark, world, "quarantined", "--json").document() == [
        {"plan": f"{plan.day} {plan.plan_hash}", "objects": 1, "bytes": len(content("a")), "surplus": True},
        {"plan": place(world, plan).folder, "objects": 1, "bytes": 3, "unknown": True},
    ]
    shown = command(spark, world, "quarantined").out
    assert "no object is in quarantine" in shown
    assert "A sweep made these copies, and their objects are still in the repository" in shown
    assert "No command deletes them" in shown


def test_quarantined_shows_moved_objects_without_a_copy_separately(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    moved(world, plan).unlink()
    assert command(spark, world, "quarantined", "--json").document() == [
        {"plan": f"{plan.day} {plan.plan_hash}", "objects": 1, "bytes": len(content("a")), "missing": True}
    ]
    shown = command(spark, world, "quarantined").out
    assert "no object is in quarantine" in shown
    assert "Check that quarantine.url was not changed, and that the quarantine is mounted" in shown


def test_the_table_of_a_quarantine_has_a_column_of_missing_copies_if_there_are_any(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    copy = moved(world, another_plan(world, 1))
    table = quarantine_table(undo(spark, world).copies().by_plan()).value
    assert table.startswith("| plan | moved | surplus copies |\n|---|---:|---:|\n")
    copy.unlink()
    table = quarantine_table(undo(spark, world).copies().by_plan()).value
    assert "| plan | moved | of these, without a copy | surplus copies |\n|---|---:|---:|---:|" in table
    amount = human_amount(Amount(1, len(content("a"))))
    assert f" | {amount} | {amount} | 0 objects, 0 B |" in table


@pytest.mark.parametrize("keeps", [False, None])
def test_purge_says_that_deletion_is_permanent_only_if_versioning_is_known(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool | None
) -> None:
    world = a_world(tmp_path)
    copied_not_deleted(world, another_plan(world, 1))
    world.wait(hours=1)
    monkeypatch.setattr(commands, "utc_now", world.clock)
    monkeypatch.setattr(undoing, "_keeps_versions", lambda _: keeps)
    shown = command(spark, world, "purge").out
    assert "surplus: the originals are still in the repository" in shown
    assert ("Delete them for good:" in shown) is (keeps is not None)
    assert ("It is unknown whether the quarantine's store keeps versions" in shown) is (keeps is None)


def test_purge_lists_the_first_objects_that_are_due(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    sweep(world, "quarantine")
    copied_not_deleted(world, other := another_plan(world, 1))
    world.wait(days=60)
    monkeypatch.setattr(commands, "utc_now", world.clock)
    document = command(spark, world, "purge", "--json").document()
    named = {(one["plan_hash"], one["address"], one["surplus"]) for one in document["objects"]}
    assert {(world.plan.plan_hash, address(name), False) for name in DEAD} <= named
    assert any(plan_hash == other.plan_hash for plan_hash, _, _ in named)
    assert len(document["objects"]) == document["due"]["objects"] + document["surplus"]["objects"] == len(named)
    shown = command(spark, world, "purge", "--limit", "1").out
    first = document["objects"][0]
    assert f"  {first['day']}  {first['address']}  {human_bytes(first['size'])}" in shown
    assert f"  and {len(named) - 1} more: --limit {len(named)}\n" in shown
    assert shown.count("  data/") == 1


def test_purge_says_that_the_store_keeps_no_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    sweep(world, "delete")
    world.wait(hours=1)
    monkeypatch.setattr(commands, "utc_now", world.clock)
    shown = command(spark, world, "purge", "--versions").out
    assert shown == f"{REPOSITORY}: the store keeps no versions of deleted objects. No version is due.\n"
    document = command(spark, world, "purge", "--versions", "--json").document()
    assert (document["approve"], document["keeps_versions"]) == (None, False)


# ---- verification


def check_result(spark: SparkSession, world: World, *plans: Plan) -> Any:
    locations = [place(world, plan) for plan in plans]
    window = world.limits.sweep.window + MARGIN
    inputs = VerificationInputs(
        spark,
        world.warehouse,
        REPOSITORY,
        plans,
        [],
        locations,
        None,
        world.now.date(),
        idle_since=world.now - window,
    )
    return copies_in_quarantine(inputs, inputs.ledger())


def test_verification_reports_surplus_copies(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    copied_not_deleted(world, first)
    moved(world, second)
    found = check_result(spark, world, first, second)
    assert found.passed
    assert f"1 copy ({len(content('a'))} bytes) that no ledger calls quarantined" in found.detail


def test_verification_fails_if_an_object_that_the_ledger_calls_purged_has_a_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    first, second = another_plan(world, 1), another_plan(world, 2)
    copy = copied_not_deleted(world, first)
    moved(world, second)
    write_rows(world, second, 5, Outcome.PURGED)
    found = check_result(spark, world, first, second)
    assert not found.passed
    assert f"1 object still has a copy, although the ledger calls it purged, file://{copy} first" in found.detail


def test_verification_finds_the_copy_of_a_purged_object_that_an_interrupted_sweep_left_in_an_earlier_quarantine(
    spark: SparkSession, tmp_path: Path
) -> None:
    world, earlier = a_world(tmp_path), tmp_path / "earlier"
    first, second = another_plan(world, 1), another_plan(world, 2)
    location = QuarantineLocation(StoreAccess(f"file://{earlier}"), place(world, first).folder)
    write_rows(world, first, 1, Outcome.ATTEMPTED, detail=location.url)  # and then the sweep was interrupted
    left = earlier / location.path(address("a"))
    left.parent.mkdir(parents=True)
    left.write_bytes(content("a"))
    moved(world, second).unlink()
    write_rows(world, second, 5, Outcome.PURGED, detail=OF_COPY)
    found = check_result(spark, world, first, second)
    assert (found.passed, found.value) == (False, 1)
    assert f"1 object still has a copy, although the ledger calls it purged, file://{left} first" in found.detail
    left.unlink()
    assert check_result(spark, world, first, second).passed
    shutil.rmtree(earlier)  # a quarantine that nobody needs any more may go
    assert check_result(spark, world, first, second).passed


def test_verification_does_not_look_where_a_purge_deleted_the_copy(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    moved_to(world, tmp_path / "earlier", plan).unlink()
    write_rows(world, plan, 5, Outcome.PURGED, detail=OF_COPY)
    looked_at = list[str]()
    monkeypatch.setattr(QuarantineLocation, "holds_files", lambda location: looked_at.append(location.url) or True)
    assert check_result(spark, world, plan).passed
    assert not looked_at


def test_verification_looks_for_a_copy_in_the_quarantine_to_which_it_was_moved(
    spark: SparkSession, tmp_path: Path
) -> None:
    world, earlier = a_world(tmp_path), tmp_path / "earlier"
    plan = another_plan(world, 1)
    copy = moved_to(world, earlier, plan)
    found = check_result(spark, world, plan)
    assert (found.passed, found.value) == (True, 0)
    copy.unlink()
    found = check_result(spark, world, plan)
    assert (found.passed, found.value) == (False, 1)
    assert f"1 quarantined object has no copy; the first was moved to file://{copy}" in found.detail
    lay_copy(world, plan)  # a person copied it to the current quarantine
    assert check_result(spark, world, plan).passed


def test_verification_takes_no_copy_in_an_earlier_quarantine_for_one_that_was_moved_to_the_current_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A restore would not find it."""
    world, earlier = a_world(tmp_path), tmp_path / "earlier"
    plan = another_plan(world, 1)
    moved(world, plan).unlink()
    location = QuarantineLocation(StoreAccess(f"file://{earlier}"), place(world, plan).folder)
    for name in "ab":
        copy = earlier / location.path(address(name))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content(name))
    write_rows(world, plan, 9, Outcome.QUARANTINED, name="b", detail=location.describe(address("b")))
    found = check_result(spark, world, plan)
    assert (found.passed, found.value) == (False, 1)
    assert "1 quarantined object has no copy" in found.detail


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_verification_does_not_call_copies_missing_in_an_earlier_quarantine_that_it_cannot_see(
    spark: SparkSession, tmp_path: Path, is_mount_point: bool
) -> None:
    world, earlier = a_world(tmp_path), tmp_path / "earlier"
    first, second = another_plan(world, 1), another_plan(world, 2)
    moved_to(world, earlier, first)
    earlier.rename(tmp_path / "volume")
    if is_mount_point:
        earlier.mkdir()
    moved(world, second, fence=5)
    found = check_result(spark, world, first, second)
    assert (found.passed, found.value) == (False, 1)
    assert found.detail == (
        "1 quarantined object was moved to an earlier quarantine, and not checked: "
        f"file://{earlier}/{place(world, first).folder}: neither copies nor manifests are there"
    )


def test_a_copy_that_a_purge_is_deleting_while_verify_lists_the_quarantine_fails_no_check(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The purge deleted it, and has not yet recorded this. After the window, such a purge was interrupted."""
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    moved(world, plan).unlink()
    assert not check_result(spark, world, plan).passed
    write_rows(world, plan, 5, Outcome.ATTEMPTED)
    found = check_result(spark, world, plan)
    assert (found.passed, found.value) == (True, 0)
    assert "1 copy is gone that a restore or purge was processing within sweep.window" in found.detail
    world.wait(minutes=21)  # sweep.window and five minutes
    assert not check_result(spark, world, plan).passed
    write_rows(world, plan, 6, Outcome.ATTEMPTED, Outcome.FAILED)  # a failed purge or restore explains no missing copy
    assert not check_result(spark, world, plan).passed


@pytest.mark.parametrize("undone", [Outcome.PURGED, Outcome.RESTORED])
def test_a_purge_or_restore_that_runs_while_verify_lists_the_quarantine_fails_no_check(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undone: Outcome
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    copy = moved(world, plan)
    list_quarantine = verification.list_quarantine

    def listed_while_the_copy_goes(*arguments: Any, **options: Any) -> Any:
        copy.unlink()
        found = list_quarantine(*arguments, **options)
        write_rows(world, plan, 5, undone)
        return found

    monkeypatch.setattr(verification, "list_quarantine", listed_while_the_copy_goes)
    assert check_result(spark, world, plan).detail.endswith("has all copies")


@pytest.mark.parametrize("is_listed", [False, True], ids=["after_the_listing", "before_the_listing"])
def test_a_sweep_that_moves_an_object_while_verify_lists_the_quarantine_fails_no_check(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    world = a_world(tmp_path)
    plan = another_plan(world, 1)
    write_rows(world, plan, 3, Outcome.ATTEMPTED)
    list_quarantine = verification.list_quarantine

    def listed_while_the_sweep_moves(*arguments: Any, **options: Any) -> Any:
        if is_listed:
            moved(world, plan)
        found = list_quarantine(*arguments, **options)
        found = replace(found, copies=found.copies.localCheckpoint())
        if not is_listed:
            moved(world, plan)
        return found

    monkeypatch.setattr(verification, "list_quarantine", listed_while_the_sweep_moves)
    found = check_result(spark, world, plan)
    assert found.passed
    assert found.detail.endswith("has all copies")


# ---- buckets that keep versions


@dataclass(frozen=True, slots=True)
class Versioned:
    """A world in a bucket that keeps versions."""

    spark: SparkSession
    world: BucketWorld

    def undo(self) -> Undo:
        """Return the `Undo` of the world's sweeps."""
        access = self.world.access
        options = {name: value for name, value in access.options.items() if "key" not in name}
        entry = {
            "kind": "lakefs", "namespace": "s3://lake/orchard", "storage": access.url.rstrip("/"),
            "storage_options": {**options, "allow_http": "true"},
            "policy": "none.json", "source": {"dump": "none.json"}, "sweep": {"single_machine": True},
            "guards": {"max_clock_skew": None},  # the test's clock is not the server's
        }  # fmt: skip
        file = self.world.root / "retention.yaml"
        file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {REPOSITORY: entry}}), "utf-8")
        repository = load_configuration(file).repository(REPOSITORY)
        run = f"run-{self.world.now:%d%H%M%S}"
        return Undo(self.spark, self.world.warehouse, repository, run, "ada", lambda _: None, self.world.clock)

    def purge(self, *, versions: bool = False) -> None:
        due = due_for_purge(self.undo(), versions=versions)
        purge(self.undo(), due.digest, kept(self.spark), versions=versions)

    def stored(self, folder: str) -> list[str]:
        """Return the keys of all versions and delete markers below a folder."""
        prefix = f"{self.world._prefix}/{folder}"
        response = self.world._client.list_object_versions(Bucket=self.world.bucket.name, Prefix=prefix)
        assert not response["IsTruncated"]
        return sorted(entry["Key"] for entry in (*response.get("Versions", ()), *response.get("DeleteMarkers", ())))


@pytest.fixture(scope="module")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with run_versitygw(tmp_path_factory.mktemp("versitygw"), versioning=True) as found:
        yield found


@pytest.fixture(params=[pytest.param("moto", marks=pytest.mark.slow), "versitygw"])
def versioned(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Versioned:
    if request.param == "moto":
        made: Bucket = request.getfixturevalue("bucket")
    else:
        options = request.getfixturevalue("versitygw").options
        made = Bucket(options["endpoint"], f"b-{uuid4().hex}", options["access_key_id"], options["secret_access_key"])
        made.client().create_bucket(Bucket=made.name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", made.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", made.secret_key)
    made.client().put_bucket_versioning(Bucket=made.name, VersioningConfiguration={"Status": "Enabled"})
    return Versioned(spark, BucketWorld(tmp_path / "world", bucket=made))


@pytest.mark.slow
def test_after_a_purge_a_bucket_that_keeps_versions_stores_nothing_of_the_quarantine(versioned: Versioned) -> None:
    world = versioned.world
    sweep(world, "quarantine")
    world.wait(hours=1)
    restore(versioned.undo(), selected("b"))
    assert len(versioned.stored("lake.quarantine/")) > len(DEAD)
    world.wait(days=31)
    versioned.purge()
    assert versioned.stored("lake.quarantine/") == []
    versioned.purge(versions=True)
    left = {key.rpartition("/")[2] for key in versioned.stored("lake/")}
    assert left >= world.stored().keys()
    client, bucket = world._client, world.bucket.name
    response = client.list_object_versions(Bucket=bucket, Prefix=f"{world._prefix}/lake/").get("Versions", ())
    noncurrent = {entry["Key"].rpartition("/")[2] for entry in response if not entry["IsLatest"]}
    assert not noncurrent & ({*DEAD} - {"b"})


@pytest.mark.slow
def test_versions_that_a_purge_of_an_earlier_release_left_are_found_and_deleted(versioned: Versioned) -> None:
    """The earlier release deleted copies without their versions, and recorded the copies as purged."""
    world = versioned.world
    sweep(world, "quarantine")
    world.wait(days=31)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undoing, "_keeps_versions", lambda _: False)
        patch.setattr(undoing, "_delete_manifests", lambda *_, **__: 0)
        versioned.purge()
    assert len(versioned.stored("lake.quarantine/")) >= 2 * len(DEAD)
    world.wait(hours=1)
    versioned.purge()
    assert versioned.stored("lake.quarantine/") == []


def test_the_versions_of_an_object_that_is_live_again_stay_whatever_the_listing_calls_current(
    versioned: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An S3 server may take the version with the newest time as the current one."""
    world = versioned.world
    sweep(world, "delete")
    world.wait(hours=1)
    world.lay("a")  # somebody brought it back
    before = [key for key in versioned.stored("lake/") if key.endswith(address("a"))]
    row_of = listed_versions._row

    def markers_are_current(bucket: Any, entry: Any, is_marker: bool) -> dict[str, Any]:
        return row_of(bucket, entry, is_marker) | {"is_current": is_marker}

    monkeypatch.setattr(listed_versions, "_row", markers_are_current)
    due = due_for_purge(versioned.undo(), versions=True)
    purge(versioned.undo(), due.digest, kept(versioned.spark, "a"), versions=True)
    stored = versioned.stored("lake/")
    assert [key for key in stored if key.endswith(address("a"))] == before
    assert len([key for key in stored if key.endswith(address("b"))]) == 1  # its delete marker
    found = {row["address"]: row["detail"] for row in world.ledger() if row["detail"] and row["fence"] > 5}
    assert found[address("a")] == "is live again: its versions stay"
    assert found[address("b")] == "its versions"


def test_no_version_is_due_in_a_bucket_that_keeps_none(
    spark: SparkSession, tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this check, the ledger would call the deleted objects purged."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket.secret_key)
    unversioned = Versioned(spark, BucketWorld(tmp_path / "world", bucket=bucket))
    sweep(unversioned.world, "delete")
    unversioned.world.wait(hours=1)
    due = due_for_purge(unversioned.undo(), versions=True)
    assert (due.has_any, due.keeps_versions) == (False, False)


def test_nothing_is_written_to_the_ledger_if_versions_cannot_be_listed(
    versioned: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = versioned.world
    sweep(world, "delete")
    world.wait(hours=1)
    due = due_for_purge(versioned.undo(), versions=True)
    assert due.keeps_versions is True
    before = world.ledger()

    def denied(*_: object, **__: object) -> Iterator[pa.RecordBatch]:
        raise AccessDenied("cannot list the versions")

    for module in (undoing, purges):
        monkeypatch.setattr(module, "all_versions", denied)
    with pytest.raises(AccessDenied, match="cannot list the versions"):
        due_for_purge(versioned.undo(), versions=True)
    with pytest.raises(AccessDenied, match="cannot list the versions"):
        purge(versioned.undo(), due.digest, kept(versioned.spark), versions=True)
    assert world.ledger() == before


def test_nothing_is_purged_if_the_versions_of_the_quarantine_cannot_be_listed(
    versioned: Versioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = versioned.world
    sweep(world, "quarantine")
    world.wait(days=31)
    monkeypatch.setattr(undoing, "keeps_versions", lambda _: None)
    monkeypatch.setattr(undoing, "lists_versions", lambda _: False)
    due = due_for_purge(versioned.undo())
    assert due.keeps_versions is None
    purge(versioned.undo(), due.digest, kept(versioned.spark))
    details = {row["detail"] for row in world.ledger() if row["outcome"] == Outcome.PURGED}
    assert details == {"its copy in quarantine; whether the store keeps versions of the copy is unknown"}
