"""The errors that this project raises. Each class calls for a different reaction and has an exit code."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

_MARK = "error of retention_assets: "  # the JSON of a `WorkerError` follows
_REPLACED_FILES = ("repo", "ref.json")  # writers of Icechunk replace these files; all others are written once
_ENDED = "a person or the system ended it, for example with Ctrl-C"
_COMMAND = re.compile(r"`retention [^`]*`")
_PLACEHOLDER = re.compile(r"(?<= )(?:REPO|DAY)(?=[ `])")  # in the commands of a message, see `naming`
_NOTHING_WAS = re.compile(r"\b([Nn])othing was\b")


class RetentionError(Exception):
    """An error that ended the run. The message says where, what is wrong, what was not done, and the remedy."""

    exit_code: ClassVar[int] = 3

    def say_nothing_more(self) -> None:
        """Change each "Nothing was" in the message to "Nothing more was", because the run has changed something."""
        self.args = (_NOTHING_WAS.sub(r"\1othing more was", str(self)),)


class GuardRefused(RetentionError):
    """A guard refused the run or ended it. The message says whether anything was deleted."""

    exit_code = 1


class ConfigurationError(RetentionError):
    """The configuration, a policy, an option or an argument is wrong."""

    exit_code = 2


class SourceError(RetentionError):
    """A source of references (lakeFS, a dump) returned an error or impossible data."""


class StoreError(RetentionError):
    """An object store denied a request, failed, or did not have the object."""


class ObjectsFailed(StoreError):
    """A sweep ended, and could not delete or move some objects. The ledger has the outcome of each object."""


class ObjectMissing(StoreError):
    """An object is not in the store."""


class AccessDenied(StoreError):
    """The store or the server rejected the credentials, or the credentials do not have the needed permission."""


class CorruptFile(RetentionError):
    """A file is truncated, altered, renamed or not of its format. It was not used."""


class TableContractError(RetentionError):
    """A table or document of the warehouse is missing, incomplete, damaged, or of another version."""


class OutOfMemory(RetentionError):
    """Java used up its memory. The command must be run again with more memory."""


class WorkerError(Exception):
    """Carries an error of this project from an executor to the driver, as JSON, because Spark passes on only text."""

    def __init__(self, error: RetentionError) -> None:
        kind = next(one for one in type(error).__mro__ if one.__module__ == __name__)  # the driver knows these classes
        super().__init__(_MARK + json.dumps({"error": kind.__name__, "message": str(error)}))


def error_named_in(trace: str) -> RetentionError | None:
    """Return the error of this project that a `WorkerError` carries in this text from Spark; None if there is none."""
    _, mark, rest = trace.partition(_MARK)
    if not mark:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(rest)
    except ValueError:  # the text was cut off
        return None
    error: RetentionError = globals()[document["error"]](document["message"])
    return error


def corrupt(name: str, what: str) -> CorruptFile:
    """Return the error for the file `name`, with `what` as the problem. The caller raises it."""
    is_replaced = name.rpartition("/")[2] in _REPLACED_FILES
    newest = " in its newest version: an older version loses what was committed since" if is_replaced else ""
    return CorruptFile(
        f"{name}: {what}. The file was not used. Nothing was deleted. "
        f"Run the same command again. If the error persists, restore the file from a backup{newest}."
    )


def own_error(error: BaseException) -> RetentionError | None:
    """Return the error of this project: `error` itself, or the error in the text of a `WorkerError`; else None."""
    return error if isinstance(error, RetentionError) else error_named_in(str(error))


@contextmanager
def naming(repository: str, day: str = "DAY") -> Iterator[None]:
    """Replace `REPO` and `DAY` in the commands of an error of the block by the name of the repository and the day.

    Rules and formats know neither. If such a message does not name the repository, its name is put before the message.
    """
    try:
        yield
    except Exception as error:
        own, names = own_error(error), {"REPO": shlex.quote(repository), "DAY": day}
        if own is None:
            raise
        message = str(own)
        named = _COMMAND.sub(lambda command: _PLACEHOLDER.sub(lambda one: names[one[0]], command[0]), message)
        if named != message:
            begins = "" if repository in message else f"{repository}: " if day == "DAY" else f"{repository} {day}: "
            own.args = (f"{begins}{named}",)
        if own is not error:
            raise own from error
        raise


def brief(error: BaseException) -> str:
    """Return the message of an error of this project; of another error, its type and the first line of its message.

    An interruption, such as Ctrl-C or the end of a run in Dagster's UI, is not an error, and has its own message.
    """
    if own := own_error(error):
        return str(own)
    if not isinstance(error, Exception):
        return _ENDED
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def as_value_error[T](parse: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return `parse` with its ConfigurationError as a ValueError, to which pydantic adds the key path."""

    def parsed(value: Any) -> T:
        try:
            return parse(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None

    return parsed
