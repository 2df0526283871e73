"""Rows and plans are reused only if everything that decides about them is the same. Any doubt: they are not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.core.remedies import CheckResult
from retention_assets.errors import TableContractError
from retention_assets.state import reuse
from retention_assets.state.plan import PLANS, Plan, keep_plan, made_name
from retention_assets.state.reuse import Inputs, KnownPlan, inputs_digest, keep_known, known_plan, reused_rows
from retention_assets.tables import COMMIT_GRAPH
from retention_assets.warehouse.metadata import Details, PartitionMetadata
from retention_assets.warehouse.warehouse import METADATA, Rows, Warehouse
from tests.frames import DAY, NOW
from tests.sweep.small_world import a_plan

HOUR = timedelta(hours=1)
TABLE = "addresses"
FIRST, NEXT, LATER = (NOW.date() + days * DAY for days in (0, 1, 2))
KNOWN = Details(inputs="the-same", computed_at=NOW)


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(str(tmp_path))


def write(warehouse: Warehouse, day: Any, text: str, details: Details = KNOWN, rows: int = 1) -> None:
    """Write a partition as the assets do."""
    parts = "orchard", TABLE, day.isoformat()
    warehouse.write_table(pa.table({"address": [text] * rows}), *parts)
    of_files = warehouse.files_digest(*parts), 7, warehouse.content_digest(*parts)
    metadata = PartitionMetadata(NOW, rows, "a-run", details, *of_files)
    warehouse.write_metadata("orchard", TABLE, day, metadata)


def reused(spark: SparkSession, warehouse: Warehouse, inputs: str | None = "the-same", at: Any = NOW) -> str | None:
    """Return the text in the rows that the next day reuses; None: it reuses none."""
    rows = reused_rows(spark, warehouse, "orchard", TABLE, NEXT, inputs, at)
    return None if rows is None else text_of(rows)


def text_of(rows: Rows) -> str:
    (row,) = rows.frame.collect()
    return str(row["address"])


def test_the_rows_of_another_day_from_the_same_inputs_are_copied(spark: SparkSession, warehouse: Warehouse) -> None:
    write(warehouse, FIRST, "first", replace(KNOWN, outside=3))
    write(warehouse, NEXT, "next", replace(KNOWN, inputs="others"))
    rows = reused_rows(spark, warehouse, "orchard", TABLE, NEXT, "the-same", NOW)
    assert rows is not None
    assert text_of(rows) == "first"
    assert rows.details.outside == 3
    assert rows.written is not None
    assert (rows.written.rows, rows.written.size) == (1, 7)
    assert warehouse.is_complete("orchard", TABLE, NEXT.isoformat())
    assert warehouse.metadata_if_there("orchard", TABLE, NEXT.isoformat()) is None  # until the asset has written it
    warehouse.remove_directory("orchard", TABLE, FIRST.isoformat())
    assert text_of(rows) == "first"


def test_rows_that_another_run_replaces_while_they_are_copied_are_not_reused(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(warehouse, FIRST, "first")
    copy = Warehouse.copy_table

    def copy_later(self: Warehouse, *parts: Any) -> str:
        digest = copy(self, *parts)
        write(warehouse, FIRST, "first", replace(KNOWN, inputs="others"))
        return digest

    monkeypatch.setattr(Warehouse, "copy_table", copy_later)
    assert reused(spark, warehouse) is None


@pytest.mark.parametrize("step", ["content_digest", "require_rows", "frame"])
def test_rows_that_another_run_of_the_same_day_replaces_are_not_reused(
    spark: SparkSession, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The other run has as many rows, and its metadata comes last. Under this run's, they would be taken as its own."""
    write(warehouse, FIRST, "first")
    function = getattr(Warehouse, step)

    def after_the_other_run(self: Warehouse, *given: Any) -> Any:
        result = function(self, *given)
        self.write_table(pa.table({"address": ["other"]}), "orchard", TABLE, NEXT.isoformat())
        return result

    monkeypatch.setattr(Warehouse, step, after_the_other_run)
    assert reused_rows(spark, warehouse, "orchard", TABLE, NEXT, "the-same", NOW) is None


def test_reused_rows_have_the_digest_of_the_files_that_were_compared(spark: SparkSession, warehouse: Warehouse) -> None:
    write(warehouse, FIRST, "first")
    rows = reused_rows(spark, warehouse, "orchard", TABLE, NEXT, "the-same", NOW)
    assert rows and rows.written
    assert rows.written.files == warehouse.files_digest("orchard", TABLE, NEXT.isoformat())


def test_the_rows_of_the_same_day_are_used_where_they_are(spark: SparkSession, warehouse: Warehouse) -> None:
    write(warehouse, FIRST, "first")
    write(warehouse, NEXT, "next")
    before = warehouse.files("orchard", TABLE, NEXT.isoformat())
    assert reused(spark, warehouse) == "next"
    assert warehouse.files("orchard", TABLE, NEXT.isoformat()) == before


