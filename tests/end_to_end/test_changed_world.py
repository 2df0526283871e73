"""What changes between a plan and its sweep is seen: looked at again, object by object, just before deleting."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end.command import Answer, Json, environment, orchard, staged_folder
from tests.end_to_end.s3_server import REGION, Lake, Listing, busy_once, denying_deletion_of, noting_deletions
from tests.repositories import api, objects_by_commit
from tests.stores.lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.stores.lakefs_world import saved

pytestmark = pytest.mark.usefixtures("spark")
NAMESPACE = "s3://lake/orchard/"
OLD_COMMIT = next(commit["id"] for commit in api("orchard")["commits"] if commit["message"] == "week 0")


def held_by(commit_id: str) -> set[str]:
    """Return the addresses that a commit holds."""
    rows = objects_by_commit("orchard").to_pylist()
    return {row["physical_address"].removeprefix(NAMESPACE) for row in rows if row["commit_id"] == commit_id}


def staged_list(*addresses: str) -> bytes:
    """Return one more file of a list of staged objects, as the server writes it."""
    columns = {"physical_address": list(addresses), "creation_date": [int(datetime.now(UTC).timestamp())]}
    file = BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@dataclass
class Story:
    """Which candidates met with what, and what the ledger says of them."""

    planned: set[str]
    revived: set[str]
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
    def doomed(self) -> set[str]:
        return self.planned - self.revived - {self.staged, self.gone, self.overwritten}


@pytest.fixture(scope="module")
def story(new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory) -> Story:
    lake, repository = new_lake(), saved("orchard")
    options = {"endpoint": lake.server.endpoint, "region": REGION, "access_key_id": "a-key"}
    place = orchard(
        tmp_path_factory.mktemp("changed"), lake.storage, {**options, "secret_access_key": {"env": "LAKE_SECRET"}}
    )
    with serving(repository) as server, environment(LAKE_SECRET="a-secret", LAKEFS_SECRET=SECRET_KEY):
        source = {"api": {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "LAKEFS_SECRET"}}}
        place.write(source=source, staged=None, mode="delete")
        plan_hash = place.plan()
        planned = {row["address"] for row in place.rows("deletion_candidates")}
        assert place.run("approve", plan_hash).status == 0
        revived = planned & held_by(OLD_COMMIT)
        staged, gone, overwritten, *others = sorted(planned - revived)
        repository.branches["back-to-the-start"] = OLD_COMMIT
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
        planned, revived, staged, gone, overwritten, denied, before,
        first, first_ledger, after_first, second, second_ledger, lake.listing(), asked_again,
    )  # fmt: skip


def outcomes(ledger: dict[str, Json], addresses: set[str]) -> set[str]:
    return {ledger[address]["outcome"] for address in addresses}


def test_what_a_branch_holds_again_is_skipped(story: Story) -> None:
    assert len(story.revived) == 6
    assert outcomes(story.first_ledger, story.revived) == {"skipped"}
    assert story.revived <= story.after_second.keys()


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
    assert outcomes(story.first_ledger, story.doomed - story.denied) == {"deleted"}
    assert story.before.keys() - story.after_first.keys() == story.doomed - story.denied


def test_the_ledger_has_each_candidate_once(story: Story) -> None:
    assert story.first_ledger.keys() == story.second_ledger.keys() == story.planned


def test_a_sweep_that_leaves_failures_names_the_command_that_retries_them(story: Story) -> None:
    assert story.first.status == 3
    assert "2 objects failed" in story.first.err
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
