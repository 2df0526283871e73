"""The commands. Exit status: 0 done, 1 a guard refused, 2 usage or configuration, 3 a source or store failed."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from retention_assets.assets.workbench import FULL, utc_now
from retention_assets.cli.rendering import column_order, human_bytes, print_amounts, print_rows
from retention_assets.config import Configuration, load_configuration
from retention_assets.errors import RetentionError
from retention_assets.stores.warehouse import Warehouse
from retention_assets.tables import DELETION_REPORT, TABLES

_DAY = click.DateTime(["%Y-%m-%d"])
_FORMS = click.Choice(["table", "csv", "json"])
_SHOWN = 20  # rows of a table on a screen, when nobody says how many
_DEMO_DAY = date(2026, 11, 1)

progress = Console(stderr=True)  # progress and logs; results go to standard output
screen = Console()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--config", "file", type=click.Path(path_type=Path), help="retention.yaml; or set RETENTION_CONFIG.")
@click.pass_context
def cli(context: click.Context, file: Path | None) -> None:
    """Decide what versioned data lakes still keep, show what would go, delete it on approval, prove what was done."""
    context.obj = file


def _configuration(context: click.Context) -> Configuration:
    """Return the configuration: --config, RETENTION_CONFIG, ./retention.yaml, or else the demo's."""
    from retention_assets.definitions import DEMO

    here = Path("retention.yaml")
    named = context.obj or os.environ.get("RETENTION_CONFIG") or (here if here.is_file() else DEMO)
    return load_configuration(Path(named))


def _day(given: datetime | None) -> date:
    return given.date() if given else datetime.now(UTC).date()


as_of = click.option("--as-of", "given", type=_DAY, help="The day that thresholds count from (UTC); default today.")
as_json = click.option("--json", "json_wanted", is_flag=True, help="One JSON document on standard output.")


@cli.command()
@click.argument("repositories", nargs=-1)
@as_json
@click.pass_context
def lint(context: click.Context, repositories: tuple[str, ...], json_wanted: bool) -> None:
    """Check the configuration and the policies of all REPOSITORIES, or of those named."""
    from retention_assets.cli.linting import findings_of

    configuration = _configuration(context)
    names = repositories or tuple(configuration.repositories)
    found = {name: findings_of(configuration.repository(name)) for name in names}
    if json_wanted:
        click.echo(json.dumps({name: [asdict(one) for one in findings] for name, findings in found.items()}, indent=2))
        return
    for name, findings in found.items():
        for finding in findings:
            screen.print(f"{name}: {finding.severity}: {finding.rule_id}: {finding.message}", soft_wrap=True)
        screen.print(f"{name}: {len(findings)} findings" if findings else f"{name}: nothing to complain of")


@cli.command()
@click.argument("repository")
@as_of
@as_json
@click.option("--full", is_flag=True, help="Read every range again, whatever earlier runs read.")
@click.pass_context
def plan(context: click.Context, repository: str, given: datetime | None, json_wanted: bool, full: bool) -> None:
    """Plan what may be deleted from REPOSITORY, and show it. Deletes nothing."""
    _plan(_configuration(context), repository, _day(given), json_wanted=json_wanted, full=full)


def _plan(
    configuration: Configuration, repository: str, day: date, *, json_wanted: bool = False, full: bool = False
) -> None:
    from retention_assets.cli.runs import run_job
    from retention_assets.cli.summaries import summary_of
    from retention_assets.definitions import plan_job
    from retention_assets.sweep.plan import load_plan

    configuration.repository(repository)
    run = run_job(configuration, plan_job(repository), day, progress, {FULL: "true"} if full else None)
    made = load_plan(Warehouse(configuration.warehouse), repository, day)
    summary = summary_of(configuration, repository, day)
    if json_wanted:
        click.echo(json.dumps({**made.document(), "summary": summary.document()}, indent=2))
        return
    for warning in made.warnings:
        progress.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    summary.show(screen, made)
    screen.print(f"plan {made.plan_hash}", highlight=False)
    screen.print(_next_steps(made, run.home), highlight=False, soft_wrap=True)


def _next_steps(made: Any, home: str) -> str:
    day, name = made.day, made.repository
    ui = f"DAGSTER_HOME={home} dagster dev" if home else "make dev"
    return (
        f"\nEach object: retention show {name} deletion_candidates --as-of {day}"
        f"\nApprove:     retention approve {name} {made.plan_hash} --as-of {day}"
        f"\nThe run:     {ui}"
    )


