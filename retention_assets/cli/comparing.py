"""The command `diff`: compares two plans, or a plan with the plan that another policy would give."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
from rich.console import Console
from rich.text import Text

from retention_assets.cli.group import (
    AS_IT_IS,
    Target,
    as_json,
    cli,
    day_option,
    examples,
    other_policy,
    policy_options,
    print_json,
    program,
    say,
    screen,
    target_argument,
    today,
    warn,
    working,
)
from retention_assets.cli.rendering import print_amounts, print_rows
from retention_assets.config.configuration import Configuration
from retention_assets.config.timestamps import utc_now
from retention_assets.core.amounts import Amount, human_amount, monthly_cost
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.state.plan import Plan, find_plan, load_plan
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:  # importing Spark takes seconds
    from pyspark.sql import DataFrame, SparkSession

    from retention_assets.core.guards import CheckResult
    from retention_assets.lakefs.sweep.diff import Change, Difference, Groups, Outlook, Proposal

_NEWLY_FREED, _FREED_BY_BOTH = "newly_freed", "freed_alike"  # as in lakefs/sweep/diff.py, which imports Spark
_TITLES = {
    _NEWLY_FREED: "newly freed",
    "no_longer_freed": "no longer freed",
    "freed_otherwise": "freed by both, for another reason or rule",
    _FREED_BY_BOTH: "freed by both, for the same reason",
}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How the result is printed: as JSON, as CSV (at most `limit` rows), or else as tables."""

    json: bool
    csv: bool
    limit: int | None
    price: float | None  # per GB (10^9 bytes) and month


