"""The examples of Dagster Pipes: an asset submits a Spark job, which plans and reports the plan to Dagster."""

import importlib.util
import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3  # type: ignore[import-untyped]
import dagster as dg
import pytest
from dagster._core.pipes import utils
from dagster_aws.pipes import PipesEMRClient, PipesS3MessageReader
from dagster_pipes import DagsterPipesError

from tests.conftest import INTERPRETED
from tests.doc_pages import ROOT, blocks_of
from tests.end_to_end.command import DAY, orchard_on_disk
from tests.end_to_end.s3_server import S3Server
from tests.saved_repositories import expected

EXAMPLES = ROOT / "examples" / "pipes"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"pipes_{name}", EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow  # another JVM, and a plan on it
@pytest.mark.clusters
def test_a_submitted_job_plans_and_reports_its_plan_to_the_asset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = orchard_on_disk(tmp_path / "orchard")
    project.spark = {"spark.sql.shuffle.partitions": 2, **INTERPRETED}
    project.write()
    monkeypatch.setenv("RETENTION_CONFIG", str(project.file))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SPARK_MASTER", "local[1]")
    asset = example("definitions").orchard_plan
    ended = dg.materialize([asset], resources={"pipes": dg.PipesSubprocessClient()}, partition_key=DAY)
    (made,) = ended.asset_materializations_for_node("orchard_plan")
    candidates = project.rows("deletion_candidates")
    assert {row.address for row in expected("orchard", "retention.csv") if row.kind == "committed"} <= {
        row["address"] for row in candidates
    }
    assert made.metadata["objects"].value == len(candidates)


# ---- EMR

_JOB = """
import functools, sys, job
job.PipesS3MessageWriter = functools.partial(job.PipesS3MessageWriter, interval=0.1)
job.planned = lambda *arguments: {"plan_hash": "*".join(arguments), "candidates": {"objects": 3, "bytes": 5}}
job.report(*sys.argv[1:])
"""


class FakeEMR:
    """A client of moto's EMR, which runs no steps. This client runs `code` instead, before the cluster ends."""

    def __init__(self, code: str) -> None:
        self.client = boto3.client("emr")
        self.code = code
        self.started: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def run_job_flow(self, **parameters: Any) -> Any:
        self.started = parameters
        return self.client.run_job_flow(**parameters)

    def get_waiter(self, name: str) -> Any:
        return SimpleNamespace(wait=self._run_step if name == "cluster_terminated" else lambda ClusterId: None)

    def _run_step(self, ClusterId: str) -> None:
        (step,) = self.started["Steps"]
        submitted = step["HadoopJarStep"]["Args"]
        arguments = submitted[submitted.index("s3://jobs/retention/job.py") + 1 :]
        command = [sys.executable, "-c", self.code, *arguments]
        subprocess.run(command, cwd=EXAMPLES, env={**os.environ, **self.exported()}, check=True)
        self.client.terminate_job_flows(JobFlowIds=[ClusterId])

    def exported(self) -> dict[str, str]:
        """Return the environment variables of `spark-submit`."""
        (of_spark,) = [one for one in self.started["Configurations"] if one["Classification"] == "spark-env"]
        (export,) = of_spark["Configurations"]
        variables: dict[str, str] = export["Properties"]
        return variables


@pytest.fixture
def aws(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    boto3.client("s3").create_bucket(Bucket="messages")
    for wait in ("WAIT_FOR_LOGS_TIMEOUT", "WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL"):  # moto delivers no logs
        monkeypatch.setattr(utils, wait, 0)


def planned_on_emr(code: str) -> dg.ExecuteInProcessResult:
    s3 = boto3.client("s3")
    messages = PipesS3MessageReader(bucket="messages", client=s3, include_stdio_in_messages=True, interval=0.1)
    emr = PipesEMRClient(messages, FakeEMR(code))
    return dg.materialize([example("emr").orchard_plan], resources={"emr": emr}, partition_key=DAY)


@pytest.mark.slow
def test_the_request_of_the_emr_example_is_valid_and_its_job_reports_through_s3(aws: None) -> None:
    ended = planned_on_emr(_JOB)
    (made,) = ended.asset_materializations_for_node("orchard_plan")
    assert made.metadata["plan_hash"].value == f"/etc/retention/retention.yaml*orchard*{DAY}"
    assert made.metadata["objects"].value == 3


def test_an_emr_job_that_reports_no_plan_fails_its_asset(aws: None) -> None:
    with pytest.raises(DagsterPipesError, match="No materialization results received"):
        planned_on_emr("")


def test_the_emr_example_waits_a_day_and_sends_the_region_to_the_job_and_the_executors(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    emr = example("emr")
    client = emr.defs().resources["emr"].client
    for name in ("cluster_running", "cluster_terminated"):
        waiting = client.get_waiter(name).config
        assert waiting.max_attempts * waiting.delay == timedelta(days=1).total_seconds()
    submitted = emr.cluster(DAY)["Steps"][0]["HadoopJarStep"]["Args"]
    assert "spark.executorEnv.AWS_REGION=eu-west-1" in submitted
    assert submitted[-2:] == ["s3", "eu-west-1"]


def test_the_job_sets_the_region_before_it_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    job = example("job")
    regions: list[str] = []
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    run = SimpleNamespace(report_asset_materialization=lambda **_: None)
    monkeypatch.setattr(job, "open_dagster_pipes", lambda **_: nullcontext(run))
    none = {"plan_hash": "", "candidates": {"objects": 0, "bytes": 0}}
    monkeypatch.setattr(job, "planned", lambda *_: regions.append(os.environ["AWS_REGION"]) or none)
    job.report("retention.yaml", "orchard", DAY, "", "eu-west-1")
    assert regions == ["eu-west-1"]


def test_the_page_about_emr_shows_the_asset_of_the_example() -> None:
    (shown,) = blocks_of(ROOT / "docs/how-to/emr.md", "python")
    assert shown.text in (EXAMPLES / "emr.py").read_text("utf-8")