@cli.command()
@click.argument("repository")
@click.argument("table", type=click.Choice(sorted(TABLES)))
@as_of
@click.option("--format", "form", type=_FORMS, default="table", help="How to print it.")
@click.option("--limit", type=click.IntRange(min=0), help=f"At most so many rows; a table on a screen has {_SHOWN}.")
@click.pass_context
def show(
    context: click.Context, repository: str, table: str, given: datetime | None, form: str, limit: int | None
) -> None:
    """Show one TABLE of REPOSITORY as it was made for a day."""
    from retention_assets.cli.tables import open_table

    configuration = _configuration(context)
    configuration.repository(repository)
    rows = open_table(Warehouse(configuration.warehouse), repository, table, _day(given))
    most = _SHOWN if limit is None and form == "table" else limit
    print_rows(f"{repository}.{table}", rows.to_batches(), column_order(rows.column_names), form, most)
    if form == "table" and most is not None and rows.num_rows > most:
        progress.print(f"{rows.num_rows - most:,} more rows: --limit {rows.num_rows}, or --format csv", style="dim")


@cli.command()
@click.argument("repository")
@click.argument("plan_hash", metavar="HASH")
@as_of
@click.pass_context
def approve(context: click.Context, repository: str, plan_hash: str, given: datetime | None) -> None:
    """Approve the plan of REPOSITORY that has this HASH, so that a sweep may carry it out."""
    from retention_assets.sweep.approval import approve as approve_plan

    configuration = _configuration(context)
    configuration.repository(repository)
    made = approve_plan(Warehouse(configuration.warehouse), repository, _day(given), plan_hash, utc_now())
    amount = made.candidates
    screen.print(
        f"Approved: {amount.objects:,} objects, {human_bytes(amount.bytes)}, of {repository} as of {made.day}.\n"
        f"Carry it out: retention sweep {repository} --as-of {made.day}",
        highlight=False,
    )


@cli.command()
@click.argument("repository")
@as_of
@click.pass_context
def sweep(context: click.Context, repository: str, given: datetime | None) -> None:
    """Carry out the approved plan of REPOSITORY, if its mode is `delete`; in mode `plan`, report the totals."""
    from retention_assets.cli.runs import run_job
    from retention_assets.definitions import sweep_job

    configuration = _configuration(context)
    configured = configuration.repository(repository)
    day = _day(given)
    run_job(configuration, sweep_job(repository), day, progress)
    _report(configuration, repository, day)
    if configured.settings.mode == "plan":
        screen.print(
            f"The mode of {repository} is `plan`: nothing was deleted. "
            f"To delete, set `mode: delete` in {configuration.file}.",
            soft_wrap=True,
        )


@cli.command()
@click.argument("repository")
@as_of
@click.pass_context
def report(context: click.Context, repository: str, given: datetime | None) -> None:
    """Report what became of the plan of REPOSITORY for a day."""
    configuration = _configuration(context)
    configuration.repository(repository)
    _report(configuration, repository, _day(given))


def _report(configuration: Configuration, repository: str, day: date) -> None:
    from retention_assets.cli.tables import amounts_by, open_table
    from retention_assets.sweep.plan import load_plan

    warehouse = Warehouse(configuration.warehouse)
    made = load_plan(warehouse, repository, day)
    ledger = open_table(warehouse, repository, DELETION_REPORT.name, day)
    rows = amounts_by(ledger, "outcome")
    tried = sum(objects for _, objects, _ in rows)
    left = made.candidates.objects - tried, made.candidates.bytes - sum(size for *_, size in rows)
    print_amounts(screen, f"{repository} {day}, plan {made.plan_hash[:12]}", "outcome", [*rows, ("unattempted", *left)])


@cli.command()
@click.option("--prepare", "only_prepare", is_flag=True, help="Only lay out the sample.")
def demo(only_prepare: bool) -> None:
    """Plan the embedded sample repository as of 2026-11-01; nothing else needs to run."""
    from retention_assets.definitions import DEMO
    from retention_assets.stores.sample import place_sample

    configuration = load_configuration(DEMO)
    for name, repository in configuration.repositories.items():
        place_sample(DEMO.parent / name, Path(repository.storage.removeprefix("file://")))
    if only_prepare:
        return
    for name in configuration.repositories:
        _plan(configuration, name, _DEMO_DAY)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error of ours is one clear text on standard error and its exit status."""
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="retention", standalone_mode=True)
    except RetentionError as error:
        progress.print(f"error: {error}", style="red", soft_wrap=True, highlight=False, markup=False)
        sys.exit(error.exit_code)
