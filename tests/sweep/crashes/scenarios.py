"""Runs that crash tests interrupt, with what must hold after a crash and after the run that completes the work."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from retention_assets.core.amounts import Amount
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import ABSENT
from retention_assets.state.policies import completed_runs
from retention_assets.state.records import read_records
from retention_assets.sweep.execute import SweepResult
from tests.sweep.crashes.engine import amounts, conclusive, latest, ledger_digest, outcomes
from tests.sweep.crashes.runs import sweep, undo
from tests.sweep.crashes.world import (
    CHANGED,
    DEAD,
    GONE,
    LIVE,
    LIVE_AGAIN,
    OTHER,
    PLANNED,
    REPOSITORY,
    World,
    content,
    name_of,
)

BACK, REPLACED = ("a", "b"), ("d", "g")  # restored; not restored, since another object is at the path
_REPLACEMENTS = {"d": b"of another size", "g": content("g")[::-1]}  # the second has the size of the original


@dataclass(frozen=True, slots=True)
class CrashScenario:
    """A kind of run. `begin` writes a world for it, `lost_nothing` must hold after a crash at any moment."""

    begin: Callable[[Path], World]
    run: Callable[[World, str], SweepResult]
    lost_nothing: Callable[[World], None]
    ended_well: Callable[[World, SweepResult], None]


def _deleting(world: World, run_id: str) -> SweepResult:
    return sweep(world, "delete", run_id)


def _quarantining(world: World, run_id: str) -> SweepResult:
    return sweep(world, "quarantine", run_id)


def _restoring(world: World, run_id: str) -> SweepResult:
    return undo(world, "restore", run_id, (*BACK, *REPLACED))


def _purging(world: World, run_id: str) -> SweepResult:
    return undo(world, "purge", run_id)


def quarantined_world(root: Path) -> World:
    """Return a world whose planned objects were moved to quarantine an hour ago."""
    world = World(root)
    sweep(world, "quarantine", "an-earlier-run")
    world.wait(hours=1)
    return world


def quarantined_world_with_new_objects(root: Path) -> World:
    """Return a quarantined world where new objects are at the paths of two quarantined ones."""
    world = quarantined_world(root)
    for name, replacement in _REPLACEMENTS.items():
        world.lay(name, replacement)
    return world


# ---- after a crash at any moment


def _live_objects_are_there(world: World) -> None:
    stored = world.stored()
    assert {name: stored.get(name) for name in (*LIVE, LIVE_AGAIN)} == {
        name: content(name) for name in (*LIVE, LIVE_AGAIN)
    }
    assert stored.get(CHANGED) == OTHER


def _deletion_lost_nothing(world: World) -> None:
    _live_objects_are_there(world)
    _missing_objects_are_in_the_ledger(world)


def _quarantine_lost_nothing(world: World) -> None:
    _live_objects_are_there(world)
    _missing_objects_are_in_the_ledger(world)
    _content_exists_in_repository_or_quarantine(world, DEAD)
    assert world.copies().keys() <= world.manifests()


def _restore_lost_nothing(world: World) -> None:
    _live_objects_are_there(world)
    _content_exists_in_repository_or_quarantine(world, DEAD)
    _replacements_are_there(world)


def _purge_lost_nothing(world: World) -> None:
    _live_objects_are_there(world)
    assert not world.stored().keys() & {*DEAD}
    _missing_objects_are_in_the_ledger(world)


def _missing_objects_are_in_the_ledger(world: World) -> None:
    """For each missing object, the ledger has an outcome that explains it, or an interrupted attempt."""
    known = {name_of(row["address"]) for row in conclusive(world.ledger()) if row["outcome"] in ABSENT}
    assert {*DEAD} - world.stored().keys() <= known


def _content_exists_in_repository_or_quarantine(world: World, names: Iterable[str]) -> None:
    stored, copies = world.stored(), world.copies()
    lost = [name for name in names if content(name) not in (stored.get(name), copies.get(name))]
    assert lost == []


def _replacements_are_there(world: World) -> None:
    stored = world.stored()
    assert {name: stored.get(name) for name in REPLACED} == _REPLACEMENTS


# ---- at the end


def _deletion_ended_well(world: World, sweep_result: SweepResult) -> None:
    _require_consistent_totals_and_records(world, sweep_result)
    assert world.stored().keys() == {*LIVE, LIVE_AGAIN, CHANGED}
    _require_outcomes(world, {**dict.fromkeys(DEAD, (Outcome.DELETED, Outcome.MISSING)), **_LEFT_ALONE})
    assert sweep_result.is_complete


def _quarantine_ended_well(world: World, sweep_result: SweepResult) -> None:
    _require_consistent_totals_and_records(world, sweep_result)
    assert world.stored().keys() == {*LIVE, LIVE_AGAIN, CHANGED}
    assert world.copies() == {name: content(name) for name in DEAD}
    _require_outcomes(world, {**dict.fromkeys(DEAD, (Outcome.QUARANTINED,)), **_LEFT_ALONE})
    assert not sweep_result.is_complete


def _restore_ended_well(world: World, sweep_result: SweepResult) -> None:
    _require_consistent_totals_and_records(world, sweep_result)
    assert {name: world.stored().get(name) for name in BACK} == {name: content(name) for name in BACK}
    others = {name: content(name) for name in DEAD if name not in BACK}
    assert {name: copy for name, copy in world.copies().items() if name not in BACK} == others
    rows = latest(world.ledger()).values()
    last = max(row["fence"] for row in world.ledger())
    # A run that died before it deleted the copies of restored objects cannot say so: `quarantined` shows them.
    known = {name_of(row["address"]) for row in rows if "stays" in (row["detail"] or "") or row["fence"] < last}
    assert world.copies().keys() & {*BACK} <= known
    restored = {**dict.fromkeys(BACK, (Outcome.RESTORED,)), **dict.fromkeys(REPLACED, (Outcome.SKIPPED,))}
    _require_outcomes(world, {**dict.fromkeys(DEAD, (Outcome.QUARANTINED,)), **restored, **_LEFT_ALONE})
    assert not sweep_result.is_complete


def _purge_ended_well(world: World, sweep_result: SweepResult) -> None:
    _require_consistent_totals_and_records(world, sweep_result)
    assert world.copies() == {}
    _require_outcomes(world, {**dict.fromkeys(DEAD, (Outcome.PURGED,)), **_LEFT_ALONE})
    assert sweep_result.is_complete


_LEFT_ALONE = {LIVE_AGAIN: (Outcome.SKIPPED,), CHANGED: (Outcome.SKIPPED,), GONE: (Outcome.MISSING,)}


def _require_outcomes(world: World, expected: Mapping[str, tuple[str, ...]]) -> None:
    found = outcomes(world)
    assert found.keys() == expected.keys() == {*PLANNED}
    assert {name: outcome for name, outcome in found.items() if outcome not in expected[name]} == {}


def _require_consistent_totals_and_records(world: World, sweep_result: SweepResult) -> None:
    """Require balanced totals in plan, ledger and record, an intact chain of records, and a correct completion."""
    assert sweep_result.outcomes == amounts(latest(world.ledger()).values())
    total = sweep_result.outcomes.values()
    assert Amount(sum(one.objects for one in total), sum(one.bytes for one in total)) == world.plan.candidates
    records = list(read_records(world.warehouse, REPOSITORY))
    assert all(kept.follows for kept in records)
    last = records[-1].document
    assert {name: Amount(**amount) for name, amount in last["outcomes"].items()} == sweep_result.outcomes
    assert last["ledger_digest"] == ledger_digest(world, last["fence"])
    assert completed_runs(world.warehouse, REPOSITORY) == (
        {world.plan.policy_run} if sweep_result.is_complete else frozenset()
    )


SCENARIOS = {
    "delete": CrashScenario(World, _deleting, _deletion_lost_nothing, _deletion_ended_well),
    "quarantine": CrashScenario(World, _quarantining, _quarantine_lost_nothing, _quarantine_ended_well),
    "restore": CrashScenario(
        quarantined_world_with_new_objects, _restoring, _restore_lost_nothing, _restore_ended_well
    ),
    "purge": CrashScenario(quarantined_world, _purging, _purge_lost_nothing, _purge_ended_well),
}
