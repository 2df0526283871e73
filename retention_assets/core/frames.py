"""Keeps frames in Spark's cache for the time of a `with` block, and applies functions to them on executors."""

from collections.abc import Callable, Iterator
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from retention_assets.errors import RetentionError, WorkerError

Batches = Iterator[pa.RecordBatch]


class CachedFrames:
    """The frames that one piece of work has in Spark's cache. The end of its `with` block releases all of them.

    They are released after an error too. Frames that depend on a released frame can still be read, but are computed
    again.
    """

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release all frames."""
        while self._frames:
            self._frames.pop().unpersist()

    def cache(self, frame: DataFrame) -> DataFrame:
        """Mark the frame for Spark's cache until the end of the block, and return the frame."""
        self._frames.append(frame.cache())
        return self._frames[-1]

    def release(self, frame: DataFrame) -> None:
        """Release one frame before the end of the block."""
        self._frames.remove(frame)
        frame.unpersist()


def on_workers(frame: DataFrame, function: Callable[[Batches], Batches], schema: pa.Schema) -> DataFrame:
    """Return the rows of `schema` that `function` makes of the frame's record batches, on executors.

    An error of this project that `function` raises can be read on the driver with `errors.own_error`.
    """

    def run(batches: Batches) -> Batches:
        try:
            yield from function(batches)
        except RetentionError as error:
            raise WorkerError(error) from error

    return frame.mapInArrow(run, from_arrow_schema(schema))
