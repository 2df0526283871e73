"""This machine's clock, which is the default for functions with a `clock` parameter."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]  # aware, UTC


def utc_now() -> datetime:
    """Return this machine's time as an aware datetime (UTC)."""
    return datetime.now(UTC)
