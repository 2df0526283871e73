"""`import retention_assets as ra` is quick, and the example notebook runs on a repository as the docs say."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import retention_assets as ra
from retention_assets.errors import ConfigurationError, GuardRefused
from retention_assets.library import Lake, LakeRepository
from tests.end_to_end.command import DAY, orchard_on_disk

ROOT = Path(__file__).parents[1]


def cells() -> list[str]:
    notebook = json.loads((ROOT / "docs/notebook.ipynb").read_text("utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_import_loads_no_spark_no_dagster_and_no_arrow() -> None:
    heavy = "{'pyspark', 'dagster', 'pyarrow', 'pydantic', 'click'} & sys.modules.keys()"
    code = f"import sys, retention_assets as ra; assert not {heavy}; ra.load; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_page_names_what_the_library_has() -> None:
    page = (ROOT / "docs/library.md").read_text("utf-8")
    for owner, kind in (("lake", Lake), ("repository", LakeRepository)):
        public = {name for name in vars(kind) if name[0] != "_"} - {"configuration", "name"}
        assert set(re.findall(rf"`{owner}\.(\w+)", page)) == public
    assert set(ra.__all__) == {"load", "Lake", "LakeRepository"}


@pytest.mark.slow
def test_the_notebook_runs_and_agrees_with_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = orchard_on_disk(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GuardRefused, match="there is no plan"):
        ra.load(place.file)["orchard"].candidates()
    seen: dict[str, Any] = {}
    for cell in cells():
        exec(compile(cell, "notebook.ipynb", "exec"), seen)
    assert capsys.readouterr() == ("", "")
    plan, candidates = seen["plan"], seen["candidates"]
    assert plan.day.isoformat() == DAY
    assert isinstance(candidates, pa.Table)
    assert candidates.num_rows == plan.candidates.objects == seen["frame"].count() > 0
    assert seen["answer"].plan.plan_hash == plan.plan_hash
    assert seen["outlook"].difference.changes["freed_alike"].amount == plan.candidates
    assert seen["orchard"].newest_plan() == plan
    assert spark.range(1).count() == 1  # the session that existed was used, and stays
    difference = seen["orchard"].diff(plan.plan_hash, plan.plan_hash[:12], spark)
    assert difference.rows.isEmpty()
    with pytest.raises(ConfigurationError, match="is no table"):
        seen["orchard"].table("no_such_table")
