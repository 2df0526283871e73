"""Compares a plan with two executors and a plan with one, on a standalone Spark cluster on this machine.

Each executor has one core. The driver needs a core too, so a fair figure needs three free cores. The seconds are those
of the command in a process of its own. Each plan begins with an empty warehouse. A first plan is not counted: it
compiles functions, and reads files that are not in the memory of the operating system yet. With fewer entries, the
fixed time of a plan hides the executors.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from plan import configure, empty_warehouse, rolling_lake, run_plan

from tests.end_to_end.clusters import standalone


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--entries", type=int, default=3_000_000)
    arguments = parser.parse_args()
    seconds = {}
    with tempfile.TemporaryDirectory() as directory:
        lake, days = rolling_lake(Path(directory), arguments.entries)
        with standalone(Path(directory)) as cluster:
            for executors in (2, 1, 2):  # the first plan is not counted
                empty_warehouse(lake)
                configure(lake, days, {**cluster, "spark.executor.cores": 1, "spark.cores.max": executors})
                seconds[executors] = run_plan(lake).seconds
    figures = {
        "entries": arguments.entries,
        "cores": os.cpu_count(),
        "seconds_1_executor": round(seconds[1], 1),
        "seconds_2_executors": round(seconds[2], 1),
        "speedup_2_executors": round(seconds[1] / seconds[2], 2),
    }
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
