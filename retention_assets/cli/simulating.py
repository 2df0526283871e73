"""The command `simulate`: what comes due on the coming days, under the policy of now and under another one."""

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import (
    as_json,
    cli,
    configuration_of,
    day_option,
    examples,
    other_policy,
    print_json,
    program,
    progress,
    screen,
)
from retention_assets.cli.rendering import AS_IT_IS, print_amounts
from retention_assets.config.configuration import Repository
from retention_assets.core.amounts import Amount, human_bytes
from retention_assets.explain.plans import newest_plan
from retention_assets.explain.simulation import Forecast, forecast_of
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.plan import Plan
from retention_assets.state.warehouse import Warehouse

_EXAMPLES = examples(
    "retention simulate orchard",
    "retention simulate orchard --policy new.yaml --days 90",
    "retention simulate field --policy new.yaml --json",
)
_PREFIXES = 12  # rows of a table by prefix
_LONGEST = 3660  # days


@cli.command(short_help="Forecast what comes due, also under another policy.", epilog=_EXAMPLES)
@click.argument("repository")
@other_policy
@click.option("--days", type=click.IntRange(0, _LONGEST), default=30, show_default=True, help="How far to look ahead.")
@day_option("The day whose plan the forecast begins with; default: the newest plan that stands.")
@as_json
@click.pass_context
def simulate(
    context: click.Context,
    repository: str,
    files: tuple[Path, ...],
    days: int,
    given: datetime | None,
    json_wanted: bool,
) -> None:
    """Forecast what comes due in REPOSITORY on each of the coming days, if nobody writes and nothing is swept.

    With --policy, the forecast under that policy is beside the one under the policy of the plan. Reads the warehouse;
    makes no plan and deletes nothing. It takes about 0.2 ms for each listed object and policy.
    """
    configuration = configuration_of(context)
    configured = configuration.repository(repository)
    tables, notes = newest_plan(Warehouse(configuration.warehouse), configured, given.date() if given else None)
    policy = _policy_in(configured, files) if files else None
    with progress.status(f"{repository}: looking {days} days ahead"):
        now = forecast_of(configuration, tables, days)
        other = forecast_of(configuration, tables, days, policy) if policy else None
    for note in notes:
        progress.print(f"warning: {note}", style="yellow", **AS_IT_IS)
    if json_wanted:
        plan = {"plan_hash": tables.plan.plan_hash, "day": tables.plan.day.isoformat()}
        both = {"current": now.document(), "proposed": other and other.document()}
        print_json({"repository": repository, "plan": plan, **both})
        return
    _show(tables.plan, now, other)
    if files and not configured.is_icechunk:
        named = " ".join(f"--policy {shlex.quote(str(file))}" for file in files)
        command = f"{program()} diff {repository} {named} --as-of {tables.plan.day}"
        screen.print(f"Each object of the first day: {command}", **AS_IT_IS)


def _policy_in(repository: Repository, files: Sequence[Path]) -> Policy | SnapshotPolicy:
    """Return the policy of files. Errors: ConfigurationError that names file and key."""
    if repository.is_icechunk:
        from retention_assets.icechunk.source.opening import snapshot_policy_in

        return snapshot_policy_in(files)
    from retention_assets.lakefs.source.opening import policy_in

    return policy_in(files)


def _show(plan: Plan, now: Forecast, other: Forecast | None) -> None:
    title = f"{plan.repository}: what comes due until {now.last}, from the plan of {plan.day}"
    screen.print(Text(title, style="bold"), soft_wrap=True)
    table = Table()
    table.add_column("day", no_wrap=True)
    titles = ("policy of now", "other policy")[: 2 if other else 1]
    for column in titles:
        table.add_column(column, justify="right")
        table.add_column("due by then", justify="right")
    forecasts = [now] if other is None else [now, other]
    for day in sorted({day for one in forecasts for day in one.days} | {now.first}):
        cells = [cell for one in forecasts for cell in (_told(one.total(day)), _told(one.due_until(day)))]
        table.add_row(_name(day, now.first), *cells)
    table.add_row("later", *(cell for one in forecasts for cell in (_told(one.later), "")))
    table.add_row("no day is known", *(cell for one in forecasts for cell in (_told(one.never), "")))
    screen.print(table)
    shown = other or now
    print_amounts(screen, f"by prefix, until {now.last}, {titles[-1]}", "prefix", _by_prefix(shown))


def _name(day: date, first: date) -> str:
    return f"{day}, plan" if day == first else str(day)


def _by_prefix(forecast: Forecast) -> list[tuple[str, int, int | None]]:
    objects, size = Counter[str](), Counter[str]()
    for prefixes in forecast.days.values():
        for name, amount in prefixes.items():
            objects[name] += amount.objects
            size[name] += amount.bytes
    return [(name, objects[name], size[name]) for name, _ in size.most_common(_PREFIXES)]


def _told(amount: Amount) -> str:
    return f"{amount.objects:,}, {human_bytes(amount.bytes)}" if amount.objects else "0"
