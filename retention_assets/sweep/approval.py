"""Approval of a plan by its hash: by a person, or by a budget. Without one, nothing is deleted.

Source: DESIGN.md, Decisions (Modes).
"""

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from retention_assets.durations import format_duration
from retention_assets.errors import GuardRefused
from retention_assets.limits import ApprovalSettings, BudgetSettings
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.plan import Amount, Plan, load_plan

APPROVALS = "approvals"
APPROVER = "RETENTION_APPROVER"  # the variable that names who approves, where the system's user does not
BUDGET = "the budget in the configuration"


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approved which plan, and when (ISO 8601, UTC)."""

    plan_hash: str
    day: str
    approved_by: str
    approved_at: str


def person(environment: Mapping[str, str] = os.environ) -> str:
    """Return who acts: RETENTION_APPROVER, else the system's user at this machine."""
    return environment.get(APPROVER) or f"{getpass.getuser()}@{socket.gethostname()}"


def approve(warehouse: Warehouse, repository: str, day: date, plan_hash: str, by: str, now: datetime) -> Plan:
    """Approve the day's plan. Errors: GuardRefused unless `plan_hash` is that plan's whole hash."""
    plan = load_plan(warehouse, repository, day)
    if plan.plan_hash != plan_hash.lower():
        raise GuardRefused(
            f"{repository}: {plan_hash} is not the plan of {day}, which is {plan.plan_hash}. Nothing was approved. "
            f"See what it would delete: `retention show {repository} deletion_candidates --as-of {day}`."
        )
    if plan.blocked:
        raise GuardRefused(f"{repository} {day}: the plan cannot be carried out: {plan.blocked} Nothing was approved.")
    _write(warehouse, plan, by, now)
    return plan


def require_approval(
    warehouse: Warehouse,
    plan: Plan,
    settings: ApprovalSettings,
    budget: BudgetSettings,
    now: datetime,
    *,
    beside: int = 0,
) -> Approval:
    """Return the approval of the plan, given now if the plan is within the budget.

    `beside`: what the plan changes beside its objects; see `beyond_budget`.
    Errors: GuardRefused when nobody approved it, or when the plan is too old by now.
    """
    if now - plan.made_at > settings.life:
        raise GuardRefused(
            f"{plan.repository}: the plan of {plan.day} was made at {plan.made_at:%Y-%m-%d %H:%M} UTC, longer ago than "
            f"approval.life, {format_duration(settings.life)}: its approval has lapsed. Nothing was deleted. Plan and "
            f"approve again: `retention plan {plan.repository} --as-of {plan.day}`."
        )
    document = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    if document is not None and document.get("day") == plan.day.isoformat():  # another day's plan is approved anew
        return _read(document, plan)
    excess = beyond_budget(plan, budget, beside)
    if excess is None:
        return _write(warehouse, plan, BUDGET, now)
    raise GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved{excess}. Nothing was deleted. "
        f"Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
    )


def beyond_budget(plan: Plan, budget: BudgetSettings, beside: int = 0) -> str | None:
    """Return why the plan does not approve itself; None when it does.

    `beside`: snapshots that the plan releases and references that it deletes. Each counts as an object, and a budget of
    bytes alone says nothing of them.
    """
    if not budget.is_set:
        return ""
    if beside and budget.objects is None and budget.share is None:
        return f", and the budget says nothing of the {beside:,} snapshots and references that it takes out of history"
    listed = Amount(
        sum(amount.objects for amount in plan.totals.values()), sum(amount.bytes for amount in plan.totals.values())
    )
    planned = Amount(plan.candidates.objects + beside, plan.candidates.bytes)
    if budget.objects is not None and planned.objects > budget.objects:
        return f", and its {planned.objects:,} objects are more than the budget's {budget.objects:,}"
    if budget.bytes is not None and planned.bytes > budget.bytes:
        return f", and its {planned.bytes:,} bytes are more than the budget's {budget.bytes:,}"
    share = max(planned.objects / max(1, listed.objects), planned.bytes / max(1, listed.bytes))
    if budget.share is not None and share > budget.share:
        return f", and {share:.1%} of the repository is more than the budget's {budget.share:.1%}"
    return None


def require_same_world(plan: Plan, revived: int, settings: ApprovalSettings) -> None:
    """Refuse when so much of the plan lives again that it is not what was approved any more."""
    share = revived / max(1, plan.candidates.objects)
    if share > settings.max_revived:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: {revived:,} of {plan.candidates.objects:,} planned objects came back to "
            f"life ({share:.0%}; approval.max_revived is {settings.max_revived:.0%}): the approval has lapsed. Nothing "
            f"was deleted. Plan and approve again: `retention plan {plan.repository} --as-of {plan.day}`."
        )


def _write(warehouse: Warehouse, plan: Plan, by: str, now: datetime) -> Approval:
    approval = Approval(plan.plan_hash, plan.day.isoformat(), by, now.isoformat())
    warehouse.write_document(asdict(approval), plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    return approval


def _read(document: Mapping[str, Any], plan: Plan) -> Approval:
    try:
        approval = Approval(**document)
    except TypeError:
        approval = None
    if approval is None or approval.plan_hash != plan.plan_hash:
        raise GuardRefused(
            f"{plan.repository}: the approval of {plan.plan_hash} is not one that this version wrote. Nothing was "
            f"deleted. Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
        )
    return approval
