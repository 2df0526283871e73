"""Approval of a plan by its hash, by a person or by a budget. Without an approval, a sweep deletes nothing.

An approval is for one plan and for the settings at that time. Its document lists the settings as `terms`. A sweep with
other settings is refused. Source: docs/safety.md, "What an approval is for".
"""

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from retention_assets.config.configuration import Repository
from retention_assets.config.documents import problem_in
from retention_assets.config.durations import format_duration
from retention_assets.config.limits import ApprovalSettings, BudgetSettings, Limits
from retention_assets.core.amounts import Amount, counted, human_share, sum_of
from retention_assets.errors import GuardRefused, RetentionError, TableContractError
from retention_assets.state.lease import MARGIN
from retention_assets.state.plan import PLANS, Plan, last_plan_of, load_plan, require_plan
from retention_assets.state.records import newest_first
from retention_assets.warehouse.warehouse import Warehouse

APPROVALS = "approvals"
APPROVER = "RETENTION_APPROVER"  # environment variable with the person who approves; default: the system user
BUDGET = "the budget in the configuration"
NO_BUDGET = "Until a person approves a plan of the repository again, a budget approves none."  # after a withdrawal
_AT_ONCE = 16  # documents that are read at the same time
_OF_BUDGET = ".budget"  # part of the name of the document with the budget's approval
LAST_DECISION = "last_decision.json"  # the document with the newest approval or withdrawal by a person

# With the policy, these settings determine the candidates of a plan. lakeFS and Icechunk each have only some of them.
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

APPROVED, WITHIN_BUDGET, NOT_APPROVED, WITHDRAWN, LAPSED, OTHER_SETTINGS = (
    "approved",
    "within the budget",
    "not approved",
    "withdrawn",
    "lapsed",
    "for other settings",
)

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


def terms_hash(terms: Terms) -> str:
    """Return the hash of `planned_terms`. For a lakeFS repository, the hash leaves out `storage`."""
    known = {name: value for name, value in terms.items() if name != "storage" or "namespace" not in terms}
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def approved_terms(repository: Repository) -> Terms:
    """Return all settings of an approval: those of the plan, the mode, and in mode `quarantine` the quarantine URL."""
    mode, quarantine = repository.settings.mode, {}
    if mode == "quarantine":
        from retention_assets.state.quarantine import quarantine_url  # this import takes a quarter of a second

        quarantine = {"quarantine.url": quarantine_url(repository)}
    return {"mode": mode, **quarantine, **planned_terms(repository)}


def _as_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return format_duration(value) if isinstance(value, timedelta) else str(value)


def person(environment: Mapping[str, str] = os.environ) -> str:
    """Return the person who acts: the value of RETENTION_APPROVER, else `user@host`."""
    return environment.get(APPROVER) or f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the system does not know the user's id: OSError since Python 3.13
        return f"uid {os.getuid()}"


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

    The approval is for this hash, day and settings. It also covers a new plan of the day that has the same hash. After
    an approval, the budget approves plans again if a withdrawal had ended this.

    Errors: GuardRefused unless `plan_hash` is the full hash of the plan, and the plan was made within `life` and with
    the same settings. GuardRefused also for a blocked plan, and in mode `plan`, in which no sweep deletes anything.
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
    problem = _age_refusal(plan, "was made", plan.made_at, life, now)
    if problem := problem or _settings_refusal_of_plan(plan, terms, "approved"):
        raise problem
    approval = _approval(plan, by, now, terms)
    # Before the approval itself: if somebody withdraws it meanwhile, the budget approves nothing.
    warehouse.write_document(asdict(approval), repository, APPROVALS, LAST_DECISION)
    _write(warehouse, repository, approval)
    return plan


