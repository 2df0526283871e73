"""Each guard refuses a plan that would delete too much, because of a wrong input or a fault of the classification."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.assets.lakefs import PLAN_GUARDS
from retention_assets.core import guards
from retention_assets.core.age import AgeCutoff
from retention_assets.core.amounts import Amount
from retention_assets.errors import GuardRefused
from retention_assets.lakefs.names.columns import is_generated, issued_at
from retention_assets.lakefs.rules.references import UNKNOWN_TIME, Commit, References
from retention_assets.lakefs.source.ranges import METARANGE_RANGES, RANGE_ENTRIES
from retention_assets.lakefs.sweep import planning
from retention_assets.lakefs.sweep.guards import heads_present, ranges_complete, require_no_old_names, require_own_names
from retention_assets.state.plan import keep_plan, last_plan, load_plan
from retention_assets.warehouse.warehouse import Warehouse
from tests import frames
from tests.frames import NOW, OLD, Listed
from tests.sweep import small_world
from tests.sweep.small_world import (
    ALSO_LIVE,
    DAY,
    DEAD,
    FOREIGN,
    LIVE,
    STAGED,
    UNREFERENCED,
    YOUNG,
    World,
    a_plan,
)

WORLD = World()
HORIZON = AgeCutoff(NOW, timedelta(hours=24), issued=issued_at)


@dataclass(frozen=True)
class Case:
    """A guard, and the input or the fault of the planner that only this guard refuses."""

    guard: str
    world: World = WORLD
    live_before: int = 5
    function: str = ""  # of the planner, whose result the fault changes
    fault: Callable[[DataFrame], DataFrame] | None = None


def taken_for_candidate(wrong: str, reason: str = "expired") -> Callable[[DataFrame], DataFrame]:
    """Return a fault that classifies `wrong` as a candidate."""

    def fault(classified: DataFrame) -> DataFrame:
        is_wrong = F.col("address") == wrong
        return classified.withColumns(
            {
                "state": F.when(is_wrong, "candidate").otherwise(F.col("state")),
                "reason": F.when(is_wrong, reason).otherwise(F.col("reason")),
            }
        )

    return fault


CASES = {
    "a live object is not in the listing": Case("live_listed", WORLD.without(LIVE)),
    "no commit was read, and nothing is staged": Case(
        "live_not_empty",
        replace(WORLD, pairs=[replace(pair, active=False, protected=False) for pair in WORLD.pairs], staged=()),
        live_before=0,
    ),
    "most live objects are no longer live": Case("live_not_shrunk", live_before=9),
    "a young object is a candidate": Case("nothing_young", function="classified", fault=taken_for_candidate(YOUNG)),
    "an object that may be staged is a candidate": Case(
        "nothing_unknown",
        replace(WORLD, staged=(), staged_known=False),
        function="classified",
        fault=taken_for_candidate(UNREFERENCED, "unreferenced"),
    ),
    "a foreign file is a candidate": Case(
        "only_generated_names", function="classified", fault=taken_for_candidate(FOREIGN)
    ),
    "a file with a legacy name that no entry has is a candidate": Case(
        "only_generated_names",
        replace(WORLD, inventory=[*WORLD.inventory, Listed("d41d8cd98f00b204e9800998ecf8427e")]),
        function="with_foreign_names",
        fault=taken_for_candidate("d41d8cd98f00b204e9800998ecf8427e", "unreferenced"),
    ),
    "an object of an active commit is a candidate": Case(
        "nothing_live", function="classified", fault=taken_for_candidate(LIVE)
    ),
    "a staged object is a candidate": Case("nothing_live", function="classified", fault=taken_for_candidate(STAGED)),
    "a candidate was stored at another time than the listed object": Case(
        "only_listed",
        function="candidates",
        fault=lambda chosen: chosen.withColumn("last_modified", F.col("last_modified") - F.expr("INTERVAL 1 SECOND")),
    ),
    "an object is classified twice": Case(
        "totals_balance",
        function="classified",
        fault=lambda classified: classified.unionByName(classified.where(F.col("address") == ALSO_LIVE)),
    ),
    "a candidate is lost on the way": Case(
        "totals_balance", function="candidates", fault=lambda chosen: chosen.where(F.col("address") != DEAD)
    ),
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path / "warehouse"))


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_if_one_guard_refuses_there_is_no_plan(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    if case.fault:
        right, fault = getattr(planning, case.function), case.fault
        monkeypatch.setattr(planning, case.function, lambda *given, **named: fault(right(*given, **named)))
    earlier = a_plan(live=case.live_before)
    keep_plan(warehouse, earlier)
    planned = case.world.plan(spark, warehouse)
    assert [check_result.guard for check_result in planned.check_results if not check_result.passed] == [case.guard]
    assert sorted(check_result.guard for check_result in planned.check_results) == sorted(PLAN_GUARDS)
    assert planned.plan is None
    assert planned.candidates.count() == 0
    with pytest.raises(GuardRefused, match=r"there is no current plan of 2026-11-01. Nothing was deleted"):
        load_plan(warehouse, "orchard", DAY)
    assert last_plan(warehouse, "orchard", DAY) == earlier  # history stays


def test_if_no_guard_refuses_the_plan_is_stored(spark: SparkSession, warehouse: Warehouse) -> None:
    keep_plan(warehouse, a_plan(live=5))
    planned = WORLD.plan(spark, warehouse)
    assert guards.refusals(planned.check_results) == []
    assert sorted(row["address"] for row in planned.candidates.collect()) == sorted(
        [DEAD, small_world.ALSO_DEAD, UNREFERENCED]
    )
    plan = load_plan(warehouse, "orchard", DAY)
    assert plan == planned.plan
    assert plan.totals == {
        "candidate": Amount(3, 30),
        "foreign": Amount(1, 10),
        "held": Amount(2, 20),
        "kept": Amount(2, 20),
        "young": Amount(1, 10),
    }
    assert (plan.live, plan.candidates) == (4, Amount(3, 30))


# ---- guards that check a single table


def references(branches: dict[str, str], tags: dict[str, str]) -> References:
    commits = {name: Commit(name, (), OLD, "") for name in {*branches.values(), *tags.values()}}
    return References(commits, branches, tags, NOW)


def rows_of(*commits: str) -> pa.Table:
    return pa.table({"commit_id": pa.array(commits, pa.string())})


@pytest.mark.parametrize(
    ("seen", "detail"),
    [
        pytest.param(references({"main": "a", "dev": "b"}, {}), "the commit of branch dev was not read", id="a_branch"),
        pytest.param(references({"main": "a"}, {"v1": "b"}), "the commit of tag v1 was not read", id="a_tag"),
        pytest.param(references({}, {"v1": "a"}), "there is no branch", id="no_branch"),
        pytest.param(references({}, {}), "there is no branch", id="nothing_at_all"),
    ],
)
def test_a_head_whose_commit_is_missing_from_the_table_of_commits_is_refused(seen: References, detail: str) -> None:
    check_result = heads_present(seen, rows_of("a"))
    assert not check_result.passed
    assert detail in check_result.detail


def test_heads_whose_commits_are_in_the_table_pass() -> None:
    assert heads_present(references({"main": "a", "v1": "b"}, {"v1": "b"}), rows_of("b", "a", "c")).passed


@pytest.mark.parametrize(
    ("entries", "passed"),
    [
        pytest.param({"r1": 2, "r2": 1}, True, id="whole"),
        pytest.param({"r1": 1, "r2": 1}, False, id="an_entry_short"),
        pytest.param({"r1": 2}, False, id="a_range_is_missing"),
        pytest.param({}, False, id="all_short"),
        pytest.param({"r1": 4, "r2": 1}, False, id="read_twice"),
        pytest.param({"r1": 2, "r2": 1, "r9": 7}, True, id="a_range_of_no_commit_does_not_matter"),
    ],
)
def test_a_range_must_have_the_entries_that_its_metarange_counts(
    spark: SparkSession, entries: dict[str, int], passed: bool
) -> None:
    counts = [("m1", "r1", 2), ("m2", "r1", 2), ("m2", "r2", 1)]
    of_commits = pa.Table.from_pylist(
        [{"metarange_id": meta, "range_id": one, "count": count} for meta, one, count in counts],
        schema=METARANGE_RANGES,
    )
    found = pa.Table.from_pylist(
        [{"range_id": one, "key": str(place)} for one, count in entries.items() for place in range(count)],
        schema=RANGE_ENTRIES,
    )
    held = spark.createDataFrame(pa.table({"range_id": ["r1", "r2"]}))
    check_result = ranges_complete(spark.createDataFrame(of_commits), spark.createDataFrame(found), held)
    assert check_result.passed is passed


def test_a_planned_name_of_a_kind_that_no_entry_has_is_refused_before_a_sweep(spark: SparkSession) -> None:
    foreign = "d41d8cd98f00b204e9800998ecf8427e"
    planned, plan = frames.inventory(spark, Listed(DEAD), Listed(foreign)), a_plan()
    remedy = rf"Nothing was deleted\. Plan again: `retention plan orchard --as-of {plan.day}`"

    def entries(address: str, address_type: int = 1) -> DataFrame:
        return spark.createDataFrame([(address, address_type)], "address string, address_type tinyint")

    def of_year(*years: int) -> References:
        commits = (Commit(f"c{year}", (), datetime(year, 1, 1, tzinfo=UTC), "") for year in years)
        return References({one.commit_id: one for one in commits}, {}, {}, NOW)

    refused = rf"^orchard {plan.day}: the plan names {foreign}\. .*{remedy}"
    with pytest.raises(GuardRefused, match=refused):
        require_own_names(plan, planned, of_year(2022), lambda: entries(LIVE))
    with pytest.raises(GuardRefused, match=refused):  # staged by its full address
        require_own_names(plan, planned, of_year(2022), lambda: entries(foreign, address_type=2))
    with pytest.raises(GuardRefused, match=refused):  # the same, by a server from before version 1.71
        require_own_names(plan, planned, of_year(2024, 2025), lambda: entries(foreign))
    require_own_names(plan, planned, of_year(2023, 2025), lambda: entries(foreign))
    require_own_names(plan, planned, of_year(UNKNOWN_TIME.year, 2025), lambda: entries(foreign))


def test_a_plan_that_names_an_unreferenced_object_with_an_old_name_is_refused_where_a_dump_may_not_show_it(
    spark: SparkSession,
) -> None:
    old, plan = "d41d8cd98f00b204e9800998ecf8427e", a_plan()

    def planned(**reasons: str) -> DataFrame:
        return spark.createDataFrame([(reasons["new"], DEAD), (reasons["old"], old)], "reason string, address string")

    require_no_old_names(plan, planned(new="unreferenced", old="expired"))
    with pytest.raises(GuardRefused, match=rf"^orchard {plan.day}: the plan names {old}, .*Nothing was deleted\. Plan"):
        require_no_old_names(plan, planned(new="expired", old="unreferenced"))


def test_a_prefix_that_has_objects_and_listed_none_is_refused() -> None:
    assert guards.listing_complete([]).passed
    check_result = guards.listing_complete(["data/a/", "data/b/"])
    assert not check_result.passed
    assert check_result.detail == "2 prefixes, data/a/ first, have objects that were not listed"


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        pytest.param(("s3://lake/meadow", "s3://lake/meadow"), True, id="beside"),
        pytest.param(("s3://lake/orchard2", "file:///srv/orchard2"), True, id="beside_with_the_same_beginning"),
        pytest.param(("s3://lake/orchard", "file:///elsewhere"), False, id="the_same_namespace"),
        pytest.param(("s3://lake/orchard/data/x", "file:///elsewhere"), False, id="inside_the_namespace"),
        pytest.param(("s3://lake", "file:///elsewhere"), False, id="around_the_namespace"),
        pytest.param(("s3://other", "file:///srv/orchard"), False, id="the_same_storage"),
        pytest.param(("s3://other", "file:///srv/orchard/x"), False, id="inside_the_storage"),
        pytest.param(("s3://other", "file:///srv"), False, id="around_the_storage"),
        pytest.param(("s3://other", "s3://lake/orchard"), False, id="its_storage_is_our_namespace"),
    ],
)
def test_no_other_repository_may_be_inside_or_around_this_one(other: tuple[str, str], apart: bool) -> None:
    places = {"orchard": ("s3://lake/orchard", "file:///srv/orchard"), "other": other}
    assert guards.namespaces_apart("orchard", places).passed is apart
    assert guards.namespaces_apart("other", places).passed is apart


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        pytest.param("s3://lake/a b", "s3://lake/a%20b", False, id="one_location_in_two_spellings"),
        pytest.param("s3://lake/a%20b/inner", "s3://lake/a b", False, id="inside_it"),
        pytest.param("s3://lake/a+b", "s3://lake/a b", True, id="a_plus_is_a_plus"),
        pytest.param("file:///srv/a b", "file:///srv/a%20b", True, id="paths_are_taken_literally"),
        pytest.param("local://a/b", "local:///a/b", False, id="a_local_namespace_with_three_slashes"),
        pytest.param("local://a/b", "local://a//x/../b/.", False, id="a_local_namespace_with_dots"),
        pytest.param("local://a", "local://x/../a/inner", False, id="inside_a_local_namespace"),
        pytest.param("local://a", "local://ab", True, id="a_local_namespace_with_the_same_beginning"),
        pytest.param("s3://lake/a?x", "s3://lake/a", False, id="the_server_ignores_a_query"),
        pytest.param("s3://lake/a/b", "s3://lake//a/./x/../b", False, id="a_path_that_some_stores_resolve"),
        pytest.param("s3://me@lake/a", "s3://lake/a/../b", False, id="a_path_that_some_stores_do_not_resolve"),
        pytest.param("s3://lake/a", "s3://lake/a/%2E%2E/b", False, id="a_path_that_some_clients_do_not_decode"),
        pytest.param("s3://lake/a/b", "s3:///lake/a/b", False, id="a_bucket_with_three_slashes"),
        pytest.param("s3://lake/a", "s3://user@lake/a/in", False, id="a_user_before_the_bucket"),
        pytest.param("s3://lake/a", "s3://lake/b@lake/a", True, id="an_at_sign_in_the_path"),
        pytest.param("gs://lake/a", "gs://user:word@lake/a", False, id="a_user_with_a_password"),
        pytest.param("az://c/a", "abfss://c@acc.dfs.core.windows.net/a/in", False, id="a_container_in_two_schemes"),
        pytest.param(
            "http://acc.blob.core.windows.net/c/a", "https://acc.blob.core.windows.net/c/a/in", False, id="with_http"
        ),
        pytest.param("azure://c/a", "https://acc.blob.core.windows.net/c/a", False, id="a_container_by_its_host"),
        pytest.param("abfss://c@acc.dfs.core.windows.net/a", "https://ACC.blob.core.windows.net/c", False, id="hosts"),
        pytest.param(
            "abfs://c@one.dfs.core.windows.net/a", "https://two.blob.core.windows.net/c/a", True, id="accounts"
        ),
        pytest.param("az://c", "abfss://c2@acc.dfs.core.windows.net/a", True, id="another_container"),
    ],
)
def test_locations_are_compared_in_the_form_in_which_they_are_opened(one: str, other: str, apart: bool) -> None:
    places = {"orchard": ("s3://elsewhere", one), "other": ("s3://another", other)}
    assert guards.namespaces_apart("orchard", places).passed is apart


# ---- the limits of each guard


def unlisted(spark: SparkSession, live: DataFrame, *collected: str) -> tuple[guards.CheckResult, int]:
    removed = spark.createDataFrame(pa.table({"address": pa.array(collected, pa.string())}))
    inventory = frames.inventory(spark, Listed(LIVE))
    found = guards.live_listed(guards.unlisted_live(live, inventory, HORIZON), inventory, removed)
    return found.check_result, found.collected


def live(spark: SparkSession, name: str, instant: datetime | None) -> DataFrame:
    return spark.createDataFrame(
        pa.table({"address": [name], "last_modified": pa.array([instant], pa.timestamp("us", tz="UTC"))})
    )


HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "instant", "passed"),
    [
        pytest.param(LIVE, OLD, True, id="listed"),
        pytest.param(ALSO_LIVE, OLD, False, id="issued_long_ago"),
        pytest.param(ALSO_LIVE, NOW, False, id="issued_long_ago_and_committed_since"),
        pytest.param(YOUNG, OLD, True, id="issued_after_the_listing_may_have_passed"),
        pytest.param(HEX, NOW, True, id="an_old_name_stored_lately"),
        pytest.param(HEX, OLD, False, id="an_old_name_stored_long_ago"),
        pytest.param(HEX, None, False, id="an_old_name_of_unknown_age"),
    ],
)
def test_a_live_address_must_be_listed_unless_it_may_have_come_after_the_listing(
    spark: SparkSession, name: str, instant: datetime | None, passed: bool
) -> None:
    check_result, collected = unlisted(spark, live(spark, name, instant))
    assert (check_result.passed, collected) == (passed, 0)


def test_a_live_address_that_we_collected_is_counted_and_not_reported_as_missing(spark: SparkSession) -> None:
    both = live(spark, ALSO_LIVE, OLD).unionByName(live(spark, DEAD, OLD))
    check_result, collected = unlisted(spark, both, ALSO_LIVE)
    assert (check_result.passed, collected) == (False, 1)
    assert DEAD in check_result.detail
    check_result, collected = unlisted(spark, both, ALSO_LIVE, DEAD)
    assert (check_result.passed, collected) == (True, 2)


def test_a_live_address_that_is_acknowledged_as_lost_is_counted_and_a_new_one_refuses(spark: SparkSession) -> None:
    both = live(spark, ALSO_LIVE, OLD).unionByName(live(spark, DEAD, OLD))
    none = spark.createDataFrame(pa.table({"address": pa.array([], pa.string())}))
    inventory = frames.inventory(spark, Listed(LIVE))
    for acknowledged, missing in (([ALSO_LIVE], [DEAD]), ([ALSO_LIVE, DEAD], [])):
        known = spark.createDataFrame(pa.table({"address": pa.array(acknowledged, pa.string())}))
        found = guards.live_listed(guards.unlisted_live(both, inventory, HORIZON), inventory, none, known)
        assert (found.check_result.passed, found.lost) == (not missing, len(acknowledged))
        assert [row["address"] for row in found.missing.collect()] == missing


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        pytest.param(["data/x/1", "data/y/1", "data/z/1"], "No directory is missing completely", id="scattered"),
        pytest.param(
            ["data/x/1", "data/x/2"],
            "No directory is missing completely",
            id="other_objects_of_the_directory_are_listed",
        ),
        pytest.param(
            ["data/y/1", "data/y/2", "data/z/1", "a"],
            "2 of them are in 1 directory that is missing completely, data/y/",
            id="a_complete_directory",
        ),
    ],
)
def test_a_completely_missing_directory_is_distinguished_from_single_objects(
    spark: SparkSession, missing: list[str], words: str
) -> None:
    frame = spark.createDataFrame(pa.table({"address": pa.array(missing, pa.string())}))
    assert words in guards.describe_missing(frame, frames.inventory(spark, Listed("data/x/9"), Listed("top")))


@pytest.mark.parametrize(("live_now", "listed", "passed"), [(0, 0, True), (0, 1, False), (1, 0, True), (1, 1, True)])
def test_if_objects_are_listed_some_must_be_live(live_now: int, listed: int, passed: bool) -> None:
    assert guards.live_not_empty(live_now, listed).passed is passed


@pytest.mark.parametrize(
    ("live_now", "before", "most", "passed"),
    [
        pytest.param(50, 100, 0.5, True, id="the_most_allowed_itself"),
        pytest.param(49, 100, 0.5, False, id="one_less"),
        pytest.param(200, 100, 0.0, True, id="growth_is_no_loss"),
        pytest.param(99, 100, 0.0, False, id="no_shrinking_allowed"),
        pytest.param(0, 100, 1.0, True, id="everything_may_go"),
        pytest.param(0, None, 0.0, True, id="there_was_no_plan"),
        pytest.param(0, 0, 0.0, True, id="there_was_nothing_live"),
    ],
)
def test_the_live_set_may_shrink_by_a_limited_share_between_plans(
    live_now: int, before: int | None, most: float, passed: bool
) -> None:
    assert guards.live_not_shrunk(live_now, before, most).passed is passed


def test_an_earlier_plan_without_live_addresses_is_an_earlier_plan() -> None:
    assert guards.live_not_shrunk(5, None, 0.5).detail == "5 live addresses; there is no earlier plan"
    detail = "5 live addresses, 0 in the last plan: 0% fewer; at most 50% is allowed"
    assert guards.live_not_shrunk(5, 0, 0.5).detail == detail


@pytest.mark.parametrize(
    ("live_now", "before", "most", "shares"),
    [
        pytest.param(996, 1_000, 0.003, "0.4% fewer; at most 0.3% is allowed", id="less_than_one_percent"),
        pytest.param(746, 1_000, 0.25, "25.4% fewer; at most 25% is allowed", id="a_fraction_of_a_percent_too_many"),
        pytest.param(7_499_900, 10**7, 0.25, "25.001% fewer; at most 25% is allowed", id="a_thousandth_too_many"),
        pytest.param(9_999_999, 10**7, 0.0, "0.00001% fewer; at most 0% is allowed", id="one_of_many"),
    ],
)
def test_the_message_about_a_shrunk_live_set_shows_why_the_share_is_refused(
    live_now: int, before: int, most: float, shares: str
) -> None:
    refused = guards.live_not_shrunk(live_now, before, most)
    assert not refused.passed
    assert refused.detail == f"{live_now:,} live addresses, {before:,} in the last plan: {shares}"


@pytest.mark.long
def test_an_object_that_is_listed_twice_is_refused(spark: SparkSession, warehouse: Warehouse) -> None:
    """Two rows of one address would delete it once and count it twice."""
    twice = replace(WORLD, inventory=[*WORLD.inventory, Listed(DEAD)])
    planned = twice.plan(spark, warehouse)
    assert [check_result.guard for check_result in planned.check_results if not check_result.passed] == ["only_listed"]


def test_a_candidate_of_unknown_age_is_young_to_the_guard(spark: SparkSession) -> None:
    chosen = frames.candidates(spark, frames.Candidate(DEAD)).withColumn("last_modified", F.lit(None).cast("timestamp"))
    inventory, none_live = (
        frames.inventory(spark, Listed(DEAD)),
        live(spark, LIVE, OLD).withColumn("certain", F.lit(True)),
    )
    found = guards.tally(
        chosen, none_live, inventory, HORIZON, listing_cutoff=HORIZON, staged_known=True, generated=is_generated
    )
    check_results = guards.check_candidates(found.first().asDict())
    assert "nothing_young" in {check_result.guard for check_result in guards.refusals(check_results)}


def test_a_candidate_without_an_address_is_refused_even_if_a_row_without_one_is_listed(spark: SparkSession) -> None:
    nameless = {"address": F.lit(None).cast("string")}
    chosen = frames.candidates(spark, frames.Candidate(DEAD)).withColumns(nameless)
    inventory = frames.inventory(spark, Listed(DEAD)).withColumns(nameless)
    none_live = live(spark, LIVE, OLD).withColumn("certain", F.lit(True))
    found = guards.tally(
        chosen, none_live, inventory, HORIZON, listing_cutoff=HORIZON, staged_known=True, generated=is_generated
    )
    refused = {one.guard for one in guards.refusals(guards.check_candidates(found.first().asDict()))}
    assert refused >= {"only_generated_names", "only_listed"}
