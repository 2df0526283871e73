"""A run whose inputs are those of an earlier run reuses its rows and its plan, and finds what a full run finds."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.assets import icechunk as icechunk_assets
from retention_assets.assets import lakefs as lakefs_assets
from retention_assets.assets.runs import FULL
from retention_assets.icechunk.sweep import planning as icechunk_planning
from retention_assets.lakefs.sweep import planning
from tests.assets.conftest import TwicePlanned
from tests.assets.icechunk_lake import COMMITS, IcechunkLake, new_icechunk_lake
from tests.assets.lake import NOW, PLANNING_ASSETS, Lake, Run, put

NOT_OF_THE_DATA = {"seconds", "dagster/uri", "taken_at", "policy_run", "retention/html", "page", "report"}
OF_THE_RUN = dict.fromkeys(("run_id", "policy_run", "made_at"))
pytestmark = pytest.mark.long


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Record which results were computed, and not reused."""
    found: list[str] = []
    for module, names in {
        lakefs_assets: ("ranges_of", "addresses_of"),
        planning: ("classify",),
        icechunk_assets: ("manifests_of", "chunks_of"),
        icechunk_planning: ("_checked",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, _recorded(found, name, getattr(module, name)))
    yield found


def _recorded(found: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: object, **named: object) -> Any:
        found.append(name)
        return function(*arguments, **named)

    return call


@pytest.fixture
def lake(orchard: TwicePlanned, tmp_path: Path) -> Lake:
    return orchard.lake.copy(tmp_path)


def numbers_of(run: Run) -> dict[str, Mapping[str, Any]]:
    """Return the metadata of a run's tables that describes their data."""
    return {
        table: {name: value for name, value in numbers.items() if isinstance(value, int | str | float)}
        for table, numbers in run.numbers.items()
    }


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())


def without(found: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in names}


def test_a_lakefs_plan_from_the_same_inputs_is_what_a_full_run_finds(
    lake: Lake, computed: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert lake.plan().success
    computed.clear()
    again = lake.plan()
    assert again.success, again.errors
    assert computed == []
    assert f"Nothing has changed since the plan of {NOW:%Y-%m-%d %H:%M} UTC" in capfd.readouterr().err
    names = sorted({*PLANNING_ASSETS} - {"policy_table"})  # its rows have the run that read the policy
    tables = {name: sorted_rows(lake.table(name)) for name in names}
    plan = lake.plan_document()
    full = lake.plan(**{FULL: "true"})
    assert full.success, full.errors
    assert {"ranges_of", "addresses_of", "classify"} <= set(computed)
    assert {name: sorted_rows(lake.table(name)) for name in names} == tables
    assert plan is not None
    assert {**plan, **OF_THE_RUN} == {**(lake.plan_document() or {}), **OF_THE_RUN}
    assert again.checks == full.checks
    read = {"ranges_read", "range_bytes", "metaranges_read", "metarange_bytes"}
    for table in names:
        of_runs = [without(numbers_of(one)[table], NOT_OF_THE_DATA | read) for one in (again, full)]
        assert of_runs[0] == of_runs[1], table


def test_lost_files_of_the_cache_are_read_again_although_rows_are_reused(lake: Lake, computed: list[str]) -> None:
    """Later plans and sweeps need them, and a lost file can no longer be read then."""
    assert lake.plan().success
    for table in ("metarange_ranges", "range_entries.v2"):
        for folder in (lake.root / "warehouse/orchard").glob(f"{table}*"):
            shutil.rmtree(folder)
    computed.clear()
    run = lake.plan()
    assert run.success, run.errors
    assert computed == []
    assert run.numbers["active_ranges"]["metaranges_read"] > 0
    assert run.numbers["addresses"]["ranges_read"] > 0


def with_another_object(lake: Lake) -> None:
    put(lake, "data/fu2qb0hksduf3vibnmug/db4lqvhksduf3vibnmvg", b"new")


def without_an_object(lake: Lake) -> None:
    address, _ = min(lake.candidates())
    (lake.namespace / address).unlink()


def with_another_time(lake: Lake) -> None:
    address, _ = min(lake.candidates())
    at = datetime(2026, 11, 21, 23, tzinfo=UTC).timestamp()
    os.utime(lake.namespace / address, (at, at))


def with_another_staged_object(lake: Lake) -> None:
    """One of the candidates is staged now. The list has the same time as before."""
    address, _ = min(lake.candidates())
    (folder,) = (lake.namespace / "_lakefs/retention/gc/uncommitted").glob("*/uncommitted")
    file = max(folder.iterdir())
    written, rows = file.stat(), pq.ParquetFile(file).read()
    staged = pa.Table.from_pylist([{"physical_address": address, "creation_date": 1_700_000_000}])
    pq.write_table(pa.concat_tables([rows, staged.select(rows.column_names).cast(rows.schema)]), file)
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))


