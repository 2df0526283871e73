"""Housekeeping of the warehouse: the directories that it removes, and those that a run or a person still needs.

The warehouses have hundreds of days. Their layout is that of plans and sweeps, with files of a few bytes.
"""

import json
import os
import random
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.config.limits import KeepSettings
from retention_assets.config.settings import IcechunkSettings
from retention_assets.definitions import build_definitions
from retention_assets.errors import GuardRefused, StoreError, TableContractError
from retention_assets.explain.plans import newest_plan
from retention_assets.explain.status import status_of
from retention_assets.repositories import housekeeping
from retention_assets.repositories.housekeeping import Leftover, leftovers, remove_leftovers
from retention_assets.state import clocks
from retention_assets.state.lease import held_lease, holds, lease_in_force, take_lease
from retention_assets.state.ledger import plans_with_ledgers
from retention_assets.state.plan import find_plan, keep_plan, last_plan, withdraw_plan
from retention_assets.state.records import Record, read_records, write_record
from retention_assets.warehouse import warehouse as warehouse_module
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse
from tests.clocks import GivenClock
from tests.end_to_end.command import run
from tests.explain.test_status import a_plan, a_record
from tests.ledgers import write_ledger
from tests.objectstore.s3 import Bucket

NAME, TODAY = "orchard", date(2026, 11, 1)
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
KEEP = KeepSettings()
OLD = 120  # days
TABLES = ("storage_inventory", "addresses", "commit_graph", "policy_table", "deletion_report")


class Days:
    """A warehouse with plans and sweeps of many days. Files have the time of their day."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        settings = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": {"dump": "d"}, "policy": ["p"]}
        file = directory / "retention.yaml"
        file.write_text(yaml.safe_dump({"warehouse": "w", "repositories": {NAME: settings}}), encoding="utf-8")
        self.repository: Repository = load_configuration(file).repository(NAME)
        self.warehouse = Warehouse(str(directory / "w"))
        self._known: set[Path] = set()

    @property
    def root(self) -> Path:
        return self.directory / "w" / NAME

    def date_files(self, at: datetime) -> None:
        """Give the files that were written since the last call the time `at`."""
        fresh = {file for file in self.root.rglob("*") if file.is_file()} - self._known
        for file in fresh:
            os.utime(file, (at.timestamp(), at.timestamp()))
        self._known |= fresh

    def table(
        self, table: str, day: date, at: datetime, *, refused: bool = False, taken_at: datetime | None = None
    ) -> None:
        folder = self.root / table / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("part-0.parquet", "_SUCCESS"):
            (folder / name).write_text(name)
        details = Details(refused="a guard" if refused else None)
        self.warehouse.write_metadata(NAME, table, day, PartitionMetadata(taken_at or at, 1, "a-run", details))

    def plan(
        self,
        age: int,
        *,
        swept: str = "",
        tables: tuple[str, ...] = TABLES,
        withdrawn: bool = False,
        made: int | None = None,
    ) -> str:
        """Write a plan of `age` days ago, and with `outcome` its sweep. Return the hash.

        `made`: how many days ago the plan was made; None: on its day.
        """
        at, day = NOW - timedelta(days=age if made is None else made), TODAY - timedelta(days=age)
        for table in tables:
            self.table(table, day, at)
        made = replace(a_plan(day), plan_hash=f"{age:08x}" * 8, made_at=at)
        keep_plan(self.warehouse, made)
        if withdrawn:
            withdraw_plan(self.warehouse, NAME, day)
        (self.root / "planned_objects" / made.plan_hash).mkdir(parents=True, exist_ok=True)
        for name in ("part-0.parquet", "_SUCCESS"):
            (self.root / "planned_objects" / made.plan_hash / name).touch()
        self.warehouse.write_document({"branches": {}, "tags": {}}, NAME, "planned_heads", f"{made.plan_hash}.json")
        self.warehouse.write_document(
            {"plan_hash": made.plan_hash, "day": f"{day}"}, NAME, "approvals", f"{made.plan_hash}.json"
        )
        if swept:
            write_ledger(self.warehouse, NAME, day, made.plan_hash, {"a": swept}, at, fence=1)
            write_record(self.warehouse, self.record(made.plan_hash, day, **{swept: 1}))
        self.date_files(at)
        return made.plan_hash

    def record(self, plan_hash: str, day: date, **outcomes: int) -> Record:
        return replace(a_record(**outcomes), plan_hash=plan_hash, day=day.isoformat(), fence=1)

    def leftovers(self, now: datetime = NOW, keep: KeepSettings = KEEP) -> set[str]:
        return {one.path for one in leftovers(self.warehouse, self.repository, keep, now)}

    def remove(self, now: datetime = NOW, keep: KeepSettings = KEEP) -> set[str]:
        removed: list[Leftover] = []
        remove_leftovers(self.warehouse, self.repository, keep, "a-run", lambda _: None, lambda: now, removed)
        return {one.path for one in removed}

    def entries(self) -> set[str]:
        """Return the directories and documents, by table and name, without leases."""
        tables = [table for table in self.root.iterdir() if table.is_dir() and table.name != "leases"]
        return {f"{table.name}/{one.name}" for table in tables for one in table.iterdir()}


@pytest.fixture(autouse=True)
def _clock_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store have the time of the run's clock: the bucket of the repository does not exist."""
    monkeypatch.setattr(clocks, "store_time", lambda _, clock: clock())


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Days:
    monkeypatch.setattr(housekeeping, "_require_warehouse_clock", lambda *_: None)  # files have made-up times
    return Days(tmp_path)


