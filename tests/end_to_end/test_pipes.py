"""The example of Dagster Pipes: an asset that submits a Spark job, which plans and reports the plan back."""

import importlib.util
import os
import sys
from pathlib import Path

import dagster as dg
import pytest

from tests.conftest import INTERPRETED
from tests.end_to_end.command import DAY, orchard_on_disk
from tests.repositories import expected

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipes" / "definitions.py"


@pytest.mark.slow  # another JVM, and a plan on it
@pytest.mark.clusters
def test_a_submitted_job_plans_and_reports_its_plan_to_the_asset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = orchard_on_disk(tmp_path / "orchard")
    place.spark = {"spark.sql.shuffle.partitions": 2, **INTERPRETED}
    place.write()
    monkeypatch.setenv("RETENTION_CONFIG", str(place.file))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SPARK_MASTER", "local[1]")
    spec = importlib.util.spec_from_file_location("pipes_example", EXAMPLE)
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    ended = dg.materialize([example.orchard_plan], resources={"pipes": dg.PipesSubprocessClient()}, partition_key=DAY)
    (made,) = ended.asset_materializations_for_node("orchard_plan")
    candidates = place.rows("deletion_candidates")
    assert {row.address for row in expected("orchard", "retention.csv") if row.kind == "committed"} <= {
        row["address"] for row in candidates
    }
    assert made.metadata["objects"].value == len(candidates)
