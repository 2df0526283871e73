"""The command `diff`: compares two plans, or the day's plan with the effect of another policy."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click
import pyarrow as pa

from retention_assets.cli.group import (
    as_json,
    as_of,
    cli,
    configuration_of,
    day_of,
    examples,
    other_policy,
    print_json,
    program,
    progress,
    screen,
)
from retention_assets.cli.rendering import AS_IT_IS, print_rows
from retention_assets.config.configuration import Configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.errors import ConfigurationError
from retention_assets.state.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from retention_assets.lakefs.sweep.diff import Outlook, Proposal

_AT_ONCE = 1000  # rows per batch that goes to the terminal


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How the result is printed."""

    json: bool
    csv: bool
    limit: int | None
    price: float | None  # per GB (10^9 bytes) and month


@cli.command(
    short_help="Compare two plans, or the plan with another policy.",
    epilog=examples(
        "retention diff orchard --policy new.yaml",
        "retention diff orchard HASH HASH --json",
        "retention diff orchard --policy new.yaml --format csv --limit 100",
    ),
)
@click.argument("repository")
@click.argument("plans", nargs=-1, metavar="[PLAN PLAN]")
@other_policy
@as_of
@click.option("--price", type=click.FloatRange(min=0), help="Of a GB (10^9 bytes) and month; shows money.")
@as_json
@click.option("--format", "form", type=click.Choice(["table", "csv"]), default="table", help="csv: a row per object.")
@click.option("--limit", type=click.IntRange(min=0), help="With csv: at most so many rows, the largest objects first.")
@click.pass_context
def diff(
    context: click.Context,
    repository: str,
    plans: tuple[str, ...],
    files: tuple[Path, ...],
    given: datetime | None,
    price: float | None,
    json_wanted: bool,
    form: str,
    limit: int | None,
) -> None:
    """Compare two plans of REPOSITORY by their hashes, or the day's plan with what the policy in --policy would free.

    Makes no plan and withdraws none. Exit status 1: a guard would refuse a plan under that policy.
    """
    _require_one_question(plans, files, given)
    if json_wanted and form == "csv":
        raise click.UsageError("--json and --format csv: choose one.")
    if limit is not None and form != "csv":
        raise click.UsageError("--limit goes with --format csv.")
    configuration = configuration_of(context)
    known = configuration.repository(repository).settings.price_per_gb_month
    wanted = _Wanted(json_wanted, form == "csv", limit, known if price is None else price)
    if plans:
        _compare(configuration, repository, plans, wanted)
    elif configuration.repository(repository).is_icechunk:
        raise ConfigurationError(
            f"{repository}: another policy is not tried out on an Icechunk repository (--policy). Nothing was read or "
            f"changed. Name two plans: `retention diff {repository} PLAN PLAN`."
        )
    else:
        _propose(configuration, repository, day_of(given), files, wanted)


def _require_one_question(plans: tuple[str, ...], files: tuple[Path, ...], given: datetime | None) -> None:
    if bool(files) == bool(plans) or len(plans) not in (0, 2):
        raise click.UsageError("Name two plans by their hashes, or a policy with --policy FILE.")
    if plans and given:
        raise click.UsageError("--as-of goes with --policy: a plan's hash says its day.")


def _compare(configuration: Configuration, repository: str, plans: tuple[str, ...], wanted: _Wanted) -> None:
    from retention_assets.cli.differences import difference_document, plan_document, show_difference, show_plans
    from retention_assets.lakefs.sweep.diff import compare_plans
    from retention_assets.state.plan import find_plan

    warehouse = Warehouse(configuration.warehouse)
    first, second = (find_plan(warehouse, repository, start) for start in plans)
    with progress.status(f"{repository}: comparing two plans"):
        have_paths = not configuration.repository(repository).is_icechunk
        found = compare_plans(_session(configuration), warehouse, first, second, have_paths=have_paths)
    if wanted.csv:
        _print_csv(found.rows, wanted.limit)
    elif wanted.json:
        both = {"repository": repository, "first": plan_document(first), "second": plan_document(second)}
        print_json({**both, **difference_document(found, wanted.price)})
    else:
        show_plans(screen, first, second)
        show_difference(screen, found, wanted.price)
        _tell_more(f"{repository} {first.plan_hash} {second.plan_hash}")


def _propose(
    configuration: Configuration, repository: str, day: date, files: tuple[Path, ...], wanted: _Wanted
) -> None:
    """Print what the policy in `files` would change. Then raise GuardRefused if a guard would refuse such a plan."""
    from retention_assets.cli.differences import outlook_document, require_no_refusal, show_outlook, warnings_of

    with progress.status(f"{repository} {day}: judging by the other policy"):
        found, proposal = outlook_of(configuration, repository, day, files)
    if wanted.csv:
        _print_csv(found.difference.rows, wanted.limit)
    elif wanted.json:
        print_json(outlook_document(found, proposal, wanted.price))
    else:
        show_outlook(screen, found, proposal, wanted.price)
        policies = " ".join(f"--policy {shlex.quote(str(file))}" for file in files)
        _tell_more(f"{repository} {policies} --as-of {day}")
    for line in warnings_of(found):
        progress.print(line, style="yellow", **AS_IT_IS)
    require_no_refusal(found, proposal.plan)


def outlook_of(
    configuration: Configuration, repository: str, day: date, files: Sequence[Path]
) -> tuple["Outlook", "Proposal"]:
    """Return what the policy in `files` would change in the plan of `day`, and the proposal. Errors: as `outlook`."""
    from retention_assets.lakefs.source.opening import policy_in
    from retention_assets.lakefs.sweep.diff import Proposal, outlook
    from retention_assets.repositories.other_repositories import OtherRepositories
    from retention_assets.state.plan import load_plan

    warehouse, policy = Warehouse(configuration.warehouse), policy_in(files)
    plan = load_plan(warehouse, repository, day)
    proposal = Proposal(configuration.repository(repository), policy, plan, utc_now(), str(uuid4()))
    spark, clock, others = _session(configuration), (lambda: proposal.now), configuration.others(repository)
    elsewhere = OtherRepositories(spark, warehouse, proposal.repository, others, proposal.run_id, clock)
    return outlook(spark, warehouse, proposal, elsewhere.for_plan()), proposal


def _session(configuration: Configuration) -> "SparkSession":
    from retention_assets.core.sessions import started

    return started(configuration.spark)


def _print_csv(rows: "DataFrame", limit: int | None) -> None:
    shown = rows if limit is None else rows.limit(limit)
    print_rows("", _batches(shown), shown.columns, "csv", limit)


def _batches(rows: "DataFrame") -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches, so that they are never all in memory."""
    for group in batched(rows.toLocalIterator(), _AT_ONCE):
        yield pa.RecordBatch.from_pylist([row.asDict() for row in group])


def _tell_more(of_what: str) -> None:
    screen.print(f"Each object: {program()} diff {of_what} --format csv", **AS_IT_IS)
