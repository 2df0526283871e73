"""Plans a repository in a job that `spark-submit` started, and reports the plan to the Dagster run that waits for it.

Arguments: the configuration, the repository, the day, `s3` if the run reads the job's messages from S3, and the region
of the buckets if the environment of the job has no AWS_REGION.
"""

import json
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import boto3
from dagster_pipes import PipesDefaultMessageWriter, PipesS3MessageWriter, open_dagster_pipes

from retention_assets.cli.main import main


def planned(configuration: str, repository: str, day: str) -> dict[str, Any]:
    """Run `retention plan`, and return the document that it prints. Errors: SystemExit with its status."""
    printed = StringIO()
    with redirect_stdout(printed):
        try:
            main(["--config", configuration, "plan", repository, "--as-of", day, "--json"])
        except SystemExit as ended:
            if ended.code:
                raise
    document: dict[str, Any] = json.loads(printed.getvalue())
    return document


def report(configuration: str, repository: str, day: str, messages: str = "", region: str = "") -> None:
    """Plan, and report the plan to the run that waits for this job."""
    if region:
        os.environ["AWS_REGION"] = region
    writer = PipesS3MessageWriter(boto3.client("s3")) if messages == "s3" else PipesDefaultMessageWriter()
    with open_dagster_pipes(message_writer=writer) as pipes:
        plan = planned(configuration, repository, day)
        candidates = plan["candidates"]
        pipes.report_asset_materialization(
            metadata={"plan_hash": plan["plan_hash"], "objects": candidates["objects"], "bytes": candidates["bytes"]},
            data_version=plan["plan_hash"],
        )


if __name__ == "__main__":
    report(*sys.argv[1:])
