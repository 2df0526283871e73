"""Reports the status of each repository: plan, approval, last sweep, quarantine, trend, and required actions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from retention_assets.config.configuration import Configuration, Repository
from retention_assets.config.documents import plain
from retention_assets.core.amounts import Amount, HistoryChanges, counted, monthly_cost, sum_of
from retention_assets.core.states import WAITING
from retention_assets.errors import GuardRefused, RetentionError, TableContractError
from retention_assets.explain.plans import approval_of, history_changes_of
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.approval import NOT_APPROVED, OTHER_SETTINGS, ApprovalState
from retention_assets.state.lease import lease_in_force, unseen_lease
from retention_assets.state.ledger import FINISHED, LEDGERS, fence_of, sweeps_of
from retention_assets.state.plan import PLANS, Plan, load_plan
from retention_assets.state.records import amounts_in, newest_first, quarantined_in
from retention_assets.tables import DELETION_PROOF, DELETION_REPORT, STORAGE_INVENTORY, TABLES
from retention_assets.warehouse.warehouse import Warehouse

_DAY = re.compile(r"\d{4}-\d\d-\d\d")  # directories with other names are ignored
_PLANS = 14  # plans in a trend: two weeks of daily plans
_PROGRAM = "{program}"  # a placeholder for the command in a required action


@dataclass(frozen=True, slots=True)
class LastSweep:
    """The newest sweep of a repository, as in its audit record."""

    day: date
    plan_hash: str
    ended: datetime
    mode: str
    outcomes: Mapping[str, Amount]  # totals of the plan's ledger, which also has rows of other sweeps
    ended_early: str | None


@dataclass(frozen=True, slots=True)
class InQuarantine:
    """The objects that a sweep of a plan moved to quarantine and that nobody restored or purged."""

    day: date
    plan_hash: str
    objects: int
    bytes: int
    until: datetime  # `purge` deletes none of them before this time (UTC)
    all_due: datetime  # `purge` may delete all of them after this time (UTC)


@dataclass(frozen=True, slots=True)
class RepositoryStatus:
    """The status of one repository, as `retention status` shows it."""

    repository: str
    kind: str
    mode: str
    plan: Plan | None
    candidates: Amount
    to_free: Amount  # the candidates that the next sweep of the plan tries to remove
    cost_to_free: float | None  # of `to_free` per month; None: no price is configured
    removed_from_history: HistoryChanges  # by the next sweep of an Icechunk plan; empty after a sweep removed them
    waiting: Amount
    monthly_cost: float | None  # of the candidates; None: no price is configured
    approval: str | None
    approved_by: str | None
    sweep: LastSweep | None
    quarantine: tuple[InQuarantine, ...]
    trend: tuple[tuple[date, int], ...]  # day and bytes (candidates and waiting) of the last plans, oldest first
    stopped_by: str | None
    running: str | None  # the run that holds the lease now
    needs: tuple[str, ...]  # a sentence for each required action; `{program}` stands for the command

    def needs_with(self, program: str) -> list[str]:
        """Return the required actions. `program`: the text that calls the command.

        Only `{program}` is replaced, because the errors of a store may contain JSON, which has braces too.
        """
        return [need.replace(_PROGRAM, program) for need in self.needs]

    def document(self) -> dict[str, Any]:
        """Return the status for JSON."""
        plan = self.plan
        newest = plan and {
            "day": plan.day,
            "plan_hash": plan.plan_hash,
            "made_at": plan.made_at,
            "blocked": plan.blocked,
            "first_wait_ends": plan.first_wait_ends,
            "last_wait_ends": plan.last_wait_ends,
        }
        parts = {name: getattr(self, name) for name in self.__slots__}
        trend = [{"day": day, "bytes": size} for day, size in self.trend]
        document: dict[str, Any] = plain({**parts, "plan": newest, "trend": trend})
        return document


def statuses(configuration: Configuration, names: Sequence[str], now: datetime) -> list[RepositoryStatus]:
    """Return the status of these repositories. `now` is UTC. Errors: ConfigurationError for an unknown name."""
    warehouse = Warehouse(configuration.warehouse)
    return [status_of(warehouse, configuration.repository(name), now) for name in names]


def status_of(
    warehouse: Warehouse, repository: Repository, now: datetime, until: date | None = None
) -> RepositoryStatus:
    """Return the status of one repository from its plans, approvals, records and lease.

    `until`: plans of later days do not count; None: all plans count.
    """
    name, settings = repository.name, repository.settings
    days = [day for day in warehouse.directories(name, PLANS) if until is None or day <= until.isoformat()]
    plans = _newest_plans(warehouse, name, days)
    plan = plans[-1] if plans else None
    records = [document for _, document in newest_first(warehouse, name)][::-1]
    holder = lease_in_force(warehouse, name, now)
    approval = _approval_of(warehouse, repository, plan, now) if plan else None
    candidates = plan.candidates if plan else Amount()
    to_free = _to_free(plan, records) if plan else Amount()
    price = settings.price_per_gb_month
    found = RepositoryStatus(
        repository=name,
        kind="icechunk" if repository.is_icechunk else "lakefs",
        mode=settings.mode,
        plan=plan,
        candidates=candidates,
        to_free=to_free,
        cost_to_free=None if price is None else monthly_cost(to_free.bytes, price),
        removed_from_history=_history_changes(warehouse, repository, plan, records) if plan else HistoryChanges(),
        waiting=plan.totals.get(WAITING, Amount()) if plan else Amount(),
        monthly_cost=None if price is None else monthly_cost(candidates.bytes, price),
        approval=approval.name if approval else None,
        approved_by=approval.by if approval else None,
        sweep=_last_sweep(records),
        quarantine=tuple(_in_quarantine(warehouse, name, records, settings.quarantine.keep)),
        trend=tuple((one.day, one.candidates.bytes + one.totals.get(WAITING, Amount()).bytes) for one in plans),
        stopped_by=holder[0] if holder and holder[1] else None,
        running=holder[0] if holder and not holder[1] else None,
        needs=(),
    )
    found_days = filter(_DAY.fullmatch, warehouse.directories(name, STORAGE_INVENTORY.name))
    listed = [day for day in found_days if until is None or day <= str(until)]
    newest = max([*days, *listed], default=None)
    refused = None
    if newest and (plan is None or newest > plan.day.isoformat()):
        refused = _refused_plan(warehouse, name, newest)
    unseen = unseen_lease(warehouse, name, repository.storage, single_machine=settings.sweep.single_machine)
    needs = tuple(
        _needs_of(
            found,
            days[-1] if days else None,
            approval,
            now,
            settings.approval.life,
            unseen,
            refused,
            was_swept=plan is not None and any(_is_whole_sweep(one) for one in _of_plan(plan, records)),
            was_interrupted=plan is not None and _was_interrupted(warehouse, plan, records),
        )
    )
    return replace(found, needs=needs)


def _needs_of(
    status: RepositoryStatus,
    newest_day: str | None,
    approval: ApprovalState | None,
    now: datetime,
    life: timedelta,
    unseen: GuardRefused | None,
    refused: str | None,
    *,
    was_swept: bool,
    was_interrupted: bool,
) -> Iterator[str]:
    """Yield the required actions, the most urgent first.

    Args:
        status: the status of the repository, with `needs` still empty.
        newest_day: the newest day that was ever planned, even if its plan was withdrawn or refused; None: no day was.
        approval: the state of the plan's approval; None: there is no plan.
        now: UTC.
        life: how long a plan may be used.
        unseen: the refusal of all sweeps, because other machines would not see their lease; None: they see it.
        refused: which guards refused the newest plan, with the remedies; None: none did, or it is not known.
        was_swept: whether a sweep of the plan reached its end. The plan of another day can have the same hash.
        was_interrupted: whether a run on the objects of the plan was interrupted, or runs now.
    """
    name, plan = status.repository, status.plan
    if status.stopped_by:
        yield f"Sweeps are stopped by {status.stopped_by}. Resume with: {{program}} resume {name}"
    if status.sweep and status.sweep.ended_early:
        yield f"The last sweep ended early: {status.sweep.ended_early}"
    if status.sweep and (failed := status.sweep.outcomes.get(Outcome.FAILED, Amount()).objects):
        objects = counted(failed, "object")
        yield f"{objects} failed in the last sweep. See: {{program}} report {name} --as-of {status.sweep.day}"
    due = [one for one in status.quarantine if one.all_due <= now]
    if due:
        objects = counted(sum(one.objects for one in due), "object")
        yield f"The time in quarantine of {objects} is over. See: {{program}} purge {name}"
    if refused:
        yield f"{refused} Then plan again: {{program}} plan {name}"
    if plan is None or approval is None:
        if not refused:
            why = f"no valid plan: the plan of {newest_day} was withdrawn or refused" if newest_day else "no plan"
            yield f"There is {why}. Plan with: {{program}} plan {name}"
        return
    if newest_day and newest_day > plan.day.isoformat() and not refused:
        yield f"The plan of {newest_day} was withdrawn or refused. Plan again: {{program}} plan {name}"
    if plan.blocked:
        yield f"The plan must not be executed: {plan.blocked}"
    elif now - plan.made_at > life:
        yield f"The plan of {plan.day} is too old to be swept. Plan again: {{program}} plan {name}"
    elif status.mode != "plan":
        yield from _next_step(status, plan, approval, unseen, was_swept=was_swept, was_interrupted=was_interrupted)


def _next_step(
    status: RepositoryStatus,
    plan: Plan,
    approval: ApprovalState,
    unseen: GuardRefused | None,
    *,
    was_swept: bool,
    was_interrupted: bool,
) -> Iterator[str]:
    name, day = status.repository, plan.day
    if status.running:
        yield (
            f"Run {status.running} is running. If it died, allow other runs: {{program}} stop {name}, then "
            f"{{program}} resume {name}"
        )
        return
    if approval.plan_refusal:
        why = str(approval.plan_refusal).removeprefix(f"{name} {day}: ").removeprefix(f"{name}: ")
        yield f"A sweep of the plan of {day} would be refused: {why}"
        return
    if was_swept and not was_interrupted and not (status.to_free.objects or status.removed_from_history.total):
        return  # nothing is left to approve
    if approval.waits_for_person:
        for_others = approval.name == OTHER_SETTINGS
        why = f"{approval.by} approved the plan for other settings." if for_others else "The plan waits for approval."
        step = f"{why} Approve it with: {{program}} approve {name} {plan.plan_hash} --as-of {day}"
    elif was_interrupted and approval.removes:
        what = "A sweep, restore or purge of the plan was" if was_swept else "A sweep of the plan was"
        again = "Run its command again. To continue a sweep" if was_swept else "Continue with"
        step = f"{what} interrupted. {again}: {{program}} sweep {name} --as-of {day}"
    elif approval.removes and (not was_swept or status.removed_from_history.total):
        step = f"The plan is approved. Sweep with: {{program}} sweep {name} --as-of {day}"
    else:
        return
    if unseen:
        yield f"A sweep would be refused: {unseen}"
    yield step


def _was_interrupted(warehouse: Warehouse, plan: Plan, records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the ledger of the plan has rows of a run that wrote none of the `records`."""
    recorded = [one["fence"] for one in _of_plan(plan, records)]
    return max(sweeps_of(warehouse, plan.repository, *plan.key), default=0) > max(recorded, default=0)


