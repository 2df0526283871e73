"""A run dies beside each of its side effects: icechunk still reads the repository, and the next run ends it well."""

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
from tests.icechunk.sweep.repositories import Place, histories, now, tree, values
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import Format
from tests.sweep.crashes.effects import Effects, outside_the_run, points, watched

Run = Callable[[Place], object]


@dataclass(frozen=True)
class CrashScenario:
    """What is done to a repository; the next run may say that it `was_done`."""

    format: Format
    run: Run
    was_done: str | None = None


def operation(format_: Format, was_done: str | None, name: str, *arguments: object) -> CrashScenario:
    """Return the story of an operation; commits that are named become their ids."""

    def run(place: Place) -> object:
        operations = Operations(place.access, now, lambda line: None)
        return getattr(operations, name)(*(place.ids.get(str(one), one) for one in arguments))

    return CrashScenario(format_, run, was_done)


def upgraded(place: Place) -> object:
    return upgrade(place.access, now, dry_run=False)


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


def die_everywhere(first: Place, scenario: CrashScenario, directory: Path) -> None:
    """Let a run die at every point; see after each that all is readable, and after the next run that all is done."""
    before = histories(first.open()), values(first.open())
    whole = first.copy(directory / "whole")
    with watched(Effects(whole.directory)) as effects:
        scenario.run(whole)
    after = histories(whole.open()), values(whole.open())
    assert effects.seen
    for point in points(effects.seen):
        place = first.copy(directory / f"{point.number}-{point.moment}")
        with watched(Effects(place.directory, point)) as dying:
            scenario.run(place)
        assert dying.dead
        with outside_the_run():
            found = histories(place.open()), values(place.open())
            for part, old, new in zip(found, before, after, strict=True):
                assert all(line in (old.get(name), new.get(name)) for name, line in part.items()), point
                assert old.keys() & new.keys() <= part.keys(), point
            assert_done(place, scenario, after)


def assert_done(place: Place, scenario: CrashScenario, after: object) -> None:
    """Require that the next run leaves what a whole one leaves, and that icechunk commits to it."""
    try:
        scenario.run(place)
    except GuardRefused as refusal:
        assert scenario.was_done is not None and scenario.was_done in str(refusal)
    assert (histories(place.open()), values(place.open())) == after
    commit_to(place.open())


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
    """In format 2 there is something to drop too: dev was reset, so that nothing reaches y."""
    first = tree(tmp_path / "first", spec_version)
    first.open().reset_branch("dev", first.ids["x"])
    plan: PlannedEdits = first.plan(dropped=[first.ids["y"]] if spec_version == 2 else [])
    die_everywhere(first, CrashScenario(spec_version, partial(Place.publish, plan=plan)), tmp_path)
