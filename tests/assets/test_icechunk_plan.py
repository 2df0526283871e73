"""Plans of real Icechunk repositories of both formats, compared with icechunk's own garbage collection."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from retention_assets.assets.runs import plan_job
from retention_assets.core.other_references import OtherReferences
from retention_assets.definitions import build_definitions
from retention_assets.errors import TableContractError
from retention_assets.explain.explaining import explain
from retention_assets.icechunk.edits.stored import planned_edits
from retention_assets.repositories.other_repositories import OtherRepositories
from retention_assets.state.memory import due_objects, due_objects_of, forget
from retention_assets.state.plan import load_plan
from retention_assets.tables import TABLES
from retention_assets.warehouse.metadata import PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Warehouse
from tests.assets.icechunk_lake import (
    AS_OF,
    COMMITS,
    DAY,
    LONG_AGO,
    NAME,
    IcechunkLake,
    at,
    collected_by_icechunk,
    new_icechunk_lake,
)
from tests.assets.lake import Run, require_documented_tables
from tests.icechunk.sweep.writer import commit_to
from tests.icechunk_repositories import INITIAL, Format, create_repository, open_repository, set_stored_at

ORPHAN = "0123456789ABCDEFGHJ0"
YOUNG, UNKNOWN = f"chunks/{ORPHAN}", f"manifests/{ORPHAN}"
FOREIGN = (
    "chunks/notes.txt",
    f"chunks/{ORPHAN.lower()}",
    f"chunks/{ORPHAN}.tmp",
    f"chunks/more/{ORPHAN}",
    f"data/{ORPHAN}",
    f"refs.old/{ORPHAN}",
    ORPHAN,
)


@dataclass(frozen=True)
class Planned:
    """A planned repository, the ids of its snapshots by name, and the files that icechunk itself would collect."""

    lake: IcechunkLake
    ids: Mapping[str, str]
    collected: set[str]
    plan: Mapping[str, Any]
    run: Run

    def copy(self, root: Path) -> IcechunkLake:
        """Return a copy in another directory, which a test may change."""
        return self.lake.copy(root)


def planned(root: Path, spec_version: Format) -> Planned:
    lake, ids = new_icechunk_lake(root, spec_version, COMMITS, {"main": "e", "side": "x"}, {"v1": "a"})
    collected = collected_by_icechunk(lake.directory, root / "copy", AS_OF - timedelta(days=10), AS_OF)
    for name in (*FOREIGN, YOUNG, UNKNOWN):
        (lake.directory / name).parent.mkdir(parents=True, exist_ok=True)
        (lake.directory / name).write_bytes(b"?")
        set_stored_at(lake.directory, datetime.now(UTC) if name == YOUNG else LONG_AGO, [name])
    run = lake.plan()
    assert run.success, run.errors
    document = lake.plan_document()
    assert document is not None
    return Planned(lake, ids, collected, document, run)


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned(tmp_path_factory.mktemp("format_1"), 1)


@pytest.fixture(scope="module")
def second(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned(tmp_path_factory.mktemp("format_2"), 2)


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 2], ids=["format_1", "format_2"])
def either(request: pytest.FixtureRequest) -> Planned:
    return request.getfixturevalue("first" if request.param == 1 else "second")


def test_the_candidates_are_the_files_that_icechunk_would_collect(either: Planned) -> None:
    assert len(either.collected) >= 8
    assert set(either.lake.candidates()) == either.collected | {UNKNOWN}


def test_every_table_documents_the_meaning_and_the_source_of_its_columns(either: Planned) -> None:
    made = {"repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks", "deletion_candidates"}
    assert made <= either.run.numbers.keys()
    require_documented_tables(either.run)


def test_expired_snapshots_has_the_decision_about_each_snapshot(either: Planned) -> None:
    names = {its_id: name for name, its_id in either.ids.items()}
    rows_by_name = {names.get(row["snapshot_id"], "root"): row for row in either.lake.rows("expired_snapshots")}
    is_first = "repo" not in either.lake.files()
    gone = {"b", "c"} if is_first else {"b", "c", "lost"}  # format 1 lists nothing that no reference reaches
    assert {name for name, row in rows_by_name.items() if row["decision"] == "released"} == gone
    assert {name for name, row in rows_by_name.items() if row["stays"]} == {"root", "a", "d", "e", "x"}
    assert rows_by_name["d"]["new_parent_id"] == INITIAL
    assert rows_by_name["x"]["reason"].endswith("it stays as long as a branch or tag, or a younger snapshot, needs it")
    candidates = either.lake.candidates()
    assert candidates[f"snapshots/{either.ids['b']}"] == "expired"
    assert candidates[f"snapshots/{either.ids['lost']}"] == ("unreferenced" if is_first else "expired")
    assert candidates[UNKNOWN] == "unreferenced"
    plan = load_plan(either.lake.warehouse, NAME, DAY)
    edits = planned_edits(either.lake.warehouse, plan)
    assert set(edits.released) == {either.ids[name] for name in gone}
    assert set(edits.known) == {*either.ids.values(), INITIAL}
    assert edits.cutoff < plan.made_at - timedelta(hours=23)


def test_a_candidate_chunk_has_its_rule_and_the_times_of_its_commits(second: Planned) -> None:
    rows = {row["address"]: row for row in second.lake.rows("deletion_candidates")}
    chunks = [row for name, row in rows.items() if name.startswith("chunks/")]
    assert chunks
    for row in [*chunks, rows[f"transactions/{second.ids['lost']}"]]:
        assert row["reason"] == "expired"
        assert row["rule_ids"] == ["default"]
        assert at(26) < row["first_committed_at"] <= row["last_committed_at"] < at(18)
        assert row["due_since"] < AS_OF


def test_young_and_foreign_files_stay_and_the_totals_balance(either: Planned) -> None:
    assert not either.lake.candidates().keys() & {*FOREIGN, YOUNG, "repo"}
    totals = {state: amount["objects"] for state, amount in either.plan["totals"].items()}
    assert totals["foreign"] == len(FOREIGN)
    assert totals["young"] == 1
    assert totals["candidate"] == len(either.lake.candidates())
    assert sum(totals.values()) == len(either.lake.files())


@pytest.mark.parametrize(
    "table", ["repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks"]
)
def test_a_table_has_the_columns_of_its_contract_and_a_key(either: Planned, table: str) -> None:
    contract = TABLES[table]
    found = pq.read_table(either.lake.root / "warehouse" / NAME / table / DAY.isoformat())
    assert found.num_rows
    assert found.schema.names == contract.schema.names
    keys = found.select(list(contract.key))
    assert keys.group_by(keys.column_names).aggregate([]).num_rows == found.num_rows
    for column in contract.schema:
        assert column.nullable or found[column.name].null_count == 0, column.name


@pytest.mark.long
def test_the_tip_that_a_branch_was_reset_from_stays_and_explain_says_why(second: Planned, tmp_path: Path) -> None:
    lake, tip = second.copy(tmp_path), second.ids["e"]
    open_repository(lake.directory).reset_branch("main", second.ids["d"])
    assert lake.plan().success
    assert f"snapshots/{tip}" not in lake.candidates()
    answer = explain(lake.configuration(), NAME, tip)
    assert answer.snapshot is not None
    assert answer.snapshot["reason"].startswith("kept: it was a tip within the grace period")
    assert {one.state for one in answer.objects} == {"kept"}


@pytest.mark.parametrize("what", ["manifests", "chunks", "snapshots"])
@pytest.mark.slow
def test_a_missing_file_that_must_stay_ends_the_run_without_a_plan(second: Planned, tmp_path: Path, what: str) -> None:
    lake = second.copy(tmp_path)
    foreign = {*FOREIGN, YOUNG}
    kept = sorted(name for name in lake.files() - foreign - set(lake.candidates()) if name.startswith(f"{what}/"))
    (lake.directory / kept[-1]).unlink()
    run = lake.plan()
    assert not run.success
    assert lake.plan_document() is None
    assert [name for name, passed in run.checks.items() if not passed] == [
        "chunks_exist" if what == "chunks" else "metadata_exists"
    ]


@pytest.mark.parametrize("asset", ["policy_table", "storage_inventory", "repository_history"])
def test_a_run_that_reads_one_input_again_withdraws_the_plan_of_the_day(
    second: Planned, tmp_path: Path, asset: str
) -> None:
    """Otherwise `explain` and `simulate` would compare the plan with another state of the repository."""
    lake = second.copy(tmp_path)
    assert lake.plan_document() is not None
    assert lake.make(asset).success
    assert lake.plan_document() is None


def test_the_listing_of_a_repository_that_was_moved_removes_what_earlier_plans_found(
    second: Planned, tmp_path: Path
) -> None:
    lake = second.copy(tmp_path)
    assert lake.warehouse.directories(NAME, "due_objects") != []
    lake.directory.rename(tmp_path / "moved")
    lake.configure(storage="moved")
    assert lake.make("storage_inventory").success
    assert lake.warehouse.directories(NAME, "due_objects") == []


@pytest.mark.long
def test_a_plan_whose_history_was_read_days_after_its_listing_deletes_nothing_that_must_settle(
    second: Planned, tmp_path: Path
) -> None:
    """The run failed after the listing, and was executed again from the failure three days later."""
    lake = second.copy(tmp_path)
    lake.configure(settle="24h")
    forget(lake.warehouse, NAME)
    listing = lake.warehouse.metadata(NAME, "storage_inventory", DAY)
    listed_at = listing.taken_at - timedelta(days=3)
    lake.warehouse.write_metadata(NAME, "storage_inventory", DAY, replace(listing, taken_at=listed_at))
    run = lake.make(
        "repository_history", "expired_snapshots", "reachable_manifests", "reachable_chunks", "deletion_candidates"
    )
    assert run.success, run.errors
    plan = load_plan(lake.warehouse, NAME, DAY)
    assert plan.candidates.objects == 0
    assert plan.totals["waiting"].objects > 0
    read_at = lake.warehouse.metadata(NAME, "repository_history", DAY).taken_at
    assert plan.first_wait_ends == read_at + timedelta(hours=23)


def test_a_plan_without_settling_time_stores_its_due_objects_for_later_plans(
    spark: SparkSession, second: Planned
) -> None:
    assert second.lake.configuration().repository(NAME).settings.settle == timedelta(0)
    stored = due_objects_of(spark, second.lake.warehouse, load_plan(second.lake.warehouse, NAME, DAY))
    assert {row["address"] for row in stored.collect()} == set(second.lake.candidates())


@pytest.mark.long
def test_a_plan_from_earlier_tables_does_not_change_what_later_plans_find_due(
    spark: SparkSession, second: Planned, tmp_path: Path
) -> None:
    lake = second.copy(tmp_path)
    tables, earlier = lake.root / "warehouse" / NAME, tmp_path / "earlier"
    for table in TABLES.keys() & {path.name for path in tables.iterdir()}:
        shutil.copytree(tables / table, earlier / table)
    open_repository(lake.directory).create_tag("v2", second.ids["b"])
    set_stored_at(lake.directory, LONG_AGO, ["repo", "overwritten/*"])
    assert lake.plan().success
    for table in earlier.iterdir():
        shutil.rmtree(tables / table.name)
        shutil.copytree(table, tables / table.name)
    assert lake.make("deletion_candidates").success
    released = f"snapshots/{second.ids['b']}"
    assert released in lake.candidates()
    assert released not in {row["address"] for row in due_objects(spark, lake.warehouse, NAME).objects.collect()}


@pytest.mark.parametrize(
    ("asset", "left"), [("policy_table", "storage_inventory"), ("storage_inventory", "repository_history")]
)
def test_candidates_are_not_made_from_tables_of_another_storage(
    second: Planned, tmp_path: Path, asset: str, left: str
) -> None:
    lake = second.copy(tmp_path)
    shutil.copytree(lake.directory, lake.root / "elsewhere")
    lake.configure(storage="elsewhere")
    assert lake.make(asset).success
    run = lake.make("deletion_candidates")
    assert f"{left} was read from file://{lake.directory}, and the configuration names file://" in run.errors
    assert "Nothing was deleted. Plan again: `retention plan" in run.errors
    assert lake.plan_document() is None


@pytest.mark.slow
def test_the_plan_hash_covers_the_edits_of_the_history_and_no_clock(second: Planned, tmp_path: Path) -> None:
    lake = second.copy(tmp_path)
    assert lake.plan().success
    before = load_plan(lake.warehouse, NAME, DAY)
    assert before.plan_hash == second.plan["plan_hash"]
    open_repository(lake.directory).create_tag("v2", second.ids["b"])
    set_stored_at(lake.directory, LONG_AGO, ["repo", "overwritten/*"])
    assert lake.plan().success
    after = load_plan(lake.warehouse, NAME, DAY)
    assert after.plan_hash != before.plan_hash
    assert second.ids["b"] in planned_edits(lake.warehouse, before).released
    assert second.ids["b"] not in planned_edits(lake.warehouse, after).released
    assert f"snapshots/{second.ids['b']}" not in lake.candidates()


@pytest.mark.slow
def test_another_repository_inside_the_location_is_refused(second: Planned, tmp_path: Path) -> None:
    lake = second.copy(tmp_path)
    lake.configure(others={"inner": {"kind": "icechunk", "storage": "repository/chunks", "policy": "policy.yaml"}})
    run = lake.plan()
    assert [name for name, passed in run.checks.items() if not passed] == ["namespaces_apart"]
    assert lake.plan_document() is None


@pytest.mark.slow
def test_a_directory_that_is_a_link_into_another_repository_is_refused(second: Planned, tmp_path: Path) -> None:
    lake = second.copy(tmp_path)
    create_repository(tmp_path / "clone", 2)
    (tmp_path / "clone" / "chunks").symlink_to(lake.directory / "chunks")
    lake.configure(others={"clone": {"kind": "icechunk", "storage": "clone", "policy": "policy.yaml"}})
    run = lake.plan()
    assert [name for name, passed in run.checks.items() if not passed] == ["namespaces_apart"]
    assert lake.plan_document() is None


@pytest.mark.long
def test_a_plan_is_blocked_if_an_older_repo_object_is_in_the_place_of_the_one_of_an_earlier_plan(
    second: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(warehouse: Warehouse, repository: str, table: str, day: date, metadata: PartitionMetadata) -> None:
        if table == "repository_history":
            raise TableContractError("the run is stopped")
        write(warehouse, repository, table, day, metadata)

    write, lake = Warehouse.write_metadata, second.copy(tmp_path)
    older = (lake.directory / "repo").read_bytes()
    commit_to(open_repository(lake.directory))
    made = lake.plan()
    assert made.success, made.errors
    newer = (lake.directory / "repo").read_bytes()
    (lake.directory / "repo").write_bytes(older)
    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "write_metadata", stop)
        assert "the run is stopped" in lake.plan().errors
    assert lake.plan().success
    document = lake.plan_document() or {}
    assert "an older repo object was put in the place" in document["blocked"]
    (lake.directory / "repo").write_bytes(newer)
    assert lake.plan().success
    assert (lake.plan_document() or {"blocked": "no plan"})["blocked"] is None
    (lake.directory / "repo").write_bytes(older)
    for file in (lake.directory / "manifests").iterdir():  # as after a sweep of a plan of the newer object
        file.unlink()
    assert lake.plan().checks["metadata_exists"] is False
    details = lake.warehouse.metadata(NAME, "reachable_manifests", DAY).details
    (check_result,) = details.check_results or ()
    assert re.search(r"missing.* A possible cause: .*an older repo object was put in the place", check_result.detail)


@pytest.mark.long
def test_there_is_no_plan_if_another_run_replaced_references_of_another_repository(
    second: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced() -> None:
        raise TableContractError("orchard: addresses was written by another run. Nothing was deleted. Run again.")

    lake = second.copy(tmp_path)
    commit_to(open_repository(lake.directory))  # so that the last plan is not reused
    monkeypatch.setattr(OtherRepositories, "for_plan", lambda _: OtherReferences(checks=(replaced,)))
    assert "orchard: addresses was written by another run" in lake.plan().errors
    assert lake.plan_document() is None


@pytest.mark.parametrize("day", [(DAY + timedelta(days=2)).isoformat(), "2019-12-31", "2026-1-1"])
def test_a_run_for_a_day_without_a_partition_is_refused(tmp_path: Path, day: str) -> None:
    lake, _ = new_icechunk_lake(tmp_path, 2, COMMITS, {"main": "e"})
    job = build_definitions(lake.configuration()).resolve_job_def(plan_job(NAME))
    with dg.DagsterInstance.ephemeral() as instance:
        ended = job.execute_in_process(tags={"dagster/partition": day}, instance=instance, raise_on_error=False)
        failed = [event.step_failure_data.error for event in ended.get_step_failure_events()]
    assert any(error and f"partition {day}: only these days can be planned" in error.to_string() for error in failed)
    assert lake.warehouse.directories(NAME, "plans") == []


def test_a_snapshot_that_the_last_plan_did_not_list_counts_as_no_older_than_that_plan(
    second: Planned, tmp_path: Path
) -> None:
    """Its writer has a slow clock, and committed it after the last plan."""
    lake, new = second.copy(tmp_path), second.ids["c"]
    partition = NAME, "repository_history", DAY.isoformat()
    (file,) = Path(lake.warehouse.location(*partition)).glob("*.parquet")
    rows = pq.read_table(file)
    pq.write_table(rows.filter(pc.field("snapshot_id") != new), file)
    metadata = lake.warehouse.read_document(*partition, METADATA)
    assert metadata is not None
    described = {"rows": rows.num_rows - 1, "files": lake.warehouse.files_digest(*partition)}
    lake.warehouse.write_document({**metadata, **described}, *partition, METADATA)
    for _ in range(2):
        run = lake.plan()
        assert run.success, run.errors
        (row,) = (row for row in lake.rows("expired_snapshots") if row["snapshot_id"] == new)
        assert row["stays"]
        assert row["due_since"] == datetime.fromisoformat(metadata["taken_at"]) + timedelta(days=10)
        assert f"snapshots/{second.ids['b']}" in lake.candidates()
