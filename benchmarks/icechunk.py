"""Compares a plan with icechunk's own `garbage_collect(dry_run=True)`, on the same files in the same run.

Our plan is the complete job: listing, history, manifests, chunks, guards, tables. The session is warm. Its start and
the plan of an almost empty repository (the fixed cost) are printed too. Neither side starts with anything cached.
Memory is the peak of each process (Linux's VmHWM): of the Python driver, whose JVM has a fixed heap of 1 GB, and of
icechunk, whose peak depends on `max_snapshots_in_memory` and on the number of ids. Both must find the same number of
files to delete.

`ratio_to_icechunk` is our time beyond the fixed cost over icechunk's time. With `--directory`, the repository is kept,
and the next run with the same directory uses it again.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from retention_assets.assets.resources import session, spark_resource
from retention_assets.cli.main import cli
from retention_assets.config.configuration import load_configuration

sys.path = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
import icechunk as ic  # noqa: E402  # without the line above, this file would be imported
import zarr  # noqa: E402  # imports icechunk too

ic.set_logs_filter("error")
_KINDS = ("snapshots", "transaction_logs", "manifests", "chunks")


@dataclass(frozen=True, slots=True)
class Grown:
    """A repository whose older half of snapshots is already expired, so that only files are left to collect."""

    directory: Path
    snapshots: int
    chunks: int  # of all snapshots together


def opened(directory: Path) -> ic.Repository:
    """Open the repository as icechunk does by default."""
    return ic.Repository.open(ic.local_filesystem_storage(str(directory)))


def grow(directory: Path, snapshots: int, per_snapshot: int) -> Grown:
    """Make `snapshots` snapshots of `per_snapshot` chunks each, and expire the older half."""
    config = ic.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 0
    repository = ic.Repository.create(ic.local_filesystem_storage(str(directory)), config=config)
    plain: dict[str, Any] = {"chunks": (1,), "dtype": "i4", "compressors": None, "filters": None}
    halfway: datetime | None = None
    for number in range(1, snapshots + 1):
        session = repository.writable_session("main")
        if number == 1:
            array: Any = zarr.create_array(session.store, name="a", shape=(per_snapshot,), **plain)
        else:
            array = zarr.open_array(session.store, path="a", mode="r+")
        array[:] = number
        session.commit(f"{number}")
        if number == (snapshots + 1) // 2:
            halfway = next(iter(repository.ancestry(branch="main"))).written_at
    assert halfway is not None
    opened(directory).expire_snapshots(halfway)
    return Grown(directory, snapshots, snapshots * per_snapshot)


def grown_in(directory: Path, snapshots: int, per_snapshot: int) -> Grown:
    """Return the repositories in `directory`. Make them, or remove the plans of the run that made them."""
    made = directory / "grown.json"
    if made.is_file():
        shutil.rmtree(directory / "warehouse", ignore_errors=True)
    else:
        directory.mkdir(parents=True, exist_ok=True)
        grown = grow(directory / "large", snapshots, per_snapshot)
        grow(directory / "small", 4, 4)
        write_configuration(directory)
        made.write_text(json.dumps({"snapshots": grown.snapshots, "chunks": grown.chunks}), encoding="utf-8")
        time.sleep(1)  # so that the youngest file is older than a grace period of zero
    return Grown(directory / "large", **json.loads(made.read_text(encoding="utf-8")))


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one search for garbage, the files found, and the peak of the process in MiB."""

    seconds: float
    found: int
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Ours:
    """A plan in a warm session, the seconds of the session's start, and of the plan of an almost empty repository."""

    plan: Measured
    session_seconds: float
    fixed_seconds: float


def peak_mib() -> float:
    """Return the peak memory of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def theirs(directory: Path, in_memory: int) -> Measured:
    """Measure the dry run of icechunk's garbage collection."""
    repository = opened(directory)
    started = time.perf_counter()
    found = repository.garbage_collect(datetime.now(UTC), dry_run=True, max_snapshots_in_memory=in_memory)
    seconds = time.perf_counter() - started
    return Measured(seconds, sum(getattr(found, f"{kind}_deleted") for kind in _KINDS), peak_mib())


def ours(directory: Path) -> Ours:
    """Plan the small repository, then the large one, in one session."""
    file = directory / "retention.yaml"
    started = time.perf_counter()
    session(spark_resource(load_configuration(file).spark)).range(1).count()
    began = time.perf_counter()
    planned(directory, "small")
    again = time.perf_counter()
    planned(directory, "small")
    fixed = time.perf_counter() - again
    large = time.perf_counter()
    found = planned(directory, "large")
    ended = time.perf_counter()
    return Ours(Measured(ended - large, found, peak_mib()), began - started, fixed)


