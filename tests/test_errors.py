"""An error of this project keeps its class and its complete message on the way from an executor to the driver."""

import traceback
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.errors import (
    AccessDenied,
    CorruptFile,
    GuardRefused,
    RetentionError,
    SourceError,
    WorkerError,
    brief,
    corrupt,
    error_named_in,
    naming,
    own_error,
)
from retention_assets.spark.frames import Batches, on_workers

MESSAGE = 'lake/_lakefs/"é": it is cut off\nat byte 3: {"x": 1}. It was not used.'


@pytest.mark.parametrize("kind", [AccessDenied, CorruptFile, GuardRefused, RetentionError])
def test_an_error_in_the_traceback_of_a_worker_is_read_with_its_class_and_complete_message(
    kind: type[RetentionError],
) -> None:
    try:
        raise WorkerError(kind(MESSAGE))
    except WorkerError:
        trace = traceback.format_exc()
    found = error_named_in(f"Job aborted:\n{trace}\n\tat org.apache.spark")
    assert type(found) is kind
    assert str(found) == MESSAGE


def test_an_error_of_a_subclass_is_read_as_the_class_that_gives_its_exit_code() -> None:
    class NotFound(SourceError):
        def __init__(self, text: str, status: int) -> None:
            super().__init__(text)
            self.status = status

    found = error_named_in(str(WorkerError(NotFound("gone", 404))))
    assert type(found) is SourceError
    assert str(found) == "gone"


@pytest.mark.parametrize(
    "text",
    [
        "retention_assets.errors.AccessDenied: named in a text that no worker made",
        str(WorkerError(AccessDenied(MESSAGE)))[:-5],
        "java.io.IOException: disk full",
    ],
    ids=["named_in_prose", "cut_off", "of_others"],
)
def test_no_error_is_read_from_a_text_without_a_complete_worker_error(text: str) -> None:
    assert error_named_in(text) is None
    assert brief(OSError(text)) == f"OSError: {text.splitlines()[0]}"


def test_an_error_that_a_worker_raises_reaches_the_driver_through_spark(spark: SparkSession) -> None:
    def read(batches: Batches) -> Batches:
        yield from batches
        raise CorruptFile(MESSAGE)

    frame = on_workers(spark.range(3).select("id"), read, pa.schema([("id", pa.int64())]))
    with pytest.raises(Exception, match="CorruptFile") as caught:
        frame.collect()
    found = own_error(caught.value)
    assert type(found) is CorruptFile
    assert str(found) == MESSAGE


@pytest.mark.parametrize(
    ("name", "is_replaced"), [("lake/repo", True), ("lake/refs/branch.main/ref.json", True), ("lake/chunks/a", False)]
)
def test_a_file_that_writers_replace_must_be_restored_in_its_newest_version(name: str, is_replaced: bool) -> None:
    message = str(corrupt(name, "it is cut off"))
    assert message.startswith(f"{name}: it is cut off. The file was not used. Nothing was deleted.")
    assert ("in its newest version: an older version loses what was committed since" in message) is is_replaced


@pytest.mark.parametrize(
    ("message", "day", "named"),
    [
        pytest.param(
            "a tip moved. Nothing more was changed. Plan again: `retention plan REPO --as-of DAY`.",
            "2026-11-01",
            "field 2026-11-01: a tip moved. Nothing more was changed. Plan again: `retention plan field --as-of "
            "2026-11-01`.",
            id="day",
        ),
        pytest.param(
            "field: REPO is gone. Run `retention status REPO`, then `retention report REPO --as-of DAY`.",
            "DAY",
            "field: REPO is gone. Run `retention status field`, then `retention report field --as-of DAY`.",
            id="no_day",
        ),
        pytest.param("the file REPO is gone.", "2026-11-01", "the file REPO is gone.", id="no_command"),
    ],
)
@pytest.mark.parametrize("carry", [lambda error: error, WorkerError], ids=["driver", "executor"])
def test_the_name_and_the_day_are_put_into_the_commands_of_an_error_of_rules(
    message: str, day: str, named: str, carry: Callable[[RetentionError], Exception]
) -> None:
    with pytest.raises(GuardRefused) as raised, naming("field", day):
        raise carry(GuardRefused(message))
    assert str(raised.value) == named


def test_an_error_of_another_project_stays_as_it_is() -> None:
    with pytest.raises(KeyError, match="REPO"), naming("field"):
        raise KeyError("`retention plan REPO`")