def day(age: int) -> str:
    return (TODAY - timedelta(days=age)).isoformat()


def partitions(age: int) -> set[str]:
    return {f"{table}/{day(age)}" for table in TABLES if table != "policy_table"}


def test_tables_and_objects_of_an_old_plan_without_a_sweep_are_removed(days: Days) -> None:
    days.plan(1)
    old = days.plan(OLD)
    assert days.leftovers() == {*partitions(OLD), f"planned_objects/{old}", f"planned_heads/{old}.json"}
    (days.root / "plans" / day(OLD) / "plan.html").touch()
    documents = {f"plans/{day(OLD)}/{file.name}" for file in (days.root / "plans" / day(OLD)).iterdir()}
    with_plans = days.leftovers(keep=KeepSettings(plans="100d"))
    assert with_plans - days.leftovers() == {*documents, f"approvals/{old}.json"}


def test_an_approval_that_was_withdrawn_stays_so_that_no_budget_approves_the_plan_again(days: Days) -> None:
    days.plan(1)
    old = days.plan(OLD)
    days.warehouse.write_document(
        {"plan_hash": old, "day": day(OLD), "withdrawn_by": "ada"}, NAME, "approvals", f"{old}.json"
    )
    long_ago = (NOW - timedelta(days=OLD)).timestamp()
    os.utime(days.root / "approvals" / f"{old}.json", (long_ago, long_ago))
    assert f"approvals/{old}.json" not in days.leftovers(keep=KeepSettings(plans="100d"))
    document = {"plan_hash": old, "day": day(OLD), "approved_by": "ada"}
    days.warehouse.write_document(document, NAME, "approvals", "last_decision.json")
    os.utime(days.root / "approvals" / "last_decision.json", (long_ago, long_ago))
    assert "approvals/last_decision.json" not in days.leftovers(keep=KeepSettings(plans="100d"))


