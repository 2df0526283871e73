"""Refusals of commands, before a run begins or at its end: what was not done, and the remedy."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets.cli import sweeping
from retention_assets.cli.group import with_configuration
from retention_assets.config.configuration import load_configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount
from retention_assets.lakefs.source.opening import policy_of_files
from retention_assets.spark import sessions
from retention_assets.state import lease
from retention_assets.state.acknowledged import record_missing
from retention_assets.state.approval import approve, planned_terms, withdraw_approval
from retention_assets.state.plan import Plan, keep_plan
from retention_assets.state.records import write_record
from retention_assets.sweep.sweep_run import objects_failed
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.command import DAY, Project, orchard, orchard_on_disk, run
from tests.explain.test_status import a_plan, a_record
from tests.saved_repositories import listing

LISTED = sorted(entry.address for entry in listing("orchard") if entry.address.startswith("data/"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with an empty storage."""
    (tmp_path / "lake").mkdir()
    return orchard(tmp_path, "lake")


def refused(status: int, project: Project, command: str, *arguments: str | Path) -> str:
    """Run a command that must end with this status, and return its message."""
    answer = run("--config", project.file, command, project.name, *arguments)
    assert answer.status == status, answer
    assert answer.out == ""
    return answer.err


# ---- acknowledge


def acknowledgements(project: Project) -> Path:
    return project.warehouse / project.name / "acknowledged"


def miss(project: Project, *addresses: str) -> None:
    """Store that a plan was refused because of these missing objects."""
    record_missing(Warehouse(str(project.warehouse)), project.name, "live_listed", addresses, utc_now())


def test_an_object_that_is_in_the_store_is_not_acknowledged_as_lost(tmp_path: Path) -> None:
    project = orchard_on_disk(tmp_path)
    message = refused(1, project, "acknowledge", "data/lost/1", LISTED[0])
    assert f"orchard: 1 of 2 objects can be found in the store, {LISTED[0]} first. Nothing was acknowledged" in message
    assert "Plan again: `retention plan orchard`" in message
    assert not acknowledgements(project).exists()


def test_a_completely_missing_directory_is_acknowledged_only_with_whole_slices(project: Project) -> None:
    lost = "data/a/1", "data/a/2", "data/b/1"
    miss(project, *lost)
    message = refused(1, project, "acknowledge", *lost)
    assert "orchard: 1 directory is missing completely, for example data/a/ with 2 of the addresses" in message
    assert "Nothing was acknowledged. Check that `storage`" in message
    assert "--whole-slices" in message
    assert not acknowledgements(project).exists()


@pytest.mark.parametrize("address", ["s3://lake/orchard/data/x", "/data/x", "data/../x", "_lakefs/x"])
def test_an_invalid_address_is_not_acknowledged(project: Project, address: str) -> None:
    message = refused(2, project, "acknowledge", address)
    assert f"{address}: is not the address of an object of orchard. Nothing was acknowledged" in message
    assert "`retention show orchard addresses`" in message


def test_an_invalid_address_of_an_icechunk_repository_names_a_table_that_icechunk_has(tmp_path: Path) -> None:
    (tmp_path / "field").mkdir()
    file = tmp_path / "retention.yaml"
    file.write_text("{warehouse: tables, repositories: {field: {kind: icechunk, storage: field, policy: p.yaml}}}")
    answer = run("--config", file, "acknowledge", "field", "/chunks/x")
    assert answer.status == 2
    assert "`retention show field reachable_chunks`" in answer.err


def test_a_list_of_lost_objects_may_come_from_windows_and_has_the_addresses_as_they_are(
    project: Project, tmp_path: Path
) -> None:
    lost = ["data/a/1", "data/a/2 ", "data/a/3\u20284"]
    miss(project, *lost)
    (tmp_path / "lost.txt").write_bytes("\r\n".join([*lost, "", ""]).encode("utf-8-sig"))
    arguments = ["--file", tmp_path / "lost.txt", "--whole-slices", "--json"]
    answer = run("--config", project.file, "acknowledge", project.name, *arguments)
    assert answer.document()["addresses"] == lost


def test_an_unreadable_list_of_lost_objects_is_reported(project: Project, tmp_path: Path) -> None:
    message = refused(2, project, "acknowledge", "--file", tmp_path / "lost.txt")
    assert "lost.txt: cannot be read (FileNotFoundError). Nothing was written" in message


# ---- durations


@pytest.mark.parametrize(("command", "option"), [("init", "--keep"), ("sweep", "--dump-age")])
def test_a_duration_that_is_too_long_names_the_longest_one_that_the_option_accepts(
    project: Project, command: str, option: str
) -> None:
    message = refused(2, project, command, option, "9999999999d")
    assert f"{option}: '9999999999d' is too long: the longest duration is 999999999d\n" in message


# ---- sweeps, reports, restores


