"""The schemas of the commands' `--json` output. The docs show them, and tests compare outputs with them."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from retention_assets.config.limits import Model
from retention_assets.config.settings import Mode
from retention_assets.core.amounts import Amount
from retention_assets.explain.explanations import Explanation
from retention_assets.explain.status import InQuarantine, LastSweep
from retention_assets.policy.lint import Finding
from retention_assets.repositories.permissions import PermissionCheck

Kind = Literal["lakefs", "icechunk"]


class Lacking(Model):
    """Permissions that a mode is missing, and permissions that were not tested, as `location: permission`."""

    lacking: list[str]
    not_tried: list[str]


class AccessOutput(Model):
    """The permissions of a repository's credentials."""

    repository: str
    modes: dict[Mode, Lacking]
    checks: list[PermissionCheck]


class InitOutput(AccessOutput):
    """The written files, and the permissions of the credentials."""

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
    """The largest groups of objects that may be deleted and, in `waiting`, of waiting objects."""

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
    duplicates: list[Duplicate]  # as `kept_by_duplicates` of the summary
    summary: Summary


class _OfPlan(Model):
    repository: str
    day: date
    plan_hash: str


class HistoryChanges(Model):
    """How many snapshots, branches and tags the plan of an Icechunk repository removes from the history."""

    snapshots: int
    branches: int
    tags: int


class ApprovalOutput(_OfPlan):
    """An approval, the end of its validity, and its settings."""

    approved_by: str
    until: datetime
    objects: int
    bytes: int
    removed_from_history: HistoryChanges | None = None
    settings: dict[str, str]


class WithdrawalOutput(_OfPlan):
    """The person who withdrew an approval."""

    withdrawn_by: str
    was_approved: bool
    still_approved: list[str]


class ResultsOutput(_OfPlan):
    """The objects of a plan by outcome. `a_failure`: the address and reason of an object that failed."""

    outcomes: dict[str, Amount]
    references_removed: int
    ended_early: str | None
    was_cut_off: bool
    a_failure: tuple[str, str | None] | None


class ReportOutput(ResultsOutput):
    """The results of the newest plan of the day that was swept.

    `earlier_plans`: the others, the oldest first. `unread_plans`: why further plans of the day cannot be read.
    """

    earlier_plans: list[ResultsOutput]
    unread_plans: list[str]


class StopOutput(Model):
    """The person who stopped the sweeps, and the run that was in progress, such as a sweep or restore."""

    repository: str
    stopped_by: str | None
    was_sweeping: str | None = None


class ValidPlan(Model):
    """The newest valid plan."""

    day: date
    plan_hash: str
    made_at: datetime
    blocked: str | None
    first_wait_ends: datetime | None
    last_wait_ends: datetime | None


class TrendDay(Model):
    """The bytes of the candidates and waiting objects in the plan of a day."""

    day: date
    bytes: int


class StatusOutput(Model):
    """The state of a repository. `needs`: a sentence for each required action."""

    repository: str
    kind: Kind
    mode: Mode
    plan: ValidPlan | None
    candidates: Amount
    to_free: Amount
    cost_to_free: float | None
    removed_from_history: HistoryChanges
    waiting: Amount
    monthly_cost: float | None
    approval: str | None
    approved_by: str | None
    sweep: LastSweep | None
    quarantine: list[InQuarantine]
    trend: list[TrendDay]
    stopped_by: str | None
    running: str | None
    needs: list[str]


class AmountOutput(Model):
    """Objects, bytes and their cost per month; null without a price."""

    objects: int
    bytes: int
    per_month: float | None


class NamedAmount(AmountOutput):
    """The amount of a reason, a prefix or a branch."""

    name: str


class ChangeOutput(AmountOutput):
    """The objects of a kind of change, by three kinds of groups."""

    by_reason: list[NamedAmount]
    by_top_prefix: list[NamedAmount]
    by_branch: list[NamedAmount]


class PlanNamed(Model):
    """A plan, with the hashes of its policy and references, and its candidates."""

    plan_hash: str
    day: date
    made_at: datetime
    policy_hash: str
    references_hash: str
    candidates: Amount


class Changes(Model):
    """Objects that only the second plan frees, only the first, both (other reasons), or both (the same reason)."""

    repository: str
    price_per_gb_month: float | None
    newly_freed: ChangeOutput
    no_longer_freed: ChangeOutput
    freed_otherwise: ChangeOutput
    freed_alike: ChangeOutput


class PlansDiffOutput(Changes):
    """The difference between two plans."""

    first: PlanNamed
    second: PlanNamed


class Endangered(AmountOutput):
    """Objects that only the other policy would free, and the part of them that branch heads and tags contain."""

    at_heads: AmountOutput
    by_head: list[NamedAmount]


class _Checked(Model):
    model_config = ConfigDict(serialize_by_alias=True)

    passed: bool
    detail: str = Field(alias="saw")


class GuardOutput(_Checked):
    """The result of a guard for the plan under the other policy."""

    guard: str


class PolicyDiffOutput(Changes):
    """The difference that another policy would make."""

    day: date
    plan: PlanNamed
    policy_hash: str
    endangered: Endangered
    refused_by: list[str]
    guards: list[GuardOutput]
    blocked: str | None
    findings: list[Finding]


class PlanOfForecast(Model):
    """The plan that a forecast begins with."""

    plan_hash: str
    day: date


