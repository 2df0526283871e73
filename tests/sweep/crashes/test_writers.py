"""Others act while a sweep is at work: what lives when it is looked at is not touched, and what is left is not lost."""

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
from tests.sweep.crashes.engine import Hook, Hooks, latest
from tests.sweep.crashes.runs import sweep
from tests.sweep.crashes.stories import STORIES
from tests.sweep.crashes.world import CHANGED, DEAD, LIMITS, LIVE, OTHER, PLANNED, REPOSITORY, World, content, name_of

GOES = {"delete": Outcome.DELETED, "quarantine": Outcome.QUARANTINED}
FIRST, SECOND = ("a", "b", "d", "e"), ("g", "i")  # what goes in the first round, and in the second
MODES = pytest.mark.parametrize("mode", GOES)

pytestmark = pytest.mark.usefixtures("small_steps")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def once(number: int, act: Callable[[], object]) -> Hook:
    """Return a hook that acts at one look's number."""
    return lambda look: act() if look == number else None


def swept(world: World, mode: str, run_id: str = "a-run", **hooks: Hook) -> dict[str, str]:
    """Sweep, and return the outcomes by name; no deletion is allowed that the last look did not allow."""
    with watched(Effects(world.root, watch=world.require_dead)):
        sweep(world, mode, run_id, Hooks(**hooks))
    return outcomes(world)


def outcomes(world: World) -> dict[str, str]:
    return {name_of(row["address"]): row["outcome"] for row in latest(world.ledger()).values()}


def there(world: World, names: tuple[str, ...]) -> set[str]:
    """Return which of these objects are in the store as they were."""
    stored = world.stored()
    return {name for name in names if stored.get(name) == content(name)}


def ends_well(world: World, mode: str) -> None:
    """Require that a later run ends what an earlier one left."""
    world.wait(hours=1)
    story = STORIES[mode]
    story.ended_well(world, story.run(world, "a-later-run"))
    story.lost_nothing(world)


# ---- objects


@MODES
def test_an_object_that_is_live_again_before_its_liveness_check_stays(world: World, mode: str) -> None:
    found = swept(world, mode, after_round=once(0, lambda: world.live.update(SECOND)))
    assert there(world, DEAD) == {*SECOND}
    assert {found[name] for name in SECOND} == {Outcome.SKIPPED}
    assert {found[name] for name in FIRST} == {GOES[mode]}


@MODES
def test_an_object_that_is_unreferenced_again_before_its_liveness_check_is_deleted(world: World, mode: str) -> None:
    world.live.update(SECOND)
    found = swept(world, mode, after_round=once(0, lambda: world.live.difference_update(SECOND)))
    assert {found[name] for name in DEAD} == {GOES[mode]}


@MODES
def test_an_object_that_others_delete_after_the_liveness_check_is_missing(world: World, mode: str) -> None:
    found = swept(world, mode, after_look=once(0, lambda: world.remove("b")))
    assert found["b"] == Outcome.MISSING
    assert {found[name] for name in DEAD if name != "b"} == {GOES[mode]}
    assert "b" not in world.copies()


def test_an_object_that_is_overwritten_after_the_liveness_check_is_not_moved(world: World) -> None:
    found = swept(world, "quarantine", after_look=once(0, lambda: world.lay("b", OTHER)))
    assert found["b"] == Outcome.SKIPPED
    assert world.stored()["b"] == OTHER
    assert "b" not in world.copies()


def test_an_object_that_is_overwritten_before_its_liveness_check_stays(world: World) -> None:
    found = swept(world, "delete", before_look=once(0, lambda: world.lay("b", OTHER)))
    assert (found["b"], world.stored()["b"]) == (Outcome.SKIPPED, OTHER)


# ---- what is live cannot be known


@MODES
def test_nothing_more_is_deleted_if_liveness_cannot_be_determined(world: World, mode: str) -> None:
    def unknown() -> None:
        raise GuardRefused("the staged list is unknown")

    with pytest.raises(GuardRefused, match="the staged list is unknown"):
        swept(world, mode, before_look=once(1, unknown))
    assert there(world, DEAD) == {*SECOND}
    ends_well(world, mode)


@MODES
def test_nothing_is_deleted_if_too_many_objects_are_live_again(world: World, mode: str) -> None:
    world.live.update(DEAD)
    with pytest.raises(GuardRefused, match=r"7 of 9 planned objects are live again .*Nothing was deleted"):
        swept(world, mode)
    assert there(world, DEAD) == {*DEAD}
    assert outcomes(world) == {}


