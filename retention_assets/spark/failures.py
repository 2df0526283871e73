"""Explains errors of Spark.

No session starts, Java has no memory left, a disk is full, no files can be written, or a file cannot be read.
"""

import contextlib
import re
import subprocess
from collections.abc import Iterator
from urllib.parse import unquote

from pyspark.core.context import SparkContext

from retention_assets.errors import OutOfMemory, RetentionError, StoreError, TableContractError, error_named_in
from retention_assets.tables import remedy_of_damaged

_OUT_OF_MEMORY = 3  # exit status of Java with -XX:+ExitOnOutOfMemoryError
_SECONDS_TO_END = 1  # to wait until Java has ended after its sockets were closed
_FULL = re.compile("No space left on device|quota exceeded")
# Spark's classes that write temporary files.
_TEMPORARY_FILES = re.compile("TimeTrackingOutputStream|DiskBlockObjectWriter|storage.DiskStore")
_UNREAD = re.compile(r"FAILED_READ_FILE\.NO_HINT\] Encountered error while reading file (\S+?)\.?\s")
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_READING = "FAILED_READ_FILE"  # Spark's name of an error while it reads a file
_REFUSED = re.compile(
    "(No space left on device|quota exceeded|Mkdirs failed to create|Parent path is not a directory|Permission denied|"
    "Read-only file system|Operation not permitted|AccessDenied).*"
)
_NO_FILE_SYSTEM = re.compile(r'No FileSystem for scheme "\w+"|Class org\.apache\.hadoop\.fs\.[\w.$]+ not found')
_MISSING = re.compile(
    r"FileNotFoundException|NoSuchFileException|PATH_NOT_FOUND|FILE_NOT_EXIST|chmod: cannot access|/_temporary/"
)
_CALL = re.compile(r"An error occurred while calling \S+\s*:?\s*")  # how py4j begins the text of an error of Java
_DETAILS = re.compile(r'details = "(.*)"')  # the reason in the text of an error of gRPC, which has several lines
_AGAIN = "Then run the same command again: a sweep continues from its ledger."


def refused_write(text: str) -> str | None:
    """Return why the files of a table cannot be written, from the text of Spark's error; None for another error.

    A write can also fail because Spark cannot compute the rows: it cannot read a file that they come from, or cannot
    write a temporary file. Then the result is None.
    """
    if _READING in text or _is_of_temporary_files(text) or error_named_in(text):
        return None
    found = _REFUSED.search(text)
    return found.group() if found else None


def missing_file_system(text: str) -> str | None:
    """Return Hadoop's message if Spark has no jars for the store, from the text of an error; None: another error."""
    found = _NO_FILE_SYSTEM.search(text)
    return found.group() if found else None


def first_line(error: Exception | str) -> str:
    """Return the first line of Spark's error text, without py4j's introduction: the line names the problem."""
    return _CALL.sub("", str(error)).strip().partition("\n")[0]


def is_of_missing_files(text: str) -> bool:
    """Return whether Spark did not find files that it wrote or listed before, from the text of its error.

    Another run may have removed them, for example because both plan the same day.
    """
    return bool(_MISSING.search(text))


def start_error(error: Exception, where: str) -> RetentionError:
    """Return the error to show if no session could be started. `where`: the master or the server, for the message."""
    details = _DETAILS.search(str(error))
    reason = (details[1] if details else first_line(error)).rstrip(".")
    return explained_error(error) or StoreError(
        f"Spark did not start: {reason}. The session is for {where}. Nothing was read or deleted. Check that this "
        "address can be reached and that the settings in `spark` are correct. Then run the same command again."
    )


def explained_error(error: BaseException) -> RetentionError | None:
    """Return the error to show in place of `error` of Spark; None for another error.

    Java used up its memory or its disk, or Spark cannot read a file of a table.
    """
    status, process = None, getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(_SECONDS_TO_END)
    if status == _OUT_OF_MEMORY or "OutOfMemoryError" in str(error):
        return OutOfMemory(
            "Java used up its memory, so this run ended. Nothing more was done. Set more memory in the configuration, "
            "such as `spark: {spark.driver.memory: 4g}` (the default is 1g; on a cluster, set spark.executor.memory "
            f"too). {_AGAIN}"
        )
    if _is_of_temporary_files(str(error)):
        return StoreError(
            "The disk of Spark's temporary files is full, so this run ended. Nothing more was done. Free space on it, "
            "or set a directory on a larger disk in the configuration: `spark: {spark.local.dir: /directory}` (the "
            f"default is /tmp; a cluster may have its own setting). {_AGAIN}"
        )
    return _unread_file(str(error))


def _unread_file(text: str) -> RetentionError | None:
    """Return the error for a file that Spark found and cannot read; None for another error."""
    found = _UNREAD.search(text)
    if found is None or is_of_missing_files(text) or error_named_in(text):
        return None
    *_, reason = _CAUSE.findall(text) or ["the reason is not known"]
    file = unquote(found[1])
    return TableContractError(
        f"{file}: Spark cannot read this file: {reason.strip().rstrip('.')}. Nothing more was deleted. Run the same "
        f"command again. If it fails again, the file is damaged. {remedy_of_damaged(file)}"
    )


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """Raise the error of `explained_error` in place of an error of the `with` block."""
    try:
        yield
    except Exception as error:
        if explained := None if isinstance(error, RetentionError) else explained_error(error):
            raise explained from error
        raise


def _is_of_temporary_files(text: str) -> bool:
    return bool(_FULL.search(text) and _TEMPORARY_FILES.search(text))
