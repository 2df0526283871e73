"""The command `status`: all repositories on one screen."""

from collections.abc import Sequence
from datetime import datetime

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import as_json, cli, configuration_of, examples, print_json, program, screen
from retention_assets.cli.rendering import AS_IT_IS, human_bytes, human_cost
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount
from retention_assets.explain.status import RepositoryStatus, statuses

_EXAMPLES = examples(
    "retention status",
    "retention status orchard",
    "retention status --json",
)
_HOURS_SHOWN = 48  # an age is shown in hours up to this, then in days
_BARS = "▁▂▃▄▅▆▇█"


@cli.command(short_help="Show how all repositories stand.", epilog=_EXAMPLES)
@click.argument("repositories", nargs=-1)
@as_json
@click.pass_context
def status(context: click.Context, repositories: tuple[str, ...], json_wanted: bool) -> None:
    """Show how all REPOSITORIES stand, or those named: plan, approval, last sweep, quarantine, what needs a person.

    Reads only the warehouse.
    """
    configuration, now = configuration_of(context), utc_now()
    found = statuses(configuration, repositories or tuple(configuration.repositories), now)
    if json_wanted:
        documents = [_with_program(one.document()) for one in found]
        print_json(documents)
        return
    screen.print(_table(found, now))
    for one in found:
        if one.plan:
            screen.print(f"{one.repository}: plan {one.plan.plan_hash}", **AS_IT_IS)
        for need in one.needs:
            screen.print(f"{one.repository}: {need.format(program=program())}", style="yellow", **AS_IT_IS)
    if not any(one.needs for one in found):
        screen.print("No action is needed.", **AS_IT_IS)


def sparkline(values: Sequence[int]) -> str:
    """Return a bar for each value, from zero to the highest."""
    highest = max(values, default=0)
    return "".join(_BARS[value * (len(_BARS) - 1) // highest] if highest else _BARS[0] for value in values)


def _with_program(document: dict[str, object]) -> dict[str, object]:
    needs = document["needs"]
    assert isinstance(needs, list)
    return {**document, "needs": [str(need).format(program=program()) for need in needs]}


def _table(found: Sequence[RepositoryStatus], now: datetime) -> Table:
    """Return a table with a row for each repository. It fits a screen of 80 columns; longer texts are folded."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 1, 0))
    for column in ("repository", "plan", "would free", "last sweep", "in quarantine"):
        table.add_column(column, overflow="fold")
    for one in found:
        cells = (f"{one.repository}\n{one.mode}", _plan(one, now), _frees(one), _sweep(one), _quarantine(one))
        table.add_row(*map(Text, cells))
    return table


def _plan(one: RepositoryStatus, now: datetime) -> str:
    if one.plan is None:
        return "none"
    hours = (now - one.plan.made_at).total_seconds() / 3600
    age = f"{hours:,.0f} h ago" if hours < _HOURS_SHOWN else f"{hours / 24:,.0f} d ago"
    by = f"\nby {one.approved_by}" if one.approved_by else ""
    return f"{one.plan.day}\n{age}\n{one.approval}{by}"


def _frees(one: RepositoryStatus) -> str:
    if one.plan is None:
        return ""
    lines = [_told(one.candidates)]
    if one.monthly_cost is not None:
        lines.append(f"{human_cost(one.monthly_cost)} a month")
    if one.waiting.objects:
        lines.append(f"{_told(one.waiting)} wait")
    return "\n".join([*lines, sparkline([size for _, size in one.trend])])


def _sweep(one: RepositoryStatus) -> str:
    if one.running:
        return f"running\n{one.running}"
    if one.sweep is None:
        return "none"
    outcomes = [f"{amount.objects:,} {outcome}" for outcome, amount in one.sweep.outcomes.items() if amount.objects]
    return "\n".join([f"{one.sweep.ended:%Y-%m-%d}", *outcomes])


def _quarantine(one: RepositoryStatus) -> str:
    return "\n".join(
        f"{_told(Amount(held.objects, held.bytes))}\nuntil {held.until:%Y-%m-%d}" for held in one.quarantine
    )


def _told(amount: Amount) -> str:
    return f"{amount.objects:,}, {human_bytes(amount.bytes)}"
