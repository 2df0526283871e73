"""Changes between a plan and its sweep: the liveness checks and preconditions of the sweep notice them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.end_to_end.approved import Approved, commit, copied, held_by, staged_list
from tests.end_to_end.command import Answer, Json, staged_folder
from tests.end_to_end.s3_server import Lake, Listing, busy_once, denying_deletion_of, recording_deletions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]
OLD_COMMIT = commit("week 0")


@dataclass
class Scenario:
    """The candidates by the change that affects them, and the ledger of the sweep."""

    planned: set[str]
    resurrected: set[str]
    staged: str
    gone: str
    overwritten: str
    denied: set[str]
    before: Listing
    first: Answer
    first_ledger: dict[str, Json]
    after_first: Listing
    second: Answer
    second_ledger: dict[str, Json]
    after_second: Listing
    asked_again: set[str]  # the addresses that requests of the second sweep delete

    @property
    def to_delete(self) -> set[str]:
        return self.planned - self.resurrected - {self.staged, self.gone, self.overwritten}


@pytest.fixture(scope="module")
def scenario(approved: Approved, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    lake = new_lake()
    with copied(approved, tmp_path_factory.mktemp("changed"), lake) as world:
        project, planned = world.project, world.planned
        resurrected = planned & held_by(OLD_COMMIT)
        staged, gone, overwritten, *others = sorted(planned - resurrected)
        world.repository.branches["back-to-the-start"] = OLD_COMMIT
        lake.put(f"{staged_folder()}one-more", staged_list(staged))
        lake.delete(gone)
        lake.put(overwritten, b"somebody wrote here")
        before = lake.listing()
        denied = set(others[:2])
        with lake.server.answering(busy_once()), lake.server.answering(denying_deletion_of(lake, denied)):
            first = project.run("sweep")
        first_ledger = {row["address"]: row for row in project.rows("deletion_report")}
        after_first = lake.listing()
        asked_again: set[str] = set()
        with lake.server.answering(recording_deletions(asked_again, lake)):
            second = project.run("sweep")
        second_ledger = {row["address"]: row for row in project.rows("deletion_report")}
    return Scenario(
        planned, resurrected, staged, gone, overwritten, denied, before,
        first, first_ledger, after_first, second, second_ledger, lake.listing(), asked_again,
    )  # fmt: skip


def outcomes(ledger: dict[str, Json], addresses: set[str]) -> set[str]:
    return {ledger[address]["outcome"] for address in addresses}


def test_an_object_that_a_branch_has_again_is_skipped(scenario: Scenario) -> None:
    assert len(scenario.resurrected) == 6
    assert outcomes(scenario.first_ledger, scenario.resurrected) == {"skipped"}
    assert scenario.resurrected <= scenario.after_second.keys()


def test_an_object_that_is_staged_again_is_skipped(scenario: Scenario) -> None:
    assert scenario.first_ledger[scenario.staged]["outcome"] == "skipped"
    assert scenario.staged in scenario.after_second


def test_an_overwritten_object_is_skipped(scenario: Scenario) -> None:
    assert scenario.first_ledger[scenario.overwritten]["outcome"] == "skipped"
    assert scenario.overwritten in scenario.after_second


def test_an_object_that_others_deleted_is_missing(scenario: Scenario) -> None:
    assert scenario.first_ledger[scenario.gone]["outcome"] == "missing"


def test_an_object_that_the_store_does_not_delete_fails_with_a_detail(scenario: Scenario) -> None:
    for address in scenario.denied:
        assert scenario.first_ledger[address]["outcome"] == "failed"
        assert "AccessDenied" in scenario.first_ledger[address]["detail"]


def test_every_row_with_another_outcome_than_deleted_has_a_detail(scenario: Scenario) -> None:
    for row in scenario.first_ledger.values():
        assert row["outcome"] == "deleted" or row["detail"]


def test_all_other_objects_are_deleted_although_the_store_throttled_at_first(scenario: Scenario) -> None:
    assert outcomes(scenario.first_ledger, scenario.to_delete - scenario.denied) == {"deleted"}
    assert scenario.before.keys() - scenario.after_first.keys() == scenario.to_delete - scenario.denied


def test_the_ledger_has_each_candidate_once(scenario: Scenario) -> None:
    assert scenario.first_ledger.keys() == scenario.second_ledger.keys() == scenario.planned


def test_a_sweep_that_leaves_failures_names_the_command_that_retries_them(scenario: Scenario) -> None:
    assert scenario.first.status == 3
    assert "2 objects could not be deleted or moved" in " ".join(scenario.first.err.split())
    assert "retention sweep orchard" in scenario.first.err


def test_a_second_sweep_retries_only_the_failed_objects(scenario: Scenario) -> None:
    assert scenario.second.status == 0
    assert scenario.asked_again == scenario.denied
    assert outcomes(scenario.second_ledger, scenario.denied) == {"deleted"}
    assert scenario.after_first.keys() - scenario.after_second.keys() == scenario.denied


def test_a_second_sweep_changes_no_other_outcome(scenario: Scenario) -> None:
    others = scenario.planned - scenario.denied
    first = {address: scenario.first_ledger[address]["outcome"] for address in others}
    assert {address: scenario.second_ledger[address]["outcome"] for address in others} == first
