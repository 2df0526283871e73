"""The objects that `simulate` calls due on a day are those of brute force and of a plan of that day."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

import dagster as dg
import pytest
import yaml

from retention_assets.assets.runs import plan_job
from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.core.amounts import Amount, sum_of
from retention_assets.definitions import build_definitions
from retention_assets.explain.plans import newest_plan
from retention_assets.explain.simulation import Forecast, forecast_of
from retention_assets.icechunk.source.opening import snapshot_policy_in
from retention_assets.lakefs.source.opening import policy_in
from retention_assets.state.plan import load_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.cases import DAY, Case, copy_repository
from tests.assets import icechunk_lake
from tests.assets.lake import NOW
from tests.clocks import GivenClock
from tests.end_to_end.command import run
from tests.explain.truth import Truth
from tests.icechunk_repositories import Commit
from tests.saved_repositories import listing

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("spark", "forgetful")]

DAYS = 60
CURRENT = Case("orchard", "lifecycle-1_and_retention_tags_protect")
OTHERS = (Case("orchard", "retention_tags_protect"), Case("orchard", "lifecycle-2_and_retention_tags_protect"))
FIRST = icechunk_lake.DAY - timedelta(days=12)
# root <- a <- b <- c <- d <- e (main);  b <- x (a branch);  v1 -> a.  All times are before the first day.
SNAPSHOTS = tuple(
    Commit(name, parent, icechunk_lake.at(12 + age))
    for name, parent, age in (
        ("a", None, 30),
        ("b", "a", 25),
        ("c", "b", 8),
        ("d", "c", 5),
        ("e", "d", 2),
        ("x", "b", 7),
    )
)
SHORTER = {"snapshots": {"default": {"keep_newer": "6d"}, "delete_expired_branches": True}}


@dataclass(frozen=True)
class Project:
    """A repository with a plan, and its configuration."""

    configuration: Configuration
    name: str
    first: date

    def forecast(self, files: Iterable[Path] = ()) -> Forecast:
        repository = self.configuration.repository(self.name)
        tables, _ = newest_plan(Warehouse(self.configuration.warehouse), repository, self.first)
        read = snapshot_policy_in if repository.is_icechunk else policy_in
        return forecast_of(self.configuration, tables, DAYS, read(list(files)) if files else None)


def plan(configuration: Configuration, name: str, day: date, now: datetime) -> Amount:
    """Plan a day with the clock at `now`; return the candidates and the waiting objects."""
    job = build_definitions(configuration, clock=GivenClock(lambda: now)).resolve_job_def(plan_job(name))
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(partition_key=day.isoformat(), instance=instance).success
    totals = load_plan(Warehouse(configuration.warehouse), name, day).totals
    return sum_of(totals.get(state, Amount()) for state in ("candidate", "waiting"))


def noon(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def orchard(tmp_path_factory: pytest.TempPathFactory) -> Project:
    configuration = copy_repository("orchard", tmp_path_factory.mktemp("orchard")).of_case(
        CURRENT, grace="1d", settle="1d"
    )
    plan(configuration, "orchard", DAY, NOW)
    return Project(configuration, "orchard", DAY)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Project:
    lake, _ = icechunk_lake.new_icechunk_lake(
        tmp_path_factory.mktemp("field"), 2, SNAPSHOTS, {"main": "e", "side": "x"}, {"v1": "a"}
    )
    plan(lake.configuration(), icechunk_lake.NAME, FIRST, noon(FIRST))
    return Project(lake.configuration(), icechunk_lake.NAME, FIRST)


def policies(project: Project, case: Case) -> list[Path]:
    return [project.configuration.file.parent / f"{policy}.json" for policy in case.policies]


@cache
def sizes() -> dict[str, int]:
    return {one.address: one.size for one in listing("orchard")}


def brute_force(case: Case, day: date) -> Amount:
    """Return the due objects of a day: listed objects that no active commit or rule keeps, and uncommitted ones."""
    truth = Truth("orchard", case.policies, case.tags)
    committed = {address for _, address in truth.entries} & sizes().keys() - truth.staged
    uncommitted = {address for address, _, kind in case.answer() if kind == "uncommitted"}
    found = (committed - truth.live(day)) | uncommitted
    return Amount(len(found), sum(sizes()[address] for address in found))


@pytest.mark.parametrize("case", [CURRENT, *OTHERS], ids=str)
@pytest.mark.slow
def test_the_forecast_of_each_day_equals_the_due_objects_that_brute_force_finds(orchard: Project, case: Case) -> None:
    forecast = orchard.forecast(() if case is CURRENT else policies(orchard, case))
    days = [DAY + timedelta(days=days) for days in range(DAYS + 1)]
    assert len(forecast.days) > 5
    assert {day: forecast.due_until(day) for day in days} == {day: brute_force(case, day) for day in days}
    listed = sum_of([forecast.due_until(forecast.last), forecast.later, forecast.never])
    assert listed.objects == len([one for one in sizes() if not one.startswith("_lakefs/")])


@pytest.mark.parametrize("case", [CURRENT, pytest.param(OTHERS[1], marks=pytest.mark.slow)], ids=str)
@pytest.mark.slow
def test_a_later_lakefs_plan_finds_due_the_objects_of_the_forecast(orchard: Project, case: Case) -> None:
    foreseen = orchard.forecast(() if case is CURRENT else policies(orchard, case))
    document = yaml.safe_load(orchard.configuration.file.read_text("utf-8"))
    document["repositories"]["orchard"]["policy"] = [str(file) for file in policies(orchard, case)]
    file = orchard.configuration.file.with_name(f"{case}.yaml")
    file.write_text(yaml.safe_dump({**document, "warehouse": f"warehouse-{case}"}), encoding="utf-8")
    configuration = load_configuration(file)
    day = DAY + timedelta(days=9)
    assert plan(configuration, "orchard", day, NOW) == foreseen.due_until(day) != foreseen.due_until(DAY)


@pytest.mark.parametrize("policy", [None, SHORTER], ids=["policy_of_now", "other_policy"])
@pytest.mark.slow
def test_a_later_icechunk_plan_finds_due_the_files_of_the_forecast(
    field: Project, policy: object, tmp_path: Path
) -> None:
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(policy or icechunk_lake.POLICY), encoding="utf-8")
    foreseen = field.forecast([tmp_path / "other.yaml"] if policy else ())
    document = yaml.safe_load(field.configuration.file.read_text("utf-8"))
    document["repositories"][field.name] |= {
        "policy": str(tmp_path / "other.yaml"),
        "storage": str(field.configuration.file.parent / "repository"),
    }
    (tmp_path / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    configuration = load_configuration(tmp_path / "retention.yaml")
    day = FIRST + timedelta(days=3 if policy else 9)
    assert plan(configuration, field.name, day, noon(day)) == foreseen.due_until(day) != foreseen.due_until(FIRST)


@pytest.mark.slow
def test_the_command_shows_both_policies_in_text_and_in_json(orchard: Project) -> None:
    files = [part for file in policies(orchard, OTHERS[0]) for part in ("--policy", file)]
    command = ["--config", orchard.configuration.file, "simulate", "orchard", "--days", str(DAYS), *files]
    text, document = run(*command), run(*command, "--json").document()
    assert text.status == 0, text.err
    now, other = orchard.forecast(), orchard.forecast(policies(orchard, OTHERS[0]))
    assert (document["current"], document["proposed"]) == (now.document(), other.document())
    for day in now.days:
        assert str(day) in text.out
    for named in document["current"]["days"]:
        assert sum(one["bytes"] for one in named["by_prefix"]) == named["bytes"]


def test_a_missing_policy_file_is_named(orchard: Project) -> None:
    answer = run("--config", orchard.configuration.file, "simulate", "orchard", "--policy", "no/such.yaml")
    assert answer.status == 2
    assert "no/such.yaml" in answer.err
