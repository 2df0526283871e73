"""An edit crashes at each side effect. icechunk reads the repository, and the next run completes the edit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from retention_assets.errors import GuardRefused
from retention_assets.icechunk.administration.operations import Operations
from retention_assets.icechunk.administration.upgrade import upgrade
from retention_assets.icechunk.formats.model import Availability
from retention_assets.icechunk.rules.planned import PlannedEdits
from tests.icechunk.sweep.repositories import IcechunkRepository, histories, now, tree, values
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import Format
from tests.sweep.crashes.effects import Effects, outside_the_run, points, watched

Run = Callable[[IcechunkRepository], object]


@dataclass(frozen=True)
class CrashScenario:
    """An operation on a repository. `was_done`: the message of the next run if the operation was complete."""

    format: Format
    run: Run
    was_done: str | None = None


def operation(format_: Format, was_done: str | None, name: str, *arguments: object) -> CrashScenario:
    """Return the scenario of an operation. Names of commits in its arguments are replaced by their ids."""

    def run(repository: IcechunkRepository) -> object:
        operations = Operations(repository.access, now, lambda line: None)
        return getattr(operations, name)(*(repository.ids.get(str(one), one) for one in arguments))

    return CrashScenario(format_, run, was_done)


def upgraded(repository: IcechunkRepository) -> object:
    return upgrade(repository.access, now, dry_run=False)


SCENARIOS = {  # in format 2 all are one write of the repo object
    "branch_created_1": operation(1, "branch 'new' already", "create_branch", "new", "a"),
    "branch_reset_1": operation(1, None, "reset_branch", "dev", "a"),
    "branch_deleted_1": operation(1, "no branch 'dev'", "delete_branch", "dev"),
    "tag_created_1": operation(1, "tag 'new' already", "create_tag", "new", "a"),
    "tag_deleted_1": operation(1, "no tag 'v1'", "delete_tag", "v1"),
    "branch_created_2": operation(2, "branch 'new' already", "create_branch", "new", "a"),
    "branch_deleted_2": operation(2, "no branch 'dev'", "delete_branch", "dev"),
    "tag_deleted_2": operation(2, "no tag 'v1'", "delete_tag", "v1"),
    "online_2": operation(2, None, "set_status", Availability.ONLINE, "as ever"),
    "upgrade": CrashScenario(1, upgraded, "has format 2 already"),
}


def die_everywhere(first: IcechunkRepository, scenario: CrashScenario, directory: Path) -> None:
    """Crash a run at every point. Each time, the repository must be readable, and the next run must complete it."""
    before = histories(first.open()), values(first.open())
    whole = first.copy(directory / "whole")
    with watched(Effects(whole.directory)) as effects:
        scenario.run(whole)
    after = histories(whole.open()), values(whole.open())
    assert effects.seen
    for point in points(effects.seen):
        repository = first.copy(directory / f"{point.number}-{point.moment}")
        with watched(Effects(repository.directory, point)) as dying:
            scenario.run(repository)
        assert dying.dead
        with outside_the_run():
            found = histories(repository.open()), values(repository.open())
            for part, old, new in zip(found, before, after, strict=True):
                assert all(line in (old.get(name), new.get(name)) for name, line in part.items()), point
                assert old.keys() & new.keys() <= part.keys(), point
            assert_done(repository, scenario, after)


def assert_done(repository: IcechunkRepository, scenario: CrashScenario, after: object) -> None:
    """Require the same result as of a complete run, and that icechunk can commit to the repository."""
    try:
        scenario.run(repository)
    except GuardRefused as refusal:
        assert scenario.was_done is not None and scenario.was_done in str(refusal)
    assert (histories(repository.open()), values(repository.open())) == after
    commit_to(repository.open())


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_operation_that_dies_anywhere_leaves_a_consistent_repository_and_the_next_run_completes_it(
    tmp_path: Path, name: str
):
    scenario = SCENARIOS[name]
    die_everywhere(tree(tmp_path / "first", scenario.format), scenario, tmp_path)


@pytest.mark.parametrize("spec_version", [1, 2], ids=["format_1", "format_2"])
def test_a_publication_that_dies_anywhere_leaves_a_consistent_repository_and_the_next_one_completes_it(
    tmp_path: Path, spec_version: Format
):
    """In format 2, the plan also drops snapshots: dev was reset, so no reference reaches y."""
    first = tree(tmp_path / "first", spec_version)
    first.open().reset_branch("dev", first.ids["x"])
    plan: PlannedEdits = first.plan(dropped=[first.ids["y"]] if spec_version == 2 else [])
    die_everywhere(first, CrashScenario(spec_version, partial(IcechunkRepository.publish, plan=plan)), tmp_path)
