"""A plan of orchard in S3 is refused, approved, executed, and executed again, with a dump and with a server."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.end_to_end.command import Answer, Json, Project, environment, orchard, sample
from tests.end_to_end.s3_server import REGION, Lake, Listing
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.saved_repositories import active_commits, expected, listing, objects_by_commit

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark", "compiled")]
WRONG_HASH = "0" * 64


@dataclass
class Scenario:
    """The answer of each command, and the listing of the store after it."""

    lake: Lake
    before: Listing
    candidates: list[Json] = field(default_factory=list)
    plan_hash: str = ""
    answers: dict[str, Answer] = field(default_factory=dict)
    listings: dict[str, Listing] = field(default_factory=dict)
    ledgers: dict[str, list[Json]] = field(default_factory=dict)

    def record(self, step: str, answer: Answer) -> None:
        self.answers[step] = answer
        self.listings[step] = self.lake.listing()

    @property
    def planned(self) -> set[str]:
        return {row["address"] for row in self.candidates}


@pytest.fixture(scope="module", params=[pytest.param("dump", marks=pytest.mark.slow), "server"])
def project(
    request: pytest.FixtureRequest, new_lake: Callable[[], Lake], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lake, Project]]:
    lake = new_lake()
    options = {
        "endpoint": lake.server.endpoint,
        "region": REGION,
        "access_key_id": "a-key",
        "secret_access_key": {"env": "LAKE_SECRET"},
    }
    with ExitStack() as stack:
        stack.enter_context(environment(LAKE_SECRET="a-secret", LAKEFS_SECRET=SECRET_KEY))
        made = orchard(tmp_path_factory.mktemp(request.param), lake.storage, options)
        if request.param == "server":
            server = stack.enter_context(serving(saved("orchard")))
            api = {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "LAKEFS_SECRET"}}
            made.write(source={"api": api}, staged=None)
        yield lake, made


@pytest.fixture(scope="module")
def scenario(project: tuple[Lake, Project]) -> Scenario:
    lake, made = project
    scenario = Scenario(lake, lake.listing())
    scenario.plan_hash = made.plan()
    scenario.candidates = made.rows("deletion_candidates")
    scenario.record("sweep in plan mode", made.run("sweep"))
    made.write(mode="delete")
    scenario.record("sweep with a lease that others do not see", made.run("sweep"))
    made.write(sweep={"single_machine": True})
    scenario.record("sweep without approval", made.run("sweep"))
    scenario.record("approval of another hash", made.run("approve", WRONG_HASH))
    scenario.record("sweep after that approval", made.run("sweep"))
    scenario.record("approval", made.run("approve", scenario.plan_hash))
    for step in ("sweep", "second sweep"):
        scenario.record(step, made.run("sweep"))
        scenario.ledgers[step] = made.rows("deletion_report")
    scenario.record("report", made.run("report"))
    return scenario


def test_the_expired_candidates_are_those_that_brute_force_finds(scenario: Scenario) -> None:
    found = {(row["address"], row["size"]) for row in scenario.candidates if row["reason"] == "expired"}
    assert found == {(row.address, row.size) for row in expected("orchard", "retention.csv") if row.kind == "committed"}


@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("sweep in plan mode", 2),
        ("sweep with a lease that others do not see", 1),
        ("sweep without approval", 1),
        ("approval of another hash", 1),
        ("sweep after that approval", 1),
        ("approval", 0),
    ],
)
def test_nothing_is_deleted_before_an_approved_sweep(scenario: Scenario, step: str, status: int) -> None:
    assert scenario.answers[step].status == status
    assert scenario.listings[step] == scenario.before


def test_a_sweep_in_plan_mode_is_a_usage_error_that_names_the_modes(scenario: Scenario) -> None:
    refusal = " ".join(scenario.answers["sweep in plan mode"].err.split())
    assert "Nothing was deleted" in refusal
    assert "mode: quarantine" in refusal
    assert "mode: delete" in refusal


def test_a_sweep_of_a_bucket_with_a_local_warehouse_is_refused_without_single_machine(
    scenario: Scenario,
) -> None:
    refusal = " ".join(scenario.answers["sweep with a lease that others do not see"].err.split())
    assert "sweep.single_machine" in refusal
    assert "Nothing was deleted" in refusal


def test_the_refusal_of_a_sweep_names_the_missing_approval(scenario: Scenario) -> None:
    refusal = scenario.answers["sweep without approval"].err
    assert f"retention approve orchard {scenario.plan_hash}" in " ".join(refusal.split())
    assert scenario.plan_hash in scenario.answers["approval of another hash"].err


def test_a_sweep_deletes_exactly_the_planned_objects(scenario: Scenario) -> None:
    assert scenario.answers["sweep"].status == 0
    after = scenario.listings["sweep"]
    assert after.items() <= scenario.before.items()
    assert scenario.before.keys() - after.keys() == scenario.planned


def test_a_sweep_logs_the_amount_to_delete_and_its_progress(scenario: Scenario) -> None:
    message = scenario.answers["sweep"].err
    assert f"delete {len(scenario.planned):,} objects" in message
    assert f"{len(scenario.planned):,} of {len(scenario.planned):,} objects" in message
    assert "objects/s" in message


def test_every_object_of_every_active_commit_is_still_readable(scenario: Scenario) -> None:
    objects = objects_by_commit("orchard").to_pylist()
    active = {row["physical_address"] for row in objects if row["commit_id"] in active_commits("orchard")}
    inside = {address.removeprefix("s3://lake/orchard/") for address in active if "/orchard/" in address}
    assert len(inside) > 100
    for address in inside:
        assert scenario.lake.read(address) == sample(address)


def test_a_second_sweep_deletes_nothing_and_changes_no_row_of_the_ledger(scenario: Scenario) -> None:
    assert scenario.answers["second sweep"].status == 0
    assert scenario.listings["second sweep"] == scenario.listings["sweep"]
    assert scenario.ledgers["second sweep"] == scenario.ledgers["sweep"]


def test_the_ledger_has_exactly_the_planned_objects(scenario: Scenario) -> None:
    ledger = scenario.ledgers["sweep"]
    assert {row["outcome"] for row in ledger} == {"deleted"}
    assert {(row["address"], row["size"]) for row in ledger} == {
        (row["address"], row["size"]) for row in scenario.candidates
    }
    assert max(Counter(row["address"] for row in ledger).values()) == 1


def test_the_report_counts_the_outcomes_in_the_ledger(scenario: Scenario) -> None:
    answer = scenario.answers["report"]
    assert answer.status == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in answer.out.splitlines() if "│" in line]
    deleted = next(row for row in rows if row[0] == "deleted")
    assert deleted[1] == str(len(scenario.planned))
    assert next(row for row in rows if row[0] == "unattempted")[1] == "0"


def test_the_sample_in_the_bucket_has_its_own_times(scenario: Scenario) -> None:
    assert scenario.before == {entry.address: (entry.size, entry.last_modified) for entry in listing("orchard")}