def of_other_files(warehouse: Warehouse) -> None:
    """Another run wrote as many rows, and was killed before it wrote their metadata. The earlier metadata is there."""
    metadata = warehouse.read_document("orchard", TABLE, FIRST.isoformat(), METADATA)
    assert metadata
    warehouse.write_table(pa.table({"address": ["another"]}), "orchard", TABLE, FIRST.isoformat())
    warehouse.write_document(metadata, "orchard", TABLE, FIRST.isoformat(), METADATA)


def without_a_file(warehouse: Warehouse) -> None:
    parts = "orchard", TABLE, FIRST.isoformat()
    for name in warehouse.files(*parts):
        if name.endswith(".parquet"):
            warehouse.remove_file(*parts, name)


def with_a_changed_byte(warehouse: Warehouse) -> None:
    """The disk is damaged. Such a change can be in the value of a row."""
    (file,) = (Path(warehouse.root) / "orchard" / TABLE / FIRST.isoformat()).glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[10] ^= 1
    file.write_bytes(content)


def without_success(warehouse: Warehouse) -> None:
    warehouse.remove_file("orchard", TABLE, FIRST.isoformat(), "_SUCCESS")


def damaged_metadata(warehouse: Warehouse) -> None:
    warehouse.write_text("{", "orchard", TABLE, FIRST.isoformat(), METADATA)


def without_files_in_the_metadata(warehouse: Warehouse) -> None:
    warehouse.write_metadata("orchard", TABLE, FIRST, PartitionMetadata(NOW, 1, "a-run", KNOWN))


@pytest.mark.parametrize(
    "change",
    [
        of_other_files,
        without_a_file,
        with_a_changed_byte,
        without_success,
        damaged_metadata,
        without_files_in_the_metadata,
    ],
)
def test_rows_that_may_be_others_are_not_reused(
    spark: SparkSession, warehouse: Warehouse, change: Callable[[Warehouse], None]
) -> None:
    write(warehouse, FIRST, "first")
    assert reused(spark, warehouse) == "first"
    warehouse.remove_directory("orchard", TABLE, NEXT.isoformat())
    change(warehouse)
    assert reused_rows(spark, warehouse, "orchard", TABLE, NEXT, "the-same", NOW) is None


@pytest.mark.parametrize(
    ("details", "inputs", "age"),
    [
        pytest.param(KNOWN, "others", HOUR, id="other_inputs"),
        pytest.param(KNOWN, None, HOUR, id="unknown_inputs"),
        pytest.param(replace(KNOWN, inputs=None), None, HOUR, id="unknown_inputs_twice"),
        pytest.param(replace(KNOWN, refused="ranges_complete"), "the-same", HOUR, id="a_guard_refused_them"),
        pytest.param(KNOWN, "the-same", 7 * DAY, id="a_week_old"),
        pytest.param(KNOWN, "the-same", -HOUR, id="of_a_later_time"),
        pytest.param(replace(KNOWN, computed_at=None), "the-same", HOUR, id="of_an_unknown_time"),
    ],
)
def test_rows_of_other_or_unknown_inputs_are_not_reused(
    spark: SparkSession, warehouse: Warehouse, details: Details, inputs: str | None, age: timedelta
) -> None:
    write(warehouse, FIRST, "first", details)
    assert reused(spark, warehouse, inputs, NOW + age) is None


def test_rows_of_another_run_than_the_metadata_are_not_read(spark: SparkSession, warehouse: Warehouse) -> None:
    """Both runs wrote as many rows. The details, such as the policy of the rows, are those of the first run."""
    commits = COMMIT_GRAPH.schema.empty_table()
    parts, details = ("orchard", "commit_graph", FIRST.isoformat()), Details(digest="a", inputs="b", instance="c")
    metadata = PartitionMetadata(NOW, 0, "a-run", details, warehouse.write_table(commits, *parts))
    warehouse.write_metadata("orchard", "commit_graph", FIRST, metadata)
    assert warehouse.rows(spark, "orchard", "commit_graph", FIRST).details == details
    warehouse.write_table(commits, *parts)  # a file with another name
    warehouse.write_metadata("orchard", "commit_graph", FIRST, metadata)
    with pytest.raises(TableContractError, match=r"commit_graph of .* has files of another run"):
        warehouse.rows(spark, "orchard", "commit_graph", FIRST)


def test_metadata_without_files_does_not_say_what_the_rows_were_made_from(
    spark: SparkSession, warehouse: Warehouse
) -> None:
    parts, details = ("orchard", "commit_graph", FIRST.isoformat()), Details(digest="a", inputs="b", instance="c")
    warehouse.write_table(COMMIT_GRAPH.schema.empty_table(), *parts)
    warehouse.write_metadata("orchard", "commit_graph", FIRST, PartitionMetadata(NOW, 0, "a-run", details))
    found = warehouse.rows(spark, "orchard", "commit_graph", FIRST).details
    assert found == replace(details, digest=None, inputs=None)


