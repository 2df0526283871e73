"""The commands that approve, execute and verify a plan: `approve`, `withdraw`, `sweep`, `verify` and `report`."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import click

from retention_assets.cli.group import (
    NAME_OF_PERSON,
    Duration,
    Target,
    as_json,
    as_of,
    cli,
    day_option,
    every_option,
    examples,
    for_each,
    names_argument,
    print_json,
    print_result,
    program,
    run_job,
    say,
    screen,
    target_argument,
    targets_of,
    today,
    working,
)
from retention_assets.cli.rendering import current_plan, open_table, print_amounts
from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import require_day, utc_now
from retention_assets.core.amounts import Amount, human_removal
from retention_assets.errors import ConfigurationError, ObjectsFailed, RetentionError, TableContractError
from retention_assets.explain.plans import approval_of, history_changes_of
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.approval import (
    NO_BUDGET,
    approved_plans_of_other_days,
    approved_terms,
    has_approval,
    person,
    when_to_plan_again,
    withdraw_approval,
)
from retention_assets.state.approval import approve as approve_plan
from retention_assets.state.lease import require_not_stopped, unseen_lease
from retention_assets.state.ledger import LEDGERS, first_failure, results_of, sweeps_of
from retention_assets.state.plan import (
    Plan,
    find_plan,
    last_plan_of,
    load_plan,
    require_not_blocked,
    require_plan,
    require_same_policy,
)
from retention_assets.state.records import amounts_in, newest_of_day
from retention_assets.tables import DELETION_PROOF, DELETION_REPORT
from retention_assets.warehouse.warehouse import Warehouse

_HASH = re.compile("[0-9a-f]{64}")  # a plan's hash; directories with other names are ignored


@cli.command(
    short_help="Approve a plan by its hash.",
    epilog=examples(
        "retention approve orchard HASH",
        "retention approve orchard HASH --as-of 2026-11-01 --json",
        more=NAME_OF_PERSON,
    ),
)
@target_argument
@click.argument("plan_hash", metavar="HASH")
@as_of
@as_json
def approve(target: Target, plan_hash: str, day: date, json_wanted: bool) -> None:
    """Approve the plan of REPOSITORY that has this HASH, so that a sweep may execute the plan.

    Give the whole hash, as `plan` prints it. The approval is for the current settings: a sweep in another mode, or with
    another grace period, is refused.
    """
    life, terms, by = target.repository.settings.approval.life, approved_terms(target.repository), person()
    asked = require_plan(target.warehouse, target.name, day, plan_hash, undone="approved")
    changes = history_changes_of(target.warehouse, target.repository, asked)  # may raise; nothing is approved yet
    made = approve_plan(target.warehouse, target.name, day, plan_hash, by, utc_now(), life, terms)
    amount, until = made.candidates, made.made_at + life
    document: dict[str, Any] = {"approved_by": by, "until": until.isoformat(), **asdict(amount)}
    if target.repository.is_icechunk:
        document["removed_from_history"] = asdict(changes)
    document["settings"] = dict(terms)
    text = (
        f"Approved by {by}: {human_removal(amount, changes)}, of {target.name} as of {made.day}; "
        f"valid until {until:%Y-%m-%d %H:%M} UTC, under these settings:\n"
        + "".join(f"  {name}: {_in_force(target, name, value)}\n" for name, value in terms.items())
        + next_of_approved(target, made)
    )
    print_result({**_identity(made), **document}, text, json_wanted=json_wanted)


def _in_force(target: Target, name: str, value: str) -> str:
    """Return the value of a setting for people. For `reflog: null`, it says whether the reflog is used."""
    if (name, value) != ("reflog", "null"):
        return value
    return f"{value} (it is {'on' if target.repository.lakefs.keeps_reflog else 'off'})"


def next_of_approved(target: Target, made: Plan) -> str:
    """Return the next step after the approval of the plan `made`.

    This is the sweep, or the remedy if every sweep would be refused, or a new plan if there is nothing to sweep.
    """
    repository = target.repository
    if not (made.candidates.objects or approval_of(target.warehouse, repository, made, utc_now()).removes):
        again = f"{when_to_plan_again(made)} with: {program()} plan {target.name}"
        return f"The plan of {made.day} has nothing to delete, so no sweep is needed. Plan again {again}"
    single_machine = repository.settings.sweep.single_machine
    unseen = unseen_lease(target.warehouse, target.name, repository.storage, single_machine=single_machine)
    with_command = f"with: {program()} sweep {target.name} --as-of {made.day}"
    return f"A sweep would be refused: {unseen}\nThen sweep {with_command}" if unseen else f"Sweep {with_command}"


@cli.command(
    short_help="Withdraw the approval of a plan.",
    epilog=examples("retention withdraw orchard", "retention withdraw orchard --as-of 2026-11-01", more=NAME_OF_PERSON),
)
@target_argument
@as_of
@as_json
def withdraw(target: Target, day: date, json_wanted: bool) -> None:
    """Withdraw the approval of the day's plan of REPOSITORY.

    Until a person approves a plan of the repository again, a budget approves none. Approvals of earlier plans of the
    day are withdrawn, too: a new plan can have the hash of an earlier one. Approvals of other days stay, and the
    command names these days. A running sweep continues.
    """
    by, now, warehouse, name = person(), utc_now(), target.warehouse, target.name
    was_approved = has_approval(warehouse, last_plan_of(warehouse, name, day))
    made = withdraw_approval(warehouse, name, day, by, now)
    others = approved_plans_of_other_days(warehouse, name, day, target.repository.settings.approval.life, now)
    which = f"plan {made.plan_hash} of {name} as of {made.day}"
    text = f"Withdrawn by {by}: the approval of {which}.\n"
    if not was_approved:
        text = f"Nobody had approved {which}.\n"
    text += f"{NO_BUDGET}\n"
    text += "".join(
        f"The plan of {one.day} is still approved. Withdraw it with: {program()} withdraw {name} --as-of {one.day}\n"
        for one in others
    )
    text += f"A running sweep continues. Stop it with: {program()} stop {name}"
    document = {"was_approved": was_approved, "still_approved": [one.day.isoformat() for one in others]}
    print_result({**_identity(made), "withdrawn_by": by, **document}, text, json_wanted=json_wanted)


@cli.command(
    short_help="Execute the approved plan.",
    epilog=examples("retention sweep orchard", "retention sweep orchard --as-of 2026-11-01 --dump-age 12h"),
)
@target_argument
@as_of
@click.option(
    "--dump-age",
    metavar="DURATION",
    type=Duration(),
    help="The maximum age of the dump, such as 12h. Default: source.dump_age of the configuration, else 1h.",
)
@as_json
def sweep(target: Target, day: date, dump_age: timedelta | None, json_wanted: bool) -> None:
    """Execute the approved plan of REPOSITORY: move its objects (mode `quarantine`) or delete them (mode `delete`).

    After an interruption, the command continues from the ledger. Exit status 3: some objects could not be deleted or
    moved, or the store or Spark failed.
    """
    from retention_assets.assets.runs import sweep_job

    configuration, repository = target.configuration, target.name
    if target.repository.settings.mode == "plan":
        raise ConfigurationError(
            f"{configuration.file}: repositories.{repository}.mode is `plan`, which allows no sweep. Nothing "
            "was deleted. Set `mode: quarantine`, which can be undone, or `mode: delete`."
        )
    if dump_age is not None:
        configuration = configuration.with_dump_age(repository, dump_age)
    require_day(day.isoformat(), "--as-of")
    _require_sweepable(target, day)
    try:
        run_job(configuration, repository, sweep_job(repository), day)
    except ObjectsFailed:  # the sweep ended, so there is a report
        _report(target, day, json_wanted=json_wanted)
        raise
    _report(target, day, json_wanted=json_wanted)


def _require_sweepable(target: Target, day: date) -> None:
    """Refuse a sweep if this is possible without Spark and without a server. The sweep makes these checks again."""
    warehouse, repository = target.warehouse, target.repository
    plan = load_plan(warehouse, target.name, day)
    require_not_stopped(warehouse, target.name)
    require_not_blocked(plan)
    if policy := _policy_of_files(repository):
        require_same_policy(plan, policy.policy_hash)
    single_machine = repository.settings.sweep.single_machine
    unseen = unseen_lease(warehouse, target.name, repository.storage, single_machine=single_machine)
    if refusal := unseen or approval_of(warehouse, repository, plan, utc_now()).refusal:
        raise refusal


def _policy_of_files(repository: Repository) -> Policy | SnapshotPolicy | None:
    """Return the policy of a repository; None if it has the rules of a server. Errors: ConfigurationError."""
    if repository.is_icechunk:
        from retention_assets.icechunk.source.opening import snapshot_policy

        return snapshot_policy(repository)
    from retention_assets.lakefs.source.opening import SERVER, policy_of_files  # this import takes half a second

    return None if SERVER in repository.settings.policy else policy_of_files(repository)


@cli.command(
    short_help="Verify that needed objects exist and deleted objects are gone.",
    epilog=examples("retention verify orchard", "retention verify orchard --as-of 2026-11-01 --json"),
)
@names_argument
@every_option
@day_option(
    "The day under which the result is stored, in UTC. Rules and holds apply as of this day, or as of the day of the "
    "newest swept plan if that day is later. Default: today.",
    today,
)
@as_json
@click.pass_context
def verify(context: click.Context, repositories: tuple[str, ...], every: bool, day: date, json_wanted: bool) -> None:
    """Read all references of REPOSITORIES, list their stores, and compare the listings with references and ledgers.

    With several repositories, or with --all, the command verifies one after the other, and prints a JSON object with
    the checks of each. If a repository fails, the command goes on with the others. Exit status 1: a needed object is
    missing, or another check failed.
    """
    from retention_assets.assets.runs import verify_job

    targets = targets_of(context, repositories, every=every)
    is_single, checks = len(targets) == 1 and not every, dict[str, list[dict[str, Any]]]()

    def check(target: Target, beside: Sequence[str]) -> None:
        run_job(target.configuration, target.name, verify_job(target.name), day, beside=beside)
        checks[target.name] = open_table(target.warehouse, target.name, DELETION_PROOF.name, day).to_pylist()

    def show() -> None:
        lines = [
            f"{'' if is_single else f'{name}: '}passed: {row['check']}: {row['saw']}"
            for name, rows in checks.items()
            for row in rows
        ]
        if checks or (json_wanted and not is_single):
            document = checks[targets[0].name] if is_single else checks
            print_result(document, "\n".join(lines), json_wanted=json_wanted)

    for_each(targets, check, show)


@cli.command(
    short_help="Report the outcomes of the plans of a day.",
    epilog=examples(
        "retention report orchard",
        "retention report orchard --as-of 2026-11-01 --json",
        "retention report orchard --html orchard.html",
    ),
)
@target_argument
@day_option("The day of the plan, in UTC. Default: today; with --html: the newest plan.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write an HTML page with all figures to this file.",
)
@as_json
def report(target: Target, day: date | None, page: Path | None, json_wanted: bool) -> None:
    """Report objects and bytes by outcome, for each plan of the day that was swept.

    With --html, the command writes a page with the plan, its trend, forecast, guards and outcomes. The page needs no
    network, and the command needs no Spark.
    """
    if page is not None and json_wanted:
        raise click.UsageError("--json and --html: choose one.")
    if page is None:
        _report(target, day or today(), json_wanted=json_wanted)
    else:
        _write_page(target, day, page)


def _write_page(target: Target, day: date | None, file: Path) -> None:
    from retention_assets.assets.catalog import CHECKS
    from retention_assets.report.figures import figures_of
    from retention_assets.report.page import page_of

    with working(f"{target.name}: writing the report"):
        figures = figures_of(target.configuration, target.name, day, utc_now())
        content = page_of(figures, CHECKS, program())
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{file}: the report cannot be written: {error.strerror}. Name another file."
        ) from error
    say(f"{target.name}: the report of {figures.plan.day} is in {file}")


def _identity(made: Plan) -> dict[str, str]:
    return {"repository": made.repository, "day": made.day.isoformat(), "plan_hash": made.plan_hash}


@dataclass(frozen=True, slots=True)
class _Results:
    """What the runs of one plan did."""

    plan: Plan
    amounts: Mapping[str, Amount]  # by outcome; see `results_of`
    references: int  # branches and tags that a sweep removed
    ended_early: str | None
    was_cut_off: bool  # whether a later run has not ended
    failure: tuple[str, str | None] | None  # an object that failed, with the reason

    def document(self) -> dict[str, Any]:
        outcomes = {str(outcome): asdict(amount) for outcome, amount in self.amounts.items()}
        ending = {"ended_early": self.ended_early, "was_cut_off": self.was_cut_off, "a_failure": self.failure}
        return {**_identity(self.plan), "outcomes": outcomes, "references_removed": self.references, **ending}

    def show(self) -> None:
        title = f"{self.plan.repository} {self.plan.day}, plan {self.plan.plan_hash}"
        print_amounts(screen, title, "outcome", self.amounts.items())
        if self.references:
            say(f"Branches and tags removed: {self.references:,}")
        if self.ended_early:
            say(f"The last run ended early: {self.ended_early}")
        if self.was_cut_off:
            say("A later run has not ended. If it is no longer running, it was interrupted: run its command again.")
        if self.failure:
            say(f"An object that failed: {self.failure[0]}: {self.failure[1]}")


def _report(target: Target, day: date, *, json_wanted: bool) -> None:
    """Print the results of each plan of the day that was swept. A day can be planned again after a sweep.

    Errors: GuardRefused or TableContractError if no sweep of the day has ended.
    """
    warehouse, repository = target.warehouse, target.name
    command = f"`{program()} sweep {repository} --as-of {day}`"
    sweep = f"Sweep with: {command}. This also continues an interrupted sweep."
    if target.repository.settings.mode == "plan":
        sweep = f"The mode of the repository is `plan`, which allows no sweep: see `{program()} status {repository}`."
    records = newest_of_day(warehouse, repository, day.isoformat())
    current = current_plan(warehouse, repository, day)
    hashes = set(records)
    if records:
        found = warehouse.directories(repository, LEDGERS, day.isoformat())  # also of interrupted sweeps
        hashes |= {one for one in found if _HASH.fullmatch(one)}
    if current and _is_reported(warehouse, current):
        hashes.add(current.plan_hash)
    if not hashes:
        load_plan(warehouse, repository, day)
        raise TableContractError(
            f"{repository}: no sweep of {day} has ended, so there is no report. Nothing was changed. {sweep}"
        )
    plans, unread = _plans_with(target, day, hashes)
    results = [_results_of(target, plan, records.get(plan.plan_hash)) for plan in plans]
    if json_wanted:
        *earlier, newest = (one.document() for one in results)
        print_json({**newest, "earlier_plans": earlier, "unread_plans": unread})
        return
    for one in results:
        one.show()
    for problem in unread:
        say(f"Not shown: {problem}")
    if current is None:
        say(f"There is no current plan of {day}: it was withdrawn or refused. See: {program()} status {repository}")
    elif current.plan_hash not in hashes:
        say(f"The current plan of {day}, {current.plan_hash}, was not swept. {sweep}")


def _plans_with(target: Target, day: date, hashes: Collection[str]) -> tuple[list[Plan], list[str]]:
    """Return the plans with these hashes, oldest first, and why others cannot be read.

    Errors: as `find_plan`, if none can be read.
    """
    plans, errors = [], []
    for one in sorted(hashes):
        try:
            plans.append(find_plan(target.warehouse, target.name, one, day))
        except RetentionError as error:
            errors.append(error)
    if not plans:
        raise errors[0]
    return sorted(plans, key=lambda plan: plan.made_at), [str(error) for error in errors]


def _is_reported(warehouse: Warehouse, plan: Plan) -> bool:
    """Return whether `deletion_report` is of this plan. A sweep that had nothing to do writes only this table."""
    table = DELETION_REPORT.name, plan.day.isoformat()
    found = warehouse.metadata_if_there(plan.repository, *table)
    is_of_plan = found is not None and found.details.plan_hash == plan.plan_hash
    return is_of_plan and warehouse.is_complete(plan.repository, *table)


def _results_of(target: Target, plan: Plan, newest: Mapping[str, Any] | None) -> _Results:
    """Return the results of a plan. `newest`: its newest record; None: no run of the plan has ended."""
    warehouse, of_plan = target.warehouse, (plan.repository, *plan.key)
    # The amounts of the newest record include the results of restores and of interrupted runs.
    amounts = results_of(plan.candidates, amounts_in(newest) if newest else {})
    return _Results(
        plan,
        amounts,
        _removed_references(warehouse, plan) if target.repository.is_icechunk else 0,
        newest.get("ended_early") if newest else None,
        max(sweeps_of(warehouse, *of_plan), default=0) > (newest["fence"] if newest else 0),
        first_failure(warehouse, *of_plan) if amounts.get(Outcome.FAILED, Amount()).objects else None,
    )


def _removed_references(warehouse: Warehouse, plan: Plan) -> int:
    """Return the number of branches and tags that sweeps of the plan removed, without those that were gone before."""
    from retention_assets.icechunk.edits.stored import removed_references  # few need this import

    return removed_references(warehouse, plan)["outcome"].to_pylist().count(Outcome.DELETED)
