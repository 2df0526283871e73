"""Plans find exactly the candidates of every expected file, with each kind of inventory and with any earlier cache.

The inventory snapshots of a repository are compared with each other once. Each policy is then planned with one of them.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.config.configuration import Configuration
from retention_assets.lakefs.rules.references import References
from retention_assets.lakefs.source.inventory_snapshot import InventorySnapshot
from retention_assets.policy.lint import lint
from retention_assets.policy.rules import Policy
from retention_assets.warehouse.warehouse import Warehouse
from tests.acceptance.cases import CASES, DAY, SAVED_AT, Case, RepositoryCopy, copy_repository
from tests.acceptance.runs import Run, kinds, objects_in
from tests.inventories import FORMATS
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, serving
from tests.saved_repositories import REPOSITORIES, policy_file

NOW = SAVED_AT + timedelta(hours=1)
COMMITS = [(False, "ignore"), (True, "ignore"), (True, "protect")]  # committed retention or not, and the tags


@dataclass
class Known:
    """A copy of a saved repository, with the inventory snapshot and the pairs that all its cases share."""

    spark: SparkSession
    copy: RepositoryCopy
    snapshot: InventorySnapshot
    references: References
    pairs: dict[tuple[bool, str], DataFrame] = field(default_factory=dict)

    def run(self, configuration: Configuration, warehouse: str = "warehouse", **changes: Any) -> Run:
        tables = Warehouse(str(self.copy.directory / warehouse))
        return replace(Run(self.spark, configuration.repository(self.copy.name), tables, DAY, NOW), **changes)

    def configure(self, commits: tuple[bool, str], **settings: Any) -> Configuration:
        """Return a configuration for `Case.commits`. The pairs do not depend on lifecycle rules."""
        policies = ["gc_rules"] if commits[0] else ["lifecycle-1"]
        return self.copy.configure(policies, tags=commits[1], **settings)

    def pairs_of(self, commits: tuple[bool, str]) -> DataFrame:
        """Return the pairs for all cases with these `Case.commits`, read with the cache of earlier runs."""
        if commits not in self.pairs:
            run = self.run(self.configure(commits), run_id=f"run-{len(self.pairs)}")
            self.pairs[commits] = run.addresses(run.open().policy(), self.references).cache()
        return self.pairs[commits]


@pytest.fixture(scope="module")
def known_repositories(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Known]]:
    """Each repository with a snapshot by listing, after an earlier run cached the first half of its history."""
    made = {}
    for name in REPOSITORIES:
        copy = copy_repository(name, tmp_path_factory.mktemp(name))
        run = Run(
            spark,
            copy.configure(["gc_rules"]).repository(name),
            Warehouse(str(copy.directory / "warehouse")),
            DAY,
            NOW,
            "earlier",
        )
        references = run.open().source.references()
        run.addresses(run.open().policy(), halfway(references))
        snapshot = run.snapshot()
        snapshot.frame.cache()
        made[name] = Known(spark, copy, snapshot, references)
    yield made
    spark.catalog.clearCache()


@pytest.fixture
def known(known_repositories: dict[str, Known], name: str) -> Known:
    return known_repositories[name]


def halfway(references: References) -> References:
    """Return the repository with only the older half of main's history."""
    line = [references.branches["main"]]
    while parent := references.commits[line[-1]].main_parent:
        line.append(parent)
    middle = line[len(line) // 2]
    waiting, there = [middle], {middle}
    while waiting:
        parents = set(references.commits[waiting.pop()].parents) - there
        there |= parents
        waiting += parents
    commits = {commit_id: references.commits[commit_id] for commit_id in there}
    return References(commits, {"main": middle}, {}, references.taken_at)


def rows_of(pairs: DataFrame) -> list[dict[str, object]]:
    # of a pair that several ranges hold any one may be named
    return pairs.drop("range_id").toArrow().sort_by([("address", "ascending"), ("key", "ascending")]).to_pylist()


def is_short(case: Case) -> bool:
    """Return whether a case is not slow: all of orchard, and one with all kinds of rules of each other repository."""
    if case.repository == "orchard":
        return case.stem not in {"lifecycle-2_alone", "lifecycle-3_alone", "lifecycle-2_and_retention", "retention"}
    return case.stem == "lifecycle-1_and_retention_tags_protect"


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(case.repository, case, id=str(case), marks=[] if is_short(case) else pytest.mark.slow)
        for case in CASES
    ],
)
def test_exactly_the_expected_candidates_are_found(known: Known, case: Case) -> None:
    run = known.run(known.copy.of_case(case))
    policy, references = run.open().policy(), known.references
    pairs = known.pairs_of(case.commits)
    found = run.found_among(known.snapshot, pairs, policy, references.branches, references.taken_at)
    assert kinds(found) == case.answer()


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("name", REPOSITORIES)
@pytest.mark.slow
def test_an_inventory_of_each_format_has_the_same_objects_as_the_listing(known: Known, file_format: str) -> None:
    configuration = known.copy.configure(["gc_rules"], inventory=known.copy.deliver(file_format))
    snapshot = known.run(configuration).snapshot()
    assert objects_in(snapshot.frame) == objects_in(known.snapshot.frame)
    assert snapshot.taken_at == SAVED_AT
    sources = {row["source"] for row in snapshot.frame.where("address LIKE 'data/%'").select("source").collect()}
    assert sources == {"inventory"}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_an_optimized_run_finds_the_objects_of_the_listing_and_lists_no_old_slice(known: Known) -> None:
    run = known.run(known.copy.configure(["gc_rules"], listing="optimized"), "optimized")
    before = replace(run, day=DAY - timedelta(days=1), now=NOW - timedelta(hours=12))
    first = before.snapshot()
    assert first.details.fell_back
    assert first.listed == len(first.prefixes.deep)
    before.keep(first)
    second = run.snapshot()
    assert second.details.fell_back is None
    assert second.listed == 0
    assert objects_in(second.frame) == objects_in(known.snapshot.frame)
    assert second.taken_at == known.snapshot.taken_at


