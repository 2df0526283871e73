"""Dagster runs of the saved repositories find the candidates of brute force, also when they are repeated."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.assets.lakefs import PLAN_GUARDS
from retention_assets.tables import TABLES
from tests.assets.conftest import Lakes, TwicePlanned
from tests.assets.lake import FOREIGN, PLANNING_ASSETS, Lake, require_documented_tables
from tests.end_to_end.command import MADE_BY_A_PLAN
from tests.saved_repositories import REPOSITORIES, active_commits, expected_of_plan, listing

of_each_repository = pytest.mark.parametrize(
    "name", [name if name == "orchard" else pytest.param(name, marks=pytest.mark.slow) for name in REPOSITORIES]
)
EXPECTED = {"ignore": "retention.csv", "protect": "retention_tags_protect.csv"}


def rows(name: str, tags: str, kind: str) -> set[tuple[str, int]]:
    return {(row.address, row.size) for row in expected_of_plan(name, EXPECTED[tags]) if row.kind == kind}


@pytest.mark.parametrize("tags", ["ignore", pytest.param("protect", marks=pytest.mark.slow)])
@of_each_repository
class TestEveryRepository:
    @pytest.mark.long
    def test_every_guard_passes_and_the_plan_is_not_blocked(self, lakes: Lakes, name: str, tags: str) -> None:
        planned = lakes[name].planned(tags)
        assert planned.run.success, planned.run.errors
        early = {"heads_present", "ranges_complete", "listing_complete", "namespaces_apart", "clock_agrees"}
        asked = early | set(PLAN_GUARDS) if tags == "ignore" else {"ranges_complete", *PLAN_GUARDS}
        assert planned.run.checks.items() >= dict.fromkeys(asked, True).items()
        assert planned.plan is not None
        assert planned.plan["blocked"] is None

    def test_the_active_commits_are_those_of_the_order_independent_rule(
        self, lakes: Lakes, name: str, tags: str
    ) -> None:
        assert lakes[name].planned(tags).active == active_commits(name)

    def test_the_expired_candidates_are_exactly_the_expected_ones(self, lakes: Lakes, name: str, tags: str) -> None:
        found = lakes[name].planned(tags).by_reason["expired"]
        assert found == rows(name, tags, "committed")

    def test_the_unreferenced_candidates_are_exactly_the_expected_ones(
        self, lakes: Lakes, name: str, tags: str
    ) -> None:
        assert lakes[name].planned(tags).by_reason["unreferenced"] == rows(name, tags, "uncommitted")

    def test_foreign_files_are_counted_and_are_never_candidates(self, lakes: Lakes, name: str, tags: str) -> None:
        planned = lakes[name].planned(tags)
        assert not {address for found in planned.by_reason.values() for address, _ in found} & set(FOREIGN)
        assert planned.plan is not None
        totals = planned.plan["totals"]
        assert totals["foreign"] == {"objects": len(FOREIGN), "bytes": len(FOREIGN) * len(b"theirs")}  # type: ignore[index]

    def test_the_totals_of_the_plan_equal_the_objects_in_the_store(self, lakes: Lakes, name: str, tags: str) -> None:
        planned = lakes[name].planned(tags)
        assert planned.plan is not None
        listed = [entry for entry in listing(name) if not entry.address.startswith("_lakefs/")]
        totals = planned.plan["totals"].values()  # type: ignore[attr-defined]
        assert sum(amount["objects"] for amount in totals) == len(listed) + len(FOREIGN)
        assert sum(amount["bytes"] for amount in totals) == sum(entry.size for entry in listed) + 6 * len(FOREIGN)


@of_each_repository
def test_protected_tags_keep_more_objects_and_other_candidates_change_the_plan_hash(lakes: Lakes, name: str) -> None:
    ignored, protected = lakes[name].tags_ignored, lakes[name].tags_protected
    assert protected.by_reason["expired"] <= ignored.by_reason["expired"]
    assert protected.plan is not None
    assert ignored.plan is not None
    same = protected.by_reason == ignored.by_reason
    assert same is (name == "meadow")  # whose tags are all on active commits
    assert (protected.plan["plan_hash"] == ignored.plan["plan_hash"]) is same


@of_each_repository
def test_each_range_and_metarange_is_read_only_once(lakes: Lakes, name: str) -> None:
    first, second = lakes[name].tags_ignored.run.numbers, lakes[name].tags_protected.run.numbers
    assert first["addresses"]["ranges_read"] == first["active_ranges"]["dagster/row_count"] > 0
    assert first["addresses"]["range_bytes"] > 0
    assert first["active_ranges"]["metaranges_read"] > 0
    assert second["addresses"]["ranges_read"] == second["addresses"]["range_bytes"] == 0
    assert second["active_ranges"]["metaranges_read"] == second["active_ranges"]["metarange_bytes"] == 0
    assert second["addresses"]["dagster/row_count"] == first["addresses"]["dagster/row_count"]


def test_every_table_documents_the_meaning_and_the_source_of_its_columns(orchard: TwicePlanned) -> None:
    run = orchard.tags_ignored.run
    assert set(MADE_BY_A_PLAN) <= run.numbers.keys()
    require_documented_tables(run)


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_every_table_is_written_with_the_schema_of_its_contract(
    orchard: TwicePlanned, spark: SparkSession, table: str
) -> None:
    where = orchard.lake.root / "warehouse" / "orchard" / table / "2026-11-01"
    written = spark.read.parquet(str(where)).schema
    contract = from_arrow_schema(TABLES[table].schema)
    assert [(field.name, field.dataType.simpleString()) for field in written] == [
        (field.name, field.dataType.simpleString()) for field in contract
    ]


@pytest.mark.parametrize("table", MADE_BY_A_PLAN)
def test_the_key_of_a_table_is_unique_and_required_columns_have_no_nulls(orchard: TwicePlanned, table: str) -> None:
    found = orchard.lake.table(table)
    keys = found.select(list(TABLES[table].key))
    assert keys.group_by(keys.column_names).aggregate([]).num_rows == found.num_rows
    for column in TABLES[table].schema:
        assert column.nullable or found[column.name].null_count == 0, column.name


# ---- one asset at a time


@pytest.fixture(scope="module")
def again(orchard: TwicePlanned, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A copy of the lake whose assets were materialized again one by one."""
    lake = orchard.lake.copy(tmp_path_factory.mktemp("again"))
    for asset in PLANNING_ASSETS:
        run = lake.make(asset)
        assert run.success, run.errors
        assert run.steps == (asset,)
    return lake


