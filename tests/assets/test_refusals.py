"""Refused planning runs: the step fails, no later step runs, and the day has no current plan, not even an old one."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import Column, DataFrame

from retention_assets.assets import lakefs as snapshots
from retention_assets.core.other_references import OtherReferences
from retention_assets.core.remedies import REMEDIES
from retention_assets.errors import ConfigurationError, StoreError, TableContractError
from retention_assets.lakefs.source.dump import DumpSource
from retention_assets.lakefs.source.inventory_snapshot import InventoryContext, InventorySnapshot, take_snapshot
from retention_assets.lakefs.source.opening import open_repository
from retention_assets.lakefs.sweep import planning
from retention_assets.policy.documents import from_server
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state import storing
from retention_assets.warehouse import table_writer
from retention_assets.warehouse.cache_batches import MANIFEST
from retention_assets.warehouse.warehouse import METADATA, Rows, Warehouse, Written
from tests.assets.conftest import AFTER_TAGS, TwicePlanned
from tests.assets.lake import DAY, NOW, PLANNING_ASSETS, SLICE, Lake, Run

BEFORE_CANDIDATES = set(PLANNING_ASSETS[:-1])


@pytest.fixture
def lake(orchard: TwicePlanned, tmp_path: Path) -> Lake:
    """A copy of orchard with the plan of its last run."""
    copied = orchard.lake.copy(tmp_path)
    assert copied.plan_document() is not None
    return copied


def refusing(run: Run) -> list[str]:
    assert not run.success
    return [guard for guard, passed in run.checks.items() if not passed]


@pytest.mark.long
def test_a_live_object_that_is_not_listed_ends_the_run_without_candidates(lake: Lake) -> None:
    held = lake.table("addresses", ["address", "active"]).to_pylist()
    live = next(row["address"] for row in held if row["active"] and row["address"].startswith("data/"))
    (lake.namespace / live).unlink()
    run = lake.plan()
    assert refusing(run) == ["live_listed"]
    assert run.failure.startswith("orchard_plan: a guard refused. Nothing was deleted, and there is no plan.")
    assert f"live_listed: 1 live address, {live}, is not in the listing" in run.failure
    assert run.failure.endswith(REMEDIES["live_listed"])
    assert set(run.steps) == set(PLANNING_ASSETS)
    assert lake.candidates() == set()
    assert lake.plan_document() is None
    report = lake.make("deletion_report")
    assert "there is no current plan of 2026-11-01. Nothing was deleted" in report.errors
    assert report.steps == ()


@pytest.mark.parametrize(
    ("asset", "step"),
    [
        ("uncommitted_objects", "retention_assets.assets.lakefs.staged_objects"),
        ("deletion_proof", "retention_assets.lakefs.sweep.verification.commits_now"),
    ],
)
def test_a_step_that_fails_releases_its_staged_list(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, asset: str, step: str
) -> None:
    released = []

    def fail(*_: object, **__: object) -> None:
        raise StoreError("the store fails. Nothing was deleted. Run again.")

    monkeypatch.setattr(DumpSource, "release", lambda _, staged: released.append(staged))
    monkeypatch.setattr(step, fail)
    run = lake.make(asset)
    assert "the store fails" in run.errors
    (staged,) = released
    assert staged.files


def test_an_incomplete_listing_ends_the_run_before_objects_are_classified(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_a_slice(context: InventoryContext) -> InventorySnapshot:
        whole = take_snapshot(context)
        frame = whole.frame.where(~whole.frame["address"].startswith(f"data/{SLICE}/"))
        return InventorySnapshot(frame, whole.taken_at, whole.prefixes, whole.listed, whole.details)

    monkeypatch.setattr(snapshots, "take_snapshot", without_a_slice)
    run = lake.plan()
    assert refusing(run) == ["listing_complete"]
    assert set(run.steps) == {"policy_table", "current_rules", "storage_inventory"}
    assert lake.plan_document() is None
    alone = lake.make("deletion_candidates")
    assert not alone.success
    assert "storage_inventory of 2026-11-01 was refused by listing_complete. Nothing was deleted" in alone.errors
    assert lake.plan_document() is None


def rewrite(lake: Lake, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Replace the rows in each file of a cached table, as a fault of its storage would."""
    for part in (lake.root / "warehouse/orchard" / table).rglob("*.parquet"):
        rows = pq.ParquetFile(part).read()
        if rows.num_rows:
            pq.write_table(change(rows), part)
            part.with_name(f".{part.name}.crc").unlink(missing_ok=True)


