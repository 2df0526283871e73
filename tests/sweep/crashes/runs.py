"""Runs a sweep, a restore or a purge on a `World`."""

from collections.abc import Iterable

from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import FINISHED
from retention_assets.state.quarantine import prepare_directory
from retention_assets.sweep.actions import Quarantine
from retention_assets.sweep.copies import Undo
from retention_assets.sweep.execute import SweepResult, SweepRun, execute
from retention_assets.sweep.undo import _execute
from tests.sweep.crashes.engine import Hooks, InProcessEngine, InProcessUndoEngine, latest
from tests.sweep.crashes.world import World, name_of
from tests.sweep.repository_sweep import FakeRepository
from tests.sweep.small_world import SETTINGS


def sweep_run(world: World, kind: str, mode: str, run_id: str) -> SweepRun:
    """Return a sweep run of the world's plan."""
    action = world.action(mode)

    def make_ready() -> None:
        if isinstance(action, Quarantine) and action.marker:
            prepare_directory(world.warehouse, world.plan.repository, action.location.access, action.marker)

    return SweepRun(
        warehouse=world.warehouse,
        plan=world.plan,
        kind=kind,
        mode=mode,
        action=action,
        limits=world.limits,
        run_id=run_id,
        clock=world.clock,
        log=lambda _: None,
        terms={"mode": mode, **SETTINGS},
        ready=make_ready,
    )


def sweep(world: World, mode: str, run_id: str = "a-run", hooks: Hooks | None = None) -> SweepResult:
    """Run a sweep of the world's plan. `mode`: delete or quarantine."""
    engine = InProcessEngine(world, keeps_missing=mode == "quarantine", hooks=hooks or Hooks())
    return execute(sweep_run(world, "sweep", mode, run_id), engine, FakeRepository())


def undo(world: World, kind: str, run_id: str = "a-run", names: Iterable[str] | None = None) -> SweepResult:
    """Restore or purge the objects that the ledger calls quarantined, or those of `names` among them."""
    ended = latest(row for row in world.ledger() if row["outcome"] in FINISHED).values()
    there = {name_of(row["address"]) for row in ended if row["outcome"] == Outcome.QUARANTINED}
    engine = InProcessUndoEngine(world, names=sorted(there if names is None else there & set(names)))
    whose = Undo(None, world.warehouse, None, run_id, "a-person", lambda _: None, world.clock)  # type: ignore[arg-type]
    return _execute(whose, sweep_run(world, kind, kind, run_id), engine)  # type: ignore[arg-type]