def test_a_sweep_in_mode_plan_is_refused(project: Project) -> None:
    message = refused(2, project, "sweep", "--as-of", DAY)
    assert "repositories.orchard.mode is `plan`, which allows no sweep. Nothing was deleted" in message
    assert "Set `mode: quarantine`" in message


@pytest.mark.parametrize(
    ("objects", "rest"), [(5, "the other objects of the plan are done"), (7, "2 more were not tried")]
)
def test_a_sweep_with_failed_objects_ends_with_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch, objects: int, rest: str
) -> None:
    def failing(*_: object) -> None:
        raise objects_failed(plan, failed=2, left=objects - 5)

    project.write(mode="delete")
    warehouse, plan = Warehouse(str(project.warehouse)), replace(a_plan(), candidates=Amount(objects, 10 * objects))
    keep_plan(warehouse, plan)
    write_record(warehouse, a_record(deleted=3, failed=2))
    monkeypatch.setattr(sweeping, "run_job", failing)
    monkeypatch.setattr(sweeping, "_require_sweepable", lambda *_: None)  # nobody approved the plan
    answer = project.run("sweep")
    assert answer.status == 3
    assert re.search(r"failed\W+2 ", answer.out), "the report is printed before the error"
    reasons = "The reasons: `retention show orchard"
    assert f"orchard {DAY}: 2 objects could not be deleted or moved; {rest}. {reasons}" in answer.err
    assert f"Then try again: `retention sweep orchard --as-of {DAY}`" in answer.err


def test_a_plan_without_a_finished_sweep_has_no_report(project: Project) -> None:
    keep_plan(Warehouse(str(project.warehouse)), a_plan())
    told = f"orchard: no sweep of {DAY} has ended, so there is no report"
    message = project.run("report").printed_err
    assert f"{told}. Nothing was changed. The mode of the repository is `plan`" in message
    assert f" --config {project.file} status orchard`." in message
    project.write(mode="delete")
    message = project.run("report").printed_err
    assert f"{told}. Nothing was changed. Sweep with: `" in message
    assert f" --config {project.file} sweep orchard --as-of {DAY}`." in message


FUTURE = (utc_now() + timedelta(days=2)).date().isoformat()
STOPPED = "orchard: sweeps were stopped by ada at "
WITHOUT_SPARK = {
    "plan of a future day": (("plan", "--as-of", FUTURE), False, 2, "only these days can be planned"),
    "sweep of a future day": (("sweep", "--as-of", FUTURE), False, 2, "only these days can be planned"),
    "verification of a future day": (("verify", "--as-of", FUTURE), False, 2, "only these days can be planned"),
    "sweep without a plan": (("sweep", "--as-of", "2026-10-30"), False, 1, "there is no current plan of 2026-10-30"),
    "stopped sweep": (("sweep", "--as-of", DAY), True, 1, STOPPED),
    "stopped restore": (("restore", "--path", "a"), True, 1, STOPPED),
    "stopped purge": (("purge", "--approve", "0" * 64), True, 1, STOPPED),
    "restore of a path that is not UTF-8": (("restore", "--path", "a\udcff"), False, 2, "is not UTF-8"),
}


@pytest.mark.parametrize(("command", "stopped", "status", "told"), WITHOUT_SPARK.values(), ids=WITHOUT_SPARK)
def test_a_refusal_that_needs_no_spark_starts_no_session(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    stopped: bool,
    status: int,
    told: str,
) -> None:
    without_spark(monkeypatch)
    project.write(mode="quarantine")
    warehouse = Warehouse(str(project.warehouse))
    keep_plan(warehouse, a_plan())
    if stopped:
        lease.stop_sweeps(warehouse, project.name, "ada", utc_now())
    message = refused(status, project, *command)
    assert told in message


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object) -> None:
        raise AssertionError("a Spark session is started")

    monkeypatch.setattr(sessions, "start_early", started)
    monkeypatch.setattr(sessions, "started", started)


def lapse(warehouse: Warehouse, plan: Plan) -> None:
    keep_plan(warehouse, replace(plan, made_at=plan.made_at - timedelta(days=8)))


def block(warehouse: Warehouse, plan: Plan) -> None:
    keep_plan(warehouse, replace(plan, blocked="the staged list is newer."))


def change_the_policy(warehouse: Warehouse, plan: Plan) -> None:
    keep_plan(warehouse, replace(plan, policy_hash="of other rules"))


def approve_for_deletion(warehouse: Warehouse, plan: Plan) -> None:
    terms = {**plan.terms, "mode": "delete"}
    approve(warehouse, plan.repository, plan.day, plan.plan_hash, "ada", utc_now(), timedelta(days=7), terms)


def approve_and_withdraw(warehouse: Warehouse, plan: Plan) -> None:
    approve_for_deletion(warehouse, plan)
    withdraw_approval(warehouse, plan.repository, plan.day, "ada", utc_now())


def raise_grace(warehouse: Warehouse, plan: Plan) -> None:
    keep_plan(warehouse, replace(plan, terms={**plan.terms, "grace": "9d"}))


