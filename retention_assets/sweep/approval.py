"""Approval of a plan by its hash: without one, nothing is deleted. Source: DESIGN.md, Decisions (Modes)."""

from datetime import date, datetime

from retention_assets.errors import GuardRefused
from retention_assets.stores.warehouse import Warehouse
from retention_assets.sweep.plan import Plan, load_plan

APPROVALS = "approvals"


def approve(warehouse: Warehouse, repository: str, day: date, plan_hash: str, now: datetime) -> Plan:
    """Approve the day's plan. Errors: GuardRefused unless `plan_hash` is that plan's whole hash."""
    plan = load_plan(warehouse, repository, day)
    if plan.plan_hash != plan_hash.lower():
        raise GuardRefused(
            f"{repository}: {plan_hash} is not the plan of {day}, which is {plan.plan_hash}. Nothing was approved. "
            f"See what it would delete: `retention show {repository} deletion_candidates --as-of {day}`."
        )
    if plan.blocked:
        raise GuardRefused(f"{repository} {day}: the plan cannot be carried out: {plan.blocked} Nothing was approved.")
    warehouse.write_document(
        {"plan_hash": plan.plan_hash, "day": day.isoformat(), "approved_at": now.isoformat()},
        repository,
        APPROVALS,
        f"{plan.plan_hash}.json",
    )
    return plan


def require_approval(warehouse: Warehouse, plan: Plan) -> None:
    """Refuse a plan that nobody approved."""
    if warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json") is None:
        raise GuardRefused(
            f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved. Nothing was deleted. "
            f"Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
        )
