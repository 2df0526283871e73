"""Approval of a plan by its hash: by a person, or by a budget. Without one, nothing is deleted.

Source: DESIGN.md, Decisions (Modes).
"""

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
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


def approve(
    warehouse: Warehouse, repository: str, day: date, plan_hash: str, by: str, now: datetime, life: timedelta
) -> Plan:
    """Approve the day's plan. Errors: GuardRefused unless `plan_hash` is its whole hash, and it was made within `life`.

    The approval is of this hash and day: it holds for a plan that is made anew and comes out the same.
    """
    plan = load_plan(warehouse, repository, day)
    if plan.plan_hash != plan_hash.lower():
        raise GuardRefused(
            f"{repository}: {plan_hash} is not the plan of {day}, which is {plan.plan_hash}. Nothing was approved. "
            f"See what it would delete: `retention show {repository} deletion_candidates --as-of {day}`."
        )
    if plan.blocked:
        raise GuardRefused(f"{repository} {day}: the plan cannot be carried out: {plan.blocked} Nothing was approved.")
    _require_recent(plan, "was made", plan.made_at, life, now)
    _write(warehouse, plan, by, now)
    return plan


def withdraw_approval(warehouse: Warehouse, repository: str, day: date, by: str, now: datetime) -> Plan:
    """Take the approval of the day's plan back, also one that a budget would give, until somebody approves it again.

    So it is with every plan of the same hash, on whatever day it is made. A sweep that is at work goes on.
    Errors: GuardRefused when no plan of the day stands.
    """
    plan = load_plan(warehouse, repository, day)
    document = {
        "plan_hash": plan.plan_hash,
        "day": day.isoformat(),
        "withdrawn_by": by,
        "withdrawn_at": now.isoformat(),
    }
    warehouse.write_document(document, repository, APPROVALS, f"{plan.plan_hash}.json")
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
    _require_recent(plan, "was made", plan.made_at, settings.life, now)
    document, known = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json"), None
    if document is not None and "withdrawn_by" in document:
        raise _withdrawn(document, plan)
    if document is not None and document.get("day") == plan.day.isoformat():  # another day's plan is approved anew
        known = _read(document, plan)
        if known.approved_by != BUDGET:  # a plan that is made anew with the same hash keeps it, but for no longer
            _require_recent(plan, "was approved", datetime.fromisoformat(known.approved_at), settings.life, now)
            return known
    excess = beyond_budget(plan, budget, beside)
    if excess is None:
        return known or _write(warehouse, plan, BUDGET, now)
    raise GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved{excess}. Nothing was deleted. "
        f"Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
    )


def _require_recent(plan: Plan, what: str, at: datetime, life: timedelta, now: datetime) -> None:
    if now - at > life:
        raise GuardRefused(
            f"{plan.repository}: the plan of {plan.day} {what} at {at:%Y-%m-%d %H:%M} UTC, longer ago than "
            f"approval.life, {format_duration(life)}: its approval has lapsed. Nothing was deleted. Plan and "
            f"approve again: `retention plan {plan.repository} --as-of {plan.day}`."
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


def _withdrawn(document: Mapping[str, Any], plan: Plan) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: {document['withdrawn_by']} withdrew the approval of {plan.plan_hash} at "
        f"{document.get('withdrawn_at')}. Nothing was deleted. If that is over: "
        f"`retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
    )


def _read(document: Mapping[str, Any], plan: Plan) -> Approval:
    try:
        approval = Approval(**document)
        datetime.fromisoformat(approval.approved_at)
    except (TypeError, ValueError):
        approval = None
    if approval is None or approval.plan_hash != plan.plan_hash:
        raise GuardRefused(
            f"{plan.repository}: the approval of {plan.plan_hash} is not one that this version wrote. Nothing was "
            f"deleted. Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
        )
    return approval
