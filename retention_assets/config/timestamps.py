"""What time it is by this machine: the clock that callers are handed unless they bring their own."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]  # aware, UTC


def utc_now() -> datetime:
    """Return this machine's time, aware, UTC."""
    return datetime.now(UTC)
