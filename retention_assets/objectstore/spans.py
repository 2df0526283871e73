"""Key ranges of large directories, so that several workers can list one directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

LAST = "\U0010ffff"  # the greatest character: no path continues with a greater one


@dataclass(frozen=True, slots=True)
class Span:
    """A key range of a directory: the paths below it, at any depth, after `after` and not after `until`."""

    directory: str
    after: str
    until: str

    def covers(self, path: str) -> bool:
        """Return whether `path`, which must be in the directory, is in the key range."""
        return self.after < path <= self.until


def spans(directory: str, beginnings: str) -> tuple[Span, ...]:
    """Return key ranges that together cover `directory`, with a cut before each character of `beginnings`."""
    cuts = [directory, *(directory + character for character in sorted(beginnings)[1:]), directory + LAST]
    return tuple(Span(directory, after, until) for after, until in pairwise(cuts))


class Parts:
    """Key ranges of one directory that do not overlap."""

    def __init__(self, parts: Sequence[Span]) -> None:
        ordered = sorted(parts, key=lambda part: part.after)
        self._after = np.array([part.after.encode() for part in ordered])
        self._until = np.array([part.until.encode() for part in ordered])

    def cover(self, paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
        """Return for each path whether a key range covers it. Paths are in the directory, encoded as UTF-8."""
        number = np.searchsorted(self._after, paths, side="left") - 1
        return (number >= 0) & (paths <= self._until[number])
