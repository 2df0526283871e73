"""`import retention_assets as ra` is quick, and the example notebook runs on a repository as the docs say."""

import ast
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from pprint import pformat
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import retention_assets as ra
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.library import Lake, LakeRepository
from retention_assets.state.plan import keep_plan
from retention_assets.warehouse.warehouse import Warehouse
from scripts.docs_reference import notebook_page
from tests.end_to_end.command import DAY, demo_on_disk, orchard_on_disk
from tests.explain.test_status import a_plan

ROOT = Path(__file__).parents[1]


NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def executed(cell: dict[str, Any], seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell, and return its outputs as Jupyter stores them: the value of its last line, if that is one."""
    tree = ast.parse("".join(cell["source"]))
    value = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), seen)
    if not isinstance(value, ast.Expr):
        return []
    text = pformat(eval(compile(ast.Expression(value.value), NOTEBOOK.name, "eval"), seen), width=100)
    return [
        {
            "data": {"text/plain": text.splitlines(keepends=True)},
            "execution_count": cell["execution_count"],
            "metadata": {},
            "output_type": "execute_result",
        }
    ]


def test_the_import_loads_no_spark_no_dagster_and_no_arrow() -> None:
    heavy = "{'pyspark', 'dagster', 'pyarrow', 'pydantic', 'click'} & sys.modules.keys()"
    code = f"import sys, retention_assets as ra; assert not {heavy}; ra.load; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)


def test_the_library_page_names_exactly_the_public_methods() -> None:
    page = (ROOT / "docs/library.md").read_text("utf-8")
    for owner, kind in (("lake", Lake), ("repository", LakeRepository)):
        public = {name for name in vars(kind) if name[0] != "_"} - {"configuration", "name"}
        assert set(re.findall(rf"`{owner}\.(\w+)", page)) == public
    assert set(ra.__all__) == {"load", "Lake", "LakeRepository"}


@pytest.mark.slow
def test_the_notebook_has_the_outputs_of_the_demo(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With RENEW_NOTEBOOK=1 the notebook is written again."""
    renew = os.environ.get("RENEW_NOTEBOOK")
    monkeypatch.setenv("RETENTION_CONFIG", str(demo_on_disk(tmp_path) / "demo/retention.yaml"))
    with pytest.raises(GuardRefused, match="there is no valid plan"):
        ra.load()["orchard"].candidates()
    notebook, seen = json.loads(NOTEBOOK.read_text("utf-8")), dict[str, Any]()
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["execution_count"] = number
        cell["outputs"] = executed(cell, seen)
    assert capsys.readouterr() == ("", "")
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if renew:
        NOTEBOOK.write_text(text, encoding="utf-8")
    assert text == NOTEBOOK.read_text("utf-8")
    assert spark.range(1).count() == 1  # the session that existed was used, and stays


@pytest.mark.slow
def test_the_plan_candidates_explanation_outlook_and_diff_of_the_library_agree(
    spark: SparkSession, tmp_path: Path
) -> None:
    orchard = ra.load(orchard_on_disk(tmp_path).file)["orchard"]
    plan = orchard.plan(date.fromisoformat(DAY), progress=False)
    candidates = orchard.candidates()
    assert isinstance(candidates, pa.Table)
    assert candidates.num_rows == plan.candidates.objects == orchard.candidates_frame().count() > 0
    assert orchard.explain(candidates["address"][0].as_py()).plan.plan_hash == plan.plan_hash
    policy = orchard.configuration.repository("orchard").path("gc_rules.json")
    assert orchard.outlook([policy]).difference.changes["freed_alike"].amount == plan.candidates
    assert orchard.newest_plan() == plan
    assert orchard.diff(plan.plan_hash, plan.plan_hash[:12], spark).rows.isEmpty()


@pytest.mark.slow
def test_a_released_comparison_leaves_no_rows_in_the_cache(spark: SparkSession, tmp_path: Path) -> None:
    orchard = ra.load(orchard_on_disk(tmp_path).file)["orchard"]
    plan = orchard.plan(date.fromisoformat(DAY), progress=False)
    policy = orchard.configuration.repository("orchard").path("gc_rules.json")
    spark.catalog.clearCache()
    cache: Any = spark._jsparkSession.sharedState().cacheManager()
    for difference in (orchard.outlook([policy]).difference, orchard.diff(plan.plan_hash, plan.plan_hash, spark)):
        assert not cache.isEmpty()
        difference.release()
    assert cache.isEmpty()
    assert difference.rows.isEmpty()


def test_plans_of_several_threads_run_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, most = list[int](), list[int]()

    def work(*_: object) -> None:
        at_work.append(1)
        most.append(len(at_work))
        time.sleep(0.05)
        at_work.pop()

    monkeypatch.setattr("retention_assets.cli.runs.run_job", work)
    monkeypatch.setattr("retention_assets.library.load_plan", lambda *_: None)
    orchard = ra.load(orchard_on_disk(tmp_path).file)["orchard"]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: orchard.plan(progress=False), range(4)))
    assert most == [1, 1, 1, 1]