def withdraw_approval(warehouse: Warehouse, repository: str, day: date, by: str, now: datetime) -> Plan:
    """Withdraw the approvals of all plans of the day, and return the plan of the day; see `last_plan_of`.

    The approvals of earlier plans of the day are withdrawn too: they would count again if a new plan had the same hash.
    A running sweep is not stopped.

    From then on, the budget approves no plan of the repository until a person approves one: the next plan names most of
    the same objects, but can have another hash. The returned plan, and a plan of any other day with the same hash, need
    a new approval by a person. Errors: as `last_plan_of`.
    """
    plan = last_plan_of(warehouse, repository, day)
    withdrawn = {"day": day.isoformat(), "withdrawn_by": by, "withdrawn_at": now.isoformat()}
    warehouse.write_document({"plan_hash": plan.plan_hash, **withdrawn}, repository, APPROVALS, LAST_DECISION)
    for plan_hash in (plan.plan_hash, *_approved_by_person(warehouse, plan)):
        warehouse.write_document({"plan_hash": plan_hash, **withdrawn}, *_path(repository, plan_hash))
    return plan


def approved_plans_of_other_days(
    warehouse: Warehouse, repository: str, day: date, life: timedelta, now: datetime
) -> list[Plan]:
    """Return the current plans of other days that a person approved, that were not swept, and have not lapsed.

    They are sorted by day. A damaged document approves nothing.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        names = warehouse.documents(repository, APPROVALS)
        approvals = list(pool.map(lambda name: _persons_approval(warehouse, repository, name), names))
    plans = []
    for one in approvals:
        if one is None or one.day == day.isoformat():
            continue
        if not _is_recent(datetime.fromisoformat(one.approved_at), life, now):
            continue
        with suppress(RetentionError, ValueError):  # the day has no plan now
            plan = load_plan(warehouse, repository, date.fromisoformat(one.day))
            if plan.plan_hash == one.plan_hash and not _was_swept(warehouse, plan):
                plans.append(plan)
    return sorted(plans, key=lambda plan: plan.day)


def _persons_approval(warehouse: Warehouse, repository: str, name: str) -> Approval | None:
    with suppress(TableContractError):
        document = warehouse.read_document(repository, APPROVALS, name)
        if document and "withdrawn_by" not in document and document.get("approved_by") != BUDGET:
            return _read(document, name.removesuffix(".json"))
    return None


def _was_swept(warehouse: Warehouse, plan: Plan) -> bool:
    records = newest_first(warehouse, plan.repository)
    return any(one["kind"] == "sweep" and (one["day"], one["plan_hash"]) == plan.key for _, one in records)


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """Whether a sweep of a plan may start under the current settings, and why not."""

    name: str  # APPROVED, WITHIN_BUDGET, NOT_APPROVED, WITHDRAWN, LAPSED or OTHER_SETTINGS
    by: str | None  # the person who approved the plan or withdrew the approval
    approval: Approval | None  # the stored approval for the day of the plan, by a person or by the budget
    plan_refusal: RetentionError | None  # a sweep needs another plan: this plan is too old, or has other settings
    approval_refusal: GuardRefused | None  # a sweep needs another approval
    removes: int  # objects and history changes that a sweep removes; 0 if the plan is blocked

    @property
    def refusal(self) -> RetentionError | None:
        """The error of a sweep; None: a sweep may start."""
        return self.plan_refusal or self.approval_refusal

    @property
    def waits_for_person(self) -> bool:
        """Whether a sweep has something to remove, and needs only the approval of a person."""
        return self.removes > 0 and self.plan_refusal is None and self.approval_refusal is not None


def approval_state(
    warehouse: Warehouse,
    plan: Plan,
    limits: Limits,
    now: datetime,
    *,
    terms: Terms,
    history_changes: int = 0,
) -> ApprovalState:
    """Return the state of the approval of the plan, for a sweep with the settings `terms`. Writes nothing.

    A person's approval with other settings is refused, even if the plan is within the budget. `history_changes`: the
    number of changes that are not objects; see `beyond_budget`.
    """
    document, approval, by = warehouse.read_document(*_path(plan.repository, plan.plan_hash)), None, None
    name, refusal = NOT_APPROVED, None
    removes = 0 if plan.blocked else plan.candidates.objects + history_changes
    if document is not None and "withdrawn_by" in document:
        name, by, refusal = WITHDRAWN, document["withdrawn_by"], _withdrawn(document, plan)
    elif document is not None and document.get("day") == plan.day.isoformat():  # another day needs a new approval
        approval = _read(document, plan.plan_hash)
        if approval is None:
            refusal = _unreadable(plan)
        elif approval.approved_by != BUDGET:  # a new plan with the same hash keeps the approval and its age
            by, approved_at = approval.approved_by, datetime.fromisoformat(approval.approved_at)
            if refusal := _age_refusal(plan, "was approved", approved_at, limits.approval.life, now):
                name = LAPSED
            elif refusal := _settings_refusal_of_approval(approval, plan, terms):
                name = OTHER_SETTINGS
            else:
                name = APPROVED
    if refusal is None and name != APPROVED:
        excess = beyond_budget(plan, limits.budget, history_changes)
        if excess is None and removes and (withdrawal := _last_withdrawal(warehouse, plan.repository)):
            refusal = _budget_ended(withdrawal, plan)
        elif excess is None:
            name = WITHIN_BUDGET
            approval = stored_approval(warehouse, plan.repository, plan.day, plan.plan_hash)
        else:
            refusal = _not_approved(plan, excess) if removes or plan.blocked else _nothing_to_delete(plan)
    plan_refusal = _age_refusal(plan, "was made", plan.made_at, limits.approval.life, now)
    plan_refusal = plan_refusal or _settings_refusal_of_plan(plan, terms, "deleted")
    return ApprovalState(name, by, approval, plan_refusal, refusal, removes)


def require_approval(
    warehouse: Warehouse,
    plan: Plan,
    limits: Limits,
    now: datetime,
    *,
    terms: Terms,
    history_changes: int = 0,
) -> Approval:
    """Return the approval of the plan for a sweep with the settings `terms`.

    If no person approved the plan and it is within the budget, its approval by the budget is stored. Arguments: see
    `approval_state`.

    Errors: GuardRefused when the plan is not approved, when the plan or its approval is too old, or when the plan or
    its approval has other settings.
    """
    state = approval_state(warehouse, plan, limits, now, terms=terms, history_changes=history_changes)
    if state.refusal:
        raise state.refusal
    known = state.approval
    if known and (state.name == APPROVED or known.terms == terms):
        return known
    approval = _approval(plan, BUDGET, now, terms)
    _write(warehouse, plan.repository, approval)
    return approval


def stored_approval(warehouse: Warehouse, repository: str, day: date, plan_hash: str) -> Approval | None:
    """Return the approval of the day's plan with this hash; None if none can be read or it was withdrawn."""
    for by in (None, BUDGET):
        document = warehouse.read_document(*_path(repository, plan_hash, by))
        if document and "withdrawn_by" in document:
            return None
        if document and document.get("day") == day.isoformat():
            return _read(document, plan_hash)
    return None


