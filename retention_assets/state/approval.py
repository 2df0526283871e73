"""Approval of a plan by its hash, by a person or by a budget. Without an approval, a sweep deletes nothing.

An approval is for one plan and for the settings at that time. Its document lists the settings as `terms`. A sweep with
other settings is refused. Source: DESIGN.md, Decisions (Modes) and invariant 12.
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
from retention_assets.core.amounts import Amount, sum_of
from retention_assets.errors import GuardRefused
from retention_assets.state.lease import MARGIN
from retention_assets.state.plan import Plan, load_plan, require_plan
from retention_assets.warehouse.warehouse import Warehouse

APPROVALS = "approvals"
APPROVER = "RETENTION_APPROVER"  # environment variable: the person who approves, if not the system user
BUDGET = "the budget in the configuration"

# With the policy, these settings determine the candidates of a plan. A kind of repository has only some of them.
_PLAN_SETTINGS = (
    "grace",
    "settle",
    "settle_expired",
    "reflog",
    "token_life",
    "tags",
    "legacy_names",
    "collect_overwritten",
)
_SWEEP_SETTINGS = ("mode", "quarantine.url")  # terms of an approval that are not terms of a plan

Terms = Mapping[str, str]  # settings as text, by their keys in `retention.yaml`


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval: the plan, the person or budget, the time (ISO 8601, UTC), and the settings."""

    plan_hash: str
    day: str
    approved_by: str
    approved_at: str
    terms: Terms = field(default_factory=dict)  # empty: an earlier version wrote the approval, without settings


def planned_terms(repository: Repository) -> Terms:
    """Return the settings that determine the candidates of a plan of the repository. `Plan.terms` stores them."""
    namespace = {} if repository.is_icechunk else {"namespace": repository.namespace}
    known = type(repository.settings).model_fields
    values = {name: getattr(repository.settings, name) for name in _PLAN_SETTINGS if name in known}
    return {**namespace, "storage": repository.storage, **{name: _as_text(value) for name, value in values.items()}}


def approved_terms(repository: Repository) -> Terms:
    """Return all settings of an approval: those of the plan, the mode, and the quarantine URL if the mode uses it."""
    from retention_assets.state.quarantine import quarantine_url  # this import takes a quarter of a second

    mode = repository.settings.mode
    quarantine = {"quarantine.url": quarantine_url(repository)} if mode == "quarantine" else {}
    return {"mode": mode, **quarantine, **planned_terms(repository)}


def _as_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def person(environment: Mapping[str, str] = os.environ) -> str:
    """Return the person who acts: the value of RETENTION_APPROVER, else `user@host`."""
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
    """Approve the current plan of the day for a sweep with the settings `terms` (see `approved_terms`).

    The approval is for this hash, day and settings. It also covers a new plan of the day that has the same hash.
    Errors: GuardRefused unless `plan_hash` is the full hash of the plan, and the plan was made within `life` and with
    the same settings. GuardRefused in mode `plan`, in which no sweep deletes anything.
    """
    plan = require_plan(warehouse, repository, day, plan_hash, undone="approved")
    if plan.blocked:
        raise GuardRefused(
            f"{repository} {day}: the plan must not be executed: {plan.blocked} Nothing was approved. Correct this, "
            f"then plan again: `retention plan {repository} --as-of {day}`."
        )
    if terms["mode"] == "plan":
        raise GuardRefused(
            f"{repository}: its mode is `plan`, in which no sweep deletes anything. Nothing was approved, because an "
            f"approval is for one mode. Set `mode: quarantine` or `mode: delete` in the configuration, then approve "
            f"again."
        )
    _require_recent(plan, "was made", plan.made_at, life, now)
    _require_settings_of_plan(plan, terms, "approved")
    _write(warehouse, plan, by, now, terms)
    return plan


def person_approval(warehouse: Warehouse, plan: Plan) -> Approval | None:
    """Return the approval of the plan by a person; None if there is none, or if it was withdrawn.

    Errors: GuardRefused when this version cannot read the stored approval.
    """
    document = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    if document is None or "withdrawn_by" in document or document.get("day") != plan.day.isoformat():
        return None
    approval = _read(document, plan)
    return None if approval.approved_by == BUDGET else approval


