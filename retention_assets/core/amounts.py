"""Numbers of objects and bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of objects and their total size in bytes."""

    objects: int = 0
    bytes: int = 0
