"""Shows a difference on a screen or as JSON: amounts by kind of change, and costs if a price is known."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from retention_assets.cli.rendering import AS_IT_IS, human_bytes, monthly_cost, print_amounts
from retention_assets.core.amounts import Amount
from retention_assets.core.guards import refusals
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.comparison import FREED_ALIKE, FREED_OTHERWISE, NEWLY_FREED, NO_LONGER_FREED
from retention_assets.lakefs.sweep.diff import Change, Difference, Groups, Outlook, Proposal
from retention_assets.state.plan import Plan

_SHORT = 12  # digits of a hash on a screen
_TOLD = {
    NEWLY_FREED: "newly freed",
    NO_LONGER_FREED: "no longer freed",
    FREED_OTHERWISE: "freed by both, for another reason or rule",
    FREED_ALIKE: "freed by both alike",
}
_NOW = "a branch or tag has them in its version of now"
_BEFORE = "only older versions have them"


def difference_document(difference: Difference, price: float | None) -> dict[str, Any]:
    """Return the amounts of each kind of change; `per_month` is null if no price is known."""
    changes = {name: _change_document(change, price) for name, change in difference.changes.items()}
    return {"price_per_gb_month": price, **changes}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the fields that distinguish a plan from another."""
    kept = ("plan_hash", "day", "made_at", "policy_hash", "references_hash", "candidates")
    return {name: value for name, value in plan.document().items() if name in kept}


def outlook_document(outlook: Outlook, proposal: Proposal, price: float | None) -> dict[str, Any]:
    """Return all results for a proposed policy, for JSON."""
    endangered = outlook.difference.changes[NEWLY_FREED].amount
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
        "refused_by": [check_result.guard for check_result in refusals(outlook.check_results)],
        "guards": [{"guard": one.guard, "passed": one.passed, "saw": one.detail} for one in outlook.check_results],
        "blocked": outlook.blocked,
        "findings": [asdict(finding) for finding in outlook.findings],
    }


def _change_document(change: Change, price: float | None) -> dict[str, Any]:
    named = {"by_reason": change.reasons, "by_top_prefix": change.prefixes, "by_branch": change.branches}
    return {
        **_amount_document(change.amount, price),
        **{title: _groups_document(groups, price) for title, groups in named.items()},
    }


def _groups_document(groups: Groups, price: float | None) -> list[dict[str, Any]]:
    return [{"name": name, **_amount_document(amount, price)} for name, amount in groups]


def _amount_document(amount: Amount, price: float | None) -> dict[str, Any]:
    return {**asdict(amount), "per_month": None if price is None else monthly_cost(amount.bytes, price)}


def show_plans(screen: Console, first: Plan, second: Plan) -> None:
    """Print the inputs of two plans side by side."""
    table = Table()
    for column in ("", "first", "second"):
        table.add_column(column)
    for name, one, other in (
        ("plan", first.plan_hash[:_SHORT], second.plan_hash[:_SHORT]),
        ("day", str(first.day), str(second.day)),
        ("made", f"{first.made_at:%Y-%m-%d %H:%M}", f"{second.made_at:%Y-%m-%d %H:%M}"),
        ("policy", first.policy_hash[:_SHORT], second.policy_hash[:_SHORT]),
        ("references", first.references_hash[:_SHORT], second.references_hash[:_SHORT]),
        ("candidates", _told(first.candidates), _told(second.candidates)),
    ):
        table.add_row(name, one, "the same" if one == other else other)
    screen.print(Text(f"{first.repository}: two plans", style="bold"), table, sep="\n")
    for name, plan in (("first", first), ("second", second)):
        screen.print(f"{name}: plan {plan.plan_hash}", **AS_IT_IS)


def show_difference(screen: Console, difference: Difference, price: float | None) -> None:
    """Print the amount of each kind of change, then the groups of the changed objects."""
    totals = [(_TOLD[name], change.amount) for name, change in difference.changes.items()]
    _print(screen, "what differs", "change", totals, price)
    for name, change in difference.changes.items():
        if name == FREED_ALIKE or not change.amount.objects:
            continue
        _print(screen, f"{_TOLD[name]}, by reason", "reason", change.reasons, price)
        _print(screen, f"{_TOLD[name]}, by top prefix", "prefix", change.prefixes, price)
        title = f"{_TOLD[name]}, by branch (an object counts for each branch)"
        _print(screen, title, "branch", change.branches, price)


def show_outlook(screen: Console, outlook: Outlook, proposal: Proposal, price: float | None) -> None:
    """Print the changes of the proposal, the objects that it endangers, and a line if no guard would refuse it."""
    plan = proposal.plan
    screen.print(
        f"{plan.repository} as of {plan.day}: plan {plan.plan_hash} beside the policy "
        f"{proposal.policy.policy_hash[:_SHORT]}",
        style="bold",
        **AS_IT_IS,
    )
    show_difference(screen, outlook.difference, price)
    endangered = outlook.difference.changes[NEWLY_FREED].amount
    if endangered.objects:
        old = Amount(endangered.objects - outlook.at_heads.objects, endangered.bytes - outlook.at_heads.bytes)
        title = "endangered: the plan keeps them, this policy would not"
        _print(screen, title, "objects", [(_NOW, outlook.at_heads), (_BEFORE, old)], None)
    if outlook.heads:
        _print(screen, "endangered, by the branch or tag that has them now", "head", outlook.heads, None)
    if not refusals(outlook.check_results):
        screen.print("No guard would refuse a plan under this policy.", **AS_IT_IS)


def _print(screen: Console, title: str, first: str, groups: Groups, price: float | None) -> None:
    print_amounts(screen, title, first, [(name, amount.objects, amount.bytes) for name, amount in groups], price)


def _told(amount: Amount) -> str:
    return f"{amount.objects:,} objects, {human_bytes(amount.bytes)}"


def warnings_of(outlook: Outlook) -> Sequence[str]:
    """Return the warnings, one line each. `require_no_refusal` reports the guards that refuse."""
    found = [f"{one.severity}: {one.rule_id}: {one.message}" for one in outlook.findings]
    return [f"warning: such a plan could not be carried out: {outlook.blocked}", *found] if outlook.blocked else found


def require_no_refusal(outlook: Outlook, plan: Plan) -> None:
    """Raise GuardRefused if guards would refuse the plan: the printed result alone would look harmless."""
    if refused := refusals(outlook.check_results):
        lines = [f"{check_result.guard}: {check_result.message}" for check_result in refused]
        raise GuardRefused(
            f"{plan.repository} {plan.day}: a plan under this policy would be refused. Nothing was changed.\n  "
            + "\n  ".join(lines)
        )
