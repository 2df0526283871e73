"""The schemas of what commands print with `--json`. The docs show them, and tests hold outputs against them."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal

from pydantic import TypeAdapter

from retention_assets.config.settings import Mode, Model
from retention_assets.core.amounts import Amount
from retention_assets.explain.answers import Answer
from retention_assets.explain.status import InQuarantine, SweepSeen
from retention_assets.policy.lint import Finding
from retention_assets.repositories.permissions import PermissionCheck

Kind = Literal["lakefs", "icechunk"]


class Lacking(Model):
    """What a mode lacks, and what was not tried, as `place: permission`."""

    lacking: list[str]
    not_tried: list[str]


class AccessOutput(Model):
    """What the credentials of a repository may do."""

    repository: str
    modes: dict[Mode, Lacking]
    checks: list[PermissionCheck]


class InitOutput(AccessOutput):
    """The files that were written, and what the credentials may do."""

    files: list[str]


class Group(Model):
    """Objects and bytes of a reason, a prefix or a branch."""

    name: str
    objects: int
    bytes: int


class Groups(Model):
    """Objects and bytes by three kinds of groups."""

    by_reason: list[Group]
    by_top_prefix: list[Group]
    by_branch: list[Group]


class Duplicate(Model):
    """An object that only a second path keeps."""

    address: str
    let_go: str
    kept_by: str


class Summary(Groups):
    """The largest groups of what may go and, in `waiting`, of what still waits."""

    waiting: Groups | None = None
    kept_by_duplicates: list[Duplicate]
    edits: dict[str, Any] | None = None  # of Icechunk: what a sweep removes from the history


class PlanOutput(Model):
    """A plan. Bytes are as listed; times are UTC."""

    repository: str
    day: date
    plan_hash: str
    policy_hash: str
    policy_run: str
    references_hash: str
    candidates: Amount
    totals: dict[str, Amount]
    live: int
    collected: int
    lost: int
    warnings: list[str]
    blocked: str | None
    instance: str | None
    made_at: datetime
    run_id: str
    first_wait_ends: datetime | None
    last_wait_ends: datetime | None
    reflog: list[str]
    terms: dict[str, str]
    summary: Summary


class _OfPlan(Model):
    repository: str
    day: date
    plan_hash: str


class ApprovalOutput(_OfPlan):
    """An approval, until when it holds, and the settings that it is for."""

    approved_by: str
    until: datetime
    objects: int
    bytes: int
    settings: dict[str, str]


class WithdrawalOutput(_OfPlan):
    """Who took an approval back."""

    withdrawn_by: str


class ReportOutput(_OfPlan):
    """What became of the objects of a plan. `a_failure`: the address and reason of an object that failed."""

    outcomes: dict[str, Amount]
    references_removed: int
    ended_early: str | None
    was_cut_off: bool
    a_failure: tuple[str, str | None] | None


class StopOutput(Model):
    """Who stopped the sweeps, and which run was sweeping."""

    repository: str
    stopped_by: str | None
    was_sweeping: str | None = None


class StandingPlan(Model):
    """The newest plan that stands."""

    day: date
    plan_hash: str
    made_at: datetime
    blocked: str | None


class TrendDay(Model):
    """The bytes that the plan of a day would free or lets wait."""

    day: date
    bytes: int


class StatusOutput(Model):
    """How a repository stands. `needs`: sentences that say what a person should do."""

    repository: str
    kind: Kind
    mode: Mode
    plan: StandingPlan | None
    candidates: Amount
    waiting: Amount
    monthly_cost: float | None
    approval: str | None
    approved_by: str | None
    sweep: SweepSeen | None
    quarantine: list[InQuarantine]
    trend: list[TrendDay]
    stopped_by: str | None
    running: str | None
    needs: list[str]


OUTPUTS: Mapping[str, TypeAdapter[Any]] = {
    "access": TypeAdapter(AccessOutput),
    "approve": TypeAdapter(ApprovalOutput),
    "explain": TypeAdapter(Answer),
    "init": TypeAdapter(InitOutput),
    "lint": TypeAdapter(dict[str, list[Finding]]),
    "plan": TypeAdapter(PlanOutput),
    "report": TypeAdapter(ReportOutput),
    "resume": TypeAdapter(StopOutput),
    "status": TypeAdapter(list[StatusOutput]),
    "stop": TypeAdapter(StopOutput),
    "sweep": TypeAdapter(ReportOutput),
    "withdraw": TypeAdapter(WithdrawalOutput),
}
