"""This machine's clock: the default wherever a function takes a clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]  # aware, UTC


def utc_now() -> datetime:
    """Return this machine's time as an aware datetime (UTC)."""
    return datetime.now(UTC)