def planned(directory: Path, name: str) -> int:
    """Plan one repository with the command, and return the number of files that may be deleted."""
    configuration = str(directory / "retention.yaml")
    cli.main(args=["--config", configuration, "plan", name], standalone_mode=False)
    (plan,) = (directory / "warehouse" / name / "plans").glob("*/current.json")
    found: int = json.loads(plan.read_text(encoding="utf-8"))["candidates"]["objects"]
    return found


def write_configuration(directory: Path) -> None:
    """Write the configuration of both repositories, whose histories have expired already."""
    (directory / "policy.yaml").write_text("snapshots: {default: {keep_newer: forever}}\n", encoding="utf-8")
    repository = {"kind": "icechunk", "policy": "policy.yaml", "grace": "0s"}
    document = {
        "warehouse": "warehouse",
        "spark": {"spark.driver.memory": "1g"},
        "repositories": {name: {**repository, "storage": name} for name in ("small", "large")},
    }
    (directory / "retention.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def in_its_own_process(*arguments: str) -> dict[str, object]:
    """Run a part of this benchmark, and return what it printed last."""
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    document: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return document


def compared(directory: Path, grown: Grown, in_memory: tuple[int, int]) -> tuple[Ours, list[Measured]]:
    """Return the measurements of both. Errors: SystemExit if they find different numbers of files."""
    dry_runs = [Measured(**in_its_own_process("--theirs", str(grown.directory), str(most))) for most in in_memory]  # type: ignore[arg-type]
    document = in_its_own_process("--ours", str(directory))
    mine = Ours(Measured(**document.pop("plan")), **document)  # type: ignore[arg-type]
    if {mine.plan.found} != {one.found for one in dry_runs}:
        raise SystemExit(f"we found {mine.plan.found:,} files, icechunk {[one.found for one in dry_runs]}")
    return mine, dry_runs


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--snapshots", type=int, default=2_000)
    parser.add_argument("--chunks", type=int, default=500, help="of each snapshot")
    parser.add_argument("--in-memory", type=int, nargs=2, default=[50, 1_000], help="max_snapshots_in_memory")
    parser.add_argument(
        "--directory",
        type=Path,
        help="keep the repository in this directory, or use the repository that is already there",
    )
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--theirs", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ours:
        print(json.dumps(asdict(ours(arguments.ours))))
        return
    if arguments.theirs:
        print(json.dumps(asdict(theirs(Path(arguments.theirs[0]), int(arguments.theirs[1])))))
        return
    with contextlib.ExitStack() as stack:
        directory = arguments.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        grown = grown_in(directory, arguments.snapshots, arguments.chunks)
        mine, dry_runs = compared(directory, grown, tuple(arguments.in_memory))
    figures = {
        "chunks": grown.chunks,
        "snapshots": grown.snapshots,
        "ratio_to_icechunk": round((mine.plan.seconds - mine.fixed_seconds) / dry_runs[0].seconds, 2),
        "seconds": round(mine.plan.seconds, 1),
        "icechunk_seconds": round(dry_runs[0].seconds, 1),
        "fixed_seconds": round(mine.fixed_seconds, 1),
        "session_seconds": round(mine.session_seconds, 1),
        "peak_mib": round(mine.plan.peak_mib),
        "icechunk_peak_mib": [round(one.peak_mib) for one in dry_runs],
    }
    if arguments.json:
        print(json.dumps(figures))
        return
    table = Table(
        title=f"{grown.chunks:,} chunks, {grown.snapshots:,} snapshots, {mine.plan.found:,} files may be deleted"
    )
    for column in ("", "seconds", "peak"):
        table.add_column(column, justify="right" if column else "left")
    for most, one in zip(arguments.in_memory, dry_runs, strict=True):
        table.add_row(f"icechunk, {most:,} snapshots in memory", f"{one.seconds:.1f}", f"{one.peak_mib:,.0f} MiB")
    table.add_row("retention plan, warm", f"{mine.plan.seconds:.1f}", f"{mine.plan.peak_mib:,.0f} MiB")
    Console().print(table)
    print(
        f"ratio_to_icechunk {figures['ratio_to_icechunk']} beyond the fixed cost; the goal is 1.5 at a million chunks"
    )
    print(f"fixed cost {figures['fixed_seconds']} s, start of the session {figures['session_seconds']} s")


if __name__ == "__main__":
    main()
