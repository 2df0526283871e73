"""`retention status` shows plan, approval, last sweep, quarantine, trend and required actions, without Spark."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, timedelta
from html import escape
from pathlib import Path

import pytest
import yaml

from retention_assets.cli.inspecting import sparkline
from retention_assets.config.configuration import Repository, load_configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount
from retention_assets.core.remedies import CheckResult
from retention_assets.explain.status import RepositoryStatus, status_of
from retention_assets.report.figures import Figures
from retention_assets.report.groups import PlanGroups
from retention_assets.report.page import page_of
from retention_assets.state.approval import Approval, approved_terms, planned_terms, withdraw_approval
from retention_assets.state.lease import stop_sweeps, take_lease
from retention_assets.state.ledger import LEDGER, LEDGERS
from retention_assets.state.plan import Plan, keep_plan, withdraw_plan
from retention_assets.state.records import Record, write_record
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import run

NAME = "orchard"
DAY = date(2026, 11, 1)
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
HASH = "a" * 64


def a_plan(day: date = DAY, *, objects: int = 5, size: int = 10**9, waiting: int = 0) -> Plan:
    totals = {"candidate": Amount(objects, size), "waiting": Amount(waiting, waiting), "kept": Amount(100, 10**10)}
    return Plan(
        repository=NAME,
        day=day,
        plan_hash=HASH,
        policy_hash="p",
        policy_run="a-run",
        references_hash="r",
        candidates=Amount(objects, size),
        totals=totals,
        live=100,
        collected=0,
        warnings=(),
        blocked=None,
        instance=None,
        made_at=datetime(day.year, day.month, day.day, 4, tzinfo=UTC),
        run_id="a-run",
    )


def a_record(kind: str = "sweep", *, ended: datetime = NOW, **outcomes: int) -> Record:
    amounts: Mapping[str, Mapping[str, int]] = {
        name: {"objects": count, "bytes": count * 10} for name, count in outcomes.items()
    }
    return Record(
        kind=kind,
        mode="quarantine",
        repository=NAME,
        day=DAY.isoformat(),
        plan_hash=HASH,
        policy_hash="p",
        planned_objects=5,
        planned_bytes=50,
        outcomes=amounts,
        approved_by="bill",
        approved_at=NOW.isoformat(),
        fence=1,
        run_id="a-sweep",
        started=NOW.isoformat(),
        ended=ended.isoformat(),
        longest_window_seconds=1.0,
        ledger_digest=None,
    )


@dataclass(frozen=True)
class World:
    """A configuration with an empty warehouse."""

    directory: Path

    @property
    def file(self) -> Path:
        return self.directory / "retention.yaml"

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(load_configuration(self.file).warehouse)

    def configure(self, **settings: object) -> None:
        own = {
            "kind": "lakefs",
            "namespace": "s3://lake/orchard",
            "storage": "lake",
            "source": {"dump": "dump.json"},
            "policy": ["policy.json"],
            "mode": "quarantine",
        }
        document = {"warehouse": "warehouse", "repositories": {NAME: {**own, **settings}}}
        self.file.write_text(yaml.safe_dump(document), encoding="utf-8")

    @property
    def repository(self) -> Repository:
        return load_configuration(self.file).repository(NAME)

    def keep(self, plan: Plan) -> None:
        """Store a plan as if it was made under the current settings."""
        keep_plan(self.warehouse, replace(plan, terms=planned_terms(self.repository)))

    def status(self, now: datetime = NOW) -> RepositoryStatus:
        return status_of(self.warehouse, self.repository, now)

    def approve(self, at: datetime = NOW, day: date = DAY) -> None:
        approval = Approval(HASH, day.isoformat(), "bill", at.isoformat(), approved_terms(self.repository))
        self.warehouse.write_document(asdict(approval), NAME, "approvals", f"{HASH}.json")


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.configure()
    return made


def test_a_repository_without_a_plan_needs_one(world: World) -> None:
    status = world.status()
    assert status.plan is None
    assert status.needs == (f"There is no plan. Plan with: {{program}} plan {NAME}",)


def test_the_command_does_not_create_the_warehouse(world: World) -> None:
    answer = run("--config", world.file, "status")
    assert (answer.status, answer.err) == (0, "")
    assert f"There is no plan. Plan with: retention --config {world.file} plan {NAME}" in answer.out
    assert [path.name for path in world.directory.iterdir()] == ["retention.yaml"]


def test_a_repository_whose_only_plan_was_withdrawn_or_refused_needs_another_one(world: World) -> None:
    world.warehouse.write_text("", NAME, "plans", "2026-11-01", "withdrawn")
    (needed,) = world.status().needs
    assert needed.startswith("There is no valid plan: the plan of 2026-11-01 was withdrawn or refused. Plan with: ")


def refuse(world: World, day: date) -> None:
    """Let the warehouse be as after a plan of this day that a guard refused."""
    check = CheckResult("live_listed", False, "3 live addresses, data/a first, are not in the listing", 3)
    details = Details(refused="live_listed", check_results=(check, CheckResult("live_not_empty", True, "fine")))
    world.warehouse.write_metadata(NAME, "storage_inventory", day, PartitionMetadata(NOW, 5, "a-run"))
    world.warehouse.write_metadata(NAME, "deletion_candidates", day, PartitionMetadata(NOW, 0, "a-run", details))


@pytest.mark.parametrize("earlier", [False, True], ids=["no other plan", "an older plan"])
def test_a_refused_plan_is_reported_with_the_guard_its_figures_and_the_remedy(world: World, earlier: bool) -> None:
    if earlier:
        world.keep(a_plan(DAY - timedelta(days=1)))
    refuse(world, DAY)
    need = world.status().needs[0]
    assert need.startswith(
        f"A guard refused the plan of {DAY}. live_listed: 3 live addresses, data/a first, are not in the listing. "
        "Check `storage` and what its credentials may list."
    )
    assert need.endswith(f"`retention acknowledge`. Then plan again: {{program}} plan {NAME}")
    assert [one for one in world.status().needs if "lan again" in one] == [need]


def test_a_guard_that_refused_an_earlier_plan_of_the_day_is_not_reported_beside_the_current_plan(world: World) -> None:
    refuse(world, DAY)
    world.keep(a_plan())
    assert [one for one in world.status().needs if "guard" in one] == []


def test_a_required_action_names_the_repository_once(world: World) -> None:
    yesterday = (utc_now() - timedelta(days=1)).date()
    world.keep(a_plan(yesterday))
    world.configure(grace="3d")
    shown = run("--config", world.file, "status").out
    assert (
        f"orchard: A sweep of the plan of {yesterday} would be refused: settings were changed since the plan" in shown
    )
    assert "orchard: orchard" not in shown


def test_the_status_of_an_unapproved_plan_asks_for_an_approval_with_its_full_hash(world: World) -> None:
    world.keep(a_plan())
    status = world.status()
    assert status.approval == "not approved"
    assert status.candidates == Amount(5, 10**9)
    assert [HASH in need for need in status.needs] == [True]


def test_an_approved_plan_needs_a_sweep_until_it_was_swept(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    before = world.status()
    write_record(world.warehouse, a_record(deleted=5))
    after = world.status()
    assert before.approval == after.approval == "approved"
    assert [" sweep " in need for need in before.needs] == [True]
    assert after.needs == ()
    assert after.sweep is not None
    assert after.sweep.outcomes == {"deleted": Amount(5, 50)}


def test_a_plan_with_the_hash_of_a_plan_that_was_swept_needs_a_sweep_of_its_own(world: World) -> None:
    """If nothing was deleted or new, the plan of the next day has the same hash."""
    next_day = DAY + timedelta(days=1)
    world.keep(a_plan())
    write_record(world.warehouse, a_record(failed=5))
    world.keep(a_plan(next_day))
    world.approve(day=next_day)
    failed, sweep = world.status(NOW + timedelta(days=1)).needs
    assert failed.startswith("5 objects failed")
    assert sweep == f"The plan is approved. Sweep with: {{program}} sweep {NAME} --as-of {next_day}"
    write_record(world.warehouse, replace(a_record(deleted=5), day=next_day.isoformat(), fence=2))
    assert world.status(NOW + timedelta(days=1)).needs == ()


def test_a_swept_plan_of_an_older_day_needs_no_sweep_although_a_newer_plan_was_swept(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    write_record(world.warehouse, a_record(deleted=5))
    next_day = DAY + timedelta(days=1)
    write_record(world.warehouse, replace(a_record(deleted=5), day=next_day.isoformat(), plan_hash="1" * 64, fence=2))
    status = status_of(world.warehouse, world.repository, NOW, until=DAY)
    assert (status.approval, status.needs) == ("approved", ())


def test_a_sweep_that_was_interrupted_needs_another_sweep(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    world.warehouse.append_rows(LEDGER.empty_table(), NAME, LEDGERS, DAY.isoformat(), HASH, "00000001-x", "a.parquet")
    needs = world.status().needs
    assert needs == (f"A sweep of the plan was interrupted. Continue with: {{program}} sweep {NAME} --as-of {DAY}",)
    write_record(world.warehouse, replace(a_record(deleted=5), fence=1))
    assert world.status().needs == ()


def test_a_sweep_that_ended_early_needs_another_sweep(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    write_record(world.warehouse, replace(a_record(deleted=2), ended_early="a person ended it"))
    assert world.status().needs == (
        "The last sweep ended early: a person ended it",
        f"The plan is approved. Sweep with: {{program}} sweep {NAME} --as-of {DAY}",
    )
    write_record(world.warehouse, replace(a_record(deleted=5), fence=2))
    assert world.status().needs == ()


def test_a_run_that_was_interrupted_after_a_sweep_of_the_plan_may_be_a_restore(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    write_record(world.warehouse, replace(a_record(deleted=2), fence=1))
    world.warehouse.append_rows(LEDGER.empty_table(), NAME, LEDGERS, DAY.isoformat(), HASH, "00000002-x", "a.parquet")
    (need,) = world.status().needs
    assert need == (
        "A sweep, restore or purge of the plan was interrupted. Run its command again. To continue a sweep: "
        f"{{program}} sweep {NAME} --as-of {DAY}"
    )
    write_record(world.warehouse, replace(a_record(deleted=5), kind="restore", fence=2))
    assert world.status().needs == ()


def test_a_sweep_that_runs_needs_no_other_sweep_unless_it_died(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    take_lease(world.warehouse, NAME, "a-sweep", NOW, timedelta(hours=1))
    (need,) = world.status().needs
    assert need == (
        f"Run a-sweep is running. If it died, allow other runs: {{program}} stop {NAME}, then {{program}} resume {NAME}"
    )


def test_an_approval_of_another_day_or_an_expired_approval_is_not_valid(world: World) -> None:
    world.keep(a_plan())
    world.approve(day=DAY - timedelta(days=1))
    assert world.status().approval == "not approved"
    world.approve(at=NOW - timedelta(days=300))
    assert world.status().approval == "lapsed"


def test_a_withdrawn_approval_is_shown_with_the_person(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    withdraw_approval(world.warehouse, NAME, DAY, "ann", NOW)
    status = world.status()
    assert (status.approval, status.approved_by) == ("withdrawn", "ann")


@pytest.mark.parametrize(
    "changes",
    [{"mode": "delete"}, {"quarantine": {"url": "attic"}}],
    ids=["mode", "quarantine"],
)
def test_an_approval_for_other_settings_needs_another_approval_and_no_sweep(
    world: World, changes: dict[str, object]
) -> None:
    world.keep(a_plan())
    world.approve()
    world.configure(**changes)
    status = world.status()
    assert (status.approval, status.approved_by) == ("for other settings", "bill")
    assert status.needs == (
        f"bill approved the plan for other settings. Approve it with: {{program}} approve {NAME} {HASH} --as-of {DAY}",
    )


def test_a_plan_that_was_made_under_other_settings_needs_another_plan(world: World) -> None:
    world.keep(a_plan())
    world.approve()
    world.configure(grace="3d")
    (need,) = world.status().needs
    assert "settings were changed since the plan was made: grace was 1d, is 3d" in need
    assert f"`retention plan {NAME} --as-of {DAY}`" in need


def test_a_lapsed_approval_of_a_plan_that_was_made_again_needs_another_approval(world: World) -> None:
    world.keep(a_plan())
    world.approve(at=NOW - timedelta(days=8))
    status = world.status()
    assert status.approval == "lapsed"
    assert [f"approve {NAME} {HASH}" in need for need in status.needs] == [True]


def test_a_quarantine_inside_the_repository_needs_another_configuration(world: World) -> None:
    world.configure(quarantine={"url": "lake/attic"})
    world.keep(a_plan())
    (need,) = world.status().needs
    assert "quarantine.url" in need


def test_a_plan_within_the_budget_needs_only_a_sweep(world: World) -> None:
    world.configure(budget={"objects": 10})
    world.keep(a_plan())
    status = world.status()
    assert status.approval == "within the budget"
    assert [" sweep " in need for need in status.needs] == [True]


IN_A_BUCKET = {"storage": "s3://lake/orchard"}


@pytest.mark.parametrize("approved", [False, True], ids=["waits_for_approval", "approved"])
def test_status_warns_that_a_sweep_would_be_refused_for_its_lease_before_the_next_step(
    world: World, approved: bool
) -> None:
    world.configure(**IN_A_BUCKET)
    world.keep(a_plan())
    if approved:
        world.approve()
    first, second = world.status().needs
    assert first.startswith("A sweep would be refused: orchard: the warehouse ")
    assert "set repositories.orchard.sweep.single_machine to true" in first
    assert (" sweep " if approved else " approve ") in second
    world.configure(**IN_A_BUCKET, sweep={"single_machine": True})
    assert world.status().needs == (second,)


def test_approve_warns_that_a_sweep_would_be_refused_for_its_lease(world: World) -> None:
    world.configure(**IN_A_BUCKET)
    yesterday = (utc_now() - timedelta(days=1)).date()
    world.keep(a_plan(yesterday))
    day = ("--as-of", yesterday)
    before = run("--config", world.file, "approve", NAME, HASH, *day)
    assert before.status == 0, before.err
    refused = before.out.index("A sweep would be refused: orchard: the warehouse")
    assert refused < before.out.index("Then sweep with: ")
    world.configure(**IN_A_BUCKET, sweep={"single_machine": True})
    after = run("--config", world.file, "approve", NAME, HASH, *day)
    assert "refused" not in after.out
    assert "Sweep with: " in after.out


def test_the_next_step_after_approving_a_plan_without_objects_is_another_plan(world: World) -> None:
    yesterday = (utc_now() - timedelta(days=1)).date()
    world.keep(a_plan(yesterday, objects=0, size=0))
    answer = run("--config", world.file, "approve", NAME, HASH, "--as-of", yesterday)
    assert answer.status == 0, answer.err
    assert (
        f"The plan of {yesterday} has nothing to delete, so no sweep is needed. Plan again tomorrow with: "
        in answer.out
    )
    assert " sweep orchard" not in answer.out


def test_waiting_objects_are_shown_with_their_amount_and_time(world: World) -> None:
    ends = NOW + timedelta(days=1)
    world.keep(replace(a_plan(objects=0, size=0, waiting=3), first_wait_ends=ends, last_wait_ends=ends))
    answer = run("--config", world.file, "status")
    assert answer.status == 0, answer.err
    waits = "orchard: Waiting until 2026-11-02 12:00 UTC (`settle`): 3 objects, 3 B. A sweep may delete waiting"
    assert (
        f"{waits} objects under a plan whose staged list (lakeFS) and references are newer than that time."
        in answer.out
    )
    document = run("--config", world.file, "status", "--json").document()
    assert document[0]["plan"]["last_wait_ends"] == ends.isoformat()


def test_objects_in_quarantine_are_shown_with_their_amount_and_time(world: World) -> None:
    world.configure(quarantine={"keep": "20000d"})
    world.keep(a_plan())
    write_record(world.warehouse, a_record(quarantined=5))
    answer = run("--config", world.file, "status")
    assert answer.status == 0, answer.err
    until = f"{NOW + timedelta(days=20000):%Y-%m-%d %H:%M} UTC"
    held = "orchard: In quarantine: 5 objects, 50 B, of the plan of 2026-11-01. `purge` may delete them after"
    assert f"{held} {until}." in answer.out


def test_a_repository_in_mode_plan_needs_no_approval(world: World) -> None:
    world.configure(mode="plan")
    world.keep(a_plan())
    assert world.status().needs == ()


def test_costs_are_shown_only_with_a_price(world: World) -> None:
    world.keep(a_plan(size=2 * 10**9))
    assert world.status().monthly_cost is None
    world.configure(price_per_gb_month=0.5)
    assert world.status().monthly_cost == 1.0


@pytest.mark.parametrize(
    ("outcomes", "left", "shown"),
    [
        ({"quarantined": 5}, Amount(), "nothing left"),
        ({"deleted": 2, "missing": 1, "restored": 2}, Amount(), "nothing left"),
        ({"deleted": 2, "skipped": 3}, Amount(), "nothing left"),
        ({"deleted": 2, "failed": 1, "attempted": 1}, Amount(3, 30), "3, 30 B"),
    ],
    ids=["quarantined", "deleted_or_restored", "needed_now", "interrupted"],
)
def test_after_a_sweep_the_status_shows_only_what_the_plan_would_still_free(
    world: World, outcomes: dict[str, int], left: Amount, shown: str
) -> None:
    world.configure(price_per_gb_month=10**9)
    world.keep(a_plan(size=50))
    before = world.status()
    assert (before.to_free, before.cost_to_free) == (Amount(5, 50), 50)
    write_record(world.warehouse, a_record(**outcomes))
    status = world.status()
    assert (status.to_free, status.candidates) == (left, Amount(5, 50))
    assert status.cost_to_free == pytest.approx(left.bytes)
    answer = run("--config", world.file, "status")
    assert (shown in answer.out, "5, 50 B\n" in answer.out) == (True, False)
    assert ("a month" in answer.out) is (left != Amount())


def test_objects_in_quarantine_whose_restore_failed_are_not_to_be_freed_again(world: World) -> None:
    world.keep(a_plan(size=50))
    record = a_record("restore", quarantined=4, failed=1)
    write_record(world.warehouse, replace(record, in_quarantine={"objects": 5, "bytes": 50}))
    assert world.status().to_free == Amount()


def test_the_sweep_of_an_earlier_plan_does_not_change_what_the_plan_would_free(world: World) -> None:
    world.keep(a_plan(DAY + timedelta(days=1), size=50))
    write_record(world.warehouse, a_record(deleted=5))
    assert world.status().to_free == Amount(5, 50)


def test_quarantined_objects_are_counted_by_plan_with_the_time_of_their_purge(world: World) -> None:
    world.configure(quarantine={"keep": "10d"})
    world.keep(a_plan())
    write_record(world.warehouse, a_record(quarantined=5))
    (held,) = world.status().quarantine
    assert (held.plan_hash, held.objects, held.until) == (HASH, 5, NOW + timedelta(days=10))
    assert not any("quarantine" in need for need in world.status().needs)
    assert any("purge" in need for need in world.status(NOW + timedelta(days=11)).needs)
    write_record(world.warehouse, a_record("restore", ended=NOW + timedelta(days=1), restored=5))
    assert world.status().quarantine == ()


def test_objects_whose_restore_failed_or_whose_copy_was_skipped_are_still_in_quarantine(world: World) -> None:
    world.configure(quarantine={"keep": "10d"})
    write_record(world.warehouse, a_record(quarantined=5))  # as earlier versions wrote it
    kept = {"objects": 5, "bytes": 50}
    for kind, outcomes in (("restore", {"failed": 1}), ("purge", {"skipped": 1})):
        record = a_record(kind, ended=NOW + timedelta(days=1), quarantined=4, **outcomes)
        write_record(world.warehouse, replace(record, in_quarantine=kept))
        (held,) = world.status().quarantine
        assert (held.objects, held.bytes, held.until) == (5, 50, NOW + timedelta(days=10))


def test_the_time_in_quarantine_counts_from_the_sweep_that_moved_the_objects(world: World) -> None:
    """A purge counts from the ledger row of each object. A later sweep of the plan does not extend the time."""
    world.configure(quarantine={"keep": "10d"})
    later, last = NOW + timedelta(days=3), NOW + timedelta(days=6)
    write_record(world.warehouse, a_record(quarantined=5, failed=3))
    write_record(world.warehouse, replace(a_record(ended=later, quarantined=7, failed=1), started=later.isoformat()))
    write_record(world.warehouse, replace(a_record(ended=last, quarantined=7, failed=1), started=last.isoformat()))
    held = world.status().quarantine
    assert [(one.objects, one.bytes, one.until) for one in held] == [
        (5, 50, NOW + timedelta(days=10)),
        (2, 20, later + timedelta(days=10)),
    ]
    assert "The time in quarantine of 5 objects is over" in " ".join(world.status(NOW + timedelta(days=11)).needs)


@pytest.mark.parametrize(
    ("kind", "left"),
    [
        pytest.param("purge", [(1, 10, 3)], id="a_purge_deletes_the_oldest"),
        pytest.param("restore", [(1, 10, 0)], id="a_restore_may_have_restored_the_newest"),
    ],
)
def test_a_purge_or_restore_of_some_objects_does_not_delay_the_purge_of_the_others(
    world: World, kind: str, left: list[tuple[int, int, int]]
) -> None:
    world.configure(quarantine={"keep": "10d"})
    later = NOW + timedelta(days=3)
    write_record(world.warehouse, a_record(quarantined=5))
    write_record(world.warehouse, replace(a_record(ended=later, quarantined=7), started=later.isoformat()))
    write_record(world.warehouse, a_record(kind, quarantined=1, ended=later))
    held = world.status().quarantine
    assert [(one.objects, one.bytes, (one.until - NOW).days - 10) for one in held] == left


def test_the_quarantine_time_of_a_long_or_interrupted_sweep_counts_from_its_start(world: World) -> None:
    """The interrupted sweep has a ledger and no record."""
    world.configure(quarantine={"keep": "10d"})
    world.warehouse.append_rows(LEDGER.empty_table(), NAME, LEDGERS, DAY.isoformat(), HASH, "00000001-x", "a.parquet")
    written = min(file.written_at for file in world.warehouse.tree(NAME, LEDGERS).values())
    started, ended = written + timedelta(hours=1), written + timedelta(hours=9)
    write_record(world.warehouse, replace(a_record(quarantined=5, ended=ended), fence=2, started=started.isoformat()))
    (held,) = world.status().quarantine
    assert (held.until, held.all_due) == (written + timedelta(days=10), ended + timedelta(days=10))
    write_record(world.warehouse, replace(a_record(quarantined=7, ended=ended), fence=3, started=started.isoformat()))
    assert world.status().quarantine[1].until == started + timedelta(days=10)


def test_status_reports_failures_and_the_early_end_of_the_last_sweep(world: World) -> None:
    write_record(world.warehouse, replace(a_record(deleted=3, failed=2), ended_early="the store was away"))
    needs = " ".join(world.status().needs)
    assert "2 objects failed" in needs
    assert "the store was away" in needs


def test_an_error_with_braces_is_shown_unchanged(world: World) -> None:
    error = 'the store answered {"code": "Denied", "program": {}}'
    world.keep(a_plan())
    write_record(world.warehouse, replace(a_record(failed=2), ended_early=error))
    text, document = run("--config", world.file, "status"), run("--config", world.file, "status", "--json").document()
    assert text.status == 0, text.err
    assert f"The last sweep ended early: {error}" in text.out
    assert f"The last sweep ended early: {error}" in document[0]["needs"]


def test_the_page_of_a_report_shows_an_error_with_braces(world: World) -> None:
    plan, error = a_plan(), 'the store answered {"code": "Denied"}: try later'
    world.keep(plan)
    write_record(world.warehouse, replace(a_record(failed=2), ended_early=error))
    figures = Figures(plan, world.status(), True, [plan], PlanGroups([], [], [], [], [], []), [], [], None, None, {})
    page = page_of(figures, {}, "retention")
    assert f"<li>The last sweep ended early: {escape(error)}</li>" in page
    assert f"<pre>retention report {NAME} --as-of {DAY}</pre>" in page


def test_the_page_of_a_report_shows_no_code_for_a_sentence_with_two_commands(world: World) -> None:
    plan = a_plan()
    world.keep(plan)
    world.approve()
    take_lease(world.warehouse, NAME, "a-sweep", NOW, timedelta(hours=1))
    figures = Figures(plan, world.status(), True, [plan], PlanGroups([], [], [], [], [], []), [], [], None, None, {})
    page = page_of(figures, {}, "retention")
    assert f"allow other runs: retention stop {NAME}, then retention resume {NAME}</li>" in page


def test_a_stop_is_shown_first_with_the_command_that_ends_it(world: World) -> None:
    stop_sweeps(world.warehouse, NAME, "ann", NOW)
    status = world.status()
    assert status.stopped_by == "ann"
    assert status.needs[0] == f"Sweeps are stopped by ann. Resume with: {{program}} resume {NAME}"


def test_status_mentions_a_refused_newer_plan_and_shows_the_older_plan(world: World) -> None:
    world.keep(a_plan())
    world.keep(a_plan(DAY + timedelta(days=1)))
    withdraw_plan(world.warehouse, NAME, DAY + timedelta(days=1))
    status = world.status()
    assert status.plan is not None
    assert status.plan.day == DAY
    assert any("2026-11-02" in need for need in status.needs)


def test_the_trend_has_the_last_plans_oldest_first(world: World) -> None:
    for number in range(20):
        world.keep(a_plan(DAY - timedelta(days=number), size=number))
    assert [size for _, size in world.status().trend] == list(range(13, -1, -1))


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param([0, 0], "▁▁", id="zeros"),
        pytest.param([0, 7, 14], "▁▄█", id="from zero to the highest"),
    ],
)
def test_a_sparkline_has_a_bar_for_each_value(values: list[int], bars: str) -> None:
    assert sparkline(values) == bars


def test_status_prints_full_hashes_and_one_json_list(world: World) -> None:
    world.keep(a_plan())
    text, document = run("--config", world.file, "status"), run("--config", world.file, "status", "--json").document()
    assert text.status == 0, text.err
    assert HASH in text.out
    assert "…" not in text.out
    assert document[0]["plan"]["plan_hash"] == HASH
    assert "{program}" not in text.out + str(document)


def test_the_status_table_fits_80_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    world.keep(a_plan(objects=123_456_789, size=10**15, waiting=987_654_321))
    stop_sweeps(world.warehouse, NAME, "somebody.with.a.long.name@a-department.example.org", NOW)
    write_record(world.warehouse, a_record(quarantined=123_456_789, failed=1_234_567, deleted=987_654_321))
    shown = run("--config", world.file, "status").out.splitlines()
    table = shown[: shown.index(f"{NAME}: plan {HASH}")]
    assert any("123,456,789" in line for line in table)
    assert max(map(len, table)) <= 80


def test_status_imports_neither_spark_nor_dagster(world: World) -> None:
    world.keep(a_plan())
    script = (
        "import sys\n"
        "from retention_assets.cli.main import cli\n"
        "cli.main(sys.argv[1:], standalone_mode=False)\n"
        "sys.exit(str({'pyspark', 'dagster'} & sys.modules.keys() or '') or 0)\n"
    )
    command = [sys.executable, "-c", script, "--config", str(world.file), "status"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
