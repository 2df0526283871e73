"""References of other repositories are read from their tables, and never from a table that has lost rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from retention_assets.config.configuration import load_configuration
from retention_assets.core.liveness import Liveness
from retention_assets.errors import GuardRefused, TableContractError
from retention_assets.lakefs.source.opening import policy_of_files
from retention_assets.repositories.other_repositories import OtherRepositories, not_configured
from retention_assets.tables import ADDRESSES, UNCOMMITTED_OBJECTS
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.table_writer import conform
from retention_assets.warehouse.warehouse import Warehouse
from tests import frames
from tests.frames import NOW, Pair, address

DAY = NOW.date()


def test_a_user_who_may_not_list_repositories_gets_a_warning_that_the_others_are_unknown() -> None:
    class Source:
        def other_repositories(self) -> None:
            """Return None: the user is not allowed to list repositories."""

    warning = not_configured(cast("Any", Source()), [])
    assert warning is not None
    assert "the user may not list repositories. To know it, grant fs:ListRepositories" in warning


@pytest.mark.parametrize(
    ("source", "names"),
    [
        pytest.param({"api": {"repository": "orchard-2"}}, "orchard-1", id="its_name_on_the_server"),
        pytest.param({"api": {}}, "orchard-1, orchard-2", id="its_name_in_the_file"),
        pytest.param({"dump": "dump.json"}, None, id="a_dump_has_no_name"),
    ],
)
def test_a_repository_with_the_namespace_of_a_configured_one_is_named_unless_it_is_that_one(
    tmp_path: Path, source: dict[str, Any], names: str | None
) -> None:
    class Source:
        def other_repositories(self) -> dict[str, str]:
            return {"orchard-1": "s3://lake/orchard", "orchard-2": "s3://lake/orchard"}

    keys = {"url": "http://lakefs", "access_key": "key", "secret_key": {"env": "SECRET"}}
    source = {"api": {**keys, **source["api"]}} if "api" in source else source
    entry = {"kind": "lakefs", "namespace": "s3://lake/orchard", "source": source, "policy": "policy.json"}
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": {"orchard": entry}}), encoding="utf-8")
    warning = not_configured(cast("Any", Source()), load_configuration(file).repositories.values())
    assert (warning and warning.partition(" not configured: ")[2].partition(".")[0]) == names


HERE = tuple(f"s3://lake/here/{address(number)}" for number in range(8))  # the addresses that `there` refers to


@pytest.fixture
def others(spark: SparkSession, tmp_path: Path) -> OtherRepositories:
    """A repository `here`, and another, `there`, whose last plan found references to objects of `here`."""
    rules = {"default_retention_days": 30, "branches": []}
    (tmp_path / "policy.json").write_text(json.dumps(rules), encoding="utf-8")
    entries = {
        name: {"kind": "lakefs", "namespace": f"s3://lake/{name}", "source": {"dump": "d"}, "policy": "policy.json"}
        for name in ("here", "there")
    }
    file = tmp_path / "retention.yaml"
    file.write_text(yaml.safe_dump({"warehouse": "warehouse", "repositories": entries}), encoding="utf-8")
    configuration = load_configuration(file)
    warehouse = Warehouse(configuration.warehouse)
    pairs = frames.addresses(spark, *(Pair(name, f"a/{number}", active=True) for number, name in enumerate(HERE)))
    target = warehouse.partition("there", ADDRESSES.name, DAY)
    conform(pairs, ADDRESSES).repartition(2).write.mode("overwrite").parquet(target)
    details = Details(policy_hash="f" * 64, references_hash="e" * 64)
    warehouse.write_metadata("there", ADDRESSES.name, DAY, PartitionMetadata(NOW, len(HERE), "a-run", details))
    conform(frames.staged(spark), UNCOMMITTED_OBJECTS).write.parquet(
        warehouse.partition("there", UNCOMMITTED_OBJECTS.name, DAY)
    )
    warehouse.write_metadata("there", UNCOMMITTED_OBJECTS.name, DAY, PartitionMetadata(NOW, 0, "a-run"))
    here, there = configuration.repositories.values()
    return OtherRepositories(spark, warehouse, here, [there], "a-run", lambda: NOW)


def test_references_in_a_table_of_an_older_version_count(others: OtherRepositories, tmp_path: Path) -> None:
    """Without this, after an upgrade, no repository could be planned before all others were planned."""
    policy_hash = policy_of_files(others.others[0]).policy_hash
    details = Details(policy_hash=policy_hash, references_hash="e" * 64)
    target = Path(others.warehouse.partition("there", ADDRESSES.name, DAY))
    rows = pq.read_table(target).drop_columns(["at_head", "left_branches", "etag"])
    for part in target.glob("*.parquet"):
        part.unlink()
    pq.write_table(rows, target / "part.parquet")
    metadata = PartitionMetadata(NOW, rows.num_rows, "a-run", details)
    others.warehouse.write_metadata("there", ADDRESSES.name, DAY, metadata)
    parts = others.last_parts()
    assert parts is not None
    assert parts.distinct().count() == len(HERE)


def test_the_references_of_another_repository_are_those_of_its_last_plan(others: OtherRepositories) -> None:
    parts = others.last_parts()
    assert parts is not None
    assert parts.distinct().count() == len(HERE)


def test_a_plan_requires_that_no_other_run_replaced_the_references_that_it_reads(others: OtherRepositories) -> None:
    found = others.for_plan()
    found.require_unchanged()
    file = next(Path(others.warehouse.partition("there", ADDRESSES.name, DAY)).glob("*.parquet"))
    file.rename(file.with_name("part-of-another-run.parquet"))
    with pytest.raises(TableContractError, match="was written or removed by another run while it was read"):
        found.require_unchanged()


def test_cached_references_of_other_repositories_are_released(spark: SparkSession, others: OtherRepositories) -> None:
    objects = spark.createDataFrame(pa.table({"address": [address(0), address(9)]}))
    nothing = objects.limit(0)
    before = frames.cached(spark)
    live = others.extended(Liveness(nothing, nothing, NOW), objects).live
    assert [row["address"] for row in live.collect()] == [address(0)]
    assert frames.cached(spark) - before
    others.release()
    assert frames.cached(spark) <= before


@pytest.mark.parametrize("outside", [None, 0])
def test_a_table_with_files_of_another_run_is_not_used(others: OtherRepositories, outside: int | None) -> None:
    """Its metadata may say that there is no reference to other repositories, and the rows have some."""
    warehouse, parts = others.warehouse, ("there", ADDRESSES.name, DAY.isoformat())
    metadata = warehouse.metadata("there", ADDRESSES.name, DAY)
    details, files = replace(metadata.details, outside=outside), warehouse.files_digest(*parts)
    warehouse.write_metadata("there", ADDRESSES.name, DAY, replace(metadata, details=details, files=files))
    (reason,) = others.unknown()
    assert reason.startswith("The policy of there is not the one of its last plan")
    file = next(Path(warehouse.location(*parts)).glob("*.parquet"))
    file.rename(file.with_name("part-of-another-run.parquet"))
    assert others.unknown() == ["there has no complete plan yet. Make one: `retention plan there`."]
    with pytest.raises(GuardRefused, match="another repository may refer to objects that would be deleted"):
        others.require_known()


@pytest.mark.parametrize("outside", [None, 0])
def test_references_of_another_repository_are_not_read_from_a_table_that_has_lost_rows(
    others: OtherRepositories, outside: int | None
) -> None:
    metadata = others.warehouse.metadata("there", ADDRESSES.name, DAY)
    details = replace(metadata.details, outside=outside)
    others.warehouse.write_metadata("there", ADDRESSES.name, DAY, replace(metadata, details=details))
    parts = Path(others.warehouse.partition("there", ADDRESSES.name, DAY)).glob("*.parquet")
    next(part for part in parts if pq.read_metadata(part).num_rows).unlink()
    with pytest.raises(TableContractError, match=r"/there/addresses/\S+: has .* and 8 were written"):
        others.last_parts()
