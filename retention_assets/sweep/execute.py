"""Executes a plan: requires the approval, takes the lease, then processes the objects batch by batch.

For each batch, the sweep runs a liveness check, applies the action to the objects that are not live again, and
writes the ledger. The engine has the objects. This module decides whether the sweep starts and continues, and records
how it ended.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from retention_assets.config.durations import format_duration
from retention_assets.config.limits import Limits
from retention_assets.config.timestamps import Clock, utc_now
from retention_assets.core.amounts import Amount, counted, sum_of
from retention_assets.errors import GuardRefused, RetentionError, StoreError, brief, own_error
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.approval import Approval, Terms, require_approval, require_few_resurrected
from retention_assets.state.lease import Lease, held_lease, renew_lease, require_lease, require_not_taken_over
from retention_assets.state.ledger import LEDGERS, OUTCOMES, SURPLUS_LEDGERS, LedgerLocation, sweeps_of
from retention_assets.state.plan import Plan, load_plan
from retention_assets.state.policies import record_completed
from retention_assets.state.records import (
    NO_SEAL,
    Record,
    Seal,
    amounts_in,
    newest_of_plan,
    quarantined_in,
    write_record,
)
from retention_assets.sweep.engine import BatchResult, Engine, RepositorySweep, SweepEngine
from retention_assets.sweep.worker import Action, TaskSpec
from retention_assets.warehouse.warehouse import Warehouse

_LOG_SECONDS = 10.0  # seconds between two log lines
_MANY_FAILED = 100  # objects: if so many fail in a row, the cause is not a single object
Log = Callable[[str], None]


class Progress:
    """Counts the processed objects of all batches against the expected total."""

    def __init__(self, name: str, objects: int, clock: Clock, log: Log) -> None:
        self._name = name
        self._objects = objects
        self._clock = clock
        self._log = log
        self._began = clock()
        self.done = 0

    def count(self, result: BatchResult) -> None:
        """Add the result of a finished batch, and log the progress of the sweep."""
        self.done += sum(amount.objects for amount in result.amounts.values())
        counts = ", ".join(f"{amount.objects:,} {outcome}" for outcome, amount in sorted(result.amounts.items()))
        self._log(f"{self._line(self.done)}; {counts or 'nothing'} in this batch")

    def expect(self, objects: int) -> None:
        """Raise the expected total if `objects` more objects remain, for example those of the next phase."""
        self._objects = max(self._objects, self.done + objects)

    @contextmanager
    def watched(self, location: LedgerLocation) -> Iterator[None]:
        """Log the progress of the workers every few seconds, counted by the files they add to the ledger."""
        before, ended = location.objects_recorded(), threading.Event()

        def watch() -> None:
            while not ended.wait(_LOG_SECONDS):
                with suppress(RetentionError):  # a failed listing costs one line of the log
                    self._log(self._line(self.done + location.objects_recorded() - before))

        watcher = threading.Thread(target=watch, daemon=True, name="sweep-progress")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join(_LOG_SECONDS)  # the thread must not read the warehouse while the process exits

    def _line(self, done: int) -> str:
        seconds = (self._clock() - self._began).total_seconds()
        rate = done / seconds if seconds else 0.0
        left = f"{timedelta(seconds=round((self._objects - done) / rate))} left" if rate else "time left unknown"
        return f"{self._name}: {done:,} of {counted(self._objects, 'object')}, {rate:,.0f} objects/s, {left}"


# The outcomes that only the action has. The checks before the action also report missing and skipped objects.
_SUCCESS = {Outcome.DELETED, Outcome.QUARANTINED, Outcome.PURGED, Outcome.RESTORED}


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One sweep, restore or purge of the objects of a plan: the action, the run, and the limits.

    `kind`: sweep, restore or purge. `mode`: delete or quarantine; of a restore or purge, the same as `kind`. `workers`:
    the number of workers that share the rate. `beyond_plan`: for the audit record, the copies that a purge deletes
    although no plan contains them. `ready`: makes the action ready on all workers, before a sweep with remaining
    objects changes anything.
    """

    warehouse: Warehouse
    plan: Plan
    kind: str
    mode: str
    action: Action
    limits: Limits
    run_id: str
    clock: Clock
    log: Log
    workers: int = 1
    beyond_plan: Mapping[str, Any] | None = None
    terms: Terms = field(default_factory=dict)  # the current settings; restore and purge need no approval of a plan
    dump: Mapping[str, str] | None = None  # for the audit record: see `Record`
    seal: Seal = NO_SEAL  # how the audit record is signed, and where its copy is stored
    ready: Callable[[], None] = lambda: None

    @property
    def name(self) -> str:
        """The name of the sweep in messages: repository and day."""
        return f"{self.plan.repository} {self.plan.day}"

    @property
    def share_of_rate(self) -> float | None:
        """The most objects per second of each worker; None: no limit."""
        rate = self.limits.sweep.rate
        return None if rate is None else rate / self.workers


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep run."""

    outcomes: Mapping[str, Amount]  # current totals of the ledger of the plan, by outcome
    is_complete: bool  # whether the plan was completed


def execute(run: SweepRun, engine: SweepEngine[Any], repository: RepositorySweep) -> SweepResult:
    """Delete or quarantine the objects of the approved plan that are not live again.

    Objects that an earlier attempt finished are left out. The edits of the plan are published before any object is
    deleted. Source: docs/safety.md, "Before and during a sweep".

    Errors: GuardRefused before any change, or later when the lease is lost or the plan was withdrawn or replaced; the
    errors of `work_and_conclude`.
    """
    started = run.clock()
    limits, plan = run.limits, run.plan
    approval = require_approval(
        run.warehouse,
        plan,
        limits,
        started,
        terms=run.terms,
        history_changes=repository.history_changes,
    )
    run.seal.copy_records(run.warehouse, plan.repository)  # a sweep that cannot copy its record must not start
    with held_lease(run.warehouse, plan.repository, run.run_id, run.clock, limits.sweep.lease) as lease:
        batches = engine.remaining(lease.fence)
        if batches or repository.history_changes:
            repository.require_same()
        if batches:
            require_few_resurrected(plan, engine.resurrected(), limits.approval)
            run.ready()
        if repository.publishes:
            lease = renew_lease(run.warehouse, lease, run.clock())
            require_current_plan(run)
        return work_and_conclude(run, engine, approval, lease, started, batches, repository)


def work_and_conclude(
    run: SweepRun,
    engine: Engine[Any],
    approval: Approval,
    lease: Lease,
    started: datetime,
    batches: Sequence[int],
    repository: RepositorySweep | None = None,
) -> SweepResult:
    """Publish the edits of the plan, process all remaining objects, write the audit record, mark a completed plan.

    A sweep that ends early also writes an audit record, if it may have changed anything. So does a sweep whose ledger
    does not balance with the plan. But if another run took the lease and has written a record of the plan, the sweep
    writes none, so that the other record stays the newest. A restore or purge has no `repository`, because it publishes
    no edits. `batches`: the number of objects in each remaining batch, see `Engine.remaining`.

    Errors: the error that ended the sweep, whether or not a record could be written. If this run tried any object or
    wrote an edit, the message does not say that nothing was deleted.
    """
    published = run.beyond_plan
    may_publish = repository is not None and repository.publishes
    try:
        if repository:
            published = repository.publish(lease)
        lease, window = work_through(run, engine, lease, batches)
        require_not_taken_over(run.warehouse, lease)
        outcomes = dict(engine.outcomes())
        require_balance(run.plan, outcomes)
        outcomes.pop(Outcome.ATTEMPTED, None)
        record = _record(run, engine, approval, lease, started, outcomes, engine.ledger_digest(lease.fence))
    except BaseException as error:  # also when Dagster or a signal ends the run
        own = own_error(error)
        with suppress(Exception):  # using the warehouse may fail for the same reason; the first error is raised
            has_rows, has_surplus = (
                lease.fence in sweeps_of(run.warehouse, run.plan.repository, *run.plan.key, tree)
                for tree in (LEDGERS, SURPLUS_LEDGERS)
            )
            if run.beyond_plan and not has_surplus:
                published = None  # no surplus copy was tried
            if own and (has_rows or has_surplus or (repository is not None and repository.has_edited)):
                own.say_nothing_more()
            if (may_publish or has_rows or has_surplus) and not _has_newer_record(run, lease):
                # After Spark aborts a job, its other workers may still write rows: a digest would be wrong soon.
                digest = engine.ledger_digest(lease.fence) if isinstance(error, RetentionError) else None
                record = _record(run, engine, approval, lease, started, engine.outcomes(), digest)
                ended = replace(record, published=published, ended_early=brief(own or error))
                write_record(run.warehouse, ended, run.seal)
        if own and own is not error:
            raise own from None  # Spark's text has the message of the worker, which does not know what others did
        raise
    write_record(run.warehouse, replace(record, longest_window_seconds=window, published=published), run.seal)
    plan, is_complete = run.plan, _is_complete(record)
    if is_complete:
        record_completed(run.warehouse, plan.repository, plan.day, plan.plan_hash, plan.policy_run)
    return SweepResult(outcomes, is_complete)


def _has_newer_record(run: SweepRun, lease: Lease) -> bool:
    """Return whether a later run, which took the lease from this one, has written a record of the plan already."""
    newest = newest_of_plan(run.warehouse, run.plan.repository, *run.plan.key)
    return newest is not None and newest["fence"] > lease.fence


def work_through(run: SweepRun, engine: Engine[Any], lease: Lease, batches: Sequence[int]) -> tuple[Lease, float]:
    """Process `batches`, and all that remain after them; return the current lease and the longest window in seconds.

    A window is the time from a liveness check to the last object processed under that check. Objects that a batch
    leaves at its deadline are checked again in the next pass.

    Errors: GuardRefused after two passes in a row without progress, and when the lease is lost; StoreError after
    batches in a row in which many objects failed and none succeeded.
    """
    window, reached, failed = 0.0, None, 0
    batch_numbers = count()
    progress = Progress(run.name, sum(batches) + engine.later, run.clock, run.log)
    is_second = False
    while batches:
        before = progress.done
        for number, objects in enumerate(batches):
            lease = renew_lease(run.warehouse, lease, run.clock())
            require_current_plan(run)
            batch = engine.check(number)
            lease = renew_lease(run.warehouse, lease, run.clock())
            at = "" if run.kind == "restore" else f", liveness checked at {batch.checked_at:%H:%M:%S} UTC"
            run.log(f"{run.name}: {run.mode} {counted(objects, 'object')}{at}")
            task = _task_of(run, lease, batch.checked_at, next(batch_numbers), reached)
            with progress.watched(task.ledger):
                result = engine.run(batch, task)
            window = max(window, (result.until - batch.checked_at).total_seconds() if result.until else 0.0)
            reached = result.reached or reached
            progress.count(result)
            failed += result.amounts.get(Outcome.FAILED, Amount()).objects
            failed = 0 if result.amounts.keys() & _SUCCESS else failed
            _require_some_success(run, failed, left=sum(batches[number + 1 :]))
        if progress.done == before:
            require_lease(run.warehouse, lease, run.clock())  # a lost lease also explains a pass without progress
            if is_second:
                raise _window_too_short(run, sum(batches))
        is_second = progress.done == before  # the first pass fills the cache, so only the second shows the true time
        batches = engine.remaining(lease.fence)
        progress.expect(sum(batches) + engine.later)
    return lease, window


def require_current_plan(run: SweepRun) -> None:
    """Raise GuardRefused when another process withdrew or replaced the plan."""
    if run.kind == "sweep" and load_plan(run.warehouse, run.plan.repository, run.plan.day) != run.plan:
        raise GuardRefused(
            f"{run.name}: another process made a new plan of the day. Nothing more was deleted. The ledger has "
            f"what was done. See the new plan and its hash: `retention status {run.plan.repository}`. Approve it if "
            "needed, then sweep."
        )


def _is_complete(record: Record) -> bool:
    """Return whether the plan was completed, from the totals in the record of the run.

    A plan with failed, unattempted, quarantined or restored objects is not completed: `last_deleted` does not advance.
    Skipped objects do not prevent completion, because a later plan includes them again. But an object whose copy was
    skipped by a purge is still in quarantine, and prevents completion. Source: docs/lifecycle.md, "Every plan evaluates
    every pair".
    """
    document = asdict(record)
    outcomes, in_quarantine = amounts_in(document), quarantined_in(document).objects
    held_back = any(outcomes.get(name, Amount()).objects for name in (Outcome.FAILED, Outcome.RESTORED))
    return sum_of(outcomes.values()).objects == record.planned_objects and not held_back and not in_quarantine


def _record(
    run: SweepRun,
    engine: Engine[Any],
    approval: Approval,
    lease: Lease,
    started: datetime,
    outcomes: Mapping[str, Amount],
    ledger_digest: str | None,
) -> Record:
    plan = run.plan
    may_hide_moves = outcomes.keys() & {Outcome.FAILED, Outcome.SKIPPED}  # else the ledger need not be read again
    moved = engine.in_quarantine() if may_hide_moves else outcomes.get(Outcome.QUARANTINED, Amount())
    return Record(
        kind=run.kind,
        mode=run.mode,
        repository=plan.repository,
        day=plan.day.isoformat(),
        plan_hash=plan.plan_hash,
        policy_hash=plan.policy_hash,
        planned_objects=plan.candidates.objects,
        planned_bytes=plan.candidates.bytes,
        outcomes={name: asdict(amount) for name, amount in sorted(outcomes.items())},
        approved_by=approval.approved_by,
        approved_at=approval.approved_at,
        fence=lease.fence,
        run_id=run.run_id,
        started=started.isoformat(),
        ended=run.clock().isoformat(),
        longest_window_seconds=None,
        ledger_digest=ledger_digest,
        terms=approval.terms or None,
        dump=run.dump,
        in_quarantine=asdict(moved),
    )


def require_balance(plan: Plan, outcomes: Mapping[str, Amount]) -> None:
    """Raise GuardRefused when the ledger has more objects or bytes than its plan, or unknown outcomes.

    Source: docs/safety.md, "Before and during a sweep".
    """
    strange = sorted(set(outcomes) - {*OUTCOMES, Outcome.ATTEMPTED})
    tried = sum_of(outcomes.values())
    if strange or tried.objects > plan.candidates.objects or tried.bytes > plan.candidates.bytes:
        raise GuardRefused(
            f"{plan.repository} {plan.day}: the ledger does not balance with the plan: the ledger has "
            f"{counted(tried.objects, 'object')} and {tried.bytes:,} bytes, and the plan has "
            f"{counted(plan.candidates.objects, 'object')} and {plan.candidates.bytes:,} bytes"
            + (f"; unknown outcomes: {', '.join(strange)}" if strange else "")
            + f". Nothing more was deleted. Somebody changed the ledger, or this is a bug of retention_assets: run "
            f"`retention verify {plan.repository}`, keep the warehouse, and report it."
        )


def _task_of(run: SweepRun, lease: Lease, checked_at: datetime, batch_number: int, reached: float | None) -> TaskSpec:
    """Return the task of the batch `batch_number`, whose liveness check began at `checked_at`."""
    plan, now = run.plan, run.clock()
    location = LedgerLocation(
        run.warehouse.root, plan.repository, plan.day, plan.plan_hash, lease.fence, f"{run.run_id}-{lease.number}"
    )
    return TaskSpec(
        run.action,
        location,
        lease,
        deadline=min(lease.until, checked_at + run.limits.sweep.window),
        batch_number=batch_number,
        rate=run.share_of_rate,
        reached=reached,
        ahead=now - utc_now(),
        sent_at=max(now, checked_at),  # the clock may have been set back since the check
        workers=run.workers,
    )


def _window_too_short(run: SweepRun, left: int) -> GuardRefused:
    window = format_duration(run.limits.sweep.window)
    return GuardRefused(
        f"{run.name}: no object was finished within sweep.window, {window}, in two attempts: the liveness check or the "
        "copying took longer, or the store throttled the requests (then the log says so). Nothing more was deleted: "
        f"{counted(left, 'object is', 'objects are')} left. Set a longer sweep.window (at most 1h) in the "
        f"configuration, then run the same command again: the {run.kind} continues."
    )


def _require_some_success(run: SweepRun, failed: int, *, left: int) -> None:
    """Raise StoreError when many objects failed and none succeeded: the next batch would fail in the same way.

    A few failures say little: a single object, for example one under a legal hold, can be a batch of its own.
    `failed`: the number of objects that failed since the last success. `left`: the number of objects in the next
    batches.
    """
    if left and failed >= _MANY_FAILED:
        raise StoreError(
            f"{run.name}: every object that was tried in a batch failed ({failed:,} in a row). "
            f"Nothing more was deleted: {counted(left, 'object was', 'objects were')} not tried. See why: "
            f"`retention report {run.plan.repository} --as-of {run.plan.day}`. Then run the same command again: the "
            "sweep begins with the objects that were not tried."
        )
