"""`execute`: when a sweep is refused, when it ends early, when its plan is complete, and what its record has."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from retention_assets.config.limits import BudgetSettings
from retention_assets.core.amounts import Amount
from retention_assets.errors import AccessDenied, CorruptFile, GuardRefused, StoreError, WorkerError, corrupt
from retention_assets.objectstore.outcomes import ObjectResult, Outcome
from retention_assets.objectstore.rate_limiter import RateLimiter
from retention_assets.state.lease import MARGIN, Lease, release_lease, take_lease
from retention_assets.state.ledger import OUTCOMES
from retention_assets.state.plan import keep_plan
from retention_assets.state.policies import completed_runs
from retention_assets.state.records import read_records, record_without_plan, write_record
from retention_assets.sweep.engine import Batch, BatchResult
from retention_assets.sweep.execute import SweepResult, execute, require_balance
from retention_assets.sweep.worker import BeforeDeadline, TaskSpec
from tests.frames import NOW
from tests.sweep.crashes.engine import InProcessEngine
from tests.sweep.crashes.runs import sweep, sweep_run
from tests.sweep.crashes.world import DEAD, PLANNED, REPOSITORY, World, name_of
from tests.sweep.repository_sweep import FakeRepository
from tests.sweep.small_world import a_plan

PLAN = a_plan(candidates=Amount(3, 30))
RECORD = record_without_plan("sweep", REPOSITORY, "a-person", NOW, NOW, "another-run", {})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


@dataclass(frozen=True)
class ActionWithFixedOutcomes:
    """An action that changes no object and returns the outcomes that it was given."""

    outcomes: Mapping[str, str]  # by object name; all others fail

    chunk_bytes: ClassVar[int | None] = None
    target: ClassVar[None] = None

    def open(self, rate_limiter: RateLimiter) -> "ActionWithFixedOutcomes":
        return self

    def do(self, objects: pa.Table, name: str, before_deadline: BeforeDeadline) -> Sequence[ObjectResult]:
        return [
            ObjectResult(Outcome(self.outcomes.get(name_of(one), "failed")), "why")
            for one in objects["address"].to_pylist()
        ]


class EngineWithoutRemaining(InProcessEngine):
    """An engine that finds no remaining objects."""

    def remaining(self, fence: int) -> Sequence[int]:
        return []


def sweep_result(world: World, **outcomes: str) -> SweepResult:
    """Execute the world's plan with an action that returns these outcomes by object name."""
    given = sweep_run(world, "sweep", "delete", "a-run")
    return execute(replace(given, action=ActionWithFixedOutcomes(outcomes)), InProcessEngine(world), FakeRepository())


def lease_is_free(world: World) -> bool:
    names = world.warehouse.documents(REPOSITORY, "leases")
    document = world.warehouse.read_document(REPOSITORY, "leases", names[-1])
    return bool(document and document["released"])


# ---- totals


@pytest.mark.parametrize(
    ("outcomes", "violation"),
    [
        pytest.param({}, None, id="nothing_was_tried"),
        pytest.param({outcome: Amount() for outcome in (*OUTCOMES, Outcome.ATTEMPTED)}, None, id="every_outcome"),
        pytest.param({"deleted": Amount(2, 20), "failed": Amount(1, 10)}, None, id="all_of_it"),
        pytest.param({"deleted": Amount(1, 10)}, None, id="a_part"),
        pytest.param(
            {"deleted": Amount(3, 30), "skipped": Amount(1, 0)}, "4 objects and 30 bytes", id="an_object_more"
        ),
        pytest.param({"deleted": Amount(3, 31)}, "31 bytes, and the plan has 3 objects and 30", id="a_byte_more"),
        pytest.param({"deleted": Amount(3, 30), Outcome.ATTEMPTED: Amount(1, 1)}, "4 objects", id="attempts_count_too"),
        pytest.param({"deletd": Amount(1, 10)}, "unknown outcomes: deletd", id="an_unknown_outcome"),
    ],
)
def test_a_ledger_that_does_not_fit_its_plan_is_refused(outcomes: dict[str, Amount], violation: str | None) -> None:
    if violation is None:
        require_balance(PLAN, outcomes)
    else:
        with pytest.raises(GuardRefused, match=f"does not balance with the plan: .*{violation}.*retention verify orch"):
            require_balance(PLAN, outcomes)