def _is_whole_sweep(record: Mapping[str, Any]) -> bool:
    return record["kind"] == "sweep" and not record.get("ended_early")


def _of_plan(plan: Plan, records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for one in records if (one["day"], one["plan_hash"]) == plan.key]


def _newest_plans(warehouse: Warehouse, name: str, days: Sequence[str]) -> list[Plan]:
    """Return the valid plans of the newest days, oldest first."""
    found: list[Plan] = []
    for day in reversed(days):
        try:
            found.append(load_plan(warehouse, name, date.fromisoformat(day)))
        except RetentionError:  # withdrawn, refused, or of another version: a sweep of such a plan is refused
            continue
        if len(found) == _PLANS:
            break
    return found[::-1]


def _refused_plan(warehouse: Warehouse, name: str, day: str) -> str | None:
    """Return which guards refused the plan of a day, with their figures and remedies; None if no guard did.

    After a guard refuses a table, a plan makes no further table, so only the first table with a refusal counts.
    """
    for table in TABLES:
        if table in (DELETION_REPORT.name, DELETION_PROOF.name):
            continue  # a plan does not make them
        with suppress(TableContractError):  # damaged metadata: a plan writes them again
            metadata = warehouse.metadata_if_there(name, table, day)
            if metadata and metadata.details.refused:
                results = [one for one in metadata.details.check_results or () if not one.passed]
                found = " ".join(f"{one.guard}: {one.message.rstrip('.')}." for one in results)
                return f"A guard refused the plan of {day}. {found or metadata.details.refused + '.'}"
    return None