@pytest.mark.parametrize("swept", ["", "deleted"], ids=["not_swept", "swept"])
def test_an_approval_by_the_budget_is_removed_only_with_a_plan_without_a_sweep(days: Days, swept: str) -> None:
    days.plan(1)
    name = f"{days.plan(OLD, swept=swept)}.budget.json"
    days.warehouse.write_document({"day": day(OLD)}, NAME, "approvals", name)
    long_ago = (NOW - timedelta(days=OLD)).timestamp()
    os.utime(days.root / "approvals" / name, (long_ago, long_ago))
    assert (f"approvals/{name}" in days.leftovers(keep=KeepSettings(plans="100d"))) is not bool(swept)


def test_only_the_tables_of_its_day_are_removed_of_a_swept_plan(days: Days) -> None:
    days.plan(1)
    days.plan(OLD, swept="deleted")
    assert days.leftovers(keep=KeepSettings(plans="100d")) == partitions(OLD)


def test_nothing_of_the_last_plan_is_removed_however_old_it_is(days: Days) -> None:
    days.plan(500)
    assert days.leftovers() == set()
    days.plan(400)
    assert days.leftovers() & partitions(400) == set()
    assert days.leftovers() >= partitions(500)


def test_the_last_current_plan_stays_when_newer_plans_were_withdrawn(days: Days) -> None:
    days.plan(400)
    for age in (300, 200, 150):
        days.plan(age, withdrawn=True, tables=())
    assert not days.leftovers() & partitions(400)


def test_the_day_of_a_plan_with_objects_in_quarantine_stays_until_they_are_purged(days: Days) -> None:
    days.plan(1)
    held = days.plan(OLD, swept="quarantined")
    assert days.leftovers() == set()
    write_record(days.warehouse, days.record(held, TODAY - timedelta(days=OLD), purged=1))
    assert days.leftovers() == partitions(OLD)


def test_the_day_of_a_plan_stays_while_an_object_whose_copy_was_skipped_is_in_quarantine(days: Days) -> None:
    days.plan(1)
    plan = days.plan(OLD, swept="quarantined")
    skipped = days.record(plan, TODAY - timedelta(days=OLD), skipped=1)
    write_record(days.warehouse, replace(skipped, in_quarantine={"objects": 1, "bytes": 10}))
    assert days.leftovers() == set()


def test_the_day_of_a_sweep_without_a_record_stays(days: Days) -> None:
    days.plan(1)
    begun = days.plan(OLD)
    write_ledger(days.warehouse, NAME, TODAY - timedelta(days=OLD), begun, {"a": "attempted"}, NOW, fence=3)
    assert days.leftovers() == set()