def with_another_policy(lake: Lake) -> None:
    policy = json.loads((lake.root / "policy.json").read_text("utf-8"))
    policy["default_retention_days"] += 300
    (lake.root / "policy.json").write_text(json.dumps(policy), encoding="utf-8")


def with_another_setting(lake: Lake) -> None:
    lake.configure(tags="protect", grace="3d")


@pytest.mark.parametrize(
    "change",
    [
        with_another_object,
        without_an_object,
        with_another_time,
        with_another_staged_object,
        with_another_policy,
        with_another_setting,
    ],
)
def test_a_lakefs_plan_from_other_inputs_is_computed(
    lake: Lake, computed: list[str], change: Callable[[Lake], None]
) -> None:
    assert lake.plan().success
    change(lake)
    computed.clear()
    run = lake.plan()
    assert run.success, run.errors
    assert "classify" in computed
    assert ("addresses_of" in computed) is (change is with_another_policy)
    candidates, plan = lake.candidates(), lake.plan_document()
    assert lake.plan(**{FULL: "true"}).success
    assert lake.candidates() == candidates
    assert plan is not None
    assert (lake.plan_document() or {})["plan_hash"] == plan["plan_hash"]


def test_a_plan_that_could_not_read_the_content_of_an_object_is_not_reused(
    lake: Lake, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object may be archived, and restored later. Its listing does not change."""
    of_same_content = planning._of_same_content
    monkeypatch.setattr(planning, "_of_same_content", lambda *arguments: (of_same_content(*arguments)[0], True))
    assert lake.plan().success
    computed.clear()
    assert lake.plan().success
    assert "classify" in computed


def test_an_icechunk_plan_from_the_same_inputs_is_what_a_full_run_finds(tmp_path: Path, computed: list[str]) -> None:
    lake, _ = new_icechunk_lake(tmp_path, 2, COMMITS, {"main": "e", "dev": "x"}, {"v1": "a"})
    tables = (
        "storage_inventory",
        "expired_snapshots",
        "reachable_manifests",
        "reachable_chunks",
        "deletion_candidates",
    )

    def state(lake: IcechunkLake) -> dict[str, list[str]]:
        return {one: sorted(json.dumps(row, default=str) for row in lake.rows(one)) for one in tables}

    assert lake.plan().success
    computed.clear()
    again = lake.plan()
    assert again.success, again.errors
    assert computed == []
    found, plan = state(lake), lake.plan_document()
    assert found["deletion_candidates"]
    full = lake.plan(**{FULL: "true"})
    assert full.success, full.errors
    assert {"manifests_of", "chunks_of", "_checked"} <= set(computed)
    assert state(lake) == found
    assert plan is not None
    assert {**plan, **OF_THE_RUN} == {**(lake.plan_document() or {}), **OF_THE_RUN}
    assert again.checks == full.checks
    read = {"snapshots_read", "snapshot_bytes", "manifests_read", "manifest_bytes"}
    for table in tables:
        of_runs = [without(numbers_of(one)[table], NOT_OF_THE_DATA | read) for one in (again, full)]
        assert of_runs[0] == of_runs[1], table


def test_an_icechunk_plan_of_other_files_is_computed(tmp_path: Path, computed: list[str]) -> None:
    lake, _ = new_icechunk_lake(tmp_path, 2, COMMITS, {"main": "e", "dev": "x"}, {"v1": "a"})
    assert lake.plan().success
    before = lake.candidates()
    gone = min(name for name in before if name.startswith("chunks/"))
    (lake.directory / gone).unlink()
    computed.clear()
    run = lake.plan()
    assert run.success, run.errors
    assert {"manifests_of", "chunks_of", "_checked"} <= set(computed)
    assert lake.candidates().keys() == before.keys() - {gone}