@pytest.mark.long
def test_a_lost_cached_row_that_the_cache_does_not_detect_ends_the_run(lake: Lake) -> None:
    rewrite(lake, "range_entries.v2", lambda rows: rows.slice(1))
    left = Counter(
        range_id
        for part in (lake.root / "warehouse/orchard/range_entries.v2").rglob("*.parquet")
        for range_id in pq.ParquetFile(part).read()["range_id"].to_pylist()
    )
    rewrite(
        lake,
        "range_entries.v2_ids",
        lambda ids: ids.set_column(
            ids.schema.get_field_index("rows"), "rows", pa.array([left[one] for one in ids["range_id"].to_pylist()])
        ),
    )
    for manifest in (lake.root / "warehouse/orchard/range_entries.v2_ids").rglob(MANIFEST):
        manifest.unlink()  # as of a batch of an earlier version
    run = lake.plan()
    assert refusing(run) == ["ranges_complete"]
    assert set(run.steps) == BEFORE_CANDIDATES
    assert lake.plan_document() is None
    alone = lake.make("deletion_candidates")
    assert "addresses of 2026-11-01 was refused by ranges_complete. Nothing was deleted" in alone.errors


def test_the_range_of_a_lost_cached_row_is_read_again(orchard: TwicePlanned, lake: Lake) -> None:
    rewrite(lake, "range_entries.v2", lambda rows: rows.slice(1))
    run = lake.make("active_ranges", "addresses")
    assert run.success, run.errors
    assert run.numbers["addresses"]["ranges_read"] > 0
    assert run.numbers["addresses"]["dagster/row_count"] == orchard.lake.table("addresses").num_rows


def test_lost_files_of_the_cache_are_read_again(orchard: TwicePlanned, lake: Lake) -> None:
    """Without the rows of a metarange, no check would notice its missing ranges. Their objects would be uncommitted."""
    for table in ("metarange_ranges", "range_entries.v2"):
        for part in (lake.root / "warehouse/orchard" / table).rglob("*.parquet"):
            part.unlink()
            part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
    run = lake.make("active_ranges", "addresses")
    assert run.success, run.errors
    assert run.numbers["active_ranges"]["dagster/row_count"] == orchard.lake.table("active_ranges").num_rows
    assert run.numbers["addresses"]["dagster/row_count"] == orchard.lake.table("addresses").num_rows


def part_of(lake: Lake, table: str) -> Path:
    """Return a file of the day's partition that has rows."""
    parts = (lake.root / "warehouse/orchard" / table / DAY).glob("*.parquet")
    return next(part for part in parts if pq.read_metadata(part).num_rows)


def test_a_table_with_missing_rows_is_refused(lake: Lake) -> None:
    """This happens if each machine of a cluster writes to its own disk."""
    written = lake.table("addresses").num_rows
    part_of(lake, "addresses").unlink()
    left = lake.table("addresses").num_rows
    run = lake.make("deletion_candidates")
    assert not run.success
    assert f"addresses/2026-11-01: has {left:,} rows, " in run.errors
    assert f"and {written:,} were written. Nothing was deleted" in run.errors


def test_a_table_of_an_older_version_with_missing_columns_is_refused_with_the_remedy(lake: Lake) -> None:
    """Only the candidates are materialized again, from addresses that an earlier version wrote."""
    for part in (lake.root / "warehouse/orchard/addresses" / DAY).glob("*.parquet"):
        pq.write_table(pq.read_table(part).drop_columns(["at_head", "left_branches"]), part)
    run = lake.make("deletion_candidates")
    assert not run.success
    assert "orchard: addresses of 2026-11-01 is missing the columns at_head, left_branches" in run.errors
    assert "`retention plan orchard --as-of 2026-11-01`" in run.errors


