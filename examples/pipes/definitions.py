"""A Dagster project that plans in a submitted Spark job: the driver of Spark runs there, not in Dagster.

`PipesSubprocessClient` starts `spark-submit` on this machine. Elsewhere, another Pipes client starts the same job.
RETENTION_CONFIG names the configuration, SPARK_MASTER the cluster.
"""

import os
from pathlib import Path

import dagster as dg

REPOSITORY = "orchard"
JOB = Path(__file__).with_name("job.py")


@dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
def orchard_plan(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> dg.MaterializeResult:
    """The plan of the day: which objects of the repository may be deleted."""
    master = os.environ.get("SPARK_MASTER", "local[2]")
    job = [str(JOB), os.environ["RETENTION_CONFIG"], REPOSITORY, context.partition_key]
    submitted = pipes.run(command=["spark-submit", "--master", master, *job], context=context)
    return submitted.get_materialize_result()


defs = dg.Definitions(assets=[orchard_plan], resources={"pipes": dg.PipesSubprocessClient()})