class EngineWithAnUnplannedObject(InProcessEngine):
    """An engine whose totals include an object that is not in the plan."""

    def outcomes(self) -> Mapping[str, Amount]:
        return {**super().outcomes(), "restored": Amount(1, 10)}


def test_the_record_of_a_sweep_whose_ledger_does_not_balance_has_the_error(world: World) -> None:
    with pytest.raises(GuardRefused, match=r"10 objects and .*, and the plan has 9 objects"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), EngineWithAnUnplannedObject(world), FakeRepository())
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert "the ledger does not balance with the plan" in record.document["ended_early"]
    assert record.document["outcomes"]["restored"] == {"objects": 1, "bytes": 10}
    assert record.document["ledger_digest"] is not None
    assert completed_runs(world.warehouse, REPOSITORY) == frozenset()
    assert lease_is_free(world)


# ---- the end

ALL_DELETED = dict.fromkeys(DEAD, "deleted")


@pytest.mark.parametrize(
    ("outcomes", "is_complete"),
    [
        pytest.param(ALL_DELETED, True, id="all_deleted"),
        pytest.param(
            {**ALL_DELETED, "a": "missing", "b": "skipped"}, True, id="missing_and_skipped_objects_do_not_prevent_it"
        ),
        pytest.param({**ALL_DELETED, "a": "failed"}, False, id="a_failed_object_prevents_it"),
        pytest.param({**ALL_DELETED, "a": "quarantined"}, False, id="a_quarantined_object_prevents_it"),
        pytest.param({**ALL_DELETED, "a": "restored"}, False, id="a_restored_object_prevents_it"),
        pytest.param({**ALL_DELETED, "a": "purged"}, True, id="a_purged_object_does_not_prevent_it"),
    ],
)
def test_only_a_completed_plan_is_recorded_as_completed(
    world: World, outcomes: dict[str, str], is_complete: bool
) -> None:
    result = sweep_result(world, **outcomes)
    assert result.is_complete is is_complete
    assert completed_runs(world.warehouse, REPOSITORY) == ({world.plan.policy_run} if is_complete else set())
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert {name: Amount(**amount) for name, amount in record.document["outcomes"].items()} == result.outcomes
    assert (record.document["kind"], record.document["mode"], record.document["run_id"]) == ("sweep", "delete", "a-run")
    assert lease_is_free(world)


def test_a_plan_with_remaining_objects_is_not_complete(world: World) -> None:
    assert sweep(world, "delete").is_complete
    other = replace(world.plan, candidates=Amount(len(PLANNED) + 1, world.plan.candidates.bytes), plan_hash="f" * 64)
    keep_plan(world.warehouse, other)
    world.limits = world.limits.model_copy(update={"budget": BudgetSettings(objects=10)})
    later = replace(sweep_run(world, "sweep", "delete", "a-later-run"), plan=other)

    assert not execute(later, EngineWithoutRemaining(world), FakeRepository()).is_complete


# ---- what ends a sweep


