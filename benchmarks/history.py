"""Measures time and memory of a plan of few objects with a long history and many branches.

The main branch has a commit every hour. The other branches begin at commits that lie equally far apart, and have one
commit of their own, so half of all branches reach a commit of the main branch on average. Commits share a few
metaranges. The command plans the repository in a process of its own, with a Java heap of 1 GB. The time is compared
with an empty Spark session in the same run.
"""

import argparse
import json
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from lake import TODAY, Lake, commit_record
from plan import EMPTY, Planned, plan_of, seconds_of

_DAYS, _PER_DAY, _WINDOW = 30, 20, 10  # days of objects, objects of a day, days that a commit contains


def planned(directory: Path, commits: int, branches: int) -> Planned:
    """Build a repository with this history and plan it."""
    lake = Lake(directory / f"lake-{commits}-{branches}", _PER_DAY, _WINDOW, raggedness=10)
    lake.directory.mkdir()
    lake.grow(_DAYS)
    begun = TODAY - timedelta(hours=commits)
    forks = {(number + 1) * commits // branches - 1: f"branch-{number:05d}" for number in range(branches - 1)}
    history, head = [], ""
    for number in range(commits):
        at, metarange = begun + timedelta(hours=number), lake.metaranges[number % _DAYS]
        history.append(commit_record(metarange, [head] if head else [], at))
        head = history[-1][0].decode()
        if number in forks:
            history.append(commit_record(metarange, [head], at + timedelta(minutes=1)))
            lake.branches[forks[number]] = history[-1][0].decode()
    lake.branches["main"], lake.commits = head, history
    lake.dump()
    return plan_of(lake, _DAYS)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--commits", type=int, default=30_000)
    parser.add_argument("--branches", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        empty = seconds_of([sys.executable, "-c", EMPTY])
        found = planned(Path(directory), arguments.commits, arguments.branches)
    size = f"{arguments.commits // 1000}k"
    figures = {
        "commits": arguments.commits,
        "branches": arguments.branches,
        "empty_seconds": round(empty, 1),
        f"seconds_{size}": round(found.seconds, 1),
        f"ratio_{size}": round(found.seconds / empty, 2),
        f"python_mib_{size}": round(found.peak_mib),
        f"driver_mib_{size}": round(found.peak_mib + found.java_mib),
    }
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name} {value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
