"""The root command, and the options, output functions and progress line that the commands share."""

import codecs
import errno
import json
import os
import re
import select
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from retention_assets.config.configuration import Configuration, Repository, load_configuration
from retention_assets.config.durations import LONGEST, parse_positive_duration
from retention_assets.config.timestamps import require_day, utc_now
from retention_assets.errors import ConfigurationError, RetentionError
from retention_assets.tables import STORAGE_INVENTORY
from retention_assets.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from retention_assets.cli.runs import FinishedRun

Command = TypeVar("Command", bound=Callable[..., object])
Clock = Callable[[], float]  # seconds
# Options that print a text unchanged: a path may contain text that looks like markup, or like the code of an emoji.
AS_IT_IS: Any = {"soft_wrap": True, "highlight": False, "markup": False, "emoji": False}

# A command in a message. Commands that already have `--config`, and names of modules, do not match.
_COMMAND = re.compile(r"`retention (?=[a-z])")

_MOST_COUNTED = 10_000  # files: counting more could take seconds on a network file system
_HERE = Path("retention.yaml")  # the configuration in the working directory
_ABORTED, BROKEN_PIPE = 130, 141  # as a shell reports a command that SIGINT or SIGPIPE ended
_GOES_ON = "What was done until now is in the ledger. To do the rest, run the same command again."
_AFTER_INTERRUPT = {
    "plan": "Nothing was deleted.",
    "verify": "Nothing was changed.",
    "sweep": _GOES_ON,
    "purge": _GOES_ON,
    "restore": _GOES_ON,
}

progress = Console(stderr=True)  # progress and logs; results go to standard output
screen = Console()


@contextmanager
def _statuses() -> Iterator[None]:
    """Exit with 130 or 141 where click and rich exit with 1, because here 1 means that the command was refused."""
    try:
        yield
    except (click.Abort, KeyboardInterrupt) as ended:
        click.echo(f"\n{_ending(ended)}", err=True)
        raise click.exceptions.Exit(_ABORTED) from None
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich changes a BrokenPipeError into a SystemExit
            raise click.exceptions.Exit(BROKEN_PIPE) from None
        raise
    except BrokenPipeError as error:
        if drop_output():
            raise click.exceptions.Exit(BROKEN_PIPE) from None
        raise ConnectionError(str(error)) from error  # not the output: a store or Spark closed a connection
    except EOFError as error:  # Java ended, but click would conclude that the user ended the input
        raise ConnectionError("Spark's Java process ended before it had sent its whole response") from error


def _ending(ended: BaseException) -> str:
    """Return the message after Ctrl-C, or after a person answered a question with no."""
    if isinstance(ended, click.Abort):
        return "Aborted!"
    context = click.get_current_context(silent=True)
    return f"Interrupted. {_AFTER_INTERRUPT.get(context.invoked_subcommand or '', '') if context else ''}".rstrip()


def drop_output() -> bool:
    """Drop the rest of standard output and of standard error if nobody reads it, or its disk is full.

    Return whether something was dropped.
    """
    broken = [stream for stream in (sys.stdout, sys.stderr) if stream is not None and _is_broken(stream)]
    for stream in broken:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python writes the rest when it ends
    return bool(broken)