UNAPPROVED = {
    "not approved": (keep_plan, "is not approved. Nothing was deleted. Approve it: `retention approve orchard"),
    "lapsed": (lapse, "longer ago than approval.life (7d)"),
    "withdrawn": (approve_and_withdraw, "ada withdrew the approval"),
    "approved for another mode": (approve_for_deletion, "mode was delete, is quarantine"),
    "planned with other settings": (raise_grace, "settings were changed since the plan was made: grace was 9d"),
    "blocked": (block, "the staged list is newer. Nothing was deleted. Correct this, then plan again"),
    "planned under another policy": (change_the_policy, "the policy was changed after the plan was made"),
}


@pytest.mark.parametrize("source", ["files", "server"])
@pytest.mark.parametrize(("change", "told"), UNAPPROVED.values(), ids=UNAPPROVED)
def test_a_sweep_that_the_approval_does_not_cover_starts_no_spark_session(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Warehouse, Plan], None],
    told: str,
    source: str,
) -> None:
    without_spark(monkeypatch)
    project.write(mode="quarantine", policy=["gc_rules.json"] if source == "files" else ["server"])
    repository, warehouse = load_configuration(project.file).repository(project.name), Warehouse(str(project.warehouse))
    made = replace(
        a_plan(utc_now().date()),
        policy_hash=policy_of_files(repository).policy_hash,
        terms=planned_terms(repository),
        made_at=utc_now(),
    )
    keep_plan(warehouse, made)
    change(warehouse, made)
    command = ("sweep", "--as-of", made.day.isoformat())
    if source == "server" and change is change_the_policy:  # only the sweep asks the server for its rules
        told = "is not approved"
    message = refused(1, project, *command)
    assert told in message
    assert "Nothing was deleted" in message
    assert not (project.warehouse / project.name / "leases").exists()


def test_a_sweep_whose_lease_other_machines_do_not_see_starts_no_spark_session(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    project.write(mode="quarantine", storage="s3://lake/orchard", policy=["server"])
    keep_plan(Warehouse(str(project.warehouse)), a_plan())
    assert "set repositories.orchard.sweep.single_machine to true" in refused(1, project, "sweep", "--as-of", DAY)


def test_a_restore_without_a_selection_is_refused(project: Project) -> None:
    message = refused(2, project, "restore")
    assert "name the objects with --plan HASH, --path PATH or --address NAME. Nothing was changed" in message


# ---- commands in errors


@pytest.mark.parametrize(
    ("message", "file", "shown"),
    [
        ("Plan: `retention plan a`. See `docs`.", "r.yaml", "Plan: `retention --config r.yaml plan a`. See `docs`."),
        ("`retention stop a` and `retention resume a`", "x y", "`retention --config 'x y' stop a` and `retention "
        "--config 'x y' resume a`"),
        ("`retention plan a`", r"\g<0>", r"`retention --config '\g<0>' plan a`"),
        ("`retention --config b.yaml plan a`", "r.yaml", "`retention --config b.yaml plan a`"),
        ("the key `retention`, and retention plan a", "r.yaml", "the key `retention`, and retention plan a"),
        ("Plan: `retention plan a`.", None, "Plan: `retention plan a`."),
    ],
)  # fmt: skip
def test_commands_in_an_error_have_the_configuration_of_the_command(message: str, file: str | None, shown: str) -> None:
    assert with_configuration(message, file) == shown


def test_the_remedy_of_a_printed_error_has_the_configuration_only_if_it_was_given(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("approve", project.name, "0" * 64, "--as-of", DAY)
    given = run("--config", project.file, *command)
    monkeypatch.setenv("RETENTION_CONFIG", str(project.file))
    found = run(*command)
    remedy = f"plan {project.name} --as-of {DAY}`"
    assert (given.status, found.status) == (1, 1)
    assert f"`retention --config {project.file} {remedy}" in given.printed_err
    assert f"`retention {remedy}" in found.printed_err


# ---- unexpected errors


def test_an_unexpected_error_prints_its_traceback_and_has_another_status_than_a_refusal(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a mistake in the program")

    monkeypatch.setattr(lease, "resume_sweeps", fail)
    message = refused(3, project, "resume")
    assert message.startswith("Traceback")
    assert message.endswith("ZeroDivisionError: a mistake in the program\n")


# ---- diff, show


@pytest.mark.parametrize("price", ["inf", "nan"])
def test_a_price_that_is_not_finite_is_refused(project: Project, price: str) -> None:
    message = refused(2, project, "diff", "--policy", "p.yaml", "--price", price)
    assert f"'--price': {price} is not a finite number." in message


@pytest.mark.parametrize("table", ["repository_history", "reachable_chunks"])
def test_a_table_of_another_kind_of_repository_is_refused(project: Project, table: str) -> None:
    message = refused(2, project, "show", table)
    assert (
        f"orchard: {table} is not a table of a repository of kind `lakefs`. Nothing was read. Name one of: act"
        in message
    )
    assert "retention plan" not in message