def test_a_table_with_a_part_that_cannot_be_read_back_is_not_complete(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = table_writer.write_counted

    def partly(frame: DataFrame, warehouse: Warehouse, *parts: str, observe: Sequence[Column]) -> Written:
        written = write(frame, warehouse, *parts, observe=observe)
        part_of(lake, "addresses").unlink()
        return written

    monkeypatch.setattr(table_writer, "write_counted", partly)
    run = lake.make("addresses")
    assert not run.success
    assert "addresses/2026-11-01: has" in run.errors
    assert "were written. Nothing was deleted" in run.errors
    monkeypatch.undo()
    assert not lake.make("deletion_candidates").success


def replace_file(lake: Lake, table: str) -> None:
    """Replace a file of the day's partition, as another run does. The rows are the same, to show that names count."""
    part = part_of(lake, table)
    part.rename(part.with_name(f"another-{part.name}"))


def test_rows_are_not_stored_if_another_run_replaced_a_table_from_which_they_were_made(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = table_writer.write_counted

    def late(frame: DataFrame, warehouse: Warehouse, *parts: str, observe: Sequence[Column]) -> Written:
        written = write(frame, warehouse, *parts, observe=observe)
        replace_file(lake, "active_ranges")
        return written

    monkeypatch.setattr(table_writer, "write_counted", late)
    run = lake.make("addresses")
    assert "active_ranges of 2026-11-01 was written or removed by another run while it was read" in run.errors
    monkeypatch.undo()
    assert "addresses of 2026-11-01 has no metadata: its run was interrupted" in lake.make("deletion_candidates").errors


def test_metadata_is_not_written_beside_rows_of_another_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run may be finished, and its metadata is right."""
    monkeypatch.setattr(Rows, "require_unchanged", lambda rows: replace_file(lake, "addresses"))
    assert "addresses of 2026-11-01 has files of another run" in lake.make("addresses").errors
    assert not (lake.root / "warehouse/orchard/addresses" / DAY / METADATA).exists()


def test_an_asset_does_not_read_back_the_rows_of_another_run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(frame: DataFrame, warehouse: Warehouse, *parts: str, observe: Sequence[Column]) -> Written:
        written = write(frame, warehouse, *parts, observe=observe)
        replace_file(lake, parts[1])
        return written

    write = table_writer.write_counted
    monkeypatch.setattr(table_writer, "write_counted", late)
    run = lake.make("storage_inventory")
    assert "storage_inventory of 2026-11-01 has files of another run" in run.errors


@pytest.mark.parametrize("table", ["storage_inventory", "uncommitted_objects", "commit_graph", "addresses"])
def test_there_is_no_plan_if_another_run_replaced_a_table_from_which_it_was_made(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    keep, before = storing.keep_planned, lake.warehouse.directories(lake.name, "due_objects")

    def late(*given: Any) -> DataFrame:
        stored = keep(*given)
        replace_file(lake, table)
        return stored

    monkeypatch.setattr(storing, "keep_planned", late)
    monkeypatch.setattr(planning, "known_plan", lambda *given: None)
    run = lake.make("deletion_candidates")
    assert f"{table} of 2026-11-01 was written or removed by another run while it was read" in run.errors
    assert lake.plan_document() is None
    assert lake.warehouse.directories(lake.name, "due_objects") == before


def test_there_is_no_plan_if_another_run_replaced_references_of_another_repository(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced() -> None:
        raise TableContractError("grove: addresses was written by another run. Nothing was deleted. Run again.")

    monkeypatch.setattr(OtherRepositories, "for_plan", lambda _: OtherReferences(checks=(replaced,)))
    monkeypatch.setattr(planning, "known_plan", lambda *given: None)
    assert "grove: addresses was written by another run" in lake.make("deletion_candidates").errors
    assert lake.plan_document() is None


def test_the_metadata_of_each_table_of_a_plan_has_the_digest_of_its_files(lake: Lake) -> None:
    for table in PLANNING_ASSETS:
        metadata = lake.warehouse.metadata(lake.name, table, date.fromisoformat(DAY))
        assert metadata.files == lake.warehouse.files_digest(lake.name, table, DAY), table


@pytest.mark.long
def test_planned_objects_with_lost_rows_are_written_again(orchard: TwicePlanned, lake: Lake) -> None:
    plan = lake.plan_document()
    assert plan
    (named,) = (lake.root / "warehouse/orchard/planned_objects").glob(f"{plan['plan_hash']}")
    next(part for part in named.glob("*.parquet") if pq.read_metadata(part).num_rows).unlink()
    assert lake.make("deletion_candidates").success
    assert pq.read_table(named).num_rows == plan["candidates"]["objects"]


def test_a_repository_inside_another_is_refused(lake: Lake) -> None:
    document = yaml.safe_load((lake.root / "retention.yaml").read_text("utf-8"))
    inner = {**document["repositories"]["orchard"], "namespace": "s3://lake/orchard/data/inner", "storage": "inner"}
    document["repositories"]["inner"] = inner
    (lake.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    assert refusing(lake.make("storage_inventory")) == ["namespaces_apart"]
    assert lake.plan_document() is None


def test_a_plan_is_refused_if_the_warehouse_is_inside_the_storage(lake: Lake) -> None:
    document = yaml.safe_load((lake.root / "retention.yaml").read_text("utf-8"))
    document["warehouse"] = f"{document['repositories']['orchard']['storage']}/tables"
    (lake.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    for table in ("policy_table", "storage_inventory"):
        run = lake.make(table)
        assert not run.success
        assert "One of these locations is inside the other, or they are the same" in run.errors


def test_a_plan_of_another_namespace_under_the_same_name_is_refused(lake: Lake) -> None:
    """Ledgers, plan memory and approvals in the warehouse belong to one namespace."""
    document = yaml.safe_load((lake.root / "retention.yaml").read_text("utf-8"))
    document["repositories"]["orchard"]["namespace"] = "s3://lake/grove"
    (lake.root / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    swept = lake.root / "warehouse/orchard/ledger" / DAY / ("a" * 64) / "1-a-run" / "part-done.parquet"
    swept.parent.mkdir(parents=True)
    swept.touch()
    run = lake.make("policy_table")
    assert not run.success
    assert "orchard: its ledgers in the warehouse belong to namespace s3://lake/orchard" in run.errors


def test_a_policy_that_changes_during_a_run_ends_it(lake: Lake) -> None:
    rules = json.loads((lake.root / "policy.json").read_text("utf-8"))
    (lake.root / "policy.json").write_text(json.dumps({**rules, "default_retention_days": 1}), encoding="utf-8")
    run = lake.make("potential_commits")
    assert "the policy has changed since policy_table was made. Nothing was deleted" in run.errors
    assert run.steps == ()


def test_candidates_are_not_made_from_addresses_of_another_policy(lake: Lake) -> None:
    rules = json.loads((lake.root / "policy.json").read_text("utf-8"))
    (lake.root / "policy.json").write_text(json.dumps({**rules, "default_retention_days": 300}), encoding="utf-8")
    assert lake.make("policy_table").success
    run = lake.make("deletion_candidates")
    assert "the addresses do not match the plan (different: policy). Nothing was deleted" in run.errors
    assert lake.plan_document() is None


@pytest.mark.parametrize(
    ("hash_of", "named"),
    [
        ("references_hash", "references"),
        ("memory_digest", "deleted branches that earlier plans found"),
        ("terms_hash", "settings"),
    ],
)
def test_candidates_are_not_made_from_addresses_of_another_origin(lake: Lake, hash_of: str, named: str) -> None:
    metadata = lake.root / "warehouse/orchard/addresses" / DAY / "_facts.json"
    noted = json.loads(metadata.read_text("utf-8"))
    noted["notes"][hash_of] = "0" * 64
    metadata.write_text(json.dumps(noted), encoding="utf-8")
    run = lake.make("deletion_candidates")
    assert f"the addresses do not match the plan (different: {named}). Nothing was deleted" in run.errors


def test_candidates_are_not_made_from_an_inventory_of_another_storage(lake: Lake) -> None:
    shutil.copytree(lake.namespace, lake.root / "elsewhere")
    before = lake.configuration().repositories[lake.name].storage
    lake.configure(storage="elsewhere")
    assert lake.make("policy_table").success
    run = lake.make("deletion_candidates")
    assert f"storage_inventory was read from {before}, and the configuration names file://" in run.errors
    assert lake.plan_document() is None


@pytest.mark.parametrize("asset", ["policy_table", "storage_inventory"])
def test_a_plan_of_a_repository_that_was_moved_does_not_begin_with_what_earlier_plans_found(
    lake: Lake, asset: str
) -> None:
    """At the new location, an object of the same name is another one: it has not settled."""
    assert lake.warehouse.directories("orchard", "due_objects") != []
    lake.configure(namespace="s3://lake/grove")
    assert lake.make(asset).success
    assert lake.warehouse.directories("orchard", "due_objects") == []
    bound = lake.warehouse.read_document("orchard", "place.json")
    assert bound is not None
    assert bound["namespace"] == "s3://lake/grove"


@pytest.mark.parametrize("asset", ["policy_table", "storage_inventory", "uncommitted_objects", "commit_graph"])
def test_a_run_that_reads_one_input_again_withdraws_the_plan_of_the_day(lake: Lake, asset: str) -> None:
    """Otherwise `diff --policy` would compare the plan with another input, and show more than the policy changes."""
    assert lake.make(asset).success
    assert lake.plan_document() is None


# ---- missing rules, and rules with zero days


@pytest.mark.long
def test_without_rules_on_the_server_nothing_expires(orchard: TwicePlanned, lake: Lake) -> None:
    (lake.namespace / "_lakefs/retention/gc/rules/config.json").unlink()
    lake.configure(policy=["server"], tags="ignore")
    run = lake.make("policy_table", "current_rules", *AFTER_TAGS)
    assert run.success, run.errors
    assert lake.candidates("expired", "lifecycle") == set()
    assert lake.candidates("unreferenced") == orchard.tags_ignored.by_reason["unreferenced"]
    assert run.numbers["potential_commits"]["active"] == lake.table("commit_graph").num_rows


@pytest.mark.parametrize("rules", ["absent", "deleted"])
def test_missing_or_deleted_rules_on_the_server_mean_no_retention(lake: Lake, rules: str) -> None:
    """Deleting the rules leaves an empty file. Source: docs/lakefs-formats.md, "Files of lakeFS"."""
    file = lake.namespace / "_lakefs/retention/gc/rules/config.json"
    file.unlink() if rules == "absent" else file.write_bytes(b"")
    lake.configure(policy="server")
    assert opened_policy(lake).retention is None


def test_the_rules_of_the_server_give_the_same_policy_as_their_document(lake: Lake) -> None:
    of_the_file = opened_policy(lake).policy_hash
    lake.configure(policy="server")
    assert opened_policy(lake).policy_hash == of_the_file


ZERO_DAYS = {
    "by default": {"default_retention_days": 0, "branches": []},
    "on a branch": {"default_retention_days": 7, "branches": [{"branch_id": "main", "retention_days": 0}]},
    "less than zero": {"default_retention_days": -1, "branches": []},
    "in our own schema": {"retention": {"default": "0d"}},
    "of a lifecycle rule": {"rule1": {"prefix": "", "days": 0, "enabled": True}},
}


@pytest.mark.parametrize("days", ZERO_DAYS)
def test_zero_days_are_refused(lake: Lake, days: str) -> None:
    (lake.root / "policy.json").write_text(json.dumps(ZERO_DAYS[days]), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"policy\.json"):
        opened_policy(lake)


def test_zero_days_from_the_server_are_refused() -> None:
    for default, branches in ((0, {}), (7, {"main": 0})):
        with pytest.raises(ConfigurationError, match="the rules of the lakeFS server"):
            from_server(default, branches)


def test_a_missing_policy_file_is_named_and_ends_the_run_without_a_plan(lake: Lake) -> None:
    (lake.root / "policy.json").unlink()
    run = lake.make("policy_table")
    assert not run.success
    assert "policy.json: cannot be read (No such file or directory). Nothing was deleted" in run.errors
    assert lake.plan_document() is None


def opened_policy(lake: Lake):  # type: ignore[no-untyped-def]
    return open_repository(lake.configuration().repository("orchard"), lambda: NOW).policy()
