"""A Dagster project that plans on EMR: each plan starts a cluster, which ends after its one step.

This was never tried on a real EMR: see docs/how-to/emr.md. RETENTION_JOBS names the folder with the job and its files,
RETENTION_MESSAGES the bucket through which the job reports to Dagster, AWS_REGION the region of the buckets.
"""

import os
from typing import Any

import boto3
import dagster as dg
from dagster_aws.pipes import PipesEMRClient, PipesS3MessageReader

REPOSITORY = "orchard"
RELEASE = "emr-spark-8.0.0"  # its Spark is too old: set the first release with Spark 4.1 or newer
JOBS = os.environ.get("RETENTION_JOBS", "s3://jobs/retention")
MESSAGES = os.environ.get("RETENTION_MESSAGES", "messages")
REGION = os.environ.get("AWS_REGION", "us-east-1")
LONGEST = 24 * 3600  # seconds


def cluster(day: str) -> dict[str, Any]:
    """Return the parameters of `RunJobFlow`: a cluster that plans a day and then ends."""
    # Python is set here: `spark-defaults` or `spark-env` in "Configurations" would replace the values of the client.
    submit = ["spark-submit", "--deploy-mode", "client", "--conf", "spark.pyspark.python=/usr/bin/python3.12"]
    submit += ["--conf", f"spark.executorEnv.AWS_REGION={REGION}"]
    job = [f"{JOBS}/job.py", "/etc/retention/retention.yaml", REPOSITORY, day, "s3", REGION]
    return {
        "Name": f"retention of {REPOSITORY}, {day}",
        "ReleaseLabel": RELEASE,
        "Applications": [{"Name": "Spark"}],
        "LogUri": f"{JOBS}/logs",
        "JobFlowRole": "EMR_EC2_DefaultRole",
        "ServiceRole": "EMR_DefaultRole",
        "Instances": {
            "MasterInstanceType": "m7g.xlarge",
            "SlaveInstanceType": "m7g.xlarge",
            "InstanceCount": 3,
            "KeepJobFlowAliveWhenNoSteps": False,
        },
        "BootstrapActions": [{"Name": "retention", "ScriptBootstrapAction": {"Path": f"{JOBS}/bootstrap.sh"}}],
        "Steps": [
            {
                "Name": "plan",
                "ActionOnFailure": "TERMINATE_CLUSTER",
                "HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*submit, *job]},
            }
        ],
    }


class PatientEMR:
    """boto3's client for EMR, with waiters that wait as long as LONGEST. Those of boto3 give up after 30 minutes."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_waiter(self, name: str) -> Any:
        """Return a waiter of boto3 that makes more attempts."""
        waiter = self._client.get_waiter(name)
        waiter.config.max_attempts = LONGEST // waiter.config.delay
        return waiter


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def orchard_plan(context: dg.AssetExecutionContext, emr: PipesEMRClient) -> dg.MaterializeResult:
    """The plan of the day: which objects of the repository may be deleted."""
    ended = emr.run(context=context, run_job_flow_params=cluster(context.partition_key))
    return ended.get_materialize_result(implicit_materialization=False)


@dg.definitions
def defs() -> dg.Definitions:
    """Return the asset with its client. The job writes its messages to S3, so the client reads them there."""
    messages = PipesS3MessageReader(bucket=MESSAGES, client=boto3.client("s3"), include_stdio_in_messages=True)
    emr = PipesEMRClient(messages, PatientEMR(boto3.client("emr")))
    return dg.Definitions(assets=[orchard_plan], resources={"emr": emr})
