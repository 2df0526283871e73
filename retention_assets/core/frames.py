"""Keeps frames in Spark's cache for the time of a `with` block."""

from typing import Self

from pyspark.sql import DataFrame


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
