"""This machine's clock, which is the default for functions with a `clock` parameter, and the start of a day."""

from collections.abc import Callable
from datetime import UTC, date, datetime

Clock = Callable[[], datetime]  # aware, UTC


def utc_now() -> datetime:
    """Return this machine's time as an aware datetime (UTC)."""
    return datetime.now(UTC)


def start_of_day(day: date) -> datetime:
    """Return 00:00 UTC of the day. A plan of the day applies its policy as of this time."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
