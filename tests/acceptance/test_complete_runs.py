"""Complete runs of the `retention` command through Dagster, with and without tables and caches of earlier runs."""

import csv
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.lakefs.names.generated import UNRESOLVED
from retention_assets.state.plan import Plan, load_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.cases import CASES, DAY, Case, RepositoryCopy, copy_repository
from tests.acceptance.runs import Found, kinds
from tests.end_to_end.command import files_below, run
from tests.inventories import FORMATS
from tests.lakefs_repositories import NAME, BuiltRepository, Version, address, build_repository
from tests.saved_repositories import REPOSITORIES

pytestmark = pytest.mark.usefixtures("spark", "forgetful")


@dataclass(frozen=True)
class Planned:
    """The tables of a run."""

    plan: Plan
    found: set[Found]
    listed: int  # objects that a listing showed


def plan(configuration: Configuration, name: str, day: date, *options: str) -> Planned:
    """Plan by the command, and read the tables of the warehouse."""
    answer = run("--config", configuration.file, "plan", name, "--as-of", day.isoformat(), *options)
    assert answer.status == 0, answer.err
    warehouse = Warehouse(configuration.warehouse)
    candidates = pq.read_table(warehouse.partition(name, "deletion_candidates", day))
    inventory = pq.read_table(warehouse.partition(name, "storage_inventory", day), columns=["source"])
    rows = [tuple(row[key] for key in ("address", "size", "reason")) for row in candidates.to_pylist()]
    assert len(set(rows)) == len(rows)
    listed = pc.sum(pc.equal(inventory["source"], "listing")).as_py()
    for table in ("addresses", "uncommitted_objects"):
        named = pq.read_table(warehouse.partition(name, table, day), columns=["address"])["address"].to_pylist()
        outside = sum(bool(re.search(UNRESOLVED, address)) for address in named)
        assert warehouse.metadata(name, table, day).details.outside == outside
    return Planned(load_plan(warehouse, name, day), set(rows), listed)


@pytest.mark.slow
def test_a_full_run_with_an_inventory_makes_the_same_plan_as_a_run_with_a_listing(tmp_path: Path) -> None:
    copy, case = copy_repository("meadow", tmp_path), Case("meadow", "lifecycle-2_and_retention_tags_protect")
    first = plan(copy.of_case(case), "meadow", DAY)
    by_inventory = copy.of_case(case, inventory=copy.deliver("ORC"))
    second = plan(by_inventory, "meadow", DAY, "--full")
    assert kinds(first.found) == kinds(second.found) == case.answer()
    assert second.listed == 0 < first.listed
    assert second.plan.plan_hash == first.plan.plan_hash


@pytest.mark.slow
def test_an_optimized_run_warns_when_it_lists_everything(tmp_path: Path) -> None:
    copy, case = copy_repository("orchard", tmp_path), Case("orchard", "lifecycle-1_and_retention")
    optimized = copy.of_case(case, listing="optimized")
    first = plan(optimized, "orchard", DAY - timedelta(days=1))
    assert [text for text in first.plan.warnings if "there is no usable inventory of another day" in text]
    second = plan(optimized, "orchard", DAY)
    assert not [text for text in second.plan.warnings if "optimized" in text]
    assert kinds(second.found) == case.answer()
    assert first.found < second.found  # a day less of age


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RepositoryCopy]:
    return {name: copy_repository(name, tmp_path_factory.mktemp(name)) for name in REPOSITORIES}


def _settings(copy: RepositoryCopy) -> Iterator[dict[str, Any]]:
    """Yield settings for each kind of inventory, again and again."""
    for way in cycle(["clean", "optimized", *FORMATS]):
        yield {"inventory": copy.deliver(way)} if way in FORMATS else {"listing": way}


@pytest.fixture(scope="module")
def ways(copies: dict[str, RepositoryCopy]) -> dict[str, Iterator[dict[str, Any]]]:
    return {name: _settings(copy) for name, copy in copies.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, id=str(case)) for case in CASES])