def _is_broken(stream: TextIO) -> bool:
    try:
        number = stream.fileno()
        stream.flush()
    except BrokenPipeError:
        return True
    except OSError as error:  # the disk is full, or the stream is not a file, as in tests
        return error.errno == errno.ENOSPC
    poll = select.poll()  # `flush` succeeds if an earlier write failed and left nothing in the buffer
    poll.register(number, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


class _Commands(click.Group):
    """The group of all commands. Its own options, such as `--config`, come before the name of the command."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        with _statuses():
            return super().make_context(*arguments, **more)

    def invoke(self, context: click.Context) -> Any:
        try:
            with _statuses():
                return super().invoke(context)
        except click.NoSuchOption as error:
            if error.option_name != "--config" or error.ctx is None:
                raise
            command = error.ctx.command_path.removeprefix(f"{context.command_path} ")
            hint = f"{error.message} Write it before the command: retention --config FILE {command} …"
            raise click.NoSuchOption(error.option_name, hint, ctx=error.ctx) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="The configuration file. Default: the file that the environment variable RETENTION_CONFIG names, else "
    "./retention.yaml, else the configuration of the demo.",
)
@click.version_option(package_name="retention-assets", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, file: Path | None) -> None:
    """Find objects of versioned data lakes that no version needs, delete them after approval, and verify the result."""
    context.obj = file


# ---- the configuration, and arguments and options of several commands


def configuration_of(context: click.Context) -> Configuration:
    """Return the configuration in the file that `configuration_file` returns. For the demo, print a note."""
    file = configuration_file(context.obj)
    if _is_of_demo(context.obj) and not context.resilient_parsing:  # a shell that completes words shows no note
        reason = "no --config, no RETENTION_CONFIG, and no retention.yaml in this directory"
        progress.print(f"note: this is the demo, {file}, because there is {reason}.", **AS_IT_IS)
    return load_configuration(file)


def configuration_file(given: Path | None) -> Path:
    """Return the path of the configuration: `given`, else RETENTION_CONFIG, else ./retention.yaml, else the demo's."""
    from retention_assets.demo.sample import demo_configuration

    return demo_configuration() if _is_of_demo(given) else Path(given or os.environ.get("RETENTION_CONFIG") or _HERE)


def _is_of_demo(given: Path | None) -> bool:
    # A link to a missing file is an error, and not a reason for the demo.
    return not (given or os.environ.get("RETENTION_CONFIG") or _HERE.is_file() or _HERE.is_symlink())


class RepositoryName(click.ParamType):
    """The name of a repository, which is not checked. Shells complete it with the names in the configuration."""

    name = "repository"

    def shell_complete(self, context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the repositories whose names begin with `incomplete`; none if the configuration has an error."""
        try:
            names = load_configuration(configuration_file(context.find_root().params.get("file"))).repositories
        except RetentionError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Target:
    """The repository of a command, with the configuration that contains it."""

    configuration: Configuration
    repository: Repository

    @property
    def name(self) -> str:
        """The name of the repository."""
        return self.repository.name

    @property
    def warehouse(self) -> Warehouse:
        """The warehouse with the tables of the repository."""
        return Warehouse(self.configuration.warehouse)


class _TargetType(RepositoryName):
    """The name of a configured repository, as a `Target`. Errors: ConfigurationError for an unknown name."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Target:
        assert context is not None
        configuration = configuration_of(context)
        return Target(configuration, configuration.repository(value))


class _Day(click.DateTime):
    """A day as YYYY-MM-DD."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d"])

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        try:
            day = super().convert(value, param, context) if isinstance(value, str) else value
        except click.BadParameter:
            self.fail(f"{value!r} is not a day. Write YYYY-MM-DD, such as 2026-11-01.", param, context)
        return day.date() if isinstance(day, datetime) else day


class Duration(click.ParamType):
    """A positive duration with its unit. Errors: ConfigurationError that names the option."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> timedelta:
        """See `click.ParamType`."""
        try:
            return parse_positive_duration(value, LONGEST)
        except ConfigurationError as error:
            assert param is not None
            raise ConfigurationError(f"{param.opts[0]}: {error}") from error


target_argument = click.argument("target", metavar="REPOSITORY", type=_TargetType())
name_argument = click.argument("repository", type=RepositoryName())
optional_name_argument = click.argument("repository", required=False, type=RepositoryName())
names_argument = click.argument("repositories", nargs=-1, type=RepositoryName())

every_option = click.option("--all", "every", is_flag=True, help="All repositories of the configuration.")


def targets_of(context: click.Context, names: Sequence[str], *, every: bool) -> list[Target]:
    """Return the repositories with these names, each once; `every`: all repositories of the configuration.

    Errors: UsageError if no repository is named, or if names are given with `every`; ConfigurationError for an unknown
    name.
    """
    if every == bool(names):
        raise click.UsageError("Name one or more repositories, or choose all of them with --all.", context)
    configuration = configuration_of(context)
    chosen = list(configuration.repositories) if every else dict.fromkeys(names)
    return [Target(configuration, configuration.repository(name)) for name in chosen]


def for_each(targets: Sequence[Target], do: Callable[[Target, Sequence[str]], None], show: Callable[[], None]) -> None:
    """Call `do` for each repository, then `show` what was done, also if a person ends the command.

    `do` also gets the `beside` of `run_job`: all names for the first repository, because its run starts Java. After an
    error of one repository, the command goes on with the others, unless Java has ended. Errors: the first one.
    """
    errors = list[RetentionError]()
    try:
        for number, target in enumerate(targets, start=1):
            try:
                do(target, [one.name for one in targets] if number == 1 else [target.name])
            except RetentionError as error:
                from retention_assets.spark.sessions import java_ended  # this import takes half a second

                if len(targets) > 1 and target.name not in str(error):
                    error.args = (f"{target.name}: {error}",)
                errors.append(error)
                if java_ended() and (rest := targets[number:]):
                    names = " ".join(later.name for later in rest)
                    warn(f"Java has ended. The command did not begin with {names}: run it again for them.")
                    break
    except KeyboardInterrupt:
        for one in errors:
            warn(f"error: {one}")
        raise
    finally:
        show()
    raise_first(errors)


def raise_first(errors: Sequence[RetentionError]) -> None:
    """Print the errors of single repositories but the first, and raise the first. The command went on after each."""
    if errors:
        first, *others = errors
        for other in others:
            warn(f"error: {other}")
        raise first


def today() -> date:
    """Return the current day, UTC."""
    return utc_now().date()


def day_option(text: str, default: Callable[[], date] | None = None) -> Callable[[Command], Command]:
    """Return the option `--as-of` with this help."""
    return click.option("--as-of", "day", metavar="YYYY-MM-DD", type=_Day(), default=default, help=text)


as_of = day_option("The day of the plan, in UTC. Default: today.", today)
other_policy = click.option(
    "--policy",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file of the other policy. Repeat the option for each file of the policy.",
)


def policy_options(files: Sequence[Path]) -> str:
    """Return `--policy FILE` for each of the files, quoted for a shell."""
    return " ".join(f"--policy {shlex.quote(str(file))}" for file in files)


as_json = click.option("--json", "json_wanted", is_flag=True, help="Print one JSON document.")


def run_job(
    configuration: Configuration,
    repository: str,
    job: str,
    day: date,
    tags: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
) -> "FinishedRun":
    """Return the result of `runs.run_job`. Errors: as `runs.run_job`.

    `beside`: all repositories that this process works on, if there are several: settings of Java depend on their sizes.
    """
    from retention_assets.spark.sessions import start_early

    require_day(day.isoformat(), "--as-of")  # before Spark and Dagster, which take seconds
    listed = [_objects_of(configuration, one) for one in beside or [repository]]
    start_early(configuration.spark, sum(listed) if all(listed) else 0)  # while Dagster is imported: both are slow
    from retention_assets.cli import runs

    return runs.run_job(configuration, repository, job, day, progress, tags)


def _objects_of(configuration: Configuration, repository: str) -> int:
    """Return how many objects were last listed, or how many files a small local repository has; 0: it is not known."""
    warehouse = Warehouse(configuration.warehouse)
    if not warehouse.is_local:
        return 0
    if listed := warehouse.newest_rows(repository, STORAGE_INVENTORY.name):
        return listed
    storage = configuration.repository(repository).storage
    return _files_below(Path(storage.removeprefix("file://"))) if storage.startswith("file://") else 0


def _files_below(directory: Path) -> int:
    """Return the number of files below a local directory; 0 if they are more than `_MOST_COUNTED`."""
    files = sum(1 for _ in islice((name for _, _, names in os.walk(directory) for name in names), _MOST_COUNTED + 1))
    return files if files <= _MOST_COUNTED else 0


def examples(*commands: str, more: str = "") -> str:
    """Return the end of a command's help: one line for each example, then the paragraph `more`."""
    lines = "\n".join(f"  {command}" for command in commands)
    return f"\b\nExamples:\n{lines}\n\n{more}"


NAME_OF_PERSON = (
    "The command stores your name: the value of the environment variable RETENTION_APPROVER, else user@host."
)


# ---- output


def say(text: str, style: str = "") -> None:
    """Print a text on standard output. The commands in it have `--config` if the command was called with it."""
    screen.print(with_given(text), style=style, **AS_IT_IS)


def warn(text: str) -> None:
    """Print a warning on standard error. The commands in it have `--config` if the command was called with it."""
    progress.print(with_given(text), style="yellow", **AS_IT_IS)


def log_line(line: str) -> None:
    """Print a log line on standard error, unchanged."""
    progress.print(line, style="dim", **AS_IT_IS)


def has_all_characters() -> bool:
    """Return whether the encoding of standard output has all characters, as UTF-8 has. Some terminals use others."""
    encoding = getattr(sys.stdout, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name.startswith("utf")


def escape_unknown_characters() -> None:
    """Print escapes for characters that the encoding of the output does not have, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def json_text(document: object, default: Callable[[Any], str] | None = None) -> str:
    """Return a JSON document. `default`: as in `json.dumps`.

    If the encoding of standard output does not have all characters, the document has JSON's own escapes.
    """
    return json.dumps(document, default=default, indent=2, ensure_ascii=not has_all_characters())


def print_json(document: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(json_text(document))


def print_result(document: object, text: str, *, json_wanted: bool) -> None:
    """Print the result of a command on standard output, as one JSON document or as a text."""
    if json_wanted:
        print_json(document)
    else:
        say(text)


def program() -> str:
    """Return the text that calls `retention` again: its name or path, with `--config` if it was given."""
    return program_with(_given())


def program_with(file: Path | str | None) -> str:
    """Return the text that calls `retention` with the configuration `file`; None: without `--config`."""
    called = "retention" if shutil.which("retention") else shlex.quote(os.path.relpath(sys.argv[0]))
    return f"{called} --config {shlex.quote(str(file))}" if file else called


def _given() -> Path | None:
    context = click.get_current_context(silent=True)
    return context.obj if context else None


def with_given(text: str) -> str:
    """Return the text; the commands in it have `--config` if the command was called with it."""
    return with_configuration(text, _given())


def with_configuration(message: str, file: Path | str | None) -> str:
    """Return the message in which each command calls `retention` with the configuration `file`.

    A command is a text between backquotes that begins with `retention `. None: the message is unchanged.
    """
    return _COMMAND.sub(lambda _: f"`retention --config {shlex.quote(str(file))} ", message) if file else message


def with_demo(message: str, given: Path | None) -> str:
    """Return the message, with a further remedy if it is about a file of the demo that does not exist yet.

    `given`: the value of `--config`.
    """
    from retention_assets.demo.sample import demo_configuration

    file = configuration_file(given).absolute()
    if file != demo_configuration().absolute():
        return message
    made = {file}
    with suppress(RetentionError):
        storages = (one.storage for one in load_configuration(file).repositories.values())
        made |= {Path(one.removeprefix("file://")) for one in storages}
    if any(str(one) in message and not one.exists() for one in made):
        return f"{message} This is the demo, which is not in place yet: put it in place with `retention demo`."
    return message


# ---- the progress line, which only a terminal gets


class Work:
    """A line with the current work and, if they are known, the number of completed parts and the time left."""

    def __init__(self, what: str, total: int | None = None, clock: Clock = time.monotonic) -> None:
        self.what = what
        self._total, self._done = total, 0
        self._clock, self._began = clock, clock()

    def count(self, done: int = 1) -> None:
        """Add completed parts."""
        self._done += done

    def __rich__(self) -> Text:
        """Return the line. rich calls this several times a second, so the time left goes down."""
        left = self._left()
        parts = [self.what, self._amount(), "" if left is None else f"about {left:,.0f} s left"]
        return Text(", ".join(filter(None, parts)))

    def _amount(self) -> str:
        return "" if self._total is None else f"{self._done:,} of {self._total:,}"

    def _left(self) -> float | None:
        if not self._total or not 0 < self._done < self._total:
            return None
        return (self._clock() - self._began) / self._done * (self._total - self._done)


class Steps(Work):
    """A line with the current step of a run. The time left is the time that the remaining steps took in an earlier run.

    `seconds`: how long each step took in that run, by its key; empty: there is no such run.
    """

    def __init__(self, what: str, seconds: Mapping[str, float], clock: Clock = time.monotonic) -> None:
        super().__init__(f"{what}: starting", clock=clock)
        self._run, self._seconds = what, seconds
        self._remaining: set[str] = set()
        self._current: str | None = None

    def expect(self, steps: set[str]) -> None:
        """Set the keys of all steps of the run."""
        self._remaining, self._total = set(steps), len(steps)

    def begin(self, step: str) -> None:
        """Show the step that begins. The previous step has ended."""
        self._current, self._began = step, self._clock()
        self._remaining.discard(step)
        self.what = f"{self._run}: {step.rpartition('__')[2]}"

    def _amount(self) -> str:
        return f"step {self._total - len(self._remaining)} of {self._total}" if self._current and self._total else ""

    def _left(self) -> float | None:
        if self._current is None or not self._seconds.keys() >= {self._current, *self._remaining}:
            return None
        current = self._seconds[self._current] - (self._clock() - self._began)
        return max(current, 0.0) + sum(self._seconds[step] for step in self._remaining)


@contextmanager
def shown(work: Work, console: Console = progress) -> Iterator[Work]:
    """Show `work` on the terminal until the block ends."""
    with console.status(work):
        yield work


def working(what: str, total: int | None = None) -> AbstractContextManager[Work]:
    """Return a context that shows the current work. `total`: the number of parts that `count` gets."""
    return shown(Work(what, total))