def has_approval(warehouse: Warehouse, plan: Plan) -> bool:
    """Return whether the plan has an approval that was not withdrawn. A document that is not JSON counts as one."""
    try:
        return stored_approval(warehouse, plan.repository, plan.day, plan.plan_hash) is not None
    except TableContractError:
        return True


def _is_recent(at: datetime, life: timedelta, now: datetime) -> bool:
    """Return whether a plan or approval of the time `at` is still valid.

    A time more than `MARGIN` in the future is not valid: a clock is or was wrong, so the plan or approval would lapse
    too late.
    """
    return -MARGIN <= now - at <= life


def _age_refusal(plan: Plan, what: str, at: datetime, life: timedelta, now: datetime) -> GuardRefused | None:
    if _is_recent(at, life, now):
        return None
    again = f"`retention plan {plan.repository} --as-of {plan.day}`"
    if at > now:
        return GuardRefused(
            f"{plan.repository}: the plan of {plan.day} {what} at {at:%Y-%m-%d %H:%M} UTC, which is later than now, "
            f"{now:%Y-%m-%d %H:%M} UTC. Nothing was deleted. If this machine's clock is wrong, set it. If another "
            f"clock was wrong at that time, plan and approve again: {again}."
        )
    return GuardRefused(
        f"{plan.repository}: the plan of {plan.day} {what} at {at:%Y-%m-%d %H:%M} UTC, longer ago than "
        f"approval.life ({format_duration(life)}). A plan or approval of this age is not valid. Nothing was "
        f"deleted. Plan and approve again: {again}."
    )