class _Price(click.FloatRange):
    """A finite number, at least 0. JSON has no infinite numbers."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return number


@cli.command(
    short_help="Compare two plans, or the plan with another policy.",
    epilog=examples(
        "retention diff orchard --policy new.yaml",
        "retention diff orchard HASH HASH --json",
        "retention diff orchard --policy new.yaml --format csv --limit 100",
    ),
)
@target_argument
@click.argument("plans", nargs=-1, metavar="[PLAN PLAN]")
@other_policy
@day_option("The day of the plan, in UTC. Default: today.")
@click.option(
    "--price",
    type=_Price(min=0),
    help="The price of one GB (10^9 bytes) for a month. Default: price_per_gb_month.",
)
@as_json
@click.option(
    "--format", "form", type=click.Choice(["table", "csv"]), default="table", help="csv: one row for each object."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="With --format csv: the maximum number of rows. The largest objects come first.",
)
def diff(
    target: Target,
    plans: tuple[str, ...],
    files: tuple[Path, ...],
    day: date | None,
    price: float | None,
    json_wanted: bool,
    form: str,
    limit: int | None,
) -> None:
    """Compare two plans of REPOSITORY by their hashes, or the day's plan with the plan that --policy would give.

    The first 8 digits of a hash are enough. --policy works only for lakeFS, and counts objects that wait (`settle`)
    like candidates. The command does not change plans. Exit status 1: a guard would refuse a plan under the other
    policy.
    """
    _require_plans_or_policy(plans, files, day)
    if json_wanted and form == "csv":
        raise click.UsageError("--json and --format csv: choose one.")
    if limit is not None and form != "csv":
        raise click.UsageError("--limit is only for --format csv.")
    known = target.repository.settings.price_per_gb_month
    wanted = _Wanted(json_wanted, form == "csv", limit, known if price is None else price)
    if plans:
        _compare(target, plans, wanted)
    elif target.repository.is_icechunk:
        raise ConfigurationError(
            f"{target.name}: --policy works only for lakeFS, and this is an Icechunk repository. Nothing was read or "
            f"changed. Name two plans: `{program()} diff {target.name} PLAN PLAN`."
        )
    else:
        _propose(target, day or today(), files, wanted)


def _require_plans_or_policy(plans: tuple[str, ...], files: tuple[Path, ...], day: date | None) -> None:
    if bool(files) == bool(plans) or len(plans) not in (0, 2):
        raise click.UsageError("Name two plans by their hashes, or a policy with --policy FILE.")
    if plans and day:
        raise click.UsageError("--as-of is only for --policy: the hash of a plan determines its day.")


def _compare(target: Target, plans: tuple[str, ...], wanted: _Wanted) -> None:
    from retention_assets.lakefs.sweep.diff import compare_plans

    warehouse, repository = target.warehouse, target.name
    first, second = (find_plan(warehouse, repository, start) for start in plans)
    with working(f"{repository}: comparing two plans"):
        have_paths = not target.repository.is_icechunk
        found = compare_plans(_session(target.configuration), warehouse, first, second, have_paths=have_paths)
    if wanted.csv:
        _print_csv(found.rows, wanted.limit)
    elif wanted.json:
        both = {"repository": repository, "first": plan_document(first), "second": plan_document(second)}
        print_json({**both, **difference_document(found, wanted.price)})
    else:
        show_plans(screen, first, second)
        show_difference(screen, found, wanted.price)
        _say_more(f"{repository} {first.plan_hash} {second.plan_hash}")


def _propose(target: Target, day: date, files: tuple[Path, ...], wanted: _Wanted) -> None:
    """Print what the policy in `files` would change. Then raise GuardRefused if a guard would refuse that plan."""
    with working(f"{target.name} {day}: comparing with the other policy"):
        found, proposal = outlook_of(target.configuration, target.name, day, files)
    if wanted.csv:
        _print_csv(found.difference.rows, wanted.limit)
    elif wanted.json:
        print_json(outlook_document(found, proposal, wanted.price))
    else:
        show_outlook(screen, found, proposal, wanted.price)
        _say_more(f"{target.name} {policy_options(files)} --as-of {day}")
    for line in warnings_of(found):
        warn(line)
    require_no_refusal(found, proposal.plan)


def outlook_of(
    configuration: Configuration, repository: str, day: date, files: Sequence[Path]
) -> tuple["Outlook", "Proposal"]:
    """Return what the policy in `files` would change in the plan of `day`, and the proposal with both.

    Errors: ConfigurationError if a file cannot be read; GuardRefused if there is no plan; as `outlook`.
    """
    from retention_assets.lakefs.source.opening import policy_in
    from retention_assets.lakefs.sweep.diff import Proposal, outlook
    from retention_assets.repositories.other_repositories import OtherRepositories

    warehouse, policy = Warehouse(configuration.warehouse), policy_in(files)
    plan = load_plan(warehouse, repository, day)
    proposal = Proposal(configuration.repository(repository), policy, plan, utc_now(), str(uuid4()))
    spark, clock, others = _session(configuration), (lambda: proposal.now), configuration.others(repository)
    elsewhere = OtherRepositories(spark, warehouse, proposal.repository, others, proposal.run_id, clock)
    return outlook(spark, warehouse, proposal, elsewhere.for_plan()), proposal


def _session(configuration: Configuration) -> "SparkSession":
    from retention_assets.spark.sessions import started

    return started(configuration.spark)


def _print_csv(rows: "DataFrame", limit: int | None) -> None:
    shown = rows if limit is None else rows.limit(limit)
    one_by_one = (row.asDict() for row in shown.toLocalIterator())  # the rows are never all in memory
    print_rows("", one_by_one, shown.columns, "csv", None)


def _say_more(arguments: str) -> None:
    say(f"Each object: {program()} diff {arguments} --format csv")


_AT_HEAD = "in the current version of a branch or tag"
_BEFORE = "only in older versions"


def difference_document(difference: "Difference", price: float | None) -> dict[str, Any]:
    """Return the amounts of each kind of change; `per_month` is null if no price is known."""
    changes = {name: _change_document(change, price) for name, change in difference.changes.items()}
    return {"price_per_gb_month": price, **changes}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the fields that distinguish the plan from other plans."""
    kept = ("plan_hash", "day", "made_at", "policy_hash", "references_hash", "candidates")
    return {name: value for name, value in plan.document().items() if name in kept}


def outlook_document(outlook: "Outlook", proposal: "Proposal", price: float | None) -> dict[str, Any]:
    """Return the comparison with a proposed policy as a document for JSON."""
    endangered = outlook.difference.changes[_NEWLY_FREED].amount
    return {
        "repository": proposal.repository.name,
        "day": proposal.plan.day.isoformat(),
        "plan": plan_document(proposal.plan),
        "policy_hash": proposal.policy.policy_hash,
        **difference_document(outlook.difference, price),
        "endangered": {
            **_amount_document(endangered, price),
            "at_heads": _amount_document(outlook.at_heads, price),
            "by_head": _groups_document(outlook.heads, price),
        },
        "refused_by": [check_result.guard for check_result in _refusals(outlook)],
        "guards": [{"guard": one.guard, "passed": one.passed, "saw": one.detail} for one in outlook.check_results],
        "blocked": outlook.blocked,
        "findings": [asdict(finding) for finding in outlook.findings],
    }


