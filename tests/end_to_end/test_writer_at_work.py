"""Users change a repository while it is swept: objects that are live again at the check of their batch stay.

Orchard is swept in batches of at most ten objects. Meanwhile a user creates tags and branches, stages and reverts. Each
change makes objects of later batches live again, and some changes also objects that are already deleted.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from werkzeug.wrappers import Request, Response

from retention_assets.state.lease import take_lease
from retention_assets.state.plan import keep_plan, load_plan, withdraw_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.end_to_end.approved import SINGLE_MACHINE, Approved, World, commit, copied, held_by, staged_list
from tests.end_to_end.command import Answer, Json, staged_folder
from tests.end_to_end.s3_server import Lake, Listing, Rule, deletions
from tests.faulty_s3 import Faults, faulty_s3
from tests.saved_repositories import AS_OF

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark")]

IN_BATCHES = {**SINGLE_MACHINE, "round": 10}
WINDOW = timedelta(minutes=15)  # the default of sweep.window
REVIVED = "is live again since it was planned"


def before_deletions(act: Callable[[list[str]], object]) -> Rule:
    """Return a rule that calls `act` with the keys of each deletion request before the server handles it."""

    def rule(request: Request) -> Response | None:
        if keys := deletions(request):
            act(keys)
        return None

    return rule


def once(act: Callable[[], object]) -> Rule:
    """Return a rule that calls `act` before the first deletion request."""
    acted: list[bool] = []

    def first(keys: list[str]) -> None:
        if not acted:
            acted.append(True)
            act()

    return before_deletions(first)


# ---- one sweep, with a change before almost every batch


@dataclass
class Writer:
    """A user of the repository during a sweep. Every method is a change, and returns the objects that it makes live."""

    world: World
    brought_back: set[str] = field(default_factory=set)

    def tag_an_old_commit(self) -> set[str]:
        self.world.repository.tags["keep-this"] = commit("week 13")
        return held_by(commit("week 13"))

    def make_a_deleted_branch_again(self) -> set[str]:
        self.world.repository.branches["exp-pricing-model"] = commit("experiment A")
        return held_by(commit("experiment A"))

    def stage_an_object(self) -> set[str]:
        next_to_go = min((self.world.planned & self.world.lake.listing().keys()) - self.brought_back)
        self.world.lake.put(f"{staged_folder()}one-more", staged_list(next_to_go))
        return {next_to_go}

    def revert_main(self) -> set[str]:
        self._commit("a" * 64, "main", commit("week 3"))
        return held_by(commit("week 3"))

    def branch_off_an_old_commit(self) -> set[str]:
        self.world.repository.branches["back"] = commit("candidate 0")
        return held_by(commit("candidate 0"))

    def commit_again(self) -> set[str]:
        self._commit("b" * 64, "dev", commit("week 0"))
        return held_by(commit("week 0"))

    def _commit(self, commit_id: str, branch: str, same_as: str) -> None:
        """Create a commit on a branch with the objects of the commit `same_as`."""
        repository = self.world.repository
        repository.add_commit(commit_id, same_as, created=int(AS_OF.timestamp()))
        repository.commits[commit_id]["parents"] = [repository.branches[branch]]
        repository.branches[branch] = commit_id


AT_CHECKS: dict[int, Callable[[Writer], set[str]]] = {  # by batch, counted from 0
    2: Writer.make_a_deleted_branch_again,
    3: Writer.stage_an_object,
    5: Writer.revert_main,
    6: Writer.branch_off_an_old_commit,
    7: Writer.commit_again,
}
CHANGES = [Writer.tag_an_old_commit, *AT_CHECKS.values()]


@dataclass
class Scenario:
    """The events of the sweep in their order, and its results."""

    before: Listing
    events: list[tuple[str, set[str]]] = field(default_factory=list)  # a change by its name, `check` or `delete`
    answer: Answer | None = None
    after: Listing = field(default_factory=dict)
    ledger: dict[str, Json] = field(default_factory=dict)
    records: list[Json] = field(default_factory=list)

    def brought_back(self, change: Callable[[Writer], set[str]]) -> set[str]:
        (found,) = [addresses for name, addresses in self.events if name == change.__name__]
        return found

    def only_by(self, change: Callable[[Writer], set[str]]) -> set[str]:
        others = [self.brought_back(other) for other in CHANGES if other is not change]
        return self.brought_back(change).difference(*others)


@pytest.fixture(scope="module")
def scenario(approved: Approved, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    directory = tmp_path_factory.mktemp("writer")
    with copied(approved, directory, new_lake(), sweep=IN_BATCHES) as world:
        scenario, writer = Scenario(world.lake.listing()), Writer(world)

        def change(act: Callable[[Writer], set[str]]) -> None:
            scenario.events.append((act.__name__, act(writer) & world.planned))
            writer.brought_back |= scenario.events[-1][1]

        def liveness_check(number: int) -> None:
            if act := AT_CHECKS.get(number):
                change(act)
            scenario.events.append(("check", set()))

        def record_deletion(keys: list[str]) -> None:
            scenario.events.append(("delete", {key.removeprefix("orchard/") for key in keys}))

        for number in range(20):
            world.server.before(
                "POST", "gc/prepare_uncommited", lambda number=number: liveness_check(number), nth=number + 1
            )
        tag = once(lambda: change(Writer.tag_an_old_commit))
        with world.lake.server.answering(tag), world.lake.server.answering(before_deletions(record_deletion)):
            scenario.answer = world.project.run("sweep")
        scenario.after, scenario.ledger = world.lake.listing(), world.ledger()
        scenario.records = [json.loads(file.read_text("utf-8")) for file in world.records()]
    return scenario


def test_no_object_that_was_live_at_the_liveness_check_of_its_batch_is_deleted(scenario: Scenario) -> None:
    alive: set[str] = set()
    seen: set[str] = set()
    for name, addresses in scenario.events:
        if name == "check":
            seen = set(alive)
        elif name == "delete":
            assert not addresses & seen
        else:
            alive |= addresses
    assert seen == alive != set()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_keeps_objects_that_no_other_change_keeps(
    scenario: Scenario, change: Callable[[Writer], set[str]]
) -> None:
    saved = scenario.only_by(change) & scenario.after.keys()
    assert saved
    assert {(scenario.ledger[address]["outcome"], scenario.ledger[address]["detail"]) for address in saved} == {
        ("skipped", REVIVED)
    }


def test_objects_deleted_before_a_change_are_reported_as_deleted(scenario: Scenario) -> None:
    gone = {change.__name__: scenario.brought_back(change) - scenario.after.keys() for change in CHANGES}
    assert {name for name, addresses in gone.items() if addresses} == {"tag_an_old_commit", "revert_main"}
    assert {scenario.ledger[address]["outcome"] for addresses in gone.values() for address in addresses} == {"deleted"}


def test_all_other_planned_objects_are_deleted_and_no_object_outside_the_plan(scenario: Scenario) -> None:
    assert scenario.answer is not None
    assert scenario.answer.status == 0, scenario.answer.err
    deleted = {address for address, row in scenario.ledger.items() if row["outcome"] == "deleted"}
    assert {row["outcome"] for row in scenario.ledger.values()} == {"deleted", "skipped"}
    assert scenario.before.keys() - scenario.after.keys() == deleted
    assert deleted == set().union(*(addresses for name, addresses in scenario.events if name == "delete"))


def test_every_batch_has_its_own_liveness_check_and_the_record_has_the_longest_window(scenario: Scenario) -> None:
    assert scenario.answer is not None
    checks = [name for name, _ in scenario.events].count("check")
    assert checks == scenario.answer.err.count("checked at") >= 6
    (record,) = scenario.records
    assert 0 < record["longest_window_seconds"] <= WINDOW.total_seconds()
    assert {name: amount["objects"] for name, amount in record["outcomes"].items()} == {
        name: sum(row["outcome"] == name for row in scenario.ledger.values()) for name in ("deleted", "skipped")
    }


# ---- sweeps that end early, or do not begin


NewWorld = Callable[..., AbstractContextManager[World]]


@pytest.fixture
def new_world(approved: Approved, new_lake: Callable[[], Lake], tmp_path: Path) -> NewWorld:
    return lambda **settings: copied(approved, tmp_path, new_lake(), **settings)


@pytest.fixture
def world(new_world: NewWorld) -> Iterator[World]:
    with new_world() as made:
        yield made


def require_refused(world: World, answer: Answer, *words: str) -> None:
    """Require that the sweep was refused with these words, and that the store is unchanged."""
    assert answer.status == 1, answer.err
    for word in words:
        assert word in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert world.planned <= world.lake.listing().keys()


def test_a_sweep_is_refused_while_another_process_sweeps_the_repository(world: World) -> None:
    now, life = datetime.now(UTC), timedelta(minutes=30)
    take_lease(Warehouse(str(world.project.warehouse)), "orchard", "another-run", now, life)
    refused = world.project.run("sweep")
    require_refused(world, refused, "another-run holds the lease", "retention stop orchard", "Nothing was deleted")


def test_a_repository_that_was_created_again_under_its_name_is_not_swept(world: World) -> None:
    world.repository.created += 1
    refused = world.project.run("sweep")
    require_refused(world, refused, "created again under its name", "retention plan orchard", "Nothing was deleted")


@pytest.mark.parametrize("minutes", [6, -6])
def test_a_sweep_is_refused_if_the_clock_differs_from_that_of_the_store(world: World, minutes: int) -> None:
    with faulty_s3(world.lake.server.endpoint) as proxy:
        proxy.faults = Faults(clock_ahead=60.0 * minutes)
        world.project.write(storage_options={**world.project.settings["storage_options"], "endpoint": proxy.endpoint})
        require_refused(world, world.project.run("sweep"), "clock_agrees", "300 s is allowed", "Nothing was deleted")


@pytest.mark.slow
def test_a_stop_ends_a_sweep_within_its_batch_and_after_resume_a_sweep_completes_the_plan(new_world: NewWorld) -> None:
    with new_world(sweep=IN_BATCHES) as world:
        before = world.lake.listing()
        with world.lake.server.answering(once(lambda: world.command("stop"))):
            stopped = world.project.run("sweep")
        deleted = before.keys() - world.lake.listing().keys()
        assert stopped.status == 1
        assert "stopped all sweeps" in stopped.err
        assert 0 < len(deleted) <= IN_BATCHES["round"]
        assert stopped.err.count("checked at") == 1
        again = world.project.run("sweep")
        assert again.status == 1
        assert "retention resume orchard" in again.err
        assert world.command("resume").status == 0
        world.project.write(sweep=SINGLE_MACHINE)
        ended = world.project.run("sweep")
        assert ended.status == 0, ended.err
        assert before.keys() - world.lake.listing().keys() == world.planned
        assert world.outcomes() == {"deleted": world.planned}


def planned_again(world: World) -> None:
    """Store another plan of the day, as the last step of a planning run does."""
    warehouse = Warehouse(str(world.project.warehouse))
    plan = load_plan(warehouse, "orchard", AS_OF.date())
    keep_plan(warehouse, replace(plan, made_at=plan.made_at + timedelta(minutes=1), run_id="another-run"))


def withdrawn(world: World) -> None:
    """Withdraw the plan, as the first step of a planning run does."""
    withdraw_plan(Warehouse(str(world.project.warehouse)), "orchard", AS_OF.date())


def created_again(world: World) -> None:
    """Replace the repository by another one with the same name."""
    world.repository.created += 1


@pytest.mark.parametrize(
    ("act", "words"),
    [
        pytest.param(planned_again, "made a new plan", id="another plan is made"),
        pytest.param(withdrawn, "no current plan of 2026-11-01", id="a plan is begun", marks=pytest.mark.slow),
        pytest.param(created_again, "created again under its name", id="the repository is created again"),
    ],
)
@pytest.mark.slow
def test_a_sweep_ends_within_its_batch_when_its_plan_or_its_repository_is_replaced(
    new_world: NewWorld, act: Callable[[World], None], words: str
) -> None:
    with new_world(sweep=IN_BATCHES) as world:
        before = world.lake.listing()
        with world.lake.server.answering(once(lambda: act(world))):
            ended = world.project.run("sweep")
        deleted = before.keys() - world.lake.listing().keys()
        assert ended.status == 1
        assert words in ended.err
        assert 0 < len(deleted) <= IN_BATCHES["round"]
        assert deleted < world.planned
