"""Numbers of objects and bytes."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of objects and their total size in bytes."""

    objects: int = 0
    bytes: int = 0


def plot_numbers(amounts: Mapping[str, Amount]) -> dict[str, float]:
    """Return `<name>_objects` and `<name>_bytes` of each amount: the numbers that Dagster plots."""
    objects = {f"{name}_objects": amount.objects for name, amount in amounts.items()}
    return {**objects, **{f"{name}_bytes": amount.bytes for name, amount in amounts.items()}}
