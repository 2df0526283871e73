"""The commands that decide nothing yet: `lint`, `plan`, `show`, and `demo`, which plans the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime
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
from retention_assets.cli.rendering import AS_IT_IS, column_order, print_rows
from retention_assets.config.configuration import Configuration, Repository, load_configuration
from retention_assets.errors import ConfigurationError
from retention_assets.policy.lint import Finding
from retention_assets.state.warehouse import Warehouse
from retention_assets.tables import SHOWN

_FORMS = click.Choice(["table", "csv", "json"])
_SHOWN = 20  # rows of a table on a screen without --limit
_DEMO_DAY = date(2026, 11, 1)


@cli.command(
    short_help="Check configuration and policies.", epilog=examples("retention lint", "retention lint orchard --json")
)
@click.argument("repositories", nargs=-1)
@as_json
@click.pass_context
def lint(context: click.Context, repositories: tuple[str, ...], json_wanted: bool) -> None:
    """Check the configuration and the policies of all REPOSITORIES, or of those named. Exit status 2 on errors."""
    from retention_assets.cli.linting import findings_of

    configuration = configuration_of(context)
    names = repositories or tuple(configuration.repositories)
    found = {name: findings_of(configuration.repository(name), configuration.others(name)) for name in names}
    if json_wanted:
        print_json({name: [asdict(one) for one in findings] for name, findings in found.items()})
    else:
        _print_findings(found)
    if any(finding.severity == "error" for findings in found.values() for finding in findings):
        context.exit(ConfigurationError.exit_code)


def _print_findings(found: Mapping[str, Sequence[Finding]]) -> None:
    for name, findings in found.items():
        for finding in findings:
            screen.print(f"{name}: {finding.severity}: {finding.rule_id}: {finding.message}", **AS_IT_IS)
        errors = sum(finding.severity == "error" for finding in findings)
        amounts = f"{errors} errors, {len(findings) - errors} warnings"
        screen.print(f"{name}: {amounts if findings else 'no issues found'}", **AS_IT_IS)
        if not errors:
            screen.print(f"Next: {program()} plan {name}", **AS_IT_IS)


@cli.command(
    short_help="Plan what may be deleted, and show it.",
    epilog=examples("retention plan orchard", "retention plan orchard --as-of 2026-11-01 --json"),
)
@click.argument("repository")
@as_of
@as_json
@click.option("--full", is_flag=True, help="Read every range again, whatever earlier runs read.")
@click.pass_context
def plan(context: click.Context, repository: str, given: datetime | None, json_wanted: bool, full: bool) -> None:
    """Plan what may be deleted from REPOSITORY, and show it. Deletes nothing."""
    _plan(configuration_of(context), repository, day_of(given), json_wanted=json_wanted, full=full)


def _plan(
    configuration: Configuration, repository: str, day: date, *, json_wanted: bool = False, full: bool = False
) -> None:
    from retention_assets.assets.jobs import plan_job
    from retention_assets.assets.options import FULL
    from retention_assets.cli.summaries import summary_of
    from retention_assets.report.page import page_of_plan
    from retention_assets.state.plan import load_plan

    configuration.repository(repository)
    run = run_job(configuration, plan_job(repository), day, {FULL: "true"} if full else None)
    made = load_plan(Warehouse(configuration.warehouse), repository, day)
    summary = summary_of(configuration, repository, day)
    for warning in made.warnings:
        progress.print(f"warning: {warning}", style="yellow", **AS_IT_IS)
    if json_wanted:
        print_json({**made.document(), "summary": summary.document()})
        return
    summary.show(screen, made)
    screen.print(f"plan {made.plan_hash}", **AS_IT_IS)
    page = Warehouse(configuration.warehouse).location(*page_of_plan(made))
    screen.print(f"{_next_steps(made, run.ui)}\nThe report:  {page}", **AS_IT_IS)


def _next_steps(made: Any, ui: str) -> str:
    day, name = made.day, made.repository
    table = "due_objects" if made.first_wait_ends else "deletion_candidates"
    approve = f"{program()} approve {name} {made.plan_hash} --as-of {day}"
    if made.first_wait_ends and not made.candidates.objects:
        approve = f"nothing to approve yet; plan again after {made.first_wait_ends:%Y-%m-%d %H:%M} UTC"
    elif not made.candidates.objects:
        approve = f"nothing to approve: nothing may be deleted. Plan again tomorrow, or look: {program()} status"
    return f"\nEach object: {program()} show {name} {table} --as-of {day}\nApprove:     {approve}\nThe run:     {ui}"


@cli.command(
    short_help="Show one table of a day.",
    epilog=examples(
        "retention show orchard due_objects --limit 50",
        "retention show orchard deletion_candidates --format csv",
        more=f"Tables: {', '.join(sorted(SHOWN))}.",
    ),
)
@click.argument("repository")
@click.argument("table", metavar="TABLE", type=click.Choice(sorted(SHOWN)))
@as_of
@click.option("--format", "form", type=_FORMS, default="table", help="How to print it.")
@click.option("--limit", type=click.IntRange(min=0), help=f"At most so many rows; a table on a screen has {_SHOWN}.")
@click.pass_context
def show(
    context: click.Context, repository: str, table: str, given: datetime | None, form: str, limit: int | None
) -> None:
    """Show one TABLE of REPOSITORY as it was made for a day."""
    from retention_assets.cli.tables import open_table

    configuration = configuration_of(context)
    configuration.repository(repository)
    rows = open_table(Warehouse(configuration.warehouse), repository, table, day_of(given))
    most = _SHOWN if limit is None and form == "table" else limit
    print_rows(f"{repository}.{table}", rows.to_batches(), column_order(rows.column_names), form, most)
    if form == "table" and most is not None and rows.num_rows > most:
        progress.print(f"{rows.num_rows - most:,} more rows: --limit {rows.num_rows}, or --format csv", style="dim")


@cli.command(short_help="Plan the embedded samples.", epilog=examples("retention demo", "retention demo --prepare"))
@click.option("--prepare", "only_prepare", is_flag=True, help="Only lay out the samples.")
def demo(only_prepare: bool) -> None:
    """Plan the embedded sample repositories as of 2026-11-01; nothing else needs to run."""
    from retention_assets.demo.placing import lay_out_demo

    file = lay_out_demo()
    configuration = load_configuration(file)
    placed = [name for name, repository in configuration.repositories.items() if _is_placed(file.parent, repository)]
    for name in () if only_prepare else placed:
        _plan(configuration, name, _DEMO_DAY)


def _is_placed(samples: Path, repository: Repository) -> bool:
    """Create the files of a sample repository. Return whether they exist; if not, print the reason."""
    from retention_assets.demo.field import NEEDED, can_make_field, make_field
    from retention_assets.demo.sample import place_sample

    target = Path(repository.storage.removeprefix("file://"))
    if not repository.is_icechunk:
        place_sample(samples / repository.name, target)
    elif can_make_field():
        make_field(target)
    else:
        screen.print(f"{repository.name}: left out, since {' and '.join(NEEDED)} are not installed.", **AS_IT_IS)
        return False
    return True
