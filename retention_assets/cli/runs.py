"""Runs Dagster jobs in the process of the command, records the runs for Dagster's UI, and shows progress on stderr."""

import logging
import os
import re
import shlex
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from alembic.util import CommandError
from dagster._cli.workspace.cli_target import workspace_opts_to_load_target
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator
from dagster._core.instance.ref import InstanceRef
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.utils import make_new_run_id
from dagster_shared.cli import WorkspaceOpts
from filelock import FileLock
from rich.console import Console
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from retention_assets.assets.runs import failure_of, was_interrupted
from retention_assets.cli.group import AS_IT_IS, Steps, shown
from retention_assets.config.configuration import Configuration
from retention_assets.config.folders import writable_folder
from retention_assets.config.timestamps import require_day
from retention_assets.definitions import build_definitions
from retention_assets.errors import ConfigurationError, brief
from retention_assets.spark.sessions import started
from retention_assets.warehouse.warehouse import Warehouse

_PROGRESS = "progress"
_LOCATION = "RETENTION_CODE_LOCATION"  # the environment variable with the name of the runs' code location
_PROCESS = "retention/process"  # the tag of a run with the process of its command
_PROC = Path("/proc")
_ENDED = ("Z", "X")  # states of a process that has ended, but whose parent has not noticed
_LOCK, _SECONDS_TO_OPEN = "retention.lock", 60  # the file that a process locks while it opens Dagster's databases
_MODULE = "retention_assets.definitions"  # `dagster dev -m` gives its code location the same name


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that succeeded."""

    run_id: str
    ui: str  # the command that starts the UI that shows the run


def run_job(
    configuration: Configuration,
    repository: str,
    job: str,
    day: date,
    console: Console,
    tags: Mapping[str, str] | None = None,
) -> FinishedRun:
    """Run a job of a repository for `day`, and return the successful run. `tags`: further tags of the run.

    Errors: the RetentionError that ended the run, or GuardRefused with all failed checks; ConfigurationError if the day
    cannot be planned; KeyboardInterrupt if a person ended the run.
    """
    require_day(day.isoformat(), "--as-of")
    _require_usable_warehouse(configuration)
    with _instance(configuration) as (instance, ui), _shown(instance, job, day, console) as logger:
        end_dead_runs(instance)
        definitions = build_definitions(configuration, names=[repository], loggers={_PROGRESS: logger})
        run, events = _executed(definitions, job, day, instance, tags or {})
    if not run.is_success:
        if was_interrupted(events):
            raise KeyboardInterrupt
        raise failure_of(events, job, run.run_id)
    return FinishedRun(run.run_id, ui)


def _require_usable_warehouse(configuration: Configuration) -> None:
    """Require, before the first step, that the run can write the warehouse and that Spark can read it.

    Errors: as a step that opens the warehouse, and as `Warehouse.require_used_by_spark`.
    """
    warehouse = Warehouse(configuration.warehouse)
    warehouse.write_layout()
    if not warehouse.is_local:
        warehouse.require_used_by_spark(started(configuration.spark))


def _executed(
    definitions: dg.Definitions, name: str, day: date, instance: dg.DagsterInstance, tags: Mapping[str, str]
) -> tuple[dg.DagsterRun, Sequence[dg.DagsterEvent]]:
    """Run a job, and return its finished run with its events.

    The run names its code location. Dagster's timeline and sensors ignore runs that name none, such as the runs of
    `execute_in_process`.
    """
    job = definitions.resolve_job_def(name)
    location = RegisteredCodeLocationOrigin(code_location())
    repository = RemoteRepositoryOrigin(location, definitions.get_repository_def().name)
    run_id = make_new_run_id()
    run = instance.create_run_for_job(
        job,
        run_id=run_id,
        run_config={"loggers": {_PROGRESS: {"config": {}}}},
        tags={
            **job.run_tags,
            **tags,
            **job.get_tags_for_partition_key(day.isoformat(), selected_asset_keys=None),
            **process_tag(run_id),
        },
        remote_job_origin=repository.get_job_origin(name),
    )
    events = list(execute_run_iterator(InMemoryJob(job), run, instance))
    return instance.get_run_by_id(run.run_id) or run, events


def end_dead_runs(instance: dg.DagsterInstance) -> None:
    """Mark runs of earlier commands as failed if their process no longer exists.

    Otherwise Dagster would show them as started, and every queued run with a partition would wait for them.
    """
    here = _process_space()
    running = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING])
    for run in instance.get_runs(running):
        space, _, process = run.tags.get(_PROCESS, "").rpartition("_")
        number, _, rest = process.partition("-")
        started_at, _, run_id = rest.partition("-")
        is_ours = here and space == here and run.run_id == run_id and number.isdigit()
        if is_ours and _has_ended(int(number), started_at):
            instance.report_run_failed(run, "The process of this run ended without a result. It may have been killed.")


def process_tag(run_id: str) -> dict[str, str]:
    """Return the run's tag that identifies this process; empty on systems that do not show processes in `/proc`.

    Processes of other machines and containers can have the same number, and so can a later process. So the tag also has
    the boot of the machine, the process namespace, and the start time of the process. Dagster copies the tags of a run
    to a run that repeats it in another process, so the tag also has the id of the run.
    """
    space, number = _process_space(), os.getpid()
    started_at = _start_of(number)
    return {_PROCESS: f"{space}_{number}-{started_at}-{run_id}"} if space and started_at else {}


def _process_space() -> str:
    """Return the name of the machine's boot and of the process namespace; empty if they are unknown."""
    try:
        boot, namespace = (_PROC / "sys/kernel/random/boot_id").read_text(), (_PROC / "self/ns/pid").readlink().name
    except OSError:
        return ""
    return f"{boot[:13]}_{''.join(filter(str.isdigit, namespace))}"


