"""Others write to the repository during a sweep. Objects that a liveness check finds live are not deleted or moved."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from retention_assets.config.limits import ApprovalSettings
from retention_assets.errors import GuardRefused, RetentionError
from retention_assets.objectstore.outcomes import Outcome
from retention_assets.state.lease import resume_sweeps, stop_sweeps, take_lease
from retention_assets.state.plan import keep_plan, withdraw_plan
from tests.sweep.crashes.effects import Effect, Effects, points, watched
from tests.sweep.crashes.engine import Hook, Hooks, outcomes
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.scenarios import SCENARIOS
from tests.sweep.crashes.world import CHANGED, DEAD, LIMITS, LIVE, OTHER, PLANNED, REPOSITORY, World, content, name_of

GOES = {"delete": Outcome.DELETED, "quarantine": Outcome.QUARANTINED}
FIRST, SECOND = ("a", "b", "d", "e"), ("g", "i")  # the objects of the first batch and of the second
MODES = pytest.mark.parametrize("mode", GOES)

pytestmark = pytest.mark.usefixtures("small_steps")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def once(number: int, act: Callable[[], object]) -> Hook:
    """Return a hook that acts at the liveness check with this number."""
    return lambda check: act() if check == number else None


def swept(world: World, mode: str, run_id: str = "a-run", **hooks: Hook) -> dict[str, str]:
    """Sweep, and return the outcomes by name. A deletion that the last liveness check does not allow fails the test."""
    with watched(Effects(world.root, watch=world.require_checked_as_dead)):
        sweep(world, mode, run_id, Hooks(**hooks))
    return outcomes(world)


def unchanged(world: World, names: tuple[str, ...]) -> set[str]:
    """Return which of these objects are in the store with their original content."""
    stored = world.stored()
    return {name for name in names if stored.get(name) == content(name)}


def require_that_a_later_run_completes(world: World, mode: str) -> None:
    """Require that a later run completes the sweep."""
    world.wait(hours=1)
    scenario = SCENARIOS[mode]
    scenario.ended_well(world, scenario.run(world, "a-later-run"))
    scenario.lost_nothing(world)


# ---- objects


@MODES
def test_an_object_that_is_live_again_before_its_liveness_check_stays(world: World, mode: str) -> None:
    found = swept(world, mode, after_batch=once(0, lambda: world.live.update(SECOND)))
    assert unchanged(world, DEAD) == {*SECOND}
    assert {found[name] for name in SECOND} == {Outcome.SKIPPED}
    assert {found[name] for name in FIRST} == {GOES[mode]}


@MODES
def test_an_object_that_is_unreferenced_again_before_its_liveness_check_is_deleted(world: World, mode: str) -> None:
    world.live.update(SECOND)
    found = swept(world, mode, after_batch=once(0, lambda: world.live.difference_update(SECOND)))
    assert {found[name] for name in DEAD} == {GOES[mode]}


@MODES
def test_an_object_that_others_delete_after_the_liveness_check_is_missing(world: World, mode: str) -> None:
    found = swept(world, mode, after_check=once(0, lambda: world.remove("b")))
    assert found["b"] == Outcome.MISSING
    assert {found[name] for name in DEAD if name != "b"} == {GOES[mode]}
    assert "b" not in world.copies()


def test_an_object_that_is_overwritten_after_the_liveness_check_is_not_moved(world: World) -> None:
    found = swept(world, "quarantine", after_check=once(0, lambda: world.lay("b", OTHER)))
    assert found["b"] == Outcome.SKIPPED
    assert world.stored()["b"] == OTHER
    assert "b" not in world.copies()


def test_an_object_that_is_overwritten_before_its_liveness_check_stays(world: World) -> None:
    found = swept(world, "delete", before_check=once(0, lambda: world.lay("b", OTHER)))
    assert (found["b"], world.stored()["b"]) == (Outcome.SKIPPED, OTHER)


# ---- liveness is unknown


@MODES
def test_nothing_more_is_deleted_if_liveness_cannot_be_determined(world: World, mode: str) -> None:
    def unknown() -> None:
        raise GuardRefused("the staged list is unknown")

    with pytest.raises(GuardRefused, match="the staged list is unknown"):
        swept(world, mode, before_check=once(1, unknown))
    assert unchanged(world, DEAD) == {*SECOND}
    require_that_a_later_run_completes(world, mode)


@MODES
def test_nothing_is_deleted_if_too_many_objects_are_live_again(world: World, mode: str) -> None:
    world.live.update(DEAD)
    with pytest.raises(GuardRefused, match=r"of 9 planned objects, 7 are live again .*Nothing was deleted"):
        swept(world, mode)
    assert unchanged(world, DEAD) == {*DEAD}
    assert outcomes(world) == {}


# ---- the lease, and the plan


def stop_all_sweeps(world: World) -> None:
    stop_sweeps(world.warehouse, REPOSITORY, "ada", world.now)


def let_another_run_take_the_lease(world: World) -> None:
    """Take the lease away by force, and let another run have it."""
    stop_all_sweeps(world)
    resume_sweeps(world.warehouse, REPOSITORY, world.now)
    take_lease(world.warehouse, REPOSITORY, "another-run", world.now, timedelta(minutes=30))


@MODES
@pytest.mark.parametrize("lose", [stop_all_sweeps, let_another_run_take_the_lease])
def test_a_run_that_loses_its_lease_ends_after_its_current_chunk(
    world: World, mode: str, lose: Callable[[World], None]
) -> None:
    with pytest.raises(GuardRefused, match=r"the lease is lost"):
        swept(world, mode, between_chunks=once(0, lambda: lose(world)))
    assert unchanged(world, DEAD) == {*DEAD} - {"a"}  # the other object of the first worker's first chunk is live
    with pytest.raises(
        GuardRefused, match="sweeps were stopped" if lose is stop_all_sweeps else "another-run holds the lease"
    ):
        sweep(world, mode)
    if lose is stop_all_sweeps:
        resume_sweeps(world.warehouse, REPOSITORY, world.now)
    require_that_a_later_run_completes(world, mode)


@MODES
def test_while_one_sweep_runs_another_sweep_is_refused_and_changes_nothing(world: World, mode: str) -> None:
    refused: list[str] = []

    def begin_another_sweep() -> None:
        with pytest.raises(GuardRefused, match="a-run holds the lease") as refusal:
            sweep(world, mode, "another-run")
        refused.append(str(refusal.value))

    found = swept(world, mode, between_chunks=once(0, begin_another_sweep))
    assert len(refused) == 1
    assert {found[name] for name in DEAD} == {GOES[mode]}


def test_a_liveness_check_that_takes_longer_than_the_lease_ends_the_run(world: World) -> None:
    with pytest.raises(GuardRefused, match="or it expired"):
        swept(world, "delete", after_check=once(1, lambda: world.wait(minutes=40)))
    assert unchanged(world, DEAD) == {*SECOND}
    require_that_a_later_run_completes(world, "delete")


def replace_the_plan(world: World) -> None:
    keep_plan(world.warehouse, replace(world.plan, plan_hash="f" * 64))


def withdraw_the_plan(world: World) -> None:
    withdraw_plan(world.warehouse, REPOSITORY, world.plan.day)


@MODES
@pytest.mark.parametrize(
    ("change", "violation"),
    [
        (replace_the_plan, "another process made a new plan"),
        (withdraw_the_plan, "there is no current plan of 2026-11-01. Nothing more was deleted"),
    ],
    ids=["made_again", "withdrawn"],
)
def test_a_plan_that_was_withdrawn_or_replaced_is_not_continued(
    world: World, mode: str, change: Callable[[World], None], violation: str
) -> None:
    with pytest.raises(GuardRefused, match=violation):
        swept(world, mode, after_batch=once(0, lambda: change(world)))
    assert unchanged(world, DEAD) == {*SECOND}
    keep_plan(world.warehouse, world.plan)
    require_that_a_later_run_completes(world, mode)


# ---- the window


@MODES
def test_objects_left_when_the_window_ends_are_checked_again_by_the_same_run(world: World, mode: str) -> None:
    def be_slow() -> None:
        world.wait(minutes=15)
        world.live.add("e")  # of the batch that follows

    found = swept(world, mode, between_chunks=once(0, be_slow))
    assert found["e"] == Outcome.SKIPPED
    assert unchanged(world, DEAD) == {"e"}
    assert {found[name] for name in DEAD if name != "e"} == {GOES[mode]}


def test_a_run_without_progress_ends(world: World) -> None:
    with pytest.raises(
        GuardRefused,
        match=r"no object was finished within sweep\.window, 15m, .* Nothing more was deleted: \d+ objects",
    ):
        swept(
            world, "delete", after_check=lambda _: world.wait(minutes=7)
        )  # with the time of the check, the whole window
    assert unchanged(world, DEAD) == {*DEAD}
    assert outcomes(world).keys() == {*PLANNED} - {*DEAD}  # only objects that the check skipped


def test_an_object_that_is_copied_too_slowly_is_copied_once_and_moved_after_another_liveness_check(
    world: World,
) -> None:
    """Each copy takes longer than the window. The sweep checks again and deletes the originals of existing copies."""
    copied: list[str] = []

    def slowly(effect: Effect) -> None:
        world.require_checked_as_dead(effect)
        if "/objects/" in effect.target and effect.verb.startswith("put"):
            copied.append(name_of(effect.target))
            world.wait(minutes=8)  # as long as the check: together they exceed the window

    with watched(Effects(world.root, watch=slowly)):
        sweep_result = sweep(world, "quarantine")
    assert sorted(copied) == [*DEAD]
    SCENARIOS["quarantine"].ended_well(world, sweep_result)


def test_an_object_that_becomes_live_while_it_is_copied_stays(world: World) -> None:
    def slowly(effect: Effect) -> None:
        world.require_checked_as_dead(effect)
        if effect.target.endswith("/objects/data/fu2qb0hksduf3vibnmug/b"):
            world.wait(minutes=20)
            world.live.add("b")

    with watched(Effects(world.root, watch=slowly)):
        sweep(world, "quarantine")
    assert unchanged(world, DEAD) == {"b"}
    assert outcomes(world)["b"] == Outcome.SKIPPED


def test_a_copy_that_takes_longer_than_the_lease_is_not_made_again_by_the_next_run(world: World) -> None:
    copied: list[str] = []

    def slowly(effect: Effect) -> None:
        if "/objects/" in effect.target and effect.verb.startswith("put"):
            copied.append(name_of(effect.target))
            world.wait(minutes=40 if effect.target.endswith("/a") else 0)

    with pytest.raises(GuardRefused, match="or it expired"), watched(Effects(world.root, watch=slowly)):
        sweep(world, "quarantine")
    assert unchanged(world, DEAD) == {*DEAD}
    assert "a" in copied
    with watched(Effects(world.root, watch=slowly)):
        require_that_a_later_run_completes(world, "quarantine")
    assert copied.count("a") == 1


# ---- objects that an interrupted run deleted are live again


@pytest.mark.long
@MODES
def test_a_live_object_that_an_interrupted_run_deleted_is_known_to_be_gone(mode: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[mode]
    all_may_be_live_again = LIMITS.model_copy(update={"approval": ApprovalSettings(max_revived=1.0)})
    first = World(tmp_path / "first", limits=all_may_be_live_again)
    with watched(Effects(tmp_path / "whole")) as whole:
        scenario.run(first.copy(tmp_path / "whole"), "a-run")
    for point in points(whole.seen)[::5]:
        world = first.copy(tmp_path / f"{point.number}-{point.moment}")
        with watched(Effects(world.root, point)):
            scenario.run(world, "a-run")
        gone = {*DEAD} - world.stored().keys()
        world.live.update(gone)
        world.wait(hours=1)
        sweep(world, mode, "the-next-run")
        scenario.lost_nothing(world)
        assert unchanged(world, DEAD) == set()


# ---- random events

KINDS_OF_EVENTS = ("live", "die", "remove", "lay", "stop", "wait", "be slow")
EVENTS = st.dictionaries(
    st.tuples(st.sampled_from(["before_check", "after_check", "between_chunks", "after_batch"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(KINDS_OF_EVENTS), st.sampled_from(DEAD)),
    max_size=6,
)


@hypothesis_settings(max_examples=25)
@given(EVENTS, st.sampled_from(sorted(GOES)))
def test_whatever_others_do_no_object_is_deleted_against_its_liveness_check(
    events: dict[tuple[str, int], tuple[str, str]], mode: str
) -> None:
    with TemporaryDirectory() as root:
        world = World(Path(root, "world"))
        taken: set[str] = set()

        def hook_for(hook: str) -> Hook:
            def act(check: int) -> None:
                kind, name = events.get((hook, check), ("nothing", ""))
                if kind == "live":
                    world.live.add(name)
                elif kind == "die":
                    world.live.discard(name)
                elif kind == "remove" and name in world.stored():
                    world.remove(name)
                    taken.add(name)
                elif kind == "lay":
                    world.lay(name, OTHER)
                    taken.add(name)
                elif kind == "stop":
                    stop_all_sweeps(world)
                elif kind in ("wait", "be slow"):
                    world.wait(minutes=1 if kind == "wait" else 20)

            return act

        try:
            found = swept(world, mode, **{hook: hook_for(hook) for hook in Hooks.__dataclass_fields__})
        except RetentionError:
            found = outcomes(world)
        assert unchanged(world, LIVE) == {*LIVE}
        assert world.stored()[CHANGED] == OTHER
        gone = {*DEAD} - taken - unchanged(world, DEAD)
        assert gone <= {name for name, outcome in found.items() if outcome == GOES[mode]}
        if mode == "quarantine":
            assert {name: world.copies()[name] for name in gone} == {name: content(name) for name in gone}
