"""Parts of large directories, cut by how paths begin, so that several may list one directory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

LAST = "\U0010ffff"  # no path goes on with a greater character


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a directory: what lies below it, at any depth, after the path `after` and not after `until`."""

    directory: str
    after: str
    until: str

    def covers(self, path: str) -> bool:
        """Return whether the part has `path`, which lies in the directory."""
        return self.after < path <= self.until


def span_of(beginning: str) -> Span:
    """Return the part of a directory whose paths begin so and go on: `chunks/AB` has `chunks/AB7...`."""
    return Span(beginning[: beginning.rindex("/") + 1], beginning, beginning + LAST)


def spans(directory: str, beginnings: str) -> tuple[Span, ...]:
    """Return parts that together have all of `directory`, cut before each of the characters `beginnings`."""
    cuts = [directory, *(directory + character for character in sorted(beginnings)[1:]), directory + LAST]
    return tuple(Span(directory, after, until) for after, until in pairwise(cuts))


class Parts:
    """Parts of one directory that do not overlap, and which paths they have."""

    def __init__(self, parts: Sequence[Span]) -> None:
        ordered = sorted(parts, key=lambda part: part.after)
        self._after = np.array([part.after.encode() for part in ordered])
        self._until = np.array([part.until.encode() for part in ordered])

    def cover(self, paths: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
        """Return of each path, in UTF-8 and in the directory, whether one of the parts has it."""
        number = np.searchsorted(self._after, paths, side="left") - 1
        return (number >= 0) & (paths <= self._until[number])