def test_a_complete_run_after_earlier_runs_finds_the_expected_candidates(
    copies: dict[str, RepositoryCopy], ways: dict[str, Iterator[dict[str, Any]]], case: Case
) -> None:
    settings = {"guards": {"max_live_shrink": 1}, **next(ways[case.repository])}  # cases keep very different amounts
    configuration = copies[case.repository].of_case(case, **settings)
    assert kinds(plan(configuration, case.repository, DAY).found) == case.answer_of_plan()


NOW = datetime(2025, 11, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=100)
LIVE, EXPIRED, BY_LIFECYCLE, IN_NOTHING = (address(OLD, number) for number in range(4))
RETENTION = {"default_retention_days": 10, "branches": []}
PREFIXES = ("raw", "a/1", "Raw", "a/1/2", "")  # of holds
LIFECYCLE = {"raw-month": {"prefix": "raw", "days": 30, "enabled": True}}


def small(directory: Path) -> BuiltRepository:
    commits = [
        Version("first", OLD, {"a/1": EXPIRED, "raw/1": BY_LIFECYCLE}),
        Version("second", NOW - timedelta(days=50), {"a/1": LIVE, "raw/1": BY_LIFECYCLE}, ("first",)),
    ]
    objects = dict.fromkeys((LIVE, EXPIRED, BY_LIFECYCLE, IN_NOTHING), OLD)
    return build_repository(directory, commits, {"main": "second"}, taken_at=NOW, objects=objects)


@pytest.mark.slow
def test_a_plan_warns_about_a_hold_that_keeps_nothing_and_about_months_written_as_minutes(tmp_path: Path) -> None:
    built = small(tmp_path)
    holds = [{"id": f"hold-{at}", "prefix": prefix, "reason": "a lawsuit"} for at, prefix in enumerate(PREFIXES)]
    minutes = {"retention": {"default": "6m", "branches": [{"branch": "main", "keep": "12d"}]}, "holds": holds}
    planned = plan(built.configure(minutes), NAME, NOW.date())
    warned = [text for text in planned.plan.warnings if "hold" in text or "minutes" in text]
    assert [text.partition(":")[0] for text in warned] == [
        "The hold on the prefix 'Raw' keeps nothing",
        "The hold on the prefix 'a/1/2' keeps nothing",
        "Rule default",
    ]
    assert "6m is shorter than 3h: the unit m is minutes" in warned[-1]


@pytest.mark.slow
def test_a_hold_keeps_objects_at_paths_in_another_unicode_form(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "größe") for form in ("NFC", "NFD"))
    commits = [
        Version("first", OLD, {f"{composed}/1": EXPIRED, f"{decomposed}/2": BY_LIFECYCLE, "a": IN_NOTHING}),
        Version("second", NOW - timedelta(days=50), {"b": LIVE}, ("first",)),
    ]
    objects = dict.fromkeys((LIVE, EXPIRED, BY_LIFECYCLE, IN_NOTHING), OLD)
    built = build_repository(tmp_path, commits, {"main": "second"}, taken_at=NOW, objects=objects)
    hold = {"id": "audit", "prefix": composed, "reason": "an audit"}
    planned = plan(built.configure(RETENTION, {"holds": [hold]}), NAME, NOW.date())
    assert {name for name, *_ in planned.found} == {IN_NOTHING}


def sweep(built: BuiltRepository, **settings: Any) -> Planned:
    """Plan, approve and sweep by the command."""
    configuration = built.configure(RETENTION, LIFECYCLE, mode="delete", guards={"max_live_shrink": 1}, **settings)
    planned = plan(configuration, NAME, NOW.date())
    assert {(name, why) for name, _, why in planned.found} == {
        (EXPIRED, "expired"),
        (BY_LIFECYCLE, "lifecycle"),
        (IN_NOTHING, "unreferenced"),
    }
    for command in (("approve", NAME, planned.plan.plan_hash), ("sweep", NAME)):
        answer = run("--config", configuration.file, *command, "--as-of", NOW.date().isoformat())
        assert answer.status == 0, answer.err
    assert not (built.lake / EXPIRED).exists()
    assert (built.lake / LIVE).exists()
    return planned


