"""The commands that read only the warehouse: `status`, `explain` and `simulate`."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from retention_assets.cli.group import (
    Target,
    as_json,
    cli,
    configuration_of,
    day_option,
    examples,
    has_all_characters,
    names_argument,
    other_policy,
    policy_options,
    print_json,
    program,
    say,
    screen,
    target_argument,
    warn,
    with_given,
    working,
)
from retention_assets.cli.rendering import format_amount, print_amounts, wait_of
from retention_assets.config.configuration import Repository
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount, counted, human_amount, human_bytes, human_cost, sum_of
from retention_assets.explain.explanations import GONE, RESTORED, CommitState, Explanation, ObjectExplanation, Removal
from retention_assets.explain.plans import newest_plan
from retention_assets.explain.simulation import Forecast, forecast_of
from retention_assets.explain.status import RepositoryStatus, statuses
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.policy.rules import Policy
from retention_assets.policy.snapshots import SnapshotPolicy
from retention_assets.state.plan import Plan

_HOURS_SHOWN = 48  # an age is shown in hours up to this, then in days
_BARS, _HEIGHTS = "▁▂▃▄▅▆▇█", "12345678"


# ---- status


@cli.command(
    short_help="Show the state of all repositories.",
    epilog=examples("retention status", "retention status orchard", "retention status --json"),
)
@names_argument
@as_json
@click.pass_context
def status(context: click.Context, repositories: tuple[str, ...], json_wanted: bool) -> None:
    """Show the plan, approval, last sweep and quarantine of REPOSITORIES, and the actions that they need.

    Default: all repositories. The command reads only the warehouse.
    """
    configuration, now = configuration_of(context), utc_now()
    found = statuses(configuration, repositories or tuple(configuration.repositories), now)
    if json_wanted:
        print_json([{**one.document(), "needs": _needs(one)} for one in found])
        return
    screen.print(_table(found, now))
    for one in found:
        if one.plan:
            say(f"{one.repository}: plan {one.plan.plan_hash}")
        for need in _needs(one):
            say(f"{one.repository}: {need}", style="yellow")
        for line in _waits(one, now):
            say(f"{one.repository}: {line}")
    if not any(one.needs for one in found):
        say("No action is needed.")


def _needs(one: RepositoryStatus) -> list[str]:
    return [with_given(need) for need in one.needs_with(program())]


def _waits(one: RepositoryStatus, now: datetime) -> Iterator[str]:
    """Yield a sentence for the objects that wait until they have settled, and for those that wait in quarantine."""
    if one.waiting.objects and one.plan and one.plan.first_wait_ends:
        yield wait_of(one.plan)
    for held in one.quarantine:
        if held.all_due > now:  # else a required action names them
            amount, until = human_amount(Amount(held.objects, held.bytes)), f"{held.all_due:%Y-%m-%d %H:%M} UTC"
            yield f"In quarantine: {amount}, of the plan of {held.day}. `purge` may delete them after {until}."


def sparkline(values: Sequence[int]) -> str:
    """Return a bar for each value. Its height is relative to the highest value.

    If the encoding of standard output has no bars, each value is a digit from 1 to 8.
    """
    bars, highest = _BARS if has_all_characters() else _HEIGHTS, max(values, default=0)
    return "".join(bars[value * (len(bars) - 1) // highest] if highest else bars[0] for value in values)


def _table(found: Sequence[RepositoryStatus], now: datetime) -> Table:
    """Return a table with a row for each repository. The table fits 80 columns, and folds longer texts."""
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
    by = f"\nby {one.approved_by}" if one.approved_by else ""
    return f"{one.plan.day}\n{_age(one.plan.made_at, now)} ago\n{one.approval}{by}"


def _age(made_at: datetime, now: datetime) -> str:
    hours = (now - made_at).total_seconds() / 3600
    return f"{hours:,.0f} h" if hours < _HOURS_SHOWN else f"{hours / 24:,.0f} d"


def _frees(one: RepositoryStatus) -> str:
    if one.plan is None:
        return ""
    is_done = one.candidates.objects > 0 and not one.to_free.objects
    lines = ["nothing left" if is_done else format_amount(one.to_free), *one.removed_from_history.counts()]
    if one.cost_to_free is not None and not is_done:
        lines.append(f"{human_cost(one.cost_to_free)} a month")
    if one.waiting.objects:
        lines.append(f"waiting: {format_amount(one.waiting)}")
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
        f"{format_amount(Amount(held.objects, held.bytes))}\nuntil {held.until:%Y-%m-%d}" for held in one.quarantine
    )


# ---- explain

_FEW = 5  # paths, rules or keepers in a text
_STATES = {
    "kept": "is kept",
    "held": "is kept: it is protected",
    "young": "is kept: it is too young",
    "foreign": "is kept: nothing shows that the repository generated its name",
    "may_be_staged": "is kept: it may be staged",
    "waiting": "waits to be deleted",
    "candidate": "may be deleted",
    GONE: "is gone",
    RESTORED: "was brought back after the plan was made",
    "absent": "does not exist",
    "outside": "is outside the namespace, or in another repository",
    "missing": "is missing",
}
_REASONS = {
    "expired": "no active commit or retained snapshot has it",
    "lifecycle": "lifecycle rules release it, although active commits have it",
    "unreferenced": "no commit or snapshot has it",
}


@cli.command(
    short_help="Explain why an object is kept or gone.",
    epilog=examples(
        "retention explain orchard fruit/apples.csv",
        "retention explain orchard lakefs://orchard/main/fruit/apples.csv",
        "retention explain orchard s3://lake/orchard/data/ADDRESS",
        "retention explain orchard COMMIT --json",
        "retention explain field 1CECHNKREP0F1RSTCMT0",
    ),
)
@target_argument
@click.argument("asked", metavar="PATH|ADDRESS|COMMIT|SNAPSHOT|CHUNK")
@day_option("Use the plan of this day. Default: the newest plan that no guard refused.")
@as_json
def explain(target: Target, asked: str, day: date | None, json_wanted: bool) -> None:
    """Explain why an object, commit or file of REPOSITORY is kept and until when, or why it is gone.

    The command reads a plan and the ledgers in the warehouse. It makes no plan and does not read the repository.
    """
    from retention_assets.explain.explaining import explain as explain_name

    explanation = explain_name(target.configuration, target.name, asked, day)
    if json_wanted:
        print_json(explanation.document())
        return
    for line in lines_of(explanation, utc_now()):
        say(line)


def lines_of(explanation: Explanation, now: datetime) -> Iterator[str]:
    """Yield the lines of an explanation. `now`: the time (UTC) to which ages and waiting times are relative."""
    if explanation.commit:
        yield from _of_commit(explanation.commit, now)
    if snapshot := explanation.snapshot:
        reason = snapshot["reason"].removeprefix(f"{snapshot['decision']}: ")
        yield f"snapshot {snapshot['snapshot_id']}: {snapshot['decision']}: {reason}"
    if explanation.kind == "path" and len(explanation.objects) > 1:
        yield f"{explanation.asked} has {len(explanation.objects):,} versions:"
    for one in explanation.objects:
        yield from _of_object(one, explanation.repository, now)
    plan = explanation.plan
    approved = f"approved by {plan.approved_by}" if plan.approved_by else "not approved by a person"
    yield f"From the plan of {plan.day}, made {_age(plan.made_at, now)} ago, {approved}: {plan.plan_hash}"
    for note in explanation.notes:
        yield f"Note: {note}"
    for one in explanation.objects:
        if one.removal and one.removal.outcome == "quarantined":
            yield f"Bring back: {program()} restore {explanation.repository} --address {shlex.quote(one.address)}"


def _of_object(one: ObjectExplanation, repository: str, now: datetime) -> Iterator[str]:
    size = "" if one.size is None else f" ({human_bytes(one.size)})"
    yield f"{one.address}{size} {_STATES.get(one.state, one.state)}"
    for entry in one.entries[:_FEW]:
        have = counted(entry.commits, "commit has", "commits have")
        yield f"  at {entry.path}: {have} it, {entry.active_commits:,} of them active"
    if one.reason and one.state not in (GONE, RESTORED):  # else `_of_removal` prints the reason of the plan
        yield f"  because {_REASONS.get(one.reason, one.reason)}{_rules(one.rule_ids)}{_since(one.due_since)}"
    verb = "needed" if one.is_needed_and_missing else "kept"
    for keeper in one.kept_by[:_FEW]:
        at, until = f" at {keeper.path}" if keeper.path else "", _until(keeper.until, now)
        yield f"  {verb}{at}{until}{',' if until else ''} because {keeper.detail}"
    if len(one.kept_by) > _FEW:
        yield f"  and {len(one.kept_by) - _FEW:,} more. --json shows all of them."
    if one.removal:
        yield from _of_removal(one.removal)
    yield f"  {_future(one, repository, now.date())}"


def _future(one: ObjectExplanation, repository: str, today: date) -> str:
    if one.state == "candidate":
        return (
            "The next sweep of this plan deletes it or moves it to quarantine, if a person approved the plan or the "
            "plan is within the budget. There is no sweep in mode `plan`, or if the plan must not be executed."
        )
    if one.state == "outside":
        return "Plans do not list its location, so no sweep deletes it, and `retention verify` does not check it."
    if one.state == "waiting":
        newer = f"staged list (lakeFS) and references are newer than {one.waits_until:%Y-%m-%d %H:%M} UTC"
        return f"A sweep may delete it under a plan whose {newer}."
    if one.goes_on:
        due = f"{one.goes_on} or later ({_days(one.goes_on, today)})"
        return f"If nothing changes, a sweep may delete it under a plan of {due}."
    if one.is_needed_and_missing:
        needed = "A version needs it, and the store does not have it."
        if one.acknowledged:
            return f"{needed} A person acknowledged it as lost, so plans and `verify` accept this."
        return f"{needed} List such objects: {program()} verify {repository}"
    if one.state == GONE:
        return "No sweep can delete it again."
    if one.state == RESTORED:
        return "Sweeps of this plan do not touch it. A new plan shows what keeps it."
    if one.state == "absent":
        return "It was not in the store when the plan was made, and no sweep of this tool removed it."
    return "If nothing changes, no sweep will delete it."


_BY_PERSON: dict[str, str] = {  # what a person did, by outcome; other outcomes: approved the plan
    Outcome.PURGED: "purge approved",
    Outcome.RESTORED: "restored",
}


def _of_removal(removal: Removal) -> Iterator[str]:
    yield f"  {removal.outcome} at {removal.at:%Y-%m-%d %H:%M} UTC under the plan of {removal.day}, {removal.plan_hash}"
    if removal.detail:
        yield f"    detail: {removal.detail}"
    if removal.reason:
        why = _REASONS.get(removal.reason, removal.reason)
        yield f"    planned because {why}{_rules(removal.rule_ids)}{_since(removal.due_since)}"
    if removal.paths:
        yield f"    was at {', '.join(removal.paths[:_FEW])}"
    if removal.approved_by:
        what = _BY_PERSON.get(removal.outcome, "approved")
        at = datetime.fromisoformat(str(removal.approved_at)).astimezone(UTC)
        yield f"    {what} by {removal.approved_by} at {at:%Y-%m-%d %H:%M} UTC"
    record = (
        f"record {removal.record} of run {removal.run_id}"
        if removal.record
        else "no record: the run was interrupted, or is still running"
    )
    yield f"    ledger row with fencing token {removal.fence}; {record}"
    if removal.copy:
        yield f"    its copy is {removal.copy}"
    if removal.purge_after:
        yield f"    `purge` may delete the copy after {removal.purge_after:%Y-%m-%d %H:%M} UTC"


def _of_commit(commit: CommitState, now: datetime) -> Iterator[str]:
    state, until = "is active", _until(commit.until, now)
    if not commit.active:
        state, until = "is not active", _since(commit.until)
    heads = f", head of {', '.join(commit.heads)}" if commit.heads else ""
    rule = f" (rule retention:{commit.rule_id})" if commit.rule_id else ""
    yield f"commit {commit.commit_id} of {commit.created_at:%Y-%m-%d} {state}{heads}{until}{rule}"
    for detail in commit.protected_by:
        yield f"  kept because {detail}"


def _rules(rule_ids: tuple[str, ...]) -> str:
    return f" (rule {', '.join(rule_ids[:_FEW])})" if rule_ids else ""


def _since(since: datetime | None) -> str:
    return f", since {since:%Y-%m-%d %H:%M} UTC" if since else ""


def _until(until: datetime | None, now: datetime) -> str:
    if until is None:
        return ""
    until = until.astimezone(UTC)
    return f", until {until:%Y-%m-%d %H:%M} UTC ({_days(until.date(), now.date())})"


def _days(day: date, today: date) -> str:
    days = (day - today).days
    return "today" if not days else f"in {counted(days, 'day')}" if days > 0 else f"{counted(-days, 'day')} ago"


# ---- simulate

_PREFIXES = 12  # rows of a table by prefix
_LONGEST = 3660  # days


@cli.command(
    short_help="Forecast what comes due, also under another policy.",
    epilog=examples(
        "retention simulate orchard",
        "retention simulate orchard --policy new.yaml --days 90",
        "retention simulate field --policy new.yaml --json",
    ),
)
@target_argument
@other_policy
@click.option(
    "--days", type=click.IntRange(0, _LONGEST), default=30, show_default=True, help="The number of days to forecast."
)
@day_option("Begin with the plan of this day. Default: the newest plan that no guard refused.")
@as_json
def simulate(target: Target, files: tuple[Path, ...], days: int, day: date | None, json_wanted: bool) -> None:
    """Forecast what comes due in REPOSITORY on each of the coming days, if nobody writes and nothing is swept.

    With --policy, the output has a second forecast, under the other policy. The command reads only the warehouse. It
    takes about 0.2 ms for each listed object and policy.
    """
    configuration, repository = target.configuration, target.name
    tables, notes = newest_plan(target.warehouse, target.repository, day)
    policy = _policy_in(target.repository, files) if files else None
    with working(f"{repository}: forecasting {counted(days, 'day')}"):
        current = forecast_of(configuration, tables, days)
        other = forecast_of(configuration, tables, days, policy) if policy else None
    for note in notes:
        warn(f"warning: {note}")
    if json_wanted:
        plan = {"plan_hash": tables.plan.plan_hash, "day": tables.plan.day.isoformat()}
        both = {"current": current.document(), "proposed": other and other.document()}
        print_json({"repository": repository, "plan": plan, **both})
        return
    _show(tables.plan, current, other)
    if files and not target.repository.is_icechunk:
        command = f"{program()} diff {repository} {policy_options(files)} --as-of {tables.plan.day}"
        say(f"Each object of the first day: {command}")


def _policy_in(repository: Repository, files: Sequence[Path]) -> Policy | SnapshotPolicy:
    """Return the policy in `files`, of the repository's kind. Errors: ConfigurationError that names file and key."""
    if repository.is_icechunk:
        from retention_assets.icechunk.source.opening import snapshot_policy_in

        return snapshot_policy_in(files)
    from retention_assets.lakefs.source.opening import policy_in

    return policy_in(files)


