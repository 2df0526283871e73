"""The checks of `verify`: lost objects, deleted objects that still exist, interrupted sweeps, several plans."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from retention_assets.core.guards import CheckResult
from retention_assets.icechunk.sweep.verification import kept_exist, logs_exist
from retention_assets.lakefs.rules.reflog import Memory
from retention_assets.lakefs.sweep import verification as of_lakefs
from retention_assets.lakefs.sweep.verification import CHECKS, live_exist
from retention_assets.objectstore.access import StoreAccess
from retention_assets.policy.rules import LifecycleRule
from retention_assets.state.ledger import LedgerLocation
from retention_assets.sweep.verification import VerificationInputs, by_check, deleted_are_gone, what_was_done
from retention_assets.tables import LEDGER
from retention_assets.warehouse.warehouse import Warehouse
from tests import frames
from tests.frames import NOW, Candidate, Listed, address
from tests.sweep.small_world import DAY, DEAD, LISTED, LIVE, PAIRS, POLICY, UNREFERENCED, World, a_plan

PLAN = "a" * 64


def ledger(spark: SparkSession, at: datetime = NOW, **outcomes: str) -> DataFrame:
    rows = [
        {"address": address, "size": 10, "outcome": outcome, "detail": None, "at": at, "fence": 1}
        for address, outcome in outcomes.items()
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=LEDGER)).withColumn("plan_hash", F.lit(PLAN))


def gone(rows: DataFrame) -> DataFrame:
    """Return rows of a ledger with the time at which each object was deleted."""
    went = F.when(F.col("outcome").isin("deleted", "quarantined"), F.col("at"))
    return rows.withColumn("went_at", went)


def planned(spark: SparkSession, **reasons: str) -> DataFrame:
    rows = [Candidate(address, reason=reason) for address, reason in reasons.items()]
    return frames.candidates(spark, *rows).withColumn("plan_hash", F.lit(PLAN))


def held(spark: SparkSession, *addresses: str) -> DataFrame:
    return spark.createDataFrame(pa.table({"address": pa.array(addresses, pa.string())}))


@pytest.mark.parametrize(
    ("outcome", "reason", "is_there", "passed", "words"),
    [
        pytest.param(None, None, True, True, "no referenced object is missing without a known reason", id="there"),
        pytest.param(
            None, None, False, False, "1 referenced object is not in the store, first a", id="no_sweep_deleted_it"
        ),
        pytest.param("deleted", "lifecycle", False, True, "lifecycle rules deleted 1", id="collected"),
        pytest.param("missing", "lifecycle", False, True, "lifecycle rules deleted 1", id="found_collected"),
        pytest.param("attempted", "lifecycle", False, True, "lifecycle rules deleted 1", id="cut_off"),
        pytest.param("restored", "lifecycle", False, False, "first a, restored, lifecycle", id="restored_and_gone"),
        pytest.param("deleted", "expired", False, False, "first a, deleted, expired", id="deleted_although_held"),
        pytest.param("deleted", None, False, False, "first a, deleted", id="no_plan_names_it"),
    ],
)
def test_a_referenced_object_must_exist_unless_a_lifecycle_rule_deleted_it(
    spark: SparkSession, outcome: str | None, reason: str | None, is_there: bool, passed: bool, words: str
) -> None:
    listing = frames.inventory(spark, *([Listed("a")] if is_there else []), Listed("b"))
    rows = ledger(spark, **({"a": outcome} if outcome else {}))
    reasons = planned(spark, **({"a": reason} if reason else {}))
    check_result, missing = live_exist(held(spark, "a", "b"), listing, rows, reasons, held(spark, "c"))
    assert check_result.passed is passed
    assert words in check_result.detail
    assert [row["address"] for row in missing.collect()] == ([] if passed else ["a"])


def test_an_object_that_a_longer_period_keeps_again_after_its_sweep_fails_with_both_remedies(
    spark: SparkSession,
) -> None:
    """The policy of the plan released the object, and the policy of the verification keeps it."""
    expired, listing = planned(spark, a="expired"), frames.inventory(spark, Listed("b"))
    swept = held(spark, "a", "b"), listing, ledger(spark, a="deleted"), expired
    check_result, _ = live_exist(*swept, held(spark))
    assert not check_result.passed
    assert "If the policy now keeps versions that were swept before (a longer period, `tags: protect`, a hold)" in (
        check_result.message
    )
    assert check_result.message.endswith("from quarantine, or accept the loss with `retention acknowledge`.")
    assert live_exist(*swept, held(spark, "a"))[0].passed


def test_referenced_addresses_outside_the_namespace_are_counted_as_not_checked(spark: SparkSession) -> None:
    listed = Listed(address(1))
    named = held(spark, f"s3://elsewhere/{listed.address}", "s3://elsewhere/imported.csv", "s3://elsewhere/b.csv")
    check_result, _ = live_exist(named, frames.inventory(spark, listed), ledger(spark), planned(spark), held(spark))
    assert check_result.passed
    assert "2 referenced addresses are outside the namespace and not checked" in check_result.detail


def test_acknowledged_losses_are_counted_and_new_losses_fail_the_check(spark: SparkSession) -> None:
    listing, none = frames.inventory(spark, Listed("b")), ledger(spark)
    known, _ = live_exist(held(spark, "a", "b"), listing, none, planned(spark), held(spark, "a"))
    assert known.passed
    assert "1 acknowledged as lost" in known.detail
    new, missing = live_exist(held(spark, "a", "b", "c"), listing, none, planned(spark), held(spark, "a"))
    assert not new.passed
    assert "1 referenced object is not in the store, first c" in new.detail
    assert [row["address"] for row in missing.collect()] == ["c"]


@pytest.mark.parametrize(
    ("outcome", "written", "passed"),
    [
        pytest.param("deleted", NOW - timedelta(days=1), False, id="listed_as_before"),
        pytest.param("deleted", NOW, False, id="of_the_same_time"),
        pytest.param("deleted", NOW + timedelta(seconds=1), True, id="written_again_later"),
        pytest.param("quarantined", NOW - timedelta(days=1), False, id="moved_and_there"),
        pytest.param("restored", NOW - timedelta(days=1), True, id="restored"),
        pytest.param("skipped", NOW - timedelta(days=1), True, id="skipped"),
        pytest.param("attempted", NOW - timedelta(days=1), True, id="attempted"),
    ],
)
def test_objects_that_the_ledger_calls_gone_must_not_be_listed(
    spark: SparkSession, outcome: str, written: datetime, passed: bool
) -> None:
    listing = frames.inventory(spark, Listed("a", last_modified=written))
    check_result = deleted_are_gone(gone(ledger(spark, a=outcome)), listing)
    assert check_result.passed is passed
    assert ("a first" in check_result.detail) is not passed


@pytest.mark.parametrize(
    ("outcome", "lost", "kept", "logs"),
    [
        pytest.param(None, (), "2 kept files are not in the store, first chunks/a", "", id="no_sweep_deleted_them"),
        pytest.param(
            "deleted",
            (),
            "2 kept files are not in the store, first chunks/a, deleted",
            "1 kept transaction log is not in the store, first transactions/a, deleted",
            id="deleted_although_kept",
        ),
        pytest.param(None, ("chunks/a", "manifests/a"), "", "", id="acknowledged_as_lost"),
    ],
)
def test_a_kept_file_of_icechunk_exists_and_no_sweep_deleted_a_kept_log(
    spark: SparkSession, outcome: str | None, lost: tuple[str, ...], kept: str, logs: str
) -> None:
    absent = ("chunks/a", "manifests/a", "transactions/a")
    needed, listing = held(spark, "chunks/b", *absent), frames.inventory(spark, Listed("chunks/b"))
    rows = ledger(spark, **(dict.fromkeys(absent, outcome) if outcome else {}))
    exist, missing = kept_exist(needed, listing, rows, held(spark, *lost))
    assert {row["address"] for row in missing.collect()} == {"chunks/a", "manifests/a"} - set(lost)
    for check_result, violation in (
        (exist, kept),
        (logs_exist(needed, listing, rows), logs),
    ):
        assert check_result.passed is (not violation)
        assert violation in check_result.message


@pytest.mark.parametrize(
    ("days", "passed"), [(5, True), (20, False)], ids=["written_after_the_move", "written_before_the_move"]
)
def test_a_purged_object_counts_as_deleted_from_the_time_it_was_moved(
    spark: SparkSession, days: int, passed: bool
) -> None:
    """The object was moved ten days ago, and its copy was purged today. A copy by hand in between is no error."""
    listing = frames.inventory(spark, Listed("a", last_modified=NOW - timedelta(days=days)))
    moved = gone(ledger(spark, NOW - timedelta(days=10), a="quarantined"))
    purged = ledger(spark, a="purged").join(moved.select("address", "went_at"), on="address")
    assert deleted_are_gone(purged, listing).passed is passed


def test_a_sweep_that_was_interrupted_before_its_record_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    warehouse, plan = Warehouse(str(tmp_path)), a_plan()
    rows = ledger(spark, a="quarantined").drop("plan_hash").toArrow()
    LedgerLocation(warehouse.root, "orchard", plan.day, plan.plan_hash, 3, "a-run").append(rows, "one", "done")
    inputs = VerificationInputs(spark, warehouse, "orchard", [plan], [], [], None, plan.day)
    results = {
        check_result.guard: check_result
        for check_result in what_was_done(inputs, frames.inventory(spark), inputs.ledger())
    }
    assert results["records_follow"].passed
    assert f"1 plan, {plan.day} {plan.plan_hash}, has no record of the last sweep" in results["records_follow"].detail


RULE = LifecycleRule("rule", "a/1", timedelta(days=30), {})  # LIVE is due under it, although the head has it


@pytest.mark.long
@pytest.mark.parametrize("has_other_plan", [True, False], ids=["a_plan_was_swept_before", "the_first_sweep"])
def test_a_sweep_that_runs_while_verify_lists_the_store_fails_no_check(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_other_plan: bool
) -> None:
    """The sweep deletes one object before it is listed, and one after. Both are in the ledger after the listing."""
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    plan = World(policy=replace(POLICY, lifecycle=(RULE,)), max_live_shrink=1).plan(spark, warehouse).plan
    assert plan
    ledgers = LedgerLocation(warehouse.root, "orchard", plan.day, plan.plan_hash, 3, "a-run")
    if has_other_plan:
        ledgers.append(ledger(spark, NOW, **{DEAD: "skipped"}).drop("plan_hash").toArrow(), "one", "done")
    inputs = VerificationInputs(spark, warehouse, "orchard", [plan] if has_other_plan else [], [], [], None, DAY)
    listed = frames.inventory(spark, *(one for one in LISTED if one.address != LIVE)).localCheckpoint()

    def listed_while_a_sweep_runs(*_: object) -> DataFrame:
        rows = ledger(spark, NOW, **{LIVE: "deleted", UNREFERENCED: "deleted"})
        ledgers.append(rows.drop("plan_hash").toArrow(), "two", "done")
        return listed

    required = held(spark, *(pair.address for pair in PAIRS if pair.active))
    monkeypatch.setattr(of_lakefs, "_referenced_now", lambda *_: (required, []))
    monkeypatch.setattr(of_lakefs, "prefixes", lambda _: [])
    monkeypatch.setattr(of_lakefs, "list_objects", listed_while_a_sweep_runs)
    query: Any = of_lakefs.LivenessQuery(
        SimpleNamespace(access=StoreAccess(f"file://{tmp_path}")),  # type: ignore[arg-type]
        POLICY,
        DAY,
        Memory(),
    )
    results = {one.guard: one for one in of_lakefs.verify(inputs, query, NOW)}
    assert {name for name, one in results.items() if not one.passed} == set()
    assert "lifecycle rules deleted 1" in results["live_exist"].detail


def test_results_of_several_plans_are_merged_and_name_the_failed_plans() -> None:
    check_results = [
        *(CheckResult(check, True, "fine") for check in CHECKS if check != "totals_hold"),
        CheckResult("totals_hold 2026-11-01 aaaa", True, "fine"),
        CheckResult("totals_hold 2026-11-02 bbbb", False, "1 + 1 is not 3"),
    ]
    merged = {check_result.guard: check_result for check_result in by_check(check_results, CHECKS)}
    assert list(merged) == list(CHECKS)
    assert merged["totals_hold"] == CheckResult("totals_hold", False, "2026-11-02 bbbb: 1 + 1 is not 3")
    assert merged["live_exist"] == CheckResult("live_exist", True, "fine")
    assert by_check(check_results[:-1], CHECKS)[CHECKS.index("totals_hold")].passed