def test_a_sweep_ends_if_every_object_of_a_batch_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One object of the batch is live again. It is skipped, which is no failure."""
    monkeypatch.setattr("retention_assets.sweep.execute._MANY_FAILED", 4)
    with pytest.raises(
        StoreError,
        match=r"every object that was tried in a batch failed \(4 in a row\)\. Nothing more was deleted: \d+ objects",
    ):
        sweep_result(world)
    tried = {name_of(row["address"]): row["outcome"] for row in world.ledger() if row["outcome"] != Outcome.ATTEMPTED}
    assert tried == {**dict.fromkeys("abde", "failed"), "c": "skipped"}
    assert lease_is_free(world)
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert record.document["outcomes"]["failed"]["objects"] == 4
    assert record.document["ended_early"].startswith("orchard 2026-11-01: every object that was tried")
    assert sweep(world, "delete", "a-later-run").is_complete


@pytest.mark.parametrize(
    ("succeeds", "tried"),
    [
        pytest.param("", "abdeg", id="failures_of_several_batches_count_together"),
        pytest.param("d", "abdegi", id="a_success_begins_a_new_count"),
    ],
)
def test_a_few_failed_objects_end_a_sweep_only_if_no_object_between_them_succeeded(
    world: World, monkeypatch: pytest.MonkeyPatch, succeeds: str, tried: str
) -> None:
    monkeypatch.setattr("retention_assets.sweep.execute._MANY_FAILED", 5)
    monkeypatch.setattr("tests.sweep.crashes.engine._PER_BATCH", 2)
    with suppress(StoreError):
        sweep_result(world, **dict.fromkeys(succeeds, "deleted"))
    rows = [row for row in world.ledger() if row["outcome"] in ("failed", "deleted")]
    assert "".join(sorted(name_of(row["address"]) for row in rows)) == tried


class EngineWithFailingWorkers(InProcessEngine):
    """An engine whose workers end with an error. With `reads = False`, the ledger cannot be read afterwards."""

    reads = True

    def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
        super().run(objects, task)
        error_of_worker = WorkerError(AccessDenied("s3://lake: denied. Nothing was deleted. Let it list."))
        raise ValueError(f"in a worker\nretention_assets.errors.WorkerError: {error_of_worker}\n  at x")

    def outcomes(self) -> Mapping[str, Amount]:
        if not self.reads:
            raise OSError("the warehouse does not answer")
        return super().outcomes()


def test_a_sweep_that_a_workers_error_ended_has_a_record_without_a_ledger_digest(world: World) -> None:
    told = "s3://lake: denied. Nothing more was deleted. Let it list."
    with pytest.raises(AccessDenied) as raised:
        execute(sweep_run(world, "sweep", "delete", "a-run"), EngineWithFailingWorkers(world), FakeRepository())
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert str(raised.value) == record.document["ended_early"] == told
    assert raised.value.__suppress_context__  # Dagster shows the innermost error
    assert record.document["ledger_digest"] is None
    assert lease_is_free(world)


class EngineThatIsInterrupted(InProcessEngine):
    """An engine that ends as after Ctrl-C, or when Dagster terminates the run."""

    def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
        super().run(objects, task)
        raise KeyboardInterrupt


def test_a_sweep_that_is_interrupted_has_a_record(world: World) -> None:
    with pytest.raises(KeyboardInterrupt):
        execute(sweep_run(world, "sweep", "delete", "a-run"), EngineThatIsInterrupted(world), FakeRepository())
    records = list(read_records(world.warehouse, REPOSITORY))
    expected = "a person or the system ended it, for example with Ctrl-C"
    assert [one.document["ended_early"] for one in records] == [expected]
    (record,) = records
    assert record.document["outcomes"]["deleted"]["objects"]
    assert record.document["ledger_digest"] is None  # workers may still write rows
    assert lease_is_free(world)


def test_the_error_that_ended_the_sweep_is_raised_even_if_the_record_cannot_be_written(world: World) -> None:
    engine = EngineWithFailingWorkers(world)
    engine.reads = False
    with pytest.raises(AccessDenied, match="denied"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), engine, FakeRepository())
    assert list(read_records(world.warehouse, REPOSITORY)) == []


def test_a_sweep_that_ended_while_it_published_edits_has_a_record(world: World) -> None:
    """Some of the edits may have been written before the error."""

    def publish(lease: Lease) -> Mapping[str, Any]:
        raise GuardRefused("somebody stands on what is to go")

    with pytest.raises(GuardRefused, match="somebody stands"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), InProcessEngine(world), FakeRepository(edits=publish))
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert (record.document["ended_early"], record.document["published"]) == ("somebody stands on what is to go", None)


class EngineWithDamagedFile(InProcessEngine):
    """An engine whose liveness check of one batch finds a damaged file."""

    damaged_at = 0

    def check(self, number: int) -> Batch[pa.Table]:
        if number == self.damaged_at:
            raise corrupt("lake/a-range", "it is cut off")
        return super().check(number)


@pytest.mark.parametrize(("batch", "undone"), [(0, "Nothing was deleted"), (1, "Nothing more was deleted")])
def test_an_error_during_a_sweep_says_that_nothing_more_was_deleted(world: World, batch: int, undone: str) -> None:
    engine = EngineWithDamagedFile(world)
    engine.damaged_at = batch
    with pytest.raises(CorruptFile, match=rf"The file was not used\. {undone}\."):
        execute(sweep_run(world, "sweep", "delete", "a-run"), engine, FakeRepository())
    assert all(undone in record.document["ended_early"] for record in read_records(world.warehouse, REPOSITORY))


def test_an_error_after_an_edit_says_that_nothing_more_was_deleted(world: World) -> None:
    repository = FakeRepository()

    def edit(_: Lease) -> Mapping[str, Any]:
        repository.has_edited = True
        return {}

    repository.edits = edit
    with pytest.raises(CorruptFile, match="Nothing more was deleted"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), EngineWithDamagedFile(world), repository)
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert "Nothing more was deleted" in record.document["ended_early"]


class EngineThatIsOvertaken(InProcessEngine):
    """An engine whose process is suspended after the last batch, until another run has taken the lease.

    With `with_record`, the other run has also written a record of the plan.
    """

    with_record = False

    def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
        result = super().run(objects, task)
        if not self._unfinished(task.lease.fence):
            warehouse, later = self.world.warehouse, task.lease.until + 2 * MARGIN
            lease = take_lease(warehouse, REPOSITORY, "another-run", later, task.lease.life)
            if self.with_record:
                document = {"day": task.ledger.day.isoformat(), "plan_hash": task.ledger.plan_hash}
                write_record(warehouse, replace(RECORD, **document, fence=lease.fence))
            release_lease(warehouse, lease, later)
        return result


@pytest.mark.parametrize("with_record", [False, True], ids=["without_a_record_of_it", "with_a_record_of_it"])
def test_a_sweep_that_lost_its_lease_to_another_run_fails_and_leaves_the_record_of_that_run_the_newest(
    world: World, with_record: bool
) -> None:
    engine = EngineThatIsOvertaken(world)
    engine.with_record = with_record
    with pytest.raises(GuardRefused, match=r"the lease is lost: another run .* Nothing more was deleted"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), engine, FakeRepository())
    assert [row for row in world.ledger() if row["outcome"] == "deleted"]
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert record.document["run_id"] == ("another-run" if with_record else "a-run")
    assert with_record or "the lease is lost" in record.document["ended_early"]
    assert completed_runs(world.warehouse, REPOSITORY) == frozenset()


class EngineWithSlowChecks(InProcessEngine):
    """An engine whose first `slow_checks` liveness checks take longer than the window."""

    slow_checks = 0

    def check(self, number: int) -> Batch[pa.Table]:
        batch = super().check(number)
        if self.checks <= self.slow_checks:
            self.world.now += self.world.limits.sweep.window
        return batch


def test_a_first_liveness_check_that_exceeded_the_window_is_repeated(world: World) -> None:
    engine = EngineWithSlowChecks(world)
    engine.slow_checks = len(engine.remaining(0))
    assert execute(sweep_run(world, "sweep", "delete", "a-run"), engine, FakeRepository()).is_complete


def test_liveness_checks_that_exceed_the_window_end_the_sweep_with_the_remedy(world: World) -> None:
    engine = EngineWithSlowChecks(world)
    engine.slow_checks = 100
    with pytest.raises(
        GuardRefused, match=r"no object was finished within sweep.window, 15m.* Set a longer sweep.window"
    ):
        execute(sweep_run(world, "sweep", "delete", "a-run"), engine, FakeRepository())
    assert not [row for row in world.ledger() if row["outcome"] == Outcome.ATTEMPTED]
    (record,) = read_records(world.warehouse, REPOSITORY)  # of the objects that the liveness check skipped
    assert "sweep.window" in record.document["ended_early"]
    assert lease_is_free(world)


def test_a_failed_object_is_not_tried_again_by_the_same_sweep(world: World) -> None:
    result = sweep_result(world, **{**ALL_DELETED, "a": "failed", "g": "failed"})
    assert result.outcomes["failed"].objects == 2
    tries = [name_of(row["address"]) for row in world.ledger() if row["outcome"] == "failed"]
    assert sorted(tries) == ["a", "g"]


def test_a_repository_that_is_not_the_planned_one_is_refused_before_anything_changes(world: World) -> None:
    def another() -> None:
        raise GuardRefused("it was created again under its name")

    with pytest.raises(GuardRefused, match="created again"):
        execute(sweep_run(world, "sweep", "delete", "a-run"), InProcessEngine(world), FakeRepository(another))
    assert world.ledger() == []
    assert lease_is_free(world)


def test_a_plan_without_remaining_objects_runs_no_liveness_check(world: World) -> None:
    world.live.clear()

    def unknown() -> None:
        raise GuardRefused("what is live is not known")

    result = execute(
        sweep_run(world, "sweep", "delete", "a-run"), EngineWithoutRemaining(world), FakeRepository(unknown)
    )
    assert result == SweepResult({}, is_complete=False)


def test_the_remaining_objects_are_counted_once_before_the_first_batch(world: World) -> None:
    calls: list[str] = []

    class RecordingEngine(InProcessEngine):
        def remaining(self, fence: int) -> Sequence[int]:
            calls.append("remaining")
            return super().remaining(fence)

        def check(self, number: int) -> Batch[pa.Table]:
            calls.append("check")
            return super().check(number)

    assert execute(sweep_run(world, "sweep", "delete", "a-run"), RecordingEngine(world), FakeRepository()).is_complete
    assert calls[:2] == ["remaining", "check"]


# ---- edits, which are published first


def publish_and_sweep(world: World, calls: list[str], budget: int = len(PLANNED) + 2) -> SweepResult:
    """Execute the world's plan, which has two edits to publish. Append each call in its order to `calls`."""
    world.limits = world.limits.model_copy(update={"budget": BudgetSettings(objects=budget)})

    def publish(lease: Lease) -> Mapping[str, object]:
        calls.append(f"published under {lease.fence}, {len(world.ledger())} objects tried")
        return {"conflicts": 3}

    repository = FakeRepository(lambda: calls.append("the same repository"), publish, history_changes=2)
    return execute(sweep_run(world, "sweep", "delete", "a-run"), InProcessEngine(world), repository)