CALLS: dict[str, Callable[[LakeRepository, Any], object]] = {
    "plan": lambda repository, day: repository.plan(day, progress=False),
    "newest_plan": lambda repository, day: repository.newest_plan(day),
    "candidates": lambda repository, day: repository.candidates(day),
    "candidates_frame": lambda repository, day: repository.candidates_frame(day, object()),  # type: ignore[arg-type]
    "table": lambda repository, day: repository.table("deletion_candidates", day),
    "explain": lambda repository, day: repository.explain("a", day),
    "outlook": lambda repository, day: repository.outlook([], day),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("day", ["2026-11-01", 20261101])
def test_a_day_that_is_no_date_is_refused_with_what_to_give(
    tmp_path: Path, call: Callable[[LakeRepository, Any], object], day: object
) -> None:
    orchard = ra.load(orchard_on_disk(tmp_path).file)["orchard"]
    refused = rf"^{day!r} is not a day\. Nothing was read or deleted\. Give a date, such as `datetime\.date\("
    with pytest.raises(ConfigurationError, match=refused):
        call(orchard, day)


@pytest.mark.parametrize(
    "day",
    [
        datetime.fromisoformat("2026-11-01T00:00"),
        datetime(2026, 11, 1, 23, 59, tzinfo=UTC),
        datetime.fromisoformat("2026-11-02T01:00+02:00"),
    ],
)
def test_a_datetime_stands_for_its_day_in_utc(tmp_path: Path, day: datetime) -> None:
    project = orchard_on_disk(tmp_path)
    plan = a_plan()
    keep_plan(Warehouse(str(project.warehouse)), plan)
    orchard = ra.load(project.file)["orchard"]
    assert orchard.newest_plan(day) == orchard.newest_plan(date(2026, 11, 1)) == plan


@pytest.mark.parametrize("policy", ["none.json", Path("none.json"), ["none.json"]])
def test_a_policy_of_one_file_can_be_given_as_its_path(tmp_path: Path, policy: Any) -> None:
    project = orchard_on_disk(tmp_path)
    keep_plan(Warehouse(str(project.warehouse)), a_plan())
    with pytest.raises(ConfigurationError, match=r"^none\.json: "):
        ra.load(project.file)["orchard"].outlook(policy)


def test_the_error_for_an_unknown_table_lists_the_tables(tmp_path: Path) -> None:
    orchard = ra.load(orchard_on_disk(tmp_path).file)["orchard"]
    with pytest.raises(ConfigurationError, match=r"is not a table.*deletion_candidates"):
        orchard.table("no_such_table")


def test_the_site_shows_the_notebook_with_its_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    page = notebook_page()
    for cell in cells:
        assert "".join(cell["source"]) in page
        for output in cell.get("outputs", ()):
            assert "".join(output["data"]["text/plain"]) in page
    assert any(cell.get("outputs") for cell in cells)