def _show(plan: Plan, current: Forecast, other: Forecast | None) -> None:
    """Print the amounts that come due on each day, under both policies if there is another one."""
    title = f"{plan.repository}: what comes due until {current.last}, from the plan of {plan.day}"
    screen.print(Text(title, style="bold"), soft_wrap=True)
    table = Table()
    table.add_column("day")  # only this column is wrapped on a narrow screen
    titles = ("current policy", "other policy")[: 2 if other else 1]
    for column in titles:
        for heading in (column, "due by then"):
            table.add_column(heading.replace(" ", "\n", 1), justify="right", no_wrap=True)
    forecasts = [current] if other is None else [current, other]
    for day in sorted({day for one in forecasts for day in one.days} | {current.first}):
        cells = [cell for one in forecasts for cell in (_amount(one.total(day)), _amount(one.due_until(day)))]
        table.add_row(_name(day, current.first), *cells)
    table.add_row("later", *(cell for one in forecasts for cell in (_amount(one.later), "")))
    table.add_row("never, if nothing changes", *(cell for one in forecasts for cell in (_amount(one.never), "")))
    screen.print(table)
    shown = other or current
    print_amounts(screen, f"by prefix, until {current.last}, {titles[-1]}", "prefix", _by_prefix(shown))


def _name(day: date, first: date) -> str:
    return f"{day}, plan" if day == first else str(day)


def _by_prefix(forecast: Forecast) -> list[tuple[str, Amount]]:
    names = dict.fromkeys(name for prefixes in forecast.days.values() for name in prefixes)
    found = [(name, sum_of(one[name] for one in forecast.days.values() if name in one)) for name in names]
    return sorted(found, key=lambda row: row[1].bytes, reverse=True)[:_PREFIXES]


def _amount(amount: Amount) -> str:
    return format_amount(amount) if amount.objects else "0"
