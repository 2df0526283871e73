"""Plans orchard through the `retention` command, then asks the executors where they found the package.

Run as a process of its own: `python cluster_driver.py CONFIGURATION DAY`. Prints one JSON document.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from retention_assets.cli.main import main

_TASKS = 8
SECRET = "LAKE_SECRET"


def _look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import retention_assets

    for _ in batches:
        columns = {
            "file": [retention_assets.__file__],
            "process": [os.getpid()],
            "secret": [os.environ.get(SECRET, "")],
        }
        yield pa.record_batch(pa.table(columns).to_batches()[0].columns, names=list(columns))


def _run(*arguments: str) -> tuple[int, str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue()
    raise AssertionError("the command always ends by leaving")


if __name__ == "__main__":
    common = ("--config", sys.argv[1])
    status, _ = _run(*common, "plan", "orchard", "--as-of", sys.argv[2])
    if status:
        sys.exit(status)
    shown = _run(*common, "show", "orchard", "deletion_candidates", "--as-of", sys.argv[2], "--format", "json")[1]
    spark = SparkSession.active()
    seen = spark.range(_TASKS, numPartitions=_TASKS).mapInArrow(_look, "file string, process long, secret string")
    executors = [row.asDict() for row in seen.distinct().collect()]
    json.dump({"candidates": json.loads(shown), "executors": executors, "driver": os.getpid()}, sys.stdout)