def test_edits_are_published_once_before_any_object_is_tried_and_the_record_has_them(
    world: World,
) -> None:
    calls: list[str] = []
    assert publish_and_sweep(world, calls).is_complete
    assert calls == ["the same repository", "published under 1, 0 objects tried"]
    (record,) = read_records(world.warehouse, REPOSITORY)
    assert record.document["published"] == {"conflicts": 3}


def test_edits_of_a_plan_without_objects_are_published_too(world: World) -> None:
    plan = replace(world.plan, candidates=Amount(), totals={"kept": Amount(2, 200)})
    keep_plan(world.warehouse, plan)

    calls: list[str] = []
    given = replace(sweep_run(world, "sweep", "delete", "a-run"), plan=plan)
    repository = FakeRepository(
        lambda: calls.append("the same repository"), lambda _: calls.append("published") or {}, history_changes=1
    )
    result = execute(given, EngineWithoutRemaining(world), repository)
    assert calls == ["the same repository", "published"]
    assert result == SweepResult({}, is_complete=True)


def test_edits_of_a_plan_that_its_budget_does_not_cover_are_not_published(world: World) -> None:
    calls: list[str] = []
    with pytest.raises(GuardRefused, match="are more than the budget"):
        publish_and_sweep(world, calls, budget=len(PLANNED) + 1)
    assert calls == []


def test_nothing_is_published_if_too_many_objects_are_live_again(world: World) -> None:
    calls: list[str] = []
    world.live.update(PLANNED)
    with pytest.raises(GuardRefused, match="are live again"):
        publish_and_sweep(world, calls)
    assert calls == ["the same repository"]
    assert world.ledger() == []


# ---- the rate


def test_a_batch_begins_at_the_rate_that_earlier_batches_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.sweep.crashes.engine._PER_BATCH", 3)
    rates: list[float | None] = []

    class ThrottledEngine(InProcessEngine):
        def run(self, objects: Batch[pa.Table], task: TaskSpec) -> BatchResult:
            rates.append(task.reached)
            return replace(super().run(objects, task), reached=200.0 if len(rates) == 1 else None)

    given = sweep_run(world, "sweep", "delete", "a-run")
    execute(
        replace(given, action=ActionWithFixedOutcomes(dict.fromkeys(DEAD, "deleted"))),
        ThrottledEngine(world),
        FakeRepository(),
    )
    assert rates == [None, 200.0, 200.0]