@pytest.mark.parametrize("commits", COMMITS, ids=["every_commit", "retention", "retention_and_tags"])
@pytest.mark.parametrize("name", REPOSITORIES)
@pytest.mark.slow
def test_a_full_run_that_does_not_use_the_cache_finds_the_same_pairs(known: Known, commits: tuple[bool, str]) -> None:
    run = known.run(known.configure(commits), run_id=f"full-{commits[0]}-{commits[1]}")
    full = run.addresses(run.open().policy(), known.references, full=True)
    assert rows_of(full) == rows_of(known.pairs_of(commits))


@contextmanager
def answered_by_a_server(known: Known, case: Case, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Yield a run with an empty warehouse that reads references from the API instead of the dump."""
    monkeypatch.setenv("LAKEFS_SECRET", SECRET_KEY)
    repository = saved(known.copy.name)
    repository.files = known.copy.directory / "lake"
    with serving(repository) as server:
        api = {"url": server.url, "access_key": ACCESS_KEY, "secret_key": {"env": "LAKEFS_SECRET"}}
        yield known.run(known.copy.of_case(case, source={"api": api}, staged=None), "by-api")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("orchard", "lifecycle-2_and_retention_tags_protect"),
        pytest.param("meadow", "lifecycle-1_and_retention", marks=pytest.mark.slow),
        pytest.param("thicket", "lifecycle-1_alone", marks=pytest.mark.slow),
    ],
)
def test_references_from_a_server_give_the_same_candidates(
    known: Known, stem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(known.copy.name, stem)
    with answered_by_a_server(known, case, monkeypatch) as run:
        references = run.open().source.references()
        assert (references.commits, references.branches, references.tags) == (
            known.references.commits,
            known.references.branches,
            known.references.tags,
        )
        assert kinds(run.found(known.snapshot)) == case.answer()


@pytest.mark.parametrize("name", ["orchard"])
def test_a_rule_for_a_missing_branch_causes_a_warning_and_changes_no_candidate(known: Known) -> None:
    case = Case("orchard", "lifecycle-1_alone")
    document = json.loads(policy_file("orchard", "lifecycle-1.json").read_bytes())
    document["foo-bar"]["branch_days"]["never-made"] = 1
    known.copy.add_policy("with-another-branch", document)
    run = known.run(known.copy.configure(["with-another-branch"], tags=case.tags))
    policy, references = run.open().policy(), known.references
    pairs = known.pairs_of(case.commits)
    found = run.found_among(known.snapshot, pairs, policy, references.branches, references.taken_at)
    assert kinds(found) == case.answer()
    assert ("warning", "there is no branch 'never-made'; its duration has no effect") in findings(policy, references)


def findings(policy: Policy, references: References) -> list[tuple[str, str]]:
    found = lint(policy, references.branches, references.tags, references.commits, None, DAY)
    return [(finding.severity, finding.message) for finding in found]
