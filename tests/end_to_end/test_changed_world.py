"""What changes between a plan and its sweep is seen: looked at again, object by object, just before deleting."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.end_to_end.approved import Approved, commit, copied, held_by, staged_list
from tests.end_to_end.command import Answer, Json, staged_folder
from tests.end_to_end.s3_server import Lake, Listing, busy_once, denying_deletion_of, noting_deletions

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]
OLD_COMMIT = commit("week 0")


@dataclass
class Story:
    """Which candidates met with what, and what the ledger says of them."""

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
    asked_again: set[str]  # what requests of the second sweep delete

    @property
    def to_delete(self) -> set[str]:
        return self.planned - self.resurrected - {self.staged, self.gone, self.overwritten}


@pytest.fixture(scope="module")
def story(approved: Approved, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Story:
    lake = new_lake()
    with copied(approved, tmp_path_factory.mktemp("changed"), lake) as world:
        place, planned = world.place, world.planned
        resurrected = planned & held_by(OLD_COMMIT)
        staged, gone, overwritten, *others = sorted(planned - resurrected)
        world.repository.branches["back-to-the-start"] = OLD_COMMIT
        lake.put(f"{staged_folder()}one-more", staged_list(staged))
        lake.delete(gone)
        lake.put(overwritten, b"somebody wrote here")
        before = lake.listing()
        denied = set(others[:2])
        with lake.server.answering(busy_once()), lake.server.answering(denying_deletion_of(lake, denied)):
            first = place.run("sweep")
        first_ledger = {row["address"]: row for row in place.rows("deletion_report")}
        after_first = lake.listing()
        asked_again: set[str] = set()
        with lake.server.answering(noting_deletions(asked_again, lake)):
            second = place.run("sweep")
        second_ledger = {row["address"]: row for row in place.rows("deletion_report")}
    return Story(
        planned, resurrected, staged, gone, overwritten, denied, before,
        first, first_ledger, after_first, second, second_ledger, lake.listing(), asked_again,
    )  # fmt: skip


def outcomes(ledger: dict[str, Json], addresses: set[str]) -> set[str]:
    return {ledger[address]["outcome"] for address in addresses}


def test_what_a_branch_holds_again_is_skipped(story: Story) -> None:
    assert len(story.resurrected) == 6
    assert outcomes(story.first_ledger, story.resurrected) == {"skipped"}
    assert story.resurrected <= story.after_second.keys()


def test_what_is_staged_again_is_skipped(story: Story) -> None:
    assert story.first_ledger[story.staged]["outcome"] == "skipped"
    assert story.staged in story.after_second


def test_what_was_overwritten_is_skipped(story: Story) -> None:
    assert story.first_ledger[story.overwritten]["outcome"] == "skipped"
    assert story.overwritten in story.after_second


def test_what_is_gone_already_is_missing(story: Story) -> None:
    assert story.first_ledger[story.gone]["outcome"] == "missing"


def test_what_the_store_refuses_to_delete_has_failed_with_a_detail(story: Story) -> None:
    for address in story.denied:
        assert story.first_ledger[address]["outcome"] == "failed"
        assert "AccessDenied" in story.first_ledger[address]["detail"]


def test_every_row_that_is_not_deleted_says_why(story: Story) -> None:
    for row in story.first_ledger.values():
        assert row["outcome"] == "deleted" or row["detail"]


def test_the_rest_is_deleted_although_the_store_was_busy_at_first(story: Story) -> None:
    assert outcomes(story.first_ledger, story.to_delete - story.denied) == {"deleted"}
    assert story.before.keys() - story.after_first.keys() == story.to_delete - story.denied


def test_the_ledger_has_each_candidate_once(story: Story) -> None:
    assert story.first_ledger.keys() == story.second_ledger.keys() == story.planned


def test_a_sweep_that_leaves_failures_names_the_command_that_retries_them(story: Story) -> None:
    assert story.first.status == 3
    assert "2 objects could not be deleted or moved" in " ".join(story.first.err.split())
    assert "retention sweep orchard" in story.first.err


def test_a_second_sweep_retries_what_failed_and_nothing_else(story: Story) -> None:
    assert story.second.status == 0
    assert story.asked_again == story.denied
    assert outcomes(story.second_ledger, story.denied) == {"deleted"}
    assert story.after_first.keys() - story.after_second.keys() == story.denied


def test_a_second_sweep_leaves_every_other_outcome_as_it_was(story: Story) -> None:
    others = story.planned - story.denied
    first = {address: story.first_ledger[address]["outcome"] for address in others}
    assert {address: story.second_ledger[address]["outcome"] for address in others} == first
