"""Objects and bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """How many objects, and their bytes."""

    objects: int = 0
    bytes: int = 0
