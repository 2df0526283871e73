"""Runs Dagster jobs from the command line: in this process, recorded for the UI, with progress on stderr."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef
from rich.console import Console
from rich.status import Status

from retention_assets.assets.failures import failure_of
from retention_assets.assets.partitions import daily
from retention_assets.config.configuration import Configuration
from retention_assets.definitions import build_definitions
from retention_assets.errors import ConfigurationError

_PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that succeeded."""

    run_id: str
    ui: str  # the command that starts the UI that shows the run


def run_job(
    configuration: Configuration, job: str, day: date, console: Console, tags: Mapping[str, str] | None = None
) -> FinishedRun:
    """Run `job` for `day`. Errors: the RetentionError that ended the run, or GuardRefused with all failed checks."""
    _require_partition(day)
    with _instance(configuration) as (instance, ui), console.status(f"{job} {day}: starting") as status:
        definitions = build_definitions(configuration, loggers={_PROGRESS: _progress_logger(status, job, day)})
        result = definitions.resolve_job_def(job).execute_in_process(
            instance=instance,
            partition_key=day.isoformat(),
            run_config={"loggers": {_PROGRESS: {"config": {}}}},
            raise_on_error=False,
            tags=tags,
        )
    if not result.success:
        raise failure_of(result.all_events, job, result.run_id)
    return FinishedRun(result.run_id, ui)


def _require_partition(day: date) -> None:
    if not daily.has_partition_key(day.isoformat()):
        raise ConfigurationError(
            f"--as-of {day}: is not a day that can be planned: from {daily.get_first_partition_key()} to today (UTC)"
        )


@contextmanager
def _instance(configuration: Configuration) -> Iterator[tuple[dg.DagsterInstance, str]]:
    """Yield the Dagster instance that records the run, with the command that starts its UI.

    The instance is that of DAGSTER_HOME, that of this project, or one beside the configuration file.
    """
    serve = f"RETENTION_CONFIG={configuration.file} dagster dev -m retention_assets.definitions"
    if home := os.environ.get("DAGSTER_HOME"):
        directory, settings, ui = Path(home), Path(home), serve
    elif Path("dagster.yaml").is_file():
        directory, settings, ui = Path(".dagster"), Path.cwd(), f"RETENTION_CONFIG={configuration.file} make dev"
    else:
        directory = settings = configuration.file.parent / ".dagster"
        ui = f"DAGSTER_HOME={directory} {serve}"
    # Without these settings, Dagster prints a page about telemetry, and a log line asks for an optional file.
    logging.getLogger("dagster").setLevel(logging.ERROR)
    quiet = {"telemetry": {"enabled": False}}
    reference = InstanceRef.from_dir(str(_made(directory)), config_dir=str(settings), overrides=quiet)
    with dg.DagsterInstance.from_ref(reference) as instance:
        yield instance, ui


def _made(directory: Path) -> Path:
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _progress_logger(status: Status, job: str, day: date) -> dg.LoggerDefinition:
    """Return a Dagster logger that shows the current step on the status line and prints the assets' log lines."""

    class Progress(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            meta: Mapping[str, Any] = getattr(record, "dagster_meta", {})
            step = (meta.get("step_key") or "").rpartition("__")[2]
            event = meta.get("dagster_event")
            if event is not None and event.event_type_value == "STEP_START":
                status.update(f"{job} {day}: {step}")
            elif event is None and logging.INFO <= record.levelno < logging.ERROR:  # errors are shown once, at the end
                told = meta.get("orig_message", record.getMessage())
                status.console.print(told, style="dim", soft_wrap=True, highlight=False, markup=False)

    @dg.logger(config_schema={}, description="Progress on the terminal")
    def progress(_: dg.InitLoggerContext) -> logging.Logger:
        logger = logging.Logger(_PROGRESS, logging.INFO)
        logger.addHandler(Progress())
        return logger

    return progress
