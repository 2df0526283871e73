"""The commands from a plan to its proof: `approve`, `withdraw`, `sweep`, `verify` and `report`."""

from dataclasses import asdict
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from retention_assets.cli.group import (
    as_json,
    as_of,
    cli,
    configuration_of,
    day_of,
    examples,
    print_json,
    program,
    progress,
    run_job,
    screen,
)
from retention_assets.cli.rendering import AS_IT_IS, human_bytes, print_amounts
from retention_assets.config.configuration import Configuration
from retention_assets.config.durations import parse_span
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount
from retention_assets.errors import ConfigurationError, StoreError, TableContractError
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import a_failure, results_of, sweeps_of
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import DELETION_REPORT


@cli.command(
    short_help="Approve a plan by its hash.",
    epilog=examples("retention approve orchard HASH", "retention approve orchard HASH --as-of 2026-11-01 --json"),
)
@click.argument("repository")
@click.argument("plan_hash", metavar="HASH")
@as_of
@as_json
@click.pass_context
def approve(context: click.Context, repository: str, plan_hash: str, given: datetime | None, json_wanted: bool) -> None:
    """Approve the plan of REPOSITORY that has this HASH, so that a sweep may carry it out.

    The approval is for the settings of now: a sweep in another mode, or with another grace period, is refused.
    """
    from retention_assets.state.approval import approve as approve_plan
    from retention_assets.state.approval import approved_terms, person

    configuration = configuration_of(context)
    configured = configuration.repository(repository)
    life, terms = configured.settings.approval.life, approved_terms(configured)
    warehouse, by = Warehouse(configuration.warehouse), person()
    made = approve_plan(warehouse, repository, day_of(given), plan_hash, by, utc_now(), life, terms)
    amount = made.candidates
    if json_wanted:
        until = (made.made_at + life).isoformat()
        print_json({**_named(made), "approved_by": by, "until": until, **asdict(amount), "settings": dict(terms)})
        return
    screen.print(
        f"Approved by {by}: {amount.objects:,} objects, {human_bytes(amount.bytes)}, of {repository} as of {made.day}; "
        f"holds until {made.made_at + life:%Y-%m-%d %H:%M} UTC, under these settings:\n"
        + "".join(f"  {name}: {value}\n" for name, value in terms.items())
        + f"Carry it out: {program()} sweep {repository} --as-of {made.day}",
        **AS_IT_IS,
    )


@cli.command(
    short_help="Take the approval of a plan back.",
    epilog=examples("retention withdraw orchard", "retention withdraw orchard --as-of 2026-11-01"),
)
@click.argument("repository")
@as_of
@as_json
@click.pass_context
def withdraw(context: click.Context, repository: str, given: datetime | None, json_wanted: bool) -> None:
    """Take the approval of REPOSITORY's plan back; a budget does not give it again. A sweep at work goes on."""
    from retention_assets.state.approval import person, withdraw_approval

    configuration = configuration_of(context)
    configuration.repository(repository)
    by = person()
    made = withdraw_approval(Warehouse(configuration.warehouse), repository, day_of(given), by, utc_now())
    if json_wanted:
        print_json({**_named(made), "withdrawn_by": by})
        return
    screen.print(
        f"Withdrawn by {by}: the approval of {made.plan_hash}, of {repository} as of {made.day}.\n"
        f"A sweep that is at work already goes on: {program()} stop {repository}",
        **AS_IT_IS,
    )


@cli.command(
    short_help="Carry out the approved plan.",
    epilog=examples("retention sweep orchard", "retention sweep orchard --as-of 2026-11-01 --dump-age 12h"),
)
@click.argument("repository")
@as_of
@click.option(
    "--dump-age",
    "dump_age",
    metavar="DURATION",
    help="Sweep from a dump that is up to so old, such as 12h. Default: source.dump_age of the configuration, else 1h.",
)
@as_json
@click.pass_context
def sweep(
    context: click.Context, repository: str, given: datetime | None, dump_age: str | None, json_wanted: bool
) -> None:
    """Carry out the approved plan of REPOSITORY: its mode is `quarantine` or `delete`."""
    from retention_assets.assets.jobs import sweep_job

    configuration = configuration_of(context)
    if configuration.repository(repository).settings.mode == "plan":
        raise ConfigurationError(
            f"{configuration.file}: repositories.{repository}.mode is `plan`: there is nothing to carry out. Nothing "
            "was deleted. Set `mode: quarantine`, which can be undone, or `mode: delete`."
        )
    if dump_age is not None:
        configuration = configuration.with_dump_age(repository, _dump_age(dump_age))
    day = day_of(given)
    run_job(configuration, sweep_job(repository), day)
    failed, left = _report(configuration, repository, day, json_wanted=json_wanted)
    if failed:
        rest = f"{left:,} were not tried after that" if left else "the rest of the plan was carried out"
        raise StoreError(
            f"{repository} {day}: {failed:,} objects failed to be deleted; {rest}. Why: "
            f"`retention show {repository} deletion_report --as-of {day} --format csv`. "
            f"Then try those again: `retention sweep {repository} --as-of {day}`."
        )


def _dump_age(written: str) -> timedelta:
    try:
        return parse_span(written)
    except ConfigurationError as error:
        raise ConfigurationError(f"--dump-age: {error}") from error


