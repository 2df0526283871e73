"""Approval of a plan by its hash: by a person, or by a budget. Without one, nothing is deleted.

An approval is of a plan and of the settings under which the plan was shown: its document lists them as `terms`. A sweep
under other settings is refused. Source: DESIGN.md, Decisions (Modes) and invariant 12.
"""

import getpass
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.config.durations import format_duration
from retention_assets.config.limits import ApprovalSettings, BudgetSettings
from retention_assets.core.amounts import Amount
from retention_assets.errors import GuardRefused
from retention_assets.state.plan import Plan, load_plan
from retention_assets.state.quarantine import quarantine_url
from retention_assets.state.warehouse import Warehouse

APPROVALS = "approvals"
APPROVER = "RETENTION_APPROVER"  # the variable that names who approves, where the system's user does not
BUDGET = "the budget in the configuration"

# The settings that decide what a plan names, beside its policy. Each kind of repository has some of them.
_PLANNED_UNDER = (
    "grace",
    "settle",
    "settle_expired",
    "reflog",
    "token_life",
    "tags",
    "legacy_names",
    "collect_overwritten",
)
_SWEPT_UNDER = ("mode", "quarantine.url")  # terms of an approval that no plan has

Terms = Mapping[str, str]  # settings by their keys in `retention.yaml`, as text


@dataclass(frozen=True, slots=True)
class Approval:
    """Who approved which plan under which settings, and when (ISO 8601, UTC)."""

    plan_hash: str
    day: str
    approved_by: str
    approved_at: str
    terms: Terms = field(default_factory=dict)  # empty: written by a version whose approvals named no settings


def planned_terms(repository: Repository) -> Terms:
    """Return the settings that decide what a plan of the repository names. `Plan.terms` keeps them."""
    namespace = {} if repository.is_icechunk else {"namespace": repository.namespace}
    known = type(repository.settings).model_fields
    named = {name: getattr(repository.settings, name) for name in _PLANNED_UNDER if name in known}
    return {**namespace, "storage": repository.storage, **{name: _written(value) for name, value in named.items()}}


def approved_terms(repository: Repository) -> Terms:
    """Return all settings that an approval is for: those of the plan, and what a sweep does with its objects."""
    mode = repository.settings.mode
    place = {"quarantine.url": quarantine_url(repository)} if mode == "quarantine" else {}
    return {"mode": mode, **place, **planned_terms(repository)}


def _written(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def person(environment: Mapping[str, str] = os.environ) -> str:
    """Return who acts: RETENTION_APPROVER, else the system's user at this machine."""
    return environment.get(APPROVER) or f"{getpass.getuser()}@{socket.gethostname()}"


def approve(
    warehouse: Warehouse,
    repository: str,
    day: date,
    plan_hash: str,
    by: str,
    now: datetime,
    life: timedelta,
    terms: Terms,
) -> Plan:
    """Approve the day's plan for a sweep under `terms` (`approved_terms`).

    The approval is of this hash, day and terms: it holds for a plan that is made anew and comes out the same.
    Errors: GuardRefused unless `plan_hash` is the plan's whole hash, and the plan was made within `life` and under the
    same terms. Also in mode `plan`, in which no sweep deletes anything.
    """
    plan = load_plan(warehouse, repository, day)
    if plan.plan_hash != plan_hash.lower():
        raise GuardRefused(
            f"{repository}: {plan_hash} is not the plan of {day}, which is {plan.plan_hash}. Nothing was approved. "
            f"See what it would delete: `retention show {repository} deletion_candidates --as-of {day}`."
        )
    if plan.blocked:
        raise GuardRefused(f"{repository} {day}: the plan cannot be carried out: {plan.blocked} Nothing was approved.")
    if terms["mode"] == "plan":
        raise GuardRefused(
            f"{repository}: its mode is `plan`, in which no sweep deletes anything, and an approval is for one mode. "
            f"Nothing was approved. Set `mode: quarantine` or `mode: delete` in the configuration, then approve again."
        )
    _require_recent(plan, "was made", plan.made_at, life, now)
    _require_planned_under(plan, terms, "approved")
    _write(warehouse, plan, by, now, terms)
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
    terms: Terms,
    beside: int = 0,
) -> Approval:
    """Return the approval of the plan for a sweep under `terms`, given now if the plan is within the budget.

    `beside`: what the plan changes beside its objects; see `beyond_budget`. A person's approval under other terms is
    refused, also where the budget would approve the plan.
    Errors: GuardRefused when nobody approved the plan, when it is too old by now, or when the plan or its approval is
    of other terms.
    """
    _require_recent(plan, "was made", plan.made_at, settings.life, now)
    _require_planned_under(plan, terms, "deleted")
    document, known = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json"), None
    if document is not None and "withdrawn_by" in document:
        raise _withdrawn(document, plan)
    if document is not None and document.get("day") == plan.day.isoformat():  # another day's plan is approved anew
        known = _read(document, plan)
        if known.approved_by != BUDGET:  # a plan that is made anew with the same hash keeps it, but for no longer
            _require_recent(plan, "was approved", datetime.fromisoformat(known.approved_at), settings.life, now)
            _require_approved_for(known, plan, terms)
            return known
    excess = beyond_budget(plan, budget, beside)
    if excess is None:
        is_same = known is not None and known.terms == terms
        return known if known and is_same else _write(warehouse, plan, BUDGET, now, terms)
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


