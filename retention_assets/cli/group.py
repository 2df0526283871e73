"""The root command: the configuration, the day, the command to call again, and the consoles for all output."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from rich.console import Console

from retention_assets.config.configuration import Configuration, load_configuration
from retention_assets.config.timestamps import utc_now

if TYPE_CHECKING:
    from retention_assets.cli.runs import FinishedRun

Command = TypeVar("Command", bound=Callable[..., object])
_DAY = click.DateTime(["%Y-%m-%d"])

progress = Console(stderr=True)  # progress and logs; results go to standard output
screen = Console()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--config", "file", type=click.Path(path_type=Path), help="retention.yaml; or set RETENTION_CONFIG.")
@click.pass_context
def cli(context: click.Context, file: Path | None) -> None:
    """Decide what versioned data lakes still keep, show what would go, delete it on approval, prove what was done."""
    context.obj = file


def configuration_of(context: click.Context) -> Configuration:
    """Return the configuration: --config, RETENTION_CONFIG, ./retention.yaml, or else the demo's."""
    from retention_assets.demo.placing import demo_configuration

    here = Path("retention.yaml")
    named = context.obj or os.environ.get("RETENTION_CONFIG") or (here if here.is_file() else demo_configuration())
    return load_configuration(Path(named))


def day_of(given: datetime | None) -> date:
    """Return the day of `--as-of`, by default today, UTC."""
    return given.date() if given else utc_now().date()


def day_option(told: str) -> Callable[[Command], Command]:
    """Return the option `--as-of` with this help."""
    return click.option("--as-of", "given", metavar="YYYY-MM-DD", type=_DAY, help=told)


as_of = day_option("The day that thresholds count from (UTC); default today.")
other_policy = click.option(
    "--policy",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="The whole other policy; once for each of its files.",
)
as_json = click.option("--json", "json_wanted", is_flag=True, help="One JSON document on standard output.")


def run_job(configuration: Configuration, job: str, day: date, tags: Mapping[str, str] | None = None) -> "FinishedRun":
    """Run a job of Dagster, as `runs.run_job`. Java starts while Dagster is imported: each takes seconds."""
    from retention_assets.core.sessions import start_early

    start_early(configuration.spark)
    from retention_assets.cli import runs

    return runs.run_job(configuration, job, day, progress, tags)


def examples(*commands: str, more: str = "") -> str:
    """Return the end of a command's help: examples, each on a line of its own, and a paragraph `more`."""
    lines = "\n".join(f"  {command}" for command in commands)
    return f"\b\nExamples:\n{lines}\n\n{more}"


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def program() -> str:
    """Return the text that calls this command again: its name or path, with `--config` if it was given."""
    called = "retention" if shutil.which("retention") else os.path.relpath(sys.argv[0])
    context = click.get_current_context(silent=True)
    return f"{called} --config {context.obj}" if context and context.obj else called