def _approval_of(warehouse: Warehouse, repository: Repository, plan: Plan, now: datetime) -> ApprovalState:
    try:
        return approval_of(warehouse, repository, plan, now)
    except RetentionError as error:  # a sweep would be refused for the same reason
        return ApprovalState(NOT_APPROVED, None, None, error, None, 0)


def _to_free(plan: Plan, records: Sequence[Mapping[str, Any]]) -> Amount:
    """Return the candidates that the newest record of the plan counts as failed, interrupted or not tried.

    An object that a sweep skipped is needed now, so the plan does not free it. An object in quarantine whose restore
    failed is `failed` in the totals of the record, but a sweep does not try it again. If a sweep skipped objects and a
    restore failed, the result can be too large: the totals do not show which skipped objects are in quarantine.
    """
    newest = next(iter(reversed(_of_plan(plan, records))), None)
    if newest is None:
        return plan.candidates
    totals, held = amounts_in(newest), quarantined_in(newest)
    settled = sum_of(totals.get(one, Amount()) for one in (*FINISHED, Outcome.SKIPPED))
    counted_as_held = sum_of(totals.get(one, Amount()) for one in (Outcome.QUARANTINED, Outcome.SKIPPED))
    objects = settled.objects + max(0, held.objects - counted_as_held.objects)
    size = settled.bytes + max(0, held.bytes - counted_as_held.bytes)
    left = plan.candidates.objects - objects
    return Amount(left, max(0, plan.candidates.bytes - size)) if left > 0 else Amount()