def _has_ended(number: int, started_at: str) -> bool:
    """Return whether the process that began at `started_at` is gone; False for a process that `/proc` hides."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # a process of another user
        pass
    found = _start_of(number)
    return found is not None and found != started_at


def _start_of(number: int) -> str | None:
    """Return when a process started, in ticks since the boot; empty if it has ended; None if it is not shown."""
    try:
        status = (_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return "" if status[0] in _ENDED else status[19]


def code_location() -> str:
    """Return the name of the code location that the runs belong to, as Dagster's UI shows them.

    This is the value of RETENTION_CODE_LOCATION, or else the only location that `dagster dev` serves in this folder,
    or else the location of `dagster dev -m retention_assets.definitions`.
    """
    return os.environ.get(_LOCATION) or _location_here() or _MODULE


def _location_here() -> str | None:
    """Return the name of the only code location that `dagster dev` serves in this folder."""
    try:
        origins = workspace_opts_to_load_target(WorkspaceOpts()).create_origins()
    except Exception:  # there is no Dagster project, or it has an error; a run does not need a project
        return None
    return origins[0].location_name if len(origins) == 1 else None


def _makes_dev() -> bool:
    """Return whether this folder has a Makefile with the target `dev`, as a checkout of this project has."""
    makefile = Path("Makefile")
    return makefile.is_file() and re.search(r"^dev\s*:", makefile.read_text(errors="replace"), re.MULTILINE) is not None


@contextmanager
def _instance(configuration: Configuration) -> Iterator[tuple[dg.DagsterInstance, str]]:
    """Yield the Dagster instance that records the run, with the command that starts its UI.

    The instance is in DAGSTER_HOME if this variable is set. Otherwise it is in a folder `.dagster`. If the working
    directory has a `dagster.yaml`, the folder is there. Otherwise the folder is beside the configuration file.
    Errors: ConfigurationError if the folder cannot be written.
    """
    of_file = f"RETENTION_CONFIG={shlex.quote(str(configuration.file))}"
    dagster = "dagster" if shutil.which("dagster") else shlex.quote(str(Path(sys.executable).with_name("dagster")))
    serve = f"{of_file} {dagster} dev" + ("" if _location_here() else f" -m {_MODULE}")
    if home := os.environ.get("DAGSTER_HOME"):
        directory, settings, ui = Path(home), Path(home), serve
    elif Path("dagster.yaml").is_file():
        directory, settings, ui = Path(".dagster"), Path.cwd(), f"{of_file} make dev" if _makes_dev() else serve
    else:
        directory = settings = configuration.file.resolve().parent / ".dagster"
        ui = f"DAGSTER_HOME={shlex.quote(str(directory))} {serve}"
    # Otherwise Dagster prints a page about telemetry, and logs that an optional file is missing.
    logging.getLogger("dagster").setLevel(logging.ERROR)
    quiet = {"telemetry": {"enabled": False}}
    home_of_runs = writable_folder(
        directory.resolve(), "Set the environment variable DAGSTER_HOME to a folder that you can write."
    )
    reference = InstanceRef.from_dir(str(home_of_runs), config_dir=str(settings), overrides=quiet)
    with _opened(reference, home_of_runs) as instance, kept_connections(instance), output_shown_to_the_end(instance):
        yield instance, ui


def _opened(reference: InstanceRef, home: Path) -> dg.DagsterInstance:
    """Open the Dagster instance in `home`, and make its SQLite files if they do not exist yet.

    A lock lets one command after the other do this: two at the same time would damage the new files for good.
    Errors: ConfigurationError if the files cannot be opened or read.
    """
    lock = FileLock(home / _LOCK, timeout=_SECONDS_TO_OPEN)
    try:
        # Goes on without the lock if another process holds it for too long, or if the disk has no locks.
        with suppress(OSError, NotImplementedError):
            lock.acquire()
        instance = dg.DagsterInstance.from_ref(reference)
        with ExitStack() as unless_readable:
            unless_readable.callback(instance.dispose)
            instance.get_runs(limit=1)
            instance.has_asset_key(dg.AssetKey(_PROGRESS))  # reads the index of the event log
            unless_readable.pop_all()
        return instance
    except (CommandError, SQLAlchemyError) as error:
        raise _unusable(home, error) from error
    finally:
        lock.release()


def _unusable(home: Path, error: Exception) -> ConfigurationError:
    """Return the error about Dagster's databases, with another remedy if they are damaged."""
    if isinstance(error, OperationalError) and "no such table" not in str(error):
        return ConfigurationError(
            f"{home}: cannot open Dagster's databases: {brief(error)}. Nothing was read or deleted. Check that no "
            "other process holds their files, that you can write them, and that the disk is not full. If dagster.yaml "
            "names a database server, check that it responds. Then run the same command again."
        )
    return ConfigurationError(
        f"{home}: Dagster's databases are damaged: {brief(error)}. Nothing was read or deleted. End all processes of "
        "Dagster, move the folders `history` and `schedules` away, and run the same command again. Dagster makes new "
        "ones, and no longer shows the earlier runs. Plans, approvals and records are not there, but in the warehouse."
    )