def test_a_plan_that_may_still_be_swept_stays_when_approvals_last_longer_than_tables(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    approval = days.repository.settings.approval.model_copy(update={"life": timedelta(days=365)})
    settings = days.repository.settings.model_copy(update={"approval": approval})
    days.repository = replace(days.repository, settings=settings)
    assert days.leftovers() == set()


def test_the_heads_that_plans_found_within_the_grace_period_stay_with_those_of_the_last_plan_before(days: Days) -> None:
    """A plan of an Icechunk repository compares its branches and tags with these heads."""
    heads = {age: f"planned_heads/{days.plan(age)}.json" for age in (1, OLD, OLD + 20, OLD + 40, OLD + 60)}

    def removed(grace: timedelta) -> set[int]:
        settings = IcechunkSettings(kind="icechunk", storage="s3://lake/orchard", policy=["p"], grace=f"{grace.days}d")
        days.repository = replace(days.repository, settings=settings)
        found = days.leftovers()
        return {age for age, name in heads.items() if name in found}

    assert removed(grace=timedelta(days=1)) == {OLD + 20, OLD + 40, OLD + 60}
    assert removed(grace=timedelta(days=OLD + 30)) == {OLD + 60}


def test_the_histories_that_plans_compare_stay_also_of_days_without_a_plan(days: Days) -> None:
    """A guard refused the plans of these days. Their tables have the newest entry of the ops log at that time."""
    days.plan(1)
    ages = (OLD, OLD + 20, OLD + 40, OLD + 60)
    for age in ages:
        days.table("repository_history", TODAY - timedelta(days=age), NOW - timedelta(days=age))
        days.date_files(NOW - timedelta(days=age))

    def removed(grace: str) -> set[int]:
        settings = IcechunkSettings(kind="icechunk", storage="s3://lake/orchard", policy=["p"], grace=grace)
        days.repository = replace(days.repository, settings=settings)
        found = days.leftovers()
        return {age for age in ages if f"repository_history/{day(age)}" in found}

    assert removed("1d") == {OLD + 20, OLD + 40, OLD + 60}
    assert removed(f"{OLD + 12}d") == {OLD + 40, OLD + 60}  # an approval lasts 7 days
    assert removed(f"{OLD + 14}d") == {OLD + 60}


def test_the_heads_of_the_newest_day_stay_although_an_older_day_was_planned_again_after_it(days: Days) -> None:
    """The later plan may have the heads of the older day, so they do not show how long the last heads were current."""
    days.plan(1)
    last = days.plan(OLD + 1)
    days.plan(OLD + 20, made=OLD)
    settings = IcechunkSettings(kind="icechunk", storage="s3://lake/orchard", policy=["p"], grace="2d")
    days.repository = replace(days.repository, settings=settings)
    assert f"planned_heads/{last}.json" not in days.leftovers()


def test_an_old_day_that_was_planned_again_lately_stays(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    for file in (days.root / "addresses" / day(OLD)).iterdir():
        os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    assert days.leftovers() & partitions(OLD) == partitions(OLD) - {f"addresses/{day(OLD)}"}


@pytest.mark.parametrize("ahead", [False, True])
def test_the_tables_with_the_newest_data_stay_on_whatever_day_they_are(days: Days, ahead: bool) -> None:
    """A clock was wrong, so these tables have a time in the future. Runs use the newest other tables."""
    days.plan(OLD)
    days.plan(OLD + 10)
    days.table("addresses", TODAY - timedelta(days=OLD + 30), NOW, taken_at=NOW - timedelta(days=OLD + 5))
    days.date_files(NOW - timedelta(days=OLD + 5))
    taken_at = NOW + timedelta(days=1000) if ahead else NOW - timedelta(days=OLD - 1)
    days.table("addresses", TODAY - timedelta(days=OLD + 20), NOW, taken_at=taken_at)
    days.table("addresses", TODAY - timedelta(days=OLD - 1), NOW, taken_at=NOW, refused=True)
    days.date_files(NOW - timedelta(days=OLD - 1))
    kept = {age for age in (OLD, OLD + 10, OLD + 20, OLD + 30) if f"addresses/{day(age)}" not in days.leftovers()}
    assert kept == {OLD, OLD + 20}


def test_tables_of_another_location_and_unknown_directories_are_not_touched(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    for name in ("notes/2020-01-01", "addresses/readme", "memory/20200101T000000-abc", "due_objects/20200101T0-abc"):
        (days.root / name).mkdir(parents=True)
        (days.root / name / "file").touch()
    days.date_files(NOW - timedelta(days=500))
    plan_hash = f"{OLD:08x}" * 8
    assert days.remove() == {*partitions(OLD), f"planned_objects/{plan_hash}", f"planned_heads/{plan_hash}.json"}
    days.warehouse.write_document({"namespace": "s3://another", "storage": "s3://another"}, NAME, "place.json")
    with pytest.raises(GuardRefused, match="belong to another location"):
        days.remove()


def test_no_other_run_is_active_during_a_removal_and_a_failed_removal_continues(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.plan(1)
    days.plan(OLD)
    expected = days.leftovers()
    take_lease(days.warehouse, NAME, "a sweep", NOW, timedelta(minutes=30))
    with pytest.raises(GuardRefused, match="a sweep holds the lease"):
        days.remove()
    later = NOW + timedelta(hours=1)
    remove_files = Warehouse.remove_files
    for count in (0, 1, 1, 1):
        steps = iter(range(count))

        def interrupted(warehouse: Warehouse, paths: Collection[str], *parts: str, left: Iterator[int] = steps) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            remove_files(warehouse, paths, *parts)

        with monkeypatch.context() as patch:
            patch.setattr(Warehouse, "remove_files", interrupted)
            with pytest.raises(KeyboardInterrupt):
                days.remove(later)
        for path in expected:  # remaining partitions are complete, or no run counts them as complete
            table, name = path.split("/")
            if (days.root / path).is_dir() and table in TABLES and not days.warehouse.is_complete(NAME, table, name):
                with pytest.raises(TableContractError, match="is missing, or was not written completely"):
                    days.warehouse.metadata(NAME, table, date.fromisoformat(name))
    assert lease_in_force(days.warehouse, NAME, later) is None
    days.remove(later)
    assert not expected & days.entries()


def test_files_that_cannot_be_removed_are_reported(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.plan(1, tables=("addresses",))
    days.plan(OLD, tables=("addresses",))

    def denied(*_: object, **__: object) -> None:
        raise PermissionError("this user may not delete files")

    monkeypatch.setattr("os.unlink", denied)
    with pytest.raises(StoreError) as refused:
        days.remove()
    message = str(refused.value)
    assert re.search(r"orchard/\S+: \d files could not be removed, \S+ first\. The other files were removed\.", message)
    assert message.endswith("Let the credentials of the warehouse delete objects, then run the same command again.")


def test_files_that_are_written_during_a_removal_stay(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.plan(1)
    days.plan(OLD)
    found = leftovers(days.warehouse, days.repository, KEEP, NOW)
    monkeypatch.setattr(housekeeping, "leftovers", lambda *_: found)
    (days.root / "addresses" / day(OLD) / "part-1.parquet").touch()  # a plan makes this day again
    assert days.remove() == {one.path for one in found} - {f"addresses/{day(OLD)}"}
    assert len(list((days.root / "addresses" / day(OLD)).iterdir())) == 4


def test_a_document_that_is_written_again_during_a_removal_stays(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.plan(1)
    old = days.plan(OLD)
    found = leftovers(days.warehouse, days.repository, KEEP, NOW)
    monkeypatch.setattr(housekeeping, "leftovers", lambda *_: found)
    document = f"planned_heads/{old}.json"
    (days.root / document).touch()  # a new plan with the same hash writes its heads
    assert days.remove() == {one.path for one in found} - {document}
    assert (days.root / document).is_file()


def test_a_table_that_is_made_again_while_its_removal_is_suspended_stays(
    days: Days, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.plan(1)
    days.plan(OLD)
    folder, remove_document, made = days.root / "addresses" / day(OLD), Warehouse.remove_document, list[str]()

    def suspended(warehouse: Warehouse, *parts: str, **named: Any) -> bool | None:
        removed = remove_document(warehouse, *parts, **named)
        if parts == (NAME, "addresses", day(OLD), "_SUCCESS") and not made:
            days.table("addresses", TODAY - timedelta(days=OLD), NOW)  # a plan makes this day again
            (folder / "part-0.parquet").rename(folder / "part-new.parquet")
            made.extend(sorted(file.name for file in folder.iterdir()))
        return removed

    monkeypatch.setattr(Warehouse, "remove_document", suspended)
    removed = days.remove()
    assert made
    assert f"addresses/{day(OLD)}" not in removed
    assert sorted(file.name for file in folder.iterdir()) == made


def test_links_are_not_followed(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    outside = days.directory / "outside"
    (days.root / "addresses" / day(OLD)).rename(outside)
    (days.root / "addresses" / day(OLD)).symlink_to(outside)
    inside = days.root / "commit_graph" / day(OLD) / "part-1.parquet"
    inside.symlink_to(outside / "part-0.parquet")
    os.utime(inside, (0, 0), follow_symlinks=False)
    linked = days.root / "storage_inventory" / day(OLD) / "linked"
    linked.symlink_to(outside)
    os.utime(linked, (0, 0), follow_symlinks=False)
    assert f"addresses/{day(OLD)}" not in days.remove()
    assert len(list(outside.iterdir())) == 3
    assert not inside.is_symlink()
    assert not linked.parent.exists()


def test_no_empty_directories_of_an_interrupted_run_of_spark_stay(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    attempt = days.root / "addresses" / day(OLD) / "_temporary/0/_temporary/attempt_1/part-1.parquet"
    attempt.parent.mkdir(parents=True)
    attempt.write_bytes(b"")
    os.utime(attempt, (0, 0))
    assert f"addresses/{day(OLD)}" in days.remove()
    assert not (days.root / "addresses" / day(OLD)).exists()


def test_a_clock_that_differs_from_the_store_s_is_refused(tmp_path: Path) -> None:
    days = Days(tmp_path)  # the files are written now, and the clock of this run is a year ahead
    days.plan(1)
    days.plan(OLD)
    with pytest.raises(GuardRefused, match="Set the clock"):
        days.remove(datetime.now(UTC) + timedelta(days=365))
    assert partitions(OLD) <= days.entries()


def test_a_wrong_clock_leaves_the_lease_of_a_running_sweep(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.plan(1)
    days.plan(OLD)
    monkeypatch.setattr(clocks, "store_time", lambda *_: NOW)
    lease = take_lease(days.warehouse, NAME, "a sweep", NOW, timedelta(minutes=30))
    with pytest.raises(GuardRefused, match=r"clock_agrees: .* Nothing was removed\. .* run the same command again"):
        days.remove(NOW + timedelta(hours=1))
    assert holds(days.warehouse, lease, NOW)
    assert partitions(OLD) <= days.entries()


def test_a_lease_from_a_time_when_the_clock_was_ahead_does_not_stop_housekeeping(tmp_path: Path) -> None:
    days = Days(tmp_path)
    for year in (2001, 2002):
        days.table("addresses", date(year, 1, 1), datetime(year, 1, 1, tzinfo=UTC))
        days.date_files(datetime(year, 1, 1, tzinfo=UTC))
    now = datetime.now(UTC)
    with held_lease(days.warehouse, NAME, "a sweep", lambda: now, timedelta(minutes=30)):
        pass
    days.date_files(now + timedelta(days=365))
    assert days.remove(now) == {"addresses/2001-01-01"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_housekeeping_does_not_change_the_tables_that_runs_read(days: Days, seed: int) -> None:
    """Random years of plans and sweeps: of what is read, nothing changes, and all that is old and unread is gone."""
    chance = random.Random(seed)
    ages = sorted(chance.sample(range(chance.choice((0, 100)), 400), 30), reverse=True)
    for age in ages:
        outcome = chance.choice(("", "", "", "deleted", "quarantined"))
        days.plan(age, swept=outcome, withdrawn=chance.random() < 0.2)
        if outcome == "quarantined" and chance.random() < 0.5:
            plan_hash = f"{age:08x}" * 8
            write_record(days.warehouse, days.record(plan_hash, TODAY - timedelta(days=age), purged=1))
    before, there = _read(days), days.entries()
    removed = days.remove()
    assert days.entries() == there - removed
    assert days.remove() == set()
    assert _read(days) == before
    held = {row["plan"]["day"] for row in before["quarantine"]}
    old = {day(age) for age in ages if age > KEEP.tables.days + 1} - {before["last"], before["standing"], *held}
    assert {path for table in TABLES if table != "policy_table" for path in _days_of(days, table)} & old == set()
    assert {one.split("/")[1] for one in removed if one.split("/")[0] in TABLES} == old


def _days_of(days: Days, table: str) -> set[str]:
    return {path.name for path in (days.root / table).iterdir()}


def _read(days: Days) -> dict[str, Any]:
    """Return everything that plans, sweeps, verifications, `explain` and `status` read of earlier days."""
    warehouse, last = days.warehouse, last_plan(days.warehouse, NAME, TODAY)
    assert last is not None
    try:
        standing = newest_plan(warehouse, days.repository, None)[0]
        needed: Any = [standing.metadata(table) for table in TABLES]
        newest = standing.plan.day.isoformat()
    except GuardRefused:
        needed, newest = None, None
    swept = plans_with_ledgers(warehouse, NAME)
    plans = [find_plan(warehouse, NAME, plan, date.fromisoformat(of_day)) for of_day, plan in swept]
    status = status_of(warehouse, days.repository, NOW).document()
    held = {(row["day"], row["plan_hash"]) for row in status["quarantine"]}
    return {
        "last": last.day.isoformat(),
        "standing": newest,
        "tables": needed,
        "plans": plans,
        "objects": [warehouse.is_complete(NAME, "planned_objects", plan.plan_hash) for plan in plans],
        "status": status,
        "quarantine": [{"plan": {"day": of_day}} for of_day, _ in held],
        "held": [
            warehouse.metadata(NAME, table, date.fromisoformat(of_day))
            for of_day, _ in sorted(held)
            for table in TABLES
        ],
        "records": list(read_records(warehouse, NAME)),
        "policies": _days_of(days, "policy_table"),
    }


def test_the_command_removes_nothing_without_its_option(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    before = days.entries()
    shown = run("--config", days.directory / "retention.yaml", "housekeeping", "--json")
    assert {row["path"] for row in shown.document()} == days.leftovers(datetime.now(UTC))
    assert days.entries() == before
    message = run("--config", days.directory / "retention.yaml", "housekeeping", NAME)
    assert "would be removed" in message.out
    assert "--execute" in message.out


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refused_repository_does_not_keep_the_command_from_the_others(days: Days, form: str) -> None:
    days.plan(1)
    days.plan(OLD)
    file = days.directory / "retention.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    of_orchard = document["repositories"][NAME]
    for name in ("apples", "zoo"):  # the first and the last repository of the configuration
        document["repositories"][name] = {**of_orchard, "namespace": f"s3://lake/{name}"}
        days.warehouse.write_document(
            {"namespace": "s3://elsewhere/x", "storage": "s3://elsewhere/x"}, name, "place.json"
        )
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    answer = run("--config", file, "housekeeping", "--execute", *(["--json"] if form == "json" else []))
    assert answer.status == 1
    assert not partitions(OLD) & days.entries()
    if form == "json":
        assert f"addresses/{day(OLD)}" in {row["path"] for row in answer.document() if row["repository"] == NAME}
    else:
        assert re.search(rf"^{NAME}: \d+ entries, .*, removed\.$", answer.out, re.MULTILINE)
    assert "apples" not in answer.out
    last = answer.err.splitlines()[-1]
    assert last.startswith("error: apples: its tables in the warehouse belong to another location")
    assert "Nothing more was removed" in last
    assert "error: zoo: its tables in the warehouse belong to another location" in answer.err


@pytest.fixture
def failing_at_commit_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the removal of the second table fail. The first is `addresses`."""
    remove = housekeeping._remove

    def failing(warehouse: Warehouse, name: str, leftover: Leftover) -> bool:
        if leftover.path.startswith("commit_graph"):
            raise StoreError(f"{leftover.path}: the store denied the request. Nothing was removed.")
        return remove(warehouse, name, leftover)

    monkeypatch.setattr(housekeeping, "_remove", failing)


@pytest.mark.usefixtures("failing_at_commit_graph")
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_command_shows_what_was_removed_before_an_error(days: Days, form: str) -> None:
    days.plan(1)
    days.plan(OLD)
    options = ["--execute", *(["--json"] if form == "json" else [])]
    answer = run("--config", days.directory / "retention.yaml", "housekeeping", *options)
    assert answer.status == 3
    assert f"addresses/{day(OLD)}" not in days.entries()
    if form == "json":
        assert [row["path"] for row in answer.document()] == [f"addresses/{day(OLD)}"]
    else:
        assert f"{NAME}: 1 entry, " in answer.out
    assert "the store denied the request. Nothing more was removed." in answer.err


@pytest.mark.usefixtures("failing_at_commit_graph")
def test_the_job_in_dagster_logs_what_was_removed_before_an_error(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    configuration = load_configuration(days.directory / "retention.yaml")
    job = build_definitions(configuration, clock=GivenClock(lambda: NOW)).resolve_job_def("orchard_housekeeping")
    config = {"ops": {"housekeeping__orchard": {"config": {"execute": True}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        ended = job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
        logged = [entry.user_message for entry in instance.all_logs(ended.run_id)]
    assert not ended.success
    assert f"addresses/{day(OLD)}: older than 90d" in logged


def test_a_warehouse_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Warehouse(str(tmp_path)).write_layout()
    assert json.loads((tmp_path / "warehouse.json").read_text()) == {"layout": 1}
    (tmp_path / "warehouse.json").write_text('{"layout": 2}')
    warehouse_module._KNOWN_LAYOUTS.discard(str(tmp_path))  # as in another process
    with pytest.raises(TableContractError, match="has layout 2, and this version of retention_assets reads layout 1"):
        Warehouse(str(tmp_path))


def test_the_job_in_dagster_removes_the_logged_directories_only_if_configured(days: Days) -> None:
    days.plan(OLD)
    days.plan(OLD + 10)
    definitions = build_definitions(
        load_configuration(days.directory / "retention.yaml"), clock=GivenClock(lambda: NOW)
    )
    job, before = definitions.resolve_job_def("orchard_housekeeping"), days.entries()
    for execute in (False, True):
        config = {"ops": {"housekeeping__orchard": {"config": {"execute": execute}}}}
        assert job.execute_in_process(run_config=config).success
        assert (days.entries() == before) is not execute
    assert not partitions(OLD + 10) & days.entries()


def test_leftovers_are_reported_with_their_size(days: Days) -> None:
    days.plan(1)
    days.plan(OLD)
    found = {one.path: one for one in leftovers(days.warehouse, days.repository, KEEP, NOW)}
    folder = days.root / "addresses" / day(OLD)
    size = sum(file.stat().st_size for file in folder.iterdir())
    at = NOW - timedelta(days=OLD)
    assert found[f"addresses/{day(OLD)}"] == Leftover(f"addresses/{day(OLD)}", "older than 90d", 3, size, at)


def test_housekeeping_works_in_the_same_way_for_a_bucket(
    days: Days, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT", bucket.endpoint)
    warehouse = days.warehouse = Warehouse(f"s3a://{bucket.name}/tables")
    rows = pa.table({"address": ["a"]})
    for table in ("addresses", "policy_table"):
        for age in (1, OLD):
            of_day = TODAY - timedelta(days=age)
            warehouse.append_rows(rows, NAME, table, of_day.isoformat(), "part-0.parquet")
            warehouse.mark_complete(NAME, table, of_day.isoformat())
            warehouse.write_metadata(NAME, table, of_day, PartitionMetadata(NOW - timedelta(days=age), 1, "a-run"))
    warehouse.append_rows(rows, NAME, f"addresses/{day(OLD)}-not-this", "part-0.parquet")
    a_year_later = datetime.now(UTC) + timedelta(days=365)
    assert days.remove(a_year_later) == {f"addresses/{day(OLD)}"}
    assert warehouse.directories(NAME, "addresses") == [f"{day(OLD)}-not-this", day(1)]
    assert warehouse.directories(NAME, "policy_table") == [day(OLD), day(1)]