@pytest.mark.slow
def test_a_sweep_without_write_results_writes_nothing_below_the_namespace(tmp_path: Path) -> None:
    built = small(tmp_path)
    before = files_below(built.lake)
    planned = sweep(built)
    gone = {name for name, _, _ in planned.found}
    assert files_below(built.lake) == {name: metadata for name, metadata in before.items() if name not in gone}


@pytest.mark.slow
def test_write_results_stores_results_and_statistics_below_the_namespace(tmp_path: Path) -> None:
    built = small(tmp_path)
    before = files_below(built.lake)
    planned = sweep(built, write_results=True)
    added = set(files_below(built.lake)) - set(before)
    assert {name.rsplit("/", 2)[0] for name in added} == {
        "_lakefs/retention/lc/addresses",
        "_lakefs/retention/lc",
    }
    assert {name for name in added if not name.endswith(".parquet")} == {"_lakefs/retention/lc/stats/2025-11-01.csv"}
    assert results(built) == [
        {"run_id": planned.plan.run_id, "date": "2025-11-01", "address": name, "paths": paths, "matched_rules": rules}
        for name, paths, rules in sorted(
            [
                (EXPIRED, ["a/1"], ["retention:default"]),
                (BY_LIFECYCLE, ["raw/1"], ["raw-month"]),
                (IN_NOTHING, [], []),
            ]
        )
    ]
    with (built.lake / "_lakefs/retention/lc/stats/2025-11-01.csv").open(encoding="utf-8", newline="") as lines:
        statistics = list(csv.DictReader(lines))
    assert [(row["plan_hash"], row["rule_id"], row["objects"], row["deleted"]) for row in statistics] == [
        (planned.plan.plan_hash, rule, "1", "1") for rule in ("raw-month", "retention:default", "unreferenced")
    ]
    again = plan(load_configuration(built.directory / "retention.yaml"), NAME, NOW.date())
    assert again.found == set()
    assert sum(amount.objects for amount in again.plan.totals.values()) == 1  # results are no objects


@pytest.mark.slow
def test_candidates_of_an_earlier_plan_are_not_shown_if_the_results_of_a_plan_cannot_be_written(tmp_path: Path) -> None:
    built = small(tmp_path)
    configuration = built.configure(RETENTION, LIFECYCLE, guards={"max_live_shrink": 1}, write_results=True)
    command = "--config", configuration.file
    day = "--as-of", NOW.date().isoformat()
    assert run(*command, "plan", NAME, *day).status == 0
    found = run(*command, "show", NAME, "deletion_candidates", *day, "--json")
    assert EXPIRED in found.out
    built.remove([EXPIRED])
    written = built.lake / "_lakefs/retention/lc/addresses"
    shutil.rmtree(written)
    written.write_bytes(b"no directory")
    assert run(*command, "plan", NAME, *day).status != 0
    found = run(*command, "show", NAME, "deletion_candidates", *day, "--json")
    assert EXPIRED not in found.out
    assert BY_LIFECYCLE in found.out, "the plan that `approve` and `sweep` use"
    written.unlink()
    assert run(*command, "plan", NAME, *day).status == 0
    found = run(*command, "show", NAME, "deletion_candidates", *day, "--json")
    assert EXPIRED not in found.out
    assert BY_LIFECYCLE in found.out


def results(built: BuiltRepository) -> list[dict[str, Any]]:
    folder = built.lake / "_lakefs/retention/lc/addresses"
    table = ds.dataset(folder, partitioning=ds.partitioning(flavor="hive")).to_table()
    rows: list[dict[str, Any]] = table.sort_by("address").to_pylist()
    return rows
