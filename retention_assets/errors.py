"""The errors that this project raises. Each class calls for a different reaction and has an exit code."""

import re
from typing import ClassVar

_NAMED = re.compile(r"retention_assets\.errors\.(\w+): ([^\n]+)")


class RetentionError(Exception):
    """An error that ended the run. The message says where, what is wrong, what was not done, and the remedy."""

    exit_code: ClassVar[int] = 3


class GuardRefused(RetentionError):
    """A guard refused the run; nothing was deleted."""

    exit_code = 1


class ConfigurationError(RetentionError):
    """The configuration or a policy is wrong; nothing was read or deleted."""

    exit_code = 2


class SourceError(RetentionError):
    """A source of references (lakeFS, a dump) returned an error or impossible data."""


class StoreError(RetentionError):
    """An object store denied a request, failed, or did not have the object."""


class ObjectMissing(StoreError):
    """An object that must exist is not in the store."""


class AccessDenied(StoreError):
    """The store or the server rejected the credentials, or the credentials lack a permission."""


class CorruptFile(RetentionError):
    """A file is truncated, altered, renamed or not of its format. It was not used."""


class TableContractError(RetentionError):
    """A table of the warehouse does not exist, lacks columns, or has unexpected columns."""


def error_named_in(trace: str) -> RetentionError | None:
    """Return the error of this project that a worker's traceback (text from Spark) ends with; None if there is none."""
    found = _NAMED.search(trace)
    kind = globals().get(found[1]) if found else None
    return kind(found[2].strip()) if found and kind else None


def own_error(error: Exception) -> RetentionError | None:
    """Return the error of this project: `error` itself, or a worker's error in its text. None for other errors."""
    return error if isinstance(error, RetentionError) else error_named_in(str(error))


def brief(error: Exception) -> str:
    """Return one line for any error: the message of an error of this project, else the type and the first line."""
    own = own_error(error)
    return str(own) if own else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