def _history_changes(
    warehouse: Warehouse, repository: Repository, plan: Plan, records: Sequence[Mapping[str, Any]]
) -> HistoryChanges:
    if any(one["kind"] == "sweep" and one.get("published") for one in _of_plan(plan, records)):
        return HistoryChanges()  # a sweep removed them before it deleted any file
    with suppress(GuardRefused):
        return history_changes_of(warehouse, repository, plan)
    return HistoryChanges()  # the edits cannot be used, so no sweep applies them; a required action says this


def _last_sweep(records: Sequence[Mapping[str, Any]]) -> LastSweep | None:
    sweeps = [one for one in records if one["kind"] == "sweep"]
    if not sweeps:
        return None
    newest = sweeps[-1]
    return LastSweep(
        date.fromisoformat(newest["day"]),
        newest["plan_hash"],
        datetime.fromisoformat(newest["ended"]),
        newest["mode"],
        amounts_in(newest),
        newest.get("ended_early"),
    )


@dataclass(frozen=True, slots=True)
class _Moved:
    """The objects that a sweep moved to quarantine, and that are still there.

    `record`: the first record whose totals include these objects. `after`: the fence of the plan's previous record.
    """

    record: Mapping[str, Any]
    after: int
    objects: int
    bytes: int


def _in_quarantine(
    warehouse: Warehouse, name: str, records: Sequence[Mapping[str, Any]], keep: timedelta
) -> Iterator[InQuarantine]:
    """Yield the objects in quarantine by plan and sweep.

    As in a purge, the time of each object counts from its move. Each record has the number of objects of its plan that
    are in quarantine. If this number increased since the record before, the difference was moved in between. A purge
    deletes the oldest objects. The records do not show which objects were restored. The function assumes that these
    were the newest, so no time that it yields is too late.
    """
    moved: dict[tuple[str, str], list[_Moved]] = {}
    fences: dict[tuple[str, str], int] = {}
    for record in records:
        plan = record["day"], record["plan_hash"]
        known = moved.get(plan, [])
        held = quarantined_in(record)
        objects, size = (held.objects - sum(one.objects for one in known), held.bytes - sum(one.bytes for one in known))
        if objects > 0:
            moved[plan] = [*known, _Moved(record, fences.get(plan, 0), objects, max(0, size))]
        elif objects < 0:
            moved[plan] = _without(known, -objects, -size, oldest=record["kind"] == "purge")
        fences[plan] = record["fence"]
    for (day, plan_hash), parts in sorted(moved.items()):
        for part in parts:
            ended = datetime.fromisoformat(part.record["ended"])
            until = _began(warehouse, name, part) + keep
            yield InQuarantine(date.fromisoformat(day), plan_hash, part.objects, part.bytes, until, ended + keep)


def _without(parts: Sequence[_Moved], objects: int, size: int, *, oldest: bool) -> list[_Moved]:
    """Return the parts without this number of objects and bytes: those of the oldest or of the newest moves."""
    left = []
    for part in parts if oldest else reversed(parts):
        taken, freed = min(part.objects, objects), min(part.bytes, size)
        objects, size = objects - taken, size - freed
        if taken < part.objects:
            left.append(replace(part, objects=part.objects - taken, bytes=part.bytes - freed))
    return left if oldest else left[::-1]


def _began(warehouse: Warehouse, name: str, part: _Moved) -> datetime:
    """Return when the first of these objects was moved, or an earlier time.

    A sweep that was interrupted has no record, but its ledger files are older than the record of the sweep after it.
    """
    ledger = name, LEDGERS, part.record["day"], part.record["plan_hash"]
    began = [datetime.fromisoformat(part.record["started"])]
    for sweep in warehouse.directories(*ledger):
        if part.after < (fence_of(sweep) or 0) < part.record["fence"]:
            began += [file.written_at for file in warehouse.tree(*ledger, sweep).values()]
    return min(began)
