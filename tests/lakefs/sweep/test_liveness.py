"""A sweep is refused before it deletes anything if it cannot determine liveness, or finds another repository."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from retention_assets.config.configuration import Repository as Configured
from retention_assets.config.configuration import load_configuration
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.rules.references import Commit, References
from retention_assets.lakefs.rules.reflog import Memory, SeenHead
from retention_assets.lakefs.source.api import ApiSource
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.source.repository import StagedList
from retention_assets.lakefs.sweep import liveness as liveness_module
from retention_assets.lakefs.sweep.liveness import LakeFSLiveness, LivenessQuery, commits_under
from retention_assets.policy.rules import LifecycleRule, Policy
from retention_assets.state.plan import Heads
from retention_assets.warehouse.table_cache import TableCache
from retention_assets.warehouse.warehouse import Warehouse
from tests import lakefs_repositories
from tests.end_to_end.command import orchard_on_disk
from tests.lakefs.source.fake_lakefs_repository import saved
from tests.lakefs.source.fake_lakefs_server import ACCESS_KEY, SECRET_KEY, FakeLakeFSServer, serving
from tests.lakefs_repositories import NAME, STAGED, BuiltRepository, Version, address, build_repository, linked_again
from tests.lakefs_tables import Range
from tests.sweep.small_world import a_plan

NOW = datetime(2025, 11, 1, 6, tzinfo=UTC)
OLD = NOW - timedelta(days=100)
TAKEN_AT = NOW - timedelta(days=3)
HOUR = timedelta(hours=1)
COMMITS = [Version("only", OLD, {"path/held": address(OLD)})]
RULES = {"default_retention_days": 10, "branches": []}
NO_HEADS = Heads({}, {})
NOTHING = r"Nothing was deleted\."
PLAN_AGAIN = rf"`retention plan {NAME} --as-of 2025-11-01`"


def liveness(
    repository: Configured,
    tables: Path,
    spark: SparkSession | None = None,
    clock: Callable[[], datetime] = lambda: NOW,
    last_read_at: datetime | None = None,
) -> LakeFSLiveness:
    without: Any = None  # an immediate refusal needs no Spark
    opened = open_repository(repository, lambda: NOW)
    cache = TableCache(spark or without, Warehouse(str(tables)), repository.name, opened.access, "a-run")
    query = LivenessQuery(opened, opened.policy(), NOW.date(), Memory(), last_read_at)
    return LakeFSLiveness(spark or without, cache, query, clock)


def built(directory: Path, **changes: Any) -> BuiltRepository:
    return build_repository(directory, COMMITS, {"main": "only"}, taken_at=TAKEN_AT, **changes)


def of_dump(project: BuiltRepository, spark: SparkSession | None = None, **settings: Any) -> LakeFSLiveness:
    return liveness(project.repository(RULES, **settings), project.directory / "warehouse", spark)


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        pytest.param(None, "is unknown.", id="unknown"),
        pytest.param(
            72 * HOUR, "(2025-11-01 06:00:00 UTC) is newer than the references (2025-10-29 06:00:", id="newer"
        ),
        pytest.param(-2.1 * HOUR, "(2025-10-29 03:54:00 UTC) is more than 2h older than the references", id="older"),
    ],
)
def test_a_staged_list_that_may_lack_objects_is_refused(tmp_path: Path, after: timedelta | None, problem: str) -> None:
    project = built(tmp_path, staged=None if after is None else ())
    if after is not None:
        written_at = (TAKEN_AT + after).timestamp()
        os.utime(project.lake / STAGED / "0001", (written_at, written_at))
    refused = rf"^{NAME}: the staged list {re.escape(problem)}.* {NOTHING} Let the server write a new .*{PLAN_AGAIN}"
    with pytest.raises(GuardRefused, match=refused):
        of_dump(project).now()


def test_a_dump_that_is_too_old_is_refused_with_its_time_and_both_remedies(tmp_path: Path) -> None:
    seen = rf"^{NAME}: the dump dump\.json was taken on 2025-10-29 06:00 UTC\. .* at most 1d old"
    remedy = r"Replace it with a new dump .*set source.dump_age, or for one sweep add `--dump-age 74h`"
    with pytest.raises(GuardRefused, match=rf"{seen}\. {NOTHING} {remedy}"):
        of_dump(built(tmp_path), source={"dump": "dump.json", "dump_age": "1d"}).now()


def test_a_dump_from_before_the_last_plan_is_refused_whatever_its_age(tmp_path: Path) -> None:
    project = built(tmp_path)
    repository = project.repository(RULES, source={"dump": "dump.json", "dump_age": "3650d"})
    refused = (
        rf"^{NAME}: the dump dump\.json was taken on 2025-10-29 06:00 UTC, before the references of the last plan "
        rf"\(2025-10-29 06:10 UTC\)\. .* {NOTHING} Replace it with a new dump .* run the same command again\.$"
    )
    with pytest.raises(GuardRefused, match=refused):
        liveness(repository, tmp_path / "warehouse", last_read_at=TAKEN_AT + timedelta(minutes=10)).now()
    same = liveness(repository, tmp_path / "warehouse", last_read_at=TAKEN_AT)
    assert same.require_same(a_plan(repository=NAME), NO_HEADS).taken_at == TAKEN_AT


def test_a_dump_that_becomes_too_old_during_a_sweep_ends_the_sweep_at_the_next_check(tmp_path: Path) -> None:
    project, clock = built(tmp_path), [TAKEN_AT + timedelta(hours=23)]
    repository = project.repository(RULES, source={"dump": "dump.json", "dump_age": "1d"})
    asked = liveness(repository, tmp_path / "warehouse", clock=lambda: clock[-1])
    asked.require_same(a_plan(repository=NAME), NO_HEADS)
    clock.append(TAKEN_AT + timedelta(hours=25))
    with pytest.raises(GuardRefused, match=rf"the dump dump\.json was taken on .* at most 1d old\. {NOTHING}"):
        asked.now()


def test_commits_that_a_gone_branch_reached_count_for_its_lifecycle_rules() -> None:
    """`dev` was deleted. The objects of its commit stay as long as the lifecycle rule says for `dev`."""
    commits = {name: Commit(name, (), OLD, "") for name in ("first", "second")}
    references = References(commits, {"main": "first"}, {}, NOW)
    rule = LifecycleRule("raw", "raw", timedelta(days=10), {"dev": timedelta(days=60)})
    seen = SeenHead("branch", "dev", "second", NOW - timedelta(hours=1))

    def left(memory: Memory) -> dict[str, list[str]]:
        found = commits_under(Policy(None, (rule,), ()), references, (), tags_protect=True, as_of=NOW, memory=memory)
        return {row["commit_id"]: row["left_branches"] for row in found.to_pylist()}

    assert left(Memory((seen,), dict.fromkeys(commits), seen.last_seen)) == {"first": [], "second": ["dev"]}
    assert left(Memory()) == {"first": [], "second": []}


def test_a_repository_that_lost_a_commit_of_the_plan_is_refused(tmp_path: Path) -> None:
    project = built(tmp_path)
    planned = Heads({"main": project.commit_ids["only"]}, {"v1": "f" * 64})
    seen = (
        f"^{NAME} 2025-11-01: the repository is not the one .*: v1 pointed to {'f' * 64}, which does not exist any more"
    )
    with pytest.raises(GuardRefused, match=rf"{seen}\. {NOTHING} Plan again: {PLAN_AGAIN}"):
        of_dump(project).require_same(a_plan(repository=NAME), planned)


@pytest.mark.long
def test_a_refusal_says_that_nothing_more_was_deleted_only_after_the_first_check(
    spark: SparkSession, tmp_path: Path
) -> None:
    project, clock = built(tmp_path), [TAKEN_AT]
    repository = project.repository(RULES, source={"dump": "dump.json", "dump_age": "1d"})
    asked = liveness(repository, tmp_path / "warehouse", spark, clock=lambda: clock[-1])
    asked.entries()  # a sweep reads them before its first check if the plan has names of old versions
    clock.append(NOW)
    with pytest.raises(GuardRefused, match=NOTHING):
        asked.now()
    clock.append(TAKEN_AT)
    asked.now()
    clock.append(NOW)
    with pytest.raises(GuardRefused, match=r"Nothing more was deleted\."):
        asked.now()
    asked.release()


@pytest.mark.long
def test_an_object_is_live_while_a_branch_of_its_pair_keeps_it_although_the_pair_has_two_checksums(
    spark: SparkSession, tmp_path: Path
) -> None:
    name, versions, branches, policy = linked_again(NOW)
    project = build_repository(tmp_path, versions, branches, taken_at=TAKEN_AT)
    asked = liveness(project.repository(policy), tmp_path / "warehouse", spark)
    assert {row["address"] for row in asked.now().live.collect()} == {name, versions[1].objects["raw/p"]}
    asked.release()


def test_a_range_with_fewer_entries_than_its_metarange_counts_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = lakefs_repositories._write_objects

    def one_too_many(range_id: str, low: bytes, high: bytes, count: int, size: int) -> Range:
        return Range(range_id, low, high, count + 1, size)

    def miscounted(*given: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(lakefs_repositories, "Range", one_too_many)
            return write(*given)

    monkeypatch.setattr(lakefs_repositories, "_write_objects", miscounted)
    seen = rf"^{NAME}: ranges_complete: 1 range, \w+, does not have as many entries as the metarange says"
    with pytest.raises(GuardRefused, match=rf"{seen}\. {NOTHING} Take a new dump"):
        of_dump(built(tmp_path), spark).entries()


def test_a_liveness_check_that_loses_the_commit_of_a_branch_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_commits(*given: Any, **options: Any) -> Any:
        return commits_under(*given, **options).slice(0, 0)

    monkeypatch.setattr(liveness_module, "commits_under", without_commits)
    with pytest.raises(
        GuardRefused, match=rf"^{NAME}: heads_present: the commit of branch main was not read\. {NOTHING}"
    ):
        of_dump(built(tmp_path), spark).entries()


@pytest.fixture
def server() -> Iterator[FakeLakeFSServer]:
    with serving(saved("orchard")) as running:
        yield running


def of_server(server: FakeLakeFSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeFSLiveness:
    monkeypatch.setenv("LAKE_SECRET", SECRET_KEY)
    project, keys = orchard_on_disk(tmp_path), {"access_key": ACCESS_KEY, "secret_key": {"env": "LAKE_SECRET"}}
    project.write(source={"api": {"url": server.url, **keys}}, staged=None)
    return liveness(load_configuration(project.file).repository("orchard"), project.warehouse)


def test_an_unusable_list_of_a_server_needs_only_another_plan(
    server: FakeLakeFSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this machine was set back between the two requests."""
    monkeypatch.setattr(ApiSource, "staged", lambda _: StagedList((), NOW + HOUR))
    with pytest.raises(GuardRefused) as refused:
        of_server(server, tmp_path, monkeypatch).now()
    assert re.fullmatch(
        rf"orchard: the staged list .* is newer than the references .* are in neither\. {NOTHING} "
        r"Plan again: `retention plan orchard --as-of 2025-11-01`\.",
        str(refused.value),
    )


def test_a_repository_that_was_created_again_under_its_name_is_refused(
    server: FakeLakeFSServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = r"^orchard 2025-11-01: the repository is not the one .*: it was deleted and created again under its name"
    refused = rf"{seen}\. {NOTHING} Plan again: `retention plan orchard"
    plan, known = a_plan(instance="1"), of_server(server, tmp_path, monkeypatch)
    with pytest.raises(GuardRefused, match=refused):
        known.require_same(plan, NO_HEADS)
    created = server.repositories["orchard"].created
    known.require_same(a_plan(instance=str(created)), NO_HEADS)
    server.repositories["orchard"].created += 1
    with pytest.raises(GuardRefused, match=refused):
        known.now()