def _approving(plan: Plan) -> str:
    """Return the command that approves the plan, for a message."""
    return f"`retention approve {plan.repository} {plan.plan_hash} --as-of {plan.day}`"


def _not_approved(plan: Plan, excess: str) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved{excess}. Nothing was deleted. "
        f"Approve it: {_approving(plan)}."
    )


def when_to_plan_again(plan: Plan) -> str:
    """Return when a new plan may have more to delete: `tomorrow`, or `after` the time when the first object settles."""
    return f"after {plan.first_wait_ends:%Y-%m-%d %H:%M} UTC" if plan.first_wait_ends else "tomorrow"


def _nothing_to_delete(plan: Plan) -> GuardRefused:
    waits = " Objects wait until then." if plan.first_wait_ends else ""
    return GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} has nothing to delete, so it needs no approval. "
        f"Nothing was deleted. Plan again {when_to_plan_again(plan)}: `retention plan {plan.repository}`.{waits}"
    )


def beyond_budget(plan: Plan, budget: BudgetSettings, history_changes: int = 0) -> str | None:
    """Return why the budget does not approve the plan; empty: no budget is set; None: the budget approves the plan.

    `history_changes`: the number of snapshots and references that the plan removes from the history. Each counts as one
    object. A budget that limits only bytes does not cover them.
    """
    if not budget.is_set:
        return ""
    if history_changes and budget.objects is None and budget.share is None:
        return (
            ", and the budget does not cover the snapshots and references that the plan removes from the history "
            f"({history_changes:,})"
        )
    listed = sum_of(plan.totals.values())
    planned = Amount(plan.candidates.objects + history_changes, plan.candidates.bytes)
    if budget.objects is not None and planned.objects > budget.objects:
        what = ("object is", "objects are")
        if history_changes:
            what = ("object, snapshot or reference is", "objects, snapshots and references are")
        return f", and its {counted(planned.objects, what[0], what[1])} more than the budget's {budget.objects:,}"
    if budget.bytes is not None and planned.bytes > budget.bytes:
        return f", and its {planned.bytes:,} bytes are more than the budget's {budget.bytes:,}"
    share = max(planned.objects / max(1, listed.objects), planned.bytes / max(1, listed.bytes))
    if budget.share is not None and share > budget.share:
        return f", and {human_share(share)} of the repository is more than the budget's {human_share(budget.share)}"
    return None


def require_few_resurrected(plan: Plan, resurrected: int, settings: ApprovalSettings) -> None:
    """Raise GuardRefused when the share of planned objects that are live again exceeds `approval.max_revived`."""
    share = resurrected / max(1, plan.candidates.objects)
    if share > settings.max_revived:
        shares = f"{human_share(share)}; approval.max_revived is {human_share(settings.max_revived)}"
        raise GuardRefused(
            f"{plan.repository} {plan.day}: of {counted(plan.candidates.objects, 'planned object')}, {resurrected:,} "
            f"{'is' if resurrected == 1 else 'are'} live again ({shares}): the approval has lapsed. Nothing was "
            f"deleted. Plan and approve again: `retention plan {plan.repository} --as-of {plan.day}`."
        )


def _settings_refusal_of_plan(plan: Plan, terms: Terms, undone: str) -> GuardRefused | None:
    """Return a refusal when the plan was made with other settings than the current ones.

    A new approval of the same plan does not help: a new plan is needed.
    """
    remedy = f"Nothing was {undone}. {plan.again}"
    if not plan.terms:
        return GuardRefused(
            f"{plan.repository} {plan.day}: the plan has no settings, because an earlier version made it. {remedy}"
        )
    now = {name: value for name, value in terms.items() if name not in _SWEEP_SETTINGS}
    if differing := differences(plan.terms, now):
        return GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since the plan was made: {differing}. {remedy}"
        )
    return None


def _settings_refusal_of_approval(approval: Approval, plan: Plan, terms: Terms) -> GuardRefused | None:
    again = _approving(plan)
    if not approval.terms:
        return GuardRefused(
            f"{plan.repository} {plan.day}: the approval of {plan.plan_hash} does not say for which mode and settings "
            f"it was given: an earlier version wrote it. Nothing was deleted. Approve it again: {again}."
        )
    if differing := differences(approval.terms, terms):
        return GuardRefused(
            f"{plan.repository} {plan.day}: settings were changed since {approval.approved_by} approved the plan: "
            f"{differing}. Nothing was deleted. Change the settings back, or approve the plan under the current ones: "
            f"{again}."
        )
    return None


