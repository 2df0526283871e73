"""Clocks that replace the clock resource. Dagster accepts any object as a resource."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class GivenClock:
    """A clock that shows what `now` returns."""

    now: Callable[[], datetime]
