"""Memory for the arrays that receive the decoded contents of a file."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def bytes_array(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` uninitialised bytes.

    The memory comes from Arrow's pool, which keeps its pages between files: new pages from the operating system cost
    more time than decoding does.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def table_array(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Return an uninitialised table of integers from Arrow's pool."""
    return bytes_array(8 * rows * columns).view(np.int64).reshape(rows, columns)


def offsets_array(values: int) -> npt.NDArray[np.int32]:
    """Return an uninitialised array for Arrow's offsets of `values` values."""
    return bytes_array(4 * (values + 1)).view(np.int32)
