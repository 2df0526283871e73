"""A signal that ends a run also ends the Spark job whose workers delete objects."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Never

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from retention_assets.spark.frames import collected, from_arrow, on_workers
from retention_assets.spark.sessions import prepared

_LONG = 40.0  # seconds that the worker needs if nothing ends the job
NUMBERS = pa.schema([("number", pa.int64())])


class InterruptedByDagsterError(BaseException):
    """Like the error by which Dagster ends a run that a person terminates."""


def interrupt(_number: int, _frame: FrameType | None) -> Never:
    """Handle a signal like Dagster."""
    raise InterruptedByDagsterError


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    """Handle SIGINT with this handler."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.long
def test_an_interruption_ends_the_work_of_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    text, ends = str(tmp_path), time.monotonic() + _LONG

    def count_in_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = 0
        for _ in batches:
            while time.monotonic() < ends:
                Path(text, str(number)).touch()
                number += 1
                time.sleep(0.1)
        yield pa.record_batch([pa.array([number], pa.int64())], schema=NUMBERS)

    def interrupt_when_the_work_has_begun() -> None:
        while not list(tmp_path.iterdir()) and time.monotonic() < ends:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    work = on_workers(from_arrow(spark, pa.table({"task": ["all"]})), count_in_files, NUMBERS)
    threading.Thread(target=interrupt_when_the_work_has_begun, daemon=True).start()
    with handling(interrupt), pytest.raises(InterruptedByDagsterError):
        collected(work)
    before, files = -1, len(list(tmp_path.iterdir()))
    while before != files:  # Spark ends a Python worker some seconds after its task was cancelled
        time.sleep(1.5)
        before, files = files, len(list(tmp_path.iterdir()))
    assert time.monotonic() < ends
    assert spark.range(3).count() == 3  # the session is still usable


def test_a_new_spark_session_leaves_the_handler_of_signals_as_it_was(spark: SparkSession) -> None:
    def start() -> SparkSession:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Spark sets a handler of its own
        return spark

    with handling(interrupt):
        prepared(start)
        assert signal.getsignal(signal.SIGINT) is interrupt