# ---- the lease, and the plan


def stop(world: World) -> None:
    stop_sweeps(world.warehouse, REPOSITORY, "ada", world.now)


def let_others_begin(world: World) -> None:
    """Take the lease away by force, and let another run have it."""
    stop(world)
    resume_sweeps(world.warehouse, REPOSITORY, world.now)
    take_lease(world.warehouse, REPOSITORY, "another-run", world.now, timedelta(minutes=30))


@MODES
@pytest.mark.parametrize("lose", [stop, let_others_begin])
def test_a_run_that_loses_its_lease_ends_after_its_current_chunk(
    world: World, mode: str, lose: Callable[[World], None]
) -> None:
    with pytest.raises(GuardRefused, match=r"another sweep or a person took it"):
        swept(world, mode, between_batches=once(0, lambda: lose(world)))
    assert there(world, DEAD) == {*DEAD} - {"a"}  # of the first worker's first batch, the other is alive
    with pytest.raises(
        GuardRefused, match="sweeps were stopped" if lose is stop else "another-run has held the lease since"
    ):
        sweep(world, mode)
    if lose is stop:
        resume_sweeps(world.warehouse, REPOSITORY, world.now)
    ends_well(world, mode)


@MODES
def test_while_one_sweep_runs_another_sweep_is_refused_and_changes_nothing(world: World, mode: str) -> None:
    refused: list[str] = []

    def begin_another() -> None:
        with pytest.raises(GuardRefused, match="a-run has held the lease since") as refusal:
            sweep(world, mode, "another-run")
        refused.append(str(refusal.value))

    found = swept(world, mode, between_batches=once(0, begin_another))
    assert len(refused) == 1
    assert {found[name] for name in DEAD} == {GOES[mode]}


def test_a_liveness_check_that_takes_longer_than_the_lease_ends_the_run(world: World) -> None:
    with pytest.raises(GuardRefused, match="or it expired"):
        swept(world, "delete", after_look=once(1, lambda: world.wait(minutes=40)))
    assert there(world, DEAD) == {*SECOND}
    ends_well(world, "delete")


def make_anew(world: World) -> None:
    keep_plan(world.warehouse, replace(world.plan, plan_hash="f" * 64))


def withdraw(world: World) -> None:
    withdraw_plan(world.warehouse, REPOSITORY, world.plan.day)


@MODES
@pytest.mark.parametrize(
    ("change", "complaint"),
    [(make_anew, "another process made a new plan"), (withdraw, "there is no current plan of 2026-11-01")],
    ids=["made_anew", "withdrawn"],
)
def test_a_plan_that_was_withdrawn_or_replaced_is_not_continued(
    world: World, mode: str, change: Callable[[World], None], complaint: str
) -> None:
    with pytest.raises(GuardRefused, match=complaint):
        swept(world, mode, after_round=once(0, lambda: change(world)))
    assert there(world, DEAD) == {*SECOND}
    keep_plan(world.warehouse, world.plan)
    ends_well(world, mode)


# ---- the window


@MODES
def test_objects_left_when_the_window_ends_are_checked_again_by_the_same_run(world: World, mode: str) -> None:
    def be_slow() -> None:
        world.wait(minutes=15)
        world.live.add("e")  # of the batch that follows

    found = swept(world, mode, between_batches=once(0, be_slow))
    assert found["e"] == Outcome.SKIPPED
    assert there(world, DEAD) == {"e"}
    assert {found[name] for name in DEAD if name != "e"} == {GOES[mode]}


def test_a_run_without_progress_ends(world: World) -> None:
    with pytest.raises(
        GuardRefused, match=r"took longer than sweep\.window, 15m\. Nothing more was deleted: \d+ objects are"
    ):
        swept(world, "delete", after_look=lambda _: world.wait(minutes=7))  # the whole window, with the look's own
    assert there(world, DEAD) == {*DEAD}
    assert outcomes(world).keys() == {*PLANNED} - {*DEAD}  # only what the look itself decided


