"""What a run does to a world, and what has to be true when it died in the middle, and when it came to its end."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from retention_assets.core.amounts import Amount
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.ledger import ABSENT
from retention_assets.state.policies import completed_runs
from retention_assets.state.records import read_records
from retention_assets.sweep.execute import SweepResult
from tests.sweep.crashes.engine import amounts, latest, ledger_digest, standing
from tests.sweep.crashes.runs import sweep, undo
from tests.sweep.crashes.world import (
    CHANGED,
    DEAD,
    GONE,
    LIVE,
    OTHER,
    PLANNED,
    REPOSITORY,
    REVIVED,
    World,
    content,
    name_of,
)

BACK, TAKEN = ("a", "b"), ("d", "g")  # restored; not, since another object took their place
_THEIRS = {"d": b"of another size", "g": content("g")[::-1]}  # the second differs in nothing but its bytes


@dataclass(frozen=True, slots=True)
class Story:
    """One kind of run. `begin` makes the world that it runs on; `lost_nothing` holds at every moment."""

    begin: Callable[[Path], World]
    run: Callable[[World, str], SweepResult]
    lost_nothing: Callable[[World], None]
    ended_well: Callable[[World, SweepResult], None]


def _deleting(world: World, run_id: str) -> SweepResult:
    return sweep(world, "delete", run_id)


def _quarantining(world: World, run_id: str) -> SweepResult:
    return sweep(world, "quarantine", run_id)


def _restoring(world: World, run_id: str) -> SweepResult:
    return undo(world, "restore", run_id, (*BACK, *TAKEN))


def _purging(world: World, run_id: str) -> SweepResult:
    return undo(world, "purge", run_id)


def quarantined_world(root: Path) -> World:
    """Return a world whose plan was quarantined a while ago."""
    world = World(root)
    sweep(world, "quarantine", "an-earlier-run")
    world.wait(hours=1)
    return world


def world_with_places_taken(root: Path) -> World:
    """Return such a world, where other objects lie by now where two of the quarantined ones were."""
    world = quarantined_world(root)
    for name, theirs in _THEIRS.items():
        world.lay(name, theirs)
    return world


# ---- at every moment


def _live_ones_are_there(world: World) -> None:
    stored = world.stored()
    assert {name: stored.get(name) for name in (*LIVE, REVIVED)} == {name: content(name) for name in (*LIVE, REVIVED)}
    assert stored.get(CHANGED) == OTHER


def _deletion_lost_nothing(world: World) -> None:
    _live_ones_are_there(world)
    _what_is_gone_is_known(world)


def _quarantine_lost_nothing(world: World) -> None:
    _live_ones_are_there(world)
    _what_is_gone_is_known(world)
    _bytes_are_somewhere(world, DEAD)
    assert world.copies().keys() <= world.manifests()


def _restore_lost_nothing(world: World) -> None:
    _live_ones_are_there(world)
    _bytes_are_somewhere(world, DEAD)
    _theirs_are_there(world)


def _purge_lost_nothing(world: World) -> None:
    _live_ones_are_there(world)
    assert not world.stored().keys() & {*DEAD}
    _what_is_gone_is_known(world)


def _what_is_gone_is_known(world: World) -> None:
    """An address that is gone is one that the ledger calls gone, or was at when it broke off."""
    said = {name_of(row["address"]) for row in standing(world.ledger()) if row["outcome"] in ABSENT}
    assert {*DEAD} - world.stored().keys() <= said


def _bytes_are_somewhere(world: World, names: Iterable[str]) -> None:
    stored, copies = world.stored(), world.copies()
    lost = [name for name in names if content(name) not in (stored.get(name), copies.get(name))]
    assert lost == []


def _theirs_are_there(world: World) -> None:
    stored = world.stored()
    assert {name: stored.get(name) for name in TAKEN} == _THEIRS


# ---- at the end


def _deletion_ended_well(world: World, sweep_result: SweepResult) -> None:
    _books_are_right(world, sweep_result)
    assert world.stored().keys() == {*LIVE, REVIVED, CHANGED}
    _outcomes_are(world, {**dict.fromkeys(DEAD, (Outcome.DELETED, Outcome.MISSING)), **_LEFT_ALONE})
    assert sweep_result.is_complete


def _quarantine_ended_well(world: World, sweep_result: SweepResult) -> None:
    _books_are_right(world, sweep_result)
    assert world.stored().keys() == {*LIVE, REVIVED, CHANGED}
    assert world.copies() == {name: content(name) for name in DEAD}
    _outcomes_are(world, {**dict.fromkeys(DEAD, (Outcome.QUARANTINED,)), **_LEFT_ALONE})
    assert not sweep_result.is_complete


def _restore_ended_well(world: World, sweep_result: SweepResult) -> None:
    _books_are_right(world, sweep_result)
    assert {name: world.stored().get(name) for name in BACK} == {name: content(name) for name in BACK}
    others = {name: content(name) for name in DEAD if name not in BACK}
    assert {name: copy for name, copy in world.copies().items() if name not in BACK} == others
    said = {name_of(row["address"]) for row in latest(world.ledger()).values() if "stays" in (row["detail"] or "")}
    assert world.copies().keys() & {*BACK} <= said
    restored = {**dict.fromkeys(BACK, (Outcome.RESTORED,)), **dict.fromkeys(TAKEN, (Outcome.SKIPPED,))}
    _outcomes_are(world, {**dict.fromkeys(DEAD, (Outcome.QUARANTINED,)), **restored, **_LEFT_ALONE})
    assert not sweep_result.is_complete


def _purge_ended_well(world: World, sweep_result: SweepResult) -> None:
    _books_are_right(world, sweep_result)
    assert world.copies() == {}
    _outcomes_are(world, {**dict.fromkeys(DEAD, (Outcome.PURGED,)), **_LEFT_ALONE})
    assert sweep_result.is_complete


_LEFT_ALONE = {REVIVED: (Outcome.SKIPPED,), CHANGED: (Outcome.SKIPPED,), GONE: (Outcome.MISSING,)}


def _outcomes_are(world: World, expected: Mapping[str, tuple[str, ...]]) -> None:
    found = {name_of(row["address"]): row["outcome"] for row in latest(world.ledger()).values()}
    assert found.keys() == expected.keys() == {*PLANNED}
    assert {name: outcome for name, outcome in found.items() if outcome not in expected[name]} == {}


def _books_are_right(world: World, sweep_result: SweepResult) -> None:
    """Totals balance with plan, ledger and record; the records' chain holds; `last_deleted` moves when it may."""
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


STORIES = {
    "delete": Story(World, _deleting, _deletion_lost_nothing, _deletion_ended_well),
    "quarantine": Story(World, _quarantining, _quarantine_lost_nothing, _quarantine_ended_well),
    "restore": Story(world_with_places_taken, _restoring, _restore_lost_nothing, _restore_ended_well),
    "purge": Story(quarantined_world, _purging, _purge_lost_nothing, _purge_ended_well),
}