class DueDay(Model):
    """Objects that come due on a day."""

    day: date
    objects: int
    bytes: int
    by_prefix: list[Group]


class ForecastOutput(Model):
    """Objects that come due until the day `last`, later, or never if nothing changes."""

    policy_hash: str
    first: date
    last: date
    days: list[DueDay]
    later: Amount
    never: Amount


class SimulateOutput(Model):
    """Objects that come due, under the policy of the plan and under another policy."""

    repository: str
    plan: PlanOfForecast
    current: ForecastOutput
    proposed: ForecastOutput | None


class CheckOutput(_Checked):
    """The result of a check of the verification."""

    check: str


class QuarantinedOutput(Model):
    """Copies in quarantine.

    `missing`: objects that were moved, and have no copy there; `surplus`: their originals still exist; `unknown`: no
    ledger lists them.
    """

    plan: str  # its day and hash
    objects: int
    bytes: int
    missing: bool = False
    surplus: bool = False
    unknown: bool = False


class UndoneOutput(Model):
    """The result of a restore or purge. `outcomes`: the ledgers of the plans now.

    Of a restore only: `skipped`: objects that were not restored because other objects are at their paths; `busy`:
    objects that an interrupted sweep may still be processing.
    """

    repository: str
    done: Literal["restored", "purged"]
    failed: int
    skipped: int = 0
    busy: int = 0
    outcomes: dict[str, Amount]


class DueObjectOutput(Model):
    """An object that a purge would delete for good, and the plan that names it. `surplus`: its original is there."""

    day: date
    plan_hash: str
    address: str
    size: int
    surplus: bool


class DueForPurgeOutput(Model):
    """Objects that a purge would delete for good. `approve`: the digest that approves it; null: nothing is due.

    `objects`: the first of these objects, at most `--limit`.
    `keeps_versions`: whether the store of the quarantine keeps versions of deleted objects; null: unknown.
    """

    repository: str
    due: Amount
    surplus: Amount
    objects: list[DueObjectOutput]
    plans_without_copies: int
    approve: str | None
    keeps_versions: bool | None


class AcknowledgedOutput(Model):
    """The objects that a person acknowledged as lost. If `addresses` is empty, nothing was acknowledged."""

    acknowledged_by: str | None
    at: datetime | None
    addresses: list[str]


class LeftoverOutput(Model):
    """A directory or document that the warehouse no longer needs. `files`: how many it has."""

    repository: str
    path: str
    reason: str
    files: int
    bytes: int
    written_at: datetime


class IcechunkStatusOutput(Model):
    """The references of an Icechunk repository; a repository of format 1 has no status."""

    format: int
    snapshots: int
    branches: list[str]
    tags: list[str]
    deleted_tags: list[str]
    status: str | None = None
    reason: str | None = None


class IcechunkChangeOutput(Model):
    """A change of a branch, a tag or the status. `conflicts`: how often another writer was first."""

    repository: str
    done: str
    conflicts: int


class LoggedUpdate(Model):
    """An entry of an Icechunk repository's own log: only the fields of its kind."""

    updated_at: datetime
    kind: str
    backup_path: str | None = None
    name: str | None = None
    previous_snapshot_id: str | None = None
    new_snapshot_id: str | None = None
    from_version: int | None = None
    to_version: int | None = None
    flag_id: int | None = None
    flag_value: bool | None = None
    status: dict[str, Any] | None = None


class UpgradeOutput(Model):
    """The result of an upgrade to format 2, or of its dry run."""

    repository: str
    dry_run: bool
    snapshots: int
    branches: int
    tags: int
    left_out: int
    removed: list[str]
    was_half_done: bool


OUTPUTS: Mapping[str, TypeAdapter[Any]] = {
    "access": TypeAdapter(AccessOutput),
    "acknowledge": TypeAdapter(AcknowledgedOutput),
    "approve": TypeAdapter(ApprovalOutput),
    "diff": TypeAdapter(PlansDiffOutput | PolicyDiffOutput),
    "explain": TypeAdapter(Explanation),
    "housekeeping": TypeAdapter(list[LeftoverOutput]),
    **{
        f"icechunk {change}": TypeAdapter(IcechunkChangeOutput)
        for change in ("branch create", "branch delete", "branch reset", "tag create", "tag delete")
    },
    "icechunk log": TypeAdapter(list[LoggedUpdate]),
    "icechunk status": TypeAdapter(IcechunkStatusOutput | IcechunkChangeOutput),
    "icechunk upgrade": TypeAdapter(UpgradeOutput),
    "init": TypeAdapter(InitOutput),
    "lint": TypeAdapter(dict[str, list[Finding]]),
    "plan": TypeAdapter(PlanOutput | list[PlanOutput]),
    "purge": TypeAdapter(DueForPurgeOutput | UndoneOutput),
    "quarantined": TypeAdapter(list[QuarantinedOutput]),
    "report": TypeAdapter(ReportOutput),
    "restore": TypeAdapter(UndoneOutput),
    "resume": TypeAdapter(StopOutput),
    "show": TypeAdapter(list[dict[str, Any]]),  # the columns of the table
    "simulate": TypeAdapter(SimulateOutput),
    "status": TypeAdapter(list[StatusOutput]),
    "stop": TypeAdapter(StopOutput),
    "sweep": TypeAdapter(ReportOutput),
    "verify": TypeAdapter(list[CheckOutput] | dict[str, list[CheckOutput]]),
    "withdraw": TypeAdapter(WithdrawalOutput),
}