@contextmanager
def _shown(instance: dg.DagsterInstance, job: str, day: date, console: Console) -> Iterator[dg.LoggerDefinition]:
    """Show the steps of a run on the terminal until the block ends. Yields the logger that the run must use."""
    steps = Steps(f"{job} {day}", seconds_of_steps(instance, job) if console.is_terminal else {})
    with shown(steps, console):
        yield progress_logger(steps, console)


def seconds_of_steps(instance: dg.DagsterInstance, job: str) -> dict[str, float]:
    """Return how long each step took in the last run of `job` that succeeded, by its key; empty: no run succeeded."""
    last = instance.get_runs(dg.RunsFilter(job_name=job, statuses=[dg.DagsterRunStatus.SUCCESS]), limit=1)
    steps = [step for run in last for step in instance.get_run_step_stats(run.run_id)]
    return {step.step_key: step.end_time - step.start_time for step in steps if step.end_time and step.start_time}


def progress_logger(steps: Steps, console: Console) -> dg.LoggerDefinition:
    """Return a Dagster logger that shows the current step and prints the assets' log lines."""

    class Progress(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            meta: Mapping[str, Any] = getattr(record, "dagster_meta", {})
            event = meta.get("dagster_event")
            if event is not None and event.event_type_value == "STEP_START":
                steps.begin(str(meta.get("step_key")))
            elif event is None and logging.INFO <= record.levelno < logging.ERROR:  # errors are shown once, at the end
                line = meta.get("orig_message", record.getMessage())
                console.print(line, style="dim", **AS_IT_IS)

    @dg.logger(config_schema={}, description="Progress on the terminal")
    def progress(context: dg.InitLoggerContext) -> logging.Logger:
        if context.job_def is not None:
            steps.expect({node.name for node in context.job_def.nodes})
        logger = logging.Logger(_PROGRESS, logging.DEBUG)  # the event that begins a step has this level
        logger.addHandler(Progress())
        return logger

    return progress


@contextmanager
def kept_connections(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep the connections to the event log until the block ends, if the log is in SQLite.

    Dagster makes an SQLAlchemy engine and opens a file for each of the 400 statements of a plan. When Spark has already
    started, this takes a tenth of the time of a small plan. The wait for the disk after each statement takes as long.
    Without this wait, a power failure can lose the last events of Dagster, but not a record, a ledger or an approval:
    these are in the warehouse.
    """
    log = instance.event_log_storage
    if not isinstance(log, SqliteEventLogStorage):
        yield
        return
    opened, engines = log._connect, dict[str, Engine]()

    def connect(shard: str) -> AbstractContextManager[Connection]:
        if shard in engines:
            return engines[shard].begin()
        limits = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}
        engines[shard] = create_engine(log.conn_string_for_shard(shard), connect_args=limits)
        return opened(shard)  # makes the tables of a new file

    vars(log)["_connect"] = connect
    without_wait = partial(_without_wait)  # a new object: runs of other threads remove only their own
    event.listen(Engine, "connect", without_wait)
    try:
        yield
    finally:
        event.remove(Engine, "connect", without_wait)
        del vars(log)["_connect"]
        for engine in engines.values():
            engine.dispose()


@contextmanager
def output_shown_to_the_end(instance: dg.DagsterInstance) -> Iterator[None]:
    """Let Ctrl-C end only this process, and not the processes of Dagster that write its output to the terminal.

    A terminal sends Ctrl-C to all processes. If they all ended, the last lines of a run would be lost, and tracebacks
    would be printed.
    """
    manager = instance.compute_log_manager
    capture = manager.capture_logs

    @contextmanager
    def capture_logs(log_key: Sequence[str]) -> Iterator[object]:
        with ExitStack() as captured:
            with _without_interrupts():
                context = captured.enter_context(capture(log_key))
            yield context

    vars(manager)["capture_logs"] = capture_logs
    try:
        yield
    finally:
        del vars(manager)["capture_logs"]


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let the block start processes that Ctrl-C does not end, and handle a Ctrl-C for this process only after it.

    A Ctrl-C in the middle of the block would leave a process that nothing ends.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield
        return
    received: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # new processes inherit this
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


def _without_wait(connection: object, _: object) -> None:
    """Let SQLite write without waiting for the disk, if a write-ahead log protects the file from damage."""
    if isinstance(connection, sqlite3.Connection) and connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        connection.execute("PRAGMA synchronous = NORMAL")
