"""Names of old lakeFS versions are the repository's own only where its entries have such names."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from retention_assets.lakefs.formats.ranges import BY_PREFIX_DEPRECATED, FULL, RELATIVE
from retention_assets.lakefs.names.legacy import KINDS, is_own_name, kinds_in_use
from retention_assets.lakefs.rules.references import UNKNOWN_TIME
from retention_assets.lakefs.source.ranges import RANGE_ENTRIES
from retention_assets.warehouse.warehouse import Warehouse
from tests.frames import OLD, Listed, Pair, address, of
from tests.sweep.small_world import UNREFERENCED, World

ROOT = "d41d8cd98f00b204e9800998ecf8427e"
LINKED = "data/orchard-main:0fd0f0a4-7b6d-4b0e-9a3e-1f2d3c4b5a69/mHdWMWSOf6mkzFvmPvO_X"
NEW = address(1)


@pytest.mark.parametrize(
    ("entries", "kinds"),
    [
        pytest.param([], set(), id="no_entry"),
        pytest.param([NEW, "s3://elsewhere/" + ROOT, "data/" + ROOT], set(), id="no_old_name"),
        pytest.param([NEW, ROOT], {"root"}, id="a_name_in_the_root"),
        pytest.param([LINKED], {"linked"}, id="a_name_of_the_link_era"),
        pytest.param([ROOT, LINKED, NEW], KINDS, id="both"),
    ],
)
@pytest.mark.parametrize("address_type", [RELATIVE, BY_PREFIX_DEPRECATED], ids=["relative", "without_a_type"])
def test_a_kind_of_legacy_names_is_in_use_if_any_entry_has_such_a_name(
    spark: SparkSession, entries: list[str], kinds: set[str], address_type: int
) -> None:
    assert kinds_in_use(entries_of(spark, *((entry, address_type) for entry in entries))) == kinds


def test_a_file_that_a_client_staged_by_its_full_address_makes_no_kind_of_legacy_names_its_own(
    spark: SparkSession,
) -> None:
    full = [(ROOT, FULL), (LINKED, FULL), (f"s3://lake/orchard/{ROOT}", FULL), (f"s3://lake/orchard/{LINKED}", FULL)]
    full.append((f"s3://lake/orchard/{ROOT}", BY_PREFIX_DEPRECATED))
    assert kinds_in_use(entries_of(spark, *full, (NEW, RELATIVE))) == set()
    assert kinds_in_use(entries_of(spark, *full, (LINKED, RELATIVE))) == {"linked"}


def entries_of(spark: SparkSession, *entries: tuple[str, int]) -> DataFrame:
    """Return entries as in the ranges. `entries`: address and address type."""
    rows = [{"address": name, "address_type": address_type} for name, address_type in entries]
    return spark.createDataFrame(pa.Table.from_pylist(rows, RANGE_ENTRIES)).select("address", "address_type")


@pytest.mark.parametrize(
    ("legacy", "own"),
    [
        pytest.param((), [True, False, False], id="none"),
        pytest.param(("root",), [True, True, False], id="the_root's"),
        pytest.param(("linked",), [True, False, True], id="the_link_era's"),
        pytest.param(KINDS, [True, True, True], id="both"),
    ],
)
def test_a_legacy_name_belongs_to_the_repository_only_if_its_kind_is_in_use(
    spark: SparkSession, legacy: tuple[str, ...], own: list[bool]
) -> None:
    names = [NEW, ROOT, LINKED, "README.md"]
    assert of(spark, names, pa.string(), lambda name: is_own_name(name, legacy)) == [*own, False]


OLD_SERVER = datetime(2021, 3, 1, tzinfo=UTC)
OF_ENTRIES = "0cc175b9c0f1b6a831c399e269772661"  # a name of the kind of ROOT
DUMP = timedelta(hours=1)
WORLD = World(commits=("1st",))
WITH_OLD_NAMES = replace(
    WORLD,
    inventory=[*WORLD.inventory, Listed(ROOT), Listed(OF_ENTRIES)],
    pairs=[*WORLD.pairs, Pair(OF_ENTRIES, "a/9", due_since=OLD, rule_ids=["retention:default"])],
    legacy_kinds=frozenset({"root"}),
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("oldest_dump", "committed_at", "is_deleted"),
    [
        pytest.param(DUMP, OLD_SERVER, False, id="a_dump_of_an_old_repository"),
        pytest.param(DUMP, UNKNOWN_TIME, False, id="a_dump_of_a_repository_whose_age_is_unknown"),
        pytest.param(DUMP, OLD, True, id="a_dump_of_a_new_repository"),
        pytest.param(None, OLD_SERVER, True, id="a_server_shows_the_staged_objects_of_its_branches"),
    ],
)
def test_what_an_old_server_staged_is_not_deleted_because_a_dump_does_not_show_it(
    spark: SparkSession, tmp_path: Path, oldest_dump: timedelta | None, committed_at: datetime, is_deleted: bool
) -> None:
    world = replace(WITH_OLD_NAMES, oldest_dump=oldest_dump, committed_at=committed_at)
    planned = world.plan(spark, Warehouse(str(tmp_path / "warehouse")))
    chosen = {row["address"] for row in planned.candidates.collect()}
    assert {UNREFERENCED, OF_ENTRIES} <= chosen  # a new name, and a name that a commit has
    assert (ROOT in chosen) == is_deleted
    assert planned.plan
    assert any("staged until April 2021" in warning for warning in planned.plan.warnings) != is_deleted
    assert ("may_be_staged" in planned.plan.totals) != is_deleted


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "legacy_names", "chosen", "named"),
    [
        pytest.param({"root"}, False, True, "(32 hexadecimal digits directly in the namespace)", id="in_use"),
        pytest.param({"root"}, True, True, None, id="a_person_says_that_all_are_its_own"),
        pytest.param(set(), False, False, None, id="not_in_use"),
        pytest.param(None, False, False, None, id="not_known_because_an_earlier_version_made_the_table"),
    ],
)
def test_a_plan_warns_that_files_with_legacy_names_count_as_its_own(
    spark: SparkSession, tmp_path: Path, kinds: set[str] | None, legacy_names: bool, chosen: bool, named: str | None
) -> None:
    known = None if kinds is None else frozenset(kinds)
    world = replace(WITH_OLD_NAMES, legacy_kinds=known, legacy_names=legacy_names)
    planned = world.plan(spark, Warehouse(str(tmp_path / "warehouse")))
    assert planned.plan
    assert {ROOT, OF_ENTRIES} <= {row["address"] for row in planned.candidates.collect()} or not chosen
    assert ("foreign" in planned.plan.totals and planned.plan.totals["foreign"].objects == 3) is not chosen
    warnings = [one for one in planned.plan.warnings if "old lakeFS versions" in one]
    assert len(warnings) == (1 if named else 0)
    assert all(named and named in one and one.endswith("this ends the warning.") for one in warnings)