def require_same_world(plan: Plan, resurrected: int, settings: ApprovalSettings) -> None:
    """Refuse when so much of the plan lives again that it is not what was approved any more."""
    share = resurrected / max(1, plan.candidates.objects)
    if share > settings.max_revived:
        shares = f"{share:.0%}; approval.max_revived is {settings.max_revived:.0%}"
        raise GuardRefused(
            f"{plan.repository} {plan.day}: {resurrected:,} of {plan.candidates.objects:,} planned objects came back "
            f"to life ({shares}): the approval has lapsed. Nothing was deleted. Plan and approve again: "
            f"`retention plan {plan.repository} --as-of {plan.day}`."
        )


def _require_planned_under(plan: Plan, terms: Terms, undone: str) -> None:
    """Refuse a plan that was made under other settings than those of now: approving it again would not help."""
    remedy = f"Nothing was {undone}. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
    if not plan.terms:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the plan does not say under which settings it was made: an earlier version "
            f"made it. {remedy}"
        )
    now = {name: value for name, value in terms.items() if name not in _SWEPT_UNDER}
    if differing := _differences(plan.terms, now):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since the plan was made: {differing}. {remedy}"
        )


def _require_approved_for(approval: Approval, plan: Plan, terms: Terms) -> None:
    again = f"`retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`"
    if not approval.terms:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the approval of {plan.plan_hash} does not say for which mode and settings "
            f"it was given: an earlier version wrote it. Nothing was deleted. Approve it again: {again}."
        )
    if differing := _differences(approval.terms, terms):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since {approval.approved_by} approved the plan: "
            f"{differing}. Nothing was deleted. Put the settings back, or approve the plan under those of now: {again}."
        )


def _differences(then: Terms, now: Terms) -> str:
    """Return each setting that differs, with both values; empty when all are the same."""
    names = [name for name in {**now, **then} if then.get(name) != now.get(name)]
    return "; ".join(f"{name} was {then.get(name, 'not set')}, is {now.get(name, 'not set')}" for name in names)


def _write(warehouse: Warehouse, plan: Plan, by: str, now: datetime, terms: Terms) -> Approval:
    approval = Approval(plan.plan_hash, plan.day.isoformat(), by, now.isoformat(), dict(terms))
    warehouse.write_document(asdict(approval), plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    return approval


def _withdrawn(document: Mapping[str, Any], plan: Plan) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: {document['withdrawn_by']} withdrew the approval of {plan.plan_hash} at "
        f"{document.get('withdrawn_at')}. Nothing was deleted. If that is over: "
        f"`retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
    )


def _read(document: Mapping[str, Any], plan: Plan) -> Approval:
    approval = None
    with suppress(TypeError, ValueError):
        found = Approval(**document)
        datetime.fromisoformat(found.approved_at)
        approval = found if isinstance(found.terms, dict) else None
    if approval is None or approval.plan_hash != plan.plan_hash:
        raise GuardRefused(
            f"{plan.repository}: the approval of {plan.plan_hash} is not one that this version wrote. Nothing was "
            f"deleted. Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
        )
    return approval