def test_an_object_that_is_copied_too_slowly_is_copied_once_and_moved_after_another_liveness_check(
    world: World,
) -> None:
    """Each copy takes longer than the window: the sweep looks again and deletes the originals of copies that it has."""
    copied: list[str] = []

    def slowly(effect: Effect) -> None:
        world.require_dead(effect)
        if "/objects/" in effect.target and effect.verb.startswith("put"):
            copied.append(name_of(effect.target))
            world.wait(minutes=8)  # as the look does: together they are longer than the window

    with watched(Effects(world.root, watch=slowly)):
        sweep_result = sweep(world, "quarantine")
    assert sorted(copied) == [*DEAD]
    STORIES["quarantine"].ended_well(world, sweep_result)


def test_an_object_that_becomes_live_while_it_is_copied_stays(world: World) -> None:
    def slowly(effect: Effect) -> None:
        world.require_dead(effect)
        if effect.target.endswith("/objects/data/fu2qb0hksduf3vibnmug/b"):
            world.wait(minutes=20)
            world.live.add("b")

    with watched(Effects(world.root, watch=slowly)):
        sweep(world, "quarantine")
    assert there(world, DEAD) == {"b"}
    assert outcomes(world)["b"] == Outcome.SKIPPED


def test_a_copy_that_takes_longer_than_the_lease_is_not_made_again_by_the_next_run(world: World) -> None:
    copied: list[str] = []

    def slowly(effect: Effect) -> None:
        if "/objects/" in effect.target and effect.verb.startswith("put"):
            copied.append(name_of(effect.target))
            world.wait(minutes=40 if effect.target.endswith("/a") else 0)

    with pytest.raises(GuardRefused, match="or it expired"), watched(Effects(world.root, watch=slowly)):
        sweep(world, "quarantine")
    assert there(world, DEAD) == {*DEAD}
    assert "a" in copied
    with watched(Effects(world.root, watch=slowly)):
        ends_well(world, "quarantine")
    assert copied.count("a") == 1


# ---- what a dead run took away lives again


@MODES
def test_a_live_object_that_an_interrupted_run_deleted_is_known_to_be_gone(mode: str, tmp_path: Path) -> None:
    story = STORIES[mode]
    patient = LIMITS.model_copy(update={"approval": ApprovalSettings(max_revived=1.0)})
    first = World(tmp_path / "first", limits=patient)
    with watched(Effects(tmp_path / "whole")) as whole:
        story.run(first.copy(tmp_path / "whole"), "a-run")
    for point in points(whole.seen)[::5]:
        world = first.copy(tmp_path / f"{point.number}-{point.moment}")
        with watched(Effects(world.root, point)):
            story.run(world, "a-run")
        gone = {*DEAD} - world.stored().keys()
        world.live.update(gone)
        world.wait(hours=1)
        sweep(world, mode, "the-next-run")
        story.lost_nothing(world)
        assert there(world, DEAD) == set()


# ---- whatever others do

ACTS = ("live", "die", "remove", "lay", "stop", "wait", "be slow")
HAPPENINGS = st.dictionaries(
    st.tuples(st.sampled_from(["before_look", "after_look", "between_batches", "after_round"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(ACTS), st.sampled_from(DEAD)),
    max_size=6,
)


@hypothesis_settings(max_examples=25)
@given(HAPPENINGS, st.sampled_from(sorted(GOES)))
def test_whatever_others_do_no_object_is_deleted_against_its_liveness_check(
    happenings: dict[tuple[str, int], tuple[str, str]], mode: str
) -> None:
    with TemporaryDirectory() as root:
        world = World(Path(root, "world"))
        taken: set[str] = set()

        def happen(hook: str) -> Hook:
            def act(look: int) -> None:
                what, name = happenings.get((hook, look), ("nothing", ""))
                if what == "live":
                    world.live.add(name)
                elif what == "die":
                    world.live.discard(name)
                elif what == "remove" and name in world.stored():
                    world.remove(name)
                    taken.add(name)
                elif what == "lay":
                    world.lay(name, OTHER)
                    taken.add(name)
                elif what == "stop":
                    stop(world)
                elif what in ("wait", "be slow"):
                    world.wait(minutes=1 if what == "wait" else 20)

            return act

        try:
            found = swept(world, mode, **{hook: happen(hook) for hook in Hooks.__dataclass_fields__})
        except RetentionError:
            found = outcomes(world)
        assert there(world, LIVE) == {*LIVE}
        assert world.stored()[CHANGED] == OTHER
        gone = {*DEAD} - taken - there(world, DEAD)
        assert gone <= {name for name, outcome in found.items() if outcome == GOES[mode]}
        if mode == "quarantine":
            assert {name: world.copies()[name] for name in gone} == {name: content(name) for name in gone}