@pytest.mark.slow
def test_assets_that_are_materialized_again_one_by_one_make_the_same_plan(orchard: TwicePlanned, again: Lake) -> None:
    plan = again.plan_document()
    assert plan is not None
    assert orchard.tags_protected.plan is not None
    assert plan["plan_hash"] == orchard.tags_protected.plan["plan_hash"]
    assert plan["run_id"] != orchard.tags_protected.plan["run_id"]


@pytest.mark.slow
def test_a_batch_with_an_incomplete_list_of_ids_is_read_again(again: Lake) -> None:
    before = again.table("addresses").num_rows
    ids = again.root / "warehouse" / "orchard" / "range_entries.v2_ids"
    for batch in ids.iterdir():
        (batch / "_SUCCESS").unlink()
    run = again.make("addresses")
    assert run.success, run.errors
    assert run.numbers["addresses"]["ranges_read"] == again.table("active_ranges").num_rows
    assert again.table("addresses").num_rows == before
    assert again.make("addresses").numbers["addresses"]["ranges_read"] == 0


def test_the_error_for_an_incomplete_partition_names_the_command_that_makes_it(
    orchard: TwicePlanned, tmp_path: Path
) -> None:
    lake = orchard.lake.copy(tmp_path)
    (tmp_path / "warehouse/orchard/active_ranges/2026-11-01/_SUCCESS").unlink()
    run = lake.make("addresses")
    assert not run.success
    assert "active_ranges of 2026-11-01 is missing, or was not written completely" in run.errors
    assert "retention plan orchard --as-of 2026-11-01" in run.errors


def test_a_partition_without_its_metadata_is_not_used(orchard: TwicePlanned, tmp_path: Path) -> None:
    lake = orchard.lake.copy(tmp_path)
    (tmp_path / "warehouse/orchard/active_ranges/2026-11-01/_facts.json").unlink()
    run = lake.make("addresses")
    assert not run.success
    assert "active_ranges of 2026-11-01 has no metadata: its run was interrupted" in run.errors