def differences(then: Terms, now: Terms) -> str:
    """Return a text with each setting that differs and both its values; empty when all are the same."""
    names = [name for name in {**now, **then} if then.get(name) != now.get(name)]
    return "; ".join(f"{name} was {then.get(name, 'not set')}, is {now.get(name, 'not set')}" for name in names)


def _approval(plan: Plan, by: str, now: datetime, terms: Terms) -> Approval:
    return Approval(plan.plan_hash, plan.day.isoformat(), by, now.isoformat(), dict(terms))


def _write(warehouse: Warehouse, repository: str, approval: Approval) -> None:
    warehouse.write_document(asdict(approval), *_path(repository, approval.plan_hash, approval.approved_by))


def _path(repository: str, plan_hash: str, by: str | None = None) -> tuple[str, str, str]:
    """Return the path of the document of a person's approval or withdrawal, or of the approval by the budget.

    The budget has a document of its own, so that it never overwrites a withdrawal that a person writes meanwhile.
    Earlier versions wrote all approvals to one document.
    """
    return repository, APPROVALS, f"{plan_hash}{_OF_BUDGET if by == BUDGET else ''}.json"


def _approved_by_person(warehouse: Warehouse, plan: Plan) -> Iterator[str]:
    """Yield the hashes of the plans of this plan's day that a person approved. A damaged document approves nothing."""
    repository, day = plan.repository, plan.day.isoformat()
    # The names of the documents of plans end with the first 12 digits of the hash.
    of_day = {name.removesuffix(".json")[-12:] for name in warehouse.documents(repository, PLANS, day)}
    for name in warehouse.documents(repository, APPROVALS):
        if name[:12] not in of_day:
            continue
        with suppress(TableContractError):
            document = warehouse.read_document(repository, APPROVALS, name) or {}
            if document.get("approved_by", BUDGET) != BUDGET and document.get("day") == day:
                yield name.removesuffix(".json")


def _withdrawn(document: Mapping[str, Any], plan: Plan) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: {document['withdrawn_by']} withdrew the approval of {plan.plan_hash} at "
        f"{document.get('withdrawn_at')}. Nothing was deleted. To approve it again: {_approving(plan)}."
    )


def _last_withdrawal(warehouse: Warehouse, repository: str) -> Mapping[str, Any] | None:
    """Return the newest decision of a person if it is a withdrawal."""
    document = warehouse.read_document(repository, APPROVALS, LAST_DECISION)
    return document if document and "withdrawn_by" in document else None


def _budget_ended(withdrawal: Mapping[str, Any], plan: Plan) -> GuardRefused:
    day, at = withdrawal.get("day"), withdrawal.get("withdrawn_at")
    return GuardRefused(
        f"{plan.repository}: the plan {plan.plan_hash} of {plan.day} is not approved. {withdrawal['withdrawn_by']} "
        f"withdrew the approval of the plan of {day} at {at}. Since then, the budget approves no plan until a person "
        f"approves one. Nothing was deleted. Look at the plan: `retention show {plan.repository} deletion_candidates "
        f"--as-of {plan.day}`. Then approve it: {_approving(plan)}."
    )


def _read(document: Mapping[str, Any], plan_hash: str) -> Approval | None:
    """Return the approval in a document; None if somebody changed the document, or another version wrote it."""
    with suppress(TypeError, ValueError):
        found = Approval(**document)
        has_zone = datetime.fromisoformat(found.approved_at).tzinfo is not None
        if has_zone and problem_in(document, Approval) is None and found.plan_hash == plan_hash:
            return found
    return None


def _unreadable(plan: Plan) -> GuardRefused:
    return GuardRefused(
        f"{plan.repository}: the stored approval of {plan.plan_hash} cannot be read: it was changed, or another "
        f"version wrote it. Nothing was deleted. Approve the plan again: {_approving(plan)}."
    )