def waits_for_person(
    warehouse: Warehouse,
    plan: Plan,
    approval: ApprovalSettings,
    budget: BudgetSettings,
    now: datetime,
    history_changes: int = 0,
) -> bool:
    """Return whether a sweep of the plan still needs a person's approval. `history_changes`: see `beyond_budget`."""
    if plan.blocked or not is_recent(plan.made_at, approval.life, now) or not plan.candidates.objects + history_changes:
        return False
    document = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    if document is not None and "withdrawn_by" in document:
        return True
    return person_approval(warehouse, plan) is None and beyond_budget(plan, budget, history_changes) is not None


def withdraw_approval(warehouse: Warehouse, repository: str, day: date, by: str, now: datetime) -> Plan:
    """Withdraw the approval of the current plan of the day, and return the plan.

    Until a person approves the plan again, the budget does not approve it either. This applies to every plan with the
    same hash, on any day. A running sweep is not stopped. Errors: GuardRefused when the day has no current plan.
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
    history_changes: int = 0,
) -> Approval:
    """Return the approval of the plan for a sweep with the settings `terms`.

    A plan within the budget is approved now, by the budget. A person's approval with other settings is refused, even if
    the plan is within the budget. `history_changes`: the number of changes that are not objects; see `beyond_budget`.
    Errors: GuardRefused when the plan is not approved, when the plan or its approval is too old, or when the plan or
    its approval has other settings.
    """
    _require_recent(plan, "was made", plan.made_at, settings.life, now)
    _require_settings_of_plan(plan, terms, "deleted")
    document, known = warehouse.read_document(plan.repository, APPROVALS, f"{plan.plan_hash}.json"), None
    if document is not None and "withdrawn_by" in document:
        raise _withdrawn(document, plan)
    if document is not None and document.get("day") == plan.day.isoformat():  # another day needs a new approval
        known = _read(document, plan)
        if known.approved_by != BUDGET:  # a new plan with the same hash keeps the approval and its age
            _require_recent(plan, "was approved", datetime.fromisoformat(known.approved_at), settings.life, now)
            _require_settings_of_approval(known, plan, terms)
            return known
    excess = beyond_budget(plan, budget, history_changes)
    if excess is None:
        is_same = known is not None and known.terms == terms
        return known if known and is_same else _write(warehouse, plan, BUDGET, now, terms)
    raise GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved{excess}. Nothing was deleted. "
        f"Approve it: `retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`."
    )


def is_recent(at: datetime, life: timedelta, now: datetime) -> bool:
    """Return whether a plan or approval of the time `at` still counts.

    A time in the future does not count: a clock is or was wrong, so the plan or approval would lapse too late.
    """
    return -MARGIN <= now - at <= life


def _require_recent(plan: Plan, what: str, at: datetime, life: timedelta, now: datetime) -> None:
    if is_recent(at, life, now):
        return
    again = f"`retention plan {plan.repository} --as-of {plan.day}`"
    if at > now:
        raise GuardRefused(
            f"{plan.repository}: the plan of {plan.day} {what} at {at:%Y-%m-%d %H:%M} UTC, which is later than now, "
            f"{now:%Y-%m-%d %H:%M} UTC. Nothing was deleted. If this machine's clock is wrong, set it. If a clock was "
            f"wrong at that time, plan and approve again: {again}."
        )
    raise GuardRefused(
        f"{plan.repository}: the plan of {plan.day} {what} at {at:%Y-%m-%d %H:%M} UTC, longer ago than "
        f"approval.life, {format_duration(life)}: its approval has lapsed. Nothing was deleted. Plan and "
        f"approve again: {again}."
    )


def beyond_budget(plan: Plan, budget: BudgetSettings, history_changes: int = 0) -> str | None:
    """Return the reason why the budget does not approve the plan; None if it does. Empty text: no budget is set.

    `history_changes`: the number of snapshots that the plan releases plus references that it deletes. Each counts as
    one object. A budget that only limits bytes does not cover them.
    """
    if not budget.is_set:
        return ""
    if history_changes and budget.objects is None and budget.share is None:
        removed = f"{history_changes:,} snapshots and references"
        return f", and the budget does not cover the {removed} that the plan removes from the history"
    listed = sum_of(plan.totals.values())
    planned = Amount(plan.candidates.objects + history_changes, plan.candidates.bytes)
    if budget.objects is not None and planned.objects > budget.objects:
        return f", and its {planned.objects:,} objects are more than the budget's {budget.objects:,}"
    if budget.bytes is not None and planned.bytes > budget.bytes:
        return f", and its {planned.bytes:,} bytes are more than the budget's {budget.bytes:,}"
    share = max(planned.objects / max(1, listed.objects), planned.bytes / max(1, listed.bytes))
    if budget.share is not None and share > budget.share:
        return f", and {share:.1%} of the repository is more than the budget's {budget.share:.1%}"
    return None


def require_few_resurrected(plan: Plan, resurrected: int, settings: ApprovalSettings) -> None:
    """Raise GuardRefused when the share of planned objects that are live again exceeds `approval.max_revived`."""
    share = resurrected / max(1, plan.candidates.objects)
    if share > settings.max_revived:
        shares = f"{share:.0%}; approval.max_revived is {settings.max_revived:.0%}"
        raise GuardRefused(
            f"{plan.repository} {plan.day}: {resurrected:,} of {plan.candidates.objects:,} planned objects are live "
            f"again ({shares}): the approval has lapsed. Nothing was deleted. Plan and approve again: "
            f"`retention plan {plan.repository} --as-of {plan.day}`."
        )


def _require_settings_of_plan(plan: Plan, terms: Terms, undone: str) -> None:
    """Raise GuardRefused when the plan was made with other settings than the current ones.

    A new approval of the same plan does not help: a new plan is needed.
    """
    remedy = f"Nothing was {undone}. Plan again: `retention plan {plan.repository} --as-of {plan.day}`."
    if not plan.terms:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the plan has no settings, because an earlier version made it. {remedy}"
        )
    now = {name: value for name, value in terms.items() if name not in _SWEEP_SETTINGS}
    if differing := _differences(plan.terms, now):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since the plan was made: {differing}. {remedy}"
        )


def _require_settings_of_approval(approval: Approval, plan: Plan, terms: Terms) -> None:
    again = f"`retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`"
    if not approval.terms:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the approval of {plan.plan_hash} does not say for which mode and settings "
            f"it was given: an earlier version wrote it. Nothing was deleted. Approve it again: {again}."
        )
    if differing := _differences(approval.terms, terms):
        raise GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since {approval.approved_by} approved the plan: "
            f"{differing}. Nothing was deleted. Change the settings back, or approve the plan under the current ones: "
            f"{again}."
        )


def _differences(then: Terms, now: Terms) -> str:
    """Return a text with each setting that differs and both its values; empty when all are the same."""
    names = [name for name in {**now, **then} if then.get(name) != now.get(name)]
    return "; ".join(f"{name} was {then.get(name, 'not set')}, is {now.get(name, 'not set')}" for name in names)


def _write(warehouse: Warehouse, plan: Plan, by: str, now: datetime, terms: Terms) -> Approval:
    approval = Approval(plan.plan_hash, plan.day.isoformat(), by, now.isoformat(), dict(terms))
    warehouse.write_document(asdict(approval), plan.repository, APPROVALS, f"{plan.plan_hash}.json")
    return approval


def _withdrawn(document: Mapping[str, Any], plan: Plan) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: {document['withdrawn_by']} withdrew the approval of {plan.plan_hash} at "
        f"{document.get('withdrawn_at')}. Nothing was deleted. To approve it again: "
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
            f"{plan.repository}: the stored approval of {plan.plan_hash} cannot be read: it was changed, or another "
            f"version wrote it. Nothing was deleted. Approve the plan again: `retention approve {plan.repository} "
            f"{plan.plan_hash} --as-of {plan.day}`."
        )
    return approval
