"""Plans a repository in a job that `spark-submit` started, and reports the plan to the Dagster run that waits for it.

Arguments: the configuration, the repository, and the day.
"""

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from dagster_pipes import open_dagster_pipes

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


if __name__ == "__main__":
    with open_dagster_pipes() as pipes:
        plan = planned(*sys.argv[1:])
        candidates = plan["candidates"]
        pipes.report_asset_materialization(
            metadata={"plan_hash": plan["plan_hash"], "objects": candidates["objects"], "bytes": candidates["bytes"]},
            data_version=plan["plan_hash"],
        )