def test_the_digest_of_inputs_has_every_input_and_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = inputs_digest(a=[NOW], b={"c": 1})
    assert digest is not None
    assert digest == inputs_digest(b={"c": 1}, a=(NOW,))
    assert digest != inputs_digest(a=[NOW], b={"c": 2})
    assert digest != inputs_digest(a=[NOW + HOUR], b={"c": 1})
    assert inputs_digest(a=None, b=1) is None
    monkeypatch.setattr(reuse, "_CODE", "another version")
    assert digest not in {None, inputs_digest(a=[NOW], b={"c": 1})}
    monkeypatch.setattr(reuse, "_CODE", None)
    assert inputs_digest(a=[NOW], b={"c": 1}) is None


# ---- plans

READ = Inputs("the-same", {"oldest": NOW, "settling_until": NOW})


@pytest.fixture
def plan(warehouse: Warehouse) -> Plan:
    plan = a_plan(made_at=NOW)
    keep_plan(warehouse, plan)
    return plan


def known(plan: Plan, **changes: Any) -> KnownPlan:
    return replace(
        KnownPlan(plan, READ, "digest", {"oldest": NOW + 9 * HOUR}, [CheckResult("a", True, "b")], NOW, ("c",)),
        **changes,
    )


def read(hours: float, **others: float) -> Inputs:
    """Return the same inputs, read so many hours later."""
    times = {"oldest": hours, "settling_until": hours, **others}
    return Inputs("the-same", {name: NOW + at * HOUR for name, at in times.items()})


def test_a_plan_is_known_with_all_that_it_does_not_store_itself(warehouse: Warehouse, plan: Plan) -> None:
    keep_known(warehouse, known(plan))
    assert known_plan(warehouse, "orchard", read(0), NOW) == known(plan)
    assert known_plan(warehouse, "grove", read(0), NOW) is None


@pytest.mark.parametrize(
    ("changes", "inputs", "expected"),
    [
        pytest.param({}, read(8.99), True, id="before_an_object_is_old_enough"),
        pytest.param({}, read(9), False, id="an_object_is_old_enough"),
        pytest.param({"changes_at": {}}, read(99), True, id="no_object_is_too_young"),
        pytest.param({"changes_at": {"settling_until": NOW + HOUR}}, read(1), False, id="an_object_has_waited_enough"),
        pytest.param({}, read(-1), False, id="an_older_state"),
        pytest.param({}, read(1, settling_until=-1), False, id="one_input_is_older"),
        pytest.param({}, replace(read(1), digest="others"), False, id="other_inputs"),
        pytest.param({}, replace(read(1), digest=None), False, id="unknown_inputs"),
        pytest.param({"inputs": replace(READ, digest=None)}, replace(read(1), digest=None), False, id="both_unknown"),
        pytest.param({"inputs": read(0, another=0)}, read(1), False, id="a_time_is_missing"),
        pytest.param({"computed_at": NOW - 7 * DAY + HOUR}, read(1), True, id="computed_less_than_a_week_ago"),
        pytest.param({"computed_at": NOW - 7 * DAY}, read(1), False, id="computed_a_week_ago"),
        pytest.param({"computed_at": NOW + HOUR}, read(1), False, id="computed_later"),
    ],
)
def test_a_plan_is_reused_until_an_object_or_an_input_changes(
    warehouse: Warehouse, plan: Plan, changes: dict[str, Any], inputs: Inputs, expected: bool
) -> None:
    keep_known(warehouse, known(plan, **changes))
    assert (known_plan(warehouse, "orchard", inputs, NOW) is not None) is expected


def test_a_document_that_cannot_be_read_is_ignored(warehouse: Warehouse, plan: Plan) -> None:
    keep_known(warehouse, known(plan))
    written = warehouse.read_document("orchard", "last_inputs.json")
    assert written
    for name, value in {
        **{key: {"a": 1} for key in ("computed_at", "plan", "day")},
        "changes_at": {"another": NOW.isoformat()},
        "inputs": {**written["inputs"], "read_at": {"oldest": "2026-11-01T00:00:00"}},
        "unused_prefixes": None,
        "check_results": [],
    }.items():
        warehouse.write_document({**written, name: value}, "orchard", "last_inputs.json")
        assert known_plan(warehouse, "orchard", read(0), NOW) is None, name
    for name in written:
        warehouse.write_document({one: written[one] for one in written if one != name}, "orchard", "last_inputs.json")
        assert known_plan(warehouse, "orchard", read(0), NOW) is None, name
    warehouse.write_text("[", "orchard", "last_inputs.json")
    assert known_plan(warehouse, "orchard", read(0), NOW) is None


def test_a_plan_whose_document_was_removed_is_not_reused(warehouse: Warehouse, plan: Plan) -> None:
    keep_known(warehouse, known(plan))
    warehouse.remove_document("orchard", PLANS, plan.day.isoformat(), "current.json")  # withdrawn
    assert known_plan(warehouse, "orchard", read(0), NOW) is not None
    warehouse.remove_document("orchard", PLANS, plan.day.isoformat(), f"{made_name(plan)}.json")
    assert known_plan(warehouse, "orchard", read(0), NOW) is None
