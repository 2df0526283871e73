"""Runs the command `retention`, and prints its completion script for shells.

Exit status:
    0: done.
    1: the command was refused, for example by a guard or because the plan has no approval; or a verification failed.
    2: wrong usage or configuration.
    3: objects failed in a sweep, restore or purge; a source, store or table cannot be read or written; Spark cannot be
        reached; Java ran out of memory; or an unexpected error.
    130: the user pressed Ctrl-C, or answered a question with no.
    141: the program that reads the output, such as `head`, ended.
"""

import errno
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import ShellComplete, get_completion_class

from retention_assets.cli import (  # noqa: F401 - their commands join the group
    comparing,
    icechunk,
    initializing,
    inspecting,
    planning,
    sweeping,
    undoing,
)
from retention_assets.cli.group import (
    AS_IT_IS,
    BROKEN_PIPE,
    cli,
    drop_output,
    escape_unknown_characters,
    examples,
    progress,
    with_configuration,
    with_demo,
)
from retention_assets.errors import RetentionError, own_error

_VARIABLE = "_RETENTION_COMPLETE"  # the environment variable that the script sets to get completions


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. For an error of this project, print the message on standard error and exit with its status.

    For any other error, print the traceback and exit with 3, because 1 would mean that the command was refused.
    """
    escape_unknown_characters()
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="retention", standalone_mode=True)
    except SystemExit as ended:
        try:
            if sys.stdout is not None:  # None: it was closed before the command began
                sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            sys.exit(ended.code or BROKEN_PIPE)
        except OSError as error:
            _print_error(_full_disk(error), arguments)
            sys.exit(RetentionError.exit_code)
        raise
    except Exception as error:
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        own = own_error(error) or _explained(error) or (_full_disk(error) if is_full else None)
        if own is None:
            traceback.print_exc()
            sys.exit(RetentionError.exit_code)
        _print_error(own, arguments)
        sys.exit(own.exit_code)


def _print_error(error: RetentionError, arguments: Sequence[str] | None) -> None:
    given = _given_configuration(arguments)
    message = with_configuration(with_demo(str(error), given), given)
    progress.print(f"error: {message}", style="red", **AS_IT_IS)


def _full_disk(error: Exception) -> RetentionError:
    """Return the error for an output or a file that could not be written. Drop the rest of the output."""
    drop_output()
    return RetentionError(
        f"The output or a file of this machine could not be written: {error}. Free space, or write elsewhere, then run "
        "the same command again."
    )


def _given_configuration(arguments: Sequence[str] | None) -> Path | None:
    """Return the value of `--config`, as it was given; None: it was not given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    file: Path | None = cli.make_context("retention", given, resilient_parsing=True).params.get("file")
    return file


def _explained(error: Exception) -> RetentionError | None:
    if "pyspark" not in sys.modules:  # importing Spark takes seconds
        return None
    from retention_assets.spark.failures import explained_error

    return explained_error(error)


@cli.command(
    short_help="Print the completion script of a shell.",
    epilog=examples(
        'eval "$(retention completion bash)"',
        "retention completion zsh > ~/.zfunc/_retention",
        "retention completion fish > ~/.config/fish/completions/retention.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes the commands and options of `retention` in bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    # The base class's method is called, because the method of the class for bash starts bash to get its version.
    click.echo(ShellComplete.source(kind(cli, {}, "retention", _VARIABLE)))