@cli.command(
    short_help="Prove what was done.",
    epilog=examples("retention verify orchard", "retention verify orchard --as-of 2026-11-01 --json"),
)
@click.argument("repository")
@as_of
@as_json
@click.pass_context
def verify(context: click.Context, repository: str, given: datetime | None, json_wanted: bool) -> None:
    """Read every HEAD and active commit of REPOSITORY again, list it again, and hold both against the ledgers.

    Exit status 1 when anything that is held does not exist, or anything else does not fit.
    """
    from retention_assets.assets.jobs import verify_job
    from retention_assets.cli.tables import open_table
    from retention_assets.definitions import PROOF

    configuration = configuration_of(context)
    configuration.repository(repository)
    day = day_of(given)
    run_job(configuration, verify_job(repository), day)
    rows = open_table(Warehouse(configuration.warehouse), repository, PROOF, day).to_pylist()
    if json_wanted:
        print_json(rows)
        return
    for row in rows:
        screen.print(f"holds: {row['check']}: {row['saw']}", **AS_IT_IS)


@cli.command(
    short_help="Report what became of a plan.",
    epilog=examples(
        "retention report orchard",
        "retention report orchard --as-of 2026-11-01 --json",
        "retention report orchard --html orchard.html",
    ),
)
@click.argument("repository")
@as_of
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures as one page.")
@as_json
@click.pass_context
def report(
    context: click.Context, repository: str, given: datetime | None, page: Path | None, json_wanted: bool
) -> None:
    """Report what became of the plan of REPOSITORY for a day.

    With --html, write a page with the plan, its trend, forecast and guards, and what became of the plan. The page needs
    no network. Without --as-of, it has the newest plan. It is made from the warehouse, without Spark.
    """
    configuration = configuration_of(context)
    configuration.repository(repository)
    if page is not None and json_wanted:
        raise click.UsageError("--json and --html: choose one.")
    if page is None:
        _report(configuration, repository, day_of(given), json_wanted=json_wanted)
    else:
        _write_page(configuration, repository, given.date() if given else None, page)


def _write_page(configuration: Configuration, repository: str, day: date | None, file: Path) -> None:
    from retention_assets.assets.descriptions import CHECKS
    from retention_assets.report.figures import figures_of
    from retention_assets.report.page import page_of

    with progress.status(f"{repository}: making the report"):
        figures = figures_of(configuration, repository, day, utc_now())
        content = page_of(figures, CHECKS, program())
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{file}: the report cannot be written: {error.strerror}. Name another file."
        ) from error
    screen.print(f"{repository}: the report of {figures.plan.day} is in {file}", **AS_IT_IS)


def _named(made: Any) -> dict[str, str]:
    return {"repository": made.repository, "day": made.day.isoformat(), "plan_hash": made.plan_hash}


def _report(configuration: Configuration, repository: str, day: date, *, json_wanted: bool) -> tuple[int, int]:
    """Print the results of the day's plan. Return how many objects failed, and how many were not tried."""
    from retention_assets.cli.tables import open_table, without_references
    from retention_assets.state.plan import load_plan
    from retention_assets.state.records import newest_of_plan

    warehouse = Warehouse(configuration.warehouse)
    made = load_plan(warehouse, repository, day)
    plan = repository, day.isoformat(), made.plan_hash
    newest = newest_of_plan(warehouse, *plan)
    is_complete = warehouse.is_complete(repository, DELETION_REPORT.name, day.isoformat())
    if newest is None and not is_complete:
        raise TableContractError(
            f"{repository}: no sweep of {day} came to its end, so there is no report. What was begun, if anything, is "
            f"in the ledger and is not done twice. Make one: `retention sweep {repository} --as-of {day}`."
        )
    outcomes = newest["outcomes"] if newest else {}  # of the whole ledger, also after a restore or an interrupted run
    amounts = results_of(made.candidates, {outcome: Amount(**of) for outcome, of in outcomes.items()})
    references = 0
    if (
        is_complete
        and warehouse.metadata(repository, DELETION_REPORT.name, day).notes.get("plan_hash") == made.plan_hash
    ):
        reported = open_table(warehouse, repository, DELETION_REPORT.name, day)
        references = reported.num_rows - without_references(reported).num_rows
    ended_early = newest.get("ended_early") if newest else None
    was_cut_off = max(sweeps_of(warehouse, *plan), default=0) > (newest["fence"] if newest else 0)
    failed = amounts.get(Outcome.FAILED, Amount()).objects
    failure = a_failure(warehouse, *plan) if failed else None
    if json_wanted:
        outcomes = {str(outcome): asdict(amount) for outcome, amount in amounts.items()}
        ending = {"ended_early": ended_early, "was_cut_off": was_cut_off, "a_failure": failure}
        print_json({**_named(made), "outcomes": outcomes, "references_removed": references, **ending})
        return failed, amounts["unattempted"].objects
    rows = [(outcome, amount.objects, amount.bytes) for outcome, amount in amounts.items()]
    print_amounts(screen, f"{repository} {day}, plan {made.plan_hash}", "outcome", rows)
    if references:
        screen.print(f"Branches and tags removed: {references:,}", **AS_IT_IS)
    if ended_early:
        screen.print(f"The last run was ended: {ended_early}", **AS_IT_IS)
    if was_cut_off:
        screen.print("A run was cut off after that: the next one goes on with what it did.", **AS_IT_IS)
    if failure:
        screen.print(f"One that failed: {failure[0]}: {failure[1]}", **AS_IT_IS)
    return failed, amounts["unattempted"].objects