def _refusals(outlook: "Outlook") -> list["CheckResult"]:
    from retention_assets.core.guards import refusals

    return refusals(outlook.check_results)


def _change_document(change: "Change", price: float | None) -> dict[str, Any]:
    groups_by_title = {"by_reason": change.reasons, "by_top_prefix": change.prefixes, "by_branch": change.branches}
    return {
        **_amount_document(change.amount, price),
        **{title: _groups_document(groups, price) for title, groups in groups_by_title.items()},
    }


def _groups_document(groups: "Groups", price: float | None) -> list[dict[str, Any]]:
    return [{"name": name, **_amount_document(amount, price)} for name, amount in groups]


def _amount_document(amount: Amount, price: float | None) -> dict[str, Any]:
    return {**asdict(amount), "per_month": None if price is None else monthly_cost(amount.bytes, price)}


def show_plans(screen: Console, first: Plan, second: Plan) -> None:
    """Print the inputs of two plans. In the second plan, an equal input is printed as `the same`."""
    screen.print(Text(f"{first.repository}: two plans", style="bold"))
    inputs = _inputs(first)
    for name, plan, of_first in (("first", first, {}), ("second", second, inputs)):
        screen.print(f"{name}: plan {plan.plan_hash}", **AS_IT_IS)
        for title, value in _inputs(plan).items():
            screen.print(f"    {title} {'the same' if of_first.get(title) == value else value}", **AS_IT_IS)


def _inputs(plan: Plan) -> dict[str, str]:
    return {
        "day": str(plan.day),
        "made": f"{plan.made_at:%Y-%m-%d %H:%M} UTC",
        "policy": plan.policy_hash,
        "references": plan.references_hash,
        "candidates": human_amount(plan.candidates),
    }


def show_difference(screen: Console, difference: "Difference", price: float | None) -> None:
    """Print the amount of each kind of change, then the groups of the changed objects."""
    totals = [(_TITLES[name], change.amount) for name, change in difference.changes.items()]
    print_amounts(screen, "differences", "change", totals, price)
    for name, change in difference.changes.items():
        if name == _FREED_BY_BOTH or not change.amount.objects:
            continue
        print_amounts(screen, f"{_TITLES[name]}, by reason", "reason", change.reasons, price)
        print_amounts(screen, f"{_TITLES[name]}, by top prefix", "prefix", change.prefixes, price)
        title = f"{_TITLES[name]}, by branch (an object counts for each branch)"
        print_amounts(screen, title, "branch", change.branches, price)


def show_outlook(screen: Console, outlook: "Outlook", proposal: "Proposal", price: float | None) -> None:
    """Print the changes, the objects that the policy endangers, and a line if no guard would refuse a plan."""
    plan = proposal.plan
    screen.print(f"{plan.repository} as of {plan.day}: the plan compared with another policy", style="bold", **AS_IT_IS)
    screen.print(f"    plan {plan.plan_hash}\n    policy {proposal.policy.policy_hash}", **AS_IT_IS)
    show_difference(screen, outlook.difference, price)
    endangered = outlook.difference.changes[_NEWLY_FREED].amount
    if endangered.objects:
        old = Amount(endangered.objects - outlook.at_heads.objects, endangered.bytes - outlook.at_heads.bytes)
        title = "endangered: the plan keeps them, this policy would not"
        print_amounts(screen, title, "objects", [(_AT_HEAD, outlook.at_heads), (_BEFORE, old)])
    if outlook.heads:
        print_amounts(screen, "endangered, by the branch or tag that has them now", "head", outlook.heads)
    if not _refusals(outlook):
        screen.print("No guard would refuse a plan under this policy.", **AS_IT_IS)


def warnings_of(outlook: "Outlook") -> Sequence[str]:
    """Return the warnings, one line each. `require_no_refusal` reports the guards that refuse."""
    found = [f"{one.severity}: {one.rule_id}: {one.message}" for one in outlook.findings]
    return (
        [f"warning: a plan under this policy must not be executed: {outlook.blocked}", *found]
        if outlook.blocked
        else found
    )


def require_no_refusal(outlook: "Outlook", plan: Plan) -> None:
    """Raise GuardRefused, which names the guards and their remedies, if guards would refuse the plan."""
    if refused := _refusals(outlook):
        lines = [f"{check_result.guard}: {check_result.message}" for check_result in refused]
        raise GuardRefused(
            f"{plan.repository} {plan.day}: a plan under this policy would be refused. Nothing was changed.\n  "
            + "\n  ".join(lines)
        )
