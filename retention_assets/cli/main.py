"""Runs the command `retention`.

Exit status: 0 done, 1 a guard refused, 2 usage or configuration, 3 a source or store failed.
"""

import sys
from collections.abc import Sequence

from retention_assets.cli import (  # noqa: F401 - their commands join the group
    acknowledging,
    comparing,
    completing,
    explaining,
    housekeeping,
    icechunk,
    initializing,
    planning,
    simulating,
    standing,
    sweeping,
    undoing,
)
from retention_assets.cli.group import cli, progress
from retention_assets.cli.rendering import AS_IT_IS
from retention_assets.errors import OutOfMemory, own_error


def _lack_of_memory(error: Exception) -> OutOfMemory | None:
    if "pyspark" not in sys.modules:  # importing Spark takes seconds
        return None
    from retention_assets.core.sessions import lack_of_memory

    return lack_of_memory(error)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command. For an error of this project, print the message on standard error and exit with its status."""
    try:
        cli.main(args=list(arguments) if arguments is not None else None, prog_name="retention", standalone_mode=True)
    except Exception as error:
        own = own_error(error) or _lack_of_memory(error)
        if own is None:
            raise
        progress.print(f"error: {own}", style="red", **AS_IT_IS)
        sys.exit(own.exit_code)
