"""Every error this project raises on purpose: one tree, a class per reaction, each with its exit code."""

import re
from typing import ClassVar

_NAMED = re.compile(r"retention_assets\.errors\.(\w+): ([^\n]+)")


class RetentionError(Exception):
    """Something ended the run. The message says where, what, what was not done, and the remedy."""

    exit_code: ClassVar[int] = 3


class GuardRefused(RetentionError):
    """A guard refused the run; nothing was deleted."""

    exit_code = 1


class ConfigurationError(RetentionError):
    """The configuration or a policy is wrong; nothing was read or deleted."""

    exit_code = 2


class SourceError(RetentionError):
    """A source of references (lakeFS, a dump) answered with an error, or with what cannot be true."""


class StoreError(RetentionError):
    """An object store denied, failed or lacked what was asked for."""


class ObjectMissing(StoreError):
    """An object that must exist is not in the store."""


class AccessDenied(StoreError):
    """The store or the server refused the credentials, or what they may do."""


class CorruptFile(RetentionError):
    """A file is truncated, altered, renamed or not of its format. It was not used."""


class TableContractError(RetentionError):
    """A table of the warehouse lacks columns, has others, or is not there."""


def error_named_in(trace: str) -> RetentionError | None:
    """Return the error of this project that a worker's traceback ends in, which Spark passes on as text; None: none."""
    found = _NAMED.search(trace)
    kind = globals().get(found[1]) if found else None
    return kind(found[2].strip()) if found and kind else None


def own_error(error: Exception) -> RetentionError | None:
    """Return the error of this project that `error` is, or that it passes on from a worker; None: another's."""
    return error if isinstance(error, RetentionError) else error_named_in(str(error))


def brief(error: Exception) -> str:
    """Return one line on any error: its own message where it is one of this project, here or on a worker."""
    own = own_error(error)
    return str(own) if own else f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
